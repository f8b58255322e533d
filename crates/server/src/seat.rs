//! A seat: the live end of a terminal. Session, runtime and instance that belong together, in memory; all of it can be
//! had again from the store and the instance, so losing a seat loses nothing.

use crate::core::Core;
use crate::provider::Surroundings;
use crate::runtime::{Captured, Runtime, RuntimeError};
use crate::store::StoreError;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use stead_model::clock::Now;
use stead_model::env::{Secret, redact, redact_text};
use stead_model::ids::{InstanceId, LeaseId, TerminalId, ThreadId};
use stead_model::session::{Input, Session, Status};
use stead_model::state::{Bytes, ShellState};
use stead_model::terminal::{Snapshot, Stale};
use stead_model::thread::Thread;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) thread: Thread,
    pub(crate) terminal: TerminalId,
    /// The terminal's name within its thread.
    pub(crate) name: String,
    pub(crate) lease: LeaseId,
    pub(crate) instance: InstanceId,
    pub(crate) generation: u64,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) surroundings: Surroundings,
    /// Whether the shell's state is safe without the store: in a journal that outlives the instance.
    pub(crate) keeps_state: bool,
    /// Whether the journal is on another machine, and is to be copied here.
    pub(crate) is_mirrored: bool,
    session: Mutex<Session>,
    /// Commands on their way through this seat.
    busy: AtomicUsize,
    commands: AtomicUsize,
    retired: AtomicBool,
    /// The version that the last answer named.
    acknowledged: AtomicU64,
    /// The version that the store has.
    committed: watch::Sender<u64>,
    dirty: Notify,
    /// Whether what was acknowledged is more than a number: the state changed.
    changed: AtomicBool,
    /// Somebody waits for the store to have what was acknowledged.
    asked: Notify,
    /// The runtime could not be asked for what was acknowledged: its steward was killed since.
    cut_off: Notify,
    /// States told by the runtime, on their way to the store.
    noted: Mutex<BTreeMap<u64, ShellState>>,
    left: CancellationToken,
    /// What is a secret in its shell, or was one.
    hidden: Mutex<Hidden>,
}

/// Names and values that are not to be written down.
#[derive(Debug, Default, Clone)]
struct Hidden {
    names: BTreeSet<Bytes>,
    values: Vec<Secret>,
}

/// What a seat is made of.
pub(crate) struct Seating {
    pub(crate) thread: Thread,
    pub(crate) terminal: TerminalId,
    pub(crate) name: String,
    pub(crate) lease: LeaseId,
    pub(crate) instance: InstanceId,
    pub(crate) generation: u64,
    pub(crate) version: u64,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) surroundings: Surroundings,
    pub(crate) keeps_state: bool,
    pub(crate) is_mirrored: bool,
    pub(crate) session: Session,
}

/// Held while a command is on its way.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Seat>);

impl Drop for Busy {
    fn drop(&mut self) {
        if self.0.busy.fetch_sub(1, Ordering::SeqCst) == 1 && self.0.retired.load(Ordering::SeqCst) {
            self.0.leave();
        }
    }
}

