//! A chat session: a window on a terminal, open for as long as it is used and no longer than it may be. Closing it ends
//! the runtime; terminal and lease stay.
//!
//! ```text
//! active ◄──► idle            every live one ──► closed
//!    ▲  ╲    ╱                every live one ──► failed ──► closed
//!    │   ▼  ▼
//!    └─ paused
//! ```
//!
//! How long it is open and unused is the time that has passed ([`crate::clock`]), not what a clock was set to meanwhile: a
//! clock that is set forward under a living server closes nothing early, one that is set back keeps nothing open longer.
//! Between two servers it is what the clock says; what the next one finds in the future counts from its start
//! ([`Session::found`]).

use crate::clock::{Now, Timestamp};
use crate::ids::{LeaseId, ProjectId, SessionId, TerminalId, ThreadId, TokenId};
use std::fmt;
use std::time::Duration;

/// Without a command for this long a session is idle rather than active.
pub const IDLE_AFTER: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub idle_timeout: Duration,
    pub max_duration: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self { idle_timeout: Duration::from_hours(1), max_duration: Duration::from_hours(24) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    Active,
    Idle,
    Paused,
    Closed,
    Failed,
}

impl Status {
    pub const ALL: [Self; 5] = [Self::Active, Self::Idle, Self::Paused, Self::Closed, Self::Failed];

