//! Projects.

use super::row::{Cols, Stored, Wrong, one, page, signed, to_json};
use super::{changed, missing, statements};
use crate::project::ConfigText;
use crate::store::{Page, Result, Sealed, StoreError};
use sqlx::sqlite::SqlitePool;
use sqlx::{Row, SqliteConnection};
use std::time::Duration;
use stead_model::clock::Timestamp;
use stead_model::ids::ProjectId;
use stead_model::project::{Cloning, Filter, Project, Statistics};
use stead_model::retention::{Level, Retention};

statements! {
    COUNT_KEPT = "SELECT COUNT(*) FROM projects WHERE trashed_at IS NULL AND created_at >= 0";
    INSERT = "INSERT INTO projects (id, description, tags, config, last_accessed_at, expires_at, keep_days, pinned,
                notified, marked_at, trashed_at, clone, clone_at, clone_error, version, prefix, created_at,
                clone_nonce, clone_sealed)
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)";
    GET = "SELECT * FROM projects WHERE id = $1";
    LIST = "SELECT * FROM projects WHERE (created_at, id) < ($1, $2) ORDER BY created_at DESC, id DESC LIMIT $3";
    REPLACE = "UPDATE projects SET description = $2, tags = $3, config = $4, last_accessed_at = $5, expires_at = $6,
                 keep_days = $7, pinned = $8, notified = $9, marked_at = $10, trashed_at = $11, clone = $12,
                 clone_at = $13, clone_error = $14, version = $15
               WHERE id = $1 AND version = $16";
    FORGET_CREDENTIALS = "UPDATE projects SET clone_nonce = NULL, clone_sealed = NULL
                          WHERE id = $1 AND clone IS NOT 'wanted'";
    CREDENTIALS = "SELECT clone_nonce, clone_sealed FROM projects WHERE id = $1 AND clone_nonce IS NOT NULL";
    MEASURED = "UPDATE projects SET disk_bytes = $2 WHERE id = $1";
    FAILED = "UPDATE projects SET last_error_at = $2, last_error = $3 WHERE id = $1";
    EXISTS = "SELECT 1 FROM projects WHERE id = $1";
    DELETE = "DELETE FROM projects WHERE id = $1";
}

const KIND: &str = "project";

/// How many rows are looked at at a time for a page of those that fit.
const AT_ONCE: u32 = 200;

impl Stored for Project {
    const KIND: &'static str = KIND;
    const AGE: &'static str = "created_at";

    fn from_row(row: &Cols<'_>) -> Result<Self, Wrong> {
        let config: ConfigText = row.json("config")?;
        Ok(Self {
            id: row.id("id")?,
            prefix: row.text("prefix")?,
            description: row.text("description")?,
            tags: row.json("tags")?,
            config: config.stored().map_err(|error| error.to_string())?,
            retention: retention(row)?,
            clone: cloning(row)?,
            created_at: row.moment("created_at")?,
            version: row.number("version")?,
            statistics: statistics(row)?,
        })
    }
}

fn retention(row: &Cols<'_>) -> Result<Retention, Wrong> {
    let notified = match row.opt_text("notified")? {
        Some(text) => Some(Level::parse(&text).ok_or_else(|| format!("`notified` is `{text}`"))?),
        None => None,
    };
    Ok(Retention {
        last_accessed_at: row.moment("last_accessed_at")?,
        expires_at: row.moment("expires_at")?,
        keep_days: u32::try_from(row.number("keep_days")?).map_err(|_| "`keep_days` is too large".to_owned())?,
        pinned: row.number("pinned")? == 1,
        notified,
        marked_at: row.opt_moment("marked_at")?,
        trashed_at: row.opt_moment("trashed_at")?,
    })
}

fn cloning(row: &Cols<'_>) -> Result<Cloning, Wrong> {
    let at = || row.opt_moment("clone_at")?.ok_or_else(|| "`clone_at` is absent".to_owned());
    Ok(match row.opt_text("clone")?.as_deref() {
        None => Cloning::Nothing,
        Some("wanted") => Cloning::Wanted,
        Some("done") => Cloning::Done(at()?),
        Some("failed") => Cloning::Failed { at: at()?, error: row.opt_text("clone_error")?.unwrap_or_default() },
        Some(other) => return Err(format!("`clone` is `{other}`")),
    })
}

fn statistics(row: &Cols<'_>) -> Result<Statistics, Wrong> {
    let last_error = match (row.opt_moment("last_error_at")?, row.opt_text("last_error")?) {
        (Some(at), Some(error)) => Some((at, error)),
        _ => None,
    };
    Ok(Statistics {
        sessions: row.number("sessions")?,
        commands: row.number("commands")?,
        failed_commands: row.number("failed_commands")?,
        run_time: Duration::from_millis(row.number("run_ms")?),
        output_bytes: row.number("output_bytes")?,
        disk_bytes: row.opt_moment("disk_bytes")?.map(|Timestamp(bytes)| bytes),
        last_error,
    })
}

