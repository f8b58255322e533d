//! The files of a project through its routes: raw bytes by their path, and what looks around in all of them.

mod look;
mod view;

use super::super::App;
use super::super::access::OfProject;
use super::super::body::Query;
use super::super::files::{Sent, about, answer, change_if, length, pieces};
use super::super::problem::{Answer, ErrorBody, Problem};
use crate::error::Error;
use crate::memory::Depth;
use crate::space::{Content, Space, parse};
use crate::stead::Stead;
use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use stead_model::ids::{ProjectId, SessionId};
use stead_model::lines::window;
use stead_model::place::Place;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<App> {
    let files = || axum::routing::get(read).put(write).delete(remove);
    // A file may have the name of a verb.
    let verbs = ["ls", "glob", "grep", "edit"];
    let named = verbs.iter().fold(OpenApiRouter::new(), |router: OpenApiRouter<App>, verb| {
        router.route(&format!("/api/projects/{{id}}/fs/{verb}"), files())
    });
    named.routes(routes!(read, write, remove)).merge(look::routes())
}

/// The place in the path of a request, decoded once.
#[derive(Debug)]
struct AtPlace(Place);

impl FromRequestParts<App> for AtPlace {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Answer<Self> {
        let (_, path) = parts.uri.path().split_once("/fs/").unwrap_or_default();
        let path: Vec<u8> = percent_encoding::percent_decode_str(path).collect();
        Ok(Self(parse(&path)?))
    }
}

async fn space(stead: &Stead, project: &ProjectId, session: Option<&str>) -> Answer<Space> {
    let session = session.map(SessionId::parse).transpose();
    let session = session.map_err(|error| Problem::invalid(format!("`session_id`: {error}")))?;
    Ok(stead.space(project, session.as_ref()).await?)
}

/// What may wait for a disk, where waiting is allowed.
async fn waiting<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Answer<T> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.unwrap_or_else(|error| Err(Error::Io(error.to_string())))?)
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HowRead {
    /// For files that are kept for a session.
    session_id: Option<String>,
    /// The first line of a window, from 0.
    offset: Option<u64>,
    /// How many lines; 2000 if only `offset` is given.
    limit: Option<u64>,
}

const LINES: u64 = 2000;
/// A file of which lines are asked for is held in memory.
const MOST_FOR_LINES: u64 = 64 << 20;

/// Read a file of a project, whole, a range of bytes, or a window of lines.
///
/// A window is told in headers: `Stead-Line-Offset`, `Stead-Line-Count`, `Stead-Total-Lines` and, if there is more,
/// `Stead-Next-Offset`.
#[utoipa::path(
    get, path = "/api/projects/{id}/fs/{*path}", tag = "projects",
    params(
        ("id" = String, Path), ("path" = String, Path, description = "As `workspace/src/main.rs` or `memories/hot/plan.md`: the routes of the project say where it is kept."),
        HowRead, ("Range" = Option<String>, Header, description = "One range of bytes."),
        ("If-Range" = Option<String>, Header), ("If-Match" = Option<String>, Header), ("If-None-Match" = Option<String>, Header),
    ),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream", headers(("ETag" = String), ("Last-Modified" = String))),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 304, description = "It is the one that `If-None-Match` names"),
        (status = 400, body = ErrorBody), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody, description = "The project is in the trash, or the session has ended"),
        (status = 412, body = ErrorBody), (status = 413, body = ErrorBody, description = "Too large for a window of lines"),
        (status = 416, body = ErrorBody, description = "The range lies outside the file"), (status = "default", body = ErrorBody)
    )
)]
async fn read(
    State(stead): State<Stead>,
    OfProject(id): OfProject,
    AtPlace(place): AtPlace,
    Query(how): Query<HowRead>,
    headers: HeaderMap,
) -> Answer<Response> {
    let space = space(&stead, &id, how.session_id.as_deref()).await?;
    if how.offset.is_some() || how.limit.is_some() {
        if headers.contains_key(header::RANGE) {
            return Err(Problem::invalid("a window of lines and a range of bytes at once are not taken"));
        }
        let (offset, limit) = (how.offset.unwrap_or(0), how.limit.unwrap_or(LINES));
        return lines(space, place, offset, limit).await;
    }
    let sent = match space.open(&place).await? {
        Content::Disk(reading) => Sent::Disk(reading),
        Content::Ram { bytes, etag, modified_at } => Sent::Ram { bytes, etag, modified_at },
    };
    answer(sent, &headers)
}

