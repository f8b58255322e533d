//! What is said between a server and the carrier in a sandbox that is somewhere else: the carrier brings out what was
//! journalled and which files there are, and puts files where they belong. Framed as in [`crate::frame`]: a question is a
//! `Request`, its answer any number of `Event`s and then one `Reply`, or a `Fault`.
//!
//! No more is said ahead of who listens than the window that the carrier was started with: [`Ask::More`] gives back what
//! has been heard. Some ways to a sandbox are cut off when too much waits in them.
//!
//! One question at a time, but for [`Ask::Journal`] that waits: it is answered as soon as something else is asked.

use crate::frame::Stream;
use crate::state::Bytes;
use minicbor::{Decode, Encode};

/// Bytes that one message carries of a file or a log.
pub const PIECE: usize = 32 << 10;

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Ask {
    /// What the journals have behind these places; of shells that aren't named, all. With `wait_ms`, not before there is
    /// something, or that time is over.
    #[n(0)]
    Journal(#[n(0)] Known),
    /// Everything below these directories.
    #[n(1)]
    List(#[n(0)] Vec<Bytes>),
    /// The content of these plain files.
    #[n(2)]
    Get(#[n(0)] Vec<Bytes>),
    /// Makes something, in the place of what is there.
    #[n(3)]
    Put(#[n(0)] Box<Put>),
    /// Removes something with all that is below it; what isn't there is removed already.
    #[n(4)]
    Remove(#[n(0)] Bytes),
    /// So many bytes of answers have been heard. No question: it has no answer, and may come at any time.
    #[n(5)]
    More(#[n(0)] u64),
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Known {
    #[n(0)]
    pub marks: Vec<Mark>,
    #[n(1)]
    pub wait_ms: u64,
}

/// A place in the log of a shell, by the shell's number in its steward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Mark {
    #[n(0)]
    pub key: u32,
    #[n(1)]
    pub segment: u32,
    #[n(2)]
    pub offset: u64,
    /// Of how the file begins, see [`head_sum`]: numbers of shells that were closed are given again.
    #[n(3)]
    pub head: u32,
}

/// Tells one log file from another of the same number. Each begins with the name of its shell.
pub fn head_sum(log: &[u8]) -> u32 {
    crc32fast::hash(log.get(..HEAD).unwrap_or(log))
}

/// Bytes at the beginning of a log file that are compared.
pub const HEAD: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Said {
    /// Bytes of output, always before the log that tells of them.
    #[n(0)]
    Output(#[n(0)] Box<Output>),
    /// A state, before the log that names it.
    #[n(1)]
    State(#[n(0)] Box<State>),
    #[n(2)]
    Log(#[n(0)] Box<Log>),
    #[n(3)]
    Entries(#[n(0)] Vec<Entry>),
    #[n(4)]
    Content(#[n(0)] Box<Content>),
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Output {
    #[n(0)]
    pub key: u32,
    #[n(1)]
    pub number: u64,
    #[n(2)]
    pub stream: Stream,
    #[n(3)]
    pub offset: u64,
    #[n(4)]
    pub bytes: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct State {
    #[n(0)]
    pub key: u32,
    #[n(1)]
    pub version: u64,
    #[n(2)]
    pub bytes: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Log {
    #[n(0)]
    pub at: Mark,
    /// Whole records, and the magic before the first.
    #[n(1)]
    pub bytes: Bytes,
    /// Another shell has this number than the one that was asked about.
    #[n(2)]
    pub another: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum Kind {
    #[n(0)]
    File,
    #[n(1)]
    Dir,
    #[n(2)]
    Link,
}

/// Something below a directory. What is neither file, directory nor link is not told of.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Entry {
    /// Absolute.
    #[n(0)]
    pub path: Bytes,
    #[n(1)]
    pub kind: Kind,
    /// The lower twelve bits.
    #[n(2)]
    pub mode: u32,
    #[n(3)]
    pub stamp: Stamp,
    /// Of a link.
    #[n(4)]
    pub target: Option<Bytes>,
}

/// By which a change is seen: no content changes without one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct Stamp {
    #[n(0)]
    pub inode: u64,
    #[n(1)]
    pub size: u64,
    /// Nanoseconds since the epoch.
    #[n(2)]
    pub modified: i64,
    #[n(3)]
    pub changed: i64,
}

/// A piece of a file that was asked for. One that has gone meanwhile is said to end where it begins, with `gone`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Content {
    #[n(0)]
    pub path: Bytes,
    #[n(1)]
    pub offset: u64,
    #[n(2)]
    pub bytes: Bytes,
    #[n(3)]
    pub last: bool,
    #[n(4)]
    pub gone: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Put {
    #[n(0)]
    pub path: Bytes,
    #[n(1)]
    pub kind: Kind,
    #[n(2)]
    pub mode: u32,
    #[n(3)]
    pub modified: i64,
    #[n(4)]
    pub target: Option<Bytes>,
    /// Of a file: where these bytes belong. It is there, whole, with the last.
    #[n(5)]
    pub offset: u64,
    #[n(6)]
    pub bytes: Bytes,
    #[n(7)]
    pub last: bool,
}

/// The end of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Done {
    #[n(0)]
    All,
    /// What was put is there, and this is what it looks like.
    #[n(1)]
    There(#[n(0)] Stamp),
}
