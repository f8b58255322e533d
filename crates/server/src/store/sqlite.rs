//! The store in one SQLite file.
//!
//! ```text
//! writes ──► mutex ─┬─► one connection, BEGIN IMMEDIATE ──► WAL, synced before the answer
//!                   └─► another for rows that a journal has too ──► WAL, synced with whatever comes next
//! reads  ──► four connections that can't write ──► whatever was last committed
//! ```
//!
//! One writer, because two in one process only wait for each other, and a transaction that begins by reading and then
//! wants to write fails with "database is locked" as soon as another wrote in between. Other processes may have the
//! same file open: what is exclusive is so by the file's locks and by compare-and-swap, never by this mutex.

mod agents;
mod checkpoint;
mod commands;
mod env;
mod leases;
pub mod mend;
mod open;
mod projects;
mod row;
mod salvage;
mod schema;
mod sessions;
mod sums;
mod tally;
mod terminals;
mod threads;
mod tokens;
mod upkeep;
mod wal;
mod whole;

pub use whole::Damage;

use super::{
    AskedEnv, InstanceChange, KeptState, LeaseEvent, Page, Result, Sealed, Store, StoreError, TerminalEnv, TokenHash,
};
use async_trait::async_trait;
use sqlx::error::DatabaseError;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{ConnectOptions, Connection, Sqlite, SqliteConnection, Transaction};
use stead_model::access::Token;
use stead_model::clock::Timestamp;
use stead_model::command::Command;
use stead_model::ids::{
    CommandId, InstanceId, LeaseId, ProjectId, ProviderName, SessionId, TerminalId, ThreadId, TokenId,
};
use stead_model::lease::Lease;
use stead_model::project::{Filter, Project};
use stead_model::session::Session;
use stead_model::terminal::Terminal;
use stead_model::thread::{Instance, Thread};
use tokio::sync::Mutex;

#[derive(Debug)]
pub struct SqliteStore {
    /// None: it was closed.
    writers: Mutex<Option<Writers>>,
    readers: SqlitePool,
}

/// Two connections of which one writes at a time.
#[derive(Debug)]
struct Writers {
    /// What is written is on the disk.
    synced: Writer,
    /// What is written outlives this process, and a power cut may take it: it is in a journal as well.
    behind: Writer,
    ground: checkpoint::Ground,
    /// Transactions since the last checkpoint.
    since: u32,
}

#[derive(Debug)]
struct Writer {
    /// How it is opened, should it have to be opened again.
    options: SqliteConnectOptions,
    conn: SqliteConnection,
    /// Whether it has ended all it began.
    sound: bool,
}

/// Statements by name, and all of them as `ALL`: a test asks SQLite how it would go about each.
macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $sql:literal;)*) => {
        $($(#[$doc])* const $name: &str = $sql;)*
        #[cfg(test)]
        pub(super) const ALL: &[(&str, &str)] = &[$((stringify!($name), $name)),*];
    };
}
use statements;

statements! {
    NEXT_EPOCH = "INSERT INTO meta (key, value) VALUES ('epoch', 1)
                  ON CONFLICT (key) DO UPDATE SET value = meta.value + 1 RETURNING value";
    /// A row that nobody reads, and another value each time: what doesn't change isn't written.
    CHECK = "INSERT INTO meta (key, value) VALUES ('checked', 1)
             ON CONFLICT (key) DO UPDATE SET value = (meta.value + 1) % 1000000";
}

impl Writer {
    async fn open(options: SqliteConnectOptions) -> sqlx::Result<Self> {
        Ok(Self { conn: options.connect().await?, options, sound: true })
    }

    /// The connection, outside of any transaction.
    async fn idle(&mut self) -> Result<&mut SqliteConnection> {
        // Behind a roll-back that a dropped future may have left to do. SQLite itself ends a transaction when the disk
        // is full or fails, and then the driver, which wasn't told, can't end it and would refuse to begin another.
        if !self.sound {
            if self.conn.ping().await.is_err() || self.conn.is_in_transaction() {
                tracing::warn!("opening the writer of the database again: its last transaction broke off");
                self.conn = self.options.connect().await?;
            }
            self.sound = true;
        }
        Ok(&mut self.conn)
    }

    async fn begin(&mut self) -> Result<Transaction<'_, Sqlite>> {
        self.idle().await?;
        self.sound = false;
        Ok(self.conn.begin_with("BEGIN IMMEDIATE").await?)
    }
}

