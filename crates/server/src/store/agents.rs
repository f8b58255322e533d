//! What is remembered of terminal agents. A session's row says which process is its own, how far that was read, what is
//! on its way to it and what it is in the middle of; events and that place change in one transaction, so that whoever
//! goes on from the row tells nothing twice and leaves nothing out.

use super::{Page, Result};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stead_agent::{Event, Policy, SessionKey};
use stead_model::clock::Timestamp;
use stead_model::ids::{AgentId, ProjectId, RunId, ThreadId};

#[derive(Debug, Clone, PartialEq)]
pub struct AgentSession {
    pub id: AgentId,
    pub key: SessionKey,
    pub project: Option<ProjectId>,
    /// The thread in whose terminal it runs.
    pub thread: ThreadId,
    /// Counts the conversations: a reset begins another.
    pub conversation: u64,
    /// The agent's own name for the conversation.
    pub resume: Option<String>,
    /// What runs, or is to run.
    pub process: Option<AgentProcess>,
    /// Who has it now.
    pub run: Option<RunLease>,
    /// What becomes of questions in a run that says nothing of them itself.
    pub policy: Policy,
    pub version: u64,
    pub created_at: Timestamp,
    pub last_used_at: Timestamp,
}

/// A session is in use by one run until a moment, which moves on as long as something happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLease {
    pub run: RunId,
    pub until: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentProcess {
    /// Its id; the same is never run twice.
    pub command: String,
    /// What the machine knows.
    pub machine: Value,
    /// The last event of the command that was read to its end.
    pub seen: u64,
    /// How much of its standard output was read, in bytes.
    pub read: u64,
    /// How much of its standard input has arrived.
    pub sent: u64,
    /// What has not, behind that.
    pub unsent: String,
    /// Whether it goes on with what was said before it was started; unknown until it is ready.
    pub resumed: Option<bool>,
    /// Messages it was given.
    pub turns: u64,
    /// Why the turn that it is in is being ended before it has ended by itself.
    #[serde(default)]
    pub ending: Option<Ending>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Somebody asked for it, and was told that it will end.
    Asked,
    /// Nothing happened in it.
    Silence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunStatus {
    Queued,
    Running,
    Done,
    Aborted,
    Failed,
}

impl RunStatus {
    pub const ALL: [Self; 5] = [Self::Queued, Self::Running, Self::Done, Self::Aborted, Self::Failed];

    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Aborted => "aborted",
            Self::Failed => "failed",
        }
    }

    pub fn is_final(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRun {
    pub id: RunId,
    pub session: AgentId,
    pub conversation: u64,
    pub message: String,
    /// Its own; without one it is its session's that counts.
    pub policy: Option<Policy>,
    pub status: RunStatus,
    /// The number of its last event; they count from 1.
    pub last_seq: u64,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AgentEvent {
    pub run: RunId,
    pub seq: u64,
    pub at: Timestamp,
    pub event: Event,
}

/// What changes together.
#[derive(Debug, Clone, Default)]
pub struct AgentChange {
    /// As it was and as it becomes; the version of the first must be the one that is there.
    pub sessions: Vec<(AgentSession, AgentSession)>,
    /// Added, or put in the place of what was there.
    pub runs: Vec<AgentRun>,
    pub events: Vec<AgentEvent>,
    /// What it is worth when the machine dies.
    pub worth: Worth,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Worth {
    /// What an agent said is in its command's journal as well, and can be read again.
    #[default]
    Repeatable,
    /// Somebody is told that it is so: it is on the disk before.
    Promised,
}

#[async_trait]
pub trait AgentStore {
    /// `AlreadyExists` (kind `agent session`) if the id or the key is taken.
    async fn put_agent_session(&self, session: &AgentSession) -> Result<()>;
    async fn agent_session(&self, id: &AgentId) -> Result<Option<AgentSession>>;
    async fn agent_session_by_key(&self, key: &SessionKey) -> Result<Option<AgentSession>>;
    /// Newest first.
    async fn agent_sessions(&self, page: &Page) -> Result<Vec<AgentSession>>;
    /// Those of exactly this workspace.
    async fn agent_sessions_of_workspace(&self, workspace: &str) -> Result<Vec<AgentSession>>;
    /// Those that have a process or a run.
    async fn live_agent_sessions(&self) -> Result<Vec<AgentSession>>;
    /// With its runs and their events.
    async fn delete_agent_session(&self, id: &AgentId) -> Result<()>;

    /// `AlreadyExists` (kind `run`) if the id is taken.
    async fn put_agent_run(&self, run: &AgentRun) -> Result<()>;
    async fn agent_run(&self, id: &RunId) -> Result<Option<AgentRun>>;
    /// Queued or running, of one session, oldest first.
    async fn open_agent_runs(&self, session: &AgentId) -> Result<Vec<AgentRun>>;
    /// Of one conversation, oldest first.
    async fn agent_runs(&self, session: &AgentId, conversation: u64) -> Result<Vec<AgentRun>>;
    /// Events of a run behind a number, in order, at most so many.
    async fn agent_events(&self, run: &RunId, after: u64, limit: u32) -> Result<Vec<AgentEvent>>;

    /// All or nothing. `Conflict` (kind `agent session`) if one isn't as it was.
    async fn change_agents(&self, change: &AgentChange) -> Result<()>;
}
