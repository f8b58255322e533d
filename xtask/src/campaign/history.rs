//! What was really done, and when: the plan says when a fault is due, this when it struck.

use super::oracle::Circumstances;
use super::plan::{Fault, Provider};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A fault that hit something.
#[derive(Debug, Clone)]
pub(super) struct Strike {
    pub(super) fault: Fault,
    /// Whose instance, and where that was; `None`: everybody's.
    pub(super) lease: Option<(String, Provider)>,
    pub(super) begun: Instant,
    pub(super) over: Instant,
}

#[derive(Debug, Default)]
pub(super) struct History(Mutex<Vec<Strike>>);

/// A keeper and a steward that are killed so soon one after the other may have been dead together.
const TOGETHER: Duration = Duration::from_secs(5);

/// The kernel ends the processes of a namespace after its first one, in its own time; until then commands reach them. A
/// shell that was killed while it waited for a line may still take one, if it gets the processor late.
const DYING: Duration = Duration::from_secs(1);

impl History {
    pub(super) fn note(&self, strike: Strike) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(strike);
    }

    pub(super) fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(super) fn strikes(&self) -> Vec<Strike> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What was done to instances of these leases while a command was between `sent` and `ended`.
    pub(super) fn circumstances(&self, leases: &[String], sent: Instant, ended: Instant) -> Circumstances {
        let strikes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hits = |strike: &Strike| match &strike.lease {
            Some((lease, _)) => leases.contains(lease),
            None => strike.fault == Fault::All,
        };
        let is_enclosed = |strike: &Strike| matches!(strike.lease, Some((_, Provider::Namespace)));
        let during = |strike: &Strike| {
            let dying = if is_enclosed(strike) || strike.fault == Fault::Shell { DYING } else { Duration::ZERO };
            strike.begun <= ended && strike.over + dying >= sent
        };
        let mut seen = Circumstances::default();
        let server = |strike: &&Strike| matches!(strike.fault, Fault::Server | Fault::All);
        seen.server_killed = strikes.iter().filter(server).any(during);
        for strike in strikes.iter().filter(|strike| hits(strike)) {
            // Shells end with whoever holds their terminals, too.
            seen.shell_killed_before |= strike.fault != Fault::Steward && strike.begun <= ended;
            match strike.fault {
                Fault::Shell => {
                    seen.shell_killed |= during(strike);
                }
                Fault::Instance | Fault::All => seen.instance_killed |= during(strike),
                // The first process of its namespace takes all others with it.
                Fault::Keeper if is_enclosed(strike) => seen.instance_killed |= during(strike),
                Fault::Keeper => {
                    seen.keeper_killed |= strike.begun <= ended;
                    let with_steward =
                        |other: &&Strike| other.fault == Fault::Steward && apart(strike, other) < TOGETHER;
                    let other = strikes.iter().filter(|other| hits(other)).find(with_steward);
                    seen.instance_killed |= other.is_some_and(|other| during(strike) || during(other));
                }
                Fault::Server | Fault::Steward => {}
            }
        }
        seen
    }
}

fn apart(one: &Strike, other: &Strike) -> Duration {
    one.begun.saturating_duration_since(other.begun).max(other.begun.saturating_duration_since(one.begun))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strike(fault: Fault, provider: Provider, at: Instant) -> Strike {
        Strike { fault, lease: Some(("l".to_owned(), provider)), begun: at, over: at }
    }

    fn seen(strikes: &[Strike], lease: &str, from: Instant, to: Instant) -> Circumstances {
        let history = History::default();
        strikes.iter().cloned().for_each(|strike| history.note(strike));
        history.circumstances(&[lease.to_owned()], from, to)
    }

    #[test]
    fn only_what_hit_this_instance_while_it_ran_counts() {
        let now = Instant::now();
        let later = |ms| now + Duration::from_millis(ms);
        let killed = [strike(Fault::Instance, Provider::Local, later(10))];
        assert!(seen(&killed, "l", now, later(20)).instance_killed);
        assert!(!seen(&killed, "l", later(11), later(20)).instance_killed);
        assert!(!seen(&killed, "l", now, later(9)).instance_killed);
        assert!(!seen(&killed, "other", now, later(20)).instance_killed);
    }

    #[test]
    fn a_keeper_alone_takes_its_instance_along_only_where_it_is_the_first_process() {
        let now = Instant::now();
        let keeper = |provider| [strike(Fault::Keeper, provider, now)];
        assert!(seen(&keeper(Provider::Namespace), "l", now, now).instance_killed);
        let local = seen(&keeper(Provider::Local), "l", now, now);
        assert!(!local.instance_killed && local.keeper_killed);
        let both = [strike(Fault::Keeper, Provider::Local, now), strike(Fault::Steward, Provider::Local, now)];
        assert!(seen(&both, "l", now, now).instance_killed);
    }

    #[test]
    fn a_command_may_reach_a_namespace_that_is_just_dying() {
        let now = Instant::now();
        let later = |ms| now + Duration::from_millis(ms);
        let keeper = |provider| [strike(Fault::Keeper, provider, now)];
        assert!(seen(&keeper(Provider::Namespace), "l", later(500), later(600)).instance_killed);
        assert!(!seen(&keeper(Provider::Namespace), "l", later(1500), later(1600)).instance_killed);
        let instance = [strike(Fault::Instance, Provider::Local, now)];
        assert!(!seen(&instance, "l", later(500), later(600)).instance_killed);
        let shell = [strike(Fault::Shell, Provider::Local, now)];
        assert!(seen(&shell, "l", later(500), later(600)).shell_killed);
        assert!(!seen(&shell, "l", later(1500), later(1600)).shell_killed);
    }
}
