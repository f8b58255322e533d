//! Speaking to a program over a terminal of the sandbox's, made to carry any byte.
//!
//! ```text
//! POST   /process/pty {id, envs: {NAME: script}}      a login shell, with what it is to do in its environment
//! WS     /process/pty/{id}/connect                    {"type":"control","status":"connected"}
//! ->     exec /bin/sh -c "$NAME"                      short and plain: any shell takes it, whatever it echoes
//! <-     prompt, echo, MARKER                         the script made the terminal raw, then printed the marker
//! <->    the program's standard input and output
//! DELETE /process/pty/{id}
//! ```
//!
//! The terminal would cook what is typed before it is raw, so nothing of the program's is sent before the marker came.
//! The marker is put together when it is printed: no echo of the script has it.

mod channel;

use super::toolbox::quoted;
use super::{Daytona, part};
use crate::wire::{self, Call};
use crate::{CloudError, Effect, Trouble};
use channel::PtyChannel;
use futures_util::{SinkExt, StreamExt};
use reqwest::{Method, StatusCode, Upgraded, header};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Message};

const OPEN: &str = "open a channel to the sandbox";

/// From the connection to the marker: a login shell may read a lot before it takes its first line.
const UNTIL_IT_SPEAKS: Duration = Duration::from_mins(1);

/// What a shell may print before the marker.
const MOST_BEFORE: usize = 1 << 20;

/// The toolbox reads 32 KiB of a terminal at once.
const LONGEST_MESSAGE: usize = 1 << 20;

/// The variable that the script travels in; gone before the program starts.
const VARIABLE: &str = "STEAD_CHANNEL";

type Socket = WebSocketStream<Upgraded>;

#[derive(Debug, Deserialize)]
struct Control {
    r#type: String,
    status: String,
    error: Option<String>,
}

/// A terminal of the toolbox's. Its id is ours, and new each time: whatever became of an order, it can be deleted.
#[derive(Debug, Clone)]
struct Terminal {
    cloud: Daytona,
    sandbox: String,
    id: String,
    marker: [String; 2],
}

impl Daytona {
    pub(super) async fn speak(
        &self,
        sandbox: &str,
        program: &str,
        arguments: &[&str],
    ) -> Result<PtyChannel, CloudError> {
        let random = || getrandom::u64().map(|bits| format!("{bits:016x}")).map_err(|error| failed(error.to_string()));
        let marker = [random()?, random()?];
        let script = script(program, arguments, &marker);
        let terminal =
            Terminal { cloud: self.clone(), sandbox: sandbox.to_owned(), id: format!("stead-{}", random()?), marker };
        let (tell, hear) = tokio::sync::oneshot::channel();
        // A task of its own: whoever asked may stop waiting at any time, and the terminal is deleted all the same.
        self.0.tasks.spawn(async move {
            match terminal.begin(&script).await {
                Ok((socket, first)) => {
                    let (channel, pump) = channel::pair(socket, first);
                    if tell.send(Ok(channel)).is_ok() {
                        pump.run().await;
                    }
                    terminal.delete().await;
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                    terminal.delete().await;
                }
            }
        });
        hear.await.map_err(|_| failed("it was given up"))?
    }
}

impl Terminal {
    /// Until the program has the terminal. With what it has said already.
    async fn begin(&self, script: &str) -> Result<(Socket, Bytes), CloudError> {
        let order = json!({"id": self.id, "cols": 80, "rows": 24, "envs": {VARIABLE: script, "TERM": "dumb"}});
        let request = self.request(Method::POST, "").await?.json(&order);
        wire::ask(OPEN, Call::Changes, self.cloud.patience(), request).await?;
        let mut socket = self.connect().await?;
        let Ok(first) = tokio::time::timeout(UNTIL_IT_SPEAKS, self.greet(&mut socket)).await else {
            let message = format!("its shell took no command in {} s", UNTIL_IT_SPEAKS.as_secs());
            return Err(CloudError::new(OPEN, Trouble::TimedOut, Effect::Unknown, message));
        };
        Ok((socket, first?))
    }

    async fn request(&self, method: Method, rest: &str) -> Result<reqwest::RequestBuilder, CloudError> {
        let client = if rest == "/connect" { &self.cloud.0.websockets } else { &self.cloud.0.client };
        let path = if method == Method::POST {
            "/process/pty".to_owned()
        } else {
            format!("/process/pty/{}{rest}", part(&self.id))
        };
        self.cloud.toolbox(OPEN, client, &self.sandbox, method, &path).await
    }

