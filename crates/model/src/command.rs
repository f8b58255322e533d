//! A command as the server remembers it. The steward's journal is the truth about how it ran; this is who asked for it,
//! where, and what became of it.
//!
//! ```text
//! queued ──► running ──► exited, timed_out, cancelled, lost
//!    └─────────────────► cancelled, failed, lost
//! ```

use crate::clock::Timestamp;
use crate::ids::{CommandId, InstanceId, LeaseId, SessionId, TerminalId, ThreadId};
use crate::proto::{Ending, Status};
use crate::state::Bytes;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub id: CommandId,
    pub thread: ThreadId,
    pub terminal: TerminalId,
    pub lease: LeaseId,
    /// Absent until it has one.
    pub session: Option<SessionId>,
    /// Where it was sent; absent as long as it can't have run.
    pub instance: Option<InstanceId>,
    /// The text, with its overlays: what makes a repeated request the same work.
    pub text: Bytes,
    pub status: Status,
    /// Present when it has ended.
    pub ending: Option<Ending>,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub cwd: Bytes,
    pub state_version: u64,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("command `{command}` is {from:?} and can't become {to:?}")]
pub struct IllegalTransition {
    pub command: CommandId,
    pub from: Status,
    pub to: Status,
}

/// Whether a command may go from one status to another. What has ended stays as it ended.
pub fn may_become(from: Status, to: Status) -> bool {
    match from {
        Status::Queued => to != Status::Queued,
        Status::Running => to.is_final() && to != Status::Failed,
        Status::Exited | Status::TimedOut | Status::Cancelled | Status::Failed | Status::Lost => false,
    }
}

impl Command {
    pub fn become_status(&self, to: Status) -> Result<Self, IllegalTransition> {
        if may_become(self.status, to) {
            Ok(Self { status: to, ..self.clone() })
        } else {
            Err(IllegalTransition { command: self.id.clone(), from: self.status, to })
        }
    }

    /// What stands when this is known of a command and something else is told of it. An end that was written down never
    /// changes, whoever learns later of another: somebody may have been told. Only its output may grow, by what background
    /// children write, until nobody holds it any more.
    #[must_use]
    pub fn joined(self, told: Self) -> Self {
        let (stdout_bytes, stderr_bytes) =
            (self.stdout_bytes.max(told.stdout_bytes), self.stderr_bytes.max(told.stderr_bytes));
        if !self.status.is_final() {
            // When it began is not forgotten by whoever only knows that it is over.
            let started_at = told.started_at.or(self.started_at);
            return Self { stdout_bytes, stderr_bytes, started_at, ..told };
        }
        if !told.status.is_final() {
            return self;
        }
        let closed = told.ending.as_ref().is_some_and(|ending| !ending.streams_open);
        let ending = self.ending.map(|ending| {
            let streams_open = ending.streams_open && !closed;
            Ending { streams_open, ..ending }
        });
        Self { ending, stdout_bytes, stderr_bytes, ..self }
    }

    /// It ended so, and then.
    pub fn end(&self, ending: Ending, at: Timestamp) -> Result<Self, IllegalTransition> {
        let ending = ending.or_lost();
        let mut ended = self.become_status(ending.status)?;
        ended.ending = Some(ending);
        ended.ended_at = Some(at);
        Ok(ended)
    }
}

pub fn status_name(status: Status) -> &'static str {
    match status {
        Status::Queued => "queued",
        Status::Running => "running",
        Status::Exited => "exited",
        Status::TimedOut => "timed_out",
        Status::Cancelled => "cancelled",
        Status::Failed => "failed",
        Status::Lost => "lost",
    }
}

pub const STATUSES: [Status; 7] = [
    Status::Queued,
    Status::Running,
    Status::Exited,
    Status::TimedOut,
    Status::Cancelled,
    Status::Failed,
    Status::Lost,
];

pub fn parse_status(text: &str) -> Option<Status> {
    STATUSES.into_iter().find(|status| status_name(*status) == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_answers_every_other() {
        let table: Vec<String> = STATUSES
            .into_iter()
            .map(|from| STATUSES.into_iter().map(|to| if may_become(from, to) { 'y' } else { '-' }).collect())
            .collect();
        assert_eq!(table, ["-yyyyyy", "--yyy-y", "-------", "-------", "-------", "-------", "-------"]);
        for status in STATUSES {
            assert_eq!(parse_status(status_name(status)), Some(status));
        }
    }

    fn command(status: Status, bytes: u64, version: u64, streams_open: bool) -> Command {
        let ending = Ending { streams_open, ..Ending::new(status, Some(i32::try_from(version).unwrap())) };
        Command {
            id: CommandId::parse("c").unwrap(),
            thread: ThreadId::parse("t").unwrap(),
            terminal: TerminalId::made_of([0; 8]),
            lease: LeaseId::made_of([0; 8]),
            session: None,
            instance: None,
            text: Bytes::default(),
            status,
            ending: status.is_final().then_some(ending),
            stdout_bytes: bytes,
            stderr_bytes: 10 - bytes,
            cwd: Bytes::default(),
            state_version: version,
            created_at: Timestamp(1),
            started_at: (version > 0).then_some(Timestamp(2)),
            ended_at: status.is_final().then_some(Timestamp(version)),
        }
    }

    #[test]
    fn a_final_record_stays_as_it_is_whatever_is_told_of_it_later() {
        for known in STATUSES {
            for told in STATUSES {
                let (first, later) = (command(known, 3, 5, true), command(told, 4, 6, false));
                let stands = first.clone().joined(later.clone());
                if known.is_final() {
                    let growing = told.is_final();
                    let ending = first.ending.clone().map(|ending| Ending { streams_open: !growing, ..ending });
                    let stdout_bytes = if growing { 4 } else { 3 };
                    assert_eq!(stands, Command { ending, stdout_bytes, ..first }, "{known:?}, {told:?}");
                } else {
                    assert_eq!((stands.status, stands.state_version), (told, 6), "{known:?}, {told:?}");
                    assert_eq!(stands.ending, later.ending, "{known:?}, {told:?}");
                }
            }
        }
    }

    #[test]
    fn output_only_grows_and_a_beginning_is_not_forgotten() {
        let (running, lost) = (command(Status::Running, 6, 5, false), command(Status::Lost, 2, 0, false));
        let stands = running.joined(lost);
        assert_eq!((stands.stdout_bytes, stands.stderr_bytes, stands.started_at), (6, 8, Some(Timestamp(2))));
        let again = stands.clone().joined(command(Status::Exited, 0, 0, true));
        assert_eq!((again.status, again.stdout_bytes, again.stderr_bytes), (Status::Lost, 6, 10));
        assert!(!again.ending.unwrap().streams_open, "what is closed stays closed");
    }
}
