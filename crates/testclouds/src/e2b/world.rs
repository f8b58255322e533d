//! The sandboxes, and what becomes of them.
//!
//! ```text
//! running --pause, or its time is over--> paused --connect--> running     (the same machine, another token)
//! running --its time is over, without autoPause--> gone
//! running, paused --delete--> gone
//! ```

use super::process::Processes;
use crate::faults::Faults;
use crate::machine::Machine;
use jiff::Timestamp;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
pub(super) struct World {
    pub faults: Faults,
    pub clock: Arc<Clock>,
    sandboxes: Mutex<BTreeMap<u64, Arc<Sandbox>>>,
    /// Of creations that had an idempotency key.
    pub keys: Mutex<HashMap<String, String>>,
    violations: Mutex<Vec<String>>,
    /// The most that a list gives at once.
    pub page: AtomicUsize,
}

impl Default for World {
    fn default() -> Self {
        Self {
            faults: Faults::default(),
            clock: Arc::default(),
            sandboxes: Mutex::default(),
            keys: Mutex::default(),
            violations: Mutex::default(),
            page: AtomicUsize::new(100),
        }
    }
}

/// As fast as time, and ahead of it when a test wants so.
#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    ahead: Mutex<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Running,
    Paused,
}

/// What it is to be.
#[derive(Debug, Clone)]
pub(super) struct Made {
    pub template: String,
    pub timeout: Duration,
    pub auto_pause: bool,
    pub internet: Option<bool>,
    pub metadata: BTreeMap<String, String>,
    pub env: BTreeMap<String, String>,
}

#[derive(Debug)]
pub(super) struct Sandbox {
    pub id: String,
    /// In the order in which they were made.
    pub number: u64,
    pub made: Made,
    pub started: Timestamp,
    pub processes: Processes,
    life: Mutex<Life>,
}

#[derive(Debug)]
struct Life {
    state: State,
    /// None: it is lost.
    machine: Option<Arc<Machine>>,
    token: String,
    /// By the clock.
    ends: Duration,
    /// Over when it is paused, killed or lost: every connection to it is cut.
    awake: CancellationToken,
    mute: bool,
}

/// What the daemon is asked with.
#[derive(Debug, Clone)]
pub(super) struct Awake {
    pub machine: Arc<Machine>,
    pub token: String,
    pub until_cut: CancellationToken,
    pub mute: bool,
}

impl World {
    pub(super) fn violation(&self, what: impl Into<String>) {
        self.violations.lock().unwrap().push(what.into());
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap().clone()
    }

    pub(super) async fn create(&self, made: Made) -> Arc<Sandbox> {
        let machine = blocking(|| Machine::start().unwrap()).await;
        let mut sandboxes = self.sandboxes.lock().unwrap();
        let number = sandboxes.keys().next_back().map_or(1, |last| last + 1);
        let life = Life {
            state: State::Running,
            machine: Some(Arc::new(machine)),
            token: random("ea_"),
            ends: self.clock.now() + made.timeout,
            awake: CancellationToken::new(),
            mute: false,
        };
        let sandbox = Arc::new(Sandbox {
            id: random("i"),
            number,
            made,
            started: Timestamp::now(),
            processes: Processes::default(),
            life: Mutex::new(life),
        });
        sandboxes.insert(number, Arc::clone(&sandbox));
        sandbox
    }

    /// Without those whose machine has ended by itself: whoever runs the machines sees that.
    pub(super) fn all(&self) -> Vec<Arc<Sandbox>> {
        let all: Vec<_> = self.sandboxes.lock().unwrap().values().cloned().collect();
        let (ended, there): (Vec<_>, _) = all.into_iter().partition(|sandbox| sandbox.has_ended());
        for sandbox in ended {
            self.kill(&sandbox);
        }
        there
    }

    pub(super) fn sandbox(&self, id: &str) -> Option<Arc<Sandbox>> {
        self.all().into_iter().find(|sandbox| sandbox.id == id)
    }

    pub(super) fn kill(&self, sandbox: &Sandbox) {
        self.sandboxes.lock().unwrap().remove(&sandbox.number);
        sandbox.lose();
    }

    pub(super) async fn expire(&self) {
        let now = self.clock.now();
        for sandbox in self.all() {
            if sandbox.state() == State::Running && sandbox.ends() <= now {
                if sandbox.made.auto_pause {
                    sandbox.pause().await;
                } else {
                    self.kill(&sandbox);
                }
            }
        }
    }

    pub(super) fn clear(&self) {
        for sandbox in self.all() {
            self.kill(&sandbox);
        }
    }
}

impl Sandbox {
    pub(super) fn state(&self) -> State {
        self.life.lock().unwrap().state
    }

    pub(super) fn ends(&self) -> Duration {
        self.life.lock().unwrap().ends
    }

    pub(super) fn token(&self) -> String {
        self.life.lock().unwrap().token.clone()
    }

    /// None when it sleeps or is lost.
    pub(super) fn awake(&self) -> Option<Awake> {
        let life = self.life.lock().unwrap();
        let machine = life.machine.clone().filter(|_| life.state == State::Running)?;
        Some(Awake { machine, token: life.token.clone(), until_cut: life.awake.clone(), mute: life.mute })
    }

    /// Whether it ran. Everything in it stands still when this returns.
    pub(super) async fn pause(&self) -> bool {
        let machine = {
            let mut life = self.life.lock().unwrap();
            if life.state == State::Paused {
                return false;
            }
            life.state = State::Paused;
            life.awake.cancel();
            life.machine.clone()
        };
        blocking(move || machine.inspect(|machine| machine.set_frozen(true))).await;
        true
    }

    /// Whether it slept. Its time is made longer, never shorter.
    pub(super) async fn connect(&self, until: Duration) -> bool {
        let machine = {
            let mut life = self.life.lock().unwrap();
            life.ends = life.ends.max(until);
            if life.state == State::Running {
                return false;
            }
            life.ends = until;
            life.machine.clone()
        };
        blocking(move || machine.inspect(|machine| machine.set_frozen(false))).await;
        let mut life = self.life.lock().unwrap();
        life.token = random("ea_");
        life.awake = CancellationToken::new();
        life.state = State::Running;
        true
    }

    pub(super) fn set_ends(&self, ends: Duration) {
        self.life.lock().unwrap().ends = ends;
    }

    /// Its machine is gone, and everything in it.
    pub(super) fn lose(&self) {
        let machine = {
            let mut life = self.life.lock().unwrap();
            life.awake.cancel();
            life.machine.take()
        };
        // Whoever still has it has one in which nothing runs. What is stopped can be killed all the same.
        machine.inspect(|machine| machine.end());
    }

    /// Its machine, asleep or awake; none if it is lost.
    pub(super) fn machine(&self) -> Option<Arc<Machine>> {
        self.life.lock().unwrap().machine.clone()
    }

    fn has_ended(&self) -> bool {
        self.machine().is_some_and(|machine| !machine.is_alive())
    }

    pub(super) fn mute(&self) {
        self.life.lock().unwrap().mute = true;
    }

    pub(super) fn is_mute(&self) -> bool {
        self.life.lock().unwrap().mute
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self { start: Instant::now(), ahead: Mutex::default() }
    }
}

impl Clock {
    pub(super) fn now(&self) -> Duration {
        self.start.elapsed() + *self.ahead.lock().unwrap()
    }

    pub(super) fn advance(&self, by: Duration) {
        *self.ahead.lock().unwrap() += by;
    }
}

pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

fn random(prefix: &str) -> String {
    format!("{prefix}{:016x}", getrandom::u64().unwrap())
}
