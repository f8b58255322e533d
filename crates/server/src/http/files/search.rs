//! Looking around: list, stat, glob, grep.

use super::super::App;
use super::super::access::{OfThread, ReadsThread};
use super::super::body::Json;
use super::super::problem::{Answer, ErrorBody};
use super::super::view::List;
use super::query::{At, Nothing, cursor, page};
use super::view::{FileView, MatchesView};
use crate::files::{Grep, Listed};
use crate::stead::Stead;
use axum::extract::State;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(stat)).routes(routes!(glob)).routes(routes!(grep))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HowList {
    /// How many levels down, from 1 to 256; 1 if absent.
    depth: Option<usize>,
    /// From 1 to 1000; 100 if absent.
    limit: Option<usize>,
    cursor: Option<String>,
}

fn shown(listed: Listed) -> axum::Json<List<FileView>> {
    axum::Json(List { items: listed.items.into_iter().map(Into::into).collect(), next_cursor: cursor(listed.next) })
}

/// What is in a directory, in the order of names, a directory before what is in it. Links are shown, not followed.
///
/// A page may be short of `limit` if looking took long; there is more as long as there is a `next_cursor`.
#[utoipa::path(
    get, path = "/api/threads/{id}/files/list", tag = "files",
    params(("id" = String, Path), ("path" = Option<String>, Query, description = "The workspace if absent."), HowList),
    responses((status = 200, body = List<FileView>), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn list(
    State(stead): State<Stead>,
    OfThread(id): OfThread,
    at: At<HowList>,
) -> Answer<axum::Json<List<FileView>>> {
    let page = page(at.rest.limit, at.rest.cursor.as_deref())?;
    let files = stead.files(&id).await?;
    Ok(shown(files.list(at.path_or_workspace(), at.rest.depth.unwrap_or(1), page).await?))
}

/// What there is to say about a file or a directory; of a link, about the link itself.
#[utoipa::path(
    get, path = "/api/threads/{id}/files/stat", tag = "files", params(("id" = String, Path), ("path" = String, Query)),
    responses((status = 200, body = FileView), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn stat(State(stead): State<Stead>, OfThread(id): OfThread, at: At<Nothing>) -> Answer<axum::Json<FileView>> {
    Ok(axum::Json(stead.files(&id).await?.stat(at.path()?).await?.into()))
}

fn workspace() -> String {
    ".".to_owned()
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct GlobBody {
    /// `*` and `?` within a name, `**` across directories, `[a-z]`, `[!a-z]`, `{one,other}`, `\` before what is meant as
    /// it is. Names that begin with a point are names like any other.
    #[schema(example = "src/**/*.rs")]
    pattern: String,
    /// The directory below which is looked; the workspace if absent.
    #[serde(default = "workspace")]
    path: String,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Paths that fit a pattern.
#[utoipa::path(
    post, path = "/api/threads/{id}/files/glob", tag = "files", params(("id" = String, Path)), request_body = GlobBody,
    responses((status = 200, body = List<FileView>), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn glob(
    State(stead): State<Stead>,
    ReadsThread(id): ReadsThread,
    Json(body): Json<GlobBody>,
) -> Answer<axum::Json<List<FileView>>> {
    let page = page(body.limit, body.cursor.as_deref())?;
    Ok(shown(stead.files(&id).await?.glob(&body.path, &body.pattern, page).await?))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct GrepBody {
    /// A regular expression, without backreferences and look-around.
    pattern: String,
    /// Whether `pattern` is text as it stands.
    #[serde(default)]
    literal: bool,
    /// A file, or a directory below which every plain file is searched; the workspace if absent.
    #[serde(default = "workspace")]
    path: String,
    /// Only files whose path below `path` fits.
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Lines that fit a regular expression. Binary files are skipped, and said to be.
#[utoipa::path(
    post, path = "/api/threads/{id}/files/grep", tag = "files", params(("id" = String, Path)), request_body = GrepBody,
    responses((status = 200, body = MatchesView), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn grep(
    State(stead): State<Stead>,
    ReadsThread(id): ReadsThread,
    Json(body): Json<GrepBody>,
) -> Answer<axum::Json<MatchesView>> {
    let page = page(body.limit, body.cursor.as_deref())?;
    let grep = Grep { pattern: body.pattern, literal: body.literal, ignore_case: body.ignore_case, glob: body.glob };
    Ok(axum::Json(stead.files(&id).await?.grep(&body.path, grep, page).await?.into()))
}
