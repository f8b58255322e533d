//! What keeping and removing needs.

use super::row::{Cols, Stored, Wrong, one, page, parse, readable, signed};
use super::{SqliteStore, changed, projects, statements, write};
use crate::store::upkeep::{Telling, Upkeep};
use crate::store::{Page, Result};
use async_trait::async_trait;
use sqlx::SqliteConnection;
use stead_model::clock::Timestamp;
use stead_model::ids::{EventId, ProjectId, SnapshotId, ThreadId};
use stead_model::notice::{Notice, Subject, Told, What};
use stead_model::project::Project;
use stead_model::retention::{Level, Retention};
use stead_model::snapshot::Snapshot;

statements! {
    TELL = "INSERT INTO notices (id, subject_kind, subject, what, source, at, expires_at, attempts, next_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, 0, $8)";
    NOTICES = "SELECT * FROM notices WHERE seq > $1 ORDER BY seq LIMIT $2";
    NOTICES_OF = "SELECT * FROM notices WHERE subject_kind = $3 AND subject = $4 AND seq > $1 ORDER BY seq LIMIT $2";
    UNTOLD = "SELECT * FROM notices WHERE next_at <= $1 ORDER BY next_at, seq LIMIT $2";
    NEXT_UNTOLD = "SELECT MIN(next_at) FROM notices WHERE next_at IS NOT NULL";
    TRIED = "UPDATE notices SET attempts = $2, next_at = $3 WHERE id = $1";
    FORGET = "DELETE FROM notices WHERE at < $1 AND next_at IS NULL";
    KEPT_THREAD = "SELECT k.*, t.last_active_at FROM kept_threads k JOIN threads t ON t.id = k.thread_id
                   WHERE k.thread_id = $1 AND k.since >= t.last_active_at";
    KEPT_THREADS = "SELECT k.*, t.last_active_at FROM threads t JOIN kept_threads k ON k.thread_id = t.id
                    WHERE k.thread_id > $1 AND k.since >= t.last_active_at ORDER BY k.thread_id LIMIT $2";
    KEEP_THREAD = "INSERT INTO kept_threads (thread_id, since, notified, marked_at, trashed_at)
                   SELECT id, $2, $3, $4, $5 FROM threads WHERE id = $1 AND last_active_at <= $2
                   ON CONFLICT (thread_id) DO UPDATE SET since = $2, notified = $3, marked_at = $4, trashed_at = $5";
    THREAD_EXISTS = "SELECT 1 FROM threads WHERE id = $1";
    LAST_CLEANUP = "SELECT value FROM meta WHERE key = 'cleanup'";
    CLEANED_UP = "INSERT INTO meta (key, value) VALUES ('cleanup', $1) ON CONFLICT (key) DO UPDATE SET value = $1";
    PUT_SNAPSHOT = "INSERT INTO snapshots (id, project_id, description, digest, bytes, tree_bytes, files, created_at,
                      expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    SNAPSHOT = "SELECT * FROM snapshots WHERE id = $1";
    SNAPSHOTS = "SELECT * FROM snapshots WHERE (created_at, id) < ($1, $2) ORDER BY created_at DESC, id DESC LIMIT $3";
    SNAPSHOTS_OF = "SELECT * FROM snapshots WHERE project_id = $4 AND (created_at, id) < ($1, $2)
                    ORDER BY created_at DESC, id DESC LIMIT $3";
    DELETE_SNAPSHOT = "DELETE FROM snapshots WHERE id = $1";
}

/// How many threads are read at a time.
const AT_ONCE: i64 = 500;

impl Stored for Told {
    const KIND: &'static str = "notice";
    const AGE: &'static str = "at";

    fn from_row(row: &Cols<'_>) -> Result<Self, Wrong> {
        let (kind, id) = (row.text("subject_kind")?, row.text("subject")?);
        let subject = Subject::parse(&kind, &id).ok_or_else(|| format!("`subject` is {kind} `{id}`"))?;
        Ok(Self {
            seq: row.number("seq")?,
            notice: Notice {
                id: row.id("id")?,
                subject,
                what: row.word("what", What::parse)?,
                at: row.moment("at")?,
                expires_at: row.moment("expires_at")?,
                source: row.text("source")?,
            },
            attempts: u32::try_from(row.number("attempts")?).map_err(|_| "`attempts` is too large".to_owned())?,
            next_at: row.opt_moment("next_at")?,
        })
    }
}

