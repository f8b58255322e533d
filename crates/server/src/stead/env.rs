//! The environment call: variables and secrets of a terminal, whatever its shell is doing.
//!
//! ```text
//! set_env ─► store: pending variables, encrypted secrets (from here on it is acknowledged)
//!             └► a live shell? deliver : whoever opens the terminal next delivers, before any command
//! deliver: what the store has and the shell hasn't ─► runtime ─► its state ─► store ─► nothing is pending
//! ```
//!
//! The shell remembers which change of variables it took last and which revision of each secret it has; so what is
//! delivered twice is taken once, and what it lost is given again.

use super::{Inner, Stead, Where, sit};
use crate::error::Error;
use crate::lease::AutoResume;
use crate::seat::{CommitError, Seat};
use crate::store::{AskedEnv, KeptState, TerminalEnv};
use std::collections::BTreeMap;
use std::sync::Arc;
use stead_model::env::{EnvChange, EnvError, MAX_NAMES, MAX_TOTAL, Secret, redact, redact_text};
use stead_model::ids::{ShellId, TerminalId, ThreadId};
use stead_model::lease::{Desired, Observed};
use stead_model::proto::{EnvInfo, Fault, FaultCode, SetEnv, SetSecret};
use stead_model::state::Bytes;
use stead_model::terminal::Terminal;

impl Stead {
    /// Sets and unsets variables and secrets of a thread's terminal: all of them or, if one can't be, none. In force for the
    /// next command that starts, also if one runs now or there is no shell; nothing is woken for it.
    pub async fn set_env(&self, thread: &ThreadId, terminal: &str, change: EnvChange) -> Result<Terminal, Error> {
        change.check()?;
        let thread = self.thread(thread).await?;
        let (inner, name) = (Arc::clone(&self.inner), terminal.to_owned());
        let work = async move {
            let door = inner.door(&thread.id);
            let _inside = door.lock().await;
            let terminal = sit::terminal(&inner, &thread, &name).await?;
            set(&inner, terminal, change).await
        };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }

    /// Gives one terminal the secrets of another, and the variables that are still to be set there; for one that is to be
    /// its copy. What it had under the same names is replaced.
    pub async fn copy_secrets(&self, from: &TerminalId, to: &TerminalId) -> Result<(), Error> {
        if let Some(asked) = carried(&self.inner, from, to).await? {
            self.inner.core.store.change_env(to, &asked).await?;
        }
        Ok(())
    }

    /// A terminal as it is shown: with variables that its shell has yet to be given, and with `***` for each secret.
    pub async fn shown(&self, terminal: Terminal) -> Result<Terminal, Error> {
        shown(&self.inner, terminal).await
    }
}

/// What a terminal is to be asked for to have what another was asked for; sealed for it.
pub(super) async fn carried(inner: &Inner, from: &TerminalId, to: &TerminalId) -> Result<Option<AskedEnv>, Error> {
    let core = &inner.core;
    let env = core.store.env(from).await?;
    let mut asked = AskedEnv { vars: env.pending.clone(), secrets: BTreeMap::new() };
    for (name, value) in reveal(inner, from, &env)? {
        let sealed = core.vault.seal(to, &name, &value)?;
        asked.secrets.insert(name, Some(sealed));
    }
    Ok((!asked.vars.is_empty() || !asked.secrets.is_empty()).then_some(asked))
}

pub(super) async fn shown(inner: &Inner, terminal: Terminal) -> Result<Terminal, Error> {
    let env = inner.core.store.env(&terminal.id).await?;
    let mut state = terminal.state.shown(&env.pending, env.names());
    let veil = Veil::of(inner, &terminal.id).await?;
    state.mask_paths(|path| veil.over(path));
    Ok(Terminal { state, ..terminal })
}

/// What is to be hidden of a terminal in whatever is told of it.
pub(super) enum Veil {
    /// Whoever sits there knows, also what was a secret before.
    Seat(Arc<Seat>),
    Values(Vec<Secret>),
}

impl Veil {
    pub(super) async fn of(inner: &Inner, id: &TerminalId) -> Result<Self, Error> {
        if let Some(seat) = inner.seat(id) {
            return Ok(Self::Seat(seat));
        }
        let env = inner.core.store.env(id).await?;
        // One that can't be opened hides nothing, because nobody knows it; whoever wants to use it is told.
        let open = |secret: &crate::store::SealedSecret| inner.core.vault.open(id, &secret.name, &secret.sealed).ok();
        Ok(Self::Values(env.secrets.iter().filter_map(open).collect()))
    }

