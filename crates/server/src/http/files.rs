//! Files over HTTP: raw bytes in and out, as streams, with the conditions and ranges that the standard has for them.

mod archive;
mod change;
mod conditions;
mod link;
mod query;
mod search;
mod view;

pub(super) use conditions::change_if;
pub(super) use query::{cursor, page};
pub(super) use view::{MatchesView, encode};

use super::App;
use super::access::OfThread;
use super::commands::{Range, read_range};
use super::problem::{Answer, ErrorBody, Problem};
use crate::files::{Kind, Reading};
use crate::stead::Stead;
use axum::body::{Body, BodyDataStream};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use conditions::{Fresh, freshness, keeps_range};
use futures_util::StreamExt;
use query::{At, Nothing};
use serde::Deserialize;
use std::time::Duration;
use stead_model::clock::Timestamp;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(read, write, remove))
        .merge(search::routes())
        .merge(change::routes())
        .merge(archive::routes())
        .merge(link::routes())
}

/// Read a file. A link is followed as long as it stays inside. `HEAD` works, too.
#[utoipa::path(
    get, path = "/api/threads/{id}/files", tag = "files",
    params(
        ("id" = String, Path),
        ("path" = String, Query, description = "Absolute in the sandbox, or relative to the workspace. Any bytes, percent-encoded."),
        ("Range" = Option<String>, Header, description = "One range of bytes."),
        ("If-Range" = Option<String>, Header), ("If-Match" = Option<String>, Header), ("If-None-Match" = Option<String>, Header),
    ),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream", headers(("ETag" = String), ("Last-Modified" = String))),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 304, description = "It is the one that `If-None-Match` names"),
        (status = 400, body = ErrorBody, description = "`invalid_path`: it leads out of the sandbox, or isn't a plain file"),
        (status = 404, body = ErrorBody), (status = 412, body = ErrorBody),
        (status = 416, body = ErrorBody, description = "The range lies outside the file"),
        (status = "default", body = ErrorBody)
    )
)]
async fn read(
    State(stead): State<Stead>,
    OfThread(id): OfThread,
    at: At<Nothing>,
    headers: HeaderMap,
) -> Answer<Response> {
    let reading = stead.files(&id).await?.open(at.path()?).await?;
    answer(Sent::Disk(Box::new(reading)), &headers)
}

/// What is sent: a file that is open, or bytes that are there.
#[derive(Debug)]
pub(super) enum Sent {
    Disk(Box<Reading>),
    Ram { bytes: Bytes, etag: String, modified_at: Timestamp },
}

impl Sent {
    fn about(&self) -> (&str, Timestamp, u64) {
        match self {
            Self::Disk(reading) => (&reading.etag, reading.modified_at, reading.size),
            Self::Ram { bytes, etag, modified_at } => (etag, *modified_at, bytes.len() as u64),
        }
    }

    fn body(self, from: u64, to: u64) -> std::io::Result<Body> {
        match self {
            Self::Disk(reading) => Ok(Body::from_stream(reading.stream(from..to)?)),
            Self::Ram { bytes, .. } => {
                let (from, to) = (usize::try_from(from).unwrap_or(0), usize::try_from(to).unwrap_or(0));
                Ok(Body::from(bytes.slice(from..to)))
            }
        }
    }
}

/// A file, or a part of it, as far as the client doesn't have it.
pub(super) fn answer(sent: Sent, headers: &HeaderMap) -> Answer<Response> {
    let (etag, modified_at, total) = sent.about();
    let modified = conditions::http_date(modified_at);
    let about = about(etag, modified_at);
    match freshness(headers, etag)? {
        Fresh::Send => {}
        Fresh::Has => return Ok((StatusCode::NOT_MODIFIED, about).into_response()),
        Fresh::Other => return Err(Problem::new("precondition_failed", "the file is none that `If-Match` names")),
    }
    let asked = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
    let asked = asked.filter(|_| keeps_range(headers, etag, &modified));
    let failed = |error: std::io::Error| Problem::new("unavailable", error.to_string());
    let body = |sent: Sent, from: u64, to: u64| {
        let length = [(header::CONTENT_LENGTH, to - from)];
        sent.body(from, to).map(|body| (length, body)).map_err(failed)
    };
    match asked.map_or(Range::Whole, |range| read_range(range, total)) {
        Range::Whole => Ok((about, body(sent, 0, total)?).into_response()),
        Range::Part(from, to) => {
            let said = [(header::CONTENT_RANGE, format!("bytes {from}-{}/{total}", to - 1))];
            Ok((StatusCode::PARTIAL_CONTENT, about, said, body(sent, from, to)?).into_response())
        }
        Range::Outside => {
            let said = [(header::CONTENT_RANGE, format!("bytes */{total}"))];
            let problem = Problem::invalid("the range lies outside the file").into_response();
            Ok((StatusCode::RANGE_NOT_SATISFIABLE, said, problem.into_body()).into_response())
        }
    }
}

