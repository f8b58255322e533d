//! Threads, and what belongs to each.

use super::App;
use super::access::{Caller, OfThread};
use super::body::{Json, named_as as id};
use super::problem::{Answer, DAMAGED, ErrorBody, Problem};
use super::terminals::default_name;
use super::view::{LeaseView, MetricsView, SessionView, TerminalShown, ThreadView};
use crate::agents::Agents;
use crate::error::Error;
use crate::lease::{Force, LeaseError, Ready};
use crate::stead::{NewThread, Stead, Workspace};
use axum::extract::State;
use axum::http::{Method, StatusCode};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stead_model::env::{EnvChange, Secret};
use stead_model::ids::{ProjectId, ProviderName, ThreadId};
use stead_model::session::Policy;
use stead_model::state::Bytes;
use stead_model::thread::Thread;
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
        .routes(routes!(fork))
        .routes(routes!(relocate))
        .routes(routes!(env))
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
    #[serde(default, deserialize_with = "super::body::object")]
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
    #[schema(maximum = 3_153_600_000_u64)]
    idle_timeout_s: Option<u64>,
    #[schema(maximum = 3_153_600_000_u64)]
    max_duration_s: Option<u64>,
}

/// The longest window there is: a hundred years.
pub(super) const FOR_EVER: u64 = 100 * 365 * 86_400;

