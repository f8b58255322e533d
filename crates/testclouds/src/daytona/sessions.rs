//! Sessions: a shell that stays, into which each command is sourced, so that what one does to it the next one has.

use super::ask::{Ask, No, json, nothing};
use super::execute::{SHELL, kill_tree};
use super::sandbox::Sandbox;
use super::toolbox::{HOME, environment};
use crate::machine::Machine;
use axum::http::Method;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json as value};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// As often as the toolbox itself looks for the end of a command.
const LOOK: Duration = Duration::from_millis(50);

/// Where commands and their output are, inside.
const DIRECTORY: &str = "/tmp/.daytona-sessions";

#[derive(Debug)]
pub(super) struct Session {
    shell: Mutex<(Child, ChildStdin)>,
    commands: Mutex<Vec<Command>>,
}

#[derive(Debug, Clone)]
struct Command {
    id: String,
    text: String,
    /// Its files, as this machine has them.
    at: PathBuf,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Name {
    session_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Order {
    command: String,
    run_async: Option<bool>,
    #[expect(dead_code, reason = "sent by the SDK; about the echo of a terminal that isn't there")]
    suppress_input_echo: Option<bool>,
}

impl Command {
    fn exit_code(&self) -> Option<i32> {
        std::fs::read_to_string(self.at.join("exit")).ok()?.trim().parse().ok()
    }

    fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.at.join(name)).unwrap_or_default()).into_owned()
    }

    fn told(&self) -> Value {
        let mut told = value!({"id": self.id, "command": self.text});
        if let Some(code) = self.exit_code() {
            told["exitCode"] = code.into();
        }
        told
    }

    fn logs(&self) -> Value {
        let (out, err) = (self.read("out"), self.read("err"));
        value!({"output": format!("{out}{err}"), "stdout": out, "stderr": err})
    }
}

impl Session {
    fn start(sandbox: &Sandbox, machine: &Machine) -> Self {
        let mut command = machine.command(SHELL, &[], &environment(sandbox, &BTreeMap::new()), HOME);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        Self { shell: Mutex::new((child, stdin)), commands: Mutex::default() }
    }

    fn begin(&self, machine: &Machine, text: &str) -> Command {
        let id = format!("{:016x}", getrandom::u64().unwrap());
        let inside = format!("{DIRECTORY}/{id}");
        let command = Command { at: machine.outside(&inside), text: text.to_owned(), id };
        std::fs::create_dir_all(&command.at).unwrap();
        std::fs::write(command.at.join("cmd.sh"), format!("{text}\n")).unwrap();
        let line = format!(
            ". {inside}/cmd.sh >{inside}/out 2>{inside}/err </dev/null; \
             echo $? >{inside}/exit.new; mv {inside}/exit.new {inside}/exit\n"
        );
        self.commands.lock().unwrap().push(command.clone());
        let _ = self.shell.lock().unwrap().1.write_all(line.as_bytes());
        command
    }

    fn command(&self, id: &str) -> Result<Command, No> {
        let commands = self.commands.lock().unwrap();
        commands.iter().find(|command| command.id == id).cloned().ok_or_else(|| No::refuses(404, "command not found"))
    }

    fn told(&self, id: &str) -> Value {
        let commands: Vec<_> = self.commands.lock().unwrap().iter().map(Command::told).collect();
        value!({"sessionId": id, "commands": commands})
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let shell = self.shell.get_mut().unwrap();
        kill_tree(shell.0.id());
        let _ = shell.0.wait();
    }
}

pub(super) async fn route(ask: &Ask, sandbox: &Sandbox, machine: Arc<Machine>, path: &[&str]) -> Result<Response, No> {
    ask.knows(&[])?;
    let session = |id: &str| {
        let found = sandbox.sessions.lock().unwrap().get(id).cloned();
        found.ok_or_else(|| No::refuses(404, "session not found").with("PROCESS_NOT_FOUND"))
    };
    match (ask.method.clone(), path) {
        (Method::POST, []) => {
            let name: Name = ask.json()?;
            let mut sessions = sandbox.sessions.lock().unwrap();
            if sessions.contains_key(&name.session_id) {
                return Err(No::refuses(409, "session already exists").with("CONFLICT"));
            }
            sessions.insert(name.session_id, Arc::new(Session::start(sandbox, &machine)));
            Ok(nothing(201))
        }
        (Method::GET, []) => {
            let sessions = sandbox.sessions.lock().unwrap();
            let told: Vec<_> = sessions.iter().map(|(id, session)| session.told(id)).collect();
            Ok(json(200, &told))
        }
        (Method::GET, [id]) => Ok(json(200, &session(id)?.told(id))),
        (Method::DELETE, [id]) => {
            session(id)?;
            sandbox.sessions.lock().unwrap().remove(*id);
            Ok(nothing(204))
        }
        (Method::POST, [id, "exec"]) => {
            let order: Order = ask.json()?;
            let session = session(id)?;
            let command = session.begin(&machine, &order.command);
            drop(machine);
            if order.run_async == Some(true) {
                return Ok(json(202, &value!({"cmdId": command.id})));
            }
            loop {
                if let Some(code) = command.exit_code() {
                    let mut told = command.logs();
                    told["cmdId"] = command.id.into();
                    told["exitCode"] = code.into();
                    return Ok(json(200, &told));
                }
                if session.shell.lock().unwrap().0.try_wait().unwrap().is_some() {
                    return Err(No::refuses(410, "session ended").with("SESSION_ENDED"));
                }
                tokio::time::sleep(LOOK).await;
            }
        }
        (Method::GET, [id, "command", command]) => Ok(json(200, &session(id)?.command(command)?.told())),
        (Method::GET, [id, "command", command, "logs"]) => Ok(json(200, &session(id)?.command(command)?.logs())),
        _ => Err(No::violates("sessions have no such call")),
    }
}
