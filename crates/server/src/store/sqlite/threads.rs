//! Threads.

use super::row::{Cols, Stored, Wrong, millis, one, page, signed};
use super::{missing, statements};
use crate::store::{Page, Result};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqlitePool;
use stead_model::clock::Timestamp;
use stead_model::ids::{ProjectId, ThreadId};
use stead_model::thread::Thread;

statements! {
    INSERT = "INSERT INTO threads (id, project_id, provider, default_terminal_id, lease_id, workspace, idle_timeout,
                max_duration, created_at, last_active_at)
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    GET = "SELECT * FROM threads WHERE id = $1";
    LIST = "SELECT * FROM threads WHERE (created_at, id) < ($1, $2) ORDER BY created_at DESC, id DESC LIMIT $3";
    LIST_OF_PROJECT = "SELECT * FROM threads WHERE project_id = $4 AND (created_at, id) < ($1, $2)
                       ORDER BY created_at DESC, id DESC LIMIT $3";
    // A clock that was set back makes nothing older.
    TOUCH = "UPDATE threads SET last_active_at = $2 WHERE id = $1 AND last_active_at < $2";
    EXISTS = "SELECT 1 FROM threads WHERE id = $1";
    DELETE = "DELETE FROM threads WHERE id = $1";
}

const KIND: &str = "thread";

impl Stored for Thread {
    const KIND: &'static str = KIND;
    const AGE: &'static str = "created_at";

    fn from_row(row: &Cols<'_>) -> Result<Self, Wrong> {
        Ok(Self {
            id: row.id("id")?,
            project: row.opt_id("project_id")?,
            provider: row.id("provider")?,
            default_terminal: row.id("default_terminal_id")?,
            lease: row.id("lease_id")?,
            workspace: row.text("workspace")?,
            policy: row.policy()?,
            created_at: row.moment("created_at")?,
            last_active_at: row.moment("last_active_at")?,
        })
    }
}

pub(super) async fn insert(conn: &mut SqliteConnection, thread: &Thread) -> Result<()> {
    let query = sqlx::query(INSERT)
        .bind(thread.id.as_str())
        .bind(thread.project.as_ref().map(ProjectId::as_str))
        .bind(thread.provider.as_str())
        .bind(thread.default_terminal.as_str())
        .bind(thread.lease.as_str())
        .bind(&thread.workspace)
        .bind(millis(thread.policy.idle_timeout))
        .bind(millis(thread.policy.max_duration))
        .bind(signed(thread.created_at.0))
        .bind(signed(thread.last_active_at.0));
    query.execute(conn).await.map_err(|error| super::taken(error, KIND, thread.id.as_str()))?;
    Ok(())
}

pub(super) async fn get(pool: &SqlitePool, id: &ThreadId) -> Result<Option<Thread>> {
    one(pool, GET, &[id.as_str()]).await
}

pub(super) async fn list(pool: &SqlitePool, project: Option<&ProjectId>, at: &Page) -> Result<Vec<Thread>> {
    match project {
        Some(project) => page(pool, LIST_OF_PROJECT, Some(project.as_str()), at).await,
        None => page(pool, LIST, None, at).await,
    }
}

pub(super) async fn touch(conn: &mut SqliteConnection, id: &ThreadId, at: Timestamp) -> Result<()> {
    let touched = sqlx::query(TOUCH).bind(id.as_str()).bind(signed(at.0)).execute(&mut *conn).await?;
    if touched.rows_affected() == 0 && !exists(conn, id.as_str()).await? {
        return Err(missing(KIND, id.as_str()));
    }
    Ok(())
}

pub(super) async fn exists(conn: &mut SqliteConnection, id: &str) -> Result<bool> {
    Ok(sqlx::query(EXISTS).bind(id).fetch_optional(conn).await?.is_some())
}

pub(super) async fn delete(conn: &mut SqliteConnection, id: &ThreadId) -> Result<()> {
    sqlx::query(DELETE).bind(id.as_str()).execute(conn).await?;
    Ok(())
}
