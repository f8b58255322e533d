//! What lasts of memories in RAM: records, appended to a journal before anybody sees what they say, and written as a
//! whole into snapshots.
//!
//! ```text
//! file:    magic | record | record | ...
//! record:  u32 length | u32 CRC-32 of the payload | payload                     (integers big-endian)
//! payload: kind | u64 number | u64 milliseconds | u32 length of the key | key | value
//! ```
//!
//! A snapshot ends with a record that says how many came before it; without that it is none. Every record says what is
//! so from then on, whatever was before: those of a journal may be told over a snapshot that was taken while they were
//! written.

use crate::clock::Timestamp;

pub const JOURNAL: &[u8; 16] = b"stead memory j1\n";
pub const SNAPSHOT: &[u8; 16] = b"stead memory s1\n";

const HEADER: usize = 8;
const FIXED: usize = 1 + 8 + 8 + 4;
/// A value and its key; nothing honest is larger.
pub const MAX_RECORD: usize = (64 << 20) + 8192;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note<'a> {
    /// Grows with each change.
    pub number: u64,
    pub at: Timestamp,
    pub key: &'a [u8],
    pub what: What<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What<'a> {
    /// A file with this in it. The directories above it are there, too.
    File(&'a [u8]),
    Dir,
    /// Gone, with all below it.
    Gone,
    /// The end of a snapshot, and how many records it has. The number of the note is that of the last change before it.
    End(u64),
}

impl Note<'_> {
    /// Appends it to a buffer. False if it would be too large to be read again.
    #[must_use]
    pub fn encode(&self, out: &mut Vec<u8>) -> bool {
        let count;
        let (kind, value): (u8, &[u8]) = match self.what {
            What::File(value) => (1, value),
            What::Dir => (2, b""),
            What::Gone => (3, b""),
            What::End(records) => {
                count = records.to_be_bytes();
                (4, &count)
            }
        };
        let length = FIXED + self.key.len() + value.len();
        let (Ok(size), Ok(key)) = (u32::try_from(length), u32::try_from(self.key.len())) else { return false };
        if length > MAX_RECORD {
            return false;
        }
        let begin = out.len();
        out.reserve(HEADER + length);
        out.extend_from_slice(&size.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.push(kind);
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(&self.at.0.to_be_bytes());
        out.extend_from_slice(&key.to_be_bytes());
        out.extend_from_slice(self.key);
        out.extend_from_slice(value);
        let sum = crc32fast::hash(out.get(begin + HEADER..).unwrap_or_default());
        if let Some(place) = out.get_mut(begin + 4..begin + HEADER) {
            place.copy_from_slice(&sum.to_be_bytes());
        }
        true
    }
}

/// The first record of some bytes and how many it takes. None where it is cut short or its sum is wrong.
pub fn decode(bytes: &[u8]) -> Option<(Note<'_>, usize)> {
    let (size, rest) = u32_at(bytes)?;
    let (sum, rest) = u32_at(rest)?;
    let size = usize::try_from(size).ok().filter(|size| (FIXED..=MAX_RECORD).contains(size))?;
    let payload = rest.get(..size)?;
    if crc32fast::hash(payload) != sum {
        return None;
    }
    Some((read(payload)?, HEADER + size))
}

/// The same of bytes that are one record, whatever it says of its length.
pub fn decode_all(bytes: &[u8]) -> Option<Note<'_>> {
    let (_, rest) = u32_at(bytes)?;
    let (sum, payload) = u32_at(rest)?;
    if crc32fast::hash(payload) == sum { read(payload) } else { None }
}

/// What a record says of itself, before its sum is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    pub number: u64,
    /// How many bytes it takes, if its length is right.
    pub size: usize,
}

/// What some bytes claim to be; none where no record begins so.
pub fn claim(bytes: &[u8]) -> Option<Claim> {
    let (size, rest) = u32_at(bytes)?;
    let (_, rest) = u32_at(rest)?;
    let size = usize::try_from(size).ok().filter(|size| (FIXED..=MAX_RECORD).contains(size))?;
    let (kind, rest) = rest.split_first()?;
    let (number, rest) = u64_at(rest)?;
    let (_, rest) = u64_at(rest)?;
    let (key, _) = u32_at(rest)?;
    let fits = (1..=4).contains(kind) && usize::try_from(key).is_ok_and(|key| key <= size - FIXED);
    fits.then_some(Claim { number, size: HEADER + size })
}

/// Whether some bytes are the beginning of a record whose end is not there.
pub fn is_cut_short(bytes: &[u8]) -> bool {
    let Some((size, rest)) = u32_at(bytes) else { return true };
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    (FIXED..=MAX_RECORD).contains(&size) && rest.len() < size + HEADER - 4
}

fn read(payload: &[u8]) -> Option<Note<'_>> {
    let (kind, rest) = payload.split_first()?;
    let (number, rest) = u64_at(rest)?;
    let (at, rest) = u64_at(rest)?;
    let (key, rest) = u32_at(rest)?;
    let (key, value) = rest.split_at_checked(usize::try_from(key).ok()?)?;
    let what = match kind {
        1 => What::File(value),
        2 => What::Dir,
        3 => What::Gone,
        4 => What::End(u64_at(value)?.0),
        _ => return None,
    };
    Some(Note { number, at: Timestamp(at), key, what })
}

fn u32_at(bytes: &[u8]) -> Option<(u32, &[u8])> {
    bytes.split_first_chunk().map(|(number, rest)| (u32::from_be_bytes(*number), rest))
}

fn u64_at(bytes: &[u8]) -> Option<(u64, &[u8])> {
    bytes.split_first_chunk().map(|(number, rest)| (u64::from_be_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whats() -> impl Strategy<Value = (u8, Vec<u8>, Vec<u8>, u64)> {
        (
            1_u8..5,
            proptest::collection::vec(any::<u8>(), 0..20),
            proptest::collection::vec(any::<u8>(), 0..50),
            any::<u64>(),
        )
    }

    fn note((kind, key, value, number): &(u8, Vec<u8>, Vec<u8>, u64)) -> Note<'_> {
        let what = match kind {
            1 => What::File(value),
            2 => What::Dir,
            3 => What::Gone,
            _ => What::End(*number),
        };
        Note { number: *number, at: Timestamp(number / 2), key, what }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_and_a_torn_or_changed_end_never_was(
            notes in proptest::collection::vec(whats(), 1..6), cut in any::<usize>(), flip in any::<usize>(),
        ) {
            let mut bytes = Vec::new();
            let mut ends = vec![0];
            for one in &notes {
                prop_assert!(note(one).encode(&mut bytes));
                ends.push(bytes.len());
            }
            let read = |bytes: &[u8]| {
                let (mut at, mut count) = (0, 0);
                while let Some((read, size)) = decode(&bytes[at..]) {
                    assert_eq!(read, note(&notes[count]));
                    at += size;
                    count += 1;
                }
                count
            };
            prop_assert_eq!(read(&bytes), notes.len());
            let cut = cut % bytes.len();
            prop_assert_eq!(read(&bytes[..cut]), ends.iter().filter(|end| **end > 0 && **end <= cut).count());
            let at = flip % bytes.len();
            bytes[at] ^= 1 << (flip % 8);
            prop_assert_eq!(read(&bytes), ends.iter().filter(|end| **end > 0 && **end <= at).count());
        }
    }
}
