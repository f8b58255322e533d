//! Chance that repeats itself.

use std::sync::{Arc, Mutex, PoisonError};
use stead_model::ids::Entropy;
use stead_server::clock::Names;

/// splitmix64.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Seeds next to each other have nothing in common; nor have the streams of one seed. So where they begin is thrown,
    /// too: dice that begin one step after others would go the same way as they.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut first = Self(seed);
        let mut second = Self(first.next() ^ stream);
        Self(second.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `most`.
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.next() % most.max(1)
    }

    pub(crate) fn in_(&mut self, hundred: u64) -> bool {
        self.below(100) < hundred
    }

    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let at = usize::try_from(self.below(of.len() as u64)).ok()?;
        of.get(at).cloned()
    }
}

/// Dice that many hold.
#[derive(Debug, Clone)]
pub(crate) struct Shared(Arc<Mutex<Dice>>);

impl Shared {
    pub(crate) fn new(dice: Dice) -> Self {
        Self(Arc::new(Mutex::new(dice)))
    }

    pub(crate) fn with<T>(&self, use_: impl FnOnce(&mut Dice) -> T) -> T {
        use_(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Names for Shared {
    fn entropy(&self) -> Entropy {
        self.with(|dice| dice.next().to_be_bytes())
    }
}
