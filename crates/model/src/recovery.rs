//! What becomes of a command that a steward left open when it died. A command runs at most once: it is started only if
//! the shell certainly never had it and nobody has asked for its end.

use crate::proto::{CancelReason, Ending, Fault, Status};

/// Whether the line that runs the command was put into the shell's control FIFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handover {
    NotGiven,
    Given,
    /// The file that tells is missing: a steward that did not keep one had started the shell.
    Unknown,
}

/// What is known of a command that was noted as started and has no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenCommand {
    pub handover: Handover,
    pub cancelled: Option<CancelReason>,
    /// Its time-out has passed.
    pub overdue: bool,
    /// It has written something, or somebody holds its streams: the shell has it.
    pub seen: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextStep {
    /// Nobody ever gave it to the shell: it waits for its turn, which is the next.
    Start,
    /// Nobody ever gave it to the shell, and now nobody will.
    End(Ending),
    /// The shell has it. It will report; if it answers a query without a report, something interrupted the command.
    Adopt,
    /// The shell may have it. If it answers a query without a report, the outcome is unknown.
    AdoptInDoubt,
}

impl OpenCommand {
    pub fn next_step(&self) -> NextStep {
        match self.handover {
            Handover::Given => NextStep::Adopt,
            Handover::NotGiven | Handover::Unknown if self.seen => NextStep::Adopt,
            Handover::Unknown => NextStep::AdoptInDoubt,
            Handover::NotGiven => match self.cancelled {
                Some(reason) => NextStep::End(ending_unstarted(reason)),
                None if self.overdue => NextStep::End(ending_unstarted(CancelReason::TimedOut)),
                None => NextStep::Start,
            },
        }
    }
}

/// A command that was told to end before the shell had it.
pub fn ending_unstarted(reason: CancelReason) -> Ending {
    match reason {
        CancelReason::Asked(_) => Ending::new(Status::Cancelled, Some(-1)),
        CancelReason::TimedOut => Ending::new(Status::TimedOut, Some(-1)),
    }
}

/// A command that was told to end and got a signal for it.
pub fn ending_stopped(reason: CancelReason) -> Ending {
    match reason {
        CancelReason::Asked(_) => Ending::new(Status::Cancelled, Some(130)),
        CancelReason::TimedOut => Ending::new(Status::TimedOut, Some(-1)),
    }
}

/// A command of which nobody knows whether it ran, and which runs no more.
pub fn ending_in_doubt(cancelled: Option<CancelReason>) -> Ending {
    cancelled.map_or_else(|| Ending::new(Status::Lost, None), ending_stopped)
}

/// A command that no shell gets any more. A follower who was told that it has started is not to hear that it never ran
/// (`failed`): the command is lost then.
pub fn ending_without_shell(was_started: bool, fault: Fault) -> Ending {
    let status = if was_started { Status::Lost } else { Status::Failed };
    Ending { error: Some(fault), ..Ending::new(status, None) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{FaultCode, FirstSignal};

    const ASKED: CancelReason = CancelReason::Asked(FirstSignal::Interrupt);

    fn every_case() -> Vec<OpenCommand> {
        let mut cases = Vec::new();
        for handover in [Handover::NotGiven, Handover::Given, Handover::Unknown] {
            for cancelled in [None, Some(ASKED), Some(CancelReason::TimedOut)] {
                for (overdue, seen) in [(false, false), (false, true), (true, false), (true, true)] {
                    cases.push(OpenCommand { handover, cancelled, overdue, seen });
                }
            }
        }
        cases
    }

    #[test]
    fn only_a_command_that_was_never_given_and_not_told_to_end_is_started() {
        for case in every_case() {
            let may_start = case.handover == Handover::NotGiven && !case.seen;
            let is_to_end = case.cancelled.is_some() || case.overdue;
            assert_eq!(case.next_step() == NextStep::Start, may_start && !is_to_end, "{case:?}");
        }
    }

    #[test]
    fn what_was_never_given_and_told_to_end_ends_as_it_was_told() {
        let never = OpenCommand { handover: Handover::NotGiven, cancelled: None, overdue: false, seen: false };
        let cancelled = NextStep::End(Ending::new(Status::Cancelled, Some(-1)));
        let timed_out = NextStep::End(Ending::new(Status::TimedOut, Some(-1)));
        assert_eq!(OpenCommand { cancelled: Some(ASKED), ..never }.next_step(), cancelled);
        assert_eq!(OpenCommand { cancelled: Some(CancelReason::TimedOut), ..never }.next_step(), timed_out);
        assert_eq!(OpenCommand { overdue: true, ..never }.next_step(), timed_out);
        // It was cancelled first; that its time has passed since makes no difference.
        assert_eq!(OpenCommand { cancelled: Some(ASKED), overdue: true, ..never }.next_step(), cancelled);
    }

    #[test]
    fn doubt_is_an_unknown_outcome_unless_the_end_was_asked_for() {
        assert_eq!(ending_in_doubt(None), Ending::new(Status::Lost, None));
        assert_eq!(ending_in_doubt(Some(ASKED)), Ending::new(Status::Cancelled, Some(130)));
        assert_eq!(ending_in_doubt(Some(CancelReason::TimedOut)), Ending::new(Status::TimedOut, Some(-1)));
    }

    #[test]
    fn what_was_told_to_have_started_never_fails() {
        let fault = Fault::new(FaultCode::Unavailable, "no shell");
        let ending = |was_started| ending_without_shell(was_started, fault.clone());
        assert_eq!((ending(false).status, ending(true).status), (Status::Failed, Status::Lost));
        assert!(ending(true).error.is_some_and(|error| error.message == "no shell"));
    }
}
