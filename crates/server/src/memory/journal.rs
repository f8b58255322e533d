//! The file behind a tree in RAM. A record is written before the change is made; after the death of the process it is
//! there whole, or was never acknowledged. There is no fsync: the promise is against the death of processes.

use crate::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use stead_model::memory::{JOURNAL, Note};

#[derive(Debug)]
pub(crate) struct Journal {
    dir: PathBuf,
    /// Snapshot N is what was before journal N.
    pub(crate) generation: u64,
    /// Absent before the first record: what is only read makes no file.
    file: Option<File>,
    /// Where the next record goes.
    length: u64,
    buffer: Vec<u8>,
    /// A record was written in part and could not be taken back.
    is_torn: bool,
}

/// A buffer that grew for a large value is given back.
const KEPT_BUFFER: usize = 1 << 20;

impl Journal {
    /// One that has no file yet.
    pub(crate) fn new(dir: &Path, generation: u64) -> Self {
        let length = JOURNAL.len() as u64;
        Self { dir: dir.to_owned(), generation, file: None, length, buffer: Vec::new(), is_torn: false }
    }

    fn create(dir: &Path, generation: u64) -> std::io::Result<File> {
        make_dir(dir)?;
        let path = journal_path(dir, generation);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(JOURNAL)?;
        Ok(file)
    }

    /// Goes on with one, behind what counts of it: what follows never was.
    pub(crate) fn open(dir: &Path, generation: u64, length: u64) -> std::io::Result<Self> {
        let mut file = OpenOptions::new().write(true).open(journal_path(dir, generation))?;
        file.set_len(length)?;
        file.seek(SeekFrom::Start(length))?;
        if length < JOURNAL.len() as u64 {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(JOURNAL)?;
        }
        let length = length.max(JOURNAL.len() as u64);
        Ok(Self { dir: dir.to_owned(), generation, file: Some(file), length, buffer: Vec::new(), is_torn: false })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    pub(crate) fn append(&mut self, note: &Note<'_>) -> Result<(), Error> {
        if self.is_torn {
            self.mend()?;
        }
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BUFFER);
        if !note.encode(&mut self.buffer) {
            return Err(Error::TooLarge("a value is too large for the journal of memories".to_owned()));
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(Self::create(&self.dir, self.generation).map_err(|error| failed(&error))?),
        };
        if let Err(error) = file.write_all(&self.buffer) {
            self.is_torn = true;
            let _ = self.mend();
            return Err(failed(&error));
        }
        self.length += self.buffer.len() as u64;
        Ok(())
    }

    /// Takes back what was written of a record that failed; until that is done nothing can be added.
    fn mend(&mut self) -> Result<(), Error> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.set_len(self.length).map_err(|error| failed(&error))?;
        file.seek(SeekFrom::Start(self.length)).map_err(|error| failed(&error))?;
        self.is_torn = false;
        Ok(())
    }

    /// Begins the next file; the number of the snapshot that will hold what was before it.
    pub(crate) fn turn(&mut self) -> std::io::Result<u64> {
        if self.is_torn {
            // Or the file would look damaged to whoever reads it; if it can't be, that is told then.
            let _ = self.mend();
        }
        let next = self.generation + 1;
        self.file = Some(Self::create(&self.dir, next)?);
        (self.generation, self.length, self.is_torn) = (next, JOURNAL.len() as u64, false);
        Ok(next)
    }
}

pub(super) fn failed(error: &std::io::Error) -> Error {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    if matches!(error.kind(), StorageFull | QuotaExceeded) {
        return Error::NoSpace("no space is left for the journal of memories".to_owned());
    }
    Error::Io(format!("the journal of memories: {error}"))
}

pub(super) fn journal_path(dir: &Path, generation: u64) -> PathBuf {
    dir.join(format!("journal-{generation:010}"))
}

pub(super) fn snapshot_path(dir: &Path, generation: u64) -> PathBuf {
    dir.join(format!("snapshot-{generation:010}"))
}

/// Generations of files of a kind, ascending.
pub(super) fn generations(dir: &Path, kind: &str) -> std::io::Result<Vec<u64>> {
    let mut found = Vec::new();
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(kind)?.strip_prefix('-')?.parse::<u64>().ok());
        found.extend(number);
    }
    found.sort_unstable();
    Ok(found)
}

/// The directory and the one above it, no more: that of a project which is gone is not made anew.
fn make_dir(dir: &Path) -> std::io::Result<()> {
    for dir in dir.parent().into_iter().chain([dir]) {
        match std::fs::DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}
