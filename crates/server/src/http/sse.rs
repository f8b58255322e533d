//! Server-sent events: a command's journal as text. Made by hand, for the bytes of a command are the bulk of what this
//! server sends.

use super::problem::Problem;
use super::view::CommandView;
use crate::stead::{CommandEvent, Follow, Stead};
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Serialize;
use serde_json::json;
use std::convert::Infallible;
use std::time::Duration;
use stead_model::clock::Timestamp;
use stead_model::frame::{Chunk, Stream};
use stead_model::proto::Status;

/// A line that means nothing, so often, shows both sides that the other is there.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The events of a followed command as a response.
pub(super) fn stream(stead: &Stead, follow: Follow) -> Response {
    let here = stead.sse_client();
    let events = futures_util::stream::unfold((follow, false), move |(mut follow, over)| {
        // As long as somebody may ask for the next event, they are there.
        let here = std::sync::Arc::clone(&here);
        async move {
            let _here = here;
            if over {
                return None;
            }
            let (text, over) = match tokio::time::timeout(HEARTBEAT, follow.next()).await {
                Err(_) => (Bytes::from_static(b": still here\n\n"), false),
                Ok(None) => return None,
                Ok(Some(Ok(event))) => (write(event), false),
                // Told apart from the end of a command: this is the end of the stream, and no id comes with it.
                Ok(Some(Err(error))) => {
                    let problem = Problem::from(error);
                    (named("error", None, &json!({ "error": problem.detail() })), true)
                }
            };
            Some((Ok::<_, Infallible>(text), (follow, over)))
        }
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(events)).into_response()
}

fn write(event: CommandEvent) -> Bytes {
    match event {
        CommandEvent::Queued { seq, at } => {
            named("queued", Some(seq), &json!({ "seq": seq, "queued_at": Timestamp(at / 1000).to_string() }))
        }
        CommandEvent::Started { seq, at } => {
            named("start", Some(seq), &json!({ "seq": seq, "started_at": Timestamp(at / 1000).to_string() }))
        }
        CommandEvent::Output(chunk) => output(&chunk),
        CommandEvent::Ended { seq, command } => {
            let name = if command.status == Status::Failed { "failed" } else { "exit" };
            named(name, Some(seq), &CommandView::from(*command))
        }
    }
}

/// One event. JSON has no line breaks of its own, so its text is one line of data.
pub(super) fn named(name: &str, seq: Option<u64>, data: &impl Serialize) -> Bytes {
    let mut out = Vec::with_capacity(256);
    head(&mut out, name, seq);
    out.extend_from_slice(&serde_json::to_vec(data).unwrap_or_default());
    out.extend_from_slice(b"\n\n");
    out.into()
}

fn head(out: &mut Vec<u8>, name: &str, seq: Option<u64>) {
    if let Some(seq) = seq {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(seq.to_string().as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\ndata: ");
}

/// A piece of output: text where it is text, else base64.
fn output(chunk: &Chunk) -> Bytes {
    let name = match (chunk.late, chunk.stream) {
        (true, _) => "late",
        (false, Stream::Stdout) => "stdout",
        (false, Stream::Stderr) => "stderr",
    };
    let mut out = Vec::with_capacity(chunk.bytes.len() + chunk.bytes.len() / 8 + 128);
    head(&mut out, name, Some(chunk.seq));
    let place = format!("{{\"seq\":{},\"offset\":{},", chunk.seq, chunk.offset);
    out.extend_from_slice(place.as_bytes());
    if chunk.late {
        let stream = if chunk.stream == Stream::Stdout { "stdout" } else { "stderr" };
        out.extend_from_slice(format!("\"stream\":\"{stream}\",").as_bytes());
    }
    if std::str::from_utf8(&chunk.bytes).is_ok() {
        out.extend_from_slice(b"\"data\":\"");
        escape(&mut out, &chunk.bytes);
        out.extend_from_slice(b"\"}");
    } else {
        out.extend_from_slice(b"\"data\":\"");
        out.extend_from_slice(STANDARD.encode(&chunk.bytes).as_bytes());
        out.extend_from_slice(b"\",\"encoding\":\"base64\"}");
    }
    out.extend_from_slice(b"\n\n");
    out.into()
}

/// What JSON doesn't take as it is. Text has little of it: what lies between is copied whole.
fn escape(out: &mut Vec<u8>, text: &[u8]) {
    let mut from = 0;
    for (at, &byte) in text.iter().enumerate() {
        let short: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0..=0x1f => b"",
            _ => continue,
        };
        out.extend_from_slice(text.get(from..at).unwrap_or_default());
        if short.is_empty() {
            out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
        } else {
            out.extend_from_slice(short);
        }
        from = at + 1;
    }
    out.extend_from_slice(text.get(from..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn chunk(bytes: &[u8]) -> Chunk {
        Chunk { seq: 7, stream: Stream::Stdout, late: false, offset: 3, at: 0, bytes: bytes.to_vec() }
    }

    fn data(event: &[u8]) -> Value {
        let text = std::str::from_utf8(event).unwrap();
        let lines: Vec<&str> = text.split('\n').collect();
        assert_eq!((lines.len(), &lines[..2]), (5, &["id: 7", "event: stdout"][..]), "{text}");
        serde_json::from_str(lines[2].strip_prefix("data: ").unwrap()).unwrap()
    }

    #[test]
    fn what_is_no_text_is_base64() {
        let told = data(&output(&chunk(b"\xff\x00")));
        assert_eq!((told["data"].as_str(), told["encoding"].as_str()), (Some("/wA="), Some("base64")));
    }

    proptest! {
        #[test]
        fn any_text_comes_back_as_it_was(text in "\\PC*|[\\x00-\\x7f]*") {
            let told = data(&output(&chunk(text.as_bytes())));
            prop_assert_eq!(told["data"].as_str(), Some(text.as_str()));
            prop_assert_eq!(told.get("encoding"), None);
        }
    }
}
