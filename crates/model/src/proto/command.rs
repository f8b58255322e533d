//! A command: how it is asked for, followed, fed and stopped, and what is told of it.

use super::{Fault, FaultCode, MAX_TEXT};
use crate::env::{Secret, redact};
use crate::frame::Stream;
use crate::ids::{CommandId, ShellId};
use crate::record::Sums;
use crate::state::Bytes;
use crate::word::is_name;
use minicbor::{Decode, Encode};

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Exec {
    #[n(0)]
    pub shell: ShellId,
    #[n(1)]
    pub command: CommandId,
    /// Any bytes but NUL, at most [`super::MAX_TEXT`].
    #[n(2)]
    pub text: Bytes,
    /// For this command only; relative to the shell's directory.
    #[n(3)]
    pub cwd: Option<Bytes>,
    #[n(4)]
    pub env: Vec<(Bytes, Bytes)>,
    #[n(5)]
    pub stdin: Stdin,
    #[n(6)]
    pub timeout_ms: Option<u64>,
    /// From the first signal to KILL; 5 s if absent.
    #[n(7)]
    pub grace_ms: Option<u64>,
    #[n(8)]
    pub if_busy: IfBusy,
    /// Send the events on this request, beginning with this many bytes of credit.
    #[n(9)]
    pub follow: Option<u64>,
    /// With `follow`: tell the state with the end, if the command changed it.
    #[n(10)]
    pub state: Option<bool>,
    /// When whoever sends it was asked for it, in microseconds since 1970; kept in the journal for them.
    #[n(11)]
    pub asked_at: Option<u64>,
}

impl Exec {
    /// A command with nothing special about it.
    pub fn new(shell: ShellId, command: CommandId, text: impl Into<Vec<u8>>) -> Self {
        Self {
            shell,
            command,
            text: Bytes(text.into()),
            cwd: None,
            env: Vec::new(),
            stdin: Stdin::Empty,
            timeout_ms: None,
            grace_ms: None,
            if_busy: IfBusy::Queue,
            follow: None,
            state: None,
            asked_at: None,
        }
    }

    /// Whether it can be run at all, by any shell.
    pub fn check(&self) -> Result<(), Fault> {
        let invalid = |message: String| Err(Fault::new(FaultCode::Invalid, message));
        if self.text.len() > MAX_TEXT {
            return invalid(format!("the command has {} bytes; at most {MAX_TEXT} are taken", self.text.len()));
        }
        if self.text.contains(&0) {
            return invalid("the command has a NUL byte, which no shell can read".to_owned());
        }
        if self.cwd.as_ref().is_some_and(|cwd| cwd.is_empty() || cwd.contains(&0)) {
            return invalid("the directory is empty or has a NUL byte".to_owned());
        }
        for (name, value) in &self.env {
            if !is_name(name) {
                return invalid(format!("`{}` can't be the name of a variable", name.escape_ascii()));
            }
            if value.contains(&0) {
                return invalid(format!("the value of `{}` has a NUL byte", name.escape_ascii()));
            }
        }
        Ok(())
    }

    /// The same with a mask wherever it holds the value of a secret.
    pub fn redacted(&self, values: &[&Secret]) -> Self {
        let hide = |bytes: &Bytes| Bytes(redact(bytes, values.iter().copied()));
        Self {
            text: hide(&self.text),
            cwd: self.cwd.as_ref().map(hide),
            env: self.env.iter().map(|(name, value)| (name.clone(), hide(value))).collect(),
            stdin: match &self.stdin {
                Stdin::Bytes(bytes) => Stdin::Bytes(hide(bytes)),
                other @ (Stdin::Empty | Stdin::Open | Stdin::Terminal) => other.clone(),
            },
            ..self.clone()
        }
    }

