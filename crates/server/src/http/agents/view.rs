//! Agents, sessions, runs and messages as they are shown.

use crate::agents::{AgentSettings, Agents, Found, Message, Role};
use crate::store::{AgentRun, AgentSession};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use stead_agent::spec::Resume;
use stead_agent::{Policy, Spec};
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AgentView {
    name: String,
    title: String,
    available: bool,
    /// Why it isn't.
    reason: Option<String>,
    /// Null where it isn't known.
    version: Option<String>,
    /// `acp`, `jsonl` or `pty`.
    transport: String,
    /// Those that are known; any other may be asked for.
    models: Vec<String>,
    /// Whether a conversation can be gone on with in another process.
    resumes: bool,
    /// Whether it asks before it uses a tool; nothing can be denied to one that doesn't.
    asks: bool,
    /// How to get it.
    install: Option<String>,
}

impl AgentView {
    pub(super) async fn new(spec: &Spec, agents: &Agents) -> Self {
        let (version, reason) = match agents.settings().find(spec) {
            Found::At(program) => (agents.version(spec, &program).await, None),
            Found::Missing(why) => (None, Some(why)),
        };
        Self {
            name: spec.name.clone(),
            title: spec.title.clone(),
            available: reason.is_none(),
            reason,
            version,
            transport: spec.transport.name().to_owned(),
            models: spec.models.clone(),
            resumes: spec.resume != Resume::No,
            asks: spec.asks,
            install: Some(spec.install.clone()).filter(|install| !install.is_empty()),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AgentSessionView {
    id: String,
    /// `provider:workspace:model`.
    key: String,
    provider: String,
    workspace: String,
    project_id: Option<String>,
    /// The thread in whose terminal it runs.
    thread_id: String,
    model: String,
    in_use: bool,
    /// The run that has it, and until when it has it if nothing more happens.
    run_id: Option<String>,
    #[schema(format = DateTime)]
    in_use_until: Option<String>,
    /// Whether its process runs.
    running: bool,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    last_used_at: String,
    /// Whether the next message goes on with the conversation.
    resumable: bool,
    /// What becomes of questions for permission, in messages that don't say it themselves.
    #[schema(value_type = PermissionPolicy)]
    permissions: Policy,
}

impl AgentSessionView {
    pub(super) fn new(session: &AgentSession, settings: &AgentSettings) -> Self {
        let resumes = settings.specs.get(&session.key.provider).is_some_and(|spec| spec.resume != Resume::No);
        let running = session.process.is_some();
        Self {
            id: session.id.to_string(),
            key: session.key.to_string(),
            provider: session.key.provider.clone(),
            workspace: session.key.workspace.clone(),
            project_id: session.project.as_ref().map(ToString::to_string),
            thread_id: session.thread.to_string(),
            model: session.key.model.clone(),
            in_use: session.run.is_some(),
            run_id: session.run.as_ref().map(|lease| lease.run.to_string()),
            in_use_until: session.run.as_ref().map(|lease| lease.until.to_string()),
            running,
            created_at: session.created_at.to_string(),
            last_used_at: session.last_used_at.to_string(),
            resumable: running || (resumes && session.resume.is_some()),
            permissions: session.policy.clone(),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RunView {
    id: String,
    session_id: String,
    /// `queued`, `running`, `done`, `aborted` or `failed`.
    status: String,
    message: String,
    /// The number of its last event.
    last_seq: u64,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    started_at: Option<String>,
    #[schema(format = DateTime)]
    ended_at: Option<String>,
}

impl From<AgentRun> for RunView {
    fn from(run: AgentRun) -> Self {
        Self {
            id: run.id.to_string(),
            session_id: run.session.to_string(),
            status: run.status.name().to_owned(),
            message: run.message,
            last_seq: run.last_seq,
            created_at: run.created_at.to_string(),
            started_at: run.started_at.map(|at| at.to_string()),
            ended_at: run.ended_at.map(|at| at.to_string()),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct MessageView {
    run_id: String,
    /// `user` or `assistant`.
    role: String,
    text: String,
    /// Tools that were used before it: `{id, name, input, output?, status}`.
    #[schema(value_type = Vec<Object>)]
    tools: Vec<Value>,
    /// Of the whole turn; null where the agent doesn't tell.
    #[schema(value_type = Option<Object>)]
    usage: Option<Value>,
    /// How the turn failed.
    #[schema(value_type = Option<Object>)]
    error: Option<Value>,
    /// False while more of it may come.
    complete: bool,
    #[schema(format = DateTime)]
    at: String,
}

impl From<Message> for MessageView {
    fn from(message: Message) -> Self {
        let json = |value: serde_json::Result<Value>| value.unwrap_or_default();
        Self {
            run_id: message.run.to_string(),
            role: match message.role {
                Role::User => "user".to_owned(),
                Role::Assistant => "assistant".to_owned(),
            },
            text: message.text,
            tools: message.tools.into_iter().map(|tool| json(serde_json::to_value(tool))).collect(),
            usage: message.usage.map(|usage| json(serde_json::to_value(usage))),
            error: message.error.map(|error| json(serde_json::to_value(error))),
            complete: !message.open,
            at: message.at.to_string(),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ResetView {
    /// The keys of the sessions that were reset.
    pub(super) reset: Vec<String>,
}

/// One event of a run, as its client sees it: `data` is JSON.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ChatEvent {
    /// Its number, from 1 without holes.
    id: Option<String>,
    /// `start`, `status`, `delta`, `tool`, `permission`, `message`, `done`, `aborted`, `error`. An `error` without an id is
    /// the end of the stream and not of the run.
    event: String,
    data: String,
}

/// What becomes of questions for permission.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PermissionPolicy {
    /// `ask`, `allow` or `deny`.
    default: Option<String>,
    /// The same by kind of tool: `read`, `edit`, `delete`, `move`, `search`, `execute`, `think`, `fetch`, `switch_mode`,
    /// `other`.
    tools: Option<BTreeMap<String, String>>,
}