impl Stored for Snapshot {
    const KIND: &'static str = "snapshot";
    const AGE: &'static str = "created_at";

    fn from_row(row: &Cols<'_>) -> Result<Self, Wrong> {
        Ok(Self {
            id: row.id("id")?,
            project: row.id("project_id")?,
            description: row.text("description")?,
            digest: row.text("digest")?,
            bytes: row.number("bytes")?,
            tree_bytes: row.number("tree_bytes")?,
            files: row.number("files")?,
            created_at: row.moment("created_at")?,
            expires_at: row.opt_moment("expires_at")?,
        })
    }
}

/// What was said of a thread.
struct Kept(ThreadId, Retention);

impl Stored for Kept {
    const KIND: &'static str = "thread";
    const AGE: &'static str = "since";

    fn from_row(row: &Cols<'_>) -> Result<Self, Wrong> {
        let notified = row.opt_text("notified")?.map(|_| row.word("notified", Level::parse)).transpose()?;
        let retention = Retention {
            last_accessed_at: row.moment("last_active_at")?,
            expires_at: row.moment("last_active_at")?,
            keep_days: 0,
            pinned: false,
            notified,
            marked_at: row.opt_moment("marked_at")?,
            trashed_at: row.opt_moment("trashed_at")?,
        };
        Ok(Self(row.id("thread_id")?, retention))
    }

    fn name(row: &Cols<'_>) -> String {
        row.text("thread_id").unwrap_or_else(|_| "?".to_owned())
    }
}

async fn tell(conn: &mut SqliteConnection, told: Telling<'_>) -> Result<()> {
    let Notice { id, subject, what, at, expires_at, source } = told.notice;
    let query = sqlx::query(TELL)
        .bind(id.as_str())
        .bind(subject.kind())
        .bind(subject.id())
        .bind(what.as_str())
        .bind(source)
        .bind(signed(at.0))
        .bind(signed(expires_at.0))
        .bind(told.outside.then(|| signed(at.0)));
    query.execute(conn).await.map_err(|error| super::taken(error, "notice", id.as_str()))?;
    Ok(())
}

#[async_trait]
impl Upkeep for SqliteStore {
    async fn keep_project(
        &self,
        before: &Project,
        after: &Project,
        told: Option<Telling<'_>>,
        most: u32,
    ) -> Result<()> {
        write!(self, |tx| {
            if before.retention.trashed_at.is_some() && after.retention.trashed_at.is_none() {
                projects::leave_room(&mut tx, most).await?;
            }
            projects::replace(&mut tx, before, after).await?;
            if let Some(told) = told {
                tell(&mut tx, told).await?;
            }
        })
    }

    async fn purge_project(&self, id: &ProjectId, told: Telling<'_>) -> Result<()> {
        write!(self, |tx| {
            projects::delete(&mut tx, id).await?;
            tell(&mut tx, told).await?;
        })
    }

    async fn kept_thread(&self, id: &ThreadId) -> Result<Option<Retention>> {
        Ok(one::<Kept>(&self.readers, KEPT_THREAD, &[id.as_str()]).await?.map(|Kept(_, kept)| kept))
    }

    async fn kept_threads(&self) -> Result<Vec<(ThreadId, Retention)>> {
        let (mut kept, mut after) = (Vec::new(), String::new());
        loop {
            let rows = sqlx::query(KEPT_THREADS).bind(&after).bind(AT_ONCE).fetch_all(&self.readers).await?;
            let Some(last) = rows.last() else { return Ok(kept) };
            after = sqlx::Row::try_get(last, "thread_id")?;
            kept.extend(readable::<Kept>(&rows).into_iter().map(|Kept(id, retention)| (id, retention)));
        }
    }

