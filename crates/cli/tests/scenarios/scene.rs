//! What the scenarios have in common: ways to look behind the layers, to hold a command back, and to harm an instance.

use crate::rig::{ENGINE, Rig, can_contain, can_isolate, docker, local, namespace, thread, wait_for};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, SqliteConnection};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use stead_model::command::Command;
use stead_model::ids::{CommandId, InstanceId, LeaseId, TerminalId};
use stead_model::lease::{Lease, Seen};
use stead_model::session::{Policy, Session};
use stead_model::terminal::{DEFAULT_NAME, Terminal};
use stead_server::Error;
use stead_server::lease::AutoResume;
use stead_server::provider::Provider;
use stead_server::stead::{Execute, Executed, NewThread, Sandbox, TerminalView, Where};
use stead_server::store::{LeaseEvent, Page};
use stead_term::tree::Tree;
use tokio::task::JoinHandle;

/// Each function as a test on each provider that runs real shells, under the name it has.
macro_rules! on_each_provider {
    ($($(#[$note:meta])* $test:ident),* $(,)?) => {
        mod local {
            $(#[tokio::test]
            $(#[$note])*
            async fn $test() {
                super::$test(crate::rig::Rig::new("local").await, "local").await;
            })*
        }
        mod namespace {
            $(#[tokio::test]
            $(#[$note])*
            async fn $test() {
                if let Some(rig) = crate::scene::isolated().await {
                    super::$test(rig, "namespace").await;
                }
            })*
        }
        mod fake {
            $(#[tokio::test]
            $(#[$note])*
            async fn $test() {
                super::$test(crate::rig::Rig::new("fake").await, "fake").await;
            })*
        }
    };
}
pub(crate) use on_each_provider;

/// The same on those with a steward.
macro_rules! on_each_steward {
    ($($(#[$note:meta])* $test:ident),* $(,)?) => {
        mod local {
            $(#[tokio::test]
            $(#[$note])*
            async fn $test() {
                super::$test(crate::rig::Rig::new("local").await, "local").await;
            })*
        }
        mod namespace {
            $(#[tokio::test]
            $(#[$note])*
            async fn $test() {
                if let Some(rig) = crate::scene::isolated().await {
                    super::$test(rig, "namespace").await;
                }
            })*
        }
    };
}
pub(crate) use on_each_steward;

/// Those of them in which it matters that what runs is a container, on an engine where there is one.
macro_rules! in_containers {
    ($($(#[$note:meta])* $test:ident),* $(,)?) => {
        mod docker {
            $(#[tokio::test]
            $(#[$note])*
            async fn $test() {
                if let Some(rig) = crate::scene::contained().await {
                    super::$test(rig, "docker").await;
                }
            })*
        }
    };
}
pub(crate) use in_containers;

/// A rig on containers, where there are such.
pub(crate) async fn contained() -> Option<Rig> {
    let rig = Rig::new("docker").await;
    can_contain(rig.path()).await.then_some(rig)
}

/// A rig on namespaces, where there are such.
pub(crate) async fn isolated() -> Option<Rig> {
    let rig = Rig::new("namespace").await;
    can_isolate(&rig).await.then_some(rig)
}

/// What a provider itself says that there is.
pub(crate) async fn truth(rig: &Rig, provider: &str) -> Vec<(InstanceId, Seen)> {
    let found = match provider {
        "local" => local(rig.path()).list().await,
        "namespace" => namespace(rig.path()).list().await,
        "docker" => docker(rig.path()).list().await,
        "fake" => rig.fake.list().await,
        "toy" => rig.toy.list().await,
        other => panic!("no provider `{other}`"),
    };
    found.unwrap().into_iter().map(|found| (found.handle.instance, found.seen)).collect()
}

/// A connection past the store, on which the database guards nothing.
pub(crate) async fn raw(rig: &Rig) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(rig.database()).foreign_keys(false);
    options.busy_timeout(Duration::from_secs(30)).connect().await.unwrap()
}

pub(crate) async fn sql(rig: &Rig, text: String) {
    sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut raw(rig).await).await.unwrap();
}

pub(crate) async fn count(rig: &Rig, text: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(text.to_owned())).fetch_one(&mut raw(rig).await).await.unwrap()
}

pub(crate) async fn lease_row(rig: &Rig, id: &LeaseId) -> Lease {
    rig.store().await.lease(id).await.unwrap().unwrap()
}

pub(crate) async fn lease_of(rig: &Rig, name: &str) -> Lease {
    let thread = rig.stead.thread(&thread(name)).await.unwrap();
    lease_row(rig, &thread.lease).await
}

pub(crate) async fn events(rig: &Rig, id: &LeaseId) -> Vec<LeaseEvent> {
    rig.store().await.lease_events(id, 0, 1000).await.unwrap()
}

pub(crate) fn kinds(events: &[LeaseEvent]) -> Vec<&str> {
    events.iter().map(|event| event.kind.as_str()).collect()
}

pub(crate) async fn sessions(rig: &Rig) -> Vec<Session> {
    rig.store().await.sessions(&Page::all()).await.unwrap()
}

pub(crate) async fn session_row(rig: &Rig, session: &Session) -> Session {
    rig.store().await.session(&session.id).await.unwrap().unwrap()
}

pub(crate) async fn terminal(rig: &Rig, name: &str) -> Terminal {
    rig.stead.terminal(&thread(name), DEFAULT_NAME).await.unwrap()
}

pub(crate) async fn terminal_row(rig: &Rig, id: &TerminalId) -> Option<Terminal> {
    rig.store().await.terminal(id).await.unwrap()
}

pub(crate) async fn view(rig: &Rig, name: &str) -> TerminalView {
    let terminal = terminal(rig, name).await;
    TerminalView::new(&terminal.state, terminal.version)
}

pub(crate) fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, Option<String>> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned()))).collect()
}

pub(crate) fn awake_only(name: &str) -> Where {
    Where { auto_resume: AutoResume::No, ..Where::thread(thread(name)) }
}

pub(crate) fn new_thread(name: &str) -> NewThread {
    NewThread { id: Some(thread(name)), ..NewThread::default() }
}

pub(crate) fn policy(idle: Duration, max: Duration) -> Policy {
    Policy { idle_timeout: idle, max_duration: max }
}

/// A thread on the lease of another.
pub(crate) async fn share(rig: &Rig, name: &str, with: &str) -> Sandbox {
    let new = NewThread { share_with: Some(thread(with)), ..new_thread(name) };
    rig.stead.create_thread(new).await.unwrap();
    rig.sandbox(name).await
}

pub(crate) async fn named(rig: &Rig, name: &str, terminal: &str) -> Sandbox {
    let at = Where { terminal: terminal.to_owned(), ..Where::thread(thread(name)) };
    rig.stead.get_sandbox(at).await.unwrap()
}

pub(crate) fn command(id: &str) -> CommandId {
    CommandId::parse(id).unwrap()
}

pub(crate) fn execute(id: &str, text: &str) -> Execute {
    Execute { id: Some(command(id)), ..Execute::new(text) }
}

pub(crate) async fn command_row(rig: &Rig, id: &str) -> Option<Command> {
    rig.store().await.command(&command(id)).await.unwrap()
}

/// A command's record when it has ended.
pub(crate) async fn ended(rig: &Rig, id: &str) -> Command {
    wait_for(&format!("the end of {id}"), || async {
        command_row(rig, id).await.filter(|command| command.status.is_final())
    })
    .await
}

/// Shell text that goes on when the file `name` is in the workspace.
pub(crate) fn gate(name: &str) -> String {
    format!("until [ -e {name} ]; do sleep 0.01; done")
}

pub(crate) async fn open_gate(sandbox: &Sandbox, name: &str) {
    sandbox.files().await.unwrap().write(name, Vec::new()).await.unwrap();
}

/// What a file of the workspace has in it.
pub(crate) async fn file(sandbox: &Sandbox, path: &str) -> Option<String> {
    let bytes = sandbox.files().await.unwrap().read(path).await.ok()?;
    Some(String::from_utf8(bytes).unwrap())
}

pub(crate) async fn wait_for_file(sandbox: &Sandbox, path: &str) -> String {
    wait_for(path, || file(sandbox, path)).await
}

/// Runs a command beside the test.
pub(crate) fn start(sandbox: &Sandbox, execute: Execute) -> JoinHandle<Result<Executed, Error>> {
    let sandbox = sandbox.clone();
    tokio::spawn(async move { sandbox.run(execute).await })
}

/// The first process of a sandbox's instance, as the host numbers it.
pub(crate) async fn first_process(sandbox: &Sandbox) -> i32 {
    let instance = sandbox.lease().await.unwrap().instance.unwrap();
    if let Some((_, pid)) = instance.metadata.iter().find(|(name, _)| name == "pid") {
        return pid.parse().unwrap();
    }
    let said = ask_engine(&format!("GET /containers/{}/json", instance.reference));
    said.split_once("\"Pid\":").unwrap().1.split(',').next().unwrap().parse().unwrap()
}

/// Asks the engine, as somebody who isn't us.
pub(crate) fn ask_engine(request: &str) -> String {
    let mut stream = UnixStream::connect(std::env::var_os(ENGINE).unwrap()).unwrap();
    let head = format!("{request} HTTP/1.1\r\nHost: engine\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 2"), "{request}: {answer}");
    answer
}

/// Kills every process of a sandbox's instance, as the host sees them, at once.
pub(crate) async fn kill_instance(sandbox: &Sandbox) {
    let pid = first_process(sandbox).await;
    let start_time = stead_term::proc::stat(pid).unwrap().start_time;
    tokio::task::spawn_blocking(move || Tree::of(pid, start_time).kill(Duration::from_secs(20)))
        .await
        .unwrap()
        .unwrap();
}
