//! What the server remembers. An interface, because PostgreSQL will implement it too; every implementation passes the
//! suite in `tests/store`.
//!
//! Every write that could race is a compare-and-swap: it names the version it saw (`before`) and fails with
//! [`StoreError::Conflict`] if that is not what is there. A change and the event that tells of it are one transaction.
//! Nothing above the store assumes that this process is the only one.

mod agents;
mod memory;
mod sqlite;
pub mod upkeep;

pub use agents::{
    AgentChange, AgentEvent, AgentProcess, AgentRun, AgentSession, AgentStore, Ending, RunLease, RunStatus, Worth,
};
pub use memory::MemoryStore;
pub use sqlite::{Damage, SqliteStore, mend};

use async_trait::async_trait;
use std::collections::BTreeMap;
use std::time::Duration;
use stead_model::access::Token;
use stead_model::clock::Timestamp;
use stead_model::command::Command;
use stead_model::env::Vars;
use stead_model::ids::{
    CommandId, EventId, InstanceId, LeaseId, ProjectId, ProviderName, SessionId, TerminalId, ThreadId, TokenId,
};
use stead_model::lease::Lease;
use stead_model::project::{Filter, Project};
use stead_model::session::Session;
use stead_model::state::{Bytes, ShellState};
use stead_model::terminal::Terminal;
use stead_model::thread::{Instance, Thread};

/// How long the id of a command runs nothing else, whatever becomes of its thread.
pub const IDS_KEPT: Duration = Duration::from_hours(24);

/// The kind of an id that was used by a thread which has been deleted since.
pub const SPENT: &str = "command of a deleted thread";

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("no {kind} `{id}`")]
    NotFound { kind: &'static str, id: String },
    #[error("{kind} `{id}` exists already")]
    AlreadyExists { kind: &'static str, id: String },
    /// It isn't as it was when it was read.
    #[error("{kind} `{id}` has been changed by somebody else")]
    Conflict { kind: &'static str, id: String },
    #[error("there are {most} {kind}s already, and no more are allowed")]
    Limit { kind: &'static str, most: u32 },
    #[error("{kind} `{id}` can't be read from the database: {what}")]
    Corrupt { kind: &'static str, id: String, what: String },
    #[error("`{path}` is not a database that this version can use: {what}")]
    Schema { path: String, what: String },
    /// Not as its last server left it: nothing of it is believed, and nothing was changed.
    #[error(
        "`{path}` is damaged: {what}; `stead fsck` says what is whole, `stead fsck --repair` saves that; or restore a backup, \
         and remove `{path}-sums`, `{path}-wal` and `{path}-shm` with what was there before"
    )]
    Damaged { path: String, what: String },
    #[error("the server is ending, and the database is closed")]
    Closed,
    #[error("the disk of the database is full")]
    NoSpace,
    #[error("the database failed")]
    Database(#[source] sqlx::Error),
}

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// One entry of a lease's event log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseEvent {
    /// Written once: a second event of the same id rolls its whole transaction back.
    pub id: EventId,
    pub lease: LeaseId,
    /// The lease's version after it.
    pub version: u64,
    pub kind: String,
    /// Who caused it: `api`, `auto_resume`, `idle_reaper`, `recovery`...
    pub source: String,
    /// JSON.
    pub payload: String,
    pub error: Option<String>,
    pub at: Timestamp,
}

/// What an event of a lease means for the rows of its instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceChange {
    Nothing,
    Started(Box<Instance>),
    /// Created after all: its reference and metadata are known now.
    Known(Box<Instance>),
    Seen(InstanceId),
    Ended(InstanceId),
}

/// A version of a terminal whose content differed from the one before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptState {
    pub version: u64,
    pub state: ShellState,
    pub at: Timestamp,
}

/// The SHA-256 of a token's secret. Not printed: who has it and the database could tell which token is which.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash(pub [u8; 32]);

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenHash(***)")
    }
}

/// What was asked of a terminal's environment. It goes with the terminal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TerminalEnv {
    /// Grows with each change; 0: there was none.
    pub seq: u64,
    /// Variables that the stored state is not known to have.
    pub pending: Vars,
    /// By name.
    pub secrets: Vec<SealedSecret>,
}

