//! Moments, and what has passed between them. Nothing in this crate knows what time it is: whoever asks says so.
//!
//! A machine's clock shows what it was set to. How long something has lasted is another question, and while a server lives
//! it is answered by ticks that nobody can set ([`SteadyClock`]):
//!
//! ```text
//! clock    10:00 ── 10:10 ── set to 12:10 ── 12:20 ── set to 10:30 ── 10:40
//! moment   10:00 ── 10:10 ────── 12:10 ───── 12:20 ───── 12:20 ────── 12:30      never goes back
//! passed    0 min ── 10 min ──── 10 min ──── 20 min ──── 20 min ───── 30 min      whatever the clock was set to
//! ```
//!
//! 1. What came later has the later moment: a clock that is set back is not followed by a server that lives.
//! 2. A clock that is set forward is followed, for it was wrong before. The time that it left out has not passed: nothing
//!    has waited for it, and nothing is over because of it.
//! 3. Ticks begin anew with each server. So what passed between two of them is what the clock says; and a moment that lies
//!    in the future of a server that starts was written by a clock that was wrong: it counts as the start.

use std::fmt;
use std::time::Duration;

/// Milliseconds since the epoch, UTC. Written as RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// How long after `earlier` this is; nothing if it is not (a clock was set back).
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// A clock may differ by this from the ticks, from one look at it to the next, and has not been set.
pub const LEAP: Duration = Duration::from_secs(1);

/// Times that a clock was set forward which are told apart.
const MOST_LEAPS: usize = 64;

/// The clock was set forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Leap {
    /// What it showed then.
    to: Timestamp,
    by: Duration,
}

/// The present moment, with what is known of the way to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Now {
    pub at: Timestamp,
    leaps: Vec<Leap>,
}

impl From<Timestamp> for Now {
    /// By a clock that nobody sets.
    fn from(at: Timestamp) -> Self {
        Self { at, leaps: Vec::new() }
    }
}

impl Now {
    /// How much time has passed since a moment, whatever the clock was set to; nothing if it has not come yet.
    pub fn since(&self, earlier: Timestamp) -> Duration {
        self.at.since(earlier).saturating_sub(self.left_out_since(earlier))
    }

    /// When this much time will have passed since a moment, if the clock is set no more.
    pub fn after(&self, earlier: Timestamp, span: Duration) -> Timestamp {
        earlier.after(span.saturating_add(self.left_out_since(earlier)))
    }

    fn left_out_since(&self, earlier: Timestamp) -> Duration {
        let leaps = self.leaps.iter().filter(|leap| leap.to > earlier);
        leaps.fold(Duration::ZERO, |sum, leap| sum.saturating_add(leap.by))
    }
}

/// Makes moments that never go back of what a clock shows, and notes when it was set forward.
#[derive(Debug, Default)]
pub struct SteadyClock {
    /// The last moment, since the epoch, and the ticks then.
    last: Option<(Duration, Duration)>,
    leaps: Vec<Leap>,
}

