//! `stead attach`: a person at the shell of a thread.

pub(crate) mod keys;
pub(crate) mod raw;

use crate::args::Attach;
use crate::client::{Client, ClientError, Stream as Wire, query, segment};
use crate::failure::Failure;
use crate::json::Fields;
use crate::session::Patience;
use crate::table::one_line;
use crate::{follow, projects, session};
use futures_util::{SinkExt, StreamExt};
use keys::{DetachKeys, Scanner, Typed};
use raw::Raw;
use serde_json::{Value, json};
use std::io::{self, IsTerminal, Read};
use stead_model::frame::Stream;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

pub(crate) fn run(asked: &Attach) -> Result<u8, Failure> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Failure::Asked(
            "`stead attach` wants a terminal; `stead exec` runs commands without one".to_owned(),
        ));
    }
    let thread = projects::thread(&asked.at, &asked.project)?;
    session::run(&asked.reach, async |mut client| {
        let thread = if let Some(agent) = &asked.agent {
            agent_thread(&mut client, agent).await?
        } else {
            projects::ensure(&mut client, &thread, &asked.project).await?;
            thread.to_string()
        };
        let path = format!("/api/threads/{}/pty", segment(&thread));
        let path = query(&path, asked.terminal.as_deref().map(|name| ("terminal", name)).as_slice());
        // Refusals are told before anything is changed about the terminal.
        let socket = client.websocket(&sized(&path)).await?;
        let leave = if asked.detach_keys.is_none() {
            "no key leaves".to_owned()
        } else {
            format!("{} leaves", asked.detach_keys)
        };
        tell!("attached to `{thread}`; {leave}, the shell stays");
        let seat = Seat::take(client, path, asked.detach_keys.clone())?;
        let left = seat.sit(socket).await;
        match left? {
            Left::Went => {
                tell!("left `{thread}`; it goes on");
                Ok(0)
            }
            Left::Closed => {
                tell!("the terminal of `{thread}` was closed");
                Ok(0)
            }
            Left::Hangup => Ok(0),
            Left::Signal(number) => Ok(128 + number),
        }
    })
}

/// The thread in whose terminal an agent runs; only one that draws there has something to show.
async fn agent_thread(client: &mut Client, agent: &str) -> Result<String, Failure> {
    let session = client.get(&format!("/api/chat/sessions/{}", segment(agent))).await?;
    let agents = client.get("/api/agents").await?;
    let name = session.at("provider");
    let known = agents.at("items").as_array().and_then(|all| all.iter().find(|agent| agent.at("name") == name));
    if known.is_none_or(|agent| agent.at("transport") != "pty") {
        let message = format!("agent `{}` is spoken to without a terminal: there is nothing to see", one_line(name));
        return Err(Failure::Asked(message));
    }
    Ok(one_line(session.at("thread_id")))
}

fn sized(path: &str) -> String {
    let (columns, rows) = size();
    query(path, &[("cols", &columns.to_string()), ("rows", &rows.to_string())])
}

fn size() -> (u16, u16) {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    size.map_or((80, 24), |size| (size.ws_col, size.ws_row))
}

/// Why somebody is no longer attached.
enum Left {
    /// By the keys, or at the end of input.
    Went,
    /// The server has no terminal for us any more.
    Closed,
    /// Our own terminal is gone.
    Hangup,
    Signal(u8),
}

/// Somebody at a raw terminal, which is itself again when this is dropped.
struct Seat {
    client: Client,
    path: String,
    typed: mpsc::Receiver<Vec<u8>>,
    scanner: Scanner,
    keys: DetachKeys,
    resized: Signal,
    ends: [(u8, Signal); 4],
    _raw: Raw,
}

/// How one connection came to an end.
enum Parted {
    Left(Left),
    Broken,
}

type Socket = WebSocketStream<Wire>;

impl Seat {
    fn take(client: Client, path: String, keys: DetachKeys) -> Result<Self, Failure> {
        let hear = |kind: SignalKind| signal(kind).map_err(Failure::Runtime);
        Ok(Self {
            client,
            path,
            scanner: Scanner::new(keys.clone()),
            keys,
            resized: hear(SignalKind::window_change())?,
            ends: [
                (1, hear(SignalKind::hangup())?),
                (2, hear(SignalKind::interrupt())?),
                (3, hear(SignalKind::quit())?),
                (15, hear(SignalKind::terminate())?),
            ],
            _raw: Raw::enter().map_err(Failure::Input)?,
            typed: keystrokes(),
        })
    }