/// An encrypted value; only the [`crate::vault::Vault`] can read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    pub nonce: Vec<u8>,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedSecret {
    pub name: Bytes,
    /// The number of the change that set it.
    pub revision: u64,
    pub sealed: Sealed,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AskedEnv {
    pub vars: Vars,
    /// `None` removes it.
    pub secrets: BTreeMap<Bytes, Option<Sealed>>,
}

impl TerminalEnv {
    /// What it becomes: of two values for a name the later one counts.
    pub fn change(&mut self, asked: &AskedEnv) {
        self.seq += 1;
        self.pending.extend(asked.vars.clone());
        for (name, sealed) in &asked.secrets {
            self.secrets.retain(|secret| secret.name != *name);
            if let Some(sealed) = sealed {
                let secret = SealedSecret { name: name.clone(), revision: self.seq, sealed: sealed.clone() };
                self.secrets.push(secret);
            }
            // A variable of that name is one no more; asked for beside it, it is one again.
            if !asked.vars.contains_key(name) {
                self.pending.remove(name);
            }
        }
        self.secrets.sort_by(|one, other| one.name.cmp(&other.name));
    }

    /// The names of all secrets.
    pub fn names(&self) -> impl Iterator<Item = &Bytes> {
        self.secrets.iter().map(|secret| &secret.name)
    }
}

/// Where a list goes on, and how much of it is wanted. Lists are newest first, by (created at, id), so that they are
/// stable while things come and go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub limit: u32,
    /// The last item of the page before.
    pub after: Option<(Timestamp, String)>,
}

impl Page {
    pub fn all() -> Self {
        Self { limit: u32::MAX, after: None }
    }
}

#[async_trait]
pub trait Store: AgentStore + upkeep::Upkeep + Send + Sync + std::fmt::Debug {
    /// Counts the starts of servers over this store.
    async fn begin_epoch(&self) -> Result<u64>;

    /// Fails if nothing can be written now; found out by writing.
    async fn check_writable(&self) -> Result<()>;

    /// `AlreadyExists` (kind `project`) if the id is taken, `Limit` if there are `most` outside the trash: of any number
    /// of callers exactly as many win as there is room for. `credentials`: of its repository, until that is cloned.
    async fn create_project(&self, project: &Project, credentials: Option<&Sealed>, most: u32) -> Result<()>;
    async fn project(&self, id: &ProjectId) -> Result<Option<Project>>;
    /// Newest first.
    async fn projects(&self, filter: &Filter, page: &Page) -> Result<Vec<Project>>;
    /// Compare-and-swap on the version. Statistics are not written: they grow by themselves. The credentials of a
    /// repository go when it is no longer wanted.
    async fn replace_project(&self, before: &Project, after: &Project) -> Result<()>;
    async fn clone_credentials(&self, id: &ProjectId) -> Result<Option<Sealed>>;
    /// What it was measured to hold.
    async fn measured_project(&self, id: &ProjectId, disk_bytes: u64) -> Result<()>;
    /// What last went wrong in it.
    async fn project_failed(&self, id: &ProjectId, at: Timestamp, error: &str) -> Result<()>;
    /// Its row; its threads and files are somebody else's to remove, before. Deleting what isn't there is fine.
    async fn delete_project(&self, id: &ProjectId) -> Result<()>;
    /// The sessions of its threads, those of deleted ones too; newest first.
    async fn sessions_of_project(&self, id: &ProjectId, page: &Page) -> Result<Vec<Session>>;
    async fn live_sessions_of_project(&self, id: &ProjectId) -> Result<Vec<Session>>;

