//! One who hears a program: a stream of envelopes that ends with a last one, or is cut.

use super::envd::Asked;
use super::wire::{Call, Refusal, envelope};
use super::world::{Sandbox, World};
use axum::body::Body;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The flag of the last envelope.
const LAST: u8 = 2;

pub(super) struct Listener {
    /// Between signs of life.
    interval: Duration,
    /// When the program is killed.
    pub deadline: Option<Duration>,
    awake: CancellationToken,
    sandbox: Arc<Sandbox>,
}

impl Listener {
    pub(super) fn of(world: &World, call: &Call, asked: &Asked<'_>) -> Result<Self, Refusal> {
        let number = |name: &str| match call.headers.get(name).map(|value| value.to_str().unwrap_or("").parse::<u64>())
        {
            None => Ok(None),
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => Err(world.strange(call, format_args!("`{name}` is no number"))),
        };
        Ok(Self {
            interval: Duration::from_secs(number("keepalive-ping-interval")?.unwrap_or(90).max(1)),
            deadline: number("connect-timeout-ms")?.map(Duration::from_millis),
            awake: asked.awake.until_cut.clone(),
            sandbox: Arc::clone(asked.sandbox),
        })
    }

    /// What is sent ends with a last envelope, or the connection is cut.
    pub(super) fn stream(self, pid: u32, events: mpsc::Receiver<Value>) -> Response<Body> {
        let (out, pieces) = mpsc::channel(1);
        let awake = self.awake.clone();
        tokio::spawn(awake.run_until_cancelled_owned(self.pump(pid, events, out)));
        let stream =
            futures_util::stream::unfold((pieces, false), async |(mut pieces, is_over)| match pieces.recv().await {
                Some(piece) => {
                    let is_over = piece.first() == Some(&LAST);
                    Some((Ok(piece), (pieces, is_over)))
                }
                None if is_over => None,
                None => Some((Err(io::Error::other("cut")), (pieces, true))),
            });
        (StatusCode::OK, [("Content-Type", "application/connect+json")], Body::from_stream(stream)).into_response()
    }

    /// None when nobody is there any more.
    async fn pump(self, pid: u32, mut events: mpsc::Receiver<Value>, out: mpsc::Sender<Bytes>) -> Option<()> {
        let until = self.deadline.map(|deadline| tokio::time::Instant::now() + deadline);
        out.send(envelope(0, &json!({ "event": { "start": { "pid": pid } } }))).await.ok()?;
        loop {
            let deadline = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                () = out.closed() => return None,
                () = deadline => {
                    let error = json!({ "code": "deadline_exceeded", "message": "context deadline exceeded" });
                    return out.send(envelope(LAST, &json!({ "error": error }))).await.ok();
                }
                event = events.recv() => event?,
                () = tokio::time::sleep(self.interval) => json!({ "event": { "keepalive": {} } }),
            };
            if self.sandbox.is_mute() {
                return std::future::pending().await;
            }
            out.send(envelope(0, &event)).await.ok()?;
            if event.pointer("/event/end").is_some() {
                return out.send(envelope(LAST, &json!({}))).await.ok();
            }
        }
    }
}

/// The status of a stream is 200 whatever happens; its last envelope says what did.
pub(super) fn failed(error: &Value) -> Response<Body> {
    let last = envelope(LAST, &json!({ "error": error }));
    (StatusCode::OK, [("Content-Type", "application/connect+json")], last).into_response()
}
