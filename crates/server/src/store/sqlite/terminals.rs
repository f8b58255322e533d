//! Terminals and their states. The state of a terminal is the kept one of its content version: a command that changed
//! nothing writes a short row, however much the shell holds.

use super::row::{Cols, Stored, Wrong, all, cbor, one, page, readable, signed, to_cbor, to_json};
use super::{Violation, changed, missing, statements, violation};
use crate::store::{KeptState, Page, Result, StoreError};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqlitePool;
use stead_model::ids::{InstanceId, LeaseId, TerminalId, ThreadId};
use stead_model::terminal::{KEPT_STATES, Terminal};

statements! {
    INSERT = "INSERT INTO terminals (id, thread_id, lease_id, name, version, content_version, generation, created_at,
                updated_at, homes)
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    GET = "SELECT t.*, s.state FROM terminals t
           LEFT JOIN terminal_states s ON s.terminal_id = t.id AND s.version = t.content_version
           WHERE t.id = $1";
    GET_NAMED = "SELECT t.*, s.state FROM terminals t
                 LEFT JOIN terminal_states s ON s.terminal_id = t.id AND s.version = t.content_version
                 WHERE t.thread_id = $1 AND t.name = $2";
    LIST = "SELECT t.*, s.state FROM terminals t
            LEFT JOIN terminal_states s ON s.terminal_id = t.id AND s.version = t.content_version
            WHERE (t.created_at, t.id) < ($1, $2) ORDER BY t.created_at DESC, t.id DESC LIMIT $3";
    LIST_OF_THREAD = "SELECT t.*, s.state FROM terminals t
                      LEFT JOIN terminal_states s ON s.terminal_id = t.id AND s.version = t.content_version
                      WHERE t.thread_id = $4 AND (t.created_at, t.id) < ($1, $2)
                      ORDER BY t.created_at DESC, t.id DESC LIMIT $3";
    LIST_OF_LEASE = "SELECT t.*, s.state FROM terminals t
                     LEFT JOIN terminal_states s ON s.terminal_id = t.id AND s.version = t.content_version
                     WHERE t.lease_id = $4 AND (t.created_at, t.id) < ($1, $2)
                     ORDER BY t.created_at DESC, t.id DESC LIMIT $3";
    REPLACE = "UPDATE terminals SET lease_id = $2, name = $3, version = $4, content_version = $5, generation = $6,
                 updated_at = $7, homes = $8
               WHERE id = $1 AND generation = $9 AND version = $10";
    EXISTS = "SELECT 1 FROM terminals WHERE id = $1";
    DELETE = "DELETE FROM terminals WHERE id = $1";
    KEEP = "INSERT INTO terminal_states (terminal_id, version, state, at) VALUES ($1, $2, $3, $4)
            ON CONFLICT (terminal_id, version) DO UPDATE SET state = excluded.state, at = excluded.at";
    // Those from the hundred and first newest on.
    FORGET = "DELETE FROM terminal_states WHERE terminal_id = $1 AND version <= (
                SELECT version FROM terminal_states WHERE terminal_id = $1 ORDER BY version DESC LIMIT 1 OFFSET $2)";
    STATES = "SELECT * FROM terminal_states WHERE terminal_id = $1 ORDER BY version DESC";
    STATE_AT = "SELECT * FROM terminal_states WHERE terminal_id = $1 AND version <= $2
                ORDER BY version DESC LIMIT 1";
}

const KIND: &str = "terminal";

impl Stored for Terminal {
    const KIND: &'static str = KIND;
    const AGE: &'static str = "created_at";

    fn from_row(row: &Cols<'_>) -> Result<Self, Wrong> {
        let content_version = row.number("content_version")?;
        let state = row.opt_bytes("state")?;
        let state = state.ok_or_else(|| format!("its state of version {content_version} is missing"))?;
        Ok(Self {
            id: row.id("id")?,
            thread: row.id("thread_id")?,
            lease: row.id("lease_id")?,
            name: row.text("name")?,
            state: cbor("state", &state)?,
            version: row.number("version")?,
            content_version,
            generation: row.number("generation")?,
            homes: row.ids("homes")?,
            created_at: row.moment("created_at")?,
            updated_at: row.moment("updated_at")?,
        })
    }
}

impl Stored for KeptState {
    const KIND: &'static str = "terminal state";
    const AGE: &'static str = "at";

    fn from_row(row: &Cols<'_>) -> Result<Self, Wrong> {
        Ok(Self { version: row.number("version")?, state: cbor("state", &row.bytes("state")?)?, at: row.moment("at")? })
    }

    fn name(row: &Cols<'_>) -> String {
        let terminal = row.text("terminal_id").unwrap_or_else(|_| "?".to_owned());
        let version = row.number("version").map_or_else(|_| "?".to_owned(), |version| version.to_string());
        format!("{terminal} version {version}")
    }
}

