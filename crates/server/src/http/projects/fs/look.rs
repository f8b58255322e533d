//! Looking around in the files of a project, and editing them.

use super::super::super::App;
use super::super::super::access::{OfProject, ReadsProject};
use super::super::super::body::{Json, Query};
use super::super::super::files::{MatchesView, cursor, page};
use super::super::super::problem::{Answer, ErrorBody};
use super::super::super::view::List;
use super::view::{EditedView, ItemView, MemoryView};
use super::{OfSession, space, waiting};
use crate::files::{Edit, Grep};
use crate::space::{Found, parse};
use crate::stead::Stead;
use axum::extract::State;
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(ls))
        .routes(routes!(glob))
        .routes(routes!(grep))
        .routes(routes!(edit))
        .routes(routes!(memory))
}

fn root() -> String {
    "/".to_owned()
}

fn shown(found: Found) -> axum::Json<List<ItemView>> {
    axum::Json(List { items: found.items.into_iter().map(Into::into).collect(), next_cursor: cursor(found.next) })
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LsBody {
    /// A directory; that of all routes if absent.
    #[serde(default = "root")]
    path: String,
    /// How many levels down, from 1 to 256; 1 if absent.
    depth: Option<usize>,
    /// From 1 to 1000; 100 if absent.
    limit: Option<usize>,
    cursor: Option<String>,
    /// For files that are kept for a session; without it they are not there.
    session_id: Option<String>,
}

/// What is in a directory of a project, in the order of names, a directory before what is in it.
#[utoipa::path(
    post, path = "/api/projects/{id}/fs/ls", tag = "projects", params(("id" = String, Path), OfSession), request_body = LsBody,
    responses((status = 200, body = List<ItemView>), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn ls(
    State(stead): State<Stead>,
    ReadsProject(id): ReadsProject,
    Query(query): Query<OfSession>,
    Json(body): Json<LsBody>,
) -> Answer<axum::Json<List<ItemView>>> {
    let (page, place) = (page(body.limit, body.cursor.as_deref())?, parse(body.path.as_bytes())?);
    let space = space(&stead, &id, query.or(body.session_id.as_deref())?).await?;
    Ok(shown(waiting(move || space.list(&place, body.depth.unwrap_or(1), &page)).await?))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct GlobBody {
    /// `*` and `?` within a name, `**` across directories, `[a-z]`, `[!a-z]`, `{one,other}`, `\` before what is meant as
    /// it is. Names that begin with a point are names like any other.
    #[schema(example = "memories/**/*.md")]
    pattern: String,
    /// The directory below which is looked; that of all routes if absent.
    #[serde(default = "root")]
    path: String,
    limit: Option<usize>,
    cursor: Option<String>,
    /// For files that are kept for a session; without it they are not there.
    session_id: Option<String>,
}

/// Paths of a project that fit a pattern.
#[utoipa::path(
    post, path = "/api/projects/{id}/fs/glob", tag = "projects", params(("id" = String, Path), OfSession), request_body = GlobBody,
    responses((status = 200, body = List<ItemView>), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn glob(
    State(stead): State<Stead>,
    ReadsProject(id): ReadsProject,
    Query(query): Query<OfSession>,
    Json(body): Json<GlobBody>,
) -> Answer<axum::Json<List<ItemView>>> {
    let (page, place) = (page(body.limit, body.cursor.as_deref())?, parse(body.path.as_bytes())?);
    let space = space(&stead, &id, query.or(body.session_id.as_deref())?).await?;
    Ok(shown(waiting(move || space.glob(&place, &body.pattern, &page)).await?))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct GrepBody {
    /// A regular expression, without backreferences and look-around.
    pattern: String,
    /// Whether `pattern` is text as it stands.
    #[serde(default)]
    literal: bool,
    /// A file, or a directory below which every plain file is searched; that of all routes if absent.
    #[serde(default = "root")]
    path: String,
    /// Only files whose path below `path` fits.
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    limit: Option<usize>,
    cursor: Option<String>,
    /// For files that are kept for a session; without it they are not there.
    session_id: Option<String>,
}

/// Lines of files of a project that fit. Binary files are skipped, and said to be.
#[utoipa::path(
    post, path = "/api/projects/{id}/fs/grep", tag = "projects", params(("id" = String, Path), OfSession), request_body = GrepBody,
    responses((status = 200, body = MatchesView), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn grep(
    State(stead): State<Stead>,
    ReadsProject(id): ReadsProject,
    Query(query): Query<OfSession>,
    Json(body): Json<GrepBody>,
) -> Answer<axum::Json<MatchesView>> {
    let (page, place) = (page(body.limit, body.cursor.as_deref())?, parse(body.path.as_bytes())?);
    let space = space(&stead, &id, query.or(body.session_id.as_deref())?).await?;
    let grep = Grep { pattern: body.pattern, literal: body.literal, ignore_case: body.ignore_case, glob: body.glob };
    Ok(axum::Json(waiting(move || space.grep(&place, &grep, &page)).await?.into()))
}

fn once() -> u64 {
    1
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct EditBody {
    path: String,
    /// Text that is there.
    old: String,
    /// Text in its place.
    new: String,
    /// How often `old` must be there; every one is exchanged.
    #[serde(default = "once")]
    #[schema(default = 1)]
    count: u64,
    /// For files that are kept for a session.
    session_id: Option<String>,
}

/// Exchange text in a file of a project, if it is there exactly as often as `count` says.
#[utoipa::path(
    post, path = "/api/projects/{id}/fs/edit", tag = "projects", params(("id" = String, Path), OfSession), request_body = EditBody,
    responses(
        (status = 200, body = EditedView), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "`conflict`: `old` is there more or less often, or somebody else changed the file"),
        (status = 413, body = ErrorBody), (status = 507, body = ErrorBody), (status = "default", body = ErrorBody)
    )
)]
async fn edit(
    State(stead): State<Stead>,
    OfProject(id): OfProject,
    Query(query): Query<OfSession>,
    Json(body): Json<EditBody>,
) -> Answer<axum::Json<EditedView>> {
    let place = parse(body.path.as_bytes())?;
    let space = space(&stead, &id, query.or(body.session_id.as_deref())?).await?;
    let mut room = stead.project_used(&id).await?;
    let edit = Edit { old: body.old, new: body.new, count: body.count };
    room.take(edit.growth())?;
    let (replaced, item) = waiting(move || space.edit(&place, &edit)).await?;
    Ok(axum::Json(EditedView { replaced, file: item.into() }))
}

/// How the hot memory of a project is.
#[utoipa::path(
    get, path = "/api/projects/{id}/memory", tag = "projects", params(("id" = String, Path)),
    responses((status = 200, body = MemoryView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn memory(State(stead): State<Stead>, OfProject(id): OfProject) -> Answer<axum::Json<MemoryView>> {
    Ok(axum::Json(stead.memory_status(&id).await?.into()))
}
