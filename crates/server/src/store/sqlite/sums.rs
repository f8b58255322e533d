//! The sums of the pages of a database, in a file beside it. SQLite has none of its own: a bit that flips inside a row is a
//! different row to it. The sums hold for the file as the last checkpoint left it; pages that are in the write-ahead log too
//! are not looked at, because the log's are newer, and the log has sums.
//!
//! ```text
//! checkpoint:  nobody else may write ─► pages go from the log into the file ─► their sums are noted, synced ─► the log may go
//! ```
//!
//! So whatever the moment at which the server is killed, each page is as its sum says or is in the log. A checkpoint that
//! could not copy all of the log, because somebody reads an older moment, notes nothing: the log stays as well.

use rustix::fs::{Mode, OFlags};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use stead_term::proc::boot_id;

const MAGIC: &[u8; 16] = b"stead db sums 1\n";
const HEADER: usize = 16 + 4 + 4 + 4 + 36;

/// Whether somebody may have written to the log since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// A server has it, or was killed: there has to be a log.
    Open,
    /// All is in the file.
    Closed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) phase: Phase,
    /// Of the machine when this was written: what a killed process wrote is there as long as that is the same.
    pub(super) boot: String,
    pub(super) page: u32,
    pub(super) pages: Vec<u32>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SumsError {
    #[error("the sums of the database are damaged themselves")]
    Damaged,
    #[error(transparent)]
    Io(#[from] io::Error),
}

pub(super) fn path(database: &Path) -> PathBuf {
    beside(database, "-sums")
}

pub(super) fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

impl Sums {
    pub(super) fn load(database: &Path) -> Result<Option<Self>, SumsError> {
        let mut bytes = Vec::new();
        match File::open(path(database)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?.read_to_end(&mut bytes)?,
        };
        Self::decode(&bytes).map(Some).ok_or(SumsError::Damaged)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk::<4>()?;
        let words = body.get(HEADER..)?.chunks_exact(4);
        if crc32fast::hash(body) != u32::from_le_bytes(*sum)
            || !body.starts_with(MAGIC)
            || !words.remainder().is_empty()
        {
            return None;
        }
        let word = |at: usize| body.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        let pages: Vec<u32> = words.map(|word| word.try_into().map_or(0, u32::from_le_bytes)).collect();
        let phase = match word(16)? {
            0 => Phase::Closed,
            1 => Phase::Open,
            _ => return None,
        };
        let boot = String::from_utf8(body.get(28..HEADER)?.to_vec()).ok()?;
        (word(24)? as usize == pages.len()).then_some(Self { phase, boot, page: word(20)?, pages })
    }

    /// Written beside and moved, and on the disk before the log that it stands for is given up.
    pub(super) fn store(&self, database: &Path) -> io::Result<()> {
        let phase = match self.phase {
            Phase::Closed => 0_u32,
            Phase::Open => 1,
        };
        let count = u32::try_from(self.pages.len()).map_err(io::Error::other)?;
        let mut bytes = MAGIC.to_vec();
        for word in [phase, self.page, count] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend(self.boot.bytes().chain(std::iter::repeat(b' ')).take(36));
        bytes.extend(self.pages.iter().flat_map(|sum| sum.to_le_bytes()));
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        let (path, fresh) = (path(database), beside(database, "-sums.new"));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut file = File::from(rustix::fs::open(&fresh, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(&bytes)?;
        file.sync_data()?;
        std::fs::rename(&fresh, &path)?;
        database.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
    }

    /// The sums of all pages of a file as it is now.
    pub(super) fn of(file: &File, phase: Phase) -> io::Result<Self> {
        let page = page_size(file)?;
        let mut sums = Self { phase, boot: boot_id().to_owned(), page, pages: Vec::new() };
        let count = u32::try_from(file.metadata()?.len() / u64::from(page)).map_err(io::Error::other)?;
        sums.note(file, count, &(1..=count).collect())?;
        Ok(sums)
    }

    /// Notes some pages as they are now in the file, which has `count` of them.
    pub(super) fn note(&mut self, file: &File, count: u32, pages: &BTreeSet<u32>) -> io::Result<()> {
        self.pages.resize(count as usize, 0);
        let mut bytes = vec![0; self.page as usize];
        for number in pages.iter().filter(|number| (1..=count).contains(number)) {
            file.read_exact_at(&mut bytes, self.offset(*number))?;
            if let Some(slot) = self.pages.get_mut(*number as usize - 1) {
                *slot = sum_of(*number, &bytes);
            }
        }
        Ok(())
    }

    fn offset(&self, number: u32) -> u64 {
        u64::from(number.saturating_sub(1)) * u64::from(self.page)
    }

    /// The pages that are neither as noted nor in the log.
    pub(super) fn differing(&self, file: &File, log: &BTreeSet<u32>) -> io::Result<Vec<u32>> {
        let (mut found, mut number) = (Vec::new(), 0_u32);
        let mut bytes = vec![0; self.page as usize * 256];
        let mut offset = 0;
        while (number as usize) < self.pages.len() {
            let read = read_up_to(file, &mut bytes, offset)?;
            offset += read as u64;
            let got = bytes.get(..read).unwrap_or_default();
            for page in got.chunks_exact(self.page as usize) {
                let noted = self.pages.get(number as usize);
                number += 1;
                if noted.is_some_and(|noted| *noted != sum_of(number, page)) && !log.contains(&number) {
                    found.push(number);
                }
            }
            if read < bytes.len() {
                break;
            }
        }
        // Those behind the end of the file.
        let count = u32::try_from(self.pages.len()).map_err(io::Error::other)?;
        found.extend((number + 1..=count).filter(|number| !log.contains(number)));
        Ok(found)
    }

    /// Puts one flipped bit of a page right. None: it was more than one.
    pub(super) fn mend_bit(&self, number: u32, page: &mut [u8]) -> Option<usize> {
        let wanted = self.pages.get(number.checked_sub(1)? as usize)?;
        let wrong = wanted ^ sum_of(number, page);
        // A CRC is linear: flipping a bit changes it by an amount that depends on where the bit is alone.
        let zero = vec![0; page.len()];
        let base = sum_of(number, &zero);
        let mut probe = zero;
        for at in 0..page.len() {
            for bit in 0..8 {
                *probe.get_mut(at)? = 1 << bit;
                if base ^ sum_of(number, &probe) == wrong {
                    *page.get_mut(at)? ^= 1 << bit;
                    return Some(at);
                }
            }
            *probe.get_mut(at)? = 0;
        }
        None
    }
}

/// With the number of the page, so that one in the place of another is noticed.
fn sum_of(number: u32, page: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(page);
    hasher.finalize()
}

fn read_up_to(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// As the header of a database says.
fn page_size(file: &File) -> io::Result<u32> {
    let mut size = [0; 2];
    file.read_exact_at(&mut size, 16)?;
    let size = match u16::from_be_bytes(size) {
        1 => 65536,
        size => u32::from(size),
    };
    let is_fair = size.is_power_of_two() && size >= 512;
    is_fair.then_some(size).ok_or_else(|| io::Error::other(format!("{size} is no size of a page")))
}
