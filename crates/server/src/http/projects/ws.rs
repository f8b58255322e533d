//! A session over a WebSocket, in text frames of JSON: several commands at once, each by the `ref` that the client gave.
//!
//! ```text
//! client ─► {"op":"exec","ref":"a","command":"make", ..}       as the body of `POST /api/threads/{id}/exec`
//!           {"op":"stdin","ref":"b","command_id":"cmd-..","data":"y\n","eof":true,"offset":0}
//!           {"op":"cancel","ref":"c","command_id":"cmd-..","signal":"TERM"}
//!           {"op":"ping","ref":"d"}
//! server ─► {"event":"session","data":{..}}                    once, at the beginning
//!           {"event":"accepted","ref":"a","data":{..}}         the record: its id is what the others name
//!           {"event":"stdout","ref":"a","id":3,"data":{..}}    as the events of a command are elsewhere
//!           {"event":"ok","ref":"b"}   {"event":"ok","ref":"c","data":{..}}   {"event":"pong","ref":"d"}
//!           {"event":"error","ref":"a","error":{..}}           for what was asked; the connection stays
//! ```

use super::super::App;
use super::super::access::{Caller, WritesProject};
use super::super::body::{Query, named_as as id};
use super::super::commands::{Signal, first_signal};
use super::super::exec::Exec;
use super::super::problem::{Answer, ErrorBody, Problem};
use super::super::sse::told;
use super::super::view::{CommandView, SessionView};
use crate::stead::{Follow, Input, Stead, Where};
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use stead_model::command::Command;
use stead_model::ids::{CommandId, ProjectId, ThreadId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(ws))
}

/// Of one message.
const MOST_SAID: usize = 2 << 20;
/// Of a `ref`.
const MOST_REF: usize = 256;
/// Messages between those who follow commands and the client. Whoever is slower is waited for.
const AHEAD: usize = 32;
/// What one connection may have going on at once; more is `limit_reached`.
const MOST_AT_ONCE: usize = 64;
/// How often a quiet connection is tried, and how long somebody may take nothing before they are let go.
const HEARTBEAT: Duration = Duration::from_secs(15);
const STUCK: Duration = Duration::from_mins(1);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Which {
    /// A thread of the project, made if it isn't there; a new one if absent.
    thread_id: Option<String>,
}

/// A session on a project: a WebSocket of JSON texts with `op` and `ref`. When the last connection to a thread closes and
/// nothing runs any more, its session ends and, by configuration, its instance stops.
#[utoipa::path(
    get, path = "/api/projects/{id}/ws", tag = "projects", params(("id" = String, Path), Which),
    responses((status = 101), (status = 400, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn ws(
    State(app): State<App>,
    caller: Caller,
    WritesProject(project): WritesProject,
    Query(which): Query<Which>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Answer<Response> {
    let upgrade =
        upgrade.map_err(|refused| Problem::invalid(format!("this is a WebSocket: {}", refused.body_text())))?;
    let thread = which.thread_id.map(|text| id::<ThreadId>(&text)).transpose()?;
    if let Some(thread) = &thread {
        caller.check_work(&app.stead, thread).await?;
    }
    let (connection, session) = app.stead.hold(&project, thread, caller.0.token.clone()).await?;
    let upgrade = upgrade.max_message_size(MOST_SAID).max_frame_size(MOST_SAID);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let _here = app.stead.ws_client();
        let thread = session.thread.clone();
        let greeting = json!({ "event": "session", "data": SessionView::new(&session, &app.stead.present_moment()) });
        let desk = Desk { stead: app.stead.clone(), caller, project, thread };
        tokio::select! {
            () = converse(socket, desk, greeting) => {}
            () = app.stead.hung_up() => {}
        }
        drop(connection);
    }))
}

/// What a connection works with.
#[derive(Clone)]
struct Desk {
    stead: Stead,
    caller: Caller,
    project: ProjectId,
    thread: ThreadId,
}