/// `$1` to `$15`, of which insert and replace mean the same.
fn bound<'q>(
    sql: &'static str,
    project: &'q Project,
) -> sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments> {
    let Retention { last_accessed_at, expires_at, keep_days, pinned, notified, marked_at, trashed_at } =
        &project.retention;
    let (clone, clone_at, clone_error) = match &project.clone {
        Cloning::Nothing => (None, None, None),
        Cloning::Wanted => (Some("wanted"), None, None),
        Cloning::Done(at) => (Some("done"), Some(*at), None),
        Cloning::Failed { at, error } => (Some("failed"), Some(*at), Some(error.as_str())),
    };
    sqlx::query(sql)
        .bind(project.id.as_str())
        .bind(&project.description)
        .bind(to_json(&project.tags))
        .bind(to_json(&ConfigText::of(&project.config)))
        .bind(signed(last_accessed_at.0))
        .bind(signed(expires_at.0))
        .bind(i64::from(*keep_days))
        .bind(i64::from(*pinned))
        .bind(notified.map(Level::as_str))
        .bind(marked_at.map(|at| signed(at.0)))
        .bind(trashed_at.map(|at| signed(at.0)))
        .bind(clone)
        .bind(clone_at.map(|at| signed(at.0)))
        .bind(clone_error)
        .bind(signed(project.version))
}

pub(super) async fn insert(
    conn: &mut SqliteConnection,
    project: &Project,
    credentials: Option<&Sealed>,
    most: u32,
) -> Result<()> {
    leave_room(conn, most).await?;
    let query = bound(INSERT, project)
        .bind(&project.prefix)
        .bind(signed(project.created_at.0))
        .bind(credentials.map(|sealed| &sealed.nonce[..]))
        .bind(credentials.map(|sealed| &sealed.bytes[..]));
    query.execute(conn).await.map_err(|error| super::taken(error, KIND, project.id.as_str()))?;
    Ok(())
}

/// Refuses one more if there are as many as may be outside the trash.
pub(super) async fn leave_room(conn: &mut SqliteConnection, most: u32) -> Result<()> {
    let kept: i64 = sqlx::query_scalar(COUNT_KEPT).fetch_one(conn).await?;
    if kept >= i64::from(most) { Err(StoreError::Limit { kind: KIND, most }) } else { Ok(()) }
}

pub(super) async fn get(pool: &SqlitePool, id: &ProjectId) -> Result<Option<Project>> {
    one(pool, GET, &[id.as_str()]).await
}

/// What fits is picked out here: there are a thousand, not a million.
pub(super) async fn list(pool: &SqlitePool, filter: &Filter, at: &Page) -> Result<Vec<Project>> {
    let limit = at.limit as usize;
    let mut items = Vec::new();
    let mut after = at.after.clone();
    loop {
        let rows: Vec<Project> = page(pool, LIST, None, &Page { limit: AT_ONCE, after }).await?;
        let more = rows.len() == AT_ONCE as usize;
        after = rows.last().map(|last| (last.created_at, last.id.to_string()));
        items.extend(rows.into_iter().filter(|project| filter.takes(project)));
        if !more || items.len() >= limit {
            items.truncate(limit);
            return Ok(items);
        }
    }
}

pub(super) async fn replace(conn: &mut SqliteConnection, before: &Project, after: &Project) -> Result<()> {
    let done = bound(REPLACE, after).bind(signed(before.version)).execute(&mut *conn).await?;
    changed(conn, done.rows_affected(), EXISTS, KIND, before.id.as_str()).await?;
    sqlx::query(FORGET_CREDENTIALS).bind(before.id.as_str()).execute(conn).await?;
    Ok(())
}

pub(super) async fn credentials(pool: &SqlitePool, id: &ProjectId) -> Result<Option<Sealed>> {
    let row = sqlx::query(CREDENTIALS).bind(id.as_str()).fetch_optional(pool).await?;
    let sealed = row.map(|row| Ok(Sealed { nonce: row.try_get("clone_nonce")?, bytes: row.try_get("clone_sealed")? }));
    Ok(sealed.transpose().map_err(|error: sqlx::Error| error)?)
}

pub(super) async fn measured(conn: &mut SqliteConnection, id: &ProjectId, bytes: u64) -> Result<()> {
    let done = sqlx::query(MEASURED).bind(id.as_str()).bind(signed(bytes)).execute(conn).await?;
    if done.rows_affected() == 0 { Err(missing(KIND, id.as_str())) } else { Ok(()) }
}

pub(super) async fn failed(conn: &mut SqliteConnection, id: &ProjectId, at: Timestamp, error: &str) -> Result<()> {
    let query = sqlx::query(FAILED).bind(id.as_str()).bind(signed(at.0)).bind(error);
    let done = query.execute(conn).await?;
    if done.rows_affected() == 0 { Err(missing(KIND, id.as_str())) } else { Ok(()) }
}

pub(super) async fn delete(conn: &mut SqliteConnection, id: &ProjectId) -> Result<()> {
    sqlx::query(DELETE).bind(id.as_str()).execute(conn).await?;
    Ok(())
}