async fn lines(space: Space, place: Place, offset: u64, limit: u64) -> Answer<Response> {
    let (bytes, item) = waiting(move || space.read(&place, MOST_FOR_LINES)).await?;
    let window = window(&bytes, offset, limit);
    let mut headers = about(item.etag.as_deref().unwrap_or_default(), item.modified_at.unwrap_or_default());
    let count = window.lines.end - window.lines.start;
    let told = [
        ("stead-line-offset", Some(window.lines.start)),
        ("stead-line-count", Some(count)),
        ("stead-total-lines", Some(window.total)),
        ("stead-next-offset", window.next()),
    ];
    for (name, value) in told {
        if let Some(value) = value {
            headers.insert(HeaderName::from_static(name), HeaderValue::from(value));
        }
    }
    Ok((headers, bytes.slice(window.bytes)).into_response())
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct OfSession {
    /// For files that are kept for a session.
    session_id: Option<String>,
}

impl OfSession {
    /// The same may be said in a body.
    fn or<'a>(&'a self, said: Option<&'a str>) -> Answer<Option<&'a str>> {
        match (self.session_id.as_deref(), said) {
            (Some(query), Some(body)) if query != body => {
                Err(Problem::invalid("`session_id` is one in the query and another in the body"))
            }
            (query, body) => Ok(query.or(body)),
        }
    }
}

/// Write a file of a project: whole, or not at all. Directories above it are made.
#[utoipa::path(
    put, path = "/api/projects/{id}/fs/{*path}", tag = "projects",
    params(
        ("id" = String, Path), ("path" = String, Path), OfSession,
        ("If-Match" = Option<String>, Header, description = "Only if it is this one, or with `*` if there is one."),
        ("If-None-Match" = Option<String>, Header, description = "`*`: only if there is none."),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 201, description = "Made", headers(("ETag" = String))), (status = 204, description = "Replaced", headers(("ETag" = String))),
        (status = 400, body = ErrorBody), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 412, body = ErrorBody),
        (status = 413, body = ErrorBody, description = "Too large to be kept in memory"), (status = 507, body = ErrorBody), (status = "default", body = ErrorBody)
    )
)]
async fn write(
    State(stead): State<Stead>,
    OfProject(id): OfProject,
    AtPlace(place): AtPlace,
    Query(how): Query<OfSession>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    let space = space(&stead, &id, how.session_id.as_deref()).await?;
    let mut room = stead.project_used(&id).await?;
    let mut writing = space.begin(&place, change_if(&headers)?).await?;
    if room.left().is_some() && space.is_on_disk(&place) {
        let there = waiting(move || Ok(space.stat(&place).ok())).await?;
        room.give(there.and_then(|there| there.size).unwrap_or(0));
    }
    room.check(length(&headers))?;
    let mut pieces = pieces(body);
    while let Some(piece) = pieces.next().await? {
        room.take(piece.len() as u64)?;
        writing.write(piece).await?;
    }
    let (created, item) = writing.commit().await?;
    let status = if created { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
    Ok((status, [(header::ETAG, item.etag.unwrap_or_default())]).into_response())
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HowRemove {
    /// For files that are kept for a session.
    session_id: Option<String>,
    /// A directory with all that is in it; without this only an empty one.
    #[serde(default)]
    recursive: bool,
}

/// Remove a file, a link, or a directory of a project.
#[utoipa::path(
    delete, path = "/api/projects/{id}/fs/{*path}", tag = "projects",
    params(("id" = String, Path), ("path" = String, Path), HowRemove, ("If-Match" = Option<String>, Header)),
    responses(
        (status = 204), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "`conflict`: the directory is not empty"), (status = 412, body = ErrorBody),
        (status = "default", body = ErrorBody)
    )
)]
async fn remove(
    State(stead): State<Stead>,
    OfProject(id): OfProject,
    AtPlace(place): AtPlace,
    Query(how): Query<HowRemove>,
    headers: HeaderMap,
) -> Answer<StatusCode> {
    let space = space(&stead, &id, how.session_id.as_deref()).await?;
    let condition = change_if(&headers)?;
    stead.project_touched(&id).await?;
    let depth = if how.recursive { Depth::WithAllBelow } else { Depth::Alone };
    waiting(move || space.remove(&place, depth, &condition)).await?;
    Ok(StatusCode::NO_CONTENT)
}
