//! The journal's records. One append-only log per shell holds them; the bytes of a command's output lie beside it in
//! raw files, and the log says how much of them counts and in which order they were seen.
//!
//! ```text
//! file:    magic | record | record | ...
//! record:  u32 length | u32 CRC-32 of the payload | payload (CBOR)          (integers big-endian)
//! ```
//!
//! A record that is cut short ends the log: everything before it counts, it and what follows never happened. One whose sum
//! is wrong, with whole ones behind it, is damage ([`Salvage`]): it is lost, and nothing else. Records of one command, in
//! the order in which they may stand:
//!
//! ```text
//! Accepted ──► Started ──► Chunk* ──► Ended ──► Chunk(late)* ──► Drained ──► Sums ──► Evicted
//!     │           └► Cancelling ─┘       ▲
//!     └──────────────────────────────────┘  never ran: cancelled in the queue, or failed
//! ```

use crate::epilogue::Outputs;
use crate::frame::Stream;
use crate::ids::ShellId;
use crate::proto::{CancelReason, Ending, Exec, OpenShell};
use crate::state::Bytes;
use minicbor::{Decode, Encode};

pub const MAGIC: &[u8; 12] = b"stead log 1\n";

const HEADER: usize = 8;

/// A record may hold a command of 4 MiB with its environment and input; nothing honest is larger.
const MAX_RECORD: usize = crate::frame::MAX_FRAME;

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Record {
    /// First in every log file: what the shell is and where its counters stand.
    #[n(0)]
    Head(#[n(0)] Box<Head>),
    /// A shell of this incarnation is about to be started.
    #[n(1)]
    Spawning(#[n(0)] u64),
    #[n(2)]
    Spawned(#[n(0)] Spawned),
    #[n(3)]
    Accepted(#[n(0)] Box<Accepted>),
    /// About to be put into the control FIFO.
    #[n(4)]
    Started(#[n(0)] Started),
    #[n(5)]
    Chunk(#[n(0)] ChunkRecord),
    #[n(6)]
    Cancelling(#[n(0)] Cancelling),
    #[n(7)]
    Ended(#[n(0)] Box<Ended>),
    /// Nobody holds the command's output any more: no late bytes can come.
    #[n(8)]
    Drained(#[n(0)] u64),
    /// The output of this command was removed to make room.
    #[n(9)]
    Evicted(#[n(0)] u64),
    /// Variables and secrets asked for; the shell has them before its next command.
    #[n(10)]
    Env(#[n(0)] Box<EnvRecord>),
    /// The shell has all that was asked for up to this version.
    #[n(11)]
    EnvApplied(#[n(0)] u64),
    /// What a finished command wrote, summed when nothing more could come.
    #[n(12)]
    Sums(#[n(0)] Sums),
}

/// The streams of a command that are not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Sums {
    #[n(0)]
    pub number: u64,
    #[n(1)]
    pub stdout: Option<StreamSum>,
    #[n(2)]
    pub stderr: Option<StreamSum>,
}

impl Sums {
    pub fn of(&self, stream: Stream) -> Option<StreamSum> {
        match stream {
            Stream::Stdout => self.stdout,
            Stream::Stderr => self.stderr,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct StreamSum {
    #[n(0)]
    pub length: u64,
    /// CRC-32.
    #[n(1)]
    pub crc: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Head {
    #[n(0)]
    pub shell: ShellId,
    #[n(1)]
    pub open: OpenShell,
    #[n(2)]
    pub next_number: u64,
    #[n(3)]
    pub state: StateMark,
    /// The incarnation that was last started, with its process if it got that far.
    #[n(4)]
    pub incarnation: u64,
    #[n(5)]
    pub spawned: Option<Spawned>,
}

/// Which state the shell is in: a stored version, with the directory as it is since.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct StateMark {
    /// Grows by one with each command that ended.
    #[n(0)]
    pub version: u64,
    /// The version under which the rest of the state (all but the directory) was last stored; 0: none was.
    #[n(1)]
    pub stored: u64,
    #[n(2)]
    pub cwd: Bytes,
    #[n(3)]
    pub oldpwd: Option<Bytes>,
    /// `$?` as the next command finds it.
    #[n(4)]
    pub last_status: u8,
    /// `PIPESTATUS` as the next command finds it. `None`: it is `$?`.
    #[n(5)]
    #[cbor(with = "minicbor::bytes")]
    pub pipe_status: Option<Vec<u8>>,
    /// Where a command has pointed the shell's own outputs. `None`: nowhere.
    #[n(6)]
    pub outputs: Option<Outputs>,
}

impl StateMark {
    /// Leaves out what belongs to the process that had it, like its jobs, and is not brought back in another.
    pub fn forget_process(&mut self) {
        (self.pipe_status, self.outputs) = (None, None);
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Spawned {
    #[n(0)]
    pub incarnation: u64,
    #[n(1)]
    pub pid: i32,
    /// Clock ticks since boot at which it started: tells it from a later process of the same number.
    #[n(2)]
    pub start_time: u64,
    #[n(3)]
    pub boot: Bytes,
    /// How many before it died of its state; each got less of it than the one before.
    #[n(4)]
    pub stillborn: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Accepted {
    #[n(0)]
    pub number: u64,
    #[n(1)]
    pub at: u64,
    #[n(2)]
    pub exec: Exec,
    /// A mask stands where the command holds the value of a secret: what is to be run is in memory alone.
    #[n(3)]
    pub masked: Option<bool>,
    /// It had to wait for others, which is the first event of its sequence.
    #[n(4)]
    pub queued: Option<bool>,
}

impl Accepted {
    /// The last place in its sequence when it has been accepted, before anything else happens.
    pub fn seq(&self) -> u64 {
        u64::from(self.queued == Some(true))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Started {
    #[n(0)]
    pub number: u64,
    #[n(1)]
    pub pair: u64,
    #[n(2)]
    pub at: u64,
    /// Microseconds since boot, for deadlines that a step of the wall clock must not move.
    #[n(3)]
    pub uptime: u64,
    /// How many processes had been killed for want of memory, where somebody counts them.
    #[n(4)]
    pub oom_kills: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ChunkRecord {
    #[n(0)]
    pub number: u64,
    #[n(1)]
    pub seq: u64,
    #[n(2)]
    pub stream: Stream,
    #[n(3)]
    pub offset: u64,
    #[n(4)]
    pub length: u64,
    #[n(5)]
    pub at: u64,
    #[n(6)]
    pub late: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Cancelling {
    #[n(0)]
    pub number: u64,
    #[n(1)]
    pub reason: CancelReason,
    /// When it was asked for, in microseconds since boot.
    #[n(2)]
    pub uptime: u64,
    /// Noted a second time, before the first signal: from here on the command did not end by itself.
    #[n(3)]
    pub signalled: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Ended {
    #[n(0)]
    pub number: u64,
    #[n(1)]
    pub seq: u64,
    #[n(2)]
    pub at: u64,
    #[n(3)]
    pub ending: Ending,
    #[n(4)]
    pub state: StateMark,
}

/// Of secrets the names alone: their values are never written.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct EnvRecord {
    #[n(0)]
    pub seq: u64,
    #[n(1)]
    pub vars: Vec<(Bytes, Option<Bytes>)>,
    /// Names whose value is another now, or that are secrets no more.
    #[n(2)]
    pub changed: Vec<Bytes>,
    /// All secrets of the shell, with their revisions.
    #[n(3)]
    pub secrets: Vec<(Bytes, u64)>,
    /// The state with it.
    #[n(4)]
    pub state: StateMark,
}

impl Record {
    /// The command that the record is about.
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Head(_) | Self::Spawning(_) | Self::Spawned(_) | Self::Env(_) | Self::EnvApplied(_) => None,
            Self::Accepted(r) => Some(r.number),
            Self::Started(r) => Some(r.number),
            Self::Chunk(r) => Some(r.number),
            Self::Cancelling(r) => Some(r.number),
            Self::Ended(r) => Some(r.number),
            Self::Drained(number) | Self::Evicted(number) => Some(*number),
            Self::Sums(r) => Some(r.number),
        }
    }
}

/// Appends one record, framed and summed.
pub fn write(out: &mut Vec<u8>, record: &Record) {
    let from = out.len();
    out.extend_from_slice(&[0; HEADER]);
    // Encoding into a vector can't fail: `Vec` as a writer has no error.
    let _ = minicbor::encode(record, &mut *out);
    let payload = out.get(from + HEADER..).unwrap_or_default();
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    let sum = crc32fast::hash(payload).to_be_bytes();
    if let Some((l, rest)) = out.get_mut(from..).and_then(|record| record.split_first_chunk_mut::<4>()) {
        *l = length;
        if let Some(s) = rest.first_chunk_mut::<4>() {
            *s = sum;
        }
    }
}

/// Reads records from the start of `bytes` (after the magic), each with its length on disk, until the log ends or is
/// torn.
#[derive(Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl Iterator for Records<'_> {
    type Item = (Record, usize);

    fn next(&mut self) -> Option<(Record, usize)> {
        let (record, size) = first(self.rest)?;
        self.rest = self.rest.get(size..).unwrap_or_default();
        Some((record, size))
    }
}

/// The record at the beginning, with its length on disk.
fn first(bytes: &[u8]) -> Option<(Record, usize)> {
    let (sum, payload) = framed(bytes)?;
    if crc32fast::hash(payload) != sum {
        return None;
    }
    Some((minicbor::decode(payload).ok()?, HEADER + payload.len()))
}

fn framed(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let length = u32::from_be_bytes(*length) as usize;
    let payload = rest.get(..length).filter(|_| length <= MAX_RECORD)?;
    Some((u32::from_be_bytes(*sum), payload))
}

/// A stretch of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Record(Record),
    /// Bytes that were a record, or several.
    Damage,
}

/// The same over a whole log (after the magic), past damage: what can't be read is passed over as [`Found::Damage`] where
/// records follow it, and ends the log where none does, for then it is the end of a write that was cut off.
#[derive(Debug)]
pub struct Salvage<'a> {
    rest: &'a [u8],
}

impl<'a> Salvage<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl Iterator for Salvage<'_> {
    type Item = (Found, usize);

    fn next(&mut self) -> Option<(Found, usize)> {
        if self.rest.is_empty() {
            return None;
        }
        let (found, size) = match first(self.rest) {
            Some((record, size)) => (Found::Record(record), size),
            None => (Found::Damage, damaged(self.rest)?),
        };
        self.rest = self.rest.get(size..).unwrap_or_default();
        Some((found, size))
    }
}

/// How much to pass over to get to the next record. None: there is no other.
///
/// The length of the damaged one is believed if a record follows where it says, or the log ends there: a write that was cut
/// off is shorter than it says. Otherwise a place is looked for from which records follow one another to the end of the
/// log: text of a command that looks like a record doesn't lead there.
fn damaged(bytes: &[u8]) -> Option<usize> {
    if let Some((_, payload)) = framed(bytes) {
        let size = HEADER + payload.len();
        let behind = bytes.get(size..).unwrap_or_default();
        if (behind.is_empty() && looks_like_one(bytes)) || first(behind).is_some() {
            return Some(size);
        }
    }
    (1..bytes.len()).find(|at| bytes.get(*at..).is_some_and(|rest| looks_like_one(rest) && leads_to_the_end(rest)))
}

/// Cheap to ask at every byte: a record is an array of two, the first of which is a small number.
fn looks_like_one(bytes: &[u8]) -> bool {
    matches!(bytes, [0..=1, _, _, _, _, _, _, _, 0x82, 0..=23, ..])
}

fn leads_to_the_end(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        let size = match first(rest) {
            Some((_, size)) => size,
            // Damaged as well, in a place that leaves its length.
            None if rest.len() < bytes.len() => match framed(rest) {
                Some((_, payload)) if first(rest.get(HEADER + payload.len()..).unwrap_or_default()).is_some() => {
                    HEADER + payload.len()
                }
                _ => return false,
            },
            None => return false,
        };
        rest = rest.get(size..).unwrap_or_default();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chunk(number: u64, length: u64) -> Record {
        Record::Chunk(ChunkRecord { number, seq: 2, stream: Stream::Stderr, offset: 9, length, at: 1, late: true })
    }

    proptest! {
        #[test]
        fn a_torn_or_altered_tail_is_cut_cleanly_and_nothing_before_it_is_lost(
            numbers in prop::collection::vec(any::<u64>(), 1..20), cut: prop::sample::Index, flip: prop::sample::Index, bit in 0_u8..8,
        ) {
            let records: Vec<_> = numbers.iter().map(|n| chunk(*n, n / 2)).collect();
            let mut log = Vec::new();
            let mut ends = Vec::new();
            for record in &records {
                write(&mut log, record);
                ends.push(log.len());
            }
            // Cut anywhere: exactly the records that are whole are read.
            let at = cut.index(log.len() + 1);
            let whole = ends.iter().filter(|end| **end <= at).count();
            let read: Vec<_> = Records::new(&log[..at]).map(|(record, _)| record).collect();
            prop_assert_eq!(&read[..], &records[..whole]);
            // Flip any bit: the records before it are read, the altered one and what follows are not taken as they were.
            let at = flip.index(log.len());
            let before = ends.iter().filter(|end| **end <= at).count();
            log[at] ^= 1 << bit;
            let read: Vec<_> = Records::new(&log).map(|(record, _)| record).collect();
            prop_assert_eq!(&read[..], &records[..before]);
        }

        #[test]
        fn a_flipped_bit_loses_one_record_and_none_of_the_others(
            numbers in prop::collection::vec(any::<u64>(), 1..20), flip: prop::sample::Index, bit in 0_u8..8,
        ) {
            let records: Vec<_> = numbers.iter().map(|n| chunk(*n, n / 2)).collect();
            let (mut log, mut ends) = (Vec::new(), Vec::new());
            for record in &records {
                write(&mut log, record);
                ends.push(log.len());
            }
            let at = flip.index(log.len());
            let hit = ends.iter().filter(|end| **end <= at).count();
            log[at] ^= 1 << bit;
            let found: Vec<_> = Salvage::new(&log).collect();
            let whole: Vec<_> = found.iter().filter_map(|(found, _)| match found {
                Found::Record(record) => Some(record.clone()),
                Found::Damage => None,
            }).collect();
            let mut others = records.clone();
            others.remove(hit);
            // A length that is wrong may lead to another record further on.
            let start = hit.checked_sub(1).map_or(0, |before| ends[before]);
            if at < start + 4 {
                prop_assert_eq!(&whole[..hit], &records[..hit]);
                prop_assert!(whole.iter().all(|record| others.contains(record)));
            } else {
                prop_assert_eq!(whole, others);
            }
            // The last one may be taken for a write that was cut off, if its length is what was hit.
            prop_assert!(found.iter().any(|(found, _)| *found == Found::Damage) || hit + 1 == records.len());
        }

        #[test]
        fn a_log_that_was_cut_is_not_damaged(
            numbers in prop::collection::vec(any::<u64>(), 1..20), cut: prop::sample::Index,
        ) {
            let mut log = Vec::new();
            for n in &numbers {
                write(&mut log, &chunk(*n, n / 2));
            }
            let cut = &log[..cut.index(log.len() + 1)];
            let strict: Vec<_> = Records::new(cut).map(|(record, size)| (Found::Record(record), size)).collect();
            prop_assert_eq!(Salvage::new(cut).collect::<Vec<_>>(), strict);
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Records::new(&bytes).count();
            let _ = Salvage::new(&bytes).count();
        }
    }
}
