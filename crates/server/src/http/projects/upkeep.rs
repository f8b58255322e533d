//! How long a project is kept, and what brings it back.

use super::view::ProjectView;
use super::{App, shown};
use crate::http::access::{Admin, ReadsProject, WritesProject};
use crate::http::body::{Json, Query};
use crate::http::lists::Page;
use crate::http::problem::{Answer, ErrorBody, Problem};
use crate::http::view::List;
use crate::stead::{Cleaned, Mode, Stead, Steps};
use axum::extract::State;
use serde::{Deserialize, Serialize};
use stead_model::notice::{Notice, Subject, Told};
use stead_model::project::MOST_DAYS;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(cleanup))
        .routes(routes!(extend))
        .routes(routes!(pin))
        .routes(routes!(unpin))
        .routes(routes!(restore))
        .routes(routes!(events))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct HowClean {
    /// Change nothing, and tell what would happen.
    #[serde(default)]
    dry_run: bool,
}

/// Ids of what was, or would be, warned of, marked and moved to the trash.
#[derive(Debug, Serialize, ToSchema)]
struct CleanedView {
    warned: Vec<String>,
    marked: Vec<String>,
    deleted: Vec<String>,
    /// Out of the trash, gone for good.
    purged: Vec<String>,
    /// The same for threads without a project.
    threads: StepsView,
    /// Snapshots whose time is over.
    snapshots: Vec<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct StepsView {
    warned: Vec<String>,
    marked: Vec<String>,
    deleted: Vec<String>,
    purged: Vec<String>,
}

impl<Id: ToString> From<Steps<Id>> for StepsView {
    fn from(steps: Steps<Id>) -> Self {
        let texts = |ids: Vec<Id>| ids.iter().map(ToString::to_string).collect();
        Self {
            warned: texts(steps.warned),
            marked: texts(steps.marked),
            deleted: texts(steps.deleted),
            purged: texts(steps.purged),
        }
    }
}

impl From<Cleaned> for CleanedView {
    fn from(cleaned: Cleaned) -> Self {
        let StepsView { warned, marked, deleted, purged } = cleaned.projects.into();
        let snapshots = cleaned.snapshots.iter().map(ToString::to_string).collect();
        Self { warned, marked, deleted, purged, threads: cleaned.threads.into(), snapshots }
    }
}

/// Look through all projects and threads now: warn, mark, move to the trash, empty the trash.
#[utoipa::path(
    post, path = "/api/projects/cleanup", tag = "projects", request_body = HowClean,
    responses((status = 200, body = CleanedView), (status = "default", body = ErrorBody))
)]
async fn cleanup(State(stead): State<Stead>, _: Admin, Json(how): Json<HowClean>) -> Answer<axum::Json<CleanedView>> {
    let mode = if how.dry_run { Mode::Dry } else { Mode::Really };
    Ok(axum::Json(stead.clean(mode).await?.into()))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Extend {
    /// Added to `expires_at`; later work in the project never shortens it.
    #[schema(minimum = 1, maximum = 36_500)]
    days: u32,
}

/// Keep a project for some days more.
#[utoipa::path(
    post, path = "/api/projects/{id}/extend", tag = "projects", params(("id" = String, Path)), request_body = Extend,
    responses((status = 200, body = ProjectView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn extend(
    State(stead): State<Stead>,
    WritesProject(id): WritesProject,
    Json(asked): Json<Extend>,
) -> Answer<axum::Json<ProjectView>> {
    if !(1..=MOST_DAYS).contains(&asked.days) {
        return Err(Problem::invalid(format!("`days`: 1 to {MOST_DAYS}")));
    }
    let project = stead.extend_project(&id, asked.days).await?;
    Ok(axum::Json(shown(&stead, project).await?))
}

/// Keep a project for ever.
#[utoipa::path(
    post, path = "/api/projects/{id}/pin", tag = "projects", params(("id" = String, Path)),
    responses((status = 200, body = ProjectView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn pin(State(stead): State<Stead>, WritesProject(id): WritesProject) -> Answer<axum::Json<ProjectView>> {
    let project = stead.pin_project(&id).await?;
    Ok(axum::Json(shown(&stead, project).await?))
}

/// Keep a project no longer than others. Those days that are left before its end are warned of as always.
#[utoipa::path(
    post, path = "/api/projects/{id}/unpin", tag = "projects", params(("id" = String, Path)),
    responses((status = 200, body = ProjectView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn unpin(State(stead): State<Stead>, WritesProject(id): WritesProject) -> Answer<axum::Json<ProjectView>> {
    let project = stead.unpin_project(&id).await?;
    Ok(axum::Json(shown(&stead, project).await?))
}

/// Take a project out of the trash.
#[utoipa::path(
    post, path = "/api/projects/{id}/restore", tag = "projects", params(("id" = String, Path)),
    responses((status = 200, body = ProjectView), (status = 404, body = ErrorBody), (status = 410, body = ErrorBody),
              (status = "default", body = ErrorBody))
)]
async fn restore(State(stead): State<Stead>, WritesProject(id): WritesProject) -> Answer<axum::Json<ProjectView>> {
    let project = stead.restore_project(&id).await?;
    Ok(axum::Json(shown(&stead, project).await?))
}

/// Something that was said of a project: in the log, here, and to the webhook if there is one.
#[derive(Debug, Serialize, ToSchema)]
struct NoticeView {
    /// Their order.
    seq: u64,
    id: String,
    /// `project.` and `warning`, `reminder`, `final`, `marked`, `trashed`, `restored` or `purged`.
    #[serde(rename = "type")]
    kind: String,
    #[schema(format = DateTime)]
    at: String,
    /// As of then.
    #[schema(format = DateTime)]
    expires_at: String,
    /// `cleanup`: it happened by itself; `api`: somebody asked.
    source: String,
    /// How often the webhook was tried.
    attempts: u32,
    /// Whether the webhook is still to be told.
    pending: bool,
}

impl From<Told> for NoticeView {
    fn from(told: Told) -> Self {
        let Notice { id, subject, what, at, expires_at, source } = told.notice;
        Self {
            seq: told.seq,
            id: id.to_string(),
            kind: format!("{}.{}", subject.kind(), what.as_str()),
            at: at.to_string(),
            expires_at: expires_at.to_string(),
            source,
            attempts: told.attempts,
            pending: told.next_at.is_some(),
        }
    }
}

/// What was said of a project, oldest first; for 90 days, also of one that is gone.
#[utoipa::path(
    get, path = "/api/projects/{id}/events", tag = "projects", params(("id" = String, Path), Page),
    responses((status = 200, body = List<NoticeView>), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn events(
    State(stead): State<Stead>,
    ReadsProject(id): ReadsProject,
    Query(page): Query<Page>,
) -> Answer<axum::Json<List<NoticeView>>> {
    let page = page.list();
    let listed = stead.list_notices(&Subject::Project(id.clone()), &page).await?;
    if listed.items.is_empty() && page.cursor.is_none() {
        // One of which nothing was ever said is there, or never was.
        stead.project(&id).await?;
    }
    Ok(axum::Json(listed.into()))
}
