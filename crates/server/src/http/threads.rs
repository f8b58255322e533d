//! Threads, and what belongs to each.

use super::App;
use super::body::{Json, Named};
use super::problem::{Answer, ErrorBody, Problem};
use super::view::{LeaseView, MetricsView, SessionView, ThreadView};
use crate::lease::{Force, Ready};
use crate::stead::{NewThread, Stead};
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;
use stead_model::ids::{ProjectId, ProviderName, ThreadId};
use stead_model::session::Policy;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(create))
        .routes(routes!(show, delete))
        .routes(routes!(session))
        .routes(routes!(lease))
        .routes(routes!(metrics))
        .routes(routes!(pause))
        .routes(routes!(resume))
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CreateThread {
    /// 1-128 of `A-Z a-z 0-9 . _ : -`, starting with a letter or digit; made up if absent.
    id: Option<String>,
    project_id: Option<String>,
    /// The configured default if absent.
    provider: Option<String>,
    /// A thread whose lease the new one is to use: they share files and processes.
    share_with: Option<String>,
    policy: Option<NewPolicy>,
    /// Where its shell begins; `/workspace` if absent.
    cwd: Option<String>,
    /// What its shell begins with.
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// When a session ends by itself. 0 is at once.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewPolicy {
    idle_timeout_s: Option<u64>,
    max_duration_s: Option<u64>,
}

pub(super) fn id<T>(text: &str) -> Answer<T>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| Problem::invalid(error.to_string()))
}

/// The longest window there is: a hundred years.
const FOR_EVER: u64 = 100 * 365 * 86_400;

impl CreateThread {
    fn read(self) -> Answer<NewThread> {
        let standard = Policy::default();
        let policy = self.policy.map_or(standard, |policy| Policy {
            idle_timeout: policy.idle_timeout_s.map_or(standard.idle_timeout, |s| Duration::from_secs(s.min(FOR_EVER))),
            max_duration: policy.max_duration_s.map_or(standard.max_duration, |s| Duration::from_secs(s.min(FOR_EVER))),
        });
        Ok(NewThread {
            id: self.id.map(|text| id::<ThreadId>(&text)).transpose()?,
            project: self.project_id.map(|text| id::<ProjectId>(&text)).transpose()?,
            provider: self.provider.map(|text| id::<ProviderName>(&text)).transpose()?,
            share_with: self.share_with.map(|text| id::<ThreadId>(&text)).transpose()?,
            policy,
            cwd: self.cwd.map(String::into_bytes),
            env: self.env.into_iter().map(|(name, value)| (name, value.into_bytes())).collect(),
        })
    }
}

/// Make a thread.
#[utoipa::path(
    post, path = "/api/threads", tag = "threads", request_body = CreateThread,
    responses((status = 201, body = ThreadView), (status = 409, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn create(
    State(stead): State<Stead>,
    Json(body): Json<CreateThread>,
) -> Answer<(StatusCode, axum::Json<ThreadView>)> {
    let thread = stead.create_thread(body.read()?).await?;
    Ok((StatusCode::CREATED, axum::Json(thread.into())))
}

/// A thread.
#[utoipa::path(
    get, path = "/api/threads/{id}", tag = "threads", params(("id" = String, Path)),
    responses((status = 200, body = ThreadView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn show(State(stead): State<Stead>, Named(id): Named<ThreadId>) -> Answer<axum::Json<ThreadView>> {
    Ok(axum::Json(stead.thread(&id).await?.into()))
}

/// Remove a thread: its commands are cancelled, its instance is destroyed unless another terminal uses it.
#[utoipa::path(
    delete, path = "/api/threads/{id}", tag = "threads", params(("id" = String, Path)),
    responses((status = 204), (status = "default", body = ErrorBody))
)]
async fn delete(State(stead): State<Stead>, Named(id): Named<ThreadId>) -> Answer<StatusCode> {
    stead.delete_thread(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The newest session of a thread.
#[utoipa::path(
    get, path = "/api/threads/{id}/session", tag = "threads", params(("id" = String, Path)),
    responses((status = 200, body = SessionView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn session(State(stead): State<Stead>, Named(id): Named<ThreadId>) -> Answer<axum::Json<SessionView>> {
    Ok(axum::Json(stead.session(&id).await?.into()))
}

async fn lease_view(stead: &Stead, ready: Ready) -> Answer<axum::Json<LeaseView>> {
    let terminals = stead.terminals_of_lease(&ready.lease.id).await?;
    Ok(axum::Json(LeaseView::new(ready, terminals.into_iter().map(|terminal| terminal.id).collect())))
}

/// The lease of a thread, with its instance.
#[utoipa::path(
    get, path = "/api/threads/{id}/lease", tag = "leases", params(("id" = String, Path)),
    responses((status = 200, body = LeaseView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn lease(State(stead): State<Stead>, Named(id): Named<ThreadId>) -> Answer<axum::Json<LeaseView>> {
    let thread = stead.thread(&id).await?;
    lease_view(&stead, stead.lease(&thread.lease).await?).await
}

/// What the instance uses.
#[utoipa::path(
    get, path = "/api/threads/{id}/metrics", tag = "leases", params(("id" = String, Path)),
    responses((status = 200, body = MetricsView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn metrics(State(stead): State<Stead>, Named(id): Named<ThreadId>) -> Answer<axum::Json<MetricsView>> {
    Ok(axum::Json(stead.metrics(&id).await?.into()))
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Pause {
    /// Also while a command runs, which then goes on after resume, or others use the instance.
    #[serde(default)]
    force: bool,
}

/// Freeze the instance.
#[utoipa::path(
    post, path = "/api/threads/{id}/pause", tag = "leases", params(("id" = String, Path)), request_body = Pause,
    responses((status = 200, body = LeaseView), (status = 409, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn pause(
    State(stead): State<Stead>,
    Named(id): Named<ThreadId>,
    Json(body): Json<Pause>,
) -> Answer<axum::Json<LeaseView>> {
    let force = if body.force { Force::Yes } else { Force::No };
    let ready = stead.pause(&id, force).await?;
    lease_view(&stead, ready).await
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Resume {}

/// Wake the instance.
#[utoipa::path(
    post, path = "/api/threads/{id}/resume", tag = "leases", params(("id" = String, Path)), request_body = Resume,
    responses((status = 200, body = LeaseView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn resume(
    State(stead): State<Stead>,
    Named(id): Named<ThreadId>,
    Json(Resume {}): Json<Resume>,
) -> Answer<axum::Json<LeaseView>> {
    let ready = stead.resume(&id).await?;
    lease_view(&stead, ready).await
}
