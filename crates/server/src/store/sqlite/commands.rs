//! Commands.

use super::row::{Cols, Stored, Wrong, cbor, millis, one, page, readable, signed, to_cbor, to_json};
use super::{Violation, missing, statements, tally, violation};
use crate::store::{IDS_KEPT, Page, Result, SPENT, StoreError};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqlitePool;
use std::sync::LazyLock;
use stead_model::clock::Timestamp;
use stead_model::command::{Command, parse_status, status_name};
use stead_model::ids::{CommandId, InstanceId, SessionId, ThreadId};
use stead_model::state::Bytes;

statements! {
    INSERT = "INSERT INTO commands (id, thread_id, terminal_id, lease_id, session_id, instance_id, text, status, ending,
                stdout_bytes, stderr_bytes, cwd, state_version, created_at, started_at, ended_at)
              SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16
              WHERE NOT EXISTS (SELECT 1 FROM spent_commands WHERE id = $1 AND until > $14)";
    GET = "SELECT * FROM commands WHERE id = $1";
    LIST_OF_THREAD = "SELECT * FROM commands WHERE thread_id = $4 AND (created_at, id) < ($1, $2)
                      ORDER BY created_at DESC, id DESC LIMIT $3";
    NEWEST = "SELECT id FROM commands WHERE thread_id = $1 ORDER BY created_at DESC, id DESC LIMIT $2";
    OPEN = "SELECT * FROM commands WHERE status IN ('queued', 'running') AND created_at >= 0
            ORDER BY created_at, id";
    TAKE_BACK = "DELETE FROM commands WHERE id = $1 AND status = 'queued'";
    SPEND = "INSERT INTO spent_commands (id, until) SELECT id, created_at + $2 FROM commands WHERE thread_id = $1
             ON CONFLICT (id) DO UPDATE SET until = max(until, excluded.until)";
    GROW = "UPDATE commands SET ending = $2, stdout_bytes = $3, stderr_bytes = $4 WHERE id = $1";
    FORGET_SPENT = "DELETE FROM spent_commands WHERE until <= $1";
}

const KIND: &str = "command";
const COLUMNS: usize = 16;

/// The sizes of statements that save rows: powers of two up to the largest. Each statement is a trip to the thread of the
/// connection and back, so there is one for many rows; few sizes, so that each is prepared once. Places that are left over
/// are NULL, and no row.
const SIZES: usize = 9;
const MOST: usize = 1 << (SIZES - 1);

type Sizes = [String; SIZES];

/// Saves whatever it is given.
static SAVE: LazyLock<Sizes> = LazyLock::new(|| std::array::from_fn(|size| save_many(1 << size, "")));

/// Saves all, or nothing if the thread of any is in a project: it may have to be counted there.
static SAVE_UNCOUNTED: LazyLock<Sizes> = LazyLock::new(|| {
    let unless =
        "AND NOT EXISTS (SELECT 1 FROM threads WHERE id IN (SELECT column2 FROM new) AND project_id IS NOT NULL)";
    std::array::from_fn(|size| save_many(1 << size, unless))
});

/// Saves so many rows. One whose terminal has been deleted is gone with it, and doesn't hold up those that are written
/// with it. Not the thread is asked for: another may have its name by now. What has ended is left as it is; see [`grow`].
fn save_many(rows: usize, unless: &str) -> String {
    let row = format!("(?{})", ", ?".repeat(COLUMNS - 1));
    let rows = vec![row; rows].join(", ");
    format!(
        "WITH new AS (VALUES {rows})
         INSERT INTO commands (id, thread_id, terminal_id, lease_id, session_id, instance_id, text, status, ending,
           stdout_bytes, stderr_bytes, cwd, state_version, created_at, started_at, ended_at)
         SELECT * FROM new WHERE (EXISTS (SELECT 1 FROM terminals WHERE id = column3)
           OR EXISTS (SELECT 1 FROM commands WHERE id = column1)) {unless}
         ON CONFLICT (id) DO UPDATE SET thread_id = excluded.thread_id, terminal_id = excluded.terminal_id,
           lease_id = excluded.lease_id, session_id = excluded.session_id, instance_id = excluded.instance_id,
           text = excluded.text, status = excluded.status, ending = excluded.ending,
           stdout_bytes = max(commands.stdout_bytes, excluded.stdout_bytes),
           stderr_bytes = max(commands.stderr_bytes, excluded.stderr_bytes), cwd = excluded.cwd,
           state_version = excluded.state_version, created_at = excluded.created_at,
           started_at = coalesce(excluded.started_at, commands.started_at), ended_at = excluded.ended_at
         WHERE commands.status IN ('queued', 'running')"
    )
}

#[cfg(test)]
pub(super) fn all_of_save() -> impl Iterator<Item = (&'static str, &'static str)> {
    let named = |name, all: &'static Sizes| all.iter().map(move |sql| (name, sql.as_str()));
    named("SAVE", &SAVE).chain(named("SAVE_UNCOUNTED", &SAVE_UNCOUNTED))
}

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

