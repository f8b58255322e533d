//! Terminal agents: who is there, what is said to them and what comes of it.

mod view;

use super::App;
use super::access::{Caller, OfAgent, OfRun};
use super::body::{Json, Query, named_as as id, object};
use super::lists::Page;
use super::problem::{Answer, ErrorBody, Problem};
use super::sse;
use super::view::List;
use crate::agents::{Agents, At, IfBusy, NewChat, RunEvents};
use crate::error::Error;
use crate::stead::Stead;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use stead_agent::Policy;
use stead_model::ids::{ProjectId, RunId, ThreadId};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use view::{AgentSessionView, AgentView, ChatEvent, MessageView, PermissionPolicy, ResetView, RunView};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(agents))
        .routes(routes!(sessions))
        .routes(routes!(session, remove, change))
        .routes(routes!(messages))
        .routes(routes!(chat))
        .routes(routes!(run))
        .routes(routes!(events))
        .routes(routes!(permission))
        .routes(routes!(abort))
        .routes(routes!(reset))
}

/// The terminal agents that are known, and whether they are on this machine.
#[utoipa::path(
    get, path = "/api/agents", tag = "agents", params(Page),
    responses((status = 200, body = List<AgentView>), (status = "default", body = ErrorBody))
)]
async fn agents(
    State(agents): State<Agents>,
    _: Caller,
    Query(page): Query<Page>,
) -> Answer<axum::Json<List<AgentView>>> {
    let listed = agents.known(&page.list())?;
    let mut items = Vec::new();
    for spec in &listed.items {
        items.push(AgentView::new(spec, &agents).await);
    }
    Ok(axum::Json(List { items, next_cursor: listed.next_cursor }))
}

/// Agent sessions, newest first.
#[utoipa::path(
    get, path = "/api/chat/sessions", tag = "agents", params(Page),
    responses((status = 200, body = List<AgentSessionView>), (status = "default", body = ErrorBody))
)]
async fn sessions(
    State(agents): State<Agents>,
    caller: Caller,
    Query(page): Query<Page>,
) -> Answer<axum::Json<List<AgentSessionView>>> {
    let listed = agents.list(&page.list()).await?;
    let seen = listed.items.into_iter().filter(|session| caller.0.may_see(session.project.as_ref()));
    let items = seen.map(|session| AgentSessionView::new(&session, agents.settings())).collect();
    Ok(axum::Json(List { items, next_cursor: listed.next_cursor }))
}