impl SteadyClock {
    /// `shown` by the clock; `ticks` of something that nobody sets, read after it.
    pub fn read(&mut self, shown: Timestamp, ticks: Duration) -> Timestamp {
        let shown = Duration::from_millis(shown.0);
        let (mut now, mut left_out) = (shown, Duration::ZERO);
        if let Some((then, before)) = self.last {
            let expected = then.saturating_add(ticks.saturating_sub(before));
            now = shown.max(expected);
            left_out = now.saturating_sub(expected);
        }
        self.last = Some((now, ticks));
        let now = Timestamp(u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        if left_out > LEAP {
            self.leaps.push(Leap { to: now, by: left_out });
            if self.leaps.len() > MOST_LEAPS {
                // Of two that are no longer told apart both count up to the later: nothing is over too early.
                let first = self.leaps.remove(0);
                if let Some(second) = self.leaps.first_mut() {
                    second.by = second.by.saturating_add(first.by);
                }
            }
        }
        now
    }

    /// The same, with the way to it.
    pub fn look(&mut self, shown: Timestamp, ticks: Duration) -> Now {
        let at = self.read(shown, ticks);
        Now { at, leaps: self.leaps.clone() }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = i64::try_from(self.0).unwrap_or(i64::MAX);
        match jiff::Timestamp::from_millisecond(millis) {
            Ok(moment) => write!(f, "{moment:.3}"),
            // Past the year 9999, which only a policy without end can name.
            Err(_) => f.write_str("9999-12-31T23:59:59.999Z"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_in_utc_with_milliseconds() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp(1_763_251_200_042).to_string(), "2025-11-16T00:00:00.042Z");
        assert_eq!(Timestamp(u64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
    }

    const MINUTE: u64 = 60_000;

    /// Looks at a clock that shows this many minutes after this many have passed.
    fn look(clock: &mut SteadyClock, shown: u64, passed: u64) -> Now {
        clock.look(Timestamp(shown * MINUTE), Duration::from_mins(passed))
    }

    fn minutes(moment: u64) -> Timestamp {
        Timestamp(moment * MINUTE)
    }

    #[test]
    fn what_has_passed_is_what_the_ticks_say_however_the_clock_is_set() {
        let mut clock = SteadyClock::default();
        let start = look(&mut clock, 600, 0).at;
        let before = look(&mut clock, 610, 10).at;
        let leapt = look(&mut clock, 730, 10);
        assert_eq!(
            (leapt.at, leapt.since(start), leapt.since(before)),
            (minutes(730), Duration::from_mins(10), Duration::ZERO)
        );
        let later = look(&mut clock, 740, 20);
        assert_eq!((later.since(before), later.since(leapt.at)), (Duration::from_mins(10), Duration::from_mins(10)));
        // Set back to what it should be.
        let back = look(&mut clock, 630, 30);
        assert_eq!(
            (back.at, back.since(start), back.since(leapt.at)),
            (minutes(750), Duration::from_mins(30), Duration::from_mins(20))
        );
        // And forward again, but not beyond what it had shown.
        let again = look(&mut clock, 700, 40);
        assert_eq!((again.at, again.since(start)), (minutes(760), Duration::from_mins(40)));
        assert_eq!(again.after(start, Duration::from_hours(1)), minutes(780), "20 minutes are left of the hour");
        assert_eq!(again.after(leapt.at, Duration::from_hours(1)), minutes(790));
    }

    #[test]
    fn a_moment_never_goes_back_and_time_goes_on_by_less_than_a_millisecond() {
        let mut clock = SteadyClock::default();
        let first = clock.read(Timestamp(9000), Duration::ZERO);
        let mut last = first;
        for tick in 1..=10_000 {
            let now = clock.read(Timestamp(1000), Duration::from_micros(100 * tick));
            assert!(now >= last);
            last = now;
        }
        assert_eq!(last, Timestamp(10_000));
    }

    #[test]
    fn a_clock_that_is_put_right_by_less_than_a_second_was_not_set() {
        let mut clock = SteadyClock::default();
        let start = clock.read(Timestamp(1000), Duration::ZERO);
        let now = clock.look(Timestamp(2900), Duration::from_secs(1));
        assert_eq!(now.since(start), Duration::from_millis(1900));
        let now = clock.look(Timestamp(4901), Duration::from_secs(2));
        assert_eq!(now.since(start), Duration::from_millis(2900));
    }

    #[test]
    fn a_clock_that_is_set_again_and_again_makes_nothing_older() {
        let mut clock = SteadyClock::default();
        let mut moments = vec![look(&mut clock, 0, 0).at];
        for number in 1..=200 {
            moments.push(look(&mut clock, number * 100, number).at);
        }
        let now = look(&mut clock, 20_000, 200);
        for (number, moment) in moments.iter().enumerate() {
            let passed = Duration::from_mins(200 - number as u64);
            assert!(now.since(*moment) <= passed, "{number}");
            if number > 200 - MOST_LEAPS {
                assert_eq!(now.since(*moment), passed, "{number}");
            }
        }
        assert!(now.leaps.len() <= MOST_LEAPS);
    }

    #[test]
    fn a_clock_that_was_set_back_gives_no_negative_time() {
        assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
        assert_eq!(Timestamp(9).since(Timestamp(5)), Duration::from_millis(4));
        assert_eq!(Timestamp(u64::MAX).after(Duration::from_secs(1)), Timestamp(u64::MAX));
    }
}
