//! Memories of projects that are kept in RAM: hot ones, which last (a journal before every answer, snapshots now and
//! then), and those of sessions, which go with them. `docs/memories.md` says what callers may rely on.
//!
//! ```text
//! write ─► journal-N ─► RAM ─► answer            every 300 s, and on disconnect: journal-N+1 begins, snapshot-N+1
//! start ─► snapshot-N, or the one before it ─► journals from there on ─► RAM
//! ```
//!
//! The files are in `.memories/hot` of the project's directory, which no sandbox sees.

mod journal;
mod kept;
mod mend;
mod mirror;
mod ram;
mod recover;
mod slot;
mod snapshot;
#[cfg(test)]
mod tests;
mod watcher;

pub(crate) use kept::etag;
pub use kept::{Bounds, Depth, Kept, Put};
pub use ram::{Held, Node};
pub use snapshot::Snapshot;

use crate::clock::Clock;
use crate::error::Error;
use crate::project::sight::Mirrored;
use mirror::Mirror;
use ram::Ram;
pub(crate) use slot::Shut;
use slot::Slot;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_model::clock::Timestamp;
use stead_model::ids::{ProjectId, SessionId};
use stead_model::route::{Backend, Routes};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use watcher::Watcher;

/// Of a session's own files: few.
const STATE_SHARDS: usize = 16;
/// How often it is looked whether something is to be done.
const LOOK_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySettings {
    /// Of the hot memory of a project.
    pub hot: Bounds,
    /// Of the files of a session.
    pub state: Bounds,
    /// How often what has changed is written as a whole; absent: only when a journal has grown long.
    pub snapshot_every: Option<Duration>,
    /// Hot memory that nobody has used for so long is put away; the next to ask has it read again.
    pub unload_after: Duration,
    /// A journal longer than this, in bytes, and than twice what it leads to, is written anew.
    pub long_journal: u64,
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self {
            hot: Bounds::default(),
            state: Bounds { total: 64 << 20, value: 16 << 20 },
            snapshot_every: Some(Duration::from_mins(5)),
            unload_after: Duration::from_mins(15),
            long_journal: 64 << 20,
        }
    }
}

#[derive(Debug)]
pub struct Memories {
    settings: MemorySettings,
    clock: Arc<dyn Clock>,
    open: Arc<Mutex<HashMap<ProjectId, Arc<Slot>>>>,
    states: Mutex<HashMap<SessionId, Arc<Kept>>>,
    /// A journal has grown long.
    nudge: Arc<Notify>,
    watcher: Arc<Watcher>,
}

/// The hot memory of a project.
#[derive(Debug)]
pub struct Hot {
    pub kept: Kept,
    /// What was found damaged when it was read.
    pub warnings: Vec<String>,
    taken: Mutex<Taken>,
    /// One snapshot at a time.
    turn: Mutex<()>,
    /// For those in a sandbox: one for each route that is shown as files.
    mirrors: Mutex<Vec<Mirror>>,
    /// What could not be shown there, or taken from there.
    unseen: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct Taken {
    at: Option<Timestamp>,
    /// From when on the next one is waited for.
    since: Option<Timestamp>,
    failed: Option<String>,
}

/// What there is to say about the hot memory of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotStatus {
    pub entries: u64,
    pub bytes: u64,
    pub limit: u64,
    pub journal_bytes: u64,
    pub snapshot_at: Option<Timestamp>,
    pub warnings: Vec<String>,
}

impl Hot {
    /// Reads what is in the directory of a project's journal.
    pub fn open(dir: &Path, bounds: Bounds, routes: &Routes) -> Result<Self, Error> {
        let stores = routes.iter().filter(|route| matches!(route.backend, Backend::Store));
        let roots: Vec<_> = stores.map(|route| route.prefix().key().to_vec()).collect();
        let recovered = recover::open(dir, bounds, &roots).map_err(|error| journal::failed(&error))?;
        let taken = Taken { at: recovered.snapshot_at, ..Taken::default() };
        let (kept, warnings) = (recovered.kept, recovered.warnings);
        let taken = Mutex::new(taken);
        Ok(Self { kept, warnings, taken, turn: Mutex::default(), mirrors: Mutex::default(), unseen: Mutex::default() })
    }

    /// Writes all of it; none if nothing has changed. Readers and writers go on meanwhile.
    pub fn snapshot(&self, now: Timestamp) -> Result<Option<Snapshot>, Error> {
        let _turn = lock(&self.turn);
        if self.kept.writer().is_closed {
            return Ok(None);
        }
        let written = snapshot::take(&self.kept, now);
        let mut taken = lock(&self.taken);
        taken.since = Some(now);
        match &written {
            Ok(Some(_)) => (taken.at, taken.failed) = (Some(now), None),
            Ok(None) => {}
            Err(error) => taken.failed = Some(format!("the last snapshot of hot memory failed: {error}")),
        }
        written
    }