    pub(super) fn over(&self, text: &[u8]) -> Vec<u8> {
        match self {
            Self::Seat(seat) => seat.redact(text),
            Self::Values(values) => redact(text, values),
        }
    }

    pub(super) fn over_text(&self, text: String) -> String {
        match self {
            Self::Seat(seat) => seat.redact_text(text),
            Self::Values(values) => redact_text(&text, values),
        }
    }
}

/// Earlier states, without what is a secret now.
pub(super) async fn hide(inner: &Inner, id: &TerminalId, states: &mut [KeptState]) -> Result<(), Error> {
    let env = inner.core.store.env(id).await?;
    if env.secrets.is_empty() {
        return Ok(());
    }
    let secrets = reveal(inner, id, &env)?;
    let names = secrets.keys().cloned().collect();
    let values: Vec<_> = secrets.values().collect();
    for kept in states {
        kept.state.hide(&names, &values);
        kept.state.mask_paths(|path| redact(path, values.iter().copied()));
    }
    Ok(())
}

async fn set(inner: &Arc<Inner>, terminal: Terminal, change: EnvChange) -> Result<Terminal, Error> {
    let core = &inner.core;
    let id = terminal.id.clone();
    let seat = inner.seat(&id).filter(|seat| inner.is_good(seat));
    if let Some(seat) = &seat {
        seat.settle().await;
        if !change.secrets.is_empty() && !seat.runtime.env().await?.takes_secrets {
            let why = "secrets can't be kept off the disk in this sandbox: it has no file system in memory";
            return Err(Fault::new(FaultCode::Unsupported, why).into());
        }
    }
    let not_found = || Error::NotFound { kind: "terminal", id: id.to_string() };
    let terminal = core.store.terminal(&id).await?.ok_or_else(not_found)?;
    if let Some(name) = change.vars.keys().chain(change.secrets.keys()).find(|name| terminal.state.is_readonly(name)) {
        let name = name.escape_ascii();
        return Err(Error::Conflict(format!("`{name}` is read-only in terminal `{id}`; a shell can't change it back")));
    }
    let asked = ask(inner, &id, &core.store.env(&id).await?, change)?;
    core.store.change_env(&id, &asked).await?;
    // It is acknowledged; what can't be delivered now is when the terminal is opened next.
    if let Some(seat) = &seat {
        if let Err(error) = deliver(inner, seat).await {
            tracing::debug!(%error, terminal = %id, "the environment is delivered later");
            leave(inner, seat).await?;
        }
    } else {
        // A seat that can't be used now may be usable again when its instance is woken, and knows nothing of it.
        if let Some(unusable) = inner.seat(&id) {
            leave(inner, &unusable).await?;
        }
        wake_nothing(inner, &terminal).await;
    }
    let terminal = core.store.terminal(&id).await?.ok_or_else(not_found)?;
    shown(inner, terminal).await
}

/// The change as the store gets it: encrypted, and within what a terminal may have.
fn ask(inner: &Inner, id: &TerminalId, env: &TerminalEnv, change: EnvChange) -> Result<AskedEnv, Error> {
    let mut asked = AskedEnv { vars: change.vars, secrets: BTreeMap::new() };
    // What is set as a variable is a secret no more.
    for name in env.names().filter(|name| asked.vars.contains_key(*name)) {
        asked.secrets.insert(name.clone(), None);
    }
    for (name, value) in change.secrets {
        let sealed = value.map(|value| inner.core.vault.seal(id, &name, &value)).transpose()?;
        asked.secrets.insert(name, sealed);
    }
    let mut after = env.clone();
    after.change(&asked);
    let pending = after.pending.iter().map(|(name, value)| name.len() + value.as_ref().map_or(0, |value| value.len()));
    let sealed = after.secrets.iter().map(|secret| secret.name.len() + secret.sealed.bytes.len());
    if after.secrets.len() > MAX_NAMES || after.pending.len() > MAX_NAMES {
        return Err(EnvError::TooMany(after.secrets.len().max(after.pending.len())).into());
    }
    let total = pending.chain(sealed).sum::<usize>();
    if total > 2 * MAX_TOTAL {
        return Err(EnvError::TooLarge(total).into());
    }
    Ok(asked)
}

/// Nobody is to hold on to a shell that may lack what was acknowledged: the next command opens the terminal anew.
async fn leave(inner: &Inner, seat: &Arc<Seat>) -> Result<(), Error> {
    if inner.is_there(seat) {
        inner.take_seat(&seat.terminal);
        seat.retire();
        // Of its uses only the seat may know, and without them its session would be idle.
        super::reap::write_down_seat(inner, seat).await?;
    }
    Ok(())
}

