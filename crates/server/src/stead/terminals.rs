//! Terminals: more of them by name, their states, and going back to one.

use super::{Inner, Stead, Where};
use crate::error::Error;
use crate::runtime::RuntimeError;
use crate::seat::Seat;
use crate::store::{KeptState, StoreError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use stead_model::ids::{TerminalId, ThreadId};
use stead_model::proto::FaultCode;
use stead_model::session::CloseReason;
use stead_model::state::ShellState;
use stead_model::terminal::{DEFAULT_NAME, Terminal, is_name};

/// The part of a terminal's state that people ask for, as the contract shows it. Bytes that aren't UTF-8 are replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalView {
    pub cwd: String,
    /// Name to value; null where a variable of the fresh shell is gone.
    #[serde(default)]
    pub env_delta: BTreeMap<String, Option<String>>,
    #[serde(default)]
    pub functions: Vec<String>,
    #[serde(default)]
    pub aliases: BTreeMap<String, String>,
    #[serde(default)]
    pub options: BTreeMap<String, bool>,
    #[serde(default)]
    pub umask: Option<String>,
    #[serde(default)]
    pub version: u64,
}

impl TerminalView {
    pub fn new(state: &ShellState, version: u64) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let env = state.env_delta().into_iter();
        let options = state.shopt.iter().chain(&state.options).map(|(name, on)| (name.clone(), *on));
        Self {
            cwd: text(&state.cwd),
            env_delta: env.map(|(name, value)| (text(&name), value.map(|value| text(&value)))).collect(),
            functions: state.functions.names.iter().map(|name| text(name)).collect(),
            aliases: state.aliases.iter().map(|(name, value)| (text(name), text(value))).collect(),
            options: options.collect(),
            umask: state.umask.clone(),
            version,
        }
    }
}

impl Stead {
    /// The thread's terminal of that name, with everything that an answer has acknowledged.
    pub async fn terminal(&self, thread: &ThreadId, name: &str) -> Result<Terminal, Error> {
        if let Some(seat) = self.inner.seat_named(thread, name) {
            settle_for_reading(&self.inner, &seat).await;
        }
        let terminal = self.inner.core.store.terminal_named(thread, name).await?;
        let terminal = terminal.ok_or_else(|| Error::NotFound { kind: "terminal", id: name.to_owned() })?;
        // A server that was killed may have answered more than it wrote.
        let terminal = super::known::newest_without_opening(&self.inner, terminal).await?;
        self.shown(terminal).await
    }

    /// Another terminal for a thread, on the same lease.
    pub async fn create_terminal(
        &self,
        thread: &ThreadId,
        name: &str,
        cwd: Option<Vec<u8>>,
        env: &[(String, Vec<u8>)],
    ) -> Result<Terminal, Error> {
        if !is_name(name) {
            let rule = "1-64 of `A-Z a-z 0-9 . _ -`, starting with a letter or digit";
            return Err(Error::Invalid(format!("`{name}` can't be the name of a terminal: {rule}")));
        }
        // Its thread may be about to move to another lease.
        let door = self.inner.door(thread);
        let _inside = door.lock().await;
        let thread = self.thread(thread).await?;
        let core = &self.inner.core;
        let id = TerminalId::made_of(core.entropy());
        let config = match &thread.project {
            Some(project) => Some(super::projects::open(&self.inner, project).await?.config),
            None => None,
        };
        let mut terminal = Terminal::new(id, thread.id, thread.lease, name.to_owned(), core.now());
        terminal.state =
            super::threads::first_state(cwd, &super::threads::with_defaults(config.as_ref(), env.to_vec()))?;
        core.store.put_terminal(&terminal).await?;
        Ok(terminal)
    }

    /// Removes a terminal: what runs in it ends. The default one goes only with its thread.
    pub async fn delete_terminal(&self, id: &TerminalId) -> Result<(), Error> {
        let (inner, id) = (Arc::clone(&self.inner), id.clone());
        let work = async move {
            let Some(terminal) = inner.core.store.terminal(&id).await? else { return Ok(()) };
            if terminal.name == DEFAULT_NAME {
                let message =
                    format!("`{id}` is the default terminal of thread `{}`; delete the thread", terminal.thread);
                return Err(Error::Conflict(message));
            }
            let door = inner.door(&terminal.thread);
            let _inside = door.lock().await;
            super::close::cancel_all(&inner, &id).await;
            if let Some(session) = inner.core.store.live_session(&id).await? {
                super::close::session(&inner, session, CloseReason::Destroyed).await?;
            }
            super::close::end_shell(&inner, &terminal).await?;
            inner.ledger.flush().await;
            Ok(inner.core.store.delete_terminal(&id).await?)
        };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }

