//! Threads.

use super::row::{Cols, Stored, Wrong, millis, one, page, signed};
use super::{Violation, changed, missing, statements, violation};
use crate::store::{Page, Result, StoreError};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqlitePool;
use stead_model::clock::Timestamp;
use stead_model::ids::{LeaseId, ProjectId, ThreadId};
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
    PUT_ON = "UPDATE threads SET provider = $2, lease_id = $3, workspace = $4 WHERE id = $1 AND lease_id = $5";
    IS_REMOVED = "SELECT 1 FROM leases WHERE id = $1 AND desired = 'destroyed'
                    AND NOT EXISTS (SELECT 1 FROM terminals WHERE lease_id = $1)";
    OTHERS = "SELECT 1 FROM terminals WHERE lease_id = $1 LIMIT 1";
    LEAVE = "INSERT INTO past_leases (lease_id, thread_id) VALUES ($1, $2)";
    PAST_LEASES = "SELECT lease_id FROM past_leases WHERE thread_id = $1 ORDER BY lease_id";
    MOVER = "SELECT thread_id FROM past_leases WHERE lease_id = $1";
    USES_WORKSPACE = "SELECT 1 FROM threads WHERE workspace = $1 LIMIT 1";
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

/// Changes where a thread is.
pub(super) async fn put_on(conn: &mut SqliteConnection, before: &Thread, after: &Thread) -> Result<()> {
    let query = sqlx::query(PUT_ON)
        .bind(before.id.as_str())
        .bind(after.provider.as_str())
        .bind(after.lease.as_str())
        .bind(&after.workspace)
        .bind(before.lease.as_str());
    let done = query.execute(&mut *conn).await?;
    changed(conn, done.rows_affected(), EXISTS, KIND, before.id.as_str()).await
}

/// Whoever removes a lease wants it destroyed first and then looks once more whether anybody is on it; so of the two of
/// us one sees the other.
pub(super) async fn refuse_if_removed(conn: &mut SqliteConnection, thread: &Thread) -> Result<()> {
    match sqlx::query(IS_REMOVED).bind(thread.lease.as_str()).fetch_optional(conn).await? {
        Some(_) => Err(StoreError::Conflict { kind: "lease", id: thread.lease.to_string() }),
        None => Ok(()),
    }
}

/// Notes the lease that a thread was on as one of its past, if nobody is on it any more.
pub(super) async fn leave(conn: &mut SqliteConnection, before: &Thread) -> Result<()> {
    let lease = before.lease.as_str();
    if sqlx::query(OTHERS).bind(lease).fetch_optional(&mut *conn).await?.is_some() {
        return Err(StoreError::Conflict { kind: "lease", id: lease.to_owned() });
    }
    let noted = sqlx::query(LEAVE).bind(lease).bind(before.id.as_str()).execute(conn).await;
    noted.map(drop).map_err(|error| match violation(&error) {
        Some(Violation::ForeignKey) => missing("lease", lease),
        Some(Violation::PrimaryKey | Violation::Unique) | None => error.into(),
    })
}

fn parse_id<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T> {
    text.parse().map_err(|error: T::Err| StoreError::Corrupt {
        kind: "past lease",
        id: text.to_owned(),
        what: error.to_string(),
    })
}

pub(super) async fn past_leases(pool: &SqlitePool, thread: &ThreadId) -> Result<Vec<LeaseId>> {
    let ids: Vec<String> = sqlx::query_scalar(PAST_LEASES).bind(thread.as_str()).fetch_all(pool).await?;
    ids.iter().map(|id| parse_id(id)).collect()
}

pub(super) async fn mover(pool: &SqlitePool, lease: &LeaseId) -> Result<Option<ThreadId>> {
    let id: Option<String> = sqlx::query_scalar(MOVER).bind(lease.as_str()).fetch_optional(pool).await?;
    id.map(|id| parse_id(&id)).transpose()
}

pub(super) async fn is_workspace_used(pool: &SqlitePool, workspace: &str) -> Result<bool> {
    Ok(sqlx::query(USES_WORKSPACE).bind(workspace).fetch_optional(pool).await?.is_some())
}
