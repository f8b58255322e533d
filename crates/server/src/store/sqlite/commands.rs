//! Commands.

use super::row::{Cols, Stored, Wrong, cbor, one, page, readable, signed, to_cbor};
use super::{Violation, missing, statements, violation};
use crate::store::{Page, Result, StoreError};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqlitePool;
use stead_model::command::{Command, parse_status, status_name};
use stead_model::ids::{CommandId, InstanceId, SessionId, ThreadId};
use stead_model::state::Bytes;

statements! {
    INSERT = "INSERT INTO commands (id, thread_id, terminal_id, lease_id, session_id, instance_id, text, status, ending,
                stdout_bytes, stderr_bytes, cwd, state_version, created_at, started_at, ended_at)
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";
    // One whose thread has been deleted is gone with it, and doesn't hold up those that are written with it.
    SAVE = "INSERT INTO commands (id, thread_id, terminal_id, lease_id, session_id, instance_id, text, status, ending,
              stdout_bytes, stderr_bytes, cwd, state_version, created_at, started_at, ended_at)
            SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16
            WHERE EXISTS (SELECT 1 FROM threads WHERE id = $2)
            ON CONFLICT (id) DO UPDATE SET thread_id = excluded.thread_id, terminal_id = excluded.terminal_id,
              lease_id = excluded.lease_id, session_id = excluded.session_id, instance_id = excluded.instance_id,
              text = excluded.text, status = excluded.status, ending = excluded.ending,
              stdout_bytes = excluded.stdout_bytes, stderr_bytes = excluded.stderr_bytes, cwd = excluded.cwd,
              state_version = excluded.state_version, created_at = excluded.created_at,
              started_at = excluded.started_at, ended_at = excluded.ended_at
            WHERE commands.status IN ('queued', 'running') OR (excluded.status NOT IN ('queued', 'running')
              AND (excluded.status <> 'lost' OR commands.status = 'lost'))";
    GET = "SELECT * FROM commands WHERE id = $1";
    LIST_OF_THREAD = "SELECT * FROM commands WHERE thread_id = $4 AND (created_at, id) < ($1, $2)
                      ORDER BY created_at DESC, id DESC LIMIT $3";
    OPEN = "SELECT * FROM commands WHERE status IN ('queued', 'running') AND created_at >= 0
            ORDER BY created_at, id";
}

const KIND: &str = "command";

impl Stored for Command {
    const KIND: &'static str = KIND;
    const AGE: &'static str = "created_at";

    fn from_row(row: &Cols<'_>) -> Result<Self, Wrong> {
        let ending = row.opt_bytes("ending")?;
        Ok(Self {
            id: row.id("id")?,
            thread: row.id("thread_id")?,
            terminal: row.id("terminal_id")?,
            lease: row.id("lease_id")?,
            session: row.opt_id("session_id")?,
            instance: row.opt_id("instance_id")?,
            text: Bytes(row.bytes("text")?),
            status: row.word("status", parse_status)?,
            ending: ending.map(|ending| cbor("ending", &ending)).transpose()?,
            stdout_bytes: row.number("stdout_bytes")?,
            stderr_bytes: row.number("stderr_bytes")?,
            cwd: Bytes(row.bytes("cwd")?),
            state_version: row.number("state_version")?,
            created_at: row.moment("created_at")?,
            started_at: row.opt_moment("started_at")?,
            ended_at: row.opt_moment("ended_at")?,
        })
    }
}

fn bound<'q>(
    sql: &'static str,
    command: &'q Command,
) -> sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments> {
    sqlx::query(sql)
        .bind(command.id.as_str())
        .bind(command.thread.as_str())
        .bind(command.terminal.as_str())
        .bind(command.lease.as_str())
        .bind(command.session.as_ref().map(SessionId::as_str))
        .bind(command.instance.as_ref().map(InstanceId::as_str))
        .bind(&command.text.0[..])
        .bind(status_name(command.status))
        .bind(command.ending.as_ref().map(to_cbor))
        .bind(signed(command.stdout_bytes))
        .bind(signed(command.stderr_bytes))
        .bind(&command.cwd.0[..])
        .bind(signed(command.state_version))
        .bind(signed(command.created_at.0))
        .bind(command.started_at.map(|at| signed(at.0)))
        .bind(command.ended_at.map(|at| signed(at.0)))
}

pub(super) async fn insert(conn: &mut SqliteConnection, command: &Command) -> Result<()> {
    bound(INSERT, command).execute(conn).await.map_err(|error| match violation(&error) {
        Some(Violation::PrimaryKey | Violation::Unique) => {
            StoreError::AlreadyExists { kind: KIND, id: command.id.to_string() }
        }
        Some(Violation::ForeignKey) => missing("thread", command.thread.as_str()),
        None => error.into(),
    })?;
    Ok(())
}

/// The statement is prepared by the first and kept by the connection.
pub(super) async fn save(conn: &mut SqliteConnection, commands: &[Command]) -> Result<()> {
    for command in commands {
        bound(SAVE, command).execute(&mut *conn).await?;
    }
    Ok(())
}

pub(super) async fn get(pool: &SqlitePool, id: &CommandId) -> Result<Option<Command>> {
    one(pool, GET, &[id.as_str()]).await
}

pub(super) async fn of_thread(pool: &SqlitePool, thread: &ThreadId, at: &Page) -> Result<Vec<Command>> {
    page(pool, LIST_OF_THREAD, Some(thread.as_str()), at).await
}

pub(super) async fn open(pool: &SqlitePool) -> Result<Vec<Command>> {
    Ok(readable(&sqlx::query(OPEN).fetch_all(pool).await?))
}
