//! What time it is, and names that nobody can guess. Given to whoever needs them, so that a test can be at any time and
//! use any name.

use std::fmt::Debug;
use std::time::{SystemTime, UNIX_EPOCH};
use stead_model::clock::Timestamp;
use stead_model::ids::Entropy;

pub trait Clock: Send + Sync + Debug {
    fn now(&self) -> Timestamp;
}

#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
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
