//! The layers, put together: threads on terminals on leases on instances, with sessions and their seats in between.
//!
//! ```text
//! get_sandbox(thread) ─► thread ─► terminal ─► lease ─► instance running ─► runtime ─► session ─► seat
//!                        found, or made, in this order, by one caller at a time for each thread
//! ```

mod access;
pub(crate) mod afar;
mod agent;
mod attach;
mod claim;
mod close;
mod commands;
mod counts;
mod env;
mod execute;
mod follow;
mod fork;
mod known;
mod lists;
mod look;
mod memories;
mod orphans;
mod projects;
mod ready;
mod reap;
pub(crate) mod recover;
mod relocate;
mod room;
mod sit;
mod snapshots;
mod submit;
mod tell;
mod terminals;
mod threads;
mod trash;
mod upkeep;
mod views;
mod walls;
mod watch;

pub(crate) use agent::settled;
pub use attach::{AttachEvent, Attachment, Keyboard};
pub use close::Closed;
pub use commands::Input;
pub use execute::{Execute, Executed};
pub use follow::{CommandEvent, Follow};
pub use fork::Workspace;
pub use lists::{List, Listed};
pub use orphans::Orphan;
pub use projects::{Connection, Room};
pub use ready::Unready;
pub use reap::Reaped;
pub use recover::Recovered;
pub use snapshots::Ttl;
pub use stead_model::env::{EnvChange, Secret};
pub use submit::{Kept, Ran};
pub use terminals::TerminalView;
pub use threads::NewThread;
pub(crate) use threads::is_own;
pub(crate) use trash::refuse_if_trashed;
pub use upkeep::{Cleaned, Mode, Steps, UpkeepSettings};
pub use views::{LeaseView, ProviderView};

use crate::clock::{Clock, Names, RandomNames, Steady, SystemClock};
use crate::core::Core;
use crate::error::Error;
use crate::files::Files;
use crate::lease::{AutoResume, Force, LeaseError, Leases, Ready};
use crate::ledger::Ledger;
use crate::measure::Measure;
use crate::memory::{Memories, MemorySettings};
use crate::project::ProjectSettings;
use crate::provider::Providers;
use crate::seat::{Seat, Seats};
use crate::steward::Steward;
use crate::store::Store;
use crate::vault::Vault;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use stead_model::clock::Timestamp;
use stead_model::command::Command;
use stead_model::ids::{CommandId, LeaseId, ProjectId, ProviderName, TerminalId, ThreadId, TokenId};
use stead_model::lease::{Desired, Observed};
use stead_model::route::Routes;
use stead_model::session::Session;
use stead_model::terminal::DEFAULT_NAME;
use tokio::sync::watch::Receiver;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Trees of files that are copied at the same time.
const MOST_COPIES: usize = 2;

/// What happens to instances when the server stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnExit {
    #[default]
    Leave,
    Pause,
    Destroy,
}

/// How a provider's sandboxes are treated, beyond what the provider itself knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Treatment {
    pub on_exit: OnExit,
    /// Run in every fresh sandbox before anything else; a failure is the caller's to see.
    pub init_commands: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct Settings {
    /// For threads that name none.
    pub default_provider: ProviderName,
    pub treatments: BTreeMap<ProviderName, Treatment>,
    /// How often expired sessions are looked for.
    pub reap_every: Duration,
}

/// What a server is started with; the defaults are those of a real one.
#[derive(Debug)]
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub providers: Providers,
    pub settings: Settings,
    pub clock: Arc<dyn Clock>,
    pub names: Arc<dyn Names>,
    /// Of the secrets; a real server has its key in its data directory.
    pub vault: Vault,
    /// What the output of all commands may hold together, in bytes.
    pub journal_limit: u64,
    pub projects: ProjectSettings,
    pub upkeep: UpkeepSettings,
    pub memory: MemorySettings,
    /// Of projects that have none of their own.
    pub routes: Arc<Routes>,
    /// The data directory, whose disk is to have room; absent where nothing is on one.
    pub data: Option<PathBuf>,
}

