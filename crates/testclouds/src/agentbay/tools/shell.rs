//! A command, for at most 50 s: then all of it is killed. It is over when nobody holds its output.

use super::Outcome;
use crate::machine::Machine;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

const LONGEST: u64 = 50_000;

pub(super) async fn run(machine: &Machine, arguments: &Value) -> Result<Outcome, String> {
    let command = arguments["command"].as_str().ok_or("`command` is no text")?;
    let timeout = match &arguments["timeout_ms"] {
        Value::Null => LONGEST,
        value => value.as_u64().filter(|ms| (1..=LONGEST).contains(ms)).ok_or("`timeout_ms` is not within 1..50000")?,
    };
    let cwd = match &arguments["cwd"] {
        Value::Null => "/root",
        value => value.as_str().ok_or("`cwd` is no text")?,
    };
    let mut env = BTreeMap::from([
        ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
        ("HOME".to_owned(), "/root".to_owned()),
    ]);
    if !arguments["envs"].is_null() {
        let more: BTreeMap<String, String> =
            serde_json::from_value(arguments["envs"].clone()).map_err(|_| "`envs` are not words")?;
        env.extend(more);
    }
    let mut command = machine.command("/bin/bash", &["-c".to_owned(), command.to_owned()], &env, cwd);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = match tokio::process::Command::from(command).spawn() {
        Ok(child) => child,
        Err(error) => return Ok(Outcome::failed(error.to_string())),
    };
    let group = child.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?));
    match tokio::time::timeout(Duration::from_millis(timeout), child.wait_with_output()).await {
        Ok(Ok(output)) => {
            let code = output.status.code().unwrap_or(-1);
            let text = json!({
                "stdout": String::from_utf8_lossy(&output.stdout), "stderr": String::from_utf8_lossy(&output.stderr),
                "exit_code": code, "traceId": if code == 0 { "" } else { "trace" },
            });
            Ok(Outcome { text: text.to_string(), is_error: code != 0 })
        }
        Ok(Err(error)) => Ok(Outcome::failed(error.to_string())),
        Err(_) => {
            if let Some(group) = group {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            Ok(Outcome::failed(format!("command timed out after {timeout} ms")))
        }
    }
}
