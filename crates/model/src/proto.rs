//! The messages between a client and a steward, version 1. `docs/protocol.md` tells the same in prose.
//!
//! Every struct is a CBOR map with numbered keys: a field that one side doesn't know is passed over, an optional one may
//! be absent. So optional fields may be added within a version; changing the meaning of one needs a new version.

use crate::frame::Stream;
use crate::ids::{CommandId, ShellId};
use crate::shell::Dialect;
use crate::state::Bytes;
use minicbor::{Decode, Encode};

/// The versions that this build speaks.
pub const VERSIONS: std::ops::RangeInclusive<u32> = 1..=1;

/// The longest command text.
pub const MAX_TEXT: usize = 4 << 20;

/// How many commands may wait for one shell.
pub const MAX_QUEUE: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Request {
    /// First on every connection.
    #[n(0)]
    Hello(#[n(0)] Hello),
    /// Opens a shell, or finds the open one of that name. Answered with [`Reply::Shell`].
    #[n(1)]
    OpenShell(#[n(0)] Box<OpenShell>),
    /// Ends a shell, its processes and its queue, and forgets its journal.
    #[n(2)]
    CloseShell(#[n(0)] ShellId),
    #[n(3)]
    Shell(#[n(0)] ShellId),
    #[n(4)]
    Shells,
    /// The shell's state in its stored form. Answered with [`Reply::State`].
    #[n(5)]
    State(#[n(0)] ShellId),
    /// Runs a command, at most once for its id. Answered with [`Reply::Command`]: at once, or, with `follow`, after
    /// its events.
    #[n(6)]
    Exec(#[n(0)] Box<Exec>),
    /// The events of a command from a place on, then [`Reply::Command`].
    #[n(7)]
    Follow(#[n(0)] Follow),
    /// More room for the events of a running `Exec` or `Follow`. Has no answer.
    #[n(8)]
    Credit(#[n(0)] Credit),
    /// Bytes of one stream from an offset on. Answered with [`Reply::Bytes`].
    #[n(9)]
    Read(#[n(0)] Read),
    #[n(10)]
    Cancel(#[n(0)] Cancel),
    /// Bytes for a command opened with [`Stdin::Open`]. Answered when they are in its pipe.
    #[n(11)]
    Stdin(#[n(0)] StdinBytes),
    #[n(12)]
    Command(#[n(0)] CommandId),
    /// The commands of a shell, newest first. Answered with [`Reply::Commands`].
    #[n(13)]
    Commands(#[n(0)] ListCommands),
    #[n(14)]
    Stats,
    /// Ends all shells and the steward.
    #[n(15)]
    Shutdown,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Reply {
    #[n(0)]
    Welcome(#[n(0)] Welcome),
    #[n(1)]
    Shell(#[n(0)] Box<ShellInfo>),
    #[n(2)]
    Shells(#[n(0)] Vec<ShellInfo>),
    #[n(3)]
    State(#[n(0)] StoredState),
    #[n(4)]
    Command(#[n(0)] Box<CommandInfo>),
    #[n(5)]
    Commands(#[n(0)] Vec<CommandInfo>),
    #[n(6)]
    Bytes(#[n(0)] ReadBytes),
    #[n(7)]
    Stats(#[n(0)] Stats),
    #[n(8)]
    Done,
}

/// Something that happened to a followed command, besides output.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Event {
    /// It has been given to the shell. Has a place in the sequence.
    #[n(0)]
    Started(#[n(0)] At),
    /// It has ended. Has a place in the sequence; late output may follow.
    #[n(1)]
    Ended(#[n(0)] At),
    /// Its output waits because the journal's disk is full, or goes on again. No place in the sequence: it isn't
    /// kept.
    #[n(2)]
    Stalled(#[n(0)] bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct At {
    #[n(0)]
    pub seq: u64,
    /// Microseconds since the epoch.
    #[n(1)]
    pub at: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Hello {
    #[n(0)]
    pub oldest: u32,
    #[n(1)]
    pub newest: u32,
    /// For the steward's log.
    #[n(2)]
    pub client: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Welcome {
    /// The newest version that both speak.
    #[n(0)]
    pub version: u32,
    /// Of the steward's program.
    #[n(1)]
    pub build: String,
    /// Counts the starts of the steward over the same directory.
    #[n(2)]
    pub epoch: u64,
    #[n(3)]
    pub pid: u32,
    #[n(4)]
    pub keeper_pid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct OpenShell {
    #[n(0)]
    pub shell: ShellId,
    #[n(1)]
    pub program: Program,
    /// The whole environment of the fresh shell; nothing of the steward's own is inherited.
    #[n(2)]
    pub env: Vec<(Bytes, Bytes)>,
    /// Where it starts if the state names no directory.
    #[n(3)]
    pub cwd: Bytes,
    /// A state to begin with, as [`Reply::State`] gives it.
    #[n(4)]
    pub state: Option<Bytes>,
}

/// Which shell to run.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Program {
    /// bash if there is one, else dash, else ash.
    #[n(0)]
    Best,
    #[n(1)]
    Bash,
    #[n(2)]
    Dash,
    #[n(3)]
    Ash,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ShellInfo {
    #[n(0)]
    pub shell: ShellId,
    #[n(1)]
    pub dialect: Dialect,
    /// Absolute path of the program.
    #[n(2)]
    pub program: Bytes,
    /// The live process; absent while a new one is being started.
    #[n(3)]
    pub pid: Option<i32>,
    /// Grows with each process that this shell has been.
    #[n(4)]
    pub incarnation: u64,
    #[n(5)]
    pub cwd: Bytes,
    #[n(6)]
    pub state_version: u64,
    #[n(7)]
    pub running: Option<CommandId>,
    #[n(8)]
    pub queued: u64,
    /// Whether functions are part of the captured state: true for bash.
    #[n(9)]
    pub captures_functions: bool,
    #[n(10)]
    pub journal_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct StoredState {
    #[n(0)]
    pub version: u64,
    /// A CBOR [`crate::state::ShellState`].
    #[n(1)]
    pub state: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Exec {
    #[n(0)]
    pub shell: ShellId,
    #[n(1)]
    pub command: CommandId,
    /// Any bytes but NUL, at most [`MAX_TEXT`].
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
        }
    }

    /// Whether a repeated request means the same work. How it is waited for may differ.
    pub fn is_same_work(&self, other: &Self) -> bool {
        let work = |exec: &Self| Self { follow: None, if_busy: IfBusy::Queue, ..exec.clone() };
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
    /// Written to while it runs, by [`Request::Stdin`].
    #[n(2)]
    Open,
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
    /// The shell's `$?`; absent where it is not known, never invented. 130 for a cancelled command, -1 for one that timed
    /// out or was cancelled before it began: those have no status of their own.
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
}

impl Ending {
    pub fn new(status: Status, exit_code: Option<i32>) -> Self {
        Self {
            status,
            exit_code,
            signal: None,
            shell_exited: false,
            shell_replaced: false,
            warnings: Vec::new(),
            streams_open: false,
            state_changed: false,
            error: None,
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
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Stats {
    #[n(0)]
    pub shells: u64,
    #[n(1)]
    pub connections: u64,
    #[n(2)]
    pub running: u64,
    #[n(3)]
    pub queued: u64,
    #[n(4)]
    pub commands: u64,
    #[n(5)]
    pub journal_bytes: u64,
    #[n(6)]
    pub journal_limit: u64,
}

/// Why a request failed; the connection lives on.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Fault {
    #[n(0)]
    pub code: FaultCode,
    #[n(1)]
    pub message: String,
    /// For [`FaultCode::Gone`]: the number of the oldest command of the shell whose output is still there.
    #[n(2)]
    pub earliest: Option<u64>,
}

impl Fault {
    pub fn new(code: FaultCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), earliest: None }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum FaultCode {
    /// The request can't be understood or breaks a rule; it changed nothing.
    #[n(0)]
    Invalid,
    #[n(1)]
    NotFound,
    /// The id is taken by another command.
    #[n(2)]
    Conflict,
    /// The shell is busy and the request said not to wait.
    #[n(3)]
    Busy,
    /// The queue is full.
    #[n(4)]
    LimitReached,
    /// The output was removed to make room.
    #[n(5)]
    Gone,
    #[n(6)]
    NoSpace,
    /// No such shell program, or it can't be started.
    #[n(7)]
    Unsupported,
    /// No version in common.
    #[n(8)]
    Version,
    /// The operating system refused; the message says what.
    #[n(9)]
    Unavailable,
    /// A directory that was asked for is not there.
    #[n(10)]
    NoDirectory,
}
