//! The messages between a client and a steward, version 1. `docs/protocol.md` tells the same in prose.
//!
//! Every struct is a CBOR map with numbered keys: a field that one side doesn't know is passed over, an optional one may
//! be absent. So optional fields may be added within a version; changing the meaning of one needs a new version.

mod attach;
mod command;
mod fault;

pub use attach::*;
pub use command::*;
pub use fault::{Fault, FaultCode};

use crate::env::Secret;
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
    /// Ends a shell's processes and keeps everything else: its journal can be read, and its next command gets a new
    /// process with its state. Refused while a command runs or waits. Answered with [`Reply::Done`].
    #[n(16)]
    RestShell(#[n(0)] ShellId),
    /// Puts another state in the place of a shell's own, as of its next command. Refused while a command runs or waits.
    /// Answered with [`Reply::Shell`].
    #[n(17)]
    SetState(#[n(0)] Box<SetState>),
    /// Variables and secrets that the shell is to have before its next command, also if one runs now. Noted when it is
    /// answered, with [`Reply::State`].
    #[n(18)]
    SetEnv(#[n(0)] Box<SetEnv>),
    /// Shows a shell's terminal: the screen as it is, then what changes, as [`crate::frame::Kind::Data`] of this request,
    /// until [`Reply::Detached`].
    #[n(20)]
    Attach(#[n(0)] Attach),
    /// Keys. Answered with [`Reply::Done`] when the terminal has taken them.
    #[n(21)]
    Type(#[n(0)] Type),
    /// The person's window has another size. Answered with [`Reply::Done`].
    #[n(22)]
    Resize(#[n(0)] Resize),
    /// Ends the attachment of this request. Answered with [`Reply::Done`], after [`Reply::Detached`] to the other.
    #[n(23)]
    Detach(#[n(0)] u32),
    /// Removes the output of commands that were accepted before this moment (microseconds since the epoch) and have
    /// ended; what somebody reads or may still write stays. Answered with [`Reply::Done`].
    #[n(24)]
    MakeRoom(#[n(0)] u64),
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
    /// Ends an [`Request::Attach`].
    #[n(9)]
    Detached(#[n(0)] Detached),
    /// To [`Request::Stdin`] with an offset: how much of the command's input has arrived, in bytes.
    #[n(10)]
    Taken(#[n(0)] u64),
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
    /// To those who look at the shell's terminal: its process has ended, the next prompt has another.
    #[n(3)]
    ShellEnded(#[n(0)] ShellEnd),
    /// To those who look at the shell's terminal: the size it has now, the smallest of all who look.
    #[n(4)]
    Resized(#[n(0)] Size),
    /// To those who look at the shell's terminal: a line was entered, and is a command of this id now.
    #[n(5)]
    Entered(#[n(0)] Box<Entered>),
    /// To those who look at the shell's terminal: a command, anybody's, has ended and left this version of the state.
    #[n(6)]
    Advanced(#[n(0)] u64),
    /// It waits for others before it. Has a place in the sequence, the first.
    #[n(7)]
    Queued(#[n(0)] At),
    /// Output, to who asked for its place instead of its bytes. Has a place in the sequence.
    #[n(8)]
    Piece(#[n(0)] Piece),
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
    /// The version of that state, from which its own go on.
    #[n(5)]
    pub version: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SetState {
    #[n(0)]
    pub shell: ShellId,
    /// As [`Reply::State`] gives it.
    #[n(1)]
    pub state: Bytes,
    /// Must be greater than the version the shell has.
    #[n(2)]
    pub version: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SetEnv {
    #[n(0)]
    pub shell: ShellId,
    /// Names this change of variables; the one that the shell took last is not taken again.
    #[n(1)]
    pub seq: u64,
    /// Name to value; without one it is unset.
    #[n(2)]
    pub vars: Vec<(Bytes, Option<Bytes>)>,
    #[n(3)]
    pub secrets: Vec<SetSecret>,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SetSecret {
    #[n(0)]
    pub name: Bytes,
    /// Differs for each value that it is given.
    #[n(1)]
    pub revision: u64,
    /// Absent: it is one no more, and is unset.
    #[n(2)]
    pub value: Option<Secret>,
}

/// What a shell was told by [`Request::SetEnv`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct EnvInfo {
    /// The last change of variables that it took; 0: none.
    #[n(0)]
    pub seq: u64,
    #[n(1)]
    pub secrets: Vec<SecretInfo>,
    /// Whether it can take secrets: there is a file system in memory to speak through.
    #[n(2)]
    pub takes_secrets: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SecretInfo {
    #[n(0)]
    pub name: Bytes,
    #[n(1)]
    pub revision: u64,
    /// Whether its value is there. It is kept in memory alone, so it goes when steward and keeper both die.
    #[n(2)]
    pub held: bool,
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
    /// Its other processes: the running command's, or background jobs. Counted only when one shell is asked for.
    #[n(11)]
    pub jobs: Option<u64>,
    /// Absent from a steward that doesn't know [`Request::SetEnv`].
    #[n(12)]
    pub env: Option<EnvInfo>,
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