    /// The versions whose content changed, newest first.
    pub async fn states(&self, terminal: &TerminalId) -> Result<Vec<KeptState>, Error> {
        if let Some(seat) = self.inner.seat(terminal) {
            settle_for_reading(&self.inner, &seat).await;
        }
        let mut states = self.inner.core.store.states(terminal).await?;
        super::env::hide(&self.inner, terminal, &mut states).await?;
        Ok(states)
    }

    /// Makes an earlier content the terminal's again, as a new version, in the live shell too.
    pub async fn restore(&self, terminal: &TerminalId, version: u64) -> Result<Terminal, Error> {
        let (inner, terminal) = (Arc::clone(&self.inner), terminal.clone());
        let work = async move { restore(&inner, &terminal, version).await };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }
}

/// A plain read tells what is known where a steward can't be asked.
async fn settle_for_reading(inner: &Inner, seat: &Seat) {
    if let Err(error) = super::known::settle(inner, seat).await {
        tracing::debug!(%error, terminal = %seat.terminal, "its steward can't be asked for its state");
    }
}

async fn restore(inner: &Arc<Inner>, id: &TerminalId, version: u64) -> Result<Terminal, Error> {
    let store = &inner.core.store;
    let not_found = || Error::NotFound { kind: "terminal", id: id.to_string() };
    let thread = store.terminal(id).await?.ok_or_else(not_found)?.thread;
    let door = inner.door(&thread);
    let _inside = door.lock().await;
    for _ in 0..super::sit::OPENINGS {
        // Whether it has a shell that must have the state first is decided of the row that is replaced: another server may
        // open the terminal for the first time, or after us, at any moment.
        let known = store.terminal(id).await?.ok_or_else(not_found)?;
        let seat = seat_for_restore(inner, &known).await?;
        if let Some(seat) = &seat {
            super::known::settle(inner, seat).await?;
        }
        let before = store.terminal(id).await?.ok_or_else(not_found)?;
        if before.generation != seat.as_ref().map_or(known.generation, |seat| seat.generation) {
            if let Some(stale) = seat {
                if stale.is_in_use() {
                    return Err(Error::TerminalBusy(id.to_string()));
                }
                inner.take_seat(id);
                stale.leave();
                super::reap::write_down_seat(inner, &stale).await?;
            }
            continue;
        }
        if version > before.version {
            return Err(Error::NotFound { kind: "terminal version", id: version.to_string() });
        }
        let kept = store.state_at(id, version).await?;
        let state = match kept {
            Some(kept) => kept.state,
            // Before the first change it was a fresh shell, unless that is no longer remembered.
            None if store.states(id).await?.iter().all(|state| state.version > version) && version == 0 => {
                ShellState::default()
            }
            None => return Err(Error::NotFound { kind: "terminal version", id: version.to_string() }),
        };
        let mut after = before.restore(state, inner.core.now());
        match &seat {
            Some(seat) => put(seat, &after).await?,
            // A runtime that is on its way out must not take this version for its own.
            None => after = after.open(inner.core.now()),
        }
        match store.replace_terminal(&before, &after).await {
            Ok(()) => {
                match &seat {
                    Some(seat) => seat.acknowledge(after.version),
                    // Asked for before, and so not on top of it. Where there is a shell it has had it.
                    None => store.env_taken(id, store.env(id).await?.seq).await?,
                }
                return super::env::shown(inner, after).await;
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::Broken("other servers keep changing the terminal".to_owned()))
}

/// The live end of a terminal whose content is to be exchanged, if it has one. A shell that lives on by itself, or the
/// journal that it left, may know later versions than the store, and would take them for the later content: so a seat is
/// taken there first.
async fn seat_for_restore(inner: &Arc<Inner>, terminal: &Terminal) -> Result<Option<Arc<Seat>>, Error> {
    let lease = inner.core.store.lease(&terminal.lease).await?;
    let lease = lease.ok_or_else(|| Error::NotFound { kind: "lease", id: terminal.lease.to_string() })?;
    let capabilities = inner.core.provider(&lease.provider)?.capabilities();
    let lives_on = capabilities.durable_journal || (capabilities.steward && lease.instance.is_some());
    if !lives_on || terminal.generation == 0 {
        return Ok(inner.seat(&terminal.id));
    }
    let at = Where { terminal: terminal.name.clone(), create: false, ..Where::thread(terminal.thread.clone()) };
    super::sit::down_inside(inner, &at).await.map(Some)
}

async fn put(seat: &Seat, terminal: &Terminal) -> Result<(), Error> {
    let busy = || Error::TerminalBusy(terminal.id.to_string());
    if seat.is_in_use() {
        return Err(busy());
    }
    match seat
        .runtime
        .set_state(&super::sit::as_known_inside(&terminal.state, &seat.surroundings), terminal.version)
        .await
    {
        Ok(()) => Ok(()),
        Err(RuntimeError::Refused(fault)) if fault.code == FaultCode::Busy => Err(busy()),
        Err(error) => Err(error.into()),
    }
}
