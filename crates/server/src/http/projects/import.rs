//! A project that comes from elsewhere.

use super::super::App;
use super::super::access::Admin;
use super::super::body::Json;
use super::super::problem::{Answer, ErrorBody};
use super::view::ProjectView;
use crate::stead::Stead;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(import))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Import {
    /// A directory of the server's machine with a `.project_metadata.json`, by its absolute path.
    #[schema(value_type = String)]
    path: std::path::PathBuf,
}

/// Make a project of a directory that was one elsewhere. It is copied, unless it lies among the projects already, and
/// keeps its id; everything in its metadata is checked as if it had been sent.
#[utoipa::path(
    post, path = "/api/projects/import", tag = "projects", request_body = Import,
    responses((status = 201, body = ProjectView), (status = 409, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn import(
    State(stead): State<Stead>,
    _: Admin,
    Json(body): Json<Import>,
) -> Answer<(StatusCode, axum::Json<ProjectView>)> {
    let project = stead.import_project(&body.path).await?;
    Ok((StatusCode::CREATED, axum::Json(super::shown(&stead, project).await?)))
}
