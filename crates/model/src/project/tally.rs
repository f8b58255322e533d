//! What a command adds to the statistics of its project. A command is told more than once, and its end may be learnt of
//! twice: what is added is the difference, so that each counts once.

use super::Statistics;
use crate::command::Command;
use crate::proto::Status;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    pub commands: i64,
    pub failed: i64,
    pub run_ms: i64,
    pub output_bytes: i64,
}

impl Tally {
    /// What has to be added when a command that was known so, or not at all, is now told so.
    pub fn between(known: Option<&Command>, told: &Command) -> Self {
        let (before, after) = (known.map(Self::of).unwrap_or_default(), Self::of(told));
        Self {
            commands: after.commands - before.commands,
            failed: after.failed - before.failed,
            run_ms: after.run_ms - before.run_ms,
            output_bytes: after.output_bytes - before.output_bytes,
        }
    }

    /// Nothing before its end.
    fn of(command: &Command) -> Self {
        if !command.status.is_final() {
            return Self::default();
        }
        let code = command.ending.as_ref().and_then(|ending| ending.exit_code);
        let failed = command.status != Status::Exited || code != Some(0);
        let span = match (command.started_at, command.ended_at) {
            (Some(started), Some(ended)) => ended.since(started),
            _ => Duration::ZERO,
        };
        let bytes = command.stdout_bytes.saturating_add(command.stderr_bytes);
        Self {
            commands: 1,
            failed: i64::from(failed),
            run_ms: i64::try_from(span.as_millis()).unwrap_or(i64::MAX),
            output_bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
        }
    }

    /// Both together.
    pub fn and(self, other: Self) -> Self {
        Self {
            commands: self.commands.saturating_add(other.commands),
            failed: self.failed.saturating_add(other.failed),
            run_ms: self.run_ms.saturating_add(other.run_ms),
            output_bytes: self.output_bytes.saturating_add(other.output_bytes),
        }
    }

    pub fn add_to(self, statistics: &mut Statistics) {
        let add = |to: u64, more: i64| to.saturating_add_signed(more);
        statistics.commands = add(statistics.commands, self.commands);
        statistics.failed_commands = add(statistics.failed_commands, self.failed);
        let run_ms = u64::try_from(statistics.run_time.as_millis()).unwrap_or(u64::MAX);
        statistics.run_time = Duration::from_millis(add(run_ms, self.run_ms));
        statistics.output_bytes = add(statistics.output_bytes, self.output_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::ids::{CommandId, LeaseId, TerminalId, ThreadId};
    use crate::proto::Ending;
    use crate::state::Bytes;

    fn running() -> Command {
        Command {
            id: CommandId::parse("c").unwrap(),
            thread: ThreadId::parse("t").unwrap(),
            terminal: TerminalId::made_of([0; 8]),
            lease: LeaseId::made_of([0; 8]),
            session: None,
            instance: None,
            text: Bytes::default(),
            status: Status::Running,
            ending: None,
            stdout_bytes: 5,
            stderr_bytes: 0,
            cwd: Bytes::default(),
            state_version: 0,
            created_at: Timestamp(0),
            started_at: Some(Timestamp(10)),
            ended_at: None,
        }
    }

    fn ended(status: Status, exit_code: Option<i32>) -> Command {
        let ending = Ending {
            status,
            exit_code,
            signal: None,
            shell_exited: false,
            shell_replaced: false,
            warnings: Vec::new(),
            streams_open: false,
            state_changed: false,
            error: None,
            oom_killed: None,
        };
        Command { stderr_bytes: 2, ..running().end(ending, Timestamp(40)).unwrap() }
    }

    #[test]
    fn a_command_counts_once_and_late_output_counts_too() {
        let (begun, done) = (running(), ended(Status::Exited, Some(0)));
        assert_eq!(Tally::between(None, &begun), Tally::default());
        let first = Tally::between(Some(&begun), &done);
        assert_eq!(first, Tally { commands: 1, failed: 0, run_ms: 30, output_bytes: 7 });
        assert_eq!(Tally::between(None, &done), first);
        assert_eq!(Tally::between(Some(&done), &done), Tally::default());
        let late = Command { stdout_bytes: 9, ..done.clone() };
        assert_eq!(Tally::between(Some(&done), &late), Tally { output_bytes: 4, ..Tally::default() });
    }

    #[test]
    fn what_failed_counts_as_failed_and_a_difference_is_taken_back() {
        let (lost, done) = (ended(Status::Lost, None), ended(Status::Exited, Some(0)));
        let mut statistics = Statistics::default();
        Tally::between(None, &lost).add_to(&mut statistics);
        assert_eq!((statistics.commands, statistics.failed_commands), (1, 1));
        Tally::between(Some(&lost), &done).add_to(&mut statistics);
        assert_eq!((statistics.commands, statistics.failed_commands), (1, 0));
        assert_eq!(Tally::between(None, &ended(Status::Exited, Some(3))).failed, 1);
        assert_eq!(Tally::between(None, &ended(Status::TimedOut, Some(-1))).failed, 1);
    }
}
