//! One client of a terminal's.

use super::{Client, End, Pty, QUEUE, World};
use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

/// Most that is taken in one message.
const LONGEST: usize = 64 << 10;

/// For the last word to a client that doesn't listen.
const GOODBYE: Duration = Duration::from_secs(5);

pub(super) async fn attend(
    world: Arc<World>,
    pty: Option<Arc<Pty>>,
    mut socket: WebSocket,
    says_exits: bool,
    cut: Option<usize>,
) {
    let Some(pty) = pty else {
        let control = json!({"type": "control", "status": "error", "error": "PTY session not found"});
        let _ = socket.send(Message::text(control.to_string())).await;
        return;
    };
    let (queue, to_send) = mpsc::channel(QUEUE);
    let slow = Arc::new(Notify::new());
    // First, so that nothing is missed between being told and being there.
    pty.clients.lock().unwrap().push(Client { queue, slow: Arc::clone(&slow) });
    let control = json!({"type": "control", "status": "connected"});
    if socket.send(Message::text(control.to_string())).await.is_err() {
        return;
    }
    let (mut sink, stream) = socket.split();
    let mut end = pty.end.subscribe();
    let ended = async move { end.wait_for(Option::is_some).await.ok().and_then(|end| *end) };
    let last = tokio::select! {
        last = write(&mut sink, to_send, cut) => last,
        last = read(&world, &pty, stream) => last,
        () = slow.notified() => Some(close(1008, "slow consumer")),
        // What is still in the queue is lost with it.
        end = ended => match end {
            None | Some(End::Cut) => None,
            Some(End::Exit(code)) => {
                let mut said = json!({"exitCode": code});
                if code != 0 {
                    said["exitReason"] = reason(code).into();
                }
                if says_exits {
                    let mut control = said.clone();
                    control["type"] = "control".into();
                    control["status"] = "exited".into();
                    let _ = sink.send(Message::text(control.to_string())).await;
                }
                Some(close(if code == 0 { 1000 } else { 1011 }, &said.to_string()))
            }
        },
    };
    if let Some(last) = last {
        let _ = tokio::time::timeout(GOODBYE, async { sink.send(last).await }).await;
    }
}

/// None: the connection is over.
async fn write(
    sink: &mut SplitSink<WebSocket, Message>,
    mut queue: mpsc::Receiver<Bytes>,
    cut: Option<usize>,
) -> Option<Message> {
    let mut sent = 0;
    while let Some(piece) = queue.recv().await {
        sent += piece.len();
        sink.send(Message::Binary(piece)).await.ok()?;
        if cut.is_some_and(|cut| sent > cut) {
            return None;
        }
    }
    // It was too slow, of which it is told by another.
    std::future::pending().await
}

async fn read(world: &World, pty: &Pty, mut stream: SplitStream<WebSocket>) -> Option<Message> {
    while let Some(Ok(message)) = stream.next().await {
        let bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Text(text) => text.into(),
            Message::Close(_) => return None,
            Message::Ping(_) | Message::Pong(_) => continue,
        };
        if bytes.len() > LONGEST {
            world.violated(format!("a message of {} bytes to a terminal", bytes.len()));
            return Some(close(1009, "message too big"));
        }
        pty.input.send(bytes).await.ok()?;
    }
    None
}

fn close(code: u16, reason: &str) -> Message {
    Message::Close(Some(CloseFrame { code, reason: reason.into() }))
}

fn reason(code: i32) -> String {
    match code {
        130 => "Ctrl+C".to_owned(),
        137 => "SIGKILL".to_owned(),
        143 => "SIGTERM".to_owned(),
        129.. => format!("signal {}", code - 128),
        _ => "non-zero exit".to_owned(),
    }
}
