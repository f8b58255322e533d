//! Sums of finished output. The bytes of a command pass from pipe to file inside the kernel and nobody sees them, so they are
//! read once more when nothing more can come, a slice at a time, while nobody waits.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Mutex, PoisonError};
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

/// Files that were found whole, with their sums, so that a reader of many pieces costs one look.
static WHOLE: Mutex<BTreeMap<Identity, u32>> = Mutex::new(BTreeMap::new());

/// More than anybody reads at the same time; beyond it they are looked at anew.
const MOST_KNOWN: usize = 4096;

/// Whether a file is as it was when it was summed. One that is shorter is not.
pub fn is_whole(file: &File, sum: &StreamSum) -> io::Result<bool> {
    let meta = file.metadata()?;
    if meta.len() < sum.length {
        return Ok(false);
    }
    let identity = (meta.dev(), meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec());
    if WHOLE.lock().unwrap_or_else(PoisonError::into_inner).get(&identity) == Some(&sum.crc) {
        return Ok(true);
    }
    let mut summing = Summing::default();
    summing.go_on(file, sum.length, u64::MAX)?;
    let same = summing.sum() == *sum;
    if same {
        let mut whole = WHOLE.lock().unwrap_or_else(PoisonError::into_inner);
        if whole.len() >= MOST_KNOWN {
            whole.clear();
        }
        whole.insert(identity, sum.crc);
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