/// Held as long as a command has not ended.
#[derive(Debug)]
pub(crate) struct Counted(Arc<Seat>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.commands.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Seat {
    /// Takes a seat; from now on what its shell becomes is written to the store.
    pub(crate) fn take(core: &Arc<Core>, seating: Seating) -> Arc<Self> {
        let seat = Arc::new(Self {
            thread: seating.thread,
            terminal: seating.terminal,
            name: seating.name,
            lease: seating.lease,
            instance: seating.instance,
            generation: seating.generation,
            runtime: seating.runtime,
            surroundings: seating.surroundings,
            keeps_state: seating.keeps_state,
            is_mirrored: seating.is_mirrored,
            session: Mutex::new(seating.session),
            busy: AtomicUsize::new(0),
            commands: AtomicUsize::new(0),
            retired: AtomicBool::new(false),
            acknowledged: AtomicU64::new(seating.version),
            committed: watch::Sender::new(seating.version),
            dirty: Notify::new(),
            changed: AtomicBool::new(false),
            asked: Notify::new(),
            cut_off: Notify::new(),
            noted: Mutex::default(),
            left: CancellationToken::new(),
            hidden: Mutex::default(),
        });
        core.tasks.spawn(write_states(Arc::clone(core), Arc::clone(&seat)));
        seat
    }

    /// From here on these are left out of what is written. A name that is none of them may be a variable again; a value
    /// that was a secret stays one as long as somebody sits here.
    pub(crate) fn conceal(&self, secrets: &BTreeMap<Bytes, Secret>) {
        let mut hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        hidden.names = secrets.keys().cloned().collect();
        for value in secrets.values() {
            if !hidden.values.contains(value) {
                hidden.values.push(value.clone());
            }
        }
    }

    fn hidden(&self) -> Hidden {
        self.hidden.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A text as it may be written down.
    pub(crate) fn redact(&self, text: &[u8]) -> Vec<u8> {
        let hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        if hidden.values.is_empty() { text.to_vec() } else { redact(text, &hidden.values) }
    }

    /// A message as it may be told.
    pub(crate) fn redact_text(&self, text: String) -> String {
        let hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        if hidden.values.is_empty() { text } else { redact_text(&text, &hidden.values) }
    }

    pub(crate) fn session(&self) -> Session {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether its session is live and in time; one in use is.
    pub(crate) fn is_open(&self, now: Now) -> bool {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.status.is_live() && (session.expiry(now).is_none() || self.is_in_use())
    }

    /// The session as it was written. What it was used since then is not undone.
    pub(crate) fn set_session(&self, written: Session) {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let last_active_at = written.last_active_at.max(session.last_active_at);
        *session = Session { last_active_at, ..written };
    }

    /// Somebody used it. Only noted here; the reaper and whoever closes the session write it down.
    pub(crate) fn touch(&self, core: &Core) {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(session.status, Status::Active | Status::Idle)
            && let Ok(touched) = session.apply(Input::Touch, core.now())
        {
            // The version is the store's: it counts writes, not uses.
            *session = Session { version: session.version, ..touched };
        }
    }

    pub(crate) fn enter(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::SeqCst);
        Busy(Arc::clone(self))
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.busy.load(Ordering::SeqCst) > 0
    }

    /// Commands that were sent to its shell and have not ended.
    pub(crate) fn commands(&self) -> usize {
        self.commands.load(Ordering::Relaxed)
    }

    pub(crate) fn count(self: &Arc<Self>) -> Counted {
        self.commands.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(self))
    }

    /// Nobody will sit here any more; who sits here still may finish.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::SeqCst);
        if !self.is_in_use() {
            self.leave();
        }
    }

    /// An answer has named this version: it is to be in the store soon.
    pub(crate) fn acknowledge(&self, version: u64) {
        self.changed.store(true, Ordering::Relaxed);
        self.acknowledge_number(version);
    }

    /// The same of one that changed nothing: it is in no hurry.
    pub(crate) fn acknowledge_number(&self, version: u64) {
        self.acknowledged.fetch_max(version, Ordering::Relaxed);
        if version > *self.committed.borrow() {
            self.dirty.notify_one();
        }
    }

    /// A state that a command left, as its runtime told it: each is kept, however quickly they follow each other.
    pub(crate) fn note_state(&self, version: u64, state: ShellState) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        // A store that can't keep up gets the newest; the steward has them all.
        if noted.len() < MOST_NOTED {
            noted.insert(version, state);
        }
    }

    /// Waits until the store has what was acknowledged. `false`: nobody can bring it there from here.
    pub(crate) async fn settle(&self) -> bool {
        let wanted = self.acknowledged.load(Ordering::Relaxed);
        let mut committed = self.committed.subscribe();
        let cut_off = self.cut_off.notified();
        if *committed.borrow_and_update() < wanted {
            self.asked.notify_one();
            // It may have been tried in vain before.
            self.dirty.notify_one();
        }
        tokio::select! {
            biased;
            _ = committed.wait_for(|version| *version >= wanted) => true,
            () = self.left.cancelled() => false,
            () = cut_off => false,
            () = tokio::time::sleep(SETTLE) => false,
        }
    }

    /// Waits until nobody may sit here any more.
    pub(crate) async fn left(&self) {
        self.left.cancelled().await;
    }

    pub(crate) fn is_left(&self) -> bool {
        self.left.is_cancelled()
    }

    /// Nobody sits here any more; what it captures from now on is not taken.
    pub(crate) fn leave(&self) {
        self.left.cancel();
    }

    /// Lets more come before it is written. Commands in quick succession are written as one; a version that changed
    /// nothing is in no hurry at all, because the steward has it and whoever wants to read it asks.
    async fn gather(&self) {
        let mut until = Instant::now() + UNCHANGED;
        loop {
            let is_left = self.left.is_cancelled();
            if self.changed.swap(false, Ordering::Relaxed) || is_left {
                until = until.min(Instant::now() + LINGER);
            }
            tokio::select! {
                biased;
                () = self.asked.notified() => return,
                () = tokio::time::sleep_until(until) => return,
                () = self.dirty.notified() => {}
                () = self.left.cancelled(), if !is_left => {}
            }
        }
    }

    /// Brings the shell's state to the store, once.
    pub(crate) async fn commit(&self, core: &Core) -> Result<(), CommitError> {
        let mut version = 0;
        while let Some((told, state)) = self.first_noted() {
            version = told;
            self.commit_captured(core, Captured { version, state }).await?;
            self.noted.lock().unwrap_or_else(PoisonError::into_inner).remove(&version);
        }
        if version < self.acknowledged.load(Ordering::Relaxed) || version == 0 {
            let captured = self.runtime.capture().await?;
            version = captured.version;
            self.commit_captured(core, captured).await?;
        }
        self.committed.send_if_modified(|committed| {
            let newer = version > *committed;
            *committed = version.max(*committed);
            newer
        });
        Ok(())
    }

    fn first_noted(&self) -> Option<(u64, ShellState)> {
        let noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.first_key_value().map(|(version, state)| (*version, state.clone()))
    }

    pub(crate) async fn commit_captured(&self, core: &Core, captured: Captured) -> Result<(), CommitError> {
        let Captured { version, mut state } = captured;
        let Hidden { names, values } = self.hidden();
        state.hide(&names, &values.iter().collect::<Vec<_>>());
        state.cwd = Bytes(self.surroundings.stored(&state.cwd));
        state.oldpwd = state.oldpwd.map(|oldpwd| Bytes(self.surroundings.stored(&oldpwd)));
        let snapshot = Snapshot { generation: self.generation, version, state };
        loop {
            let Some(terminal) = core.store.terminal(&self.terminal).await? else { return Err(CommitError::Gone) };
            let after = match terminal.commit(&snapshot, core.now()) {
                Ok(after) => after,
                Err(Stale::Version { .. }) => return Ok(()),
                Err(stale @ Stale::Generation { .. }) => {
                    self.leave();
                    return Err(CommitError::Stale(stale));
                }
            };
            match core.store.replace_terminal(&terminal, &after).await {
                Err(StoreError::Conflict { .. }) => {}
                written => {
                    written?;
                    core.measure.state_written();
                    return Ok(());
                }
            }
        }
    }
}

