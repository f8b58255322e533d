//! Sessions. They name their thread, terminal and lease without holding them: as history they outlive all three.

use super::row::{Cols, Stored, Wrong, all, millis, one, page, signed};
use super::{Violation, changed, statements, violation};
use crate::store::{Page, Result, StoreError};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqlitePool;
use stead_model::ids::{LeaseId, ProjectId, SessionId, TerminalId, ThreadId, TokenId};
use stead_model::session::{CloseReason, Session, Status};

statements! {
    INSERT = "INSERT INTO sessions (id, status, idle_timeout, max_duration, last_active_at, ended_at, close_reason,
                version, thread_id, terminal_id, lease_id, started_at, project_id, opened_by)
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";
    COUNT = "UPDATE projects SET sessions = sessions + 1 WHERE id = $1";
    SUPERSEDE = "UPDATE sessions SET status = 'closed', ended_at = $2, close_reason = $3, version = version + 1
                 WHERE terminal_id = $1 AND status IN ('active', 'idle', 'paused')";
    GET = "SELECT * FROM sessions WHERE id = $1";
    GET_LIVE = "SELECT * FROM sessions WHERE terminal_id = $1 AND status IN ('active', 'idle', 'paused')";
    GET_NEWEST = "SELECT * FROM sessions WHERE thread_id = $1 ORDER BY started_at DESC, id DESC LIMIT 1";
    LIST = "SELECT * FROM sessions WHERE (started_at, id) < ($1, $2) ORDER BY started_at DESC, id DESC LIMIT $3";
    LIST_LIVE = "SELECT * FROM sessions
                 WHERE status IN ('active', 'idle', 'paused') AND (started_at, id) < ($1, $2)
                 ORDER BY started_at DESC, id DESC LIMIT $3";
    LIST_LIVE_OF_LEASE = "SELECT * FROM sessions
                          WHERE lease_id = $4 AND status IN ('active', 'idle', 'paused')
                            AND (started_at, id) < ($1, $2)
                          ORDER BY started_at DESC, id DESC LIMIT $3";
    LIST_OF_PROJECT = "SELECT * FROM sessions WHERE project_id = $4 AND (started_at, id) < ($1, $2)
                       ORDER BY started_at DESC, id DESC LIMIT $3";
    LIST_LIVE_OF_PROJECT = "SELECT * FROM sessions
                            WHERE project_id = $4 AND status IN ('active', 'idle', 'paused')
                              AND (started_at, id) < ($1, $2)
                            ORDER BY started_at DESC, id DESC LIMIT $3";
    REPLACE = "UPDATE sessions SET status = $2, idle_timeout = $3, max_duration = $4, last_active_at = $5,
                 ended_at = $6, close_reason = $7, version = $8, started_at = $10
               WHERE id = $1 AND version = $9";
    LIVE_VERSIONS = "SELECT id, version FROM sessions WHERE lease_id = $1 AND status IN ('active', 'idle', 'paused')";
    EXISTS = "SELECT 1 FROM sessions WHERE id = $1";
}

const KIND: &str = "session";

impl Stored for Session {
    const KIND: &'static str = KIND;
    const AGE: &'static str = "started_at";

    fn from_row(row: &Cols<'_>) -> Result<Self, Wrong> {
        let ended = match row.opt_moment("ended_at")? {
            Some(at) => Some((at, row.word("close_reason", CloseReason::parse)?)),
            None => None,
        };
        Ok(Self {
            id: row.id("id")?,
            thread: row.id("thread_id")?,
            terminal: row.id("terminal_id")?,
            lease: row.id("lease_id")?,
            status: row.word("status", Status::parse)?,
            policy: row.policy()?,
            started_at: row.moment("started_at")?,
            last_active_at: row.moment("last_active_at")?,
            ended,
            project: row.opt_id("project_id")?,
            opened_by: row.opt_id("opened_by")?,
            version: row.number("version")?,
        })
    }
}

