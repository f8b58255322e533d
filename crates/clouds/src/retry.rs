//! When a call is made again. Only calls that may be made twice are, and only for troubles that pass; each wait is random
//! below twice the one before, and all of them together stay within a budget.

use crate::{CloudError, Trouble};
use std::time::Duration;

/// A value of the caller's, not a layer: who may be asked twice is said where the call is made.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    pub first_wait: Duration,
    pub longest_wait: Duration,
    /// For all waits together.
    pub budget: Duration,
}

pub const PATIENT: Policy = Policy {
    first_wait: Duration::from_millis(200),
    longest_wait: Duration::from_secs(5),
    budget: Duration::from_secs(20),
};

impl Policy {
    /// How long to wait before the attempt after `attempt` (from 0), having waited `spent`; none: give up. `chance` is in
    /// 0..1.
    pub fn wait(&self, error: &CloudError, attempt: u32, spent: Duration, chance: f64) -> Option<Duration> {
        let passes = match error.trouble {
            Trouble::Unavailable | Trouble::UsedUp | Trouble::TimedOut => true,
            // Only where the cloud says when to come again: a quota that is used up stays used up.
            Trouble::Exhausted => error.after.is_some(),
            Trouble::NotFound
            | Trouble::Conflict
            | Trouble::Denied
            | Trouble::NoSpace
            | Trouble::Unsupported
            | Trouble::Broken => false,
        };
        if !passes {
            return None;
        }
        let most = self.first_wait.saturating_mul(1 << attempt.min(16)).min(self.longest_wait);
        let chance = chance.clamp(0.0, 1.0);
        // Not all who were told the same moment come back in it.
        let after = error.after.map(|after| after + self.first_wait.mul_f64(chance));
        let wait = after.unwrap_or_else(|| most.mul_f64(0.5 + chance / 2.0));
        (spent + wait <= self.budget).then_some(wait)
    }

    /// Makes a call that may be made twice, until it succeeds or it makes no sense to go on.
    pub async fn call<T, F>(&self, mut attempt: impl FnMut() -> F) -> Result<T, CloudError>
    where
        F: Future<Output = Result<T, CloudError>>,
    {
        let mut spent = Duration::ZERO;
        for round in 0.. {
            let error = match attempt().await {
                Err(error) => error,
                done => return done,
            };
            let Some(wait) = self.wait(&error, round, spent, chance()) else { return Err(error) };
            tracing::debug!(%error, ?wait, "trying again");
            tokio::time::sleep(wait).await;
            spent += wait;
        }
        unreachable!("the budget ends it")
    }
}

fn chance() -> f64 {
    getrandom::u32().map_or(0.5, |bits| f64::from(bits) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Effect;

    fn error(trouble: Trouble, after: Option<Duration>) -> CloudError {
        CloudError { after, ..CloudError::new("look", trouble, Effect::None, "") }
    }

    #[test]
    fn waits_grow_within_their_bounds_and_end_with_the_budget() {
        let unavailable = error(Trouble::Unavailable, None);
        let waits: Vec<_> = (0..8).map_while(|n| PATIENT.wait(&unavailable, n, Duration::ZERO, 1.0)).collect();
        assert_eq!(
            waits.iter().map(Duration::as_millis).collect::<Vec<_>>(),
            [200, 400, 800, 1600, 3200, 5000, 5000, 5000]
        );
        assert_eq!(PATIENT.wait(&unavailable, 0, Duration::ZERO, 0.0), Some(Duration::from_millis(100)));
        assert_eq!(PATIENT.wait(&unavailable, 0, PATIENT.budget, 1.0), None);
    }

    #[test]
    fn the_cloud_s_own_word_counts_and_what_does_not_pass_is_not_tried_again() {
        let later = Some(Duration::from_secs(3));
        assert_eq!(PATIENT.wait(&error(Trouble::Exhausted, later), 0, Duration::ZERO, 0.0), later);
        let scattered = PATIENT.wait(&error(Trouble::Exhausted, later), 0, Duration::ZERO, 1.0);
        assert_eq!(scattered, Some(Duration::from_millis(3200)));
        let too_late = Some(Duration::from_mins(1));
        for (trouble, after) in [
            (Trouble::Exhausted, None),
            (Trouble::Exhausted, too_late),
            (Trouble::NotFound, None),
            (Trouble::Conflict, None),
            (Trouble::Denied, None),
            (Trouble::Unsupported, None),
            (Trouble::Broken, None),
        ] {
            assert_eq!(PATIENT.wait(&error(trouble, after), 0, Duration::ZERO, 1.0), None, "{trouble:?}");
        }
    }
}
