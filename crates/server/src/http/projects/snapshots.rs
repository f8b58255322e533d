//! Snapshots of a project's files.

use super::view::ProjectView;
use super::{App, shown};
use crate::http::access::{ReadsProject, WritesProject};
use crate::http::body::{Json, Query, named_as as id};
use crate::http::lists::Page;
use crate::http::problem::{Answer, DAMAGED, ErrorBody, Problem};
use crate::http::view::List;
use crate::lease::Force;
use crate::stead::{Stead, Ttl};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use stead_model::snapshot::Snapshot;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// A hundred years.
const MOST_SECONDS: u64 = 3_153_600_000;
const MOST_DESCRIPTION: usize = 4096;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(create, list)).routes(routes!(delete)).routes(routes!(restore))
}

#[derive(Debug, Serialize, ToSchema)]
struct SnapshotView {
    id: String,
    project_id: String,
    description: String,
    /// SHA-256 of the archive. Snapshots with the same one share it.
    digest: String,
    /// Of the archive: tar in zstd.
    bytes: u64,
    /// Of the files in it.
    tree_bytes: u64,
    files: u64,
    #[schema(format = DateTime)]
    created_at: String,
    /// Null: it goes with its project.
    #[schema(format = DateTime)]
    expires_at: Option<String>,
}

impl From<Snapshot> for SnapshotView {
    fn from(snapshot: Snapshot) -> Self {
        Self {
            id: snapshot.id.to_string(),
            project_id: snapshot.project.to_string(),
            description: snapshot.description,
            digest: snapshot.digest,
            bytes: snapshot.bytes,
            tree_bytes: snapshot.tree_bytes,
            files: snapshot.files,
            created_at: snapshot.created_at.to_string(),
            expires_at: snapshot.expires_at.map(|at| at.to_string()),
        }
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TakeSnapshot {
    #[serde(default)]
    description: String,
    /// How long it stays; as configured if absent.
    #[schema(minimum = 1, maximum = 3_153_600_000_u64)]
    ttl_s: Option<u64>,
}

/// Take a snapshot: workspace, home and memories.
#[utoipa::path(
    post, path = "/api/projects/{id}/snapshots", tag = "projects", params(("id" = String, Path)),
    request_body = TakeSnapshot,
    responses((status = 201, body = SnapshotView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn create(
    State(stead): State<Stead>,
    WritesProject(project): WritesProject,
    Json(asked): Json<TakeSnapshot>,
) -> Answer<(StatusCode, axum::Json<SnapshotView>)> {
    if asked.ttl_s.is_some_and(|seconds| !(1..=MOST_SECONDS).contains(&seconds)) {
        return Err(Problem::invalid(format!("`ttl_s`: 1 to {MOST_SECONDS} seconds")));
    }
    let text = &asked.description;
    if text.len() > MOST_DESCRIPTION || text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        let message = format!("`description`: at most {MOST_DESCRIPTION} bytes, without control characters");
        return Err(Problem::invalid(message));
    }
    let ttl = asked.ttl_s.map_or(Ttl::Usual, |seconds| Ttl::For(Duration::from_secs(seconds)));
    let snapshot = stead.snapshot_project(&project, asked.description, ttl).await?;
    Ok((StatusCode::CREATED, axum::Json(snapshot.into())))
}

/// The snapshots of a project, newest first.
#[utoipa::path(
    get, path = "/api/projects/{id}/snapshots", tag = "projects", params(("id" = String, Path), Page),
    responses((status = 200, body = List<SnapshotView>), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn list(
    State(stead): State<Stead>,
    ReadsProject(project): ReadsProject,
    Query(page): Query<Page>,
) -> Answer<axum::Json<List<SnapshotView>>> {
    Ok(axum::Json(stead.list_snapshots(&project, &page.list()).await?.into()))
}

/// Remove a snapshot.
#[utoipa::path(
    delete, path = "/api/projects/{id}/snapshots/{sid}", tag = "projects",
    params(("id" = String, Path), ("sid" = String, Path)),
    responses((status = 204), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn delete(
    State(stead): State<Stead>,
    WritesProject(project): WritesProject,
    Path((_id, snapshot)): Path<(String, String)>,
) -> Answer<StatusCode> {
    stead.delete_snapshot(&project, &id(&snapshot)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HowRestore {
    /// Also while a command runs in the project, which is cancelled then.
    #[serde(default)]
    force: bool,
}

/// Give a project the files of a snapshot. What it had is replaced, all at once; shells begin anew in the new files.
#[utoipa::path(
    post, path = "/api/projects/{id}/snapshots/{sid}/restore", tag = "projects",
    params(("id" = String, Path), ("sid" = String, Path), HowRestore),
    responses((status = 200, body = ProjectView), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
              (status = 500, body = ErrorBody, description = DAMAGED), (status = "default", body = ErrorBody))
)]
async fn restore(
    State(stead): State<Stead>,
    WritesProject(project): WritesProject,
    Path((_id, snapshot)): Path<(String, String)>,
    Query(how): Query<HowRestore>,
) -> Answer<axum::Json<ProjectView>> {
    let force = if how.force { Force::Yes } else { Force::No };
    let project = stead.restore_snapshot(&project, &id(&snapshot)?, force).await?;
    Ok(axum::Json(shown(&stead, project).await?))
}
