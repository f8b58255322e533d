//! How answers look, and how they go wrong on demand.

use super::world::World;
use super::{envd, rest};
use crate::faults::Fault;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use axum::response::IntoResponse;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::StreamExt;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;

/// A call as it came, all of it.
pub(super) struct Call {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Why a call isn't answered as it wished.
pub(super) enum Refusal {
    With(u16, Value),
    /// Not at all: the connection is cut.
    Cut,
}

pub(super) type Answer = Result<Response<Body>, Refusal>;

pub(super) async fn answer(world: Arc<World>, request: Request<Incoming>) -> io::Result<Response<Body>> {
    let cut = || io::Error::new(io::ErrorKind::ConnectionAborted, "cut");
    let fault = world.faults.take(&format!("{} {}", request.method(), request.uri().path()));
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| cut())?.to_bytes();
    let call = Call { method: head.method, uri: head.uri, headers: head.headers, body };
    if let Some(Fault::Refuse(status)) = fault {
        let response = said(status, json!({ "code": status, "message": "refused on demand" }));
        return Ok(if status == 429 { ([("Retry-After", "0")], response).into_response() } else { response });
    }
    let is_for_a_sandbox = call.headers.contains_key("e2b-sandbox-id") || call.headers.contains_key("e2b-sandbox-port");
    let answer = if is_for_a_sandbox { envd::answer(&world, &call).await } else { rest::answer(&world, &call).await };
    let response = match answer {
        Ok(response) => response,
        Err(Refusal::With(status, body)) => said(status, body),
        Err(Refusal::Cut) => return Err(cut()),
    };
    match fault {
        None | Some(Fault::Refuse(_)) => Ok(response),
        Some(Fault::AfterSuccess(status)) => {
            Ok(said(status, json!({ "code": status, "message": "failed on demand, after it was done" })))
        }
        Some(Fault::NoAnswer) => std::future::pending().await,
        Some(Fault::Nonsense) => Ok(([("Content-Type", "text/html")], "<html>so it goes</html>").into_response()),
        Some(Fault::Cut(after)) => Ok(response.map(|body| shortened(body, after))),
    }
}

fn shortened(body: Body, after: usize) -> Body {
    let pieces = body.into_data_stream().scan(after, |left, piece| {
        let piece = piece.map(|piece: Bytes| piece.slice(..piece.len().min(*left)));
        *left -= piece.as_ref().map_or(0, Bytes::len);
        std::future::ready((*left > 0 || piece.as_ref().is_ok_and(|piece| !piece.is_empty())).then_some(piece))
    });
    let end = futures_util::stream::once(async { Err(axum::Error::new(io::Error::other("cut on demand"))) });
    Body::from_stream(pieces.chain(end))
}

fn said(status: u16, body: Value) -> Response<Body> {
    (StatusCode::from_u16(status).unwrap(), axum::Json(body)).into_response()
}

/// As the REST interface and who stands before the sandboxes say it.
pub(super) fn refuse(status: u16, message: &str) -> Refusal {
    Refusal::With(status, json!({ "code": status, "message": message }))
}

/// As the Connect protocol says it, of one message for one answer.
pub(super) fn fault(code: &str, message: &str) -> Refusal {
    let status = match code {
        "invalid_argument" | "failed_precondition" => 400,
        "unauthenticated" => 401,
        "not_found" => 404,
        "already_exists" => 409,
        "unimplemented" => 501,
        _ => 500,
    };
    Refusal::With(status, json!({ "code": code, "message": message }))
}

impl World {
    /// Something that the reference doesn't know.
    pub(super) fn strange(&self, call: &Call, what: impl std::fmt::Display) -> Refusal {
        let text = format!("{} {}: {what}", call.method, call.uri);
        self.violation(&text);
        refuse(400, &text)
    }

    /// A header that has to be there; not being there is strange.
    pub(super) fn header<'a>(&self, call: &'a Call, name: &str) -> Result<&'a str, Refusal> {
        let value = call.headers.get(name).and_then(|value| value.to_str().ok());
        value.ok_or_else(|| self.strange(call, format_args!("no `{name}`")))
    }

    /// The body as JSON, and nothing in it that isn't known.
    pub(super) fn json<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Refusal> {
        self.content_type(call, "application/json")?;
        self.parse(call, &call.body)
    }

    /// The body as one envelope.
    pub(super) fn enveloped<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Refusal> {
        self.content_type(call, "application/connect+json")?;
        match call.body.split_first_chunk::<5>() {
            Some(([0, length @ ..], message)) if u32::from_be_bytes(*length) as usize == message.len() => {
                self.parse(call, message)
            }
            _ => Err(self.strange(call, "not one envelope")),
        }
    }

    fn content_type(&self, call: &Call, expected: &str) -> Result<(), Refusal> {
        match self.header(call, "content-type")? {
            found if found == expected => Ok(()),
            found => Err(self.strange(call, format_args!("content type `{found}`"))),
        }
    }

    fn parse<T: DeserializeOwned>(&self, call: &Call, text: &[u8]) -> Result<T, Refusal> {
        serde_json::from_slice(text)
            .map_err(|error| self.strange(call, format_args!("{error} in {}", String::from_utf8_lossy(text))))
    }

    /// The query, of these names alone.
    pub(super) fn query(&self, call: &Call, known: &[&str]) -> Result<Vec<(String, String)>, Refusal> {
        let text = call.uri.query().unwrap_or_default();
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        pairs
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                if known.contains(&name) {
                    Ok((name.to_owned(), unescaped(value)))
                } else {
                    Err(self.strange(call, format_args!("`{name}` in the query")))
                }
            })
            .collect()
    }
}

/// As addresses are decoded: a plus is a space.
pub(super) fn unescaped(text: &str) -> String {
    percent_encoding::percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

pub(super) fn envelope(flags: u8, message: &Value) -> Bytes {
    let json = message.to_string();
    let mut bytes = BytesMut::with_capacity(json.len() + 5);
    bytes.put_u8(flags);
    bytes.put_u32(u32::try_from(json.len()).unwrap());
    bytes.put_slice(json.as_bytes());
    bytes.freeze()
}
