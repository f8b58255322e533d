//! One shell's journal on disk: a log of checksummed records in files of a few megabytes, and beside it the raw bytes
//! of each command's output. The formats are in [`stead_model::record`]; this is the part that touches files.
//!
//! Records are appended with one `write` and are then in the kernel's hands: `kill -9` of anything loses none. (A power
//! cut may lose the last moments; a torn tail is cut when the log is next opened.)

use crate::state_file::{self, StateError};
use rustix::fs::FallocateFlags;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use stead_model::frame::Stream;
use stead_model::record::{Found, MAGIC, Record, Records, Salvage, write};
use stead_model::state::ShellState;

/// A log file is closed and a new one begun past this size, so that old ones can be removed whole.
const SEGMENT: u64 = 8 << 20;

/// Room that is claimed from the file system ahead of need: when the disk is full, the few hundred bytes that say so,
/// and how a command ended, can still be written.
const AHEAD: u64 = 256 << 10;
const RESERVE: u64 = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("the journal's disk is full")]
    NoSpace,
    #[error("the journal `{path}` is damaged at byte {offset} of its log file {segment}")]
    Damaged { path: PathBuf, segment: u32, offset: u64 },
    #[error("can't use the journal `{path}`")]
    Io { path: PathBuf, source: io::Error },
}

impl JournalError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            Self::NoSpace
        } else {
            Self::Io { path: path.to_owned(), source }
        }
    }

    /// Whether it may go better without anything being done to the journal.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if stead_term::scarce::is_passing(source))
    }
}

/// A place in the log, between two records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPos {
    pub segment: u32,
    pub offset: u64,
}

/// Records, each with the place behind it.
type Placed = Vec<(Record, LogPos)>;

#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    segments: Vec<Segment>,
    /// Where records were lost.
    damage: Vec<LogPos>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Segment {
    number: u32,
    file: File,
    length: u64,
    allocated: u64,
    /// The newest command that has a record here.
    newest: u64,
}

/// What a write may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A new command or output: only if afterwards there is still room to say how it ended.
    WithReserve,
    /// The end of something.
    Last,
}