    /// Does something while no snapshot is taken: the files of its directory are those of one line of generations, and
    /// the newest journal only grows.
    pub(crate) fn undisturbed<T>(&self, work: impl FnOnce() -> T) -> T {
        let _turn = lock(&self.turn);
        work()
    }

    pub fn status(&self) -> HotStatus {
        let journal_bytes = self.kept.writer().journal.as_ref().map_or(0, journal::Journal::length);
        let taken = lock(&self.taken);
        HotStatus {
            entries: self.kept.ram.len() as u64,
            bytes: self.kept.ram.bytes(),
            limit: self.kept.bounds().total,
            journal_bytes,
            snapshot_at: taken.at,
            warnings: self.warnings.iter().chain(&taken.failed).chain(&*lock(&self.unseen)).cloned().collect(),
        }
    }

    /// Shows a route of it as files in a directory, from here on: made the same each time [`Self::sync`] is called. Whether
    /// it wasn't before.
    fn show(&self, shown: &Mirrored, watcher: Arc<Watcher>) -> bool {
        let mut mirrors = lock(&self.mirrors);
        let is_new = !self.kept.writer().is_closed && mirrors.iter().all(|mirror| mirror.dir() != shown.dir);
        if is_new {
            mirrors.push(Mirror::new(&shown.dir, shown.notes.clone(), &shown.base, watcher));
        }
        is_new
    }

    /// Its directory goes elsewhere: whoever still has it may read, and no more. What is under way is waited for.
    fn close(&self) {
        let _turn = lock(&self.turn);
        let mut mirrors = lock(&self.mirrors);
        mirrors.clear();
        self.kept.writer().is_closed = true;
    }

    /// Whether what is shown is the same, as far as can be told without looking at all of it.
    fn is_in_step(&self) -> bool {
        // One that is being made the same may have been looked at before what matters to whoever asks.
        let Ok(mirrors) = self.mirrors.try_lock() else { return false };
        mirrors.iter().all(|mirror| mirror.is_in_step(&self.kept))
    }

    /// Takes in what was changed in a sandbox, and shows there what was changed outside.
    pub(crate) fn sync(&self, now: Timestamp) {
        let mut mirrors = lock(&self.mirrors);
        let mut told = None;
        for mirror in &mut *mirrors {
            told = mirror.sync(&self.kept, now).unwrap_or_else(|error| Some(error.to_string())).or(told);
        }
        let mut unseen = lock(&self.unseen);
        if let Some(told) = told.as_ref().filter(|told| unseen.as_ref() != Some(told)) {
            tracing::warn!("{told}");
        }
        *unseen = told;
    }

    fn is_long(&self, long: u64) -> bool {
        let length = self.kept.writer().journal.as_ref().map_or(0, journal::Journal::length);
        length > long.max(2 * self.kept.ram.bytes())
    }

    fn is_due(&self, now: Timestamp, settings: &MemorySettings) -> bool {
        let changed = self.kept.writer().is_changed;
        let since = *lock(&self.taken).since.get_or_insert(now);
        changed
            && (self.is_long(settings.long_journal)
                || settings.snapshot_every.is_some_and(|every| now.since(since) >= every))
    }
}

impl Kept {
    /// A tree that goes with the process.
    pub fn passing(bounds: Bounds, first: u64) -> Self {
        Self::new(Ram::new(STATE_SHARDS), bounds, first, None)
    }
}

impl Memories {
    pub fn new(settings: MemorySettings, clock: Arc<dyn Clock>) -> Self {
        let (open, states) = (Arc::default(), Mutex::default());
        Self { settings, clock, open, states, nudge: Arc::default(), watcher: Arc::default() }
    }

    /// The hot memory of a project, read from the directory of its journal if it isn't in RAM.
    pub async fn open(&self, project: &ProjectId, dir: &Path, routes: &Routes) -> Result<Arc<Hot>, Error> {
        let slot = Arc::clone(lock(&self.open).entry(project.clone()).or_default());
        slot.used_at.store(self.clock.now().0, Ordering::Relaxed);
        let (dir, routes, bounds) = (dir.to_owned(), routes.clone(), self.settings.hot);
        let reader = Arc::clone(&slot);
        let read = || async move {
            let read = tokio::task::spawn_blocking(move || reader.read(&dir, bounds, &routes)).await;
            read.unwrap_or_else(|error| Err(Error::Io(error.to_string())))
        };
        if let Some(hot) = slot.hot.get() {
            return Ok(Arc::clone(hot));
        }
        let hot = slot.hot.get_or_try_init(read).await?;
        for warning in &hot.warnings {
            tracing::warn!(%project, "{warning}");
        }
        Ok(Arc::clone(hot))
    }

    /// Writes the hot memory of a project as a whole; for the end of a session. Nothing if it isn't in RAM, hasn't
    /// changed, or snapshots are switched off: every change is in its journal.
    pub async fn snapshot(&self, project: &ProjectId) -> Result<Option<Snapshot>, Error> {
        if self.settings.snapshot_every.is_none() {
            return Ok(None);
        }
        let slot = lock(&self.open).get(project).cloned();
        let Some(hot) = slot.and_then(|slot| slot.hot.get().cloned()) else { return Ok(None) };
        self.take(hot).await
    }

