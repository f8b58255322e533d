//! Numbers that repeat with their seed (`SplitMix64`), so that a plan can be made again.

#[derive(Debug, Clone)]
pub(super) struct Chance(u64);

impl Chance {
    /// Every `stream` of a seed is a sequence of its own.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut chance = Self(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        chance.next();
        chance
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to `limit`, which is not among them.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    pub(super) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    pub(super) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// An exit code: most often 0, as in life.
    pub(super) fn code(&mut self) -> u8 {
        if self.one_in(2) { 0 } else { u8::try_from(self.below(256)).unwrap_or(1) }
    }
}