async fn converse(socket: WebSocket, desk: Desk, greeting: Value) {
    let (mut out, mut input) = socket.split();
    let (say, mut said) = mpsc::channel::<Value>(AHEAD);
    let (hand_on, handed) = mpsc::channel(MOST_AT_ONCE);
    let at_once = Arc::new(Semaphore::new(MOST_AT_ONCE));
    let mut turns = Turns::default();
    // Dropped with the connection: whoever follows a command stops following, and the command goes on.
    let mut work = JoinSet::new();
    work.spawn(clerk(desk.clone(), handed, say.clone()));
    let mut next = Some(greeting);
    loop {
        let message = if let Some(value) = next.take() {
            Message::Text(value.to_string().into())
        } else {
            tokio::select! {
                Some(value) = said.recv() => Message::Text(value.to_string().into()),
                heard = input.next() => {
                    let Some((reference, asked)) = heard.and_then(Result::ok).and_then(heard_as) else { break };
                    let room = Arc::clone(&at_once).try_acquire_owned();
                    next = match (asked, room) {
                        (Ok(None), _) => None,
                        (Ok(Some(Asked::Exec(exec))), Ok(room)) => {
                            // As many as there is room for: it is never full.
                            let _ = hand_on.try_send(Submission { exec, reference, room });
                            None
                        }
                        (Ok(Some(Asked::Stdin(typed))), Ok(room)) => {
                            let turn = turns.take(&typed.command_id);
                            let (desk, say) = (desk.clone(), say.clone());
                            work.spawn(async move {
                                let (before, _after) = turn;
                                if let Some(before) = before {
                                    // Over when the one before it is done, whatever came of it.
                                    let _ = before.await;
                                }
                                desk.answer(Asked::Stdin(typed), reference, say, room).await;
                            });
                            None
                        }
                        (Ok(Some(asked)), Ok(room)) => {
                            work.spawn(desk.clone().answer(asked, reference, say.clone(), room));
                            None
                        }
                        (Ok(Some(_)), Err(_)) => {
                            let most = format!("{MOST_AT_ONCE} are going on over this connection; wait for one");
                            Some(failed(&reference, &Problem::new("limit_reached", most)))
                        }
                        (Err(problem), _) => Some(failed(&reference, &problem)),
                    };
                    continue;
                }
                Some(_) = work.join_next() => continue,
                () = tokio::time::sleep(HEARTBEAT) => Message::Ping(bytes::Bytes::new()),
            }
        };
        if !matches!(timeout(STUCK, out.send(message)).await, Ok(Ok(()))) {
            break;
        }
    }
    let _ = timeout(STUCK, out.close()).await;
}

/// In which order input is written: for each command as it came, each piece when the one before it is done.
#[derive(Debug, Default)]
struct Turns(HashMap<String, oneshot::Receiver<()>>);

impl Turns {
    /// What comes before a piece of input for a command, and what is to be dropped when it is done.
    fn take(&mut self, command: &str) -> (Option<oneshot::Receiver<()>>, oneshot::Sender<()>) {
        // No more can be under way, so the others are over.
        if self.0.len() > MOST_AT_ONCE {
            self.0.retain(|_, before| matches!(before.try_recv(), Err(oneshot::error::TryRecvError::Empty)));
        }
        let (done, next) = oneshot::channel();
        (self.0.insert(command.to_owned(), next), done)
    }
}

/// What a frame asks for, nothing if it only shows that somebody is there; none when they leave.
fn heard_as(message: Message) -> Option<(Value, Answer<Option<Asked>>)> {
    match message {
        Message::Text(text) => {
            let (reference, asked) = read(&text);
            Some((reference, asked.map(Some)))
        }
        Message::Binary(_) => Some((Value::Null, Err(Problem::invalid("this connection takes texts of JSON")))),
        Message::Ping(_) | Message::Pong(_) => Some((Value::Null, Ok(None))),
        Message::Close(_) => None,
    }
}

/// A command on its way to its shell.
struct Submission {
    exec: Box<Exec>,
    reference: Value,
    room: OwnedSemaphorePermit,
}

/// Hands commands to their shells, one after the other as they came, and has each followed.
async fn clerk(desk: Desk, mut handed: mpsc::Receiver<Submission>, say: mpsc::Sender<Value>) {
    let mut followed = JoinSet::new();
    loop {
        let Submission { exec, reference, room } = tokio::select! {
            Some(submission) = handed.recv() => submission,
            Some(_) = followed.join_next() => continue,
            else => return,
        };
        match desk.submit(*exec).await {
            Ok((command, follow)) => {
                let accepted = json!({ "event": "accepted", "data": CommandView::from(command) });
                let _ = say.send(with_ref(accepted, &reference)).await;
                followed.spawn(report(follow, reference, say.clone(), room));
            }
            Err(problem) => drop(say.send(failed(&reference, &problem)).await),
        }
    }
}

async fn report(mut follow: Follow, reference: Value, say: mpsc::Sender<Value>, _room: OwnedSemaphorePermit) {
    while let Some(event) = follow.next().await {
        let value = match event {
            Ok(event) => {
                let (name, seq, data) = told(event);
                with_ref(json!({ "event": name, "id": seq, "data": data }), &reference)
            }
            Err(error) => failed(&reference, &Problem::from(error)),
        };
        if say.send(value).await.is_err() {
            return;
        }
    }
}

fn with_ref(mut value: Value, reference: &Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.insert("ref".to_owned(), reference.clone());
    }
    value
}

fn failed(reference: &Value, problem: &Problem) -> Value {
    json!({ "event": "error", "ref": reference, "error": problem.detail() })
}