impl Parts {
    pub fn new(store: Arc<dyn Store>, providers: Providers, settings: Settings) -> Self {
        Self {
            store,
            providers,
            settings,
            clock: Arc::new(SystemClock),
            names: Arc::new(RandomNames),
            vault: Vault::in_memory(),
            journal_limit: 20 << 30,
            projects: ProjectSettings::default(),
            upkeep: UpkeepSettings::default(),
            memory: MemorySettings::default(),
            routes: Arc::default(),
            data: None,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Stead {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) core: Arc<Core>,
    pub(crate) data: Option<PathBuf>,
    pub(crate) readiness: ready::Known,
    pub(crate) leases: Leases,
    pub(crate) ledger: Ledger,
    pub(crate) settings: Settings,
    seats: Mutex<Seats>,
    /// Commands with a caller's id that are on their way here; who asks for the same waits for the same.
    pub(crate) claims: Mutex<HashMap<CommandId, Receiver<Option<Command>>>>,
    /// Commands that nobody follows.
    pub(crate) unwatched: Mutex<BTreeMap<CommandId, Command>>,
    /// Leases whose removal failed half-way.
    pub(crate) unfinished: Mutex<BTreeSet<LeaseId>>,
    /// Connections of those who only read, one for each lease as long as somebody does.
    pub(crate) readers: Mutex<HashMap<LeaseId, Weak<Steward>>>,
    /// What was found when the providers were last tried.
    tried: Mutex<Option<views::Tried>>,
    /// Copies of files at once.
    copies: tokio::sync::Semaphore,
    journal_limit: u64,
    /// How much the journals held, and when that was.
    journals: Mutex<Option<(Instant, u64)>>,
    pub(crate) projects: Projects,
    pub(crate) upkeep: UpkeepSettings,
    clock_watch: Mutex<upkeep::ClockWatch>,
    /// One round through all projects at a time.
    cleaning: tokio::sync::Mutex<()>,
    /// Archives without a row are on their way to have one.
    archives: tokio::sync::Mutex<()>,
    /// There is something to tell outside.
    untold: tokio::sync::Notify,
    /// When work in a thread without a project was last written down.
    touches: Mutex<HashMap<ThreadId, Timestamp>>,
    /// One at a time moves the directory of a project.
    yards: Mutex<HashMap<ProjectId, Arc<tokio::sync::Mutex<()>>>>,
    pub(crate) memories: Arc<Memories>,
    pub(crate) routes: Arc<Routes>,
    /// How many look at each terminal.
    lookers: Mutex<HashMap<TerminalId, usize>>,
    /// One opener at a time for each thread.
    doors: Mutex<HashMap<ThreadId, Arc<tokio::sync::Mutex<()>>>>,
}

/// What is known of projects beyond their rows.
#[derive(Debug)]
pub(crate) struct Projects {
    pub(crate) settings: ProjectSettings,
    pub(crate) usage: projects::Usage,
    pub(crate) gates: projects::Gates,
    pub(crate) exchanges: projects::Exchanges,
    pub(crate) clones: projects::Clones,
    pub(crate) connections: projects::Connections,
    pub(crate) logs: projects::log::Logs,
}

impl Projects {
    fn new(settings: ProjectSettings) -> Self {
        let (usage, gates, exchanges, clones, connections, logs) = Default::default();
        Self { settings, usage, gates, exchanges, clones, connections, logs }
    }
}

/// Where a sandbox is asked for.
#[derive(Debug, Clone)]
pub struct Where {
    pub thread: ThreadId,
    /// A terminal's name.
    pub terminal: String,
    /// Whether a thread that isn't there is made.
    pub create: bool,
    pub auto_resume: AutoResume,
    /// Who asks, for the record of a session that is opened for it.
    pub by: Option<TokenId>,
}

impl Where {
    pub fn thread(thread: ThreadId) -> Self {
        Self { thread, terminal: DEFAULT_NAME.to_owned(), create: true, auto_resume: AutoResume::Yes, by: None }
    }
}

/// A place to work in: commands and files. It names things rather than holding them, so it stays good when the session
/// expires, the instance dies or the server is busy replacing either.
#[derive(Debug, Clone)]
pub struct Sandbox {
    pub(crate) inner: Arc<Inner>,
    pub(crate) at: Where,
    pub(crate) terminal: TerminalId,
}

impl Stead {
    /// Starts over a store: whatever an earlier server left is found again, see [`recover`].
    pub async fn start(parts: Parts) -> Result<(Self, Recovered), Error> {
        let core = Arc::new(Core {
            store: parts.store,
            providers: parts.providers,
            clock: Arc::new(Steady::new(parts.clock)),
            names: parts.names,
            vault: parts.vault,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            hang_up: CancellationToken::new(),
            closing: CancellationToken::new(),
            measure: Measure::default(),
        });
        core.provider(&parts.settings.default_provider)?;
        ready::unless_full("a new epoch", core.store.begin_epoch().await.map_err(Error::from))?;
        let inner = Arc::new(Inner {
            leases: Leases::new(Arc::clone(&core)),
            ledger: Ledger::start(&core),
            settings: parts.settings,
            seats: Mutex::default(),
            claims: Mutex::default(),
            unwatched: Mutex::default(),
            unfinished: Mutex::default(),
            readers: Mutex::default(),
            journal_limit: parts.journal_limit,
            journals: Mutex::default(),
            tried: Mutex::default(),
            copies: tokio::sync::Semaphore::new(MOST_COPIES),
            lookers: Mutex::default(),
            doors: Mutex::default(),
            projects: Projects::new(parts.projects),
            upkeep: parts.upkeep,
            clock_watch: Mutex::default(),
            cleaning: tokio::sync::Mutex::default(),
            archives: tokio::sync::Mutex::default(),
            untold: tokio::sync::Notify::new(),
            touches: Mutex::default(),
            yards: Mutex::default(),
            memories: Arc::new(Memories::new(parts.memory, Arc::clone(&core.clock) as _)),
            routes: parts.routes,
            data: parts.data,
            readiness: ready::Known::default(),
            core,
        });
        projects::log::start(&inner);
        let recovered = ready::unless_full("what was left is looked at", recover::run(&inner).await)?;
        ready::unless_full("snapshots that were cut short", snapshots::recover(&inner).await)?;
        ready::unless_full("the trash", trash::recover(&inner).await)?;
        ready::unless_full("the directories of projects", projects::recover(&inner).await)?;
        let stead = Self { inner };
        stead.inner.core.tasks.spawn(reap::every(Arc::clone(&stead.inner)));
        if stead.inner.upkeep.timer {
            stead.inner.core.tasks.spawn(upkeep::every(Arc::clone(&stead.inner)));
        }
        stead.inner.core.tasks.spawn(tell::every(Arc::clone(&stead.inner)));
        stead.inner.core.tasks.spawn(ready::keep_reserve(Arc::clone(&stead.inner)));
        let (memories, stop) = (Arc::clone(&stead.inner.memories), stead.inner.core.stop.clone());
        stead.inner.core.tasks.spawn(memories.run(stop));
        if stead.inner.upkeep.timer {
            stead.inner.core.tasks.spawn(memories::read_all(Arc::clone(&stead.inner)));
        }
        Ok((stead, recovered))
    }

    /// Finds or makes everything that a thread needs to run a command. Any number of callers at once make one of each.
    pub async fn get_sandbox(&self, at: Where) -> Result<Sandbox, Error> {
        let seat = sit::down(&self.inner, &at).await?;
        Ok(Sandbox { inner: Arc::clone(&self.inner), at, terminal: seat.terminal.clone() })
    }

    /// Lets go of whoever only listens: followers of commands, people at terminals. They come back to the next server.
    pub fn hang_up(&self) {
        self.inner.core.hang_up.cancel();
    }

    /// Resolves when that has happened.
    pub async fn hung_up(&self) {
        self.inner.core.hang_up.cancelled().await;
    }

    /// Ends: no new work, instances are left, paused or destroyed as configured, rows are written. One failure doesn't
    /// keep the others from being tried; all are returned.
    pub async fn stop(&self) -> Vec<Error> {
        let mut failed = close::on_exit(&self.inner).await;
        self.inner.ledger.flush().await;
        projects::write_down(&self.inner).await;
        if let Err(error) = reap::write_down_all(&self.inner, |_| true).await {
            failed.push(error);
        }
        self.inner.core.hang_up.cancel();
        self.inner.core.stop.cancel();
        for seat in self.inner.take_seats(|_| true) {
            seat.leave();
        }
        failed
    }

    /// The files of a thread that there is; neither makes nor wakes anything.
    pub async fn files(&self, thread: &ThreadId) -> Result<Files, Error> {
        Files::of(&self.inner, &self.thread(thread).await?.default_terminal).await
    }

    /// The same to write in them, which is work in the thread's project and needs room there: what is written has to
    /// find it.
    pub async fn files_to_write(&self, thread: &ThreadId) -> Result<(Files, Room), Error> {
        let thread = self.thread(thread).await?;
        let room = match &thread.project {
            Some(project) => projects::used(&self.inner, project).await?,
            None => Room::default(),
        };
        self.inner.touched(&thread).await;
        Ok((Files::of(&self.inner, &thread.default_terminal).await?, room))
    }

    /// The same to remove something, which makes room.
    pub async fn files_to_remove(&self, thread: &ThreadId) -> Result<Files, Error> {
        let thread = self.thread(thread).await?;
        if let Some(project) = &thread.project {
            projects::used_without_need(&self.inner, project).await?;
        }
        self.inner.touched(&thread).await;
        Files::of(&self.inner, &thread.default_terminal).await
    }

    /// A lease as it is; looks at the provider only if what is known is old, and wakes nothing.
    pub async fn lease(&self, lease: &LeaseId) -> Result<Ready, Error> {
        Ok(self.inner.leases.look(lease, "read.status").await?)
    }
}

impl Sandbox {
    pub fn thread(&self) -> &ThreadId {
        &self.at.thread
    }

    pub fn terminal(&self) -> &TerminalId {
        &self.terminal
    }

    /// The session it works in now.
    pub async fn session(&self) -> Result<Session, Error> {
        Ok(sit::down(&self.inner, &self.at).await?.session())
    }

    pub async fn lease(&self) -> Result<Ready, Error> {
        let seat = sit::down(&self.inner, &self.at).await?;
        Ok(self.inner.leases.look(&seat.lease, "read.status").await?)
    }

    /// Counts as use, without doing anything.
    pub async fn touch(&self) -> Result<(), Error> {
        sit::down(&self.inner, &self.at).await?.touch(&self.inner.core);
        Ok(())
    }

    /// Its files; they are there also while the instance is not.
    pub async fn files(&self) -> Result<Files, Error> {
        Files::of(&self.inner, &self.terminal).await
    }
}

impl Inner {
    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn seat(&self, terminal: &TerminalId) -> Option<Arc<Seat>> {
        self.seats().get(terminal).cloned()
    }

    fn seat_named(&self, thread: &ThreadId, name: &str) -> Option<Arc<Seat>> {
        self.seats().named(thread, name).cloned()
    }

    fn put_seat(&self, seat: &Arc<Seat>) {
        if let Some(before) = self.seats().insert(seat) {
            before.retire();
        }
    }

    fn take_seat(&self, terminal: &TerminalId) -> Option<Arc<Seat>> {
        self.seats().remove(terminal)
    }

    fn take_seats(&self, which: impl Fn(&Seat) -> bool) -> Vec<Arc<Seat>> {
        let mut seats = self.seats();
        let taken: Vec<_> = seats.iter().filter(|seat| which(seat)).cloned().collect();
        for seat in &taken {
            seats.remove(&seat.terminal);
        }
        taken
    }

    /// Takes every seat of a lease away, unless one is in use and that counts: then none.
    fn clear_seats(&self, lease: &LeaseId, force: Force) -> Result<Vec<Arc<Seat>>, LeaseError> {
        // Taken away first, looked at then: whoever enters a seat looks whether it is still there.
        let taken = self.take_seats(|seat| seat.lease == *lease);
        if force == Force::No
            && let Some(used) = taken.iter().find(|seat| seat.is_in_use())
        {
            let by = format!("a command in terminal `{}`", used.terminal);
            for seat in &taken {
                self.seats().insert(seat);
            }
            return Err(LeaseError::InUse { lease: lease.clone(), by });
        }
        Ok(taken)
    }

    fn is_there(&self, seat: &Arc<Seat>) -> bool {
        self.seats().get(&seat.terminal).is_some_and(|there| Arc::ptr_eq(there, seat))
    }

    /// Whether a seat can be used as it is: its session is live, its lease runs the same instance, its runtime answers.
    fn is_good(&self, seat: &Seat) -> bool {
        seat.is_open(self.core.present())
            && !seat.is_left()
            && !seat.runtime.is_broken()
            && self.leases.last_seen(&seat.lease, |lease| {
                lease.desired == Desired::Running
                    && lease.observed == Observed::Running
                    && lease.instance.as_ref() == Some(&seat.instance)
            })
    }

    fn door(&self, thread: &ThreadId) -> Arc<tokio::sync::Mutex<()>> {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        // Doors that nobody stands at are taken away now and then.
        if doors.len() > 1024 {
            doors.retain(|_, door| Arc::strong_count(door) > 1);
        }
        Arc::clone(doors.entry(thread.clone()).or_default())
    }

    pub(crate) fn treatment(&self, provider: &ProviderName) -> Treatment {
        self.settings.treatments.get(provider).cloned().unwrap_or_default()
    }
}
