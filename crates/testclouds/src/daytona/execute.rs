//! One command: the shell reads it from its standard input, and both streams are one.

use super::ask::{Ask, No, json};
use super::sandbox::Sandbox;
use super::toolbox::{HOME, environment};
use crate::machine::Machine;
use axum::response::Response;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

pub(super) const SHELL: &str = "/bin/bash";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    command: String,
    cwd: Option<String>,
    #[serde(default)]
    envs: BTreeMap<String, String>,
    timeout: Option<u64>,
}

pub(super) async fn route(ask: &Ask, sandbox: &Sandbox, machine: Arc<Machine>) -> Result<Response, No> {
    let order: Order = ask.knows(&[])?.json()?;
    if order.command.is_empty() {
        return Err(No::violates("command is required"));
    }
    let cwd = order.cwd.as_deref().unwrap_or(HOME);
    if !machine.outside(cwd).is_dir() {
        let said = format!("chdir {cwd}: no such file or directory");
        return Ok(json(200, &serde_json::json!({"exitCode": -1, "result": said})));
    }
    let (mut out, into) = std::io::pipe().unwrap();
    let mut command = machine.command(SHELL, &[], &environment(sandbox, &order.envs), cwd);
    // Whatever keeps the machine keeps its processes.
    drop(machine);
    command.stdin(std::process::Stdio::piped()).stdout(into.try_clone().unwrap()).stderr(into);
    let mut command = tokio::process::Command::from(command);
    let mut child = command.spawn().unwrap();
    drop(command);
    let pid = child.id().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(order.command.as_bytes()).await;
    drop(stdin);
    // What it leaves behind with its output open is waited for too.
    let reading = tokio::task::spawn_blocking(move || {
        let mut result = Vec::new();
        let _ = out.read_to_end(&mut result);
        result
    });
    let running = async {
        let result = reading.await.unwrap();
        (child.wait().await.unwrap(), result)
    };
    let limit = order.timeout.filter(|seconds| *seconds > 0);
    let patience = limit.map_or(Duration::from_hours(24), Duration::from_secs);
    let Ok((status, result)) = tokio::time::timeout(patience, running).await else {
        kill_tree(pid);
        let said = format!("command execution timed out after {} seconds", limit.unwrap_or(0));
        return Err(No::refuses(408, said).with("PROCESS_EXECUTION_TIMEOUT"));
    };
    let result = String::from_utf8_lossy(&result);
    Ok(json(200, &serde_json::json!({"exitCode": status.code().unwrap_or(-1), "result": result})))
}

/// A process of this machine's and all that came of it, the leaves first.
pub(super) fn kill_tree(pid: u32) {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
        kill_tree(child);
    }
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