impl CreateThread {
    fn read(self) -> Answer<NewThread> {
        let standard = Policy::default();
        let span = |seconds: Option<u64>, standard| match seconds {
            None => Ok(standard),
            Some(seconds) if seconds <= FOR_EVER => Ok(Duration::from_secs(seconds)),
            Some(_) => Err(Problem::invalid(format!("`policy`: {FOR_EVER} seconds, a hundred years, are the most"))),
        };
        let policy = match self.policy {
            None => standard,
            Some(policy) => Policy {
                idle_timeout: span(policy.idle_timeout_s, standard.idle_timeout)?,
                max_duration: span(policy.max_duration_s, standard.max_duration)?,
            },
        };
        Ok(NewThread {
            workspace: None,
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
    caller: Caller,
    Json(body): Json<CreateThread>,
) -> Answer<(StatusCode, axum::Json<ThreadView>)> {
    let mut new = body.read()?;
    if let Some(other) = &new.share_with {
        let project = stead.thread(other).await?.project;
        caller.allow(&Method::POST, project.as_ref())?;
        caller.check_work(&stead, other).await?;
        new.project = new.project.or(project);
    }
    caller.allow(&Method::POST, new.project.as_ref())?;
    if let Some(provider) = &new.provider {
        caller.check_walls(&stead, provider, new.project.as_ref()).await?;
    }
    let thread = stead.create_thread(new).await?;
    Ok((StatusCode::CREATED, axum::Json(shown(&stead, thread).await?)))
}

/// A thread.
#[utoipa::path(
    get, path = "/api/threads/{id}", tag = "threads", params(("id" = String, Path)),
    responses((status = 200, body = ThreadView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn show(State(stead): State<Stead>, OfThread(id): OfThread) -> Answer<axum::Json<ThreadView>> {
    let thread = stead.present_thread(&id).await?;
    Ok(axum::Json(shown(&stead, thread).await?))
}

pub(super) async fn shown(stead: &Stead, thread: Thread) -> Answer<ThreadView> {
    let retention = stead.thread_retention(&thread).await?;
    Ok(ThreadView::new(thread, retention))
}

/// Remove a thread: its commands are cancelled, its instance is destroyed unless another terminal uses it. Agent sessions
/// in a workspace that was its alone are removed with it.
#[utoipa::path(
    delete, path = "/api/threads/{id}", tag = "threads", params(("id" = String, Path)),
    responses((status = 204), (status = "default", body = ErrorBody))
)]
async fn delete(
    State(stead): State<Stead>,
    State(agents): State<Agents>,
    OfThread(id): OfThread,
) -> Answer<StatusCode> {
    stead.delete_thread(&id).await?;
    // Agents that worked in its files can't be spoken with any more.
    if let Err(error) = agents.tidy().await {
        tracing::warn!(%error, thread = %id, "agents of a removed thread are ended later");
    }
    Ok(StatusCode::NO_CONTENT)
}

/// The newest session of a thread.
#[utoipa::path(
    get, path = "/api/threads/{id}/session", tag = "threads", params(("id" = String, Path)),
    responses((status = 200, body = SessionView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn session(State(stead): State<Stead>, OfThread(id): OfThread) -> Answer<axum::Json<SessionView>> {
    Ok(axum::Json(SessionView::new(&stead.session(&id).await?, &stead.present_moment())))
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
async fn lease(State(stead): State<Stead>, OfThread(id): OfThread) -> Answer<axum::Json<LeaseView>> {
    let view = stead.lease_view(&id).await?;
    Ok(axum::Json(LeaseView::new(view.ready, view.terminals)))
}

/// What the instance uses.
#[utoipa::path(
    get, path = "/api/threads/{id}/metrics", tag = "leases", params(("id" = String, Path)),
    responses((status = 200, body = MetricsView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn metrics(State(stead): State<Stead>, OfThread(id): OfThread) -> Answer<axum::Json<MetricsView>> {
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
    OfThread(id): OfThread,
    Json(body): Json<Pause>,
) -> Answer<axum::Json<LeaseView>> {
    let force = if body.force { Force::Yes } else { Force::No };
    match stead.pause(&id, force).await {
        Err(error @ Error::Lease(LeaseError::InUse { .. })) => {
            Err(Problem::from(error)
                .hint("`{\"force\":true}` pauses it all the same; what runs goes on after `resume`"))
        }
        ready => lease_view(&stead, ready?).await,
    }
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
    OfThread(id): OfThread,
    Json(Resume {}): Json<Resume>,
) -> Answer<axum::Json<LeaseView>> {
    let ready = stead.resume(&id).await?;
    lease_view(&stead, ready).await
}

/// What becomes of the files.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum HowFiles {
    /// Each has its own from here on.
    #[default]
    Copy,
    /// Both have the same, on the same lease.
    Share,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Fork {
    /// Of the new thread; made up if absent.
    id: Option<String>,
    #[serde(default)]
    workspace: HowFiles,
}

/// Make a thread with the same terminal state.
#[utoipa::path(
    post, path = "/api/threads/{id}/fork", tag = "threads", params(("id" = String, Path)), request_body = Fork,
    responses((status = 201, body = ThreadView), (status = 409, body = ErrorBody), (status = 500, body = ErrorBody, description = DAMAGED), (status = "default", body = ErrorBody))
)]
async fn fork(
    State(stead): State<Stead>,
    OfThread(source): OfThread,
    Json(body): Json<Fork>,
) -> Answer<(StatusCode, axum::Json<ThreadView>)> {
    let new = body.id.map(|text| id::<ThreadId>(&text)).transpose()?;
    let workspace = match body.workspace {
        HowFiles::Copy => Workspace::Copy,
        HowFiles::Share => Workspace::Share,
    };
    let thread = stead.fork(&source, new, workspace, Arc::new(|_| {})).await?;
    Ok((StatusCode::CREATED, axum::Json(shown(&stead, thread).await?)))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Move {
    provider: String,
}

/// Move a thread to another provider; state and files go along.
#[utoipa::path(
    post, path = "/api/threads/{id}/move", tag = "threads", params(("id" = String, Path)), request_body = Move,
    responses((status = 200, body = LeaseView), (status = 409, body = ErrorBody), (status = 500, body = ErrorBody, description = DAMAGED), (status = "default", body = ErrorBody))
)]
async fn relocate(
    State(stead): State<Stead>,
    caller: Caller,
    OfThread(thread): OfThread,
    Json(body): Json<Move>,
) -> Answer<axum::Json<LeaseView>> {
    let provider: ProviderName = id(&body.provider)?;
    let project = stead.thread(&thread).await?.project;
    caller.check_walls(&stead, &provider, project.as_ref()).await?;
    match stead.move_thread(&thread, &provider, Arc::new(|_| {})).await {
        Err(error @ Error::Lease(LeaseError::InUse { .. })) => {
            Err(Problem::from(error).hint("wait for what runs, or cancel it"))
        }
        ready => lease_view(&stead, ready?).await,
    }
}

/// Null unsets.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Env {
    #[serde(default)]
    vars: BTreeMap<String, Option<String>>,
    /// Encrypted where they are kept, and shown as `***`.
    #[serde(default)]
    secrets: BTreeMap<String, Option<String>>,
    #[serde(default = "default_name")]
    terminal: String,
}

/// Set variables and secrets of a terminal: all of them, or none. In force for the next command that starts, whatever
/// the shell is doing now.
#[utoipa::path(
    put, path = "/api/threads/{id}/env", tag = "terminals", params(("id" = String, Path)), request_body = Env,
    responses((status = 200, body = TerminalShown), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn env(
    State(stead): State<Stead>,
    OfThread(thread): OfThread,
    Json(body): Json<Env>,
) -> Answer<axum::Json<TerminalShown>> {
    let bytes = |text: String| Bytes(text.into_bytes());
    let vars = body.vars.into_iter().map(|(name, value)| (bytes(name), value.map(bytes))).collect();
    let secret = |value: String| Secret::new(value.into_bytes());
    let secrets = body.secrets.into_iter().map(|(name, value)| (bytes(name), value.map(secret))).collect();
    let terminal = stead.set_env(&thread, &body.terminal, EnvChange { vars, secrets }).await?;
    Ok(axum::Json(terminal.into()))
}
