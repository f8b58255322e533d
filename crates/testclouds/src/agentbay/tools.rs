//! What a session can do: run a command for a short time, and files.

mod files;
mod metrics;
mod shell;

use super::State;
use super::actions::wrong_state;
use super::door::Refusal;
use super::session::{Session, Status};
use serde_json::{Map, Value, json};
use std::sync::atomic::Ordering;

/// What a message of the front door carries.
const MOST_MESSAGE: usize = 63 << 10;

/// By which way a tool is called. Only the front door's messages are small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    Front,
    Link,
}

/// What a tool says.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) text: String,
    pub(super) is_error: bool,
}

impl Outcome {
    pub(super) fn fine(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: false }
    }

    pub(super) fn failed(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true }
    }

    pub(super) fn to_value(&self) -> Value {
        json!({ "content": [{ "type": "text", "text": self.text }], "isError": self.is_error })
    }
}

/// Name, server, arguments that it needs and that it may have.
type Tool = (&'static str, &'static str, &'static [&'static str], &'static [&'static str]);

const TOOLS: [Tool; 10] = [
    ("shell", "wuying_shell", &["command"], &["timeout_ms", "cwd", "envs"]),
    ("read_file", "wuying_filesystem", &["path"], &["offset", "length", "format"]),
    ("write_file", "wuying_filesystem", &["path", "content"], &["mode"]),
    ("create_directory", "wuying_filesystem", &["path"], &[]),
    ("delete_file", "wuying_filesystem", &["path"], &[]),
    ("move_file", "wuying_filesystem", &["source", "destination"], &[]),
    ("list_directory", "wuying_filesystem", &["path"], &[]),
    ("get_file_info", "wuying_filesystem", &["path"], &[]),
    ("read_multiple_files", "wuying_filesystem", &["paths"], &[]),
    ("get_metrics", "wuying_monitor", &[], &[]),
];

/// As `ToolList` has it.
pub(super) fn list() -> Value {
    TOOLS.iter().map(|(name, server, _, _)| json!({ "name": name, "server": server })).collect()
}

pub(super) async fn call(
    state: &State,
    session: &Session,
    route: Route,
    name: &str,
    server: &str,
    arguments: &Map<String, Value>,
) -> Result<Outcome, Refusal> {
    let broken = |what: String| {
        state.violation(format!("tool {name}: {what}"));
        Refusal::new(400, "InvalidParameter", what)
    };
    let Some((_, its_server, needed, allowed)) = TOOLS.iter().find(|tool| tool.0 == name) else {
        return Err(broken("unknown tool".to_owned()));
    };
    if !server.is_empty() && server != *its_server {
        return Err(broken(format!("server `{server}` doesn't have it")));
    }
    if let Some(word) = needed.iter().find(|word| !arguments.contains_key(**word)) {
        return Err(broken(format!("`{word}` is missing")));
    }
    if let Some(word) =
        arguments.keys().find(|word| !needed.contains(&word.as_str()) && !allowed.contains(&word.as_str()))
    {
        return Err(broken(format!("unknown argument `{word}`")));
    }
    let length = Value::Object(arguments.clone()).to_string().len();
    if route == Route::Front && length > MOST_MESSAGE {
        return Err(broken(format!("{length} bytes are more than a message has")));
    }
    if session.status() != Status::Running {
        return Err(wrong_state(session));
    }
    let Some(machine) = session.machine() else { return Err(Refusal::not_found(&session.id)) };
    let arguments = Value::Object(arguments.clone());
    let work = async {
        let is_one = state.one_at_a_time.load(Ordering::SeqCst);
        let _turn = if is_one { Some(session.turn.lock().await) } else { None };
        match name {
            "shell" => shell::run(&machine, &arguments).await,
            "get_metrics" => Ok(metrics::read(&machine)),
            _ => files::act(&machine, name, &arguments),
        }
    };
    // What is wrong with the words is told apart from what is wrong with the world.
    let outcome = session.attend(work).await.ok_or_else(|| wrong_state(session))?.map_err(broken)?;
    if route == Route::Front && outcome.text.len() > MOST_MESSAGE {
        return Err(broken(format!("an answer of {} bytes is more than a message has", outcome.text.len())));
    }
    Ok(outcome)
}
