//! `stead exec`: one command, to its end.
//!
//! The command gets an id here, before anybody else knows of it. So whatever breaks, the same request can be sent again and
//! runs nothing twice; and once the first event is seen, the rest is asked for from there.

mod input;
mod queue;
pub(crate) mod tape;
mod words;

use crate::args::Exec;
use crate::client::{Call, Client, ClientError, query, segment};
use crate::failure::Failure;
use crate::follow::{self, Reader};
use crate::json::Fields;
use crate::{print, projects, session};
use hyper::header;
use input::Input;
use serde_json::{Map, Value, json};
use std::pin::pin;
use stead_model::frame::Stream;
use stead_model::ids::CommandId;
use tape::{Tape, Told};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// What a shell gives for a command that wrote to nobody.
const BROKEN_PIPE: u8 = 141;

pub(crate) fn run(asked: &Exec) -> Result<u8, Failure> {
    let id = asked.id.clone().map_or_else(fresh_id, Ok)?;
    let input = if asked.no_stdin || asked.detach { Input::Nothing } else { Input::find()? };
    let mut body = body(asked, &id)?;
    let flow = match input {
        Input::Nothing => None,
        Input::Text(text) => {
            body.set("stdin", text);
            None
        }
        Input::Flow(first) => {
            body.set("stdin_open", true);
            Some(first)
        }
    };
    let thread = projects::thread(&asked.at, &asked.project)?;
    let path = format!("/api/threads/{}/exec", segment(thread.as_str()));
    let run = Run { id: id.to_string(), thread: thread.to_string(), path, body, json: asked.form.json };
    session::run(&asked.reach, async |mut client| {
        projects::ensure(&mut client, &thread, &asked.project).await?;
        if asked.detach { run.detach(client).await } else { run.see_through(client, flow).await }
    })
}

fn fresh_id() -> Result<CommandId, Failure> {
    let id = format!("cmd-{}", session::fresh_digits()?);
    CommandId::parse(&id).map_err(|error| Failure::Asked(error.to_string()))
}

fn body(asked: &Exec, id: &CommandId) -> Result<Value, Failure> {
    let command = words::line(&asked.command).map_err(Failure::Asked)?;
    let mut body = json!({ "command": command, "id": id.as_str() });
    if let Some(terminal) = &asked.terminal {
        body.set("terminal", terminal.as_str());
    }
    if let Some(cwd) = &asked.cwd {
        body.set("cwd", cwd.as_str());
    }
    if !asked.env.is_empty() {
        let env = asked.env.iter().map(|one| (one.name.clone(), one.value.clone().into()));
        body.set("env", Value::Object(env.collect::<Map<_, _>>()));
    }
    if let Some(timeout) = asked.timeout {
        body.set("timeout_ms", u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
    }
    Ok(body)
}

/// How far a command is known to have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Sent,
    /// The server has it.
    Known,
    /// It waits for what is before it in its terminal.
    Queued,
    Started,
}

struct Run {
    id: String,
    thread: String,
    path: String,
    body: Value,
    json: bool,
}

impl Run {
    async fn detach(mut self, mut client: Client) -> Result<u8, Failure> {
        self.body.set("background", true);
        // Under one id it is started once, so that it may be asked for twice.
        let record = match client.post(&self.path, &self.body).await {
            Err(ClientError::Broken(_)) => client.post(&self.path, &self.body).await?,
            record => record?,
        };
        let text = if self.json { format!("{record:#}\n") } else { format!("{}\n", self.id) };
        print::out(&text)?;
        Ok(0)
    }

    async fn see_through(self, mut client: Client, flow: Option<Vec<u8>>) -> Result<u8, Failure> {
        let mut interrupts = signal(SignalKind::interrupt()).map_err(Failure::Runtime)?;
        let (stage, seen) = watch::channel(Stage::Sent);
        let (gone, mut is_gone) = watch::channel(false);
        let (feeder, canceller, mut teller) = (client.another(), client.another(), client.another());
        let waiting =
            queue::Waiting { client: client.another(), thread: self.thread.clone(), command: self.id.clone() };
        let mut tape = Tape::since(0);
        let mut told = async |told| self.told(told, &stage, &gone).await;
        let open = |tape: &Tape| self.open(tape);
        let mut following = pin!(follow::follow(&mut client, &self.id, &mut tape, open, &mut told));
        let mut feeding = pin!(async {
            match flow {
                Some(first) => input::feed(feeder, self.id.clone(), first, seen.clone()).await,
                None => Ok(()),
            }
        });
        let (cancel, asked) = watch::channel(None);
        let mut stopping = pin!(stop(canceller, &self.id, asked, seen.clone()));
        let mut explaining = pin!(waiting.explain(seen.clone()));
        let (mut fed, mut stopped, mut explained, mut lost_input) = (false, false, false, None);
        let record = loop {
            tokio::select! {
                biased;
                record = &mut following => break record?,
                _ = interrupts.recv() => {
                    if cancel.send_replace(Some("INT")).is_some() {
                        tell!("stead: `{}` is left running; {}", self.id, how_to_follow(&self.id));
                        return Ok(130);
                    }
                }
                _ = is_gone.wait_for(|gone| *gone), if cancel.borrow().is_none() => {
                    cancel.send_replace(Some("TERM"));
                }
                result = &mut feeding, if !fed => {
                    fed = true;
                    if let Err(failure) = result {
                        cancel.send_replace(Some("TERM"));
                        lost_input = Some(failure);
                    }
                }
                () = &mut explaining, if !explained => explained = true,
                result = &mut stopping, if !stopped => {
                    stopped = true;
                    match result {
                        // There may be much that nobody wants to read any more.
                        Ok(record) if *gone.borrow() => return Ok(code_unread(&record)),
                        Ok(_) => {}
                        Err(error) => tell!("stead: can't cancel `{}`: {error}", self.id),
                    }
                }
            }
        };
        if let Some(source) = lost_input {
            return Err(Failure::InputLost { command: self.id.clone(), source: Box::new(source) });
        }
        self.ended(&mut teller, &record).await
    }

