//! Commands by their id: their record, their events, their output, their input, their end.

use super::App;
use super::access::OfCommand;
use super::body::{Json, Query};
use super::describe::StreamEvent;
use super::problem::{Answer, DAMAGED, ErrorBody, Problem};
use super::view::CommandView;
use crate::error::Error;
use crate::stead::{CommandEvent, Follow, Input, Stead};
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Deserialize;
use stead_model::command::Command;
use stead_model::frame::Stream;
use stead_model::ids::CommandId;
use stead_model::proto::FirstSignal;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(show))
        .routes(routes!(events))
        .routes(routes!(output))
        .routes(routes!(stdin))
        .routes(routes!(cancel))
}

/// A command.
#[utoipa::path(
    get, path = "/api/commands/{id}", tag = "commands", params(("id" = String, Path)),
    responses((status = 200, body = CommandView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn show(State(stead): State<Stead>, OfCommand(id): OfCommand) -> Answer<axum::Json<CommandView>> {
    Ok(axum::Json(stead.command(&id).await?.into()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct From {
    /// The last sequence number that is known already; `Last-Event-ID` says the same.
    after: Option<u64>,
    /// Go on past the end with what background children still write.
    #[serde(default)]
    late: bool,
    /// `false`: end with what there is now.
    #[serde(default = "yes")]
    follow: bool,
}

fn yes() -> bool {
    true
}

/// The events of a command from any place on, to its end.
#[utoipa::path(
    get, path = "/api/commands/{id}/events", tag = "commands", params(("id" = String, Path), From),
    responses(
        (status = 200, body = StreamEvent, content_type = "text/event-stream"),
        (status = 404, body = ErrorBody), (status = 410, body = ErrorBody), (status = 500, body = ErrorBody, description = DAMAGED), (status = "default", body = ErrorBody)
    )
)]
async fn events(
    State(stead): State<Stead>,
    OfCommand(id): OfCommand,
    Query(from): Query<From>,
    headers: HeaderMap,
) -> Answer<Response> {
    let after = match from.after {
        Some(after) => after,
        None => super::sse::last_event_id(&headers)?.unwrap_or(0),
    };
    let follow = if from.follow {
        stead.follow(&id, after, from.late).await?
    } else {
        stead.replay(&id, after, from.late).await?
    };
    Ok(super::sse::stream(&stead, follow))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HowRead {
    /// Go on as the command writes, to its end.
    #[serde(default)]
    follow: bool,
}

/// What is read from a journal at once.
const PIECE: u64 = 1 << 20;

/// The bytes of one stream, as they were written.
#[utoipa::path(
    get, path = "/api/commands/{id}/output/{stream}", tag = "commands",
    params(("id" = String, Path), ("stream" = String, Path, description = "`stdout` or `stderr`"), HowRead),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 404, body = ErrorBody), (status = 410, body = ErrorBody), (status = 500, body = ErrorBody, description = DAMAGED), (status = "default", body = ErrorBody)
    )
)]
async fn output(
    State(stead): State<Stead>,
    OfCommand(id): OfCommand,
    Path((_id, stream)): Path<(String, String)>,
    Query(how): Query<HowRead>,
    headers: HeaderMap,
) -> Answer<Response> {
    let stream = match stream.as_str() {
        "stdout" => Stream::Stdout,
        "stderr" => Stream::Stderr,
        _ => {
            return Err(Problem::new("not_found", "a command has `stdout` and `stderr`")
                .details(serde_json::json!({"kind": "stream"})));
        }
    };
    let kind = [(header::CONTENT_TYPE, "application/octet-stream"), (header::ACCEPT_RANGES, "bytes")];
    if how.follow {
        let follow = stead.follow(&id, 0, false).await?;
        return Ok((kind, bytes_of(follow, stream)).into_response());
    }
    let total = stead.read_output(&id, stream, 0, 0).await?.total;
    let asked = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
    match asked.map_or(Range::Whole, |range| read_range(range, total)) {
        Range::Whole => {
            let past = stead.replay(&id, 0, true).await?;
            let pieces = Pieces { stead, id, stream, at: 0, to: total, past: Some(past) };
            Ok((kind, [(header::CONTENT_LENGTH, total)], pieces.body()).into_response())
        }
        Range::Part(from, to) => {
            let said = format!("bytes {from}-{}/{total}", to - 1);
            let length = [(header::CONTENT_LENGTH, to - from)];
            let body = Pieces { stead, id, stream, at: from, to, past: None }.body();
            Ok((StatusCode::PARTIAL_CONTENT, kind, [(header::CONTENT_RANGE, said)], length, body).into_response())
        }
        Range::Outside => {
            let said = [(header::CONTENT_RANGE, format!("bytes */{total}"))];
            Ok((StatusCode::RANGE_NOT_SATISFIABLE, said, Problem::invalid("the range lies outside the output"))
                .into_response())
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Range {
    Whole,
    Part(u64, u64),
    Outside,
}

/// One range of bytes; several at once, or none that makes sense, are answered with everything, as they may be.
pub(super) fn read_range(text: &str, total: u64) -> Range {
    let Some((first, last)) = text.strip_prefix("bytes=").and_then(|range| range.trim().split_once('-')) else {
        return Range::Whole;
    };
    let (from, to) = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(from), Ok(last)) if last >= from => (from, last.saturating_add(1).min(total)),
        (Ok(from), Err(_)) if last.is_empty() => (from, total),
        (Err(_), Ok(0)) if first.is_empty() => return Range::Outside,
        (Err(_), Ok(most)) if first.is_empty() => (total.saturating_sub(most), total),
        _ => return Range::Whole,
    };
    if from >= total { Range::Outside } else { Range::Part(from, to) }
}

/// A stream from one place to another, a piece at a time, as the client takes it.
struct Pieces {
    stead: Stead,
    id: CommandId,
    stream: Stream,
    at: u64,
    to: u64,
    /// Its events from the beginning: they come straight from the files where those are on this machine. What they leave
    /// out, as the beginning of a character whose rest was never written, is asked for.
    past: Option<Follow>,
}

impl Pieces {
    fn body(self) -> Body {
        Body::from_stream(futures_util::stream::try_unfold(self, |mut pieces| async move {
            let piece = pieces.next().await.map_err(|error| std::io::Error::other(error.to_string()))?;
            Ok::<_, std::io::Error>(piece.map(|piece| (piece, pieces)))
        }))
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let left = self.to - self.at;
        if left == 0 {
            return Ok(None);
        }
        let mut bytes = match self.told().await? {
            Some(bytes) => bytes,
            None => Bytes::from(self.stead.read_output(&self.id, self.stream, self.at, PIECE.min(left)).await?.bytes.0),
        };
        if bytes.is_empty() {
            // The length has been promised: a shorter answer must not look whole.
            return Err(Error::Io("the output is shorter than it was".to_owned()));
        }
        bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        self.at += bytes.len() as u64;
        Ok(Some(bytes))
    }

    async fn told(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(past) = &mut self.past {
            match past.next().await.transpose()? {
                None => self.past = None,
                Some(CommandEvent::Output(chunk)) if chunk.stream == self.stream && !chunk.bytes.is_empty() => {
                    if chunk.offset != self.at {
                        return Err(Error::Broken("its journal has a hole".to_owned()));
                    }
                    return Ok(Some(Bytes::from(chunk.bytes)));
                }
                Some(_) => {}
            }
        }
        Ok(None)
    }
}

fn bytes_of(follow: Follow, stream: Stream) -> Body {
    let pieces = futures_util::stream::try_unfold(follow, move |mut follow| async move {
        loop {
            match follow.next().await {
                None => return Ok(None),
                Some(Ok(CommandEvent::Output(chunk))) if chunk.stream == stream => {
                    return Ok(Some((Bytes::from(chunk.bytes), follow)));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(std::io::Error::other(error.to_string())),
            }
        }
    });
    Body::from_stream(pieces)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HowWrite {
    /// Close it behind these bytes.
    #[serde(default)]
    eof: bool,
    /// Where in all that the command is ever sent these bytes begin, from 0. What has arrived before is passed over, so that
    /// a request whose answer was lost may be repeated. For the whole of a command's input or not at all.
    offset: Option<u64>,
}

/// How much of a command's input has arrived, in bytes.
const TAKEN: &str = "stead-stdin-offset";

/// Write to a command that was started with `stdin_open`.
///
/// With `offset`, the header `Stead-Stdin-Offset` tells where the next bytes begin; bytes that would leave a gap are refused
/// (409 `conflict`, with `expected_offset` in its details). A command that waits for its turn is 409 `terminal_busy`: send
/// them again when it runs.
#[utoipa::path(
    post, path = "/api/commands/{id}/stdin", tag = "commands", params(("id" = String, Path), HowWrite),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 204, headers(("Stead-Stdin-Offset" = u64, description = "with `offset`: how much has arrived in all"))),
        (status = 409, body = ErrorBody), (status = 413, body = ErrorBody), (status = "default", body = ErrorBody)
    )
)]
async fn stdin(
    State(stead): State<Stead>,
    OfCommand(id): OfCommand,
    Query(how): Query<HowWrite>,
    super::body::Raw(bytes): super::body::Raw,
) -> Answer<Response> {
    let input = Input { bytes: bytes.to_vec(), eof: how.eof, offset: how.offset };
    Ok(match stead.send_stdin(&id, input).await? {
        Some(taken) => (StatusCode::NO_CONTENT, [(TAKEN, taken.to_string())]).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Cancel {
    /// Where it begins: `INT`, `TERM` or `KILL`. What ignores it gets the next one.
    signal: Option<Signal>,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
pub(super) enum Signal {
    #[serde(rename = "INT", alias = "SIGINT")]
    Int,
    #[serde(rename = "TERM", alias = "SIGTERM")]
    Term,
    #[serde(rename = "KILL", alias = "SIGKILL")]
    Kill,
}

/// End a command early. One that has ended stays as it ended.
#[utoipa::path(
    post, path = "/api/commands/{id}/cancel", tag = "commands", params(("id" = String, Path)), request_body = Cancel,
    responses((status = 200, body = CommandView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn cancel(
    State(stead): State<Stead>,
    OfCommand(id): OfCommand,
    Json(body): Json<Cancel>,
) -> Answer<axum::Json<CommandView>> {
    let command: Command = stead.cancel(&id, first_signal(body.signal)).await?;
    Ok(axum::Json(command.into()))
}

pub(super) fn first_signal(signal: Option<Signal>) -> FirstSignal {
    match signal {
        None | Some(Signal::Int) => FirstSignal::Interrupt,
        Some(Signal::Term) => FirstSignal::Terminate,
        Some(Signal::Kill) => FirstSignal::Kill,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_standard_has_them() {
        let cases = [
            ("bytes=0-4", Range::Part(0, 5)),
            ("bytes=5-", Range::Part(5, 10)),
            ("bytes=-3", Range::Part(7, 10)),
            ("bytes=-30", Range::Part(0, 10)),
            ("bytes=0-99", Range::Part(0, 10)),
            ("bytes=10-", Range::Outside),
            ("bytes=-0", Range::Outside),
            ("bytes=4-2", Range::Whole),
            ("bytes=0-1,3-4", Range::Whole),
            ("lines=1-2", Range::Whole),
            ("bytes=x-", Range::Whole),
        ];
        for (text, range) in cases {
            assert_eq!(read_range(text, 10), range, "{text}");
        }
    }
}
