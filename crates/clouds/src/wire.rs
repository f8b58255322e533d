//! One HTTP call: with a time-out, an answer of a bounded size, and an error that says who must act. Keys are never part
//! of what it says.

use crate::{CloudError, Effect, Trouble};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use reqwest::{Client, ClientBuilder, RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;
use std::time::Duration;

/// What a cloud may say about one thing. A list of a few thousand sandboxes is a megabyte.
const MOST: usize = 16 << 20;

/// How much of what it says about an error is worth repeating.
const MOST_SAID: usize = 500;

/// For a connection to be there.
const CONNECT: Duration = Duration::from_secs(10);

/// A client that trusts what this machine trusts. One for each cloud that is configured: it keeps connections.
pub fn client(user_agent: &str) -> Result<Client, CloudError> {
    built(builder(user_agent))
}

/// One that speaks HTTP/1.1 alone: a WebSocket takes its connection over, and an answer that is read slowly or never ends
/// has one of its own, so that it holds up no other.
pub fn client_http1(user_agent: &str) -> Result<Client, CloudError> {
    built(builder(user_agent).http1_only())
}

fn builder(user_agent: &str) -> ClientBuilder {
    // The first one counts, and all of ours are the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().user_agent(user_agent).connect_timeout(CONNECT).redirect(reqwest::redirect::Policy::none())
}

fn built(builder: ClientBuilder) -> Result<Client, CloudError> {
    builder
        .build()
        .map_err(|error| CloudError::new("make an HTTP client", Trouble::Broken, Effect::None, chain(&error)))
}

/// Whether a call changes something: what its failing can have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Reads,
    Changes,
}

/// Sends a request and reads its answer. `patience` is for all of it.
pub async fn ask(
    what: &'static str,
    call: Call,
    patience: Duration,
    request: RequestBuilder,
) -> Result<(StatusCode, Bytes), CloudError> {
    let answer = begin(what, call, patience, request.timeout(patience)).await?;
    let status = answer.status();
    let wait = retry_after(&answer);
    let body = read(what, call, answer).await?;
    if status.is_success() { Ok((status, body)) } else { Err(refused(what, call, status, wait, &body)) }
}

/// The same, of JSON. What it can't be read as is the cloud's breach of contract.
pub async fn ask_json<T: DeserializeOwned>(
    what: &'static str,
    call: Call,
    patience: Duration,
    request: RequestBuilder,
) -> Result<T, CloudError> {
    let (_, body) = ask(what, call, patience, request).await?;
    serde_json::from_slice(&body).map_err(|error| {
        CloudError::new(what, Trouble::Broken, effect(call), format!("its answer makes no sense: {error}"))
    })
}

/// Sends a request whose answer is a stream: `patience` is for its head. Whatever the status is.
pub async fn begin(
    what: &'static str,
    call: Call,
    patience: Duration,
    request: RequestBuilder,
) -> Result<Response, CloudError> {
    match tokio::time::timeout(patience, request.send()).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(unanswered(what, call, &error)),
        Err(_) => Err(CloudError::new(
            what,
            Trouble::TimedOut,
            effect(call),
            format!("no answer in {} s", patience.as_secs_f64()),
        )),
    }
}

/// The body of an answer, if it is not too long.
pub async fn read(what: &'static str, call: Call, answer: Response) -> Result<Bytes, CloudError> {
    let mut body = BytesMut::new();
    let mut stream = answer.bytes_stream();
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|error| unanswered(what, call, &error))?;
        if body.len() + piece.len() > MOST {
            let message = format!("its answer has more than {} MiB", MOST >> 20);
            return Err(CloudError::new(what, Trouble::Broken, effect(call), message));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.freeze())
}

/// What a status other than success means. `said` is the body, where there was time to read it.
pub fn refused(what: &'static str, call: Call, status: StatusCode, after: Option<Duration>, said: &[u8]) -> CloudError {
    let trouble = match status.as_u16() {
        401 | 403 => Trouble::Denied,
        402 | 429 => Trouble::Exhausted,
        507 => Trouble::NoSpace,
        404 | 410 => Trouble::NotFound,
        408 | 504 => Trouble::TimedOut,
        409 | 412 | 423 => Trouble::Conflict,
        501 => Trouble::Unsupported,
        500 | 502 | 503 => Trouble::Unavailable,
        _ => Trouble::Broken,
    };
    // The 4xx are said before anything is done; after a 5xx nobody knows.
    let effect =
        if status.is_client_error() && status != StatusCode::REQUEST_TIMEOUT { Effect::None } else { effect(call) };
    let message = match said_by(said) {
        None => format!("it answered {}", status.as_u16()),
        Some(said) => format!("it answered {}: {said}", status.as_u16()),
    };
    CloudError { after, ..CloudError::new(what, trouble, effect, message) }
}

/// Of `Retry-After`, and of `Retry-After-NAME` as clouds with several limits say it: the longest counts.
pub fn retry_after(answer: &Response) -> Option<Duration> {
    let says = |name: &str| name == "retry-after" || name.starts_with("retry-after-");
    let said = answer.headers().iter().filter(|(name, _)| says(name.as_str()));
    said.filter_map(|(_, value)| value.to_str().ok()?.trim().parse().ok()).max().map(Duration::from_secs)
}

/// The message of an error body: `message`, `Message`, `error.message`, `detail`, or the text itself.
fn said_by(body: &[u8]) -> Option<String> {
    let text = match serde_json::from_slice::<serde_json::Value>(body) {
        Ok(value) => {
            let found = ["/message", "/Message", "/error/message", "/detail", "/error"]
                .into_iter()
                .find_map(|path| value.pointer(path)?.as_str().map(str::to_owned));
            found.unwrap_or_else(|| value.to_string())
        }
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    let text = stead_model::plain::plain(&text);
    let text = text.trim();
    (!text.is_empty()).then(|| text.chars().take(MOST_SAID).collect())
}

pub fn unanswered(what: &'static str, call: Call, error: &reqwest::Error) -> CloudError {
    let trouble = if error.is_timeout() { Trouble::TimedOut } else { Trouble::Unavailable };
    // A connection that never was can't have carried anything.
    let effect = if error.is_connect() || error.is_builder() { Effect::None } else { effect(call) };
    // Addresses may have keys in their query.
    CloudError::new(what, trouble, effect, chain(error).replace(error.url().map_or("\0", |url| url.as_str()), "it"))
}

fn effect(call: Call) -> Effect {
    match call {
        Call::Reads => Effect::None,
        Call::Changes => Effect::Unknown,
    }
}

/// An error with all that caused it.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
