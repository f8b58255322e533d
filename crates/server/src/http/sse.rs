//! Server-sent events: a command's journal as text. Made by hand, for the bytes of a command are the bulk of what this
//! server sends.

use super::problem::{Answer, Problem};
use super::view::CommandView;
use crate::error::Error;
use crate::stead::{CommandEvent, Follow, Stead};
use axum::body::Body;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::time::Duration;
use stead_model::clock::Timestamp;
use stead_model::frame::{Chunk, Stream};
use stead_model::proto::Status;
use wide::u8x16;

/// A line that means nothing, so often, shows both sides that the other is there.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Where a client that lost its connection wants to go on.
pub(super) fn last_event_id(headers: &HeaderMap) -> Answer<Option<u64>> {
    let last = headers.get("last-event-id").map(|value| {
        let text = value.to_str().unwrap_or("?");
        text.parse::<u64>().map_err(|_| Problem::invalid("`Last-Event-ID` is not a sequence number"))
    });
    last.transpose()
}

/// What can be told event by event.
pub(super) trait Source: Send + 'static {
    /// The next event as text; may be given up at any time without losing anything.
    fn next(&mut self) -> impl Future<Output = Option<Result<Bytes, Error>>> + Send;
}

impl Source for Follow {
    async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        Some(Follow::next(self).await?.map(write))
    }
}

/// The events of a source as a response.
pub(super) fn stream(stead: &Stead, source: impl Source) -> Response {
    let here = stead.sse_client();
    let events = futures_util::stream::unfold((source, false), move |(mut source, over)| {
        // As long as somebody may ask for the next event, they are there.
        let here = std::sync::Arc::clone(&here);
        async move {
            let _here = here;
            if over {
                return None;
            }
            let (text, over) = match tokio::time::timeout(HEARTBEAT, source.next()).await {
                Err(_) => (Bytes::from_static(b": still here\n\n"), false),
                Ok(None) => return None,
                Ok(Some(Ok(text))) => (text, false),
                // Told apart from the end of a command: this is the end of the stream, and no id comes with it.
                Ok(Some(Err(error))) => {
                    let problem = Problem::from(error);
                    (named("error", None, &json!({ "error": problem.detail() })), true)
                }
            };
            Some((Ok::<_, Infallible>(text), (source, over)))
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

/// The same for whoever puts events into something else: its name, its number, what it tells.
pub(super) fn told(event: CommandEvent) -> (&'static str, u64, Value) {
    match event {
        CommandEvent::Queued { seq, at } => {
            ("queued", seq, json!({ "seq": seq, "queued_at": Timestamp(at / 1000).to_string() }))
        }
        CommandEvent::Started { seq, at } => {
            ("start", seq, json!({ "seq": seq, "started_at": Timestamp(at / 1000).to_string() }))
        }
        CommandEvent::Output(chunk) => {
            let (name, stream) = match (chunk.late, chunk.stream) {
                (true, Stream::Stdout) => ("late", Some("stdout")),
                (true, Stream::Stderr) => ("late", Some("stderr")),
                (false, Stream::Stdout) => ("stdout", None),
                (false, Stream::Stderr) => ("stderr", None),
            };
            let place = [("seq", json!(chunk.seq)), ("offset", json!(chunk.offset))];
            let content = if let Ok(text) = std::str::from_utf8(&chunk.bytes) {
                vec![("data", json!(text))]
            } else {
                vec![("data", json!(STANDARD.encode(&chunk.bytes))), ("encoding", json!("base64"))]
            };
            let stream = stream.map(|stream| ("stream", json!(stream)));
            let fields = place.into_iter().chain(content).chain(stream);
            let data = Value::Object(fields.map(|(field, value)| (field.to_owned(), value)).collect());
            (name, chunk.seq, data)
        }
        CommandEvent::Ended { seq, command } => {
            let name = if command.status == Status::Failed { "failed" } else { "exit" };
            let view = CommandView::from(*command);
            (name, seq, serde_json::to_value(view).unwrap_or_default())
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

/// Text that is escaped at once: a byte becomes six at most, and all of it stays near.
const STRETCH: usize = 2 << 10;

/// What is looked at together.
const WORD: usize = 16;

/// What JSON doesn't take as it is. Text has little of it, so a word is copied at a time, and what comes behind a byte
/// that has to be written another way is copied again, to its new place.
fn escape(out: &mut Vec<u8>, text: &[u8]) {
    let mut room = [0; STRETCH * 6 + WORD];
    for stretch in text.chunks(STRETCH) {
        let mut rest = stretch;
        let mut at = 0;
        while let Some((word, after)) = rest.split_first_chunk::<WORD>() {
            put(&mut room, at, *word);
            let plain = plain_bytes(*word);
            at += plain;
            if plain == WORD {
                rest = after;
            } else {
                at = escape_byte(&mut room, at, word.get(plain).copied().unwrap_or_default());
                rest = rest.get(plain + 1..).unwrap_or_default();
            }
        }
        for &byte in rest {
            at = escape_byte(&mut room, at, byte);
        }
        out.extend_from_slice(room.get(..at).unwrap_or_default());
    }
}

fn put<const N: usize>(room: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(place) = room.get_mut(at..at + N) {
        place.copy_from_slice(&bytes);
    }
}

/// How many bytes at the beginning are written as they are.
fn plain_bytes(word: [u8; WORD]) -> usize {
    let word = u8x16::new(word);
    let last_control = u8x16::splat(0x1f);
    let special = word.max(last_control).simd_eq(last_control)
        | word.simd_eq(u8x16::splat(b'"'))
        | word.simd_eq(u8x16::splat(b'\\'));
    WORD.min(special.to_bitmask().trailing_zeros() as usize)
}

/// Writes one byte as JSON has it; says where the next one goes.
fn escape_byte(room: &mut [u8], at: usize, byte: u8) -> usize {
    let letter = match byte {
        b'"' => b'"',
        b'\\' => b'\\',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0..=0x1f => {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or(b'0');
            put(room, at, [b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 0xf)]);
            return at + 6;
        }
        _ => {
            put(room, at, [byte]);
            return at + 1;
        }
    };
    put(room, at, [b'\\', letter]);
    at + 2
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

    #[test]
    fn every_character_comes_back_from_every_place_in_a_word() {
        for place in 0..=2 * WORD {
            let all: String = (0..0x180).filter_map(char::from_u32).collect();
            let text = "x".repeat(place) + &all;
            assert_eq!(data(&output(&chunk(text.as_bytes())))["data"].as_str(), Some(text.as_str()));
        }
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
