//! The control plane.

use super::ask::{Ask, No, json, nothing};
use super::sandbox::Sandbox;
use super::{SNAPSHOT, World};
use axum::http::Method;
use axum::response::Response;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// On one page, whatever was asked for: so that every list of a test has several.
const PAGE: usize = 3;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Labels {
    labels: BTreeMap<String, String>,
}

pub(super) fn route(world: &Arc<World>, ask: &Ask, path: &[&str]) -> Result<Response, No> {
    let known = |id: &str| {
        let found = world
            .sandbox(id)
            .filter(|one| one.state() != "destroyed" || one.seen_destroyed.fetch_add(1, Ordering::SeqCst) == 0);
        found.ok_or_else(|| No::refuses(404, format!("Sandbox with ID or name {id} not found")))
    };
    let told = |sandbox: &Sandbox| json(200, &sandbox.told(world));
    match (ask.method.clone(), path) {
        (Method::POST, ["sandbox"]) => {
            let order = ask.knows(&[])?.json()?;
            Ok(told(&*Sandbox::make(world, order)?))
        }
        (Method::GET, ["sandbox"]) => list(world, ask),
        (Method::GET, ["sandbox", id]) => {
            ask.knows(&["verbose"])?;
            Ok(told(&*known(id)?))
        }
        (Method::DELETE, ["sandbox", id]) => {
            ask.plain()?;
            let sandbox = known(id)?;
            sandbox.destroy();
            Ok(told(&sandbox))
        }
        (Method::POST, ["sandbox", id, order @ ("start" | "stop" | "archive")]) => {
            ask.knows(if *order == "stop" { &["force"] } else { &[] })?;
            let sandbox = known(id)?;
            match *order {
                "start" => sandbox.start()?,
                "stop" => sandbox.stop()?,
                _ => sandbox.archive()?,
            }
            Ok(told(&sandbox))
        }
        (Method::POST, ["sandbox", id, "autostop", minutes]) => {
            ask.plain()?;
            let minutes = minutes.parse().map_err(|_| No::violates("no number of minutes"))?;
            let sandbox = known(id)?;
            sandbox.set_auto_stop(minutes);
            Ok(told(&sandbox))
        }
        (Method::POST, ["sandbox", id, "last-activity"]) => {
            ask.knows(&[])?;
            known(id)?.touch();
            Ok(nothing(201))
        }
        (Method::PUT, ["sandbox", id, "labels"]) => {
            let order: Labels = ask.knows(&[])?.json()?;
            *known(id)?.labels.lock().unwrap() = order.labels.clone();
            Ok(json(200, &serde_json::json!({"labels": order.labels})))
        }
        (Method::GET, ["sandbox", id, "toolbox-proxy-url"]) => {
            ask.plain()?;
            known(id)?;
            Ok(json(200, &serde_json::json!({"url": format!("{}/toolbox", world.base)})))
        }
        (Method::GET, ["snapshots", name @ ..]) => {
            ask.plain()?;
            if name.join("/") == SNAPSHOT {
                Ok(json(200, &serde_json::json!({"id": "snapshot-1", "name": SNAPSHOT, "state": "active"})))
            } else {
                Err(No::refuses(404, "Snapshot not found"))
            }
        }
        _ => Err(No::violates("the control plane has no such call")),
    }
}

/// The newest first. The cursor is where to go on.
fn list(world: &World, ask: &Ask) -> Result<Response, No> {
    ask.knows(&["cursor", "limit", "labels", "states", "snapshots", "name", "id", "sort", "order"])?;
    let number = |name: &str| -> Result<Option<usize>, No> {
        let given = ask.query(name).map(|text| text.strip_prefix("after-").unwrap_or(text).parse());
        given.transpose().map_err(|_| No::violates(format!("`{name}` is no number")))
    };
    let limit = number("limit")?.unwrap_or(100);
    if !(1..=200).contains(&limit) {
        return Err(No::violates("a limit that is none"));
    }
    let from = number("cursor")?.unwrap_or(0);
    let wanted: BTreeMap<String, String> = match ask.query("labels") {
        None => BTreeMap::new(),
        Some(text) => serde_json::from_str(text).map_err(|error| No::violates(error.to_string()))?,
    };
    let fits = |sandbox: &&Arc<Sandbox>| {
        let labels = sandbox.labels.lock().unwrap();
        wanted.iter().all(|(name, value)| labels.get(name) == Some(value))
    };
    let all = world.sandboxes();
    let found: Vec<_> = all.iter().rev().filter(fits).collect();
    let until = found.len().min(from + limit.min(PAGE));
    let next = (until < found.len()).then(|| format!("after-{until}"));
    let items = found.get(from..until).unwrap_or_default().iter().map(|sandbox| {
        let mut told = sandbox.told(world);
        told.as_object_mut().unwrap().remove("env");
        told
    });
    Ok(json(200, &serde_json::json!({"items": items.collect::<Vec<_>>(), "nextCursor": next})))
}