    /// A thread with its default terminal and, unless it shares another's, its lease: all or nothing. `AlreadyExists`
    /// (kind `thread`) if the id is taken: of any number of callers one wins.
    async fn create_thread(&self, thread: &Thread, terminal: &Terminal, lease: Option<&Lease>) -> Result<()>;
    /// A thread with all its terminals and what is asked of their environments, on a lease that is there: all or nothing.
    /// `Conflict` (kind `lease`) if that has no terminal and is to be destroyed: somebody is removing it.
    async fn fork_thread(&self, thread: &Thread, terminals: &[Terminal], envs: &[(TerminalId, AskedEnv)])
    -> Result<()>;
    /// Puts a thread and its terminals (each as it was and as it becomes) on another lease, all or nothing, and remembers
    /// the one it leaves among its past ones. `Conflict` if somebody is removing the new lease, if the thread is elsewhere
    /// by now, if a terminal has changed, or if one that isn't named is on the lease that it leaves.
    async fn move_thread(&self, before: &Thread, after: &Thread, terminals: &[(Terminal, Terminal)]) -> Result<()>;
    /// The leases that a thread has moved away from.
    async fn past_leases(&self, thread: &ThreadId) -> Result<Vec<LeaseId>>;
    /// The thread that has moved away from a lease.
    async fn mover(&self, lease: &LeaseId) -> Result<Option<ThreadId>>;
    /// Whether a thread has this workspace.
    async fn is_workspace_used(&self, workspace: &str) -> Result<bool>;
    async fn thread(&self, id: &ThreadId) -> Result<Option<Thread>>;
    async fn threads(&self, project: Option<&ProjectId>, page: &Page) -> Result<Vec<Thread>>;
    async fn touch_thread(&self, id: &ThreadId, at: Timestamp) -> Result<()>;
    /// With its terminals, their states and its commands, whose ids are spent for [`IDS_KEPT`] since they were first used.
    /// Sessions stay, as history. Deleting what isn't there is fine.
    async fn delete_thread(&self, id: &ThreadId) -> Result<()>;

    /// `AlreadyExists` (kind `terminal`) if the id or, within the thread, the name is taken. The terminal called
    /// `default` is the thread's default one, so there is one at most. The state it comes with is the first of those that
    /// are kept.
    async fn put_terminal(&self, terminal: &Terminal) -> Result<()>;
    async fn terminal(&self, id: &TerminalId) -> Result<Option<Terminal>>;
    async fn terminal_named(&self, thread: &ThreadId, name: &str) -> Result<Option<Terminal>>;
    async fn terminals_of_thread(&self, thread: &ThreadId) -> Result<Vec<Terminal>>;
    async fn terminals_of_lease(&self, lease: &LeaseId) -> Result<Vec<Terminal>>;
    async fn terminals(&self, page: &Page) -> Result<Vec<Terminal>>;
    /// Compare-and-swap on generation and version. A new `content_version` is also kept among its states, of which
    /// the last [`stead_model::terminal::KEPT_STATES`] stay.
    async fn replace_terminal(&self, before: &Terminal, after: &Terminal) -> Result<()>;
    async fn delete_terminal(&self, id: &TerminalId) -> Result<()>;
    /// Newest first.
    async fn states(&self, terminal: &TerminalId) -> Result<Vec<KeptState>>;
    /// The content that a version had: the kept state of the greatest version not above it.
    async fn state_at(&self, terminal: &TerminalId, version: u64) -> Result<Option<KeptState>>;

    /// What was asked of a terminal's environment; nothing, if nothing was or there is no such terminal.
    async fn env(&self, terminal: &TerminalId) -> Result<TerminalEnv>;
    /// Adds to it, all or nothing, under the next number: see [`TerminalEnv::change`]. `NotFound` (kind `terminal`) if
    /// there is none.
    async fn change_env(&self, terminal: &TerminalId, asked: &AskedEnv) -> Result<TerminalEnv>;
    /// The state of the terminal has the variables asked for up to this number. Does nothing if more was asked since.
    async fn env_taken(&self, terminal: &TerminalId, seq: u64) -> Result<()>;

