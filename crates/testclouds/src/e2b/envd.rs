//! The daemon in a sandbox: who may ask, and for what.

use super::wire::{Answer, Call, Refusal, fault, refuse};
use super::world::{Awake, Sandbox, World};
use super::{file, process, rest};
use axum::Json;
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::collections::BTreeMap;

const PORT: &str = "49983";

pub(super) async fn answer(world: &World, call: &Call) -> Answer {
    let (id, port) = (world.header(call, "e2b-sandbox-id")?, world.header(call, "e2b-sandbox-port")?);
    let sandbox = world.sandbox(id);
    let Some((sandbox, awake)) = sandbox.and_then(|sandbox| sandbox.awake().map(|awake| (sandbox, awake))) else {
        return Err(refuse(502, "The sandbox was not found"));
    };
    if awake.mute {
        return std::future::pending().await;
    }
    if port != PORT {
        return Err(refuse(502, "The sandbox is running but port is not open"));
    }
    if (&call.method, call.uri.path()) == (&Method::GET, "/health") {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    if world.header(call, "x-access-token")? != awake.token {
        return Err(refuse(401, "unauthorized access, please provide a valid access token"));
    }
    let asked = Asked { user: user(call)?, sandbox: &sandbox, awake };
    tokio::select! {
        () = asked.awake.until_cut.cancelled() => Err(Refusal::Cut),
        answer = served(world, call, &asked) => answer,
    }
}

/// By whom, and in what.
pub(super) struct Asked<'a> {
    pub user: &'static str,
    pub sandbox: &'a std::sync::Arc<Sandbox>,
    pub awake: Awake,
}

impl Asked<'_> {
    pub(super) fn home(&self) -> &'static str {
        if self.user == "root" { "/root" } else { "/home/user" }
    }

    /// What every program gets, and what the sandbox was made with.
    pub(super) fn env(&self) -> BTreeMap<String, String> {
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let own = [("PATH", path), ("HOME", self.home()), ("USER", self.user), ("LOGNAME", self.user)];
        let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
        own.into_iter().chain(self.sandbox.made.env.clone()).collect()
    }

    /// A path as it is inside.
    pub(super) fn path(&self, path: &str) -> String {
        match path.strip_prefix('~') {
            Some(rest) => format!("{}{rest}", self.home()),
            None if path.starts_with('/') => path.to_owned(),
            None => format!("{}/{path}", self.home()),
        }
    }
}

/// The name before an empty password; the template's own without any.
fn user(call: &Call) -> Result<&'static str, Refusal> {
    let Some(header) = call.headers.get("authorization") else { return Ok("user") };
    let encoded = header.to_str().ok().and_then(|text| text.strip_prefix("Basic "));
    match encoded.and_then(|text| STANDARD.decode(text).ok()).as_deref() {
        Some(b"user:") => Ok("user"),
        Some(b"root:") => Ok("root"),
        _ => Err(fault("unauthenticated", "no such user")),
    }
}

async fn served(world: &World, call: &Call, asked: &Asked<'_>) -> Answer {
    match (&call.method, call.uri.path()) {
        (&Method::GET, "/metrics") => {
            let (total, free) = rest::memory();
            Ok(Json(json!({ "mem_total": total, "mem_used": total - free })).into_response())
        }
        (&Method::GET, "/files") => file::download(world, call, asked),
        (&Method::POST, "/files") => file::upload(world, call, asked),
        (&Method::POST, path) if world.header(call, "connect-protocol-version")? == "1" => {
            if let Some(method) = path.strip_prefix("/process.Process/") {
                return process::answer(world, call, asked, method).await;
            }
            if let Some(method) = path.strip_prefix("/filesystem.Filesystem/") {
                return file::answer(world, call, asked, method);
            }
            Err(world.strange(call, "no such call"))
        }
        _ => Err(world.strange(call, "no such call")),
    }
}
