//! What time it is, and names that nobody can guess. Given to whoever needs them, so that a test can be at any time and
//! use any name.

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use stead_model::clock::Timestamp;
use stead_model::ids::Entropy;

pub trait Clock: Send + Sync + Debug {
    fn now(&self) -> Timestamp;
}

/// The machine's clock, which may be set while we run. Set forward it is followed; set back it is not, and time goes on
/// from where it was: what came later stays later, and no session grows younger.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        static LAST: Mutex<Option<(Duration, Instant)>> = Mutex::new(None);
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let (wall, tick) = (SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(), Instant::now());
        let now = last.map_or(wall, |(at, then)| wall.max(at + tick.saturating_duration_since(then)));
        *last = Some((now, tick));
        Timestamp(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
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