/// After a restart a shell may be at work that nobody here has spoken to yet: its next command is to have it too.
async fn wake_nothing(inner: &Arc<Inner>, terminal: &Terminal) {
    match is_at_work(inner, terminal).await {
        Ok(true) => {}
        Ok(false) => return,
        Err(error) => {
            tracing::debug!(%error, terminal = %terminal.id, "the environment is delivered later");
            return;
        }
    }
    let at = Where {
        terminal: terminal.name.clone(),
        create: false,
        auto_resume: AutoResume::No,
        ..Where::thread(terminal.thread.clone())
    };
    // Taking the seat delivers.
    if let Err(error) = sit::down_inside(inner, &at).await {
        tracing::debug!(%error, terminal = %terminal.id, "the environment is delivered later");
    }
}

async fn is_at_work(inner: &Inner, terminal: &Terminal) -> Result<bool, Error> {
    let store = &inner.core.store;
    if terminal.generation == 0 || store.live_session(&terminal.id).await?.is_none() {
        return Ok(false);
    }
    let lease = store.lease(&terminal.lease).await?;
    Ok(lease.is_some_and(|lease| {
        lease.desired == Desired::Running && lease.observed == Observed::Running && lease.instance.is_some()
    }))
}

/// A thread's lease has been woken: commands that waited in it go on, with what was asked for meanwhile.
pub(super) async fn woken(inner: &Arc<Inner>, thread: &ThreadId) -> Result<(), Error> {
    for terminal in inner.core.store.terminals_of_thread(thread).await? {
        let env = inner.core.store.env(&terminal.id).await?;
        if env.seq > 0 && inner.seat(&terminal.id).is_none() {
            wake_nothing(inner, &terminal).await;
        }
    }
    Ok(())
}

/// Gives a shell what the store has and it hasn't, and brings its state to the store. Before this no command goes to it.
pub(super) async fn deliver(inner: &Inner, seat: &Seat) -> Result<(), Error> {
    let core = &inner.core;
    let env = core.store.env(&seat.terminal).await?;
    if env.seq == 0 {
        return Ok(());
    }
    let secrets = reveal(inner, &seat.terminal, &env)?;
    let known = seat.runtime.env().await?;
    seat.conceal(&secrets);
    if let Some(set) = difference(seat, &env, &known, &secrets)? {
        let captured = seat.runtime.set_env(set).await?;
        let version = captured.version;
        seat.commit_captured(core, captured).await.map_err(|error| match error {
            CommitError::Store(error) => error.into(),
            CommitError::Runtime(error) => error.into(),
            CommitError::Gone | CommitError::Stale(_) => Error::Broken(error.to_string()),
        })?;
        seat.acknowledge(version);
    } else if !env.pending.is_empty() {
        // It took them from somebody who did not live to see its state in the store.
        seat.commit(core).await.map_err(|error| Error::Broken(error.to_string()))?;
    }
    if !env.pending.is_empty() {
        core.store.env_taken(&seat.terminal, env.seq).await?;
    }
    Ok(())
}

fn difference(
    seat: &Seat,
    env: &TerminalEnv,
    known: &EnvInfo,
    secrets: &BTreeMap<Bytes, Secret>,
) -> Result<Option<SetEnv>, Error> {
    let held = |name: &Bytes, revision| {
        known.secrets.iter().any(|secret| secret.name == *name && secret.revision == revision && secret.held)
    };
    let given = env.secrets.iter().filter(|secret| !held(&secret.name, secret.revision)).filter_map(|secret| {
        let value = Some(secrets.get(&secret.name)?.clone());
        Some(SetSecret { name: secret.name.clone(), revision: secret.revision, value })
    });
    let gone = known.secrets.iter().filter(|secret| !secrets.contains_key(&secret.name));
    let gone = gone.map(|secret| SetSecret { name: secret.name.clone(), revision: secret.revision, value: None });
    let changed: Vec<_> = given.chain(gone).collect();
    if known.seq == env.seq && changed.is_empty() {
        return Ok(None);
    }
    let shell = ShellId::parse(seat.terminal.as_str()).map_err(|error| Error::Invalid(error.to_string()))?;
    // Taken before and no longer pending: nothing is to be set a second time.
    let vars = env.pending.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    Ok(Some(SetEnv { shell, seq: env.seq, vars, secrets: changed }))
}

fn reveal(inner: &Inner, id: &TerminalId, env: &TerminalEnv) -> Result<BTreeMap<Bytes, Secret>, Error> {
    let open = |secret: &crate::store::SealedSecret| {
        Ok((secret.name.clone(), inner.core.vault.open(id, &secret.name, &secret.sealed)?))
    };
    env.secrets.iter().map(open).collect()
}