/// All seats, by the two names that a terminal goes by; in order, so that what goes through them repeats itself.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    by_terminal: BTreeMap<TerminalId, Arc<Seat>>,
    by_name: HashMap<ThreadId, BTreeMap<String, TerminalId>>,
}

impl Seats {
    pub(crate) fn get(&self, terminal: &TerminalId) -> Option<&Arc<Seat>> {
        self.by_terminal.get(terminal)
    }

    pub(crate) fn named(&self, thread: &ThreadId, name: &str) -> Option<&Arc<Seat>> {
        self.get(self.by_name.get(thread)?.get(name)?)
    }

    pub(crate) fn of_thread(&self, thread: &ThreadId) -> impl Iterator<Item = &Arc<Seat>> {
        let terminals = self.by_name.get(thread).into_iter().flat_map(BTreeMap::values);
        terminals.filter_map(|terminal| self.get(terminal))
    }

    /// Returns the one that was there before.
    pub(crate) fn insert(&mut self, seat: &Arc<Seat>) -> Option<Arc<Seat>> {
        let names = self.by_name.entry(seat.thread.id.clone()).or_default();
        names.insert(seat.name.clone(), seat.terminal.clone());
        self.by_terminal.insert(seat.terminal.clone(), Arc::clone(seat))
    }

    pub(crate) fn remove(&mut self, terminal: &TerminalId) -> Option<Arc<Seat>> {
        let seat = self.by_terminal.remove(terminal)?;
        if let Some(names) = self.by_name.get_mut(&seat.thread.id) {
            names.remove(&seat.name);
            if names.is_empty() {
                self.by_name.remove(&seat.thread.id);
            }
        }
        Some(seat)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Seat>> {
        self.by_terminal.values()
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommitError {
    #[error("the terminal is gone")]
    Gone,
    #[error(transparent)]
    Stale(Stale),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// States that may wait for the store.
const MOST_NOTED: usize = 256;

/// How long the state of a terminal may change on before it is written.
const LINGER: std::time::Duration = std::time::Duration::from_millis(5);

/// How long a version that changed nothing may wait.
const UNCHANGED: std::time::Duration = std::time::Duration::from_secs(1);

/// How long a reader waits for the store to catch up with the answers; after that it gets what is there.
const SETTLE: std::time::Duration = std::time::Duration::from_secs(5);

/// How long a store that failed is left alone.
const RETRY: std::time::Duration = std::time::Duration::from_millis(500);

/// Writes the state of a seat's shell behind its answers, as often as the store can take it.
async fn write_states(core: Arc<Core>, seat: Arc<Seat>) {
    loop {
        tokio::select! {
            biased;
            () = seat.left.cancelled() => return,
            () = seat.dirty.notified() => {}
        }
        seat.gather().await;
        match seat.commit(&core).await {
            Ok(()) => {}
            Err(CommitError::Gone | CommitError::Stale(_)) => {
                seat.leave();
                return;
            }
            // The steward has it; whoever opens the terminal next brings it.
            Err(CommitError::Runtime(error)) => {
                tracing::debug!(%error, terminal = %seat.terminal, "no state now");
                seat.cut_off.notify_waiters();
            }
            Err(CommitError::Store(error)) => {
                tracing::error!(%error, terminal = %seat.terminal, "a state could not be written to the store");
                tokio::select! {
                    biased;
                    () = seat.left.cancelled() => return,
                    () = tokio::time::sleep(RETRY) => seat.dirty.notify_one(),
                }
            }
        }
    }
}
