//! Stores to test, and things to put into them.

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, SqliteConnection};
use std::path::PathBuf;
use std::sync::Arc;
use stead_model::clock::Timestamp;
use stead_model::command::Command;
use stead_model::ids::{
    CommandId, EventId, InstanceId, LeaseId, ProjectId, ProviderName, SessionId, TerminalId, ThreadId,
};
use stead_model::lease::{Input, Lease};
use stead_model::proto::Status;
use stead_model::session::{Policy, Session};
use stead_model::state::{Bytes, ShellState};
use stead_model::terminal::{DEFAULT_NAME, Snapshot, Terminal};
use stead_model::thread::{Instance, Thread};
use stead_server::store::{LeaseEvent, Page, SqliteStore, Store};

pub(crate) type Shared = Arc<dyn Store>;

/// Each function as a test on each kind of store.
macro_rules! on_every_store {
    ($($test:ident),* $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let file = crate::rig::File::new();
                super::$test(file.open().await).await;
                file.check().await;
            })*
        }

        mod on_memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(std::sync::Arc::new(stead_server::store::MemoryStore::default())).await;
            })*
        }
    };
}
pub(crate) use on_every_store;

/// A database file of its own.
pub(crate) struct File {
    pub(crate) dir: tempfile::TempDir,
}

impl File {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::Builder::new().prefix("store-").tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("stead.db")
    }

    pub(crate) async fn open(&self) -> Shared {
        Arc::new(SqliteStore::open(&self.path()).await.unwrap())
    }

    /// Makes the database and leaves it.
    pub(crate) async fn make(&self) {
        SqliteStore::open(&self.path()).await.unwrap().close().await.unwrap();
    }

    /// A connection past the store, for whoever changes something there and gives up what the store knows of its pages.
    pub(crate) async fn raw(&self) -> SqliteConnection {
        let _ = std::fs::remove_file(self.dir.path().join("stead.db-sums"));
        self.look().await
    }

    async fn look(&self) -> SqliteConnection {
        SqliteConnectOptions::new().filename(self.path()).foreign_keys(true).connect().await.unwrap()
    }

    pub(crate) async fn sql(&self, sql: impl Into<String>) {
        sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(&mut self.raw().await).await.unwrap();
    }

    /// Whatever was done to it, it is sound.
    pub(crate) async fn check(&self) {
        let mut raw = self.look().await;
        let found: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check").fetch_all(&mut raw).await.unwrap();
        assert_eq!(found, ["ok"]);
        assert!(sqlx::query("PRAGMA foreign_key_check").fetch_all(&mut raw).await.unwrap().is_empty());
    }
}

pub(crate) fn at(millis: u64) -> Timestamp {
    Timestamp(millis)
}

pub(crate) fn thread_id(name: &str) -> ThreadId {
    ThreadId::parse(&format!("thr-{name}")).unwrap()
}

pub(crate) fn terminal_id(name: &str) -> TerminalId {
    TerminalId::parse(&format!("term-{name}")).unwrap()
}

pub(crate) fn lease_id(name: &str) -> LeaseId {
    LeaseId::parse(&format!("lease-{name}")).unwrap()
}

pub(crate) fn session_id(name: &str) -> SessionId {
    SessionId::parse(&format!("sess-{name}")).unwrap()
}

pub(crate) fn command_id(name: &str) -> CommandId {
    CommandId::parse(&format!("cmd-{name}")).unwrap()
}

pub(crate) fn instance_id(name: &str) -> InstanceId {
    InstanceId::parse(&format!("inst-{name}")).unwrap()
}

pub(crate) fn provider(name: &str) -> ProviderName {
    ProviderName::parse(name).unwrap()
}

pub(crate) fn project(name: &str) -> ProjectId {
    ProjectId::parse(name).unwrap()
}

pub(crate) fn thread(name: &str, now: u64) -> Thread {
    Thread {
        id: thread_id(name),
        project: None,
        provider: provider("local"),
        default_terminal: terminal_id(name),
        lease: lease_id(name),
        workspace: format!("work of {name}"),
        policy: Policy::default(),
        created_at: at(now),
        last_active_at: at(now),
    }
}

/// The default terminal of the thread of that name, on the lease of that name.
pub(crate) fn terminal(name: &str, now: u64) -> Terminal {
    Terminal::new(terminal_id(name), thread_id(name), lease_id(name), DEFAULT_NAME.into(), at(now))
}

pub(crate) fn lease(name: &str, now: u64) -> Lease {
    Lease::new(lease_id(name), provider("local"), format!("work of {name}"), at(now))
}

pub(crate) async fn make_thread(store: &dyn Store, name: &str, now: u64) -> (Thread, Terminal, Lease) {
    let made = (thread(name, now), terminal(name, now), lease(name, now));
    store.create_thread(&made.0, &made.1, Some(&made.2)).await.unwrap();
    made
}

pub(crate) fn session(name: &str, of: &str, now: u64) -> Session {
    let on = (terminal_id(of), lease_id(of));
    Session::open(session_id(name), thread_id(of), on, Policy::default(), at(now))
}

pub(crate) fn command(name: &str, of: &str, now: u64) -> Command {
    Command {
        id: command_id(name),
        thread: thread_id(of),
        terminal: terminal_id(of),
        lease: lease_id(of),
        session: None,
        instance: None,
        text: Bytes::from("printf '\\377'\n"),
        status: Status::Queued,
        ending: None,
        stdout_bytes: 0,
        stderr_bytes: 0,
        cwd: Bytes(b"/tmp/\xff".to_vec()),
        state_version: 0,
        created_at: at(now),
        started_at: None,
        ended_at: None,
    }
}

pub(crate) fn instance(name: &str, of: &str, now: u64) -> Instance {
    Instance {
        id: instance_id(name),
        lease: lease_id(of),
        provider: provider("local"),
        reference: String::new(),
        started_at: at(now),
        last_seen_at: at(now),
        ended_at: None,
        metadata: Vec::new(),
    }
}

/// The event that led to a lease as it is.
pub(crate) fn event(id: &str, after: &Lease, input: &Input) -> LeaseEvent {
    LeaseEvent {
        id: EventId::parse(&format!("evt-{id}")).unwrap(),
        lease: after.id.clone(),
        version: after.version,
        kind: input.kind().to_owned(),
        source: "api".into(),
        payload: "{}".into(),
        error: None,
        at: after.updated_at,
    }
}

/// A shell that is in a directory.
pub(crate) fn in_dir(cwd: &str) -> ShellState {
    ShellState { cwd: cwd.into(), ..ShellState::default() }
}

/// What follows when the runtime of a terminal finishes one more command.
pub(crate) fn next(terminal: &Terminal, state: ShellState, now: u64) -> Terminal {
    let snapshot = Snapshot { generation: terminal.generation, version: terminal.version + 1, state };
    terminal.commit(&snapshot, at(now)).unwrap()
}

pub(crate) fn first(limit: u32) -> Page {
    Page { limit, after: None }
}

/// That an operation was refused, by which error about what.
macro_rules! assert_refused {
    ($result:expr, $variant:ident, $kind:expr, $id:expr) => {
        match $result {
            Err(stead_server::store::StoreError::$variant { kind, id, .. }) => {
                assert_eq!((kind, id.as_str()), ($kind, $id.as_ref() as &str))
            }
            other => panic!("{other:?}"),
        }
    };
}
pub(crate) use assert_refused;
