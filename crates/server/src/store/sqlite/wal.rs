//! The write-ahead log of SQLite as its format says it is (<https://sqlite.org/fileformat2.html#the_write_ahead_log>), read
//! without SQLite. SQLite takes a log up to its first frame whose sum is wrong and passes over the rest without a word: after
//! a torn write that is right, after a flipped bit it forgets what was answered. Here the two are told apart.
//!
//! ```text
//! log:    header 32 │ frame │ frame │ ...           header: magic, version, page size, sequence, salts, sums
//! frame:  header 24 │ page                          header: page, size of the database if it ends a transaction, salts, sums
//! ```

use std::collections::BTreeSet;

const HEADER: usize = 32;
const FRAME: usize = 24;

/// As far as the log is whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Log {
    /// Frames up to the end of the last whole transaction.
    pub(super) committed: u32,
    /// The pages in them.
    pub(super) pages: BTreeSet<u32>,
    /// Pages of the database after them.
    pub(super) size: u32,
    /// Length in bytes of those frames with the header.
    pub(super) length: usize,
    pub(super) salts: [u32; 2],
    /// Where the first frame begins that isn't whole.
    pub(super) broken: Option<usize>,
    /// Whether frames of this log follow that one, so that it can't be the end of a write that was cut off.
    pub(super) goes_on: bool,
}

/// The log has no header that could be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoHeader;

/// What a connection that is gone had left in the index of the log: up to where it was written, and copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) frames: u32,
    pub(super) copied: u32,
    pub(super) salts: [u32; 2],
}

impl Log {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, NoHeader> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let head = Head::read(bytes).ok_or(NoHeader)?;
        let mut log = Self { length: HEADER, salts: head.salts, ..Self::default() };
        let (mut at, mut sum, mut pages, mut frames) = (HEADER, head.sum, Vec::new(), 0);
        while let Some(frame) = bytes.get(at..at + head.frame()) {
            let Some(next) = head.follows(sum, frame) else { break };
            (sum, at, frames) = (next, at + head.frame(), frames + 1);
            pages.push(word(frame, 0));
            let size = word(frame, 4);
            if size > 0 {
                log.pages.extend(pages.drain(..));
                (log.committed, log.size, log.length) = (frames, size, at);
            }
        }
        log.broken = (at < bytes.len()).then_some(at);
        let rest = bytes.get(at..).unwrap_or_default();
        log.goes_on = rest.chunks(head.frame()).skip(1).any(|frame| head.owns(frame));
        Ok(log)
    }
}

impl Index {
    /// From the file `-shm`: two copies of a header with a sum, then how much was copied. In the byte order of this machine.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (one, two) = (bytes.get(..48)?, bytes.get(48..96)?);
        let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let sums = [word(40)?, word(44)?];
        let is_whole = one == two && sum([0, 0], bytes.get(..40)?, u32::from_ne_bytes) == sums;
        is_whole.then_some(())?;
        // The salts are copied as they stand in the log, whose numbers are big-endian.
        let salt = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
        Some(Self { frames: word(16)?, copied: word(96)?, salts: [salt(32)?, salt(36)?] })
    }
}

/// The one bit that was flipped, put right, in the header or the first broken frame. None: it was more than that.
pub(super) fn mend_bit(bytes: &mut [u8]) -> Option<usize> {
    let (from, to) = match Log::read(bytes) {
        Err(NoHeader) => (0, HEADER.min(bytes.len())),
        Ok(log) => {
            let from = log.broken?;
            (from, from + Head::read(bytes)?.frame())
        }
    };
    let sum = Log::sum_before(bytes, from);
    let mut piece = bytes.get(from..to)?.to_vec();
    let head = Head::read(bytes);
    for bit in 0..piece.len() * 8 {
        let flip = |piece: &mut [u8]| {
            if let Some(byte) = piece.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        };
        flip(&mut piece);
        let is_whole = match &head {
            None => Head::read(&piece).is_some(),
            Some(head) => sum.is_some_and(|sum| head.follows(sum, &piece).is_some()),
        };
        if is_whole {
            bytes.get_mut(from..to)?.copy_from_slice(&piece);
            return Some(from + bit / 8);
        }
        flip(&mut piece);
    }
    None
}

impl Log {
    /// The running sum in front of a frame, all of whose predecessors are whole.
    fn sum_before(bytes: &[u8], end: usize) -> Option<[u32; 2]> {
        let head = Head::read(bytes)?;
        let last = end.checked_sub(head.frame()).filter(|at| *at >= HEADER);
        Some(last.map_or(head.sum, |at| {
            let frame = bytes.get(at..at + FRAME).unwrap_or_default();
            [word(frame, 16), word(frame, 20)]
        }))
    }
}

struct Head {
    order: fn([u8; 4]) -> u32,
    page: usize,
    salts: [u32; 2],
    sum: [u32; 2],
}

impl Head {
    fn read(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..HEADER)?;
        let order: fn([u8; 4]) -> u32 = match word(head, 0) {
            0x377f_0682 => u32::from_le_bytes,
            0x377f_0683 => u32::from_be_bytes,
            _ => return None,
        };
        let page = word(head, 8);
        let sums = sum([0, 0], head.get(..24)?, order);
        let is_whole = word(head, 4) == 3_007_000
            && page.is_power_of_two()
            && (512..=65536).contains(&page)
            && sums == [word(head, 24), word(head, 28)];
        let salts = [word(head, 16), word(head, 20)];
        is_whole.then(|| Self { order, page: usize::try_from(page).unwrap_or(65536), salts, sum: sums })
    }

    fn frame(&self) -> usize {
        FRAME + self.page
    }

    fn owns(&self, frame: &[u8]) -> bool {
        frame.len() >= FRAME && [word(frame, 8), word(frame, 12)] == self.salts && word(frame, 0) > 0
    }

    /// The running sum behind a frame, if that is whole.
    fn follows(&self, before: [u32; 2], frame: &[u8]) -> Option<[u32; 2]> {
        if !self.owns(frame) {
            return None;
        }
        let sums = sum(sum(before, frame.get(..8)?, self.order), frame.get(FRAME..)?, self.order);
        (sums == [word(frame, 16), word(frame, 20)]).then_some(sums)
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_be_bytes)
}

/// SQLite's own sum, over eight bytes at a time.
fn sum([mut one, mut two]: [u32; 2], bytes: &[u8], order: fn([u8; 4]) -> u32) -> [u32; 2] {
    let (words, _) = bytes.as_chunks::<4>();
    for pair in words.chunks_exact(2) {
        let [first, second] = pair else { break };
        one = one.wrapping_add(order(*first)).wrapping_add(two);
        two = two.wrapping_add(order(*second)).wrapping_add(one);
    }
    [one, two]
}
