//! What time it is, and names that nobody can guess. Given to whoever needs them, so that a test can be at any time and
//! use any name.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use stead_model::clock::{Now, SteadyClock, Timestamp};
use stead_model::ids::Entropy;

pub trait Clock: Send + Sync + Debug {
    /// What it shows.
    fn now(&self) -> Timestamp;

    /// Time that goes on whatever the clock is set to; only differences mean something. Of a clock that nobody sets it is
    /// what it shows.
    fn ticks(&self) -> Duration {
        Duration::from_millis(self.now().0)
    }
}

/// The machine's clock, which may be set while we run.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
    }

    /// Time since the machine was started, asleep or not.
    fn ticks(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
    }
}

/// A clock as a server goes by it while it lives: set forward it is followed, set back it is not, and how much time has
/// passed is what its ticks say (see [`stead_model::clock`]).
#[derive(Debug)]
pub struct Steady {
    clock: Arc<dyn Clock>,
    seen: Mutex<SteadyClock>,
}

impl Steady {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, seen: Mutex::default() }
    }

    pub fn now(&self) -> Timestamp {
        self.seen().read(self.clock.now(), self.clock.ticks())
    }

    /// The present, of which can be asked how much time has passed.
    pub fn present(&self) -> Now {
        self.seen().look(self.clock.now(), self.clock.ticks())
    }

    /// What the clock shows, be it right or wrong: for what is decided by the date.
    pub fn shown(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn ticks(&self) -> Duration {
        self.clock.ticks()
    }

    /// Held while the clock is read: of two who read it, whoever is second has the later moment.
    fn seen(&self) -> MutexGuard<'_, SteadyClock> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for Steady {
    fn now(&self) -> Timestamp {
        Steady::now(self)
    }

    fn ticks(&self) -> Duration {
        Steady::ticks(self)
    }
}

pub trait Names: Send + Sync + Debug {
    fn entropy(&self) -> Entropy;
}

/// Sixteen digits that nobody has used before, for what needs a name for a moment.
pub(crate) fn fresh_digits() -> String {
    RandomNames.entropy().iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"))
}

#[derive(Debug, Clone, Copy, Default)]
pub struct RandomNames;

impl Names for RandomNames {
    fn entropy(&self) -> Entropy {
        let mut bytes = Entropy::default();
        // The kernel's generator fails only before it is seeded, early at boot; a name must then wait, not repeat.
        while getrandom::fill(&mut bytes).is_err() {
            std::thread::yield_now();
        }
        bytes
    }
}
