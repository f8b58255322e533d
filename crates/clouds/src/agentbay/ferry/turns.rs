//! Whether a session does two things at once. Nobody says; if it doesn't, a `take` that waits for output keeps every `put`
//! waiting. So takes wait for a short time, until a `put` was done while a `take` was waiting.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// While nothing is known: a person who types waits no longer than this, and a call comes as often.
const UNPROVEN: Duration = Duration::from_secs(1);

/// A `take` that is under way for so long has arrived; one that has just been sent proves nothing.
const ARRIVED: Duration = Duration::from_millis(400);

/// Much longer than a `put` takes that has nothing to wait for.
const SLOW: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Turns {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taking_since: Option<Instant>,
    proof: Proof,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Proof {
    #[default]
    None,
    /// Two things at once.
    Both,
    /// One after the other, it seems; whatever is seen later.
    One,
}

/// A `put` under way.
#[derive(Debug)]
pub(super) struct Turn {
    began: Instant,
    taking_since: Option<Instant>,
}

/// Ends with the call that it is for.
#[derive(Debug)]
pub(super) struct Taking<'a>(&'a Turns);

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.0.state().taking_since = None;
    }
}

impl Turns {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn longest_wait(&self) -> Duration {
        match self.state().proof {
            Proof::None | Proof::One => UNPROVEN,
            Proof::Both => Duration::MAX,
        }
    }

    pub(super) fn taking(&self, now: Instant) -> Taking<'_> {
        self.state().taking_since = Some(now);
        Taking(self)
    }

    pub(super) fn putting(&self, now: Instant) -> Turn {
        Turn { began: now, taking_since: self.state().taking_since }
    }

    /// A `put` was done.
    pub(super) fn put(&self, turn: &Turn, now: Instant) {
        let mut state = self.state();
        if now.duration_since(turn.began) > SLOW {
            state.proof = Proof::One;
        }
        let is_same = turn.taking_since.is_some() && turn.taking_since == state.taking_since;
        let had_arrived = turn.taking_since.is_some_and(|since| turn.began.duration_since(since) > ARRIVED);
        if state.proof == Proof::None && is_same && had_arrived {
            state.proof = Proof::Both;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_wait_long_once_a_put_was_done_meanwhile() {
        let turns = Turns::default();
        let start = Instant::now();
        let at = |times: u32| start + ARRIVED * 2 * times;
        let taking = turns.taking(at(0));
        // Sent together: it may have been first.
        turns.put(&turns.putting(at(0)), at(0));
        assert_eq!(turns.longest_wait(), UNPROVEN);
        // The take was over before the put was.
        let turn = turns.putting(at(1));
        drop(taking);
        let taking = turns.taking(at(1));
        turns.put(&turn, at(1));
        assert_eq!(turns.longest_wait(), UNPROVEN);
        turns.put(&turns.putting(at(2)), at(2));
        assert_eq!(turns.longest_wait(), Duration::MAX);
        // One that took long says otherwise, and nothing says it again.
        turns.put(&turns.putting(at(3)), at(3) + SLOW * 2);
        turns.put(&turns.putting(at(4)), at(4));
        assert_eq!(turns.longest_wait(), UNPROVEN);
        drop(taking);
    }
}