/// An agent session.
#[utoipa::path(
    get, path = "/api/chat/sessions/{id}", tag = "agents", params(("id" = String, Path)),
    responses((status = 200, body = AgentSessionView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn session(State(agents): State<Agents>, OfAgent(session): OfAgent) -> Answer<axum::Json<AgentSessionView>> {
    Ok(axum::Json(AgentSessionView::new(&session, agents.settings())))
}

/// Remove an agent session: its process and all that was said in it.
#[utoipa::path(
    delete, path = "/api/chat/sessions/{id}", tag = "agents", params(("id" = String, Path)),
    responses((status = 204), (status = 409, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn remove(State(agents): State<Agents>, OfAgent(session): OfAgent) -> Answer<StatusCode> {
    agents.delete(&session.id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What was said in the conversation that a session is in, oldest first; text as it was written.
#[utoipa::path(
    get, path = "/api/chat/sessions/{id}/messages", tag = "agents", params(("id" = String, Path), Page),
    responses((status = 200, body = List<MessageView>), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn messages(
    State(agents): State<Agents>,
    OfAgent(session): OfAgent,
    Query(page): Query<Page>,
) -> Answer<axum::Json<List<MessageView>>> {
    Ok(axum::Json(agents.messages(&session.id, &page.list()).await?.into()))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SessionChange {
    /// What becomes of questions for permission from now on, in messages that don't say it themselves.
    #[schema(value_type = PermissionPolicy)]
    permissions: Policy,
}

/// Change what becomes of an agent session's questions for permission.
#[utoipa::path(
    patch, path = "/api/chat/sessions/{id}", tag = "agents", params(("id" = String, Path)), request_body = SessionChange,
    responses((status = 200, body = AgentSessionView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn change(
    State(agents): State<Agents>,
    OfAgent(session): OfAgent,
    Json(change): Json<SessionChange>,
) -> Answer<axum::Json<AgentSessionView>> {
    let changed = agents.set_policy(&session, change.permissions).await?;
    Ok(axum::Json(AgentSessionView::new(&changed, agents.settings())))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Chat {
    /// An agent's name, as in `GET /api/agents`.
    provider: String,
    /// Work in this project; or name a thread, or a directory.
    project_id: Option<String>,
    /// Work in this thread's sandbox.
    thread_id: Option<String>,
    /// Work in this directory of the server's machine; it lies below one of `agents.allowed_roots`.
    workspace: Option<String>,
    /// Another model is another session.
    model: Option<String>,
    message: String,
    /// The same id is given to the agent once, however often it is sent.
    id: Option<String>,
    #[serde(default)]
    if_busy: WhenBusy,
    /// What becomes of questions for permission in this turn; without it, what the session says.
    #[serde(default, deserialize_with = "object")]
    #[schema(value_type = Option<PermissionPolicy>)]
    permissions: Option<Policy>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum WhenBusy {
    #[default]
    Reject,
    Queue,
}

/// The one place that was named.
fn place(project: Option<String>, thread: Option<String>, workspace: Option<String>) -> Answer<At> {
    match (project, thread, workspace) {
        (Some(project), None, None) => Ok(At::Project(id::<ProjectId>(&project)?)),
        (None, Some(thread), None) => Ok(At::Thread(id::<ThreadId>(&thread)?)),
        (None, None, Some(workspace)) => Ok(At::Workspace(workspace.into())),
        _ => Err(Problem::invalid("name one of `project_id`, `thread_id` and `workspace`")),
    }
}

impl Caller {
    /// Whether an agent may be sent there.
    async fn check_place(&self, stead: &Stead, at: &At) -> Answer<()> {
        let project = match at {
            At::Project(project) => Some(project.clone()),
            At::Thread(_) if self.0.may_see_all() => None,
            At::Thread(thread) => {
                self.check_work(stead, thread).await?;
                stead.thread(thread).await?.project
            }
            At::Workspace(_) => None,
        };
        self.allow(&Method::POST, project.as_ref())
    }
}

/// Say something to an agent, and hear what comes of it.
///
/// The answer is a stream of events: `start`, `status`, `delta`, `tool`, `permission`, `message`, then one of `done`,
/// `aborted` and `error`; each with its number as `id`. Whoever hangs up stops nothing: the events are told again by
/// `GET /api/chat/runs/{id}/events`.
#[utoipa::path(
    post, path = "/api/chat", tag = "agents", request_body = Chat,
    responses(
        (status = 200, content((ChatEvent = "text/event-stream"))), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = "default", body = ErrorBody)
    )
)]
async fn chat(
    State(agents): State<Agents>,
    State(stead): State<Stead>,
    caller: Caller,
    Json(body): Json<Chat>,
) -> Answer<Response> {
    let at = place(body.project_id, body.thread_id, body.workspace)?;
    caller.check_place(&stead, &at).await?;
    let new = NewChat {
        provider: body.provider,
        at,
        model: body.model,
        message: body.message,
        id: body.id.map(|text| id::<RunId>(&text)).transpose()?,
        if_busy: match body.if_busy {
            WhenBusy::Reject => IfBusy::Reject,
            WhenBusy::Queue => IfBusy::Queue,
        },
        policy: body.permissions,
        bound: !caller.0.may_see_all(),
    };
    let (run, session) = agents.chat(new).await?;
    let mut response = sse::stream(&stead, agents.events(&run.id, 0).await?);
    for (name, value) in [("stead-run", run.id.as_str()), ("stead-agent-session", session.id.as_str())] {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
    }
    Ok(response)
}

impl sse::Source for RunEvents {
    async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        let event = Self::next(self).await?;
        Some(event.map(|event| sse::named(event.event.name(), Some(event.seq), &event.event.data())))
    }
}

/// A message and what became of it.
#[utoipa::path(
    get, path = "/api/chat/runs/{id}", tag = "agents", params(("id" = String, Path)),
    responses((status = 200, body = RunView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn run(OfRun(run): OfRun) -> Answer<axum::Json<RunView>> {
    Ok(axum::Json(RunView::from(run)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct After {
    /// The last number that is known already; `Last-Event-ID` says the same.
    after: Option<u64>,
}

/// The events of a run from any place on, to its end.
#[utoipa::path(
    get, path = "/api/chat/runs/{id}/events", tag = "agents", params(("id" = String, Path), After),
    responses(
        (status = 200, content((ChatEvent = "text/event-stream"))), (status = 404, body = ErrorBody),
        (status = "default", body = ErrorBody)
    )
)]
async fn events(
    State(agents): State<Agents>,
    State(stead): State<Stead>,
    OfRun(run): OfRun,
    Query(from): Query<After>,
    headers: HeaderMap,
) -> Answer<Response> {
    let after = match from.after {
        Some(after) => after,
        None => sse::last_event_id(&headers)?.unwrap_or(0),
    };
    Ok(sse::stream(&stead, agents.events(&run.id, after).await?))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Choice {
    permission_id: String,
    option_id: String,
}

/// Answer a question for permission.
#[utoipa::path(
    post, path = "/api/chat/runs/{id}/permission", tag = "agents", params(("id" = String, Path)), request_body = Choice,
    responses((status = 204), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn permission(State(agents): State<Agents>, OfRun(run): OfRun, Json(choice): Json<Choice>) -> Answer<StatusCode> {
    agents.answer(&run.id, &choice.permission_id, &choice.option_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Abort {
    run_id: String,
}

/// End a run early, this one and no other. One that has ended stays as it ended.
#[utoipa::path(
    post, path = "/api/chat/abort", tag = "agents", request_body = Abort,
    responses((status = 200, body = RunView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn abort(State(app): State<App>, caller: Caller, Json(body): Json<Abort>) -> Answer<axum::Json<RunView>> {
    let OfRun(run) = OfRun::check(&caller, &app, &Method::POST, &id(&body.run_id)?).await?;
    Ok(axum::Json(app.agents.abort(&run.id).await?.into()))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Reset {
    project_id: Option<String>,
    thread_id: Option<String>,
    workspace: Option<String>,
    /// Only this agent's sessions.
    provider: Option<String>,
}

/// Forget the conversations of a workspace: processes end, the next message begins anew. While one is busy nothing is
/// touched.
#[utoipa::path(
    post, path = "/api/chat/reset", tag = "agents", request_body = Reset,
    responses((status = 200, body = ResetView), (status = 409, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn reset(
    State(agents): State<Agents>,
    State(stead): State<Stead>,
    caller: Caller,
    Json(body): Json<Reset>,
) -> Answer<axum::Json<ResetView>> {
    let at = place(body.project_id, body.thread_id, body.workspace)?;
    caller.check_place(&stead, &at).await?;
    let reset = agents.reset(&at, body.provider.as_deref()).await?;
    Ok(axum::Json(ResetView { reset }))
}