fn homes(terminal: &Terminal) -> String {
    to_json(&terminal.homes.iter().map(InstanceId::as_str).collect::<Vec<_>>())
}

pub(super) async fn insert(conn: &mut SqliteConnection, terminal: &Terminal) -> Result<()> {
    let query = sqlx::query(INSERT)
        .bind(terminal.id.as_str())
        .bind(terminal.thread.as_str())
        .bind(terminal.lease.as_str())
        .bind(&terminal.name)
        .bind(signed(terminal.version))
        .bind(signed(terminal.content_version))
        .bind(signed(terminal.generation))
        .bind(signed(terminal.created_at.0))
        .bind(signed(terminal.updated_at.0))
        .bind(homes(terminal));
    if let Err(error) = query.execute(&mut *conn).await {
        return Err(refusal(conn, error, terminal).await);
    }
    keep(conn, terminal).await
}

/// Why a terminal can't be written so.
async fn refusal(conn: &mut SqliteConnection, error: sqlx::Error, terminal: &Terminal) -> StoreError {
    let exists = |id: &str| StoreError::AlreadyExists { kind: KIND, id: id.to_owned() };
    match violation(&error) {
        Some(Violation::PrimaryKey) => exists(terminal.id.as_str()),
        Some(Violation::Unique) => exists(&terminal.name),
        Some(Violation::ForeignKey) => match super::threads::exists(conn, terminal.thread.as_str()).await {
            Ok(true) => missing("lease", terminal.lease.as_str()),
            Ok(false) => missing("thread", terminal.thread.as_str()),
            Err(error) => error,
        },
        None => error.into(),
    }
}

async fn keep(conn: &mut SqliteConnection, terminal: &Terminal) -> Result<()> {
    let query = sqlx::query(KEEP)
        .bind(terminal.id.as_str())
        .bind(signed(terminal.content_version))
        .bind(to_cbor(&terminal.state))
        .bind(signed(terminal.updated_at.0));
    query.execute(conn).await?;
    Ok(())
}

pub(super) async fn get(pool: &SqlitePool, id: &TerminalId) -> Result<Option<Terminal>> {
    one(pool, GET, &[id.as_str()]).await
}

pub(super) async fn get_named(pool: &SqlitePool, thread: &ThreadId, name: &str) -> Result<Option<Terminal>> {
    one(pool, GET_NAMED, &[thread.as_str(), name]).await
}

pub(super) async fn list(pool: &SqlitePool, at: &Page) -> Result<Vec<Terminal>> {
    page(pool, LIST, None, at).await
}

pub(super) async fn of_thread(pool: &SqlitePool, thread: &ThreadId) -> Result<Vec<Terminal>> {
    all(pool, LIST_OF_THREAD, Some(thread.as_str())).await
}

pub(super) async fn of_lease(pool: &SqlitePool, lease: &LeaseId) -> Result<Vec<Terminal>> {
    all(pool, LIST_OF_LEASE, Some(lease.as_str())).await
}

pub(super) async fn replace(conn: &mut SqliteConnection, before: &Terminal, after: &Terminal) -> Result<()> {
    let query = sqlx::query(REPLACE)
        .bind(before.id.as_str())
        .bind(after.lease.as_str())
        .bind(&after.name)
        .bind(signed(after.version))
        .bind(signed(after.content_version))
        .bind(signed(after.generation))
        .bind(signed(after.updated_at.0))
        .bind(homes(after))
        .bind(signed(before.generation))
        .bind(signed(before.version));
    match query.execute(&mut *conn).await {
        Ok(done) => changed(conn, done.rows_affected(), EXISTS, KIND, before.id.as_str()).await?,
        Err(error) => return Err(refusal(conn, error, after).await),
    }
    if after.content_version == before.content_version && after.state == before.state {
        return Ok(());
    }
    keep(conn, after).await?;
    sqlx::query(FORGET).bind(after.id.as_str()).bind(signed(KEPT_STATES)).execute(conn).await?;
    Ok(())
}

pub(super) async fn delete(conn: &mut SqliteConnection, id: &TerminalId) -> Result<()> {
    sqlx::query(DELETE).bind(id.as_str()).execute(conn).await?;
    Ok(())
}

pub(super) async fn states(pool: &SqlitePool, id: &TerminalId) -> Result<Vec<KeptState>> {
    Ok(readable(&sqlx::query(STATES).bind(id.as_str()).fetch_all(pool).await?))
}

pub(super) async fn state_at(pool: &SqlitePool, id: &TerminalId, version: u64) -> Result<Option<KeptState>> {
    let row = sqlx::query(STATE_AT).bind(id.as_str()).bind(signed(version)).fetch_optional(pool).await?;
    row.map(|row| super::row::parse(&row)).transpose()
}
