//! The store in plain maps: for tests, and for the simulation, which needs thousands of stores and wants each to answer
//! in an order that a seed decides. It keeps every promise of the interface (the suite in `tests/store` runs on it
//! beside SQLite) but one: it forgets with the process.
//!
//! ```text
//! any call ──► others' turn (see `Pace`) ──► mutex, all checks, then all changes ──► others' turn ──► answer
//! ```
//!
//! What is refused is refused before anything is changed, so there is nothing to roll back.

mod agents;
mod layers;
mod leases;
mod projects;
mod tokens;
mod upkeep;
mod work;

use super::{
    AskedEnv, InstanceChange, KeptState, LeaseEvent, Page, Result, Sealed, Store, StoreError, TerminalEnv, TokenHash,
};
use crate::pace::Pace;
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use stead_model::access::Token;
use stead_model::clock::Timestamp;
use stead_model::command::Command;
use stead_model::ids::{
    CommandId, EventId, InstanceId, LeaseId, ProjectId, ProviderName, SessionId, TerminalId, ThreadId, TokenId,
};
use stead_model::lease::Lease;
use stead_model::project::{Filter, Project};
use stead_model::session::Session;
use stead_model::terminal::Terminal;
use stead_model::thread::{Instance, Thread};

/// A clone is another handle on the same tables.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    tables: Arc<Mutex<Tables>>,
    pace: Pace,
}

/// Ordered by id, so that whatever goes through one goes the same way each time.
#[derive(Debug, Default)]
struct Tables {
    epoch: u64,
    projects: BTreeMap<ProjectId, Project>,
    credentials: BTreeMap<ProjectId, Sealed>,
    threads: BTreeMap<ThreadId, Thread>,
    terminals: BTreeMap<TerminalId, Terminal>,
    states: BTreeMap<TerminalId, BTreeMap<u64, KeptState>>,
    envs: BTreeMap<TerminalId, TerminalEnv>,
    leases: BTreeMap<LeaseId, Lease>,
    events: BTreeMap<LeaseId, BTreeMap<u64, LeaseEvent>>,
    event_ids: BTreeMap<EventId, LeaseId>,
    /// The live sessions of a lease at the moment in which an event of it was written.
    users: BTreeMap<EventId, Vec<Session>>,
    instances: BTreeMap<InstanceId, Instance>,
    sessions: BTreeMap<SessionId, Session>,
    commands: BTreeMap<CommandId, Command>,
    /// Of threads that are gone, and until when nothing runs under them.
    spent: BTreeMap<CommandId, Timestamp>,
    past_leases: BTreeMap<LeaseId, ThreadId>,
    tokens: BTreeMap<TokenId, (Token, TokenHash)>,
    agents: agents::Agents,
    upkeep: upkeep::UpkeepTables,
}

impl MemoryStore {
    /// The same tables, by calls that let others go first.
    pub fn paced(&self, pace: Pace) -> Self {
        Self { tables: Arc::clone(&self.tables), pace }
    }

    /// The live sessions of a lease when an event of it was written. Clocks of two servers differ, so times don't tell.
    pub fn sessions_at(&self, event: &EventId) -> Vec<Session> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).users.get(event).cloned().unwrap_or_default()
    }

    async fn with<T: Send>(&self, work: impl FnOnce(&mut Tables) -> T + Send) -> T {
        self.pace.wait().await;
        let done = work(&mut self.tables.lock().unwrap_or_else(PoisonError::into_inner));
        self.pace.wait().await;
        done
    }
}

fn missing<T>(kind: &'static str, id: &impl ToString) -> Result<T> {
    Err(StoreError::NotFound { kind, id: id.to_string() })
}

fn exists<T>(kind: &'static str, id: &impl ToString) -> Result<T> {
    Err(StoreError::AlreadyExists { kind, id: id.to_string() })
}

fn conflict<T>(kind: &'static str, id: &impl ToString) -> Result<T> {
    Err(StoreError::Conflict { kind, id: id.to_string() })
}

/// Newest first, from a place on.
fn page<'a, T: Clone + 'a>(
    items: impl Iterator<Item = &'a T>,
    place: impl Fn(&T) -> (Timestamp, &str),
    page: &Page,
) -> Vec<T> {
    let behind = |item: &&T| page.after.as_ref().is_none_or(|(at, id)| place(item) < (*at, id.as_str()));
    let mut found: Vec<&T> = items.filter(behind).collect();
    found.sort_by(|one, other| place(other).cmp(&place(one)));
    found.into_iter().take(page.limit as usize).cloned().collect()
}