type Query<'q> = sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>;

fn bind<'q>(query: Query<'q>, command: &'q Command) -> Query<'q> {
    query
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
    let done = bind(sqlx::query(INSERT), command).execute(conn).await.map_err(|error| match violation(&error) {
        Some(Violation::PrimaryKey | Violation::Unique) => {
            StoreError::AlreadyExists { kind: KIND, id: command.id.to_string() }
        }
        Some(Violation::ForeignKey) => missing("thread", command.thread.as_str()),
        None => error.into(),
    })?;
    if done.rows_affected() == 0 {
        return Err(StoreError::AlreadyExists { kind: SPENT, id: command.id.to_string() });
    }
    Ok(())
}

pub(super) async fn take_back(conn: &mut SqliteConnection, id: &CommandId) -> Result<()> {
    sqlx::query(TAKE_BACK).bind(id.as_str()).execute(conn).await?;
    Ok(())
}

/// The ids of a thread that is about to be deleted.
pub(super) async fn spend(conn: &mut SqliteConnection, thread: &ThreadId) -> Result<()> {
    sqlx::query(SPEND).bind(thread.as_str()).bind(millis(IDS_KEPT)).execute(conn).await?;
    Ok(())
}

pub(super) async fn forget_spent(conn: &mut SqliteConnection, now: Timestamp) -> Result<()> {
    sqlx::query(FORGET_SPENT).bind(signed(now.0)).execute(conn).await?;
    Ok(())
}

/// Saves at most [`MOST`] rows by one statement, and says how many it changed.
async fn write(conn: &mut SqliteConnection, sizes: &'static Sizes, commands: &[Command]) -> Result<u64> {
    let places = commands.len().next_power_of_two();
    let Some(sql) = sizes.get(places.ilog2() as usize) else { return Ok(0) };
    let filled = commands.iter().fold(sqlx::query(sql.as_str()), bind);
    let none = (commands.len()..places).flat_map(|_| [None::<i64>; COLUMNS]);
    Ok(none.fold(filled, Query::bind).execute(conn).await?.rows_affected())
}

/// Saves commands, none of which counts for a project, in one trip to the thread of the connection. False: it can't be
/// told that all were saved that are to be.
pub(super) async fn save_uncounted(conn: &mut SqliteConnection, commands: &[Command]) -> Result<bool> {
    Ok(commands.len() <= MOST && write(conn, &SAVE_UNCOUNTED, commands).await? == commands.len() as u64)
}

pub(super) async fn save(conn: &mut SqliteConnection, commands: &[Command]) -> Result<()> {
    let before = tally::before(conn, commands).await?;
    for some in commands.chunks(MOST) {
        write(conn, &SAVE, some).await?;
    }
    grow(conn, commands).await?;
    if let Some(before) = before {
        tally::count(conn, &before).await?;
    }
    Ok(())
}

/// Of what has ended nothing changes but how much it has written: [`Command::joined`] says what stands.
async fn grow(conn: &mut SqliteConnection, commands: &[Command]) -> Result<()> {
    let ended: Vec<_> = commands.iter().filter(|command| command.status.is_final()).collect();
    if ended.is_empty() {
        return Ok(());
    }
    let ids = to_json(&ended.iter().map(|command| command.id.as_str()).collect::<Vec<_>>());
    let mut known = tally::known(conn, &ids).await?;
    for told in ended {
        let Some(Some(before)) = known.get_mut(told.id.as_str()) else { continue };
        let stands = before.clone().joined(told.clone());
        if stands != *before {
            let query = sqlx::query(GROW).bind(told.id.as_str()).bind(stands.ending.as_ref().map(to_cbor));
            query.bind(signed(stands.stdout_bytes)).bind(signed(stands.stderr_bytes)).execute(&mut *conn).await?;
            *before = stands;
        }
    }
    Ok(())
}

pub(super) async fn get(pool: &SqlitePool, id: &CommandId) -> Result<Option<Command>> {
    one(pool, GET, &[id.as_str()]).await
}

pub(super) async fn of_thread(pool: &SqlitePool, thread: &ThreadId, at: &Page) -> Result<Vec<Command>> {
    page(pool, LIST_OF_THREAD, Some(thread.as_str()), at).await
}

pub(super) async fn newest(pool: &SqlitePool, thread: &ThreadId, most: u32) -> Result<Vec<CommandId>> {
    let ids: Vec<String> = sqlx::query_scalar(NEWEST).bind(thread.as_str()).bind(most).fetch_all(pool).await?;
    Ok(ids.iter().filter_map(|id| CommandId::parse(id).ok()).collect())
}

pub(super) async fn open(pool: &SqlitePool) -> Result<Vec<Command>> {
    Ok(readable(&sqlx::query(OPEN).fetch_all(pool).await?))
}
