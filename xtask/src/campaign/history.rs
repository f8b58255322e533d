//! What was really done, and when: the plan says when a fault is due, this when it struck.

use super::oracle::Circumstances;
use super::plan::{Fault, Provider};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A fault that hit something.
#[derive(Debug, Clone)]
pub(super) struct Strike {
    pub(super) fault: Fault,
    /// Whose instances, and where these were. Of a kill of the server alone there are none.
    pub(super) leases: Vec<(String, Provider)>,
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

    /// What was done to instances of these leases while a command was under way.
    pub(super) fn circumstances(&self, leases: &[String], span: Span) -> Circumstances {
        let strikes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Span { sent, acknowledged, ended, shell_was_well, shell_began } = span;
        let hits = |strike: &Strike| strike.leases.iter().any(|(lease, _)| leases.contains(lease));
        let is_enclosed = |strike: &Strike| strike.leases.iter().any(|(_, provider)| *provider == Provider::Namespace);
        let end_of = |strike: &Strike| {
            let dying = if is_enclosed(strike) || strike.fault == Fault::Shell { DYING } else { Duration::ZERO };
            strike.over + dying
        };
        let during = |strike: &Strike| strike.begun <= ended && end_of(strike) >= sent;
        let since = |moment: Option<Instant>, strike: &Strike| {
            strike.begun <= ended && moment.is_none_or(|moment| end_of(strike) >= moment)
        };
        let mut seen = Circumstances::default();
        let server = |strike: &&Strike| matches!(strike.fault, Fault::Server | Fault::All);
        let before_it_was_taken = |strike: &Strike| during(strike) && acknowledged.is_none_or(|at| strike.begun <= at);
        seen.server_killed_first = strikes.iter().filter(server).any(before_it_was_taken);
        for strike in strikes.iter().filter(|strike| hits(strike)) {
            // Shells end with whoever holds their terminals, too.
            seen.shell_killed_before |= strike.fault != Fault::Steward && since(shell_was_well, strike);
            match strike.fault {
                Fault::Shell => seen.shell_killed |= during(strike),
                Fault::Instance | Fault::All => seen.instance_killed |= during(strike),
                // The first process of its namespace takes all others with it.
                Fault::Keeper if is_enclosed(strike) => seen.instance_killed |= during(strike),
                Fault::Keeper => {
                    seen.keeper_killed |= since(shell_began, strike);
                    let with_steward =
                        |other: &&Strike| other.fault == Fault::Steward && apart(strike, other) < TOGETHER;
                    let other = strikes.iter().filter(|other| hits(other)).find(with_steward);
                    seen.instance_killed |= other.is_some_and(|other| during(strike) || during(other));
                }
                Fault::Steward => seen.steward_killed |= during(strike),
                Fault::Server => {}
            }
        }
        seen
    }
}

/// When a command was under way, and since when its shell can have been harmed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) sent: Instant,
    /// When the server said that it has it; `None`: it said nothing before the end.
    pub(super) acknowledged: Option<Instant>,
    pub(super) ended: Instant,
    /// When the last command before was sent that ended by itself and left its shell alive.
    pub(super) shell_was_well: Option<Instant>,
    /// When the last command before was sent after which the terminal had another shell.
    pub(super) shell_began: Option<Instant>,
}

fn apart(one: &Strike, other: &Strike) -> Duration {
    one.begun.saturating_duration_since(other.begun).max(other.begun.saturating_duration_since(one.begun))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strike(fault: Fault, provider: Provider, at: Instant) -> Strike {
        Strike { fault, leases: vec![("l".to_owned(), provider)], begun: at, over: at }
    }

    fn span(sent: Instant, ended: Instant) -> Span {
        Span { sent, acknowledged: None, ended, shell_was_well: None, shell_began: None }
    }

    fn seen(strikes: &[Strike], lease: &str, from: Instant, to: Instant) -> Circumstances {
        let history = History::default();
        strikes.iter().cloned().for_each(|strike| history.note(strike));
        history.circumstances(&[lease.to_owned()], span(from, to))
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

    #[test]
    fn a_kill_before_a_command_that_found_its_shell_well_excuses_none_after_it() {
        let now = Instant::now();
        let later = |s| now + Duration::from_secs(s);
        let history = History::default();
        history.note(strike(Fault::Shell, Provider::Local, later(1)));
        history.note(strike(Fault::Keeper, Provider::Local, later(1)));
        let told = |well: u64, began: u64| {
            let (shell_was_well, shell_began) = (Some(later(well)), Some(later(began)));
            let span = Span { shell_was_well, shell_began, ..span(later(9), later(10)) };
            let seen = history.circumstances(&["l".to_owned()], span);
            (seen.shell_killed_before, seen.keeper_killed)
        };
        assert_eq!((told(1, 1), told(5, 1), told(1, 5)), ((true, true), (false, true), (true, false)));
    }

    #[test]
    fn a_kill_of_the_server_after_it_took_a_command_is_no_kill_before() {
        let now = Instant::now();
        let later = |ms| now + Duration::from_millis(ms);
        let history = History::default();
        history.note(Strike { fault: Fault::Server, leases: Vec::new(), begun: later(10), over: later(20) });
        let first = |acknowledged| {
            let span = Span { acknowledged, ..span(now, later(50)) };
            history.circumstances(&["l".to_owned()], span).server_killed_first
        };
        assert_eq!((first(None), first(Some(later(5))), first(Some(later(30)))), (true, false, true));
    }
}
