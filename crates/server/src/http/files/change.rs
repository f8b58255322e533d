//! Changing what there is: mkdir, move, edit.

use super::super::App;
use super::super::access::OfThread;
use super::super::body::Json;
use super::super::problem::{Answer, ErrorBody};
use super::view::FileView;
use crate::files::{Edit, Overwrite};
use crate::stead::Stead;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(mkdir)).routes(routes!(rename)).routes(routes!(edit))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Mkdir {
    path: String,
}

/// Make a directory, and those above it.
#[utoipa::path(
    post, path = "/api/threads/{id}/files/mkdir", tag = "files", params(("id" = String, Path)), request_body = Mkdir,
    responses(
        (status = 201, body = FileView, description = "Made"), (status = 200, body = FileView, description = "It was there"),
        (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "`already_exists`: something else has that name"), (status = "default", body = ErrorBody)
    )
)]
async fn mkdir(
    State(stead): State<Stead>,
    OfThread(id): OfThread,
    Json(body): Json<Mkdir>,
) -> Answer<(StatusCode, axum::Json<FileView>)> {
    let (files, _) = stead.files_to_write(&id).await?;
    let made = files.make_dir(&body.path).await?;
    let status = if made { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, axum::Json(files.stat(format!("{}/", body.path)).await?.into())))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Move {
    from: String,
    /// The new name itself, not a directory to put it in. Directories above it are made.
    to: String,
    /// Whether a file of that name, or an empty directory, is replaced.
    #[serde(default)]
    overwrite: bool,
}

/// Give a file or a directory another name, in one step. Links are moved themselves.
#[utoipa::path(
    post, path = "/api/threads/{id}/files/move", tag = "files", params(("id" = String, Path)), request_body = Move,
    responses(
        (status = 200, body = FileView), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "`already_exists`, or `conflict`: a directory and a file can't replace each other"),
        (status = 501, body = ErrorBody, description = "A directory, to another file system"), (status = "default", body = ErrorBody)
    )
)]
async fn rename(
    State(stead): State<Stead>,
    OfThread(id): OfThread,
    Json(body): Json<Move>,
) -> Answer<axum::Json<FileView>> {
    let overwrite = if body.overwrite { Overwrite::Yes } else { Overwrite::No };
    let (files, _) = stead.files_to_write(&id).await?;
    Ok(axum::Json(files.rename(&body.from, &body.to, overwrite).await?.into()))
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
}

#[derive(Debug, Serialize, ToSchema)]
struct EditedView {
    replaced: u64,
    file: FileView,
}

/// Exchange text in a file, if it is there exactly as often as `count` says.
#[utoipa::path(
    post, path = "/api/threads/{id}/files/edit", tag = "files", params(("id" = String, Path)), request_body = EditBody,
    responses(
        (status = 200, body = EditedView), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "`conflict`: `old` is there more or less often, or somebody else changed the file"),
        (status = 413, body = ErrorBody), (status = 507, body = ErrorBody), (status = "default", body = ErrorBody)
    )
)]
async fn edit(
    State(stead): State<Stead>,
    OfThread(id): OfThread,
    Json(body): Json<EditBody>,
) -> Answer<axum::Json<EditedView>> {
    let edit = Edit { old: body.old, new: body.new, count: body.count };
    let (files, mut room) = stead.files_to_write(&id).await?;
    room.take(edit.growth())?;
    let edited = files.edit(&body.path, edit).await?;
    Ok(axum::Json(EditedView { replaced: edited.replaced, file: edited.written.entry.into() }))
}