#[async_trait]
impl Store for MemoryStore {
    async fn begin_epoch(&self) -> Result<u64> {
        self.with(|tables| {
            tables.epoch += 1;
            Ok(tables.epoch)
        })
        .await
    }

    async fn check_writable(&self) -> Result<()> {
        Ok(())
    }

    async fn create_project(&self, project: &Project, credentials: Option<&Sealed>, most: u32) -> Result<()> {
        self.with(|tables| tables.create_project(project, credentials, most)).await
    }

    async fn project(&self, id: &ProjectId) -> Result<Option<Project>> {
        self.with(|tables| Ok(tables.projects.get(id).cloned())).await
    }

    async fn projects(&self, filter: &Filter, page: &Page) -> Result<Vec<Project>> {
        self.with(|tables| Ok(tables.projects_where(filter, page))).await
    }

    async fn replace_project(&self, before: &Project, after: &Project) -> Result<()> {
        self.with(|tables| tables.replace_project(before, after)).await
    }

    async fn clone_credentials(&self, id: &ProjectId) -> Result<Option<Sealed>> {
        self.with(|tables| Ok(tables.credentials.get(id).cloned())).await
    }

    async fn measured_project(&self, id: &ProjectId, disk_bytes: u64) -> Result<()> {
        self.with(|tables| tables.project_statistics(id, |statistics| statistics.disk_bytes = Some(disk_bytes))).await
    }

    async fn project_failed(&self, id: &ProjectId, at: Timestamp, error: &str) -> Result<()> {
        let error = Some((at, error.to_owned()));
        self.with(|tables| tables.project_statistics(id, |statistics| statistics.last_error = error)).await
    }

    async fn delete_project(&self, id: &ProjectId) -> Result<()> {
        self.with(|tables| {
            tables.projects.remove(id);
            tables.credentials.remove(id);
            Ok(())
        })
        .await
    }

    async fn sessions_of_project(&self, id: &ProjectId, page: &Page) -> Result<Vec<Session>> {
        let of = |session: &Session| session.project.as_ref() == Some(id);
        self.with(|tables| Ok(tables.sessions_where(of, page))).await
    }

    async fn live_sessions_of_project(&self, id: &ProjectId) -> Result<Vec<Session>> {
        let of = |session: &Session| session.status.is_live() && session.project.as_ref() == Some(id);
        self.with(|tables| Ok(tables.sessions_where(of, &Page::all()))).await
    }

    async fn create_thread(&self, thread: &Thread, terminal: &Terminal, lease: Option<&Lease>) -> Result<()> {
        self.with(|tables| tables.create_thread(thread, terminal, lease)).await
    }

    async fn fork_thread(
        &self,
        thread: &Thread,
        terminals: &[Terminal],
        envs: &[(TerminalId, AskedEnv)],
    ) -> Result<()> {
        self.with(|tables| tables.fork_thread(thread, terminals, envs)).await
    }

    async fn move_thread(&self, before: &Thread, after: &Thread, terminals: &[(Terminal, Terminal)]) -> Result<()> {
        self.with(|tables| tables.move_thread(before, after, terminals)).await
    }

    async fn past_leases(&self, thread: &ThreadId) -> Result<Vec<LeaseId>> {
        self.with(|tables| {
            let past = tables.past_leases.iter().filter(|(_, mover)| *mover == thread);
            Ok(past.map(|(lease, _)| lease.clone()).collect())
        })
        .await
    }

    async fn mover(&self, lease: &LeaseId) -> Result<Option<ThreadId>> {
        self.with(|tables| Ok(tables.past_leases.get(lease).cloned())).await
    }

    async fn is_workspace_used(&self, workspace: &str) -> Result<bool> {
        self.with(|tables| Ok(tables.threads.values().any(|thread| thread.workspace == workspace))).await
    }

    async fn thread(&self, id: &ThreadId) -> Result<Option<Thread>> {
        self.with(|tables| Ok(tables.threads.get(id).cloned())).await
    }

    async fn threads(&self, project: Option<&ProjectId>, page: &Page) -> Result<Vec<Thread>> {
        self.with(|tables| Ok(tables.threads_of(project, page))).await
    }

    async fn touch_thread(&self, id: &ThreadId, at: Timestamp) -> Result<()> {
        self.with(|tables| tables.touch_thread(id, at)).await
    }

    async fn delete_thread(&self, id: &ThreadId) -> Result<()> {
        self.with(|tables| {
            tables.delete_thread(id);
            Ok(())
        })
        .await
    }

