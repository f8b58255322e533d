//! Directories as tar archives.

use super::super::App;
use super::super::access::OfThread;
use super::super::problem::{Answer, ErrorBody};
use super::query::{At, Nothing};
use super::view::UnpackedView;
use super::{HARMLESS, Pieces};
use crate::error::Error;
use crate::files::Bounds;
use crate::stead::Stead;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(pack, unpack))
}

/// A directory, or one file, as a tar archive. Pipes, sockets and devices are left out. What fails on the way breaks the
/// answer off.
#[utoipa::path(
    get, path = "/api/threads/{id}/files/archive", tag = "files",
    params(("id" = String, Path), ("path" = Option<String>, Query, description = "The workspace if absent.")),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/x-tar"),
        (status = 400, body = ErrorBody), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody)
    )
)]
async fn pack(State(stead): State<Stead>, OfThread(id): OfThread, at: At<Nothing>) -> Answer<Response> {
    let packed = stead.files(&id).await?.pack(at.path_or_workspace()).await?;
    let pieces = futures_util::stream::unfold(packed, |mut packed| async move {
        let piece = packed.next().await?;
        Some((piece, packed))
    });
    let kind = [
        (header::CONTENT_TYPE, "application/x-tar"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"files.tar\""),
    ];
    Ok((kind, HARMLESS, Body::from_stream(pieces)).into_response())
}

/// Unpack a tar archive into a directory: all of it, or nothing. Files that are there are replaced, directories joined.
#[utoipa::path(
    put, path = "/api/threads/{id}/files/archive", tag = "files",
    params(("id" = String, Path), ("path" = Option<String>, Query, description = "The workspace if absent; made if it isn't there.")),
    request_body(content = Vec<u8>, content_type = "application/x-tar"),
    responses(
        (status = 200, body = UnpackedView),
        (status = 400, body = ErrorBody, description = "`invalid_path`: an entry leads out, or is a device or a pipe; `invalid_request`: it is broken or cut off"),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody, description = "`conflict`: a directory would meet a file"),
        (status = 413, body = ErrorBody), (status = 507, body = ErrorBody), (status = "default", body = ErrorBody)
    )
)]
async fn unpack(
    State(stead): State<Stead>,
    OfThread(id): OfThread,
    at: At<Nothing>,
    body: Body,
) -> Answer<axum::Json<UnpackedView>> {
    let (files, room) = stead.files_to_write(&id).await?;
    let most = Bounds::default();
    let bounds = Bounds { bytes: room.left().unwrap_or(most.bytes).min(most.bytes), ..most };
    let too_large = |error| {
        let is_for_room = bounds.bytes < most.bytes && matches!(error, Error::TooLarge(_));
        if is_for_room { room.refusal() } else { error }
    };
    let mut unpacking = files.unpack(at.path_or_workspace(), bounds).await?;
    let mut pieces = Pieces(body.into_data_stream());
    while let Some(piece) = pieces.next().await? {
        unpacking.write(piece).await.map_err(too_large)?;
    }
    Ok(axum::Json(unpacking.finish().await.map_err(too_large)?.into()))
}