    async fn connect(&self) -> Result<Socket, CloudError> {
        let key = generate_key();
        let request = self
            .request(Method::GET, "/connect")
            .await?
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, &key);
        let answer = wire::begin(OPEN, Call::Changes, self.cloud.patience(), request).await?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            let (status, after) = (answer.status(), wire::retry_after(&answer));
            let said = tokio::time::timeout(self.cloud.patience(), wire::read(OPEN, Call::Changes, answer)).await;
            let said = said.ok().and_then(Result::ok).unwrap_or_default();
            return Err(wire::refused(OPEN, Call::Changes, status, after, &said));
        }
        let accepted = answer.headers().get(header::SEC_WEBSOCKET_ACCEPT);
        if accepted.is_none_or(|accepted| accepted.as_bytes() != derive_accept_key(key.as_bytes()).as_bytes()) {
            return Err(failed("it answered as something else than a WebSocket"));
        }
        let upgraded = tokio::time::timeout(self.cloud.patience(), answer.upgrade()).await;
        let upgraded = upgraded.map_err(|_| failed("the connection did not become a WebSocket"))?;
        let upgraded = upgraded.map_err(|error| wire::unanswered(OPEN, Call::Changes, &error))?;
        let limits =
            WebSocketConfig::default().max_message_size(Some(LONGEST_MESSAGE)).max_frame_size(Some(LONGEST_MESSAGE));
        Ok(WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(limits)).await)
    }

    /// Waits for the terminal, types the line, and skips everything up to the marker.
    async fn greet(&self, socket: &mut Socket) -> Result<Bytes, CloudError> {
        let mut typed = false;
        let mut seen: Vec<u8> = Vec::new();
        let marker = self.marker.concat();
        while let Some(message) = socket.next().await {
            match message.map_err(|error| failed(error.to_string()))? {
                Message::Text(text) => match serde_json::from_str::<Control>(&text) {
                    Ok(control) if control.r#type == "control" && control.status == "connected" => {
                        if !typed {
                            let line = format!(" exec /bin/sh -c \"${VARIABLE}\"\r");
                            let sent = socket.send(Message::binary(line.into_bytes())).await;
                            sent.map_err(|error| failed(error.to_string()))?;
                            typed = true;
                        }
                    }
                    Ok(control) if control.r#type == "control" => {
                        let said = control.error.unwrap_or(control.status);
                        return Err(failed(format!("its terminal says: {said}")));
                    }
                    _ => seen.extend_from_slice(text.as_bytes()),
                },
                Message::Binary(bytes) => seen.extend_from_slice(&bytes),
                Message::Close(frame) => return Err(ended(frame.as_ref())),
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
            if let Some(at) = find(&seen, marker.as_bytes()) {
                return Ok(Bytes::from(seen.split_off(at + marker.len())));
            }
            if seen.len() > MOST_BEFORE {
                return Err(failed("its shell talks without end"));
            }
        }
        Err(failed("the connection ended before the program was started"))
    }

    async fn delete(&self) {
        let deleted = match self.request(Method::DELETE, "").await {
            Ok(request) => wire::ask(OPEN, Call::Changes, self.cloud.patience(), request).await.map(drop),
            Err(error) => Err(error),
        };
        // One whose program has ended is gone already, and so is one of a sandbox that was stopped.
        if let Err(error) = deleted {
            tracing::debug!(%error, terminal = self.id, "the terminal was not deleted");
        }
    }
}

/// What the shell is to do. A program's complaints would be mixed with what it says, so they go nowhere.
fn script(program: &str, arguments: &[&str], marker: &[String; 2]) -> String {
    let [one, two] = marker;
    let words: Vec<_> = std::iter::once(&program).chain(arguments).map(|word| quoted(word)).collect();
    let (program, words) = (quoted(program), words.join(" "));
    format!(
        "unset {VARIABLE}\n\
         command -v {program} >/dev/null 2>&1 || exit 127\n\
         stty raw -echo -iexten cs8 || exit 126\n\
         printf '%s%s' {one} {two}\n\
         exec {words} 2>/dev/null\n"
    )
}

/// Why the program was not started, as far as the end of the connection says.
fn ended(frame: Option<&CloseFrame>) -> CloudError {
    match channel::exit_code(frame) {
        Some(127) => CloudError::new(OPEN, Trouble::NotFound, Effect::None, "there is no such program in the sandbox"),
        Some(126) => CloudError::new(OPEN, Trouble::Unsupported, Effect::None, "it has no `stty`"),
        Some(_) | None => failed(format!("its shell ended: {}", channel::said(frame))),
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

fn failed(message: impl Into<String>) -> CloudError {
    CloudError::new(OPEN, Trouble::Unavailable, Effect::Unknown, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_is_nowhere_in_what_makes_it() {
        let marker = ["0123456789abcdef".to_owned(), "fedcba9876543210".to_owned()];
        let script = script("/opt/it's", &["a b", "'"], &marker);
        assert_eq!(find(script.as_bytes(), marker.concat().as_bytes()), None);
        assert!(script.ends_with("exec '/opt/it'\\''s' 'a b' ''\\''' 2>/dev/null\n"), "{script}");
    }
}