    async fn put_terminal(&self, terminal: &Terminal) -> Result<()> {
        self.with(|tables| tables.put_terminal(terminal)).await
    }

    async fn terminal(&self, id: &TerminalId) -> Result<Option<Terminal>> {
        self.with(|tables| Ok(tables.terminals.get(id).cloned())).await
    }

    async fn terminal_named(&self, thread: &ThreadId, name: &str) -> Result<Option<Terminal>> {
        self.with(|tables| Ok(tables.terminal_named(thread, name).cloned())).await
    }

    async fn terminals_of_thread(&self, thread: &ThreadId) -> Result<Vec<Terminal>> {
        self.with(|tables| Ok(tables.terminals_where(|terminal| terminal.thread == *thread, &Page::all()))).await
    }

    async fn terminals_of_lease(&self, lease: &LeaseId) -> Result<Vec<Terminal>> {
        self.with(|tables| Ok(tables.terminals_where(|terminal| terminal.lease == *lease, &Page::all()))).await
    }

    async fn terminals(&self, page: &Page) -> Result<Vec<Terminal>> {
        self.with(|tables| Ok(tables.terminals_where(|_| true, page))).await
    }

    async fn replace_terminal(&self, before: &Terminal, after: &Terminal) -> Result<()> {
        self.with(|tables| tables.replace_terminal(before, after)).await
    }

    async fn delete_terminal(&self, id: &TerminalId) -> Result<()> {
        self.with(|tables| {
            tables.delete_terminal(id);
            Ok(())
        })
        .await
    }

    async fn states(&self, terminal: &TerminalId) -> Result<Vec<KeptState>> {
        self.with(|tables| Ok(tables.states_of(terminal))).await
    }

    async fn state_at(&self, terminal: &TerminalId, version: u64) -> Result<Option<KeptState>> {
        self.with(|tables| Ok(tables.state_at(terminal, version))).await
    }

    async fn env(&self, terminal: &TerminalId) -> Result<TerminalEnv> {
        self.with(|tables| Ok(tables.envs.get(terminal).cloned().unwrap_or_default())).await
    }

    async fn change_env(&self, terminal: &TerminalId, asked: &AskedEnv) -> Result<TerminalEnv> {
        self.with(|tables| tables.change_env(terminal, asked)).await
    }

    async fn env_taken(&self, terminal: &TerminalId, seq: u64) -> Result<()> {
        self.with(|tables| {
            if let Some(env) = tables.envs.get_mut(terminal).filter(|env| env.seq == seq) {
                env.pending.clear();
            }
            Ok(())
        })
        .await
    }

    async fn put_lease(&self, lease: &Lease) -> Result<()> {
        self.with(|tables| tables.put_lease(lease)).await
    }

    async fn lease(&self, id: &LeaseId) -> Result<Option<Lease>> {
        self.with(|tables| Ok(tables.leases.get(id).cloned())).await
    }

    async fn leases(&self, provider: Option<&ProviderName>, page: &Page) -> Result<Vec<Lease>> {
        self.with(|tables| Ok(tables.leases_of(provider, page))).await
    }

    async fn lease_of_instance(&self, instance: &InstanceId) -> Result<Option<Lease>> {
        self.with(|tables| Ok(tables.lease_of_instance(instance))).await
    }

    async fn replace_lease(
        &self,
        before: &Lease,
        after: &Lease,
        event: &LeaseEvent,
        instance: &InstanceChange,
    ) -> Result<()> {
        self.with(|tables| tables.replace_lease(before, after, event, instance)).await
    }

    async fn replace_lease_if_sessions_unchanged(
        &self,
        sessions: &[Session],
        before: &Lease,
        after: &Lease,
        event: &LeaseEvent,
    ) -> Result<()> {
        self.with(|tables| {
            tables.refuse_if_sessions_changed(&before.id, sessions)?;
            tables.replace_lease(before, after, event, &InstanceChange::Nothing)
        })
        .await
    }

    async fn lease_events(&self, lease: &LeaseId, after_version: u64, limit: u32) -> Result<Vec<LeaseEvent>> {
        self.with(|tables| Ok(tables.lease_events(lease, after_version, limit))).await
    }

    async fn delete_lease(&self, id: &LeaseId) -> Result<()> {
        self.with(|tables| tables.delete_lease(id)).await
    }

    async fn instance(&self, id: &InstanceId) -> Result<Option<Instance>> {
        self.with(|tables| Ok(tables.instances.get(id).cloned())).await
    }

