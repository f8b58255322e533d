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

/// Whether what is told later of a command takes the place of what is known. An end is not taken back, and what somebody
/// saw is not made unknown again.
pub fn replaces(known: Status, told: Status) -> bool {
    match known {
        Status::Queued | Status::Running => true,
        Status::Lost => told.is_final(),
        Status::Exited | Status::TimedOut | Status::Cancelled | Status::Failed => {
            told.is_final() && told != Status::Lost
        }
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
        let table: Vec<String> = STATUSES
            .into_iter()
            .map(|known| STATUSES.into_iter().map(|told| if replaces(known, told) { 'y' } else { '-' }).collect())
            .collect();
        assert_eq!(table, ["yyyyyyy", "yyyyyyy", "--yyyy-", "--yyyy-", "--yyyy-", "--yyyy-", "--yyyyy"]);
        for status in STATUSES {
            assert_eq!(parse_status(status_name(status)), Some(status));
        }
    }
}