    /// Asks for the command, or for what comes behind what is known of it.
    fn open(&self, tape: &Tape) -> Call {
        let call = if tape.last() == 0 {
            Call::post(&self.path).document(&self.body)
        } else {
            let path = format!("/api/commands/{}/events", segment(&self.id));
            Call::get(&query(&path, &[("after", &tape.last().to_string())]))
        };
        call.header(header::ACCEPT, "text/event-stream")
    }

    async fn told(&self, told: Told, stage: &watch::Sender<Stage>, gone: &watch::Sender<bool>) -> Result<(), Failure> {
        match told {
            Told::Known => reach(stage, Stage::Known),
            Told::Queued => reach(stage, Stage::Queued),
            Told::Started => reach(stage, Stage::Started),
            Told::Output(stream, bytes) => {
                let dropped = self.json || (stream == Stream::Stdout && *gone.borrow());
                if !dropped && follow::write(stream, bytes).await? == Reader::Gone && stream == Stream::Stdout {
                    gone.send_replace(true);
                }
            }
            Told::Ended(_) => {}
        }
        Ok(())
    }

    /// Says what the output doesn't, and gives the exit code.
    async fn ended(&self, client: &mut Client, record: &Value) -> Result<u8, Failure> {
        if self.json {
            // The same request again is answered with the same record, this time with its output.
            let whole = client.post(&self.path, &self.body).await?;
            print::out(&format!("{whole:#}\n"))?;
        }
        for warning in record.at("warnings").as_array().into_iter().flatten() {
            let said = warning.as_str().or_else(|| warning.at("message").as_str()).map(str::to_owned);
            tell!("stead: warning: {}", said.unwrap_or_else(|| warning.to_string()));
        }
        let status = record.at("status").as_str().unwrap_or_default();
        match status {
            "failed" => tell!("stead: the command did not run: {}", error_of(record)),
            "lost" if record.at("error").is_null() => {
                tell!("stead: the command was lost: its instance died under it; what it wrote is kept");
            }
            "lost" => tell!("stead: the command was lost: {}", error_of(record)),
            _ => {}
        }
        Ok(exit_code(record))
    }
}

/// It has come so far; on another connection it may be told again how it began.
fn reach(stage: &watch::Sender<Stage>, to: Stage) {
    stage.send_if_modified(|at| {
        let further = to > *at;
        *at = to.max(*at);
        further
    });
}

/// Cancels the command once that is asked for and the server knows it.
async fn stop(
    mut client: Client,
    id: &str,
    mut asked: watch::Receiver<Option<&'static str>>,
    mut seen: watch::Receiver<Stage>,
) -> Result<Value, ClientError> {
    let Ok(first) = asked.wait_for(Option::is_some).await.map(|asked| asked.unwrap_or("INT")) else {
        return Ok(Value::Null);
    };
    if seen.wait_for(|stage| *stage >= Stage::Known).await.is_err() {
        return Ok(Value::Null);
    }
    let path = format!("/api/commands/{}/cancel", segment(id));
    client.post(&path, &json!({ "signal": first })).await
}

pub(crate) fn how_to_follow(id: &str) -> String {
    format!("`stead logs -f {id}` follows it, `stead cancel {id}` stops it")
}

fn error_of(record: &Value) -> String {
    let error = record.at("error");
    let said = error.at("message").as_str().or_else(|| error.as_str());
    said.map_or_else(|| "the server doesn't say why".to_owned(), str::to_owned)
}

/// What a script learns. An outcome that nobody knows is never a success.
pub(crate) fn exit_code(record: &Value) -> u8 {
    match record.at("status").as_str() {
        Some("exited") => record.at("exit_code").as_u64().and_then(|code| u8::try_from(code).ok()).unwrap_or(125),
        Some("timed_out") => 124,
        Some("cancelled") => 130,
        Some("lost") => 137,
        _ => 125,
    }
}

/// The exit code of a command whose output found no reader: its own if it had ended before.
fn code_unread(record: &Value) -> u8 {
    if record.at("status") == "exited" { exit_code(record) } else { BROKEN_PIPE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_the_commands_and_unknown_is_no_success() {
        let code = |status: &str, code: Value| exit_code(&json!({ "status": status, "exit_code": code }));
        assert_eq!(code("exited", 0.into()), 0);
        assert_eq!(code("exited", 255.into()), 255);
        assert_eq!(code("exited", Value::Null), 125);
        assert_eq!(code("timed_out", (-1).into()), 124);
        assert_eq!(code("cancelled", 130.into()), 130);
        assert_eq!(code("lost", Value::Null), 137);
        assert_eq!(code("failed", Value::Null), 125);
        assert_eq!(code("something new", 0.into()), 125);
    }
}