    async fn sit(mut self, mut socket: Socket) -> Result<Left, Failure> {
        loop {
            match self.converse(&mut socket).await? {
                Parted::Left(left) => {
                    let _ = socket.close(None).await;
                    return Ok(left);
                }
                Parted::Broken => {}
            }
            tell!("\r\n[the connection broke; connecting again, {} leaves]\r", self.keys);
            match self.again().await? {
                Ok(again) => {
                    tell!("[connected again]\r");
                    socket = again;
                }
                Err(left) => return Ok(left),
            }
        }
    }

    /// Bytes both ways until somebody ends it.
    async fn converse(&mut self, socket: &mut Socket) -> Result<Parted, Failure> {
        loop {
            let out = tokio::select! {
                message = socket.next() => match message {
                    Some(Ok(Message::Binary(bytes))) => {
                        follow::write(Stream::Stdout, bytes.to_vec()).await?;
                        continue;
                    }
                    Some(Ok(Message::Text(text))) => {
                        let said: Value = serde_json::from_str(&text).unwrap_or_default();
                        if let Some(left) = told(&said) {
                            return Ok(Parted::Left(left));
                        }
                        continue;
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return Ok(Parted::Broken),
                },
                typed = self.typed.recv() => match self.typed(typed) {
                    Ok(bytes) if bytes.is_empty() => continue,
                    Ok(bytes) => Message::binary(bytes),
                    Err(left) => return Ok(Parted::Left(left)),
                },
                _ = self.resized.recv() => {
                    let (columns, rows) = size();
                    Message::text(json!({ "type": "resize", "cols": columns, "rows": rows }).to_string())
                }
                number = first(&mut self.ends) => return Ok(Parted::Left(Left::Signal(number))),
            };
            if socket.send(out).await.is_err() {
                return Ok(Parted::Broken);
            }
        }
    }

    /// Another connection. What is typed meanwhile goes nowhere, but for the keys that leave.
    async fn again(&mut self) -> Result<Result<Socket, Left>, Failure> {
        let mut patience = Patience::new();
        let mut why = None;
        loop {
            let attempt = async {
                if !patience.wait().await {
                    return None;
                }
                Some(self.client.websocket(&sized(&self.path)).await)
            };
            let mut attempt = std::pin::pin!(attempt);
            let attempted = loop {
                tokio::select! {
                    attempted = &mut attempt => break attempted,
                    typed = self.typed.recv() => {
                        let Some(bytes) = typed else { return Ok(Err(Left::Hangup)) };
                        if let Typed::Leave(_) = self.scanner.feed(&bytes) {
                            return Ok(Err(Left::Went));
                        }
                    }
                    number = first(&mut self.ends) => return Ok(Err(Left::Signal(number))),
                }
            };
            match attempted {
                Some(Ok(socket)) => return Ok(Ok(socket)),
                Some(Err(error)) if error.may_pass() => why = Some(error),
                Some(Err(error)) => return Err(error.into()),
                None => return Err(why.unwrap_or_else(|| ClientError::broken("it took too long")).into()),
            }
        }
    }

    fn typed(&mut self, bytes: Option<Vec<u8>>) -> Result<Vec<u8>, Left> {
        let Some(bytes) = bytes else { return Err(Left::Hangup) };
        match self.scanner.feed(&bytes) {
            Typed::Through(bytes) => Ok(bytes),
            Typed::Leave(_) => Err(Left::Went),
        }
    }
}

/// What a server says beside the bytes; `None` if one stays.
fn told(said: &Value) -> Option<Left> {
    match (said.at("type").as_str(), said.at("reason").as_str()) {
        (Some("detached"), Some("closed")) => Some(Left::Closed),
        (Some("detached"), _) => Some(Left::Went),
        (Some("exit"), _) => {
            let code = said.at("exit_code").as_i64().map(|code| format!(" with {code}")).unwrap_or_default();
            tell!("\r\n[the shell ended{code}; the next one has its state]\r");
            None
        }
        _ => None,
    }
}

async fn first(signals: &mut [(u8, Signal); 4]) -> u8 {
    let [hangup, interrupt, quit, terminate] = signals;
    tokio::select! {
        _ = hangup.1.recv() => hangup.0,
        _ = interrupt.1.recv() => interrupt.0,
        _ = quit.1.recv() => quit.0,
        _ = terminate.1.recv() => terminate.0,
    }
}

/// A thread that reads, because reading may wait for ever and can't be called off.
fn keystrokes() -> mpsc::Receiver<Vec<u8>> {
    let (send, typed) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        loop {
            match io::stdin().lock().read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return,
                Ok(read) => {
                    if send.blocking_send(buffer.get(..read).unwrap_or_default().to_vec()).is_err() {
                        return;
                    }
                }
            }
        }
    });
    typed
}
