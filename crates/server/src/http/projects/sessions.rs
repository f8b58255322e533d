//! Sessions on a project.

use super::super::App;
use super::super::access::{Caller, OfProject};
use super::super::body::{Json, named_as as id};
use super::super::problem::{Answer, ErrorBody};
use super::super::view::SessionView;
use crate::stead::Stead;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use stead_model::ids::{SessionId, ThreadId};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(open)).routes(routes!(close))
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct OpenSession {
    /// A thread of the project, made if it isn't there; a new one if absent.
    thread_id: Option<String>,
}

/// Open a session on a project: a thread of it on an instance that runs. Whoever comes back after a disconnect gets a
/// fresh instance with the same files and terminal state, unless `projects.recreate_on_reconnect` says otherwise.
#[utoipa::path(
    post, path = "/api/projects/{id}/sessions", tag = "projects", params(("id" = String, Path)), request_body = OpenSession,
    responses((status = 201, body = SessionView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn open(
    State(stead): State<Stead>,
    caller: Caller,
    OfProject(project): OfProject,
    Json(body): Json<OpenSession>,
) -> Answer<(StatusCode, axum::Json<SessionView>)> {
    let thread = body.thread_id.map(|text| id::<ThreadId>(&text)).transpose()?;
    if let Some(thread) = &thread {
        caller.check_work(&stead, thread).await?;
    }
    let session = stead.connect(&project, thread, caller.0.token).await?;
    Ok((StatusCode::CREATED, axum::Json(SessionView::new(&session, &stead.present_moment()))))
}

/// Disconnect: what runs in the session is cancelled, its record is closed and, by configuration, its instance stops.
#[utoipa::path(
    delete, path = "/api/projects/{id}/sessions/{session_id}", tag = "projects",
    params(("id" = String, Path), ("session_id" = String, Path)),
    responses((status = 204), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn close(
    State(stead): State<Stead>,
    OfProject(project): OfProject,
    Path((_project, session)): Path<(String, String)>,
) -> Answer<StatusCode> {
    stead.disconnect(&project, &id::<SessionId>(&session)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
