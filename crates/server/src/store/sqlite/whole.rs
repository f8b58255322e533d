//! Whether a database is as its last server left it, looked at before SQLite opens it: SQLite would believe what it finds.

use super::sums::{self, Phase, Sums, SumsError};
use super::wal::{Index, Log};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use stead_term::proc::boot_id;

/// What is wrong with a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Damage {
    /// There was one.
    NoDatabase,
    /// Pages, by number, that are not as they were written.
    Pages { pages: Vec<u32>, of: u32 },
    /// The file itself can't be what it was.
    NoPages(String),
    /// The log was in use, and is gone.
    NoLog,
    /// Nothing of the log can be believed.
    LogHeader,
    /// Of so many frames that were written so many are whole.
    LogFrames { whole: u32, written: Option<u32> },
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoDatabase => f.write_str("the file is gone or empty, and there was a database"),
            Self::Pages { pages, of } => {
                let some: Vec<String> = pages.iter().take(5).map(u32::to_string).collect();
                let more = if pages.len() > some.len() { ", ..." } else { "" };
                let count = pages.len();
                write!(f, "{count} of its {of} pages are not as they were written (page {}{more})", some.join(", "))
            }
            Self::NoPages(what) => write!(f, "its pages can't be read: {what}"),
            Self::NoLog => f.write_str("its write-ahead log is gone, with what was written last"),
            Self::LogHeader => {
                f.write_str("the header of its write-ahead log is damaged, so nothing in the log counts")
            }
            Self::LogFrames { whole, written: Some(written) } => {
                write!(f, "its write-ahead log is damaged: {whole} of {written} frames are whole")
            }
            Self::LogFrames { whole, written: None } => {
                write!(f, "its write-ahead log is damaged behind frame {whole}, and more was written")
            }
        }
    }
}

/// A database that was looked at.
#[derive(Debug)]
pub(super) struct Look {
    /// Open for as long as the database is: closing it would drop the locks that SQLite holds on the same file.
    pub(super) file: Option<File>,
    /// The same of the index of its log.
    pub(super) index: Option<File>,
    pub(super) sums: Option<Sums>,
    pub(super) log: Option<Log>,
    pub(super) damage: Vec<Damage>,
    /// What is odd, and can be explained without damage.
    pub(super) odd: Vec<String>,
}

pub(super) fn look(database: &Path) -> io::Result<Look> {
    let mut found = look_once(database)?;
    // Another process may have made a checkpoint between two looks; then the sums are others by now.
    while !found.damage.is_empty() {
        let again = look_once(database)?;
        let is_same = again.sums == found.sums && again.damage == found.damage;
        found = again;
        if is_same {
            break;
        }
    }
    Ok(found)
}

fn look_once(database: &Path) -> io::Result<Look> {
    let mut found = Look { file: None, index: None, sums: None, log: None, damage: Vec::new(), odd: Vec::new() };
    match Sums::load(database) {
        Ok(sums) => found.sums = sums,
        Err(SumsError::Io(error)) => return Err(error),
        Err(error @ SumsError::Damaged) => found.odd.push(error.to_string()),
    }
    found.file = match File::options().read(true).open(database) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        file => Some(file?),
    };
    let is_there = match &found.file {
        Some(file) => file.metadata()?.len() > 0,
        None => false,
    };
    if !is_there {
        found.damage.extend(found.sums.is_some().then_some(Damage::NoDatabase));
        return Ok(found);
    }
    look_at_log(database, &mut found)?;
    look_at_pages(&mut found)?;
    Ok(found)
}

fn read_index(database: &Path, found: &mut Look) -> io::Result<Option<Index>> {
    let mut file = match File::open(sums::beside(database, "-shm")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    found.index = Some(file);
    Ok(Index::read(&bytes))
}

fn look_at_log(database: &Path, found: &mut Look) -> io::Result<()> {
    let read = |suffix| match std::fs::read(sums::beside(database, suffix)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        bytes => bytes.map(Some),
    };
    let bytes = read("-wal")?;
    // The index is in memory that outlives a process, not the machine.
    let same_boot = found.sums.as_ref().is_some_and(|sums| !sums.boot.is_empty() && sums.boot == boot_id());
    let index = if same_boot { read_index(database, found)? } else { None };
    let Some(bytes) = bytes else {
        let was_open = found.sums.as_ref().is_some_and(|sums| sums.phase == Phase::Open);
        let missed = index.is_some_and(|index| index.frames > index.copied);
        found.damage.extend((was_open || missed).then_some(Damage::NoLog));
        return Ok(());
    };
    let Ok(log) = Log::read(&bytes) else {
        let unwritten = index.is_some_and(|index| index.frames <= index.copied);
        found.damage.extend((!unwritten).then_some(Damage::LogHeader));
        return Ok(());
    };
    let whole = log.committed;
    match index {
        // Also where all was copied: SQLite would take the frames before the damage for newer than what is in the file.
        Some(index) if index.frames > 0 && (index.salts != log.salts || index.frames > whole) => {
            found.damage.push(Damage::LogFrames { whole, written: Some(index.frames) });
        }
        None if log.goes_on && same_boot => found.damage.push(Damage::LogFrames { whole, written: None }),
        None if log.goes_on => found.odd.push(format!(
            "its write-ahead log is whole up to frame {whole} and not behind it: if the machine lost power, nothing that \
             was answered is missing; if not, it is damaged"
        )),
        // Up to where it was answered it is whole.
        Some(_) | None => {}
    }
    found.log = Some(log);
    Ok(())
}

fn look_at_pages(found: &mut Look) -> io::Result<()> {
    let (Some(file), Some(sums)) = (&found.file, &found.sums) else { return Ok(()) };
    let logged = found.log.as_ref().map(|log| log.pages.clone()).unwrap_or_default();
    let pages = sums.differing(file, &logged)?;
    if !pages.is_empty() {
        let of = u32::try_from(sums.pages.len()).unwrap_or(u32::MAX);
        found.damage.push(Damage::Pages { pages, of });
    }
    Ok(())
}