    /// One that is live holds its terminal: there is one such for each.
    pub fn is_live(self) -> bool {
        match self {
            Self::Active | Self::Idle | Self::Paused => true,
            Self::Closed | Self::Failed => false,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Idle => "idle",
            Self::Paused => "paused",
            Self::Closed => "closed",
            Self::Failed => "failed",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// Its maximum duration was over.
    Expired,
    IdleTimeout,
    /// Another one was opened on its terminal.
    Superseded,
    ServerRestart,
    /// Somebody asked for it.
    Closed,
    /// Its thread, terminal or instance was destroyed.
    Destroyed,
    /// Its runtime can't be had any more.
    RuntimeLost,
}

impl CloseReason {
    pub const ALL: [Self; 7] = [
        Self::Expired,
        Self::IdleTimeout,
        Self::Superseded,
        Self::ServerRestart,
        Self::Closed,
        Self::Destroyed,
        Self::RuntimeLost,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::IdleTimeout => "idle_timeout",
            Self::Superseded => "superseded",
            Self::ServerRestart => "server_restart",
            Self::Closed => "closed",
            Self::Destroyed => "destroyed",
            Self::RuntimeLost => "runtime_lost",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub id: SessionId,
    pub thread: ThreadId,
    pub terminal: TerminalId,
    pub lease: LeaseId,
    pub status: Status,
    pub policy: Policy,
    pub started_at: Timestamp,
    pub last_active_at: Timestamp,
    /// Both present once it has ended.
    pub ended: Option<(Timestamp, CloseReason)>,
    /// The project of its thread, whose record it is also when the thread is gone.
    pub project: Option<ProjectId>,
    /// Who opened it: the token's id; absent where the server did by itself, or nobody said.
    pub opened_by: Option<TokenId>,
    /// Grows by one with each change; every write names the one it saw.
    pub version: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// A command or a file operation.
    Touch,
    /// Nobody has used it for [`IDLE_AFTER`].
    FellIdle,
    Paused,
    Resumed,
    /// Its runtime broke.
    Failed,
    Close(CloseReason),
}

impl Input {
    fn as_str(self) -> &'static str {
        match self {
            Self::Touch => "touch",
            Self::FellIdle => "idle",
            Self::Paused => "pause",
            Self::Resumed => "resume",
            Self::Failed => "fail",
            Self::Close(_) => "close",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("session `{session}` is `{from}`: `{input}` can't happen to it")]
pub struct IllegalTransition {
    pub session: SessionId,
    pub from: Status,
    pub input: &'static str,
}

impl Session {
    pub fn open(
        id: SessionId,
        thread: ThreadId,
        (terminal, lease): (TerminalId, LeaseId),
        policy: Policy,
        now: Timestamp,
    ) -> Self {
        Self {
            id,
            thread,
            terminal,
            lease,
            status: Status::Active,
            policy,
            started_at: now,
            last_active_at: now,
            ended: None,
            project: None,
            opened_by: None,
            version: 0,
        }
    }

    pub fn apply(&self, input: Input, now: Timestamp) -> Result<Self, IllegalTransition> {
        let mut next = self.clone();
        next.version += 1;
        next.status = match (self.status, input) {
            (Status::Active | Status::Idle, Input::Touch) => {
                // A clock that was set back makes nobody older.
                next.last_active_at = now.max(self.last_active_at);
                Status::Active
            }
            (Status::Active | Status::Idle, Input::FellIdle) => Status::Idle,
            (Status::Active | Status::Idle, Input::Paused) => Status::Paused,
            (Status::Paused, Input::Resumed) => {
                next.last_active_at = now.max(self.last_active_at);
                Status::Active
            }
            (Status::Active | Status::Idle | Status::Paused, Input::Failed) => Status::Failed,
            (Status::Active | Status::Idle | Status::Paused | Status::Failed, Input::Close(reason)) => {
                next.ended = Some((now, reason));
                Status::Closed
            }
            (Status::Paused, Input::Touch | Input::FellIdle | Input::Paused)
            | (Status::Active | Status::Idle, Input::Resumed)
            | (Status::Failed, Input::Touch | Input::FellIdle | Input::Paused | Input::Resumed | Input::Failed)
            | (Status::Closed, _) => {
                return Err(IllegalTransition { session: self.id.clone(), from: self.status, input: input.as_str() });
            }
        };
        Ok(next)
    }

    /// As it is to whoever looks at it now: used when it was last used, idle if that was a while ago and nothing runs.
    /// What is written down follows later; looking writes nothing.
    pub fn present(&self, last_used: Timestamp, busy: bool, now: impl Into<Now>) -> Self {
        let last_active_at = last_used.max(self.last_active_at);
        let unused = now.into().since(last_active_at);
        let status = match self.status {
            Status::Active | Status::Idle if busy || unused <= IDLE_AFTER => Status::Active,
            Status::Active | Status::Idle => Status::Idle,
            other @ (Status::Paused | Status::Closed | Status::Failed) => other,
        };
        Self { status, last_active_at, ..self.clone() }
    }

    /// As a server that starts now takes it over, if that is different: what lies in the future was written by a clock
    /// that was wrong, and would keep it open until then.
    pub fn found(&self, now: Timestamp) -> Option<Self> {
        let found = Self {
            started_at: self.started_at.min(now),
            last_active_at: self.last_active_at.min(now),
            version: self.version + 1,
            ..self.clone()
        };
        (found.started_at != self.started_at || found.last_active_at != self.last_active_at).then_some(found)
    }

    /// Why it should be closed now, if it should: strictly more than the policy allows. A policy of nothing expires at
    /// once: a moment later.
    pub fn expiry(&self, now: impl Into<Now>) -> Option<CloseReason> {
        let now = now.into();
        if now.since(self.started_at) > self.policy.max_duration {
            Some(CloseReason::Expired)
        } else if now.since(self.last_active_at) > self.policy.idle_timeout {
            Some(CloseReason::IdleTimeout)
        } else {
            None
        }
    }

    /// The earlier of the two ends, if nothing more happens.
    pub fn expires_at(&self, now: &Now) -> Timestamp {
        let idle = now.after(self.last_active_at, self.policy.idle_timeout);
        idle.min(now.after(self.started_at, self.policy.max_duration))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SteadyClock;

    const MINUTE: u64 = 60_000;

    fn session(status: Status) -> Session {
        let made = (TerminalId::made_of([1; 8]), LeaseId::made_of([2; 8]));
        let thread = ThreadId::parse("t").unwrap();
        let session = Session::open(SessionId::made_of([3; 8]), thread, made, Policy::default(), Timestamp(1000));
        Session { status, ..session }
    }

    #[test]
    fn every_status_answers_every_input() {
        use Status::{Active, Closed, Failed, Idle, Paused};
        let inputs = [
            Input::Touch,
            Input::FellIdle,
            Input::Paused,
            Input::Resumed,
            Input::Failed,
            Input::Close(CloseReason::Closed),
        ];
        let expected = [
            (Active, [Some(Active), Some(Idle), Some(Paused), None, Some(Failed), Some(Closed)]),
            (Idle, [Some(Active), Some(Idle), Some(Paused), None, Some(Failed), Some(Closed)]),
            (Paused, [None, None, None, Some(Active), Some(Failed), Some(Closed)]),
            (Closed, [None; 6]),
            (Failed, [None, None, None, None, None, Some(Closed)]),
        ];
        for (from, row) in expected {
            for (input, to) in inputs.into_iter().zip(row) {
                let answer = session(from).apply(input, Timestamp(2000));
                match (&answer, to) {
                    (Ok(after), Some(to)) => {
                        assert_eq!((after.status, after.version), (to, 1), "{from} {input:?}");
                        assert_eq!(after.ended.is_some(), to == Closed);
                    }
                    (Err(error), None) => assert_eq!((error.from, error.input), (from, input.as_str())),
                    _ => panic!("{from} {input:?}: {answer:?}"),
                }
            }
        }
    }

    #[test]
    fn a_session_expires_when_more_than_its_time_has_passed() {
        let session = session(Status::Active);
        assert_eq!(session.expires_at(&Now::default()), Timestamp(1000 + 60 * MINUTE));
        assert_eq!(session.expiry(Timestamp(1000 + 60 * MINUTE)), None, "strictly greater");
        assert_eq!(session.expiry(Timestamp(1001 + 60 * MINUTE)), Some(CloseReason::IdleTimeout));
        let busy = Session { last_active_at: Timestamp(1000 + 1440 * MINUTE), ..session };
        assert_eq!(busy.expires_at(&Now::default()), Timestamp(1000 + 1440 * MINUTE));
        assert_eq!(busy.expiry(Timestamp(1000 + 1440 * MINUTE)), None);
        assert_eq!(busy.expiry(Timestamp(1001 + 1440 * MINUTE)), Some(CloseReason::Expired));
        let none = Policy { idle_timeout: Duration::ZERO, max_duration: Duration::ZERO };
        let at_once = Session { policy: none, last_active_at: Timestamp(1000), ..busy };
        assert_eq!(
            (at_once.expiry(Timestamp(1000)), at_once.expiry(Timestamp(1001))),
            (None, Some(CloseReason::Expired))
        );
    }

    #[test]
    fn a_session_is_idle_when_nothing_runs_and_nothing_has_for_a_minute() {
        for status in Status::ALL {
            let session = session(status);
            for (last_used, busy, now, idle) in [
                (1000, false, 1000 + MINUTE, false),
                (1000, false, 1001 + MINUTE, true),
                (1000, true, 1001 + MINUTE, false),
                (5000, false, 1001 + MINUTE, false),
                (0, false, 1001 + MINUTE, true),
                (1000, false, 0, false),
            ] {
                let seen = session.present(Timestamp(last_used), busy, Timestamp(now));
                let expected = match (status, idle) {
                    (Status::Active | Status::Idle, true) => Status::Idle,
                    (Status::Active | Status::Idle, false) => Status::Active,
                    (other, _) => other,
                };
                assert_eq!(
                    (seen.status, seen.version),
                    (expected, session.version),
                    "{status} {last_used} {busy} {now}"
                );
                assert_eq!(seen.last_active_at, Timestamp(last_used.max(1000)));
            }
        }
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_session_older() {
        let touched = session(Status::Idle).apply(Input::Touch, Timestamp(10)).unwrap();
        assert_eq!((touched.status, touched.last_active_at), (Status::Active, Timestamp(1000)));
        assert_eq!(touched.expiry(Timestamp(0)), None);
    }

    #[test]
    fn a_clock_that_is_set_forward_closes_no_session_early() {
        let mut clock = SteadyClock::default();
        let mut after =
            |shown: u64, minutes: u64| clock.look(Timestamp(1000 + shown * MINUTE), Duration::from_mins(minutes));
        let session = Session { started_at: after(0, 0).at, ..session(Status::Active) };
        let set_forward = after(1510, 10);
        assert_eq!(
            (session.expiry(set_forward.clone()), session.expires_at(&set_forward)),
            (None, Timestamp(1000 + 1560 * MINUTE))
        );
        assert_eq!(session.present(session.last_active_at, false, after(1510, 10)).status, Status::Idle);
        assert_eq!(session.expiry(after(1560, 60)), None);
        assert_eq!(session.expiry(after(1561, 61)), Some(CloseReason::IdleTimeout));
        // One that is used after it lasts its day from when it was opened.
        let used = session.apply(Input::Touch, after(1561, 61).at).unwrap();
        let used = Session { policy: Policy { idle_timeout: Duration::from_hours(48), ..used.policy }, ..used };
        assert_eq!(used.expiry(after(2940, 1440)), None);
        assert_eq!(used.expiry(after(2941, 1441)), Some(CloseReason::Expired));
    }

    #[test]
    fn a_clock_that_is_set_forward_and_back_keeps_no_session_open_longer() {
        let mut clock = SteadyClock::default();
        let mut after =
            |shown: u64, minutes: u64| clock.look(Timestamp(1000 + shown * MINUTE), Duration::from_mins(minutes));
        let session = Session { started_at: after(0, 0).at, ..session(Status::Active) };
        let used = session.apply(Input::Touch, after(600_000, 10).at).unwrap();
        assert_eq!(used.expiry(after(11, 11)), None);
        assert_eq!(used.expiry(after(70, 70)), None);
        assert_eq!(used.expiry(after(71, 71)), Some(CloseReason::IdleTimeout));
    }

    #[test]
    fn a_session_from_the_future_counts_from_the_start_of_the_server_that_finds_it() {
        let session = Session { last_active_at: Timestamp(9000), ..session(Status::Idle) };
        assert_eq!(session.found(Timestamp(9000)), None);
        let found = session.found(Timestamp(5000)).unwrap();
        assert_eq!((found.started_at, found.last_active_at, found.version), (Timestamp(1000), Timestamp(5000), 1));
        let found = session.found(Timestamp(10)).unwrap();
        assert_eq!(
            (found.started_at, found.last_active_at, found.status),
            (Timestamp(10), Timestamp(10), Status::Idle)
        );
        assert_eq!(found.expiry(Timestamp(11 + 60 * MINUTE)), Some(CloseReason::IdleTimeout));
    }
}
