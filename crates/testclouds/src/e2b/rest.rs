//! The life of sandboxes.

use super::KEY;
use super::wire::{Answer, Call, refuse, unescaped};
use super::world::{Made, Sandbox, State, World};
use axum::Json;
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The daemon that it has: with all that the newest SDK asks for.
const ENVD: &str = "0.6.13";

const TEMPLATES: [&str; 2] = ["base", "other"];

const CPUS: u32 = 2;

/// The longest life of one run.
const LONGEST: u64 = 24 * 3600;

pub(super) async fn answer(world: &World, call: &Call) -> Answer {
    // None at all is our mistake; a wrong one is somebody's.
    if world.header(call, "x-api-key")? != KEY {
        return Err(refuse(401, "Invalid API key"));
    }
    let path: Vec<_> = call.uri.path().trim_start_matches('/').split('/').collect();
    match (&call.method, path.as_slice()) {
        (&Method::POST, ["sandboxes"]) => create(world, call, 15).await,
        (&Method::POST, ["v2", "sandboxes"]) => create(world, call, 300).await,
        (&Method::GET, ["v2", "sandboxes"]) => list(world, call),
        (&Method::GET, ["sandboxes", id]) => {
            world.query(call, &[])?;
            Ok(Json(detail(world, &*find(world, id)?)).into_response())
        }
        (&Method::DELETE, ["sandboxes", id]) => {
            world.kill(&*find(world, id)?);
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        (&Method::POST, ["sandboxes", id, "pause"]) => pause(world, call, id).await,
        (&Method::POST, ["sandboxes", id, "connect"] | ["v2", "sandboxes", id, "connect"]) => {
            connect(world, call, id).await
        }
        (&Method::POST, ["sandboxes", id, "timeout"]) => set_timeout(world, call, id),
        (&Method::POST, ["sandboxes", id, "refreshes"]) => refresh(world, call, id),
        (&Method::GET, ["sandboxes", id, "metrics"]) => metrics(world, call, id),
        _ => Err(world.strange(call, "no such call")),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct New {
    #[serde(rename = "templateID")]
    template_id: String,
    timeout: Option<u64>,
    #[serde(default)]
    auto_pause: bool,
    /// Ignored: everything is secured by now.
    #[serde(rename = "secure")]
    _secure: Option<bool>,
    #[serde(rename = "allow_internet_access")]
    allow_internet_access: Option<bool>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    #[serde(default)]
    env_vars: BTreeMap<String, String>,
}

async fn create(world: &World, call: &Call, default: u64) -> Answer {
    let new: New = world.json(call)?;
    let key = call.headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let known = key.and_then(|key| world.keys.lock().unwrap().get(key).cloned());
    if let Some(sandbox) = known.and_then(|id| world.sandbox(&id)) {
        return Ok((StatusCode::CREATED, Json(reached(&sandbox))).into_response());
    }
    if !TEMPLATES.contains(&new.template_id.as_str()) {
        return Err(refuse(404, &format!("template '{}' not found", new.template_id)));
    }
    let timeout = new.timeout.unwrap_or(default);
    if timeout > LONGEST {
        return Err(refuse(400, "Timeout cannot be greater than 24 hours"));
    }
    let sandbox = world
        .create(Made {
            template: new.template_id,
            timeout: Duration::from_secs(timeout),
            auto_pause: new.auto_pause,
            internet: new.allow_internet_access,
            metadata: new.metadata,
            env: new.env_vars,
        })
        .await;
    if let Some(key) = key {
        world.keys.lock().unwrap().insert(key.to_owned(), sandbox.id.clone());
    }
    Ok((StatusCode::CREATED, Json(reached(&sandbox))).into_response())
}

fn list(world: &World, call: &Call) -> Answer {
    let query = world.query(call, &["metadata", "state", "order", "limit", "nextToken", "template"])?;
    let value = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let bad = |what: &str| Err(world.strange(call, format_args!("`{what}` in the query")));
    let Some(wanted) = filter(value("metadata").unwrap_or_default()) else { return bad("metadata") };
    let states: Vec<_> = query.iter().filter(|(key, _)| key == "state").flat_map(|(_, v)| v.split(',')).collect();
    if states.iter().any(|state| !["running", "paused"].contains(state)) {
        return bad("state");
    }
    let limit = match value("limit").map(str::parse) {
        None => 100,
        Some(Ok(limit @ 1..=100)) => limit,
        Some(_) => return bad("limit"),
    };
    let is_ascending = match value("order") {
        Some("asc") => true,
        Some("desc") | None => false,
        Some(_) => return bad("order"),
    };
    let after = match value("nextToken").map(|token| token.strip_prefix("after-").and_then(|n| n.parse::<u64>().ok())) {
        None => None,
        Some(None) => return bad("nextToken"),
        Some(number) => number,
    };
    let mut all = world.all();
    let running = all.iter().filter(|sandbox| sandbox.state() == State::Running).count();
    all.retain(|sandbox| {
        wanted.iter().all(|(name, value)| sandbox.made.metadata.get(name) == Some(value))
            && (states.is_empty() || states.contains(&word(sandbox.state())))
            && value("template").is_none_or(|template| sandbox.made.template == template)
    });
    if !is_ascending {
        all.reverse();
    }
    let is_later = |sandbox: &Sandbox, than: u64| (sandbox.number > than) == is_ascending && sandbox.number != than;
    all.retain(|sandbox| after.is_none_or(|after| is_later(sandbox, after)));
    let limit = limit.min(world.page.load(Ordering::Relaxed));
    let is_more = all.len() > limit;
    all.truncate(limit);
    let body: Vec<_> = all.iter().map(|sandbox| listed(world, sandbox)).collect();
    let mut response = ([("X-Total-Running", running.to_string())], Json(body)).into_response();
    if let Some(last) = all.last().filter(|_| is_more) {
        response.headers_mut().insert("X-Next-Token", format!("after-{}", last.number).parse().unwrap());
    }
    Ok(response)
}

/// Decoded as a whole, and then each name and value by itself.
fn filter(text: &str) -> Option<BTreeMap<String, String>> {
    let whole = unescaped(text);
    let pairs = whole.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').map(|(name, value)| (unescaped(name), unescaped(value)))).collect()
}

async fn pause(world: &World, call: &Call, id: &str) -> Answer {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct Pause {
        memory: Option<bool>,
        #[serde(rename = "requireHealthyGuest")]
        _require_healthy_guest: Option<bool>,
    }
    let Pause { memory, .. } = world.json(call)?;
    if memory == Some(false) {
        return Err(world.strange(call, "a pause without memory is not served here"));
    }
    if find(world, id)?.pause().await {
        Ok(StatusCode::NO_CONTENT.into_response())
    } else {
        Err(refuse(409, &format!("Sandbox '{id}' is already paused")))
    }
}

async fn connect(world: &World, call: &Call, id: &str) -> Answer {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Connect {
        timeout: Option<u64>,
    }
    let Connect { timeout } = world.json(call)?;
    let timeout = match timeout {
        Some(timeout) => timeout,
        // Only the newer call has a default.
        None if call.uri.path().starts_with("/v2/") => 300,
        None => return Err(world.strange(call, "no `timeout`")),
    };
    let sandbox = find(world, id)?;
    let resumed = sandbox.connect(world.clock.now() + Duration::from_secs(timeout)).await;
    let status = if resumed { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(reached(&sandbox))).into_response())
}

fn set_timeout(world: &World, call: &Call, id: &str) -> Answer {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SetTimeout {
        timeout: u64,
    }
    let SetTimeout { timeout } = world.json(call)?;
    find_running(world, id)?.set_ends(world.clock.now() + Duration::from_secs(timeout));
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn refresh(world: &World, call: &Call, id: &str) -> Answer {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Refresh {
        duration: Option<u64>,
    }
    let Refresh { duration } = world.json(call)?;
    let duration = duration.unwrap_or(15);
    if duration > 3600 {
        return Err(world.strange(call, "more than 3600 s"));
    }
    let sandbox = find_running(world, id)?;
    sandbox.set_ends(sandbox.ends().max(world.clock.now() + Duration::from_secs(duration.max(15))));
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn metrics(world: &World, call: &Call, id: &str) -> Answer {
    world.query(call, &["start", "end"])?;
    find(world, id)?;
    let (now, memory, disk) = (Timestamp::now(), memory(), rustix::fs::statvfs("/tmp").unwrap());
    Ok(Json(json!([{
        "timestamp": now.to_string(),
        "timestampUnix": now.as_second(),
        "cpuCount": CPUS,
        "cpuUsedPct": 1.5,
        "memTotal": memory.0,
        "memUsed": memory.0 - memory.1,
        "memCache": 0,
        "diskTotal": disk.f_blocks * disk.f_frsize,
        "diskUsed": (disk.f_blocks - disk.f_bfree) * disk.f_frsize,
    }]))
    .into_response())
}

/// All of it, and what is free, in bytes.
pub(super) fn memory() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
    };
    (line("MemTotal:"), line("MemAvailable:"))
}

fn find(world: &World, id: &str) -> Result<Arc<Sandbox>, super::wire::Refusal> {
    world.sandbox(id).ok_or_else(|| refuse(404, &format!("Sandbox '{id}' not found")))
}

/// One that sleeps has no time to be set.
fn find_running(world: &World, id: &str) -> Result<Arc<Sandbox>, super::wire::Refusal> {
    let sandbox = find(world, id)?;
    if sandbox.state() == State::Running { Ok(sandbox) } else { Err(refuse(404, &format!("Sandbox '{id}' not found"))) }
}

fn word(state: State) -> &'static str {
    match state {
        State::Running => "running",
        State::Paused => "paused",
    }
}

/// What creation and connecting answer.
fn reached(sandbox: &Sandbox) -> Value {
    json!({
        "templateID": sandbox.made.template,
        "sandboxID": sandbox.id,
        "clientID": "6532622b",
        "envdVersion": ENVD,
        "envdAccessToken": sandbox.token(),
        "trafficAccessToken": null,
        "domain": null,
    })
}

fn listed(world: &World, sandbox: &Sandbox) -> Value {
    let left = sandbox.ends().saturating_sub(world.clock.now());
    json!({
        "templateID": sandbox.made.template,
        "sandboxID": sandbox.id,
        "clientID": "6532622b",
        "envdVersion": ENVD,
        "startedAt": sandbox.started.to_string(),
        "endAt": (Timestamp::now() + SignedDuration::try_from(left).unwrap()).to_string(),
        "cpuCount": CPUS,
        "memoryMB": memory().0 >> 20,
        "diskSizeMB": 1024,
        "metadata": sandbox.made.metadata,
        "state": word(sandbox.state()),
    })
}

fn detail(world: &World, sandbox: &Sandbox) -> Value {
    let mut value = listed(world, sandbox);
    value["envdAccessToken"] = sandbox.token().into();
    value["allowInternetAccess"] = sandbox.made.internet.into();
    value["domain"] = Value::Null;
    let on_timeout = if sandbox.made.auto_pause { "pause" } else { "kill" };
    value["lifecycle"] = json!({ "autoResume": false, "onTimeout": on_timeout });
    value
}