    /// Whether a repeated request means the same work. How it is waited for may differ.
    pub fn is_same_work(&self, other: &Self) -> bool {
        let work =
            |exec: &Self| Self { follow: None, state: None, asked_at: None, if_busy: IfBusy::Queue, ..exec.clone() };
        work(self) == work(other)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Stdin {
    /// End of file at once.
    #[n(0)]
    Empty,
    #[n(1)]
    Bytes(#[n(0)] Bytes),
    /// Written to while it runs, by [`super::Request::Stdin`].
    #[n(2)]
    Open,
    /// The shell's own terminal, which is its output, too: how a person's command runs.
    #[n(3)]
    Terminal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum IfBusy {
    #[n(0)]
    Queue,
    #[n(1)]
    Reject,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Follow {
    #[n(0)]
    pub command: CommandId,
    /// Send what comes after this place in the sequence; 0: everything.
    #[n(1)]
    pub after: u64,
    #[n(2)]
    pub credit: u64,
    /// Go on past the end of the command, with output of its background children, until no one holds its streams.
    #[n(3)]
    pub late: bool,
    /// Tell the state with the end, if the command changed it.
    #[n(4)]
    pub state: Option<bool>,
    /// Say where output lies in the journal instead of sending it: for somebody who can read the files.
    #[n(5)]
    pub index: Option<bool>,
}

/// Where a piece of output lies: so many bytes from `offset` on in `journal/KEY/NUMBER.out`, or `.err`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Piece {
    #[n(0)]
    pub seq: u64,
    #[n(1)]
    pub stream: Stream,
    #[n(2)]
    pub late: bool,
    #[n(3)]
    pub offset: u64,
    #[n(4)]
    pub length: u64,
    #[n(5)]
    pub at: u64,
    #[n(6)]
    pub key: u32,
    #[n(7)]
    pub number: u64,
}

impl Piece {
    /// What it takes of the credit: as much as its bytes would, and something for itself where they are few.
    pub fn cost(&self) -> u64 {
        self.length.max(128)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Credit {
    /// The request that is to get it.
    #[n(0)]
    pub request: u32,
    #[n(1)]
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Read {
    #[n(0)]
    pub command: CommandId,
    #[n(1)]
    pub stream: Stream,
    #[n(2)]
    pub offset: u64,
    #[n(3)]
    pub length: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ReadBytes {
    #[n(0)]
    pub bytes: Bytes,
    /// Bytes in the stream so far.
    #[n(1)]
    pub total: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Cancel {
    #[n(0)]
    pub command: CommandId,
    #[n(1)]
    pub first: FirstSignal,
}

/// Where a cancellation begins; it goes on from there to KILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum FirstSignal {
    #[n(0)]
    Interrupt,
    #[n(1)]
    Terminate,
    #[n(2)]
    Kill,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum CancelReason {
    #[n(0)]
    Asked(#[n(0)] FirstSignal),
    #[n(1)]
    TimedOut,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct StdinBytes {
    #[n(0)]
    pub command: CommandId,
    #[n(1)]
    pub bytes: Bytes,
    /// Close it behind these bytes.
    #[n(2)]
    pub eof: bool,
    /// Where in all that the command is ever sent these bytes begin. Sent again, what has arrived before is left out, so
    /// that who was cut off in the middle may repeat itself. From 0 on, for the whole of a command's input or not at all.
    #[n(3)]
    pub offset: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ListCommands {
    #[n(0)]
    pub shell: ShellId,
    #[n(1)]
    pub limit: u64,
    /// Only commands older than this number.
    #[n(2)]
    pub before: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Status {
    #[n(0)]
    Queued,
    #[n(1)]
    Running,
    #[n(2)]
    Exited,
    #[n(3)]
    TimedOut,
    #[n(4)]
    Cancelled,
    /// It never ran; `error` says why.
    #[n(5)]
    Failed,
    /// The instance died under it. What it had written is kept.
    #[n(6)]
    Lost,
}

impl Status {
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Ending {
    #[n(0)]
    pub status: Status,
    /// The shell's `$?`. Always there if the status is [`Status::Exited`]: where nobody saw it the command is
    /// [`Status::Lost`]. 130 for a cancelled command, -1 for one that timed out or was cancelled before it began: those
    /// have no status of their own.
    #[n(1)]
    pub exit_code: Option<i32>,
    /// The signal by which the shell itself died.
    #[n(2)]
    pub signal: Option<i32>,
    /// The command ended the shell (`exit`, `exec`, a fatal signal). The next one gets a new shell with its state.
    #[n(3)]
    pub shell_exited: bool,
    /// The shell had to be replaced; the next one has the last captured state.
    #[n(4)]
    pub shell_replaced: bool,
    #[n(5)]
    pub warnings: Vec<Warning>,
    /// Background children still hold its output: more may come, marked late.
    #[n(6)]
    pub streams_open: bool,
    #[n(7)]
    pub state_changed: bool,
    #[n(8)]
    pub error: Option<Fault>,
    /// Whether one of its processes was killed for want of memory; absent where nobody can know.
    #[n(9)]
    pub oom_killed: Option<bool>,
}

/// How a shell came to its end, as far as anybody saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShellExit {
    Code(i32),
    Signal(i32),
    /// Whoever could have seen it is dead, or it can't say any more.
    Unseen,
}

impl Ending {
    /// An end without a code where there must be one is an end that nobody saw: the command is lost.
    pub fn new(status: Status, exit_code: Option<i32>) -> Self {
        let ending = Self {
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
        ending.or_lost()
    }

    /// A command that ended with its shell.
    pub fn with_shell(exit: ShellExit) -> Self {
        match exit {
            ShellExit::Code(code) => Self::new(Status::Exited, Some(code)),
            ShellExit::Signal(signal) => Self { signal: Some(signal), ..Self::new(Status::Exited, Some(128 + signal)) },
            ShellExit::Unseen => Self::new(Status::Lost, None),
        }
    }

    /// The same, unless it says that the command exited and has no code: then it is lost. Every end passes through here
    /// before it is written down, and those that were written down before it was so when they are read.
    #[must_use]
    pub fn or_lost(self) -> Self {
        match (self.status, self.exit_code) {
            (Status::Exited, None) => Self { status: Status::Lost, signal: None, ..self },
            _ => self,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Warning {
    #[n(0)]
    pub code: String,
    #[n(1)]
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct CommandInfo {
    #[n(0)]
    pub command: CommandId,
    #[n(1)]
    pub shell: ShellId,
    /// Its place in the shell's history, from 1.
    #[n(2)]
    pub number: u64,
    #[n(3)]
    pub status: Status,
    /// Present when it has ended.
    #[n(4)]
    pub ending: Option<Ending>,
    #[n(5)]
    pub stdout_bytes: u64,
    #[n(6)]
    pub stderr_bytes: u64,
    /// The last place in its sequence of events.
    #[n(7)]
    pub last_seq: u64,
    /// The shell's directory and state when it ended, or now.
    #[n(8)]
    pub cwd: Bytes,
    #[n(9)]
    pub state_version: u64,
    #[n(10)]
    pub accepted_at: u64,
    #[n(11)]
    pub started_at: Option<u64>,
    #[n(12)]
    pub ended_at: Option<u64>,
    /// Its output waits for room on the disk.
    #[n(13)]
    pub stalled: bool,
    /// Its output was removed to make room.
    #[n(14)]
    pub evicted: bool,
    /// The state it left, as [`super::Reply::State`] gives it: if it was asked for, the command changed it, and no other
    /// has ended since.
    #[n(15)]
    pub state: Option<Bytes>,
    /// What its output sums up to; absent until nothing more can come.
    #[n(16)]
    pub sums: Option<Summed>,
}

/// The sums of a command's output, and in which of the steward's journals it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Summed {
    #[n(0)]
    pub key: u32,
    #[n(1)]
    pub sums: Sums,
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUSES: [Status; 7] = [
        Status::Queued,
        Status::Running,
        Status::Exited,
        Status::TimedOut,
        Status::Cancelled,
        Status::Failed,
        Status::Lost,
    ];

    #[test]
    fn no_command_has_exited_without_a_code() {
        for status in STATUSES {
            for code in [None, Some(0), Some(3)] {
                let ending = Ending::new(status, code);
                assert!(ending.status != Status::Exited || ending.exit_code.is_some(), "{ending:?}");
                let want = if (status, code) == (Status::Exited, None) { Status::Lost } else { status };
                assert_eq!((ending.status, ending.exit_code), (want, code));
                assert_eq!(ending.clone().or_lost(), ending);
            }
        }
        for exit in [ShellExit::Code(0), ShellExit::Code(255), ShellExit::Signal(9), ShellExit::Unseen] {
            let ending = Ending::with_shell(exit);
            let want = match exit {
                ShellExit::Code(code) => (Status::Exited, Some(code), None),
                ShellExit::Signal(signal) => (Status::Exited, Some(128 + signal), Some(signal)),
                ShellExit::Unseen => (Status::Lost, None, None),
            };
            assert_eq!((ending.status, ending.exit_code, ending.signal), want);
        }
    }

    #[test]
    fn an_end_from_before_without_a_code_is_read_as_lost() {
        let old = Ending { exit_code: None, shell_exited: true, ..Ending::new(Status::Exited, Some(0)) };
        assert_eq!(old.or_lost(), Ending { shell_exited: true, ..Ending::new(Status::Lost, None) });
    }
}
