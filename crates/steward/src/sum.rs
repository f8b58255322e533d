//! Sums of finished output. The bytes of a command pass from pipe to file inside the kernel and nobody sees them, so they are
//! read once more when nothing more can come, a slice at a time, while nobody waits.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use stead_model::frame::Stream;
use stead_model::proto::{Fault, FaultCode};
use stead_model::record::StreamSum;

/// Read at once.
const PIECE: u64 = 256 << 10;

/// A sum on its way.
#[derive(Debug, Default)]
pub struct Summing {
    offset: u64,
    crc: crc32fast::Hasher,
}

impl Summing {
    /// Goes on for at most so many bytes, up to the length of the stream, and says how many that were.
    pub fn go_on(&mut self, file: &File, length: u64, most: u64) -> io::Result<u64> {
        let end = length.min(self.offset.saturating_add(most));
        let begin = self.offset;
        let mut bytes = vec![0; usize::try_from(PIECE.min(end - begin)).unwrap_or(0)];
        while self.offset < end {
            let size = usize::try_from((end - self.offset).min(PIECE)).unwrap_or(0);
            let piece = bytes.get_mut(..size).unwrap_or_default();
            file.read_exact_at(piece, self.offset)?;
            self.crc.update(piece);
            self.offset += size as u64;
        }
        Ok(end - begin)
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn sum(self) -> StreamSum {
        StreamSum { length: self.offset, crc: self.crc.finalize() }
    }
}

/// Which file it was, and how: device, inode, length, when it was changed. Whoever writes to it changes that.
type Identity = (u64, u64, u64, i64, i64);

/// That a file was found whole.
#[derive(Debug, Clone, Copy)]
struct Verified {
    crc: u32,
    until: Instant,
}

/// Files that were found whole a moment ago, so that a reader of many pieces of a large one doesn't read all of it for each.
static WHOLE: Mutex<BTreeMap<Identity, Verified>> = Mutex::new(BTreeMap::new());

/// A disk that flips a bit changes no time of the file, so nothing is believed for long: so many times as long as the look
/// took, which costs a reader of pieces a twentieth more. A small file is looked at for each piece.
const BELIEVED: u32 = 20;
const LONGEST: Duration = Duration::from_secs(10);

/// More than anybody reads at the same time; beyond it they are looked at anew.
const MOST_KNOWN: usize = 4096;

/// Whether a file is as it was when it was summed. One that is shorter is not.
pub fn is_whole(file: &File, sum: &StreamSum) -> io::Result<bool> {
    let meta = file.metadata()?;
    if meta.len() < sum.length {
        return Ok(false);
    }
    let identity = (meta.dev(), meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec());
    let began = Instant::now();
    let known = WHOLE.lock().unwrap_or_else(PoisonError::into_inner).get(&identity).copied();
    if known.is_some_and(|known| known.crc == sum.crc && began < known.until) {
        return Ok(true);
    }
    let mut summing = Summing::default();
    summing.go_on(file, sum.length, u64::MAX)?;
    let same = summing.sum() == *sum;
    if same {
        let ended = Instant::now();
        let until = ended + (ended - began).saturating_mul(BELIEVED).min(LONGEST);
        let mut whole = WHOLE.lock().unwrap_or_else(PoisonError::into_inner);
        if whole.len() >= MOST_KNOWN {
            whole.retain(|_, known| ended < known.until);
        }
        if whole.len() < MOST_KNOWN {
            whole.insert(identity, Verified { crc: sum.crc, until });
        }
    }
    Ok(same)
}

pub fn name(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    }
}

pub fn damaged(stream: Stream) -> Fault {
    Fault::new(FaultCode::Damaged, format!("the {} of the command is damaged on the disk", name(stream)))
}

/// What a failure to read output means: a file that is shorter than it was is damaged, as is one that is gone without a
/// record of its removal.
pub fn fault(stream: Stream, error: &io::Error) -> Fault {
    if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound) {
        return damaged(stream);
    }
    Fault::new(FaultCode::Unavailable, format!("the output can't be read: {error}"))
}
