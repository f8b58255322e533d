//! A person at a terminal, over a WebSocket: binary frames are what the terminal shows and what is typed, text frames
//! are about the terminal.
//!
//! ```text
//! client ─► {"type":"resize","cols":80,"rows":24}
//! server ─► {"type":"resize",..} the terminal's size: the smallest of all who look
//!           {"type":"exit","exit_code":..,"signal":..} its shell ended; the next prompt has another with its state
//!           {"type":"detached","reason":"end_of_file"|"closed"|"asked"} the last
//! ```
//!
//! Any other text frame ends the connection with code 1008.

use super::App;
use super::access::{Caller, OfThread, forbidden};
use super::body::Query;
use super::problem::{Answer, ErrorBody, Problem};
use super::terminals::default_name;
use super::view::signal_name;
use crate::lease::AutoResume;
use crate::stead::{AttachEvent, Attachment, Keyboard, Where};
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use futures_util::stream::SplitStream;
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;
use stead_model::proto::{Detached, Size};
use tokio::time::timeout;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(pty))
}

/// Of one message of a person: a large paste comes in several.
const MOST_TYPED: usize = 256 << 10;

/// How often a quiet connection is tried, and how long somebody may take nothing before they are let go.
const HEARTBEAT: Duration = Duration::from_secs(15);
const STUCK: Duration = Duration::from_mins(1);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Window {
    /// 80 if absent.
    #[param(minimum = 1)]
    cols: Option<u16>,
    /// 24 if absent.
    #[param(minimum = 1)]
    rows: Option<u16>,
    /// A terminal of the thread, by name; `default` if absent.
    terminal: Option<String>,
}

/// Attach to a terminal: a WebSocket. Makes the thread and wakes it.
#[utoipa::path(
    get, path = "/api/threads/{id}/pty", tag = "terminals", params(("id" = String, Path), Window),
    responses((status = 101), (status = 400, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn pty(
    State(app): State<App>,
    caller: Caller,
    OfThread(thread): OfThread,
    Query(window): Query<Window>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Answer<Response> {
    // Whoever types changes things, whatever the method says.
    if !caller.0.may_write() {
        return Err(forbidden("this token may only read"));
    }
    caller.check_work(&app.stead, &thread).await?;
    let upgrade =
        upgrade.map_err(|refused| Problem::invalid(format!("this is a WebSocket: {}", refused.body_text())))?;
    let at = Where {
        thread,
        terminal: window.terminal.unwrap_or_else(default_name),
        create: true,
        auto_resume: AutoResume::Yes,
        by: Some(caller.0.token.clone()),
    };
    if window.cols == Some(0) || window.rows == Some(0) {
        return Err(Problem::invalid("a terminal has at least one column and one row"));
    }
    let size = Size { columns: window.cols.unwrap_or(80), rows: window.rows.unwrap_or(24) };
    let attachment = app.stead.attach(at, size).await?;
    let upgrade = upgrade.max_message_size(MOST_TYPED).max_frame_size(MOST_TYPED);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let _here = app.stead.ws_client();
        tokio::select! {
            () = converse(socket, attachment) => {}
            () = app.stead.hung_up() => {}
        }
    }))
}

async fn converse(socket: WebSocket, mut attachment: Attachment) {
    let (mut out, input) = socket.split();
    let mut typist = tokio::spawn(listen(input, attachment.keyboard()));
    loop {
        let next = tokio::select! {
            next = timeout(HEARTBEAT, attachment.recv()) => next,
            // They hung up, or say what makes no sense and are told so.
            left = &mut typist => {
                if let Ok(Some(why)) = left {
                    let _ = timeout(STUCK, out.send(Message::Close(Some(why)))).await;
                }
                break;
            }
        };
        let (message, last) = match next {
            Err(_) => (Message::Ping(bytes::Bytes::new()), false),
            Ok(None) => break,
            Ok(Some(event)) => {
                let last = matches!(event, AttachEvent::Detached(_));
                (told(event), last)
            }
        };
        if !matches!(timeout(STUCK, out.send(message)).await, Ok(Ok(()))) || last {
            break;
        }
    }
    typist.abort();
    let _ = timeout(STUCK, out.close()).await;
}

fn told(event: AttachEvent) -> Message {
    let text = |value: Value| Message::Text(value.to_string().into());
    match event {
        AttachEvent::Bytes(bytes) => Message::Binary(bytes.into()),
        AttachEvent::Resized(size) => text(json!({ "type": "resize", "cols": size.columns, "rows": size.rows })),
        AttachEvent::Exit(end) => {
            let signal = end.signal.map(signal_name);
            text(json!({ "type": "exit", "exit_code": end.exit_code, "signal": signal }))
        }
        AttachEvent::Detached(why) => {
            let reason = match why {
                Detached::Asked => "asked",
                Detached::EndOfFile => "end_of_file",
                Detached::Closed => "closed",
            };
            text(json!({ "type": "detached", "reason": reason }))
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Said {
    Resize { cols: u16, rows: u16 },
}

/// Hands on what is typed until the person leaves, or says what makes no sense: then why they are let go.
async fn listen(mut input: SplitStream<WebSocket>, keyboard: Keyboard) -> Option<CloseFrame> {
    while let Some(Ok(message)) = input.next().await {
        let done = match message {
            Message::Binary(bytes) => keyboard.send(bytes).await,
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(Said::Resize { cols, rows }) => keyboard.resize(cols, rows).await,
                Err(error) => {
                    tracing::debug!(%error, "somebody attached says what is not the protocol");
                    let reason = "a text frame is {\"type\":\"resize\",\"cols\":..,\"rows\":..}".into();
                    return Some(CloseFrame { code: close_code::POLICY, reason });
                }
            },
            Message::Close(_) => return None,
            Message::Ping(_) | Message::Pong(_) => Ok(()),
        };
        if done.is_err() {
            return None;
        }
    }
    None
}