    /// Shows a route of hot memory in a directory, from here on; whether it wasn't before.
    pub(crate) fn show(&self, hot: &Hot, shown: &Mirrored) -> bool {
        hot.show(shown, Arc::clone(&self.watcher))
    }

    /// Makes what a sandbox sees of hot memory the same, if it is in RAM and shown, and something happened on either side.
    pub(crate) async fn sync(&self, project: &ProjectId) {
        let slot = lock(&self.open).get(project).cloned();
        let Some(hot) = slot.and_then(|slot| slot.hot.get().cloned()) else { return };
        if !hot.is_in_step() {
            self.sync_whole(hot).await;
        }
    }

    async fn sync_whole(&self, hot: Arc<Hot>) {
        let now = self.clock.now();
        let _ = tokio::task::spawn_blocking(move || hot.sync(now)).await;
    }

    async fn take(&self, hot: Arc<Hot>) -> Result<Option<Snapshot>, Error> {
        let now = self.clock.now();
        let taken = tokio::task::spawn_blocking(move || hot.snapshot(now)).await;
        taken.unwrap_or_else(|error| Err(Error::Io(error.to_string())))
    }

    /// Puts the hot memory of a project away, before its directory goes elsewhere or another comes in its place. As long
    /// as the answer is kept nobody opens it, and whoever has it can't write: a change that nobody would find again is
    /// never acknowledged.
    pub(crate) async fn shut(&self, project: &ProjectId) -> Shut {
        let (shut, before) = Shut::new(&self.open, project);
        if let Some(before) = before
            && let Err(error) = tokio::task::spawn_blocking(move || before.close()).await
        {
            tracing::error!(%project, "hot memory is not closed: {error}");
        }
        shut
    }

    /// The files of a session. They are there from their first use until [`Self::forget_session`].
    pub fn state(&self, session: &SessionId) -> Arc<Kept> {
        let mut states = lock(&self.states);
        // Numbers go on from the time, so that no tag of another life of the server is one of this.
        let made = || Arc::new(Kept::passing(self.settings.state, self.clock.now().0));
        Arc::clone(states.entry(session.clone()).or_insert_with(made))
    }

    /// The end of a session: its files are gone.
    pub fn forget_session(&self, session: &SessionId) {
        lock(&self.states).remove(session);
    }

    /// After a change: sees to it that a journal doesn't grow without end.
    pub(crate) fn changed(&self, hot: &Hot) {
        if hot.is_long(self.settings.long_journal) {
            self.nudge.notify_one();
        }
    }

    /// What is to be done now and then: snapshots that are due, and putting away what nobody uses.
    pub async fn look_after(&self) {
        let now = self.clock.now();
        let open: Vec<_> = lock(&self.open).iter().map(|(id, slot)| (id.clone(), Arc::clone(slot))).collect();
        for (project, slot) in open {
            let Some(hot) = slot.hot.get().cloned() else { continue };
            let idle = now.since(Timestamp(slot.used_at.load(Ordering::Relaxed))) >= self.settings.unload_after;
            // What runs in a sandbox behind its last command writes, too, and perhaps in ways that nobody is told of.
            self.sync_whole(Arc::clone(&hot)).await;
            let due = hot.is_due(now, &self.settings);
            if (due || (idle && self.settings.snapshot_every.is_some()))
                && let Err(error) = self.take(Arc::clone(&hot)).await
            {
                tracing::warn!(%project, "no snapshot of hot memory: {error}");
            }
            drop((hot, slot));
            if idle {
                self.put_away(&project);
            }
        }
    }

    pub(crate) fn settings(&self) -> &MemorySettings {
        &self.settings
    }

    /// Whether there is anything to be read in the directory of a project's journal.
    pub(crate) fn has_files(dir: &Path) -> bool {
        std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Takes it out of RAM. Only if nobody has it: two over one journal would not know of each other.
    pub(crate) fn put_away(&self, project: &ProjectId) {
        let mut open = lock(&self.open);
        let is_free = open.get(project).is_some_and(|slot| {
            Arc::strong_count(slot) == 1 && slot.hot.get().is_none_or(|hot| Arc::strong_count(hot) == 1)
        });
        if is_free {
            open.remove(project);
        }
    }

    /// Whether a project's is in RAM.
    pub(crate) fn is_open(&self, project: &ProjectId) -> bool {
        lock(&self.open).get(project).is_some_and(|slot| slot.hot.initialized())
    }

    /// How many are in RAM.
    pub fn loaded(&self) -> usize {
        lock(&self.open).len()
    }

    /// Does so until told to stop.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let every = self.settings.snapshot_every.map_or(LOOK_EVERY, |every| every.min(LOOK_EVERY));
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.nudge.notified() => {}
                () = tokio::time::sleep(every) => {}
            }
            self.look_after().await;
        }
    }
}

fn lock<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