/// What is written in a sandbox is nobody's page: no browser is to make one of it.
pub(super) fn about(etag: &str, modified_at: Timestamp) -> HeaderMap {
    let modified = conditions::http_date(modified_at);
    let values = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::ACCEPT_RANGES, "bytes"),
        (header::ETAG, etag),
        (header::LAST_MODIFIED, modified.as_str()),
        (header::CACHE_CONTROL, "private, no-cache"),
    ];
    let values = values.into_iter().chain(HARMLESS);
    values.filter_map(|(name, value)| Some((name, HeaderValue::from_str(value).ok()?))).collect()
}

const HARMLESS: [(HeaderName, &str); 2] =
    [(header::X_CONTENT_TYPE_OPTIONS, "nosniff"), (header::CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox")];

/// Write a file: whole, or not at all. Directories above it are made; the mode of one that is replaced is kept.
#[utoipa::path(
    put, path = "/api/threads/{id}/files", tag = "files",
    params(
        ("id" = String, Path), ("path" = String, Query, description = "Absolute in the sandbox, or relative to the workspace."),
        ("If-Match" = Option<String>, Header, description = "Only if it is this one, or with `*` if there is one."),
        ("If-None-Match" = Option<String>, Header, description = "`*`: only if there is none."),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 201, description = "Made", headers(("ETag" = String))), (status = 204, description = "Replaced", headers(("ETag" = String))),
        (status = 400, body = ErrorBody), (status = 404, body = ErrorBody, description = "No such thread"), (status = 412, body = ErrorBody),
        (status = 413, body = ErrorBody), (status = 507, body = ErrorBody), (status = "default", body = ErrorBody)
    )
)]
async fn write(
    State(stead): State<Stead>,
    OfThread(id): OfThread,
    at: At<Nothing>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    let (files, mut room) = stead.files_to_write(&id).await?;
    let path = at.path()?;
    let mut writing = files.begin(&path, change_if(&headers)?).await?;
    if room.left().is_some()
        && let Ok(there) = files.stat(&path).await
        && there.kind == Kind::File
    {
        room.give(there.size);
    }
    room.check(length(&headers))?;
    let mut pieces = pieces(body);
    while let Some(piece) = pieces.next().await? {
        room.take(piece.len() as u64)?;
        writing.write(piece).await?;
    }
    let written = writing.commit().await?;
    let status = if written.created { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
    Ok((status, [(header::ETAG, written.entry.etag.unwrap_or_default())]).into_response())
}

/// How long a body is said to be; one that doesn't say is counted as it comes.
pub(super) fn length(headers: &HeaderMap) -> u64 {
    let said = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    said.unwrap_or(0)
}

/// A body of any length, as it comes.
pub(super) struct Pieces(BodyDataStream);

pub(super) fn pieces(body: Body) -> Pieces {
    Pieces(body.into_data_stream())
}

/// For a client that has stopped sending.
const PIECE_WITHIN: Duration = Duration::from_mins(1);

impl Pieces {
    pub(super) async fn next(&mut self) -> Answer<Option<Bytes>> {
        let piece = tokio::time::timeout(PIECE_WITHIN, self.0.next()).await;
        let piece = piece.map_err(|_| Problem::invalid("the rest of the body did not come"))?;
        piece.transpose().map_err(|error| Problem::invalid(format!("the body was cut off: {error}")))
    }
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HowRemove {
    /// A directory with all that is in it; without this only an empty one.
    #[serde(default)]
    recursive: bool,
}

/// Remove a file, a link, or a directory.
#[utoipa::path(
    delete, path = "/api/threads/{id}/files", tag = "files",
    params(("id" = String, Path), ("path" = String, Query), HowRemove, ("If-Match" = Option<String>, Header)),
    responses(
        (status = 204), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "`conflict`: the directory is not empty"), (status = 412, body = ErrorBody),
        (status = "default", body = ErrorBody)
    )
)]
async fn remove(
    State(stead): State<Stead>,
    OfThread(id): OfThread,
    at: At<HowRemove>,
    headers: HeaderMap,
) -> Answer<StatusCode> {
    let files = stead.files_to_remove(&id).await?;
    let condition = change_if(&headers)?;
    if at.rest.recursive {
        files.remove_all(at.path()?, condition).await?;
    } else {
        files.remove(at.path()?, condition).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}