    async fn live_instances(&self) -> Result<Vec<Instance>> {
        self.with(|tables| Ok(tables.live_instances())).await
    }

    async fn open_session(&self, session: &Session) -> Result<()> {
        self.with(|tables| tables.open_session(session)).await
    }

    async fn open_session_on(&self, instance: &InstanceId, before: Option<&Session>, session: &Session) -> Result<()> {
        self.with(|tables| {
            tables.refuse_unless_running(&session.lease, instance)?;
            match before {
                Some(before) => tables.replace_session(before, session),
                None => tables.open_session(session),
            }
        })
        .await
    }

    async fn session(&self, id: &SessionId) -> Result<Option<Session>> {
        self.with(|tables| Ok(tables.sessions.get(id).cloned())).await
    }

    async fn live_session(&self, terminal: &TerminalId) -> Result<Option<Session>> {
        self.with(|tables| Ok(tables.live_session(terminal).cloned())).await
    }

    async fn newest_session(&self, thread: &ThreadId) -> Result<Option<Session>> {
        let newest = Page { limit: 1, after: None };
        self.with(|tables| Ok(tables.sessions_where(|session| session.thread == *thread, &newest).pop())).await
    }

    async fn live_sessions(&self) -> Result<Vec<Session>> {
        self.with(|tables| Ok(tables.sessions_where(|session| session.status.is_live(), &Page::all()))).await
    }

    async fn live_sessions_of_lease(&self, lease: &LeaseId) -> Result<Vec<Session>> {
        let on = |session: &Session| session.status.is_live() && session.lease == *lease;
        self.with(|tables| Ok(tables.sessions_where(on, &Page::all()))).await
    }

    async fn sessions(&self, page: &Page) -> Result<Vec<Session>> {
        self.with(|tables| Ok(tables.sessions_where(|_| true, page))).await
    }

    async fn replace_session(&self, before: &Session, after: &Session) -> Result<()> {
        self.with(|tables| tables.replace_session(before, after)).await
    }

    async fn put_command(&self, command: &Command) -> Result<()> {
        self.with(|tables| tables.put_command(command)).await
    }

    async fn take_back_command(&self, id: &CommandId) -> Result<()> {
        self.with(|tables| {
            tables.take_back_command(id);
            Ok(())
        })
        .await
    }

    async fn forget_spent_commands(&self, now: Timestamp) -> Result<()> {
        self.with(|tables| {
            tables.spent.retain(|_, until| *until > now);
            Ok(())
        })
        .await
    }

    async fn save_commands(&self, commands: &[Command]) -> Result<()> {
        self.with(|tables| {
            tables.save_commands(commands);
            Ok(())
        })
        .await
    }

    async fn command(&self, id: &CommandId) -> Result<Option<Command>> {
        self.with(|tables| Ok(tables.commands.get(id).cloned())).await
    }

    async fn commands_of_thread(&self, thread: &ThreadId, page: &Page) -> Result<Vec<Command>> {
        self.with(|tables| Ok(tables.commands_of(thread, page))).await
    }

    async fn newest_commands(&self, thread: &ThreadId, most: u32) -> Result<Vec<CommandId>> {
        let page = Page { limit: most, after: None };
        Ok(self.commands_of_thread(thread, &page).await?.into_iter().map(|command| command.id).collect())
    }

    async fn open_commands(&self) -> Result<Vec<Command>> {
        self.with(|tables| Ok(tables.open_commands())).await
    }

    async fn put_token(&self, token: &Token, hash: &TokenHash) -> Result<()> {
        self.with(|tables| tables.put_token(token, hash)).await
    }

    async fn token(&self, id: &TokenId) -> Result<Option<Token>> {
        self.with(|tables| Ok(tables.tokens.get(id).map(|(token, _)| token.clone()))).await
    }

    async fn token_by_hash(&self, hash: &TokenHash) -> Result<Option<(Token, TokenHash)>> {
        self.with(|tables| Ok(tables.token_by_hash(hash))).await
    }

    async fn tokens(&self, page: &Page) -> Result<Vec<Token>> {
        self.with(|tables| Ok(tables.tokens_at(page))).await
    }

    async fn touch_token(&self, id: &TokenId, at: Timestamp) -> Result<()> {
        self.with(|tables| tables.touch_token(id, at)).await
    }

    async fn revoke_token(&self, id: &TokenId, at: Timestamp) -> Result<()> {
        self.with(|tables| tables.revoke_token(id, at)).await
    }
}