/// Whatever the body does with `$tx`, in one transaction: durable when this is done, or by a writer of another name.
macro_rules! write {
    ($store:expr, |$tx:ident| $body:expr) => {
        write!($store, synced, |$tx| $body)
    };
    ($store:expr, $writer:ident, |$tx:ident| $body:expr) => {{
        let mut writers = $store.writers.lock().await;
        let writers = writers.as_mut().ok_or($crate::store::StoreError::Closed)?;
        let mut $tx = writers.$writer.begin().await?;
        let done = $body;
        $tx.commit().await?;
        writers.$writer.sound = true;
        writers.written().await;
        Ok(done)
    }};
}

use write;

/// What a write runs into that the schema forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Violation {
    PrimaryKey,
    Unique,
    ForeignKey,
}

/// SQLite's extended result code.
fn code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error().and_then(DatabaseError::code)?.parse().ok()
}

fn violation(error: &sqlx::Error) -> Option<Violation> {
    match code(error)? {
        libsqlite3_sys::SQLITE_CONSTRAINT_PRIMARYKEY => Some(Violation::PrimaryKey),
        libsqlite3_sys::SQLITE_CONSTRAINT_UNIQUE => Some(Violation::Unique),
        // `ON DELETE RESTRICT` is a trigger inside SQLite, and we have no others.
        libsqlite3_sys::SQLITE_CONSTRAINT_FOREIGNKEY | libsqlite3_sys::SQLITE_CONSTRAINT_TRIGGER => {
            Some(Violation::ForeignKey)
        }
        _ => None,
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match code(&error) {
            // The second: the disk has no room for the index of the WAL, which is mapped, so written ahead.
            Some(libsqlite3_sys::SQLITE_FULL | libsqlite3_sys::SQLITE_IOERR_SHMSIZE) => Self::NoSpace,
            _ => Self::Database(error),
        }
    }
}

fn missing(kind: &'static str, id: &str) -> StoreError {
    StoreError::NotFound { kind, id: id.to_owned() }
}

/// An insert whose id may be taken.
fn taken(error: sqlx::Error, kind: &'static str, id: &str) -> StoreError {
    match violation(&error) {
        Some(Violation::PrimaryKey | Violation::Unique) => StoreError::AlreadyExists { kind, id: id.to_owned() },
        Some(Violation::ForeignKey) | None => error.into(),
    }
}