#[derive(Debug)]
enum Asked {
    Exec(Box<Exec>),
    Stdin(Typed),
    Cancel(End),
    Ping,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Typed {
    command_id: String,
    #[serde(default)]
    data: String,
    /// `base64`, if `data` isn't text.
    encoding: Option<String>,
    #[serde(default)]
    eof: bool,
    /// Where in all that the command is ever sent `data` begins; what has arrived before is passed over.
    offset: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    command_id: String,
    signal: Option<Signal>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// What a message asks for, and the `ref` that its answers carry; null if it has none that can be one.
fn read(text: &str) -> (Value, Answer<Asked>) {
    let mut message: Map<String, Value> = match serde_json::from_str(text) {
        Ok(Value::Object(message)) => message,
        Ok(_) => return (Value::Null, Err(Problem::invalid("a message is a JSON object"))),
        Err(error) => return (Value::Null, Err(Problem::invalid(format!("the message: {error}")))),
    };
    let reference = message.remove("ref").unwrap_or_default();
    if !reference.as_str().is_some_and(|text| !text.is_empty() && text.len() <= MOST_REF) {
        return (Value::Null, Err(Problem::invalid(format!("`ref` is a text of 1 to {MOST_REF} bytes"))));
    }
    let op = message.remove("op").unwrap_or_default();
    let rest = Value::Object(message);
    let asked = match op.as_str() {
        Some("exec") => serde_json::from_value(rest).map(|exec| Asked::Exec(Box::new(exec))),
        Some("stdin") => serde_json::from_value(rest).map(Asked::Stdin),
        Some("cancel") => serde_json::from_value(rest).map(Asked::Cancel),
        Some("ping") => serde_json::from_value(rest).map(|Nothing {}| Asked::Ping),
        _ => {
            let problem = Problem::invalid("`op` is none of `exec`, `stdin`, `cancel`, `ping`");
            return (reference, Err(problem));
        }
    };
    (reference, asked.map_err(|error| Problem::invalid(format!("the message: {error}"))))
}

impl Desk {
    async fn submit(&self, exec: Exec) -> Answer<(Command, Follow)> {
        let (at, execute) = exec.read(self.thread.clone(), self.caller.clone())?;
        let at = if at.create {
            // It may have been deleted since the connection was made: then it is made again where it was.
            self.stead.ensure_thread_of(&self.project, &self.thread).await?;
            Where { create: false, ..at }
        } else {
            at
        };
        // It may have been moved since then.
        self.caller.check_work(&self.stead, &self.thread).await?;
        let command = self.stead.submit(at, execute).await?;
        let follow = self.stead.follow_asked(&command.id).await?;
        Ok((command, follow))
    }

    async fn answer(self, asked: Asked, reference: Value, say: mpsc::Sender<Value>, _room: OwnedSemaphorePermit) {
        let value = match self.act(asked).await {
            Ok(value) => with_ref(value, &reference),
            Err(problem) => failed(&reference, &problem),
        };
        // A client that is gone is told nothing.
        let _ = say.send(value).await;
    }

    async fn act(&self, asked: Asked) -> Answer<Value> {
        match asked {
            Asked::Ping => Ok(json!({ "event": "pong" })),
            Asked::Exec(exec) => {
                let (command, _) = self.submit(*exec).await?;
                Ok(json!({ "event": "accepted", "data": CommandView::from(command) }))
            }
            Asked::Stdin(typed) => {
                let command = self.command(&typed.command_id).await?;
                let bytes = match typed.encoding.as_deref() {
                    None | Some("utf8") => typed.data.into_bytes(),
                    Some("base64") => {
                        STANDARD.decode(typed.data).map_err(|_| Problem::invalid("`data` is no base64"))?
                    }
                    Some(_) => return Err(Problem::invalid("`encoding` is none of `utf8`, `base64`")),
                };
                let input = Input { bytes, eof: typed.eof, offset: typed.offset };
                Ok(match self.stead.send_stdin(&command, input).await? {
                    Some(offset) => json!({ "event": "ok", "data": { "offset": offset } }),
                    None => json!({ "event": "ok" }),
                })
            }
            Asked::Cancel(end) => {
                let command = self.command(&end.command_id).await?;
                let command = self.stead.cancel(&command, first_signal(end.signal)).await?;
                Ok(json!({ "event": "ok", "data": CommandView::from(command) }))
            }
        }
    }

    /// A command of this project: there is no other that a connection may touch.
    async fn command(&self, text: &str) -> Answer<CommandId> {
        let command: CommandId = id(text)?;
        let found = self.stead.command(&command).await?;
        let thread = self.stead.thread(&found.thread).await?;
        if thread.project.as_ref() == Some(&self.project) {
            Ok(command)
        } else {
            let details = json!({ "kind": "command", "id": text });
            Err(Problem::new("not_found", format!("no command `{text}` in this project")).details(details))
        }
    }
}