    async fn keep_thread(&self, id: &ThreadId, kept: &Retention, told: Option<Telling<'_>>) -> Result<()> {
        write!(self, |tx| {
            let query = sqlx::query(KEEP_THREAD)
                .bind(id.as_str())
                .bind(signed(kept.last_accessed_at.0))
                .bind(kept.notified.map(Level::as_str))
                .bind(kept.marked_at.map(|at| signed(at.0)))
                .bind(kept.trashed_at.map(|at| signed(at.0)));
            let done = query.execute(&mut *tx).await?;
            changed(&mut tx, done.rows_affected(), THREAD_EXISTS, "thread", id.as_str()).await?;
            if let Some(told) = told {
                tell(&mut tx, told).await?;
            }
        })
    }

    async fn tell(&self, told: Telling<'_>) -> Result<()> {
        write!(self, |tx| tell(&mut tx, told).await?)
    }

    async fn notices(&self, of: Option<&Subject>, after: u64, limit: u32) -> Result<Vec<Told>> {
        let sql = if of.is_some() { NOTICES_OF } else { NOTICES };
        let mut query = sqlx::query(sql).bind(signed(after)).bind(i64::from(limit));
        if let Some(of) = of {
            query = query.bind(of.kind()).bind(of.id());
        }
        Ok(readable(&query.fetch_all(&self.readers).await?))
    }

    async fn untold(&self, now: Timestamp, limit: u32) -> Result<Vec<Told>> {
        let query = sqlx::query(UNTOLD).bind(signed(now.0)).bind(i64::from(limit));
        query.fetch_all(&self.readers).await?.iter().map(parse).collect()
    }

    async fn next_untold(&self) -> Result<Option<Timestamp>> {
        let next: Option<i64> = sqlx::query_scalar(NEXT_UNTOLD).fetch_one(&self.readers).await?;
        Ok(next.map(|next| Timestamp(next.unsigned_abs())))
    }

    async fn tried(&self, id: &EventId, attempts: u32, next_at: Option<Timestamp>) -> Result<()> {
        write!(self, |tx| {
            let query = sqlx::query(TRIED).bind(id.as_str()).bind(i64::from(attempts));
            query.bind(next_at.map(|at| signed(at.0))).execute(&mut *tx).await?;
        })
    }

    async fn forget_notices(&self, before: Timestamp) -> Result<u64> {
        write!(self, |tx| sqlx::query(FORGET).bind(signed(before.0)).execute(&mut *tx).await?.rows_affected())
    }

    async fn last_cleanup(&self) -> Result<Option<Timestamp>> {
        let last: Option<i64> = sqlx::query_scalar(LAST_CLEANUP).fetch_optional(&self.readers).await?;
        Ok(last.map(|last| Timestamp(last.unsigned_abs())))
    }

    async fn cleaned_up(&self, at: Timestamp) -> Result<()> {
        write!(self, |tx| {
            sqlx::query(CLEANED_UP).bind(signed(at.0)).execute(&mut *tx).await?;
        })
    }

    async fn put_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        write!(self, |tx| {
            let query = sqlx::query(PUT_SNAPSHOT)
                .bind(snapshot.id.as_str())
                .bind(snapshot.project.as_str())
                .bind(&snapshot.description)
                .bind(&snapshot.digest)
                .bind(signed(snapshot.bytes))
                .bind(signed(snapshot.tree_bytes))
                .bind(signed(snapshot.files))
                .bind(signed(snapshot.created_at.0))
                .bind(snapshot.expires_at.map(|at| signed(at.0)));
            query.execute(&mut *tx).await.map_err(|error| match super::violation(&error) {
                Some(super::Violation::ForeignKey) => super::missing("project", snapshot.project.as_str()),
                Some(_) | None => super::taken(error, "snapshot", snapshot.id.as_str()),
            })?;
        })
    }

    async fn snapshot(&self, id: &SnapshotId) -> Result<Option<Snapshot>> {
        one(&self.readers, SNAPSHOT, &[id.as_str()]).await
    }

    async fn snapshots(&self, project: Option<&ProjectId>, at: &Page) -> Result<Vec<Snapshot>> {
        match project {
            Some(project) => page(&self.readers, SNAPSHOTS_OF, Some(project.as_str()), at).await,
            None => page(&self.readers, SNAPSHOTS, None, at).await,
        }
    }

    async fn delete_snapshot(&self, id: &SnapshotId) -> Result<()> {
        write!(self, |tx| {
            sqlx::query(DELETE_SNAPSHOT).bind(id.as_str()).execute(&mut *tx).await?;
        })
    }
}
