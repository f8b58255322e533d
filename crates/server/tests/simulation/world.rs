//! The world of one schedule: what outlives every server in it, and the server that lives now.

use crate::dice::{Dice, Shared};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stead_model::clock::Timestamp;
use stead_model::ids::{InstanceId, ProviderName, ThreadId};
use stead_server::clock::Clock;
use stead_server::pace::Pace;
use stead_server::provider::Providers;
use stead_server::provider::fake::{Fake, Shells};
use stead_server::stead::{OnExit, Parts, Settings, Treatment};
use stead_server::store::{MemoryStore, Page, Store};

/// Some day in 2025.
const EPOCH: u64 = 1_763_251_200_000;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) fake: Fake,
    pub(crate) store: MemoryStore,
    pub(crate) clock: Arc<Wall>,
    pub(crate) threads: Vec<ThreadId>,
    pub(crate) durable: bool,
    /// Instances that were put there behind everybody's back.
    pub(crate) abandoned: BTreeSet<InstanceId>,
    pace: Pace,
    names: Shared,
    settings: Settings,
    trace: Trace,
}

/// What happened, line by line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace(Option<Arc<Mutex<Vec<String>>>>);

impl Trace {
    /// Most schedules go well, and nobody reads of them.
    pub(crate) fn new(wanted: bool) -> Self {
        Self(wanted.then(Arc::default))
    }

    pub(crate) fn tell(&self, line: impl FnOnce() -> String) {
        if let Some(lines) = &self.0 {
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(line());
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let lines = self.0.iter().flat_map(|lines| lines.lock().unwrap_or_else(PoisonError::into_inner).clone());
        lines.collect()
    }
}

impl World {
    pub(crate) fn new(seed: u64, plan: &mut Dice, trace: Trace) -> Self {
        let provider = ProviderName::parse("toy").unwrap();
        // Half of the worlds are polite: most calls wait for nobody, and races are between few.
        let most = if plan.in_(50) { 2 } else { 5 };
        let turns = Shared::new(Dice::new(seed, 1));
        let pace = Pace::new(move || {
            turns.with(|dice| if dice.in_(50) { 0 } else { u32::try_from(dice.below(most)).unwrap_or(0) })
        });
        let (pauses, durable) = (!plan.in_(20), plan.in_(40));
        let mut fake = Fake::new(provider.clone(), Shells::Toy).paced(pace.clone());
        if !pauses {
            fake = fake.without_pause();
        }
        if durable {
            fake = fake.durable();
        }
        let on_exit = plan.pick(&[OnExit::Leave, OnExit::Pause, OnExit::Destroy]).unwrap_or_default();
        let on_exit = if pauses || on_exit != OnExit::Pause { on_exit } else { OnExit::Leave };
        let treatment = Treatment { on_exit, init_commands: Vec::new() };
        let count = 3 + plan.below(3);
        Self {
            fake,
            store: MemoryStore::default(),
            clock: Arc::new(Wall::default()),
            threads: (0..count).map(|n| ThreadId::parse(&format!("t{n}")).unwrap()).collect(),
            durable,
            abandoned: BTreeSet::new(),
            pace,
            names: Shared::new(Dice::new(seed, 2)),
            settings: Settings {
                default_provider: provider.clone(),
                treatments: [(provider, treatment)].into(),
                reap_every: Duration::from_mins(10),
            },
            trace,
        }
    }

    /// What the next server is started with.
    pub(crate) fn parts(&self) -> Parts {
        let providers = Providers::new([Arc::new(self.fake.clone()) as _]);
        let mut parts = Parts::new(Arc::new(self.store.paced(self.pace.clone())), providers, self.settings.clone());
        parts.clock = Arc::clone(&self.clock) as _;
        parts.names = Arc::new(self.names.clone());
        parts
    }

    /// Of two servers each may have made an instance; one of them is nobody's, and must be listed as such.
    pub(crate) async fn excuse_orphans(&mut self) {
        let leases = self.store.leases(None, &Page::all()).await.unwrap();
        for (handle, _) in self.fake.truth() {
            if !leases.iter().any(|lease| lease.instance.as_ref() == Some(&handle.instance)) {
                self.abandoned.insert(handle.instance);
            }
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn passed(&self) -> Timestamp {
        self.clock.passed()
    }

    pub(crate) fn trace(&self) -> &Trace {
        &self.trace
    }
}

/// A clock that goes with the runtime's time, and is set now and then.
#[derive(Debug)]
pub(crate) struct Wall {
    /// What it showed when the runtime began.
    base: AtomicU64,
    /// The time that had passed by then, whatever it was set to.
    passed: AtomicU64,
    was_set_back: AtomicBool,
    since: Mutex<Option<tokio::time::Instant>>,
}

impl Default for Wall {
    fn default() -> Self {
        Self {
            base: AtomicU64::new(EPOCH),
            passed: AtomicU64::new(0),
            was_set_back: AtomicBool::new(false),
            since: Mutex::default(),
        }
    }
}

impl Wall {
    /// Time goes on in another runtime.
    pub(crate) fn start(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Some(tokio::time::Instant::now());
    }

    /// The runtime is about to be dropped.
    pub(crate) fn halt(&self) {
        let (now, passed) = (self.now(), self.passed());
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.base.store(now.0, Ordering::Relaxed);
        self.passed.store(passed.0, Ordering::Relaxed);
    }

    /// Time passes.
    pub(crate) fn pass(&self, time: u64) {
        self.base.fetch_add(time, Ordering::Relaxed);
        self.passed.fetch_add(time, Ordering::Relaxed);
    }

    /// No time passes, whatever it shows from now on.
    pub(crate) fn set_ahead(&self, by: u64) {
        self.base.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn set_back(&self, by: u64) {
        self.base.fetch_sub(by, Ordering::Relaxed);
        self.was_set_back.store(true, Ordering::Relaxed);
    }

    pub(crate) fn was_set_back(&self) -> bool {
        self.was_set_back.load(Ordering::Relaxed)
    }

    /// How much time has passed since the beginning of the world. It is no moment, but compared as one.
    pub(crate) fn passed(&self) -> Timestamp {
        Timestamp(self.passed.load(Ordering::Relaxed) + self.running())
    }

    fn running(&self) -> u64 {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = since.map_or(Duration::ZERO, |since| tokio::time::Instant::now().duration_since(since));
        u64::try_from(gone.as_millis()).unwrap_or(0)
    }
}

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        Timestamp(self.base.load(Ordering::Relaxed) + self.running())
    }

    fn ticks(&self) -> Duration {
        Duration::from_millis(self.passed().0)
    }
}