    async fn put_lease(&self, lease: &Lease) -> Result<()>;
    async fn lease(&self, id: &LeaseId) -> Result<Option<Lease>>;
    async fn leases(&self, provider: Option<&ProviderName>, page: &Page) -> Result<Vec<Lease>>;
    async fn lease_of_instance(&self, instance: &InstanceId) -> Result<Option<Lease>>;
    /// Compare-and-swap on the version; the lease, its event and its instance in one transaction.
    async fn replace_lease(
        &self,
        before: &Lease,
        after: &Lease,
        event: &LeaseEvent,
        instance: &InstanceChange,
    ) -> Result<()>;
    /// The same, in one transaction with a check that the live sessions of the lease are exactly these, in these versions;
    /// else `Conflict` (kind `session`). For a pause or a destruction that a session in use forbids.
    async fn replace_lease_if_sessions_unchanged(
        &self,
        sessions: &[Session],
        before: &Lease,
        after: &Lease,
        event: &LeaseEvent,
    ) -> Result<()>;
    /// Oldest first, from a version on.
    async fn lease_events(&self, lease: &LeaseId, after_version: u64, limit: u32) -> Result<Vec<LeaseEvent>>;
    /// With its events and instances. Refused with `Conflict` while a terminal uses it.
    async fn delete_lease(&self, id: &LeaseId) -> Result<()>;
    async fn instance(&self, id: &InstanceId) -> Result<Option<Instance>>;
    /// Those that have not ended.
    async fn live_instances(&self) -> Result<Vec<Instance>>;

    /// Opens a session; one that is live on the same terminal is closed as superseded in the same transaction. Its
    /// project counts it.
    async fn open_session(&self, session: &Session) -> Result<()>;
    /// Opens a session, or replaces the live one `before`, in one transaction with a check that the lease still wants to run
    /// this instance; else `Conflict` (kind `lease`).
    async fn open_session_on(&self, instance: &InstanceId, before: Option<&Session>, session: &Session) -> Result<()>;
    async fn session(&self, id: &SessionId) -> Result<Option<Session>>;
    async fn live_session(&self, terminal: &TerminalId) -> Result<Option<Session>>;
    async fn newest_session(&self, thread: &ThreadId) -> Result<Option<Session>>;
    async fn live_sessions(&self) -> Result<Vec<Session>>;
    async fn live_sessions_of_lease(&self, lease: &LeaseId) -> Result<Vec<Session>>;
    async fn sessions(&self, page: &Page) -> Result<Vec<Session>>;
    /// Compare-and-swap on the version.
    async fn replace_session(&self, before: &Session, after: &Session) -> Result<()>;

    /// Durable when it returns: of two commands with one id the second gets `AlreadyExists` (kind `command`), and so does
    /// one whose id is spent (kind [`SPENT`]).
    async fn put_command(&self, command: &Command) -> Result<()>;
    /// Removes one that is queued, as if it had never been asked for; its id is free again.
    async fn take_back_command(&self, id: &CommandId) -> Result<()>;
    /// Ids that are spent no longer may be used again.
    async fn forget_spent_commands(&self, now: Timestamp) -> Result<()>;
    /// Inserts or replaces each, in one transaction, and counts what has ended for the project of its thread; of
    /// what is known and what is told [`Command::joined`] says what stands: a final record never changes. One that is new and whose terminal has been
    /// deleted is left out: it must not hold up the others, nor turn up in another thread that was given the same name.
    async fn save_commands(&self, commands: &[Command]) -> Result<()>;
    async fn command(&self, id: &CommandId) -> Result<Option<Command>>;
    async fn commands_of_thread(&self, thread: &ThreadId, page: &Page) -> Result<Vec<Command>>;
    /// The ids of a thread's newest commands.
    async fn newest_commands(&self, thread: &ThreadId, most: u32) -> Result<Vec<CommandId>>;
    /// Queued or running, oldest first.
    async fn open_commands(&self) -> Result<Vec<Command>>;

    /// `AlreadyExists` (kind `token`) if the id or the hash is taken.
    async fn put_token(&self, token: &Token, hash: &TokenHash) -> Result<()>;
    async fn token(&self, id: &TokenId) -> Result<Option<Token>>;
    /// With the hash as it is stored, for whoever wants to compare by itself.
    async fn token_by_hash(&self, hash: &TokenHash) -> Result<Option<(Token, TokenHash)>>;
    async fn tokens(&self, page: &Page) -> Result<Vec<Token>>;
    async fn touch_token(&self, id: &TokenId, at: Timestamp) -> Result<()>;
    /// Once: a second time changes nothing.
    async fn revoke_token(&self, id: &TokenId, at: Timestamp) -> Result<()>;
}
