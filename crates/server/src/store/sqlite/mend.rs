//! Checking and mending a database that no server has. What is mended is a copy; the damaged files are kept beside it.
//!
//! ```text
//! flipped bits put right by their sums ─► nothing else? ─► the same database, whole
//!                                          └► pages that are lost emptied, rows that can be read moved into a fresh one
//! ```

use super::sums::{self, Sums};
use super::wal::{self, Log};
use super::whole::{self, Damage, Look};
use super::{SqliteStore, salvage};
use crate::store::{Result, StoreError};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

/// What a check found.
#[derive(Debug, Default)]
pub struct Checked {
    pub damage: Vec<String>,
    /// What is no damage, and worth a word.
    pub odd: Vec<String>,
    /// Rows in the tables that people know, where they can be read.
    pub rows: Vec<(&'static str, u64)>,
}

/// What a repair did.
#[derive(Debug, Default)]
pub struct Mended {
    pub mended: Vec<String>,
    pub lost: Vec<String>,
    /// Not one row could be read.
    pub is_empty: bool,
    /// Where the files are as they were found.
    pub kept: Option<PathBuf>,
}

const KNOWN: &[&str] = &["projects", "threads", "terminals", "leases", "sessions", "commands", "snapshots", "tokens"];

/// Looks, and changes nothing: what SQLite has to open for it is a copy.
pub async fn check(database: &Path) -> Result<Checked> {
    let found = whole::look(database).map_err(failed(database))?;
    let mut checked = Checked { odd: found.odd.clone(), ..Checked::default() };
    checked.damage.extend(found.damage.iter().map(ToString::to_string));
    let is_there = std::fs::metadata(database).is_ok_and(|file| file.len() > 0);
    if !is_there {
        return Ok(checked);
    }
    let copy = Copy::of(database).map_err(failed(database))?;
    match look_through(&copy.database()).await {
        Ok((wrong, rows)) => {
            checked.damage.extend(wrong);
            checked.rows = rows;
        }
        Err(error) => checked.damage.push(format!("it can't be read: {error}")),
    }
    copy.remove().map_err(failed(database))?;
    Ok(checked)
}

async fn look_through(database: &Path) -> sqlx::Result<(Vec<String>, Vec<(&'static str, u64)>)> {
    let mut conn = plain(database).connect().await?;
    let found: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check(20)").fetch_all(&mut conn).await?;
    let mut wrong: Vec<String> = found.into_iter().filter(|line| line != "ok").collect();
    let orphans = sqlx::query("PRAGMA foreign_key_check").fetch_all(&mut conn).await?.len();
    wrong.extend((orphans > 0).then(|| format!("{orphans} rows name others that are not there")));
    let mut rows = Vec::new();
    for table in KNOWN {
        rows.push((*table, salvage::count(&mut conn, table).await?));
    }
    conn.close().await?;
    Ok((wrong, rows))
}

/// Makes it whole with as much of it as there is: an empty one where there is none. Nothing is done to one that is whole.
pub async fn repair(database: &Path) -> Result<Mended> {
    let mut mended = Mended::default();
    let is_there = std::fs::metadata(database).is_ok_and(|file| file.len() > 0);
    if is_there && check(database).await?.damage.is_empty() {
        return Ok(mended);
    }
    let found = whole::look(database).map_err(failed(database))?;
    let copy = Copy::of(database).map_err(failed(database))?;
    let emptied = mend_files(&found, &copy.database(), &mut mended).map_err(failed(database))?;
    let sound = !emptied && matches!(look_through(&copy.database()).await, Ok((wrong, _)) if wrong.is_empty());
    let whole = if sound { copy.database() } else { salvage::rows(&copy.database(), &mut mended).await? };
    into_one_file(&whole).await?;
    mended.kept = put_in_place(database, &whole).map_err(failed(database))?;
    copy.remove().map_err(failed(database))?;
    // With its sums.
    SqliteStore::open(database).await?.close().await?;
    Ok(mended)
}

/// Mends the copy of the log and of the pages, and empties what can't be. Whether it did.
fn mend_files(found: &Look, copy: &Path, mended: &mut Mended) -> io::Result<bool> {
    mend_log(found, copy, mended)?;
    let mut emptied = false;
    for damage in &found.damage {
        let (Damage::Pages { .. }, Some(sums)) = (damage, &found.sums) else { continue };
        // Once more, for the log tells of other pages now.
        let log = std::fs::read(sums::beside(copy, "-wal")).unwrap_or_default();
        let logged = Log::read(&log).unwrap_or_default().pages;
        let file = std::fs::File::options().read(true).write(true).open(copy)?;
        for number in sums.differing(&file, &logged)? {
            emptied |= mend_page(sums, &file, number, mended)?;
        }
    }
    Ok(emptied)
}

fn mend_log(found: &Look, copy: &Path, mended: &mut Mended) -> io::Result<()> {
    let path = sums::beside(copy, "-wal");
    let is_damaged = |damage: &Damage| matches!(damage, Damage::LogHeader | Damage::LogFrames { .. });
    if found.damage.contains(&Damage::NoLog) {
        mended.lost.push("what was written last, since the last checkpoint: the write-ahead log is gone".to_owned());
        return Ok(());
    }
    let Some(damage) = found.damage.iter().find(|damage| is_damaged(damage)) else { return Ok(()) };
    let written = if let Damage::LogFrames { written, .. } = damage { *written } else { None };
    let mut bytes = std::fs::read(&path)?;
    let is_whole = |bytes: &[u8]| {
        Log::read(bytes).is_ok_and(|log| written.map_or(!log.goes_on, |written| log.committed >= written))
    };
    while !is_whole(&bytes) {
        let Some(at) = wal::mend_bit(&mut bytes) else { break };
        mended.mended.push(format!("a flipped bit at byte {at} of the write-ahead log"));
    }
    let whole = Log::read(&bytes).unwrap_or_default();
    if !is_whole(&bytes) {
        let written = written.map_or_else(|| "more".to_owned(), |written| written.to_string());
        let frames = whole.committed;
        mended
            .lost
            .push(format!("what was written last: {frames} of {written} frames of the write-ahead log are whole"));
    }
    bytes.truncate(whole.length);
    std::fs::write(&path, bytes)
}

fn mend_page(sums: &Sums, file: &std::fs::File, number: u32, mended: &mut Mended) -> io::Result<bool> {
    let (mut page, at) = (vec![0; sums.page as usize], u64::from(number - 1) * u64::from(sums.page));
    let is_cut = file.metadata()?.len() < at + u64::from(sums.page);
    if !is_cut {
        file.read_exact_at(&mut page, at)?;
        if let Some(byte) = sums.mend_bit(number, &mut page) {
            mended.mended.push(format!("a flipped bit at byte {byte} of page {number}"));
            file.write_all_at(&page, at)?;
            return Ok(false);
        }
    }
    mended.lost.push(format!("page {number} of the database"));
    file.write_all_at(&salvage::emptied(&page, number), at)?;
    Ok(true)
}

fn plain(database: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new().filename(database).foreign_keys(false)
}

/// No log beside it.
async fn into_one_file(database: &Path) -> sqlx::Result<()> {
    let mut conn: SqliteConnection = plain(database).connect().await?;
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut conn).await?;
    conn.close().await?;
    // One that holds nothing has no log to begin with.
    plain(database).journal_mode(SqliteJournalMode::Delete).connect().await?.close().await
}

/// The files as they were found go into a directory of their own, the whole one where they were.
fn put_in_place(database: &Path, whole: &Path) -> io::Result<Option<PathBuf>> {
    let parent = database.parent().unwrap_or(Path::new("."));
    let kept = (1..u32::MAX).map(|number| parent.join(format!("damaged-{number}"))).find(|dir| !dir.exists());
    let kept = kept.ok_or_else(|| io::Error::other("no name is free for what was found"))?;
    std::fs::DirBuilder::new().mode(0o700).create(&kept)?;
    let mut some = false;
    for suffix in ["", "-wal", "-shm", "-sums"] {
        let from = sums::beside(database, suffix);
        let name = from.file_name().map(PathBuf::from).unwrap_or_default();
        match std::fs::rename(&from, kept.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) => some = true,
            Err(_) => {}
        }
    }
    std::fs::rename(whole, database)?;
    std::fs::File::open(parent)?.sync_all()?;
    if some {
        return Ok(Some(kept));
    }
    std::fs::remove_dir(&kept)?;
    Ok(None)
}

/// A directory beside the database with a copy of it.
struct Copy(PathBuf);

impl Copy {
    fn of(database: &Path) -> io::Result<Self> {
        let copy = Self(sums::beside(database, ".fsck"));
        copy.remove_if_there()?;
        std::fs::DirBuilder::new().mode(0o700).create(&copy.0)?;
        for suffix in ["", "-wal"] {
            match std::fs::copy(sums::beside(database, suffix), sums::beside(&copy.database(), suffix)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(copy)
    }

    fn database(&self) -> PathBuf {
        self.0.join("stead.db")
    }

    fn remove_if_there(&self) -> io::Result<()> {
        match std::fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn remove(self) -> io::Result<()> {
        self.remove_if_there()
    }
}

fn failed(database: &Path) -> impl Fn(io::Error) -> StoreError {
    move |error| StoreError::Schema { path: database.display().to_string(), what: error.to_string() }
}
