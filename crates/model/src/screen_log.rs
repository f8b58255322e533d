//! What led to a shell's screen, so that a new steward can bring it back. The bytes of a person's command are in its own
//! record, too; how many of them are here tells what is missing.
//!
//! ```text
//! entry:  u32 length | u32 CRC-32 of the payload | payload (CBOR)          (integers big-endian)
//! ```

use crate::proto::Size;
use crate::state::Bytes;
use minicbor::{Decode, Encode};

const HEADER: usize = 8;
const MAX_ENTRY: usize = 16 << 20;

/// Who wrote to the screen, and so who gets the answers to its questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Origin {
    #[n(0)]
    Shell,
    #[n(1)]
    Prompt,
    #[n(2)]
    Steward,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Entry {
    /// First in the log: bytes that make an empty screen what it was, and how much of which command is in them.
    #[n(0)]
    Snapshot(#[n(0)] Size, #[n(1)] Counted, #[n(2)] Bytes),
    #[n(1)]
    Bytes(#[n(0)] Origin, #[n(1)] Bytes),
    /// Output of the person's command of this number.
    #[n(2)]
    Output(#[n(0)] u64, #[n(1)] Bytes),
    #[n(3)]
    Resized(#[n(0)] Size),
    /// What was asked up to here has been answered.
    #[n(4)]
    Answered,
}

/// The last person's command whose output is in the log, and how many bytes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct Counted {
    #[n(0)]
    pub number: u64,
    #[n(1)]
    pub bytes: u64,
}

impl Counted {
    pub fn add(&mut self, number: u64, bytes: u64) {
        if self.number != number {
            *self = Self { number, bytes: 0 };
        }
        self.bytes += bytes;
    }
}

pub fn write(out: &mut Vec<u8>, entry: &Entry) {
    let payload = minicbor::to_vec(entry).unwrap_or_default();
    out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(&crc32fast::hash(&payload).to_be_bytes());
    out.extend_from_slice(&payload);
}

/// Reads entries until the log ends or is torn; with the length of what could be read.
pub fn read(bytes: &[u8]) -> (Vec<Entry>, usize) {
    let (mut entries, mut rest) = (Vec::new(), bytes);
    while let Some((entry, length)) = next(rest) {
        entries.push(entry);
        rest = rest.get(length..).unwrap_or_default();
    }
    (entries, bytes.len() - rest.len())
}

fn next(bytes: &[u8]) -> Option<(Entry, usize)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let length = u32::from_be_bytes(*length) as usize;
    let payload = rest.get(..length).filter(|_| length <= MAX_ENTRY)?;
    if crc32fast::hash(payload) != u32::from_be_bytes(*sum) {
        return None;
    }
    Some((minicbor::decode(payload).ok()?, HEADER + length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_torn_tail_is_cut_and_nothing_before_it_is_lost(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12), cut: prop::sample::Index,
        ) {
            let entries: Vec<_> = parts.iter().map(|part| Entry::Output(3, Bytes::from(part))).collect();
            let (mut log, mut ends) = (Vec::new(), Vec::new());
            for entry in &entries {
                write(&mut log, entry);
                ends.push(log.len());
            }
            let at = cut.index(log.len() + 1);
            let whole = ends.iter().filter(|end| **end <= at).count();
            let (read, length) = read(&log[..at]);
            prop_assert_eq!(&read[..], &entries[..whole]);
            prop_assert_eq!(length, if whole == 0 { 0 } else { ends[whole - 1] });
        }
    }

    #[test]
    fn bytes_are_counted_for_the_newest_command() {
        let mut counted = Counted::default();
        counted.add(4, 10);
        counted.add(4, 5);
        assert_eq!(counted, Counted { number: 4, bytes: 15 });
        counted.add(6, 1);
        assert_eq!(counted, Counted { number: 6, bytes: 1 });
    }
}