impl Journal {
    /// Opens the journal in `dir`, cutting a torn tail, and gives every whole record to `see` in order. What is damaged in
    /// between is passed over and stays as it is.
    pub fn open(dir: &Path, mut see: impl FnMut(Record, LogPos)) -> Result<Self, JournalError> {
        let failed = |source| JournalError::io(dir, source);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
        let mut numbers = Vec::new();
        for entry in fs::read_dir(dir).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if let Some(number) = name.to_str().and_then(|n| n.strip_suffix(".log")).and_then(|n| n.parse().ok()) {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        let mut journal = Self { dir: dir.to_owned(), segments: Vec::new(), damage: Vec::new(), buffer: Vec::new() };
        for number in numbers {
            journal.open_segment(number, &mut see)?;
        }
        Ok(journal)
    }

    fn open_segment(&mut self, number: u32, see: &mut impl FnMut(Record, LogPos)) -> Result<(), JournalError> {
        let path = self.segment_path(number);
        let failed = |source| JournalError::io(&path, source);
        let bytes = fs::read(&path).map_err(failed)?;
        let file = File::options().read(true).write(true).open(&path).map_err(failed)?;
        let mut segment = Segment { number, file, length: 0, allocated: 0, newest: 0 };
        let head = MAGIC.len() as u64;
        segment.length = head;
        if !bytes.starts_with(MAGIC) {
            self.damage.push(LogPos { segment: number, offset: 0 });
        }
        for (found, size) in Salvage::new(bytes.get(MAGIC.len()..).unwrap_or_default()) {
            let at = LogPos { segment: number, offset: segment.length };
            match found {
                Found::Record(record) => {
                    segment.newest = segment.newest.max(record.number().unwrap_or(0));
                    see(record, at);
                }
                Found::Damage => self.damage.push(at),
            }
            segment.length += size as u64;
        }
        if !bytes.starts_with(MAGIC) && segment.length == head {
            self.damage.retain(|at| at.segment != number);
            // Killed between making the file and its first record: it never was.
            return fs::remove_file(&path).map_err(failed);
        }
        segment.file.set_len(segment.length).map_err(failed)?;
        segment.allocated = segment.length;
        self.segments.push(segment);
        Ok(())
    }

    /// Where records were lost, if any were.
    pub fn damage(&self) -> &[LogPos] {
        &self.damage
    }

    fn segment_path(&self, number: u32) -> PathBuf {
        self.dir.join(format!("{number:06}.log"))
    }

    /// Whether the next command should begin a new log file, with a head that the caller makes.
    pub fn is_full(&self) -> bool {
        self.segments.last().is_none_or(|segment| segment.length > SEGMENT)
    }

    pub fn begin_segment(&mut self, head: &Record) -> Result<(), JournalError> {
        let number = self.segments.last().map_or(1, |segment| segment.number + 1);
        let path = self.segment_path(number);
        let failed = |source| JournalError::io(&path, source);
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        self.buffer.clear();
        self.buffer.extend_from_slice(MAGIC);
        write(&mut self.buffer, head);
        if let Err(error) = file.write_all_at(&self.buffer, 0) {
            let _ = fs::remove_file(&path);
            return Err(failed(error));
        }
        let length = self.buffer.len() as u64;
        self.segments.push(Segment { number, file, length, allocated: length, newest: 0 });
        Ok(())
    }

    /// Appends records with one write. All of them are in the log afterwards, or none.
    pub fn append(&mut self, records: &[&Record], need: Need) -> Result<LogPos, JournalError> {
        self.buffer.clear();
        for record in records {
            write(&mut self.buffer, record);
        }
        let path = self.dir.as_path();
        let Some(segment) = self.segments.last_mut() else {
            return Err(JournalError::io(path, io::ErrorKind::NotFound.into()));
        };
        segment.claim(self.buffer.len() as u64, need).map_err(|source| JournalError::io(path, source))?;
        let at = LogPos { segment: segment.number, offset: segment.length };
        segment.file.write_all_at(&self.buffer, segment.length).map_err(|source| JournalError::io(path, source))?;
        segment.length += self.buffer.len() as u64;
        let newest = records.iter().filter_map(|record| record.number()).max();
        segment.newest = segment.newest.max(newest.unwrap_or(0));
        if self.buffer.capacity() > 1 << 20 {
            self.buffer = Vec::new();
        }
        Ok(at)
    }

    /// The whole records from a place on, at most about `most` bytes of them, each with the place behind it.
    pub fn read(&self, from: LogPos, most: u64) -> Result<Vec<(Record, LogPos)>, JournalError> {
        let mut at = from;
        loop {
            let Some(segment) = self.segments.iter().find(|segment| segment.number >= at.segment) else {
                return Ok(Vec::new());
            };
            if segment.number > at.segment {
                at = LogPos { segment: segment.number, offset: MAGIC.len() as u64 };
            }
            if at.offset < segment.length {
                return self.read_in(segment, at, most);
            }
            if self.segments.last().is_some_and(|last| last.number == segment.number) {
                return Ok(Vec::new());
            }
            at = LogPos { segment: segment.number + 1, offset: MAGIC.len() as u64 };
        }
    }

    fn read_in(&self, segment: &Segment, from: LogPos, most: u64) -> Result<Vec<(Record, LogPos)>, JournalError> {
        let (records, bytes) = self.whole_at(segment, from, most)?;
        // All of it is here, and can't be read: on behind it.
        if records.is_empty() { self.read_past_damage(from, &bytes) } else { Ok(records) }
    }

    /// The records that follow one another from a place on; if there is none, all the bytes to the end of the file.
    fn whole_at(&self, segment: &Segment, from: LogPos, mut most: u64) -> Result<(Placed, Vec<u8>), JournalError> {
        let failed = |source| JournalError::io(&self.dir, source);
        loop {
            let size = (segment.length - from.offset).min(most);
            let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
            segment.file.read_exact_at(&mut bytes, from.offset).map_err(failed)?;
            let (mut records, mut at) = (Vec::new(), from);
            for (record, size) in Records::new(&bytes) {
                at.offset += size as u64;
                records.push((record, at));
            }
            // A record larger than what was asked for: ask for more.
            if records.is_empty() && from.offset + size < segment.length {
                most = most.saturating_mul(8);
                continue;
            }
            return Ok((records, bytes));
        }
    }

    fn read_past_damage(&self, from: LogPos, bytes: &[u8]) -> Result<Vec<(Record, LogPos)>, JournalError> {
        let (mut records, mut at) = (Vec::new(), from);
        for (found, size) in Salvage::new(bytes) {
            at.offset += size as u64;
            if let Found::Record(record) = found {
                records.push((record, at));
            }
        }
        if records.is_empty() {
            let LogPos { segment, offset } = from;
            return Err(JournalError::Damaged { path: self.dir.clone(), segment, offset });
        }
        Ok(records)
    }

    /// The one record at a place; none if it is damaged.
    pub fn record_at(&self, at: LogPos) -> Result<Option<Record>, JournalError> {
        let segment = self.segments.iter().find(|segment| segment.number == at.segment && at.offset < segment.length);
        let Some(segment) = segment else { return Ok(None) };
        Ok(self.whole_at(segment, at, 4 << 10)?.0.into_iter().next().map(|(record, _)| record))
    }

    /// Removes log files in which every command is older than `oldest`. The one being written stays.
    pub fn forget_before(&mut self, oldest: u64) -> Result<(), JournalError> {
        while self.segments.len() > 1 && self.segments.first().is_some_and(|segment| segment.newest < oldest) {
            let segment = self.segments.remove(0);
            let path = self.segment_path(segment.number);
            fs::remove_file(&path).map_err(|source| JournalError::io(&path, source))?;
        }
        Ok(())
    }

    pub fn log_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.length).sum()
    }

    /// Where a command's raw output lies.
    pub fn stream_path(&self, number: u64, stream: Stream) -> PathBuf {
        let suffix = match stream {
            Stream::Stdout => "out",
            Stream::Stderr => "err",
        };
        self.dir.join(format!("{number}.{suffix}"))
    }

    /// The numbers of all commands that have output here.
    pub fn stream_numbers(&self) -> Result<Vec<u64>, JournalError> {
        let failed = |source| JournalError::io(&self.dir, source);
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let number = name.to_str().and_then(|n| n.strip_suffix(".out").or_else(|| n.strip_suffix(".err")));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        Ok(numbers)
    }

    /// Opens a stream for moving bytes into, making it if it isn't there; with its present length.
    pub fn open_stream(&self, number: u64, stream: Stream) -> Result<(File, u64), JournalError> {
        let path = self.stream_path(number, stream);
        let failed = |source| JournalError::io(&path, source);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        Ok((file, length))
    }

    pub fn remove_streams(&self, number: u64) -> Result<(), JournalError> {
        for stream in Stream::BOTH {
            let path = self.stream_path(number, stream);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(JournalError::io(&path, error)),
                _ => {}
            }
        }
        Ok(())
    }

    pub fn store_state(&self, version: u64, state: &ShellState) -> Result<(), JournalError> {
        let (path, bytes) = (self.state_path(version), state_file::encode(state));
        super::dir::write_atomically(&path, &bytes).map_err(|source| JournalError::io(&path, source))
    }

    /// The outer error is one that may be gone the next time.
    pub fn load_state(&self, version: u64) -> Result<Result<ShellState, StateError>, JournalError> {
        let path = self.state_path(version);
        match fs::read(&path) {
            Ok(bytes) => Ok(state_file::decode(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Err(StateError::Missing)),
            Err(error) if stead_term::scarce::is_passing(&error) => Err(JournalError::io(&path, error)),
            Err(_) => Ok(Err(StateError::Damaged)),
        }
    }

    pub fn remove_state(&self, version: u64) -> Result<(), JournalError> {
        let path = self.state_path(version);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(JournalError::io(&path, error)),
            _ => Ok(()),
        }
    }

    /// Removes what a killed steward left: stored states but the one in use.
    pub fn keep_state(&self, version: u64) -> Result<(), JournalError> {
        let failed = |source| JournalError::io(&self.dir, source);
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let stored = name.to_str().and_then(|n| n.strip_suffix(".state")).and_then(|n| n.parse::<u64>().ok());
            if stored.is_some_and(|stored| stored != version) {
                fs::remove_file(entry.path()).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn state_path(&self, version: u64) -> PathBuf {
        self.dir.join(format!("{version}.state"))
    }

    pub fn remove(self) -> io::Result<()> {
        fs::remove_dir_all(&self.dir)
    }
}

impl Segment {
    /// Makes sure that the bytes, and for all but last words the reserve behind them, have their place on the disk.
    fn claim(&mut self, bytes: u64, need: Need) -> io::Result<()> {
        let wanted = self.length + bytes + if need == Need::WithReserve { RESERVE } else { 0 };
        if wanted <= self.allocated {
            return Ok(());
        }
        let upto = wanted + AHEAD;
        match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, upto) {
            Ok(()) => self.allocated = upto,
            // No such call on this file system: nothing is promised about a full disk, the write itself will tell.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => self.allocated = u64::MAX,
            Err(error) if need == Need::WithReserve => return Err(error.into()),
            Err(_) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_model::record::ChunkRecord;

    fn chunk(number: u64) -> Record {
        Record::Chunk(ChunkRecord { number, seq: 1, stream: Stream::Stdout, offset: 0, length: 5, at: 0, late: false })
    }

    fn replay(dir: &Path) -> (Journal, Vec<Record>) {
        let mut seen = Vec::new();
        let journal = Journal::open(dir, |record, _| seen.push(record)).unwrap();
        (journal, seen)
    }

    #[test]
    fn what_was_appended_is_read_back_across_files_and_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = replay(dir.path());
        journal.begin_segment(&Record::Spawning(1)).unwrap();
        let at = journal.append(&[&chunk(1), &chunk(2)], Need::WithReserve).unwrap();
        journal.begin_segment(&Record::Spawning(2)).unwrap();
        journal.append(&[&chunk(3)], Need::Last).unwrap();
        let all = [Record::Spawning(1), chunk(1), chunk(2), Record::Spawning(2), chunk(3)];
        assert_eq!(replay(dir.path()).1, all);
        let (mut at, mut read) = (at, Vec::new());
        while let Some((record, next)) = journal.read(at, 1).unwrap().into_iter().next() {
            read.push(record);
            at = next;
        }
        assert_eq!(read, all[1..]);
    }

    #[test]
    fn a_torn_tail_is_cut_and_appending_goes_on_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = replay(dir.path());
        journal.begin_segment(&Record::Spawning(1)).unwrap();
        journal.append(&[&chunk(1)], Need::Last).unwrap();
        let path = dir.path().join("000001.log");
        let whole = path.metadata().unwrap().len();
        journal.append(&[&chunk(2)], Need::Last).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(whole + 11).unwrap();
        let (mut journal, seen) = replay(dir.path());
        assert_eq!((seen.len(), path.metadata().unwrap().len()), (2, whole));
        journal.append(&[&chunk(9)], Need::Last).unwrap();
        assert_eq!(replay(dir.path()).1, [Record::Spawning(1), chunk(1), chunk(9)]);
    }

    #[test]
    fn only_files_whose_commands_are_all_forgotten_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = replay(dir.path());
        for number in 1..=3 {
            journal.begin_segment(&Record::Spawning(number)).unwrap();
            journal.append(&[&chunk(number)], Need::Last).unwrap();
        }
        journal.forget_before(2).unwrap();
        assert_eq!(replay(dir.path()).1.len(), 4);
        journal.forget_before(100).unwrap();
        assert_eq!(replay(dir.path()).1, [Record::Spawning(3), chunk(3)], "the file being written stays");
    }
}