/// `$1` to `$8`, of which insert and replace mean the same.
fn bound<'q>(
    sql: &'static str,
    session: &'q Session,
) -> sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments> {
    sqlx::query(sql)
        .bind(session.id.as_str())
        .bind(session.status.as_str())
        .bind(millis(session.policy.idle_timeout))
        .bind(millis(session.policy.max_duration))
        .bind(signed(session.last_active_at.0))
        .bind(session.ended.map(|(at, _)| signed(at.0)))
        .bind(session.ended.map(|(_, reason)| reason.as_str()))
        .bind(signed(session.version))
}

pub(super) async fn open(conn: &mut SqliteConnection, session: &Session) -> Result<()> {
    let superseded = sqlx::query(SUPERSEDE)
        .bind(session.terminal.as_str())
        .bind(signed(session.started_at.0))
        .bind(CloseReason::Superseded.as_str());
    superseded.execute(&mut *conn).await?;
    let query = bound(INSERT, session)
        .bind(session.thread.as_str())
        .bind(session.terminal.as_str())
        .bind(session.lease.as_str())
        .bind(signed(session.started_at.0))
        .bind(session.project.as_ref().map(ProjectId::as_str))
        .bind(session.opened_by.as_ref().map(TokenId::as_str));
    query.execute(&mut *conn).await.map_err(|error| super::taken(error, KIND, session.id.as_str()))?;
    if let Some(project) = &session.project {
        sqlx::query(COUNT).bind(project.as_str()).execute(conn).await?;
    }
    Ok(())
}

/// Part of the transaction that pauses or destroys an instance: refuses if a session was opened or used since the check.
pub(super) async fn refuse_if_changed(
    conn: &mut SqliteConnection,
    lease: &LeaseId,
    sessions: &[Session],
) -> Result<()> {
    let live: Vec<(String, i64)> = sqlx::query_as(LIVE_VERSIONS).bind(lease.as_str()).fetch_all(conn).await?;
    let is_known = |(id, version): &(String, i64)| {
        sessions.iter().any(|known| known.id.as_str() == id && signed(known.version) == *version)
    };
    match live.into_iter().find(|live| !is_known(live)) {
        Some((id, _)) => Err(StoreError::Conflict { kind: KIND, id }),
        None => Ok(()),
    }
}

pub(super) async fn get(pool: &SqlitePool, id: &SessionId) -> Result<Option<Session>> {
    one(pool, GET, &[id.as_str()]).await
}

pub(super) async fn get_live(pool: &SqlitePool, terminal: &TerminalId) -> Result<Option<Session>> {
    one(pool, GET_LIVE, &[terminal.as_str()]).await
}

pub(super) async fn newest(pool: &SqlitePool, thread: &ThreadId) -> Result<Option<Session>> {
    one(pool, GET_NEWEST, &[thread.as_str()]).await
}

pub(super) async fn list(pool: &SqlitePool, at: &Page) -> Result<Vec<Session>> {
    page(pool, LIST, None, at).await
}

pub(super) async fn list_live(pool: &SqlitePool) -> Result<Vec<Session>> {
    all(pool, LIST_LIVE, None).await
}

pub(super) async fn live_of_lease(pool: &SqlitePool, lease: &LeaseId) -> Result<Vec<Session>> {
    all(pool, LIST_LIVE_OF_LEASE, Some(lease.as_str())).await
}

pub(super) async fn of_project(pool: &SqlitePool, project: &ProjectId, at: &Page) -> Result<Vec<Session>> {
    page(pool, LIST_OF_PROJECT, Some(project.as_str()), at).await
}

pub(super) async fn live_of_project(pool: &SqlitePool, project: &ProjectId) -> Result<Vec<Session>> {
    all(pool, LIST_LIVE_OF_PROJECT, Some(project.as_str())).await
}

pub(super) async fn replace(conn: &mut SqliteConnection, before: &Session, after: &Session) -> Result<()> {
    let query = bound(REPLACE, after).bind(signed(before.version)).bind(signed(after.started_at.0));
    match query.execute(&mut *conn).await {
        Ok(done) => changed(conn, done.rows_affected(), EXISTS, KIND, before.id.as_str()).await,
        // Another one has become the live one of its terminal.
        Err(error) if violation(&error) == Some(Violation::Unique) => {
            Err(StoreError::Conflict { kind: KIND, id: before.id.to_string() })
        }
        Err(error) => Err(error.into()),
    }
}
