//! The toolbox of a sandbox, behind the proxy: only one that has started has one, and what is asked of it is traffic.

use super::World;
use super::ask::{Ask, No, json};
use super::sandbox::Sandbox;
use super::{execute, files, pty, sessions};
use crate::machine::Machine;
use axum::extract::ws::WebSocketUpgrade;
use axum::http::Method;
use axum::response::Response;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const HOME: &str = "/home/user";

pub(super) async fn route(
    world: &Arc<World>,
    ask: Ask,
    id: &str,
    path: &[&str],
    upgrade: Option<WebSocketUpgrade>,
) -> Result<Response, No> {
    let sandbox = world.sandbox(id).filter(|sandbox| sandbox.state() != "destroyed");
    let sandbox = sandbox.ok_or_else(|| No::refuses(404, "sandbox not found"))?;
    if sandbox.state() != "started" {
        return Err(No::refuses(400, format!("sandbox is not started: {}", sandbox.state())));
    }
    let machine = sandbox.machine().ok_or_else(|| No::refuses(502, "bad gateway"))?;
    if ask.header("x-daytona-skip-last-activity-update") != Some("true") {
        sandbox.touch();
    }
    match (ask.method.clone(), path) {
        (_, ["files", rest @ ..]) => files::route(world, &ask, &machine, rest),
        (Method::POST, ["process", "execute"]) => execute::route(&ask, &sandbox, machine).await,
        (_, ["process", "session", rest @ ..]) => sessions::route(&ask, &sandbox, machine, rest).await,
        (_, ["process", "pty", rest @ ..]) => pty::route(world, &ask, &sandbox, &machine, rest, upgrade),
        (Method::GET, ["version"]) => said(&ask, "version", "v0.205.1"),
        (Method::GET, ["work-dir" | "user-home-dir"]) => said(&ask, "dir", HOME),
        (Method::GET, ["system", "metrics"]) => {
            ask.plain()?;
            Ok(json(200, &measures(&machine)))
        }
        _ => Err(No::violates("the toolbox has no such call")),
    }
}

fn said(ask: &Ask, name: &str, value: &str) -> Result<Response, No> {
    ask.plain()?;
    Ok(json(200, &BTreeMap::from([(name, value)])))
}

/// Of everything that runs there.
pub(super) fn environment(sandbox: &Sandbox, more: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own =
        [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", HOME), ("SHELL", execute::SHELL), ("USER", "daytona")];
    let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
    own.into_iter().chain(sandbox.order.env.clone()).chain(more.clone()).collect()
}

fn measures(machine: &Machine) -> serde_json::Value {
    let kib = |text: &str, name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
        line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) << 10
    };
    let of = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let used: u64 = machine.pids().iter().map(|pid| kib(&of(pid), "VmRSS:")).sum();
    let total = kib(&std::fs::read_to_string("/proc/meminfo").unwrap(), "MemTotal:");
    let disk = rustix::fs::statvfs(machine.root()).unwrap();
    let (all, free) = (disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize);
    serde_json::json!({
        "cpuCount": 1, "cpuUsedPct": 0.5, "memTotal": total, "memUsed": used, "memCache": 0,
        "diskTotal": all, "diskFree": free, "diskUsed": all - free,
        "timestampUnix": jiff::Timestamp::now().as_second(),
    })
}