/// Whether a compare-and-swap found what it expected; if not, whether there is anything at all.
async fn changed(
    conn: &mut SqliteConnection,
    rows: u64,
    exists: &'static str,
    kind: &'static str,
    id: &str,
) -> Result<()> {
    if rows > 0 {
        return Ok(());
    }
    match sqlx::query(exists).bind(id).fetch_optional(conn).await? {
        Some(_) => Err(StoreError::Conflict { kind, id: id.to_owned() }),
        None => Err(missing(kind, id)),
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn begin_epoch(&self) -> Result<u64> {
        write!(self, |tx| {
            let epoch: i64 = sqlx::query_scalar(NEXT_EPOCH).fetch_one(&mut *tx).await?;
            epoch.unsigned_abs()
        })
    }

    async fn check_writable(&self) -> Result<()> {
        write!(self, behind, |tx| {
            sqlx::query(CHECK).execute(&mut *tx).await?;
        })
    }

    async fn create_project(&self, project: &Project, credentials: Option<&Sealed>, most: u32) -> Result<()> {
        write!(self, |tx| projects::insert(&mut tx, project, credentials, most).await?)
    }

    async fn project(&self, id: &ProjectId) -> Result<Option<Project>> {
        projects::get(&self.readers, id).await
    }

    async fn projects(&self, filter: &Filter, page: &Page) -> Result<Vec<Project>> {
        projects::list(&self.readers, filter, page).await
    }

    async fn replace_project(&self, before: &Project, after: &Project) -> Result<()> {
        write!(self, |tx| projects::replace(&mut tx, before, after).await?)
    }

    async fn clone_credentials(&self, id: &ProjectId) -> Result<Option<Sealed>> {
        projects::credentials(&self.readers, id).await
    }

    async fn measured_project(&self, id: &ProjectId, disk_bytes: u64) -> Result<()> {
        write!(self, |tx| projects::measured(&mut tx, id, disk_bytes).await?)
    }

    async fn project_failed(&self, id: &ProjectId, at: Timestamp, error: &str) -> Result<()> {
        write!(self, |tx| projects::failed(&mut tx, id, at, error).await?)
    }

    async fn delete_project(&self, id: &ProjectId) -> Result<()> {
        write!(self, |tx| projects::delete(&mut tx, id).await?)
    }

    async fn sessions_of_project(&self, id: &ProjectId, page: &Page) -> Result<Vec<Session>> {
        sessions::of_project(&self.readers, id, page).await
    }

    async fn live_sessions_of_project(&self, id: &ProjectId) -> Result<Vec<Session>> {
        sessions::live_of_project(&self.readers, id).await
    }

    async fn create_thread(&self, thread: &Thread, terminal: &Terminal, lease: Option<&Lease>) -> Result<()> {
        write!(self, |tx| {
            threads::insert(&mut tx, thread).await?;
            if let Some(lease) = lease {
                leases::insert(&mut tx, lease).await?;
            }
            terminals::insert(&mut tx, terminal).await?;
        })
    }

    async fn fork_thread(
        &self,
        thread: &Thread,
        terminals: &[Terminal],
        envs: &[(TerminalId, AskedEnv)],
    ) -> Result<()> {
        write!(self, |tx| {
            threads::insert(&mut tx, thread).await?;
            threads::refuse_if_removed(&mut tx, thread).await?;
            for terminal in terminals {
                terminals::insert(&mut tx, terminal).await?;
            }
            for (terminal, asked) in envs {
                env::change(&mut tx, terminal, asked).await?;
            }
        })
    }

    async fn move_thread(&self, before: &Thread, after: &Thread, terminals: &[(Terminal, Terminal)]) -> Result<()> {
        write!(self, |tx| {
            threads::put_on(&mut tx, before, after).await?;
            threads::refuse_if_removed(&mut tx, after).await?;
            for (before, after) in terminals {
                terminals::replace(&mut tx, before, after).await?;
            }
            threads::leave(&mut tx, before).await?;
        })
    }

    async fn past_leases(&self, thread: &ThreadId) -> Result<Vec<LeaseId>> {
        threads::past_leases(&self.readers, thread).await
    }

    async fn mover(&self, lease: &LeaseId) -> Result<Option<ThreadId>> {
        threads::mover(&self.readers, lease).await
    }

    async fn is_workspace_used(&self, workspace: &str) -> Result<bool> {
        threads::is_workspace_used(&self.readers, workspace).await
    }

    async fn thread(&self, id: &ThreadId) -> Result<Option<Thread>> {
        threads::get(&self.readers, id).await
    }

    async fn threads(&self, project: Option<&ProjectId>, page: &Page) -> Result<Vec<Thread>> {
        threads::list(&self.readers, project, page).await
    }

    async fn touch_thread(&self, id: &ThreadId, at: Timestamp) -> Result<()> {
        write!(self, |tx| threads::touch(&mut tx, id, at).await?)
    }

    async fn delete_thread(&self, id: &ThreadId) -> Result<()> {
        write!(self, |tx| {
            commands::spend(&mut tx, id).await?;
            threads::delete(&mut tx, id).await?;
        })
    }

    async fn put_terminal(&self, terminal: &Terminal) -> Result<()> {
        write!(self, |tx| terminals::insert(&mut tx, terminal).await?)
    }

    async fn terminal(&self, id: &TerminalId) -> Result<Option<Terminal>> {
        terminals::get(&self.readers, id).await
    }

    async fn terminal_named(&self, thread: &ThreadId, name: &str) -> Result<Option<Terminal>> {
        terminals::get_named(&self.readers, thread, name).await
    }

    async fn terminals_of_thread(&self, thread: &ThreadId) -> Result<Vec<Terminal>> {
        terminals::of_thread(&self.readers, thread).await
    }

    async fn terminals_of_lease(&self, lease: &LeaseId) -> Result<Vec<Terminal>> {
        terminals::of_lease(&self.readers, lease).await
    }

    async fn terminals(&self, page: &Page) -> Result<Vec<Terminal>> {
        terminals::list(&self.readers, page).await
    }

    async fn replace_terminal(&self, before: &Terminal, after: &Terminal) -> Result<()> {
        write!(self, |tx| terminals::replace(&mut tx, before, after).await?)
    }

    async fn delete_terminal(&self, id: &TerminalId) -> Result<()> {
        write!(self, |tx| terminals::delete(&mut tx, id).await?)
    }

    async fn states(&self, terminal: &TerminalId) -> Result<Vec<KeptState>> {
        terminals::states(&self.readers, terminal).await
    }

    async fn state_at(&self, terminal: &TerminalId, version: u64) -> Result<Option<KeptState>> {
        terminals::state_at(&self.readers, terminal, version).await
    }

    async fn env(&self, terminal: &TerminalId) -> Result<TerminalEnv> {
        env::get(&self.readers, terminal).await
    }

    async fn change_env(&self, terminal: &TerminalId, asked: &AskedEnv) -> Result<TerminalEnv> {
        write!(self, |tx| env::change(&mut tx, terminal, asked).await?)
    }

    async fn env_taken(&self, terminal: &TerminalId, seq: u64) -> Result<()> {
        write!(self, |tx| env::taken(&mut tx, terminal, seq).await?)
    }

    async fn put_lease(&self, lease: &Lease) -> Result<()> {
        write!(self, |tx| leases::insert(&mut tx, lease).await?)
    }

    async fn lease(&self, id: &LeaseId) -> Result<Option<Lease>> {
        leases::get(&self.readers, id).await
    }

    async fn leases(&self, provider: Option<&ProviderName>, page: &Page) -> Result<Vec<Lease>> {
        leases::list(&self.readers, provider, page).await
    }

    async fn lease_of_instance(&self, instance: &InstanceId) -> Result<Option<Lease>> {
        leases::of_instance(&self.readers, instance).await
    }

    async fn replace_lease(
        &self,
        before: &Lease,
        after: &Lease,
        event: &LeaseEvent,
        instance: &InstanceChange,
    ) -> Result<()> {
        write!(self, |tx| leases::replace(&mut tx, before, after, event, instance).await?)
    }

    async fn replace_lease_if_sessions_unchanged(
        &self,
        sessions: &[Session],
        before: &Lease,
        after: &Lease,
        event: &LeaseEvent,
    ) -> Result<()> {
        write!(self, |tx| {
            sessions::refuse_if_changed(&mut tx, &before.id, sessions).await?;
            leases::replace(&mut tx, before, after, event, &InstanceChange::Nothing).await?;
        })
    }

    async fn lease_events(&self, lease: &LeaseId, after_version: u64, limit: u32) -> Result<Vec<LeaseEvent>> {
        leases::events(&self.readers, lease, after_version, limit).await
    }

    async fn delete_lease(&self, id: &LeaseId) -> Result<()> {
        write!(self, |tx| leases::delete(&mut tx, id).await?)
    }

    async fn instance(&self, id: &InstanceId) -> Result<Option<Instance>> {
        leases::instance(&self.readers, id).await
    }

    async fn live_instances(&self) -> Result<Vec<Instance>> {
        leases::live_instances(&self.readers).await
    }

    async fn open_session(&self, session: &Session) -> Result<()> {
        write!(self, |tx| sessions::open(&mut tx, session).await?)
    }

    async fn open_session_on(&self, instance: &InstanceId, before: Option<&Session>, session: &Session) -> Result<()> {
        write!(self, |tx| {
            leases::refuse_unless_running(&mut tx, &session.lease, instance).await?;
            match before {
                Some(before) => sessions::replace(&mut tx, before, session).await?,
                None => sessions::open(&mut tx, session).await?,
            }
        })
    }

    async fn session(&self, id: &SessionId) -> Result<Option<Session>> {
        sessions::get(&self.readers, id).await
    }

    async fn live_session(&self, terminal: &TerminalId) -> Result<Option<Session>> {
        sessions::get_live(&self.readers, terminal).await
    }

    async fn newest_session(&self, thread: &ThreadId) -> Result<Option<Session>> {
        sessions::newest(&self.readers, thread).await
    }

    async fn live_sessions(&self) -> Result<Vec<Session>> {
        sessions::list_live(&self.readers).await
    }

    async fn live_sessions_of_lease(&self, lease: &LeaseId) -> Result<Vec<Session>> {
        sessions::live_of_lease(&self.readers, lease).await
    }

    async fn sessions(&self, page: &Page) -> Result<Vec<Session>> {
        sessions::list(&self.readers, page).await
    }

    async fn replace_session(&self, before: &Session, after: &Session) -> Result<()> {
        write!(self, |tx| sessions::replace(&mut tx, before, after).await?)
    }

    async fn put_command(&self, command: &Command) -> Result<()> {
        write!(self, |tx| commands::insert(&mut tx, command).await?)
    }

    async fn take_back_command(&self, id: &CommandId) -> Result<()> {
        write!(self, |tx| commands::take_back(&mut tx, id).await?)
    }

    async fn forget_spent_commands(&self, now: Timestamp) -> Result<()> {
        write!(self, behind, |tx| commands::forget_spent(&mut tx, now).await?)
    }

    async fn save_commands(&self, commands: &[Command]) -> Result<()> {
        if commands.is_empty() {
            return Ok(());
        }
        {
            let mut writers = self.writers.lock().await;
            let writers = writers.as_mut().ok_or(StoreError::Closed)?;
            if commands::save_uncounted(writers.behind.idle().await?, commands).await? {
                writers.written().await;
                return Ok(());
            }
        }
        write!(self, behind, |tx| commands::save(&mut tx, commands).await?)
    }

    async fn command(&self, id: &CommandId) -> Result<Option<Command>> {
        commands::get(&self.readers, id).await
    }

    async fn commands_of_thread(&self, thread: &ThreadId, page: &Page) -> Result<Vec<Command>> {
        commands::of_thread(&self.readers, thread, page).await
    }

    async fn newest_commands(&self, thread: &ThreadId, most: u32) -> Result<Vec<CommandId>> {
        commands::newest(&self.readers, thread, most).await
    }

    async fn open_commands(&self) -> Result<Vec<Command>> {
        commands::open(&self.readers).await
    }

    async fn put_token(&self, token: &Token, hash: &TokenHash) -> Result<()> {
        write!(self, |tx| tokens::insert(&mut tx, token, hash).await?)
    }

    async fn token(&self, id: &TokenId) -> Result<Option<Token>> {
        tokens::get(&self.readers, id).await
    }

    async fn token_by_hash(&self, hash: &TokenHash) -> Result<Option<(Token, TokenHash)>> {
        tokens::by_hash(&self.readers, hash).await
    }

    async fn tokens(&self, page: &Page) -> Result<Vec<Token>> {
        tokens::list(&self.readers, page).await
    }

    async fn touch_token(&self, id: &TokenId, at: Timestamp) -> Result<()> {
        write!(self, |tx| tokens::touch(&mut tx, id, at).await?)
    }

    async fn revoke_token(&self, id: &TokenId, at: Timestamp) -> Result<()> {
        write!(self, |tx| tokens::revoke(&mut tx, id, at).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::{AssertSqlSafe, Row};

    /// With a hundred thousand threads a scan would be what everybody waits for. How SQLite goes about a statement
    /// depends on the schema alone as long as nobody runs `ANALYZE`.
    #[tokio::test]
    async fn no_statement_scans_a_table() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&dir.path().join("stead.db")).await.unwrap();
        let mut plans = 0;
        for (name, sql) in [
            ALL,
            projects::ALL,
            threads::ALL,
            terminals::ALL,
            leases::ALL,
            sessions::ALL,
            commands::ALL,
            env::ALL,
            tally::ALL,
            tokens::ALL,
            agents::ALL,
            upkeep::ALL,
        ]
        .into_iter()
        .flatten()
        .copied()
        .chain(commands::all_of_save())
        {
            let explained = sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}")));
            let steps =
                explained.fetch_all(&mut store.writers.lock().await.as_mut().unwrap().synced.conn).await.unwrap();
            for step in steps.iter().map(|row| row.get::<String, _>("detail")) {
                // Rows that come with the statement.
                let allowed = step == "SCAN CONSTANT ROW"
                    || step.contains("-ROW VALUES CLAUSE")
                    || step == "SCAN new"
                    || step.ends_with(" CONSTANT ROWS")
                    || step.starts_with("SCAN (subquery-")
                    || step.starts_with("SCAN json_each ");
                assert!(!step.contains("SCAN") || allowed, "{name} scans: {step}\n{sql}");
                // Lists are read in the order of an index: a page costs what is on it.
                assert!(!step.contains("TEMP B-TREE"), "{name} sorts: {step}\n{sql}");
                plans += 1;
            }
        }
        assert!(plans > 40, "only {plans} steps were explained");
    }
}
