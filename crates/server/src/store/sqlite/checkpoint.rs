//! Checkpoints, which are ours to make and not SQLite's: the sums of the pages go with them (`sums`).

use super::sums::{Phase, Sums, SumsError, beside, path as path_of_sums};
use super::wal::Log;
use super::{SqliteStore, Writers};
use crate::store::Result;
use sqlx::{Connection, Row};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use stead_term::proc::boot_id;

/// Transactions between two: each is a few pages, so the log stays within a few megabytes.
const EVERY: u32 = 256;

/// Where the database is, and the one descriptor on it beside those of SQLite.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) path: PathBuf,
    /// Never closed: see `open`.
    pub(super) file: &'static File,
}

impl Writers {
    /// Notes that a transaction was committed.
    pub(super) async fn written(&mut self) {
        self.since += 1;
        if self.since < EVERY {
            return;
        }
        self.since = 0;
        if let Err(error) = self.checkpoint(Phase::Open).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "the log of the database could not be copied");
        }
    }

    pub(super) async fn checkpoint(&mut self, phase: Phase) -> Result<()> {
        let Self { synced, behind, ground, .. } = self;
        // As long as this is open nobody writes, in whatever process, so the log isn't begun again before the sums are
        // there.
        let alone = behind.begin().await?;
        let done = sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").fetch_one(synced.idle().await?).await?;
        let done = Copied { frames: done.try_get(1)?, copied: done.try_get(2)? };
        let noted = ground.note(done, phase);
        alone.rollback().await?;
        behind.sound = true;
        if let Err(error) = noted {
            tracing::warn!(%error, "the sums of the database can't be kept; the next start looks through all of it instead");
            ground.forget_sums();
        }
        Ok(())
    }
}

/// What a checkpoint has done: frames in the log, and how many of them are in the file.
#[derive(Debug, Clone, Copy)]
struct Copied {
    frames: i64,
    copied: i64,
}

impl Copied {
    /// Somebody reads an older moment, and frames behind it had to stay in the log alone.
    fn is_partial(self) -> bool {
        self.copied < self.frames
    }
}

impl Ground {
    /// Notes the pages that are in the log as they are in the file by now. Where not all of them are, none is noted: each
    /// that has changed is in the log, which stays until all of it was copied, so the sums of the others hold.
    fn note(&self, done: Copied, phase: Phase) -> io::Result<()> {
        if done.is_partial() && phase == Phase::Closed {
            return Err(io::Error::other("another process reads the database, and will copy the rest of its log"));
        }
        let mut sums = match Sums::load(&self.path) {
            Ok(Some(sums)) => sums,
            Ok(None) | Err(SumsError::Damaged) => return Sums::of(self.file, phase)?.store(&self.path),
            Err(SumsError::Io(error)) => return Err(error),
        };
        let frames = done.frames;
        if frames > 0 && !done.is_partial() {
            let log = std::fs::read(beside(&self.path, "-wal"))?;
            let log = Log::read(&log).unwrap_or_default();
            if i64::from(log.committed) < frames {
                // SQLite has copied what it found there. The next start finds pages that aren't as noted, and says so.
                tracing::error!(path = %self.path.display(), whole = log.committed, frames, "the write-ahead log is damaged");
                return Ok(());
            }
            sums.note(self.file, log.size, &log.pages)?;
        }
        (sums.phase, sums.boot) = (phase, boot_id().to_owned());
        sums.store(&self.path)
    }

    fn forget_sums(&self) {
        if let Err(error) = std::fs::remove_file(path_of_sums(&self.path))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::error!(%error, "the sums of the database are out of date and can't be removed");
        }
    }
}

impl SqliteStore {
    /// Puts everything into the one file and lets go of it; whoever writes afterwards is refused. Not needed for anything
    /// to last.
    pub async fn close(&self) -> Result<()> {
        let writers = self.writers.lock().await.take();
        self.readers.close().await;
        match writers {
            Some(writers) => writers.close().await,
            None => Ok(()),
        }
    }
}

impl SqliteStore {
    /// Lets go of it as a killed process would: the log and its index stay. On a full disk they have their place, and the
    /// next server could not make them again. The connections live until the process ends, because the last one that is
    /// closed removes both files.
    pub async fn leave_log(&self) {
        if let Some(writers) = self.writers.lock().await.take() {
            std::mem::forget(writers);
        }
    }
}

impl Writers {
    /// The last connection that is closed finds all of the log in the file, and removes it.
    async fn close(mut self) -> Result<()> {
        let copied = self.checkpoint(Phase::Closed).await;
        if copied.is_err() {
            self.ground.forget_sums();
        }
        let Self { synced, behind, ground, .. } = self;
        behind.conn.close().await?;
        synced.conn.close().await?;
        drop(ground);
        copied
    }
}

/// The last connection that closes puts the log into the file, without a note of the sums: so this comes before it.
impl Drop for SqliteStore {
    fn drop(&mut self) {
        let Some(writers) = self.writers.get_mut().take() else { return };
        let closed = std::thread::scope(|scope| scope.spawn(|| close_by_itself(writers)).join());
        match closed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the database was not closed in order"),
            Err(_) => tracing::error!("the database was not closed in order"),
        }
    }
}

fn close_by_itself(mut writers: Writers) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Whoever dropped it waits here, and must not wait long for somebody else.
        sqlx::query("PRAGMA busy_timeout = 1000").execute(&mut writers.behind.conn).await?;
        Ok(writers.close().await?)
    })
}
