//! Terminals.

use crate::rig::*;
use sqlx::Row;
use stead_model::state::{Bytes, ShellState};
use stead_model::terminal::Terminal;
use stead_server::store::{Page, Store};

fn with_env(cwd: &str, env: &[(&str, &str)]) -> ShellState {
    let mut state = in_dir(cwd);
    for (name, value) in env {
        state.variables.insert(Bytes::from(name), Bytes(format!("declare -x {name}=\"{value}\"").into_bytes()));
    }
    state
}

fn env_of(state: &ShellState) -> Vec<(String, String)> {
    let text = |bytes: &Bytes| String::from_utf8(bytes.0.clone()).unwrap();
    state.env_delta().iter().map(|(name, value)| (text(name), text(value.as_ref().unwrap()))).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

async fn update(store: &dyn Store, terminal: &Terminal, state: ShellState, now: u64) -> Terminal {
    let after = next(terminal, state, now);
    store.replace_terminal(terminal, &after).await.unwrap();
    after
}

async fn fetch(store: &dyn Store, name: &str) -> Terminal {
    store.terminal(&terminal_id(name)).await.unwrap().unwrap()
}

#[tokio::test]
async fn ensure_tables() {
    let file = File::new();
    file.open().await;
    file.sql("SELECT id, thread_id, lease_id, version, created_at, updated_at FROM terminals").await;
    file.sql("SELECT terminal_id, version, state, at FROM terminal_states").await;
}

#[tokio::test]
async fn create_terminal() {
    let file = File::new();
    let store = file.open().await;
    make_thread(&*store, "a", 7).await;
    let made = fetch(&*store, "a").await;
    assert_eq!((made.thread, made.lease, made.version), (thread_id("a"), lease_id("a"), 0));
    assert_eq!((made.created_at, env_of(&made.state)), (at(7), Vec::new()));
}

#[tokio::test]
async fn get_terminal_by_thread() {
    let file = File::new();
    let store = file.open().await;
    let (thread, terminal, _) = make_thread(&*store, "a", 1).await;
    assert_eq!(store.terminal_named(&thread.id, "default").await.unwrap(), Some(terminal.clone()));
    assert_eq!(store.terminals_of_thread(&thread.id).await.unwrap(), [terminal]);
}

#[tokio::test]
async fn get_terminal_by_id() {
    let file = File::new();
    let store = file.open().await;
    let (_, terminal, _) = make_thread(&*store, "a", 1).await;
    assert_eq!(store.terminal(&terminal.id).await.unwrap(), Some(terminal));
}

#[tokio::test]
async fn get_nonexistent_terminal() {
    let file = File::new();
    let store = file.open().await;
    assert_eq!(store.terminal(&terminal_id("no")).await.unwrap(), None);
    assert_eq!(store.terminal_named(&thread_id("no"), "default").await.unwrap(), None);
}

#[tokio::test]
async fn delete_terminal() {
    let file = File::new();
    let store = file.open().await;
    let (thread, terminal, _) = make_thread(&*store, "a", 1).await;
    store.delete_terminal(&terminal.id).await.unwrap();
    assert_eq!(store.terminal(&terminal.id).await.unwrap(), None);
    assert_eq!(store.terminal_named(&thread.id, "default").await.unwrap(), None);
}

#[tokio::test]
async fn list_all_terminals() {
    let file = File::new();
    let store = file.open().await;
    for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
        make_thread(&*store, name, n as u64).await;
    }
    let ids: Vec<_> = store.terminals(&Page::all()).await.unwrap().into_iter().map(|terminal| terminal.id).collect();
    assert_eq!(ids, ["c", "b", "a"].map(terminal_id));
}

/// Of which a thread has one is its default terminal.
#[tokio::test]
async fn thread_id_unique_constraint() {
    let file = File::new();
    let store = file.open().await;
    make_thread(&*store, "a", 1).await;
    let second = Terminal { id: terminal_id("second"), ..terminal("a", 2) };
    assert_refused!(store.put_terminal(&second).await, AlreadyExists, "terminal", "default");
}

#[tokio::test]
async fn update_state_increments_version() {
    let file = File::new();
    let store = file.open().await;
    let (_, zero, _) = make_thread(&*store, "a", 1).await;
    let one = update(&*store, &zero, with_env("/home/user", &[("FOO", "bar")]), 2).await;
    assert_eq!((zero.version, one.version), (0, 1));
    let now = fetch(&*store, "a").await;
    assert_eq!((now.state.cwd.clone(), env_of(&now.state)), (Bytes::from("/home/user"), pairs(&[("FOO", "bar")])));
}

#[tokio::test]
async fn update_state_persists_to_db() {
    let file = File::new();
    let store = file.open().await;
    let (_, zero, _) = make_thread(&*store, "a", 1).await;
    update(&*store, &zero, with_env("/home/user", &[("FOO", "bar")]), 2).await;
    let joined = "SELECT t.version, t.content_version, t.updated_at, s.state, s.at FROM terminals t
                  JOIN terminal_states s ON s.terminal_id = t.id AND s.version = t.content_version
                  WHERE t.id = 'term-a'";
    let row = sqlx::query(joined).fetch_one(&mut file.raw().await).await.unwrap();
    let numbers = ["version", "content_version", "updated_at", "at"].map(|column| row.get::<i64, _>(column));
    assert_eq!(numbers, [1, 1, 2, 2]);
    let state: ShellState = minicbor::decode(row.get("state")).unwrap();
    assert_eq!((state.cwd.clone(), env_of(&state)), (Bytes::from("/home/user"), pairs(&[("FOO", "bar")])));
}

#[tokio::test]
async fn state_persists_across_retrieval() {
    let file = File::new();
    let store = file.open().await;
    let (_, zero, _) = make_thread(&*store, "a", 1).await;
    let one = update(&*store, &zero, with_env("/tmp", &[("A", "1")]), 2).await;
    drop(store);
    let again = file.open().await;
    assert_eq!(again.terminal(&zero.id).await.unwrap(), Some(one.clone()));
    assert_eq!(one.version, 1);
}

#[tokio::test]
async fn multiple_state_updates() {
    let file = File::new();
    let store = file.open().await;
    let (_, zero, _) = make_thread(&*store, "a", 1).await;
    let one = update(&*store, &zero, with_env("/one", &[("A", "1")]), 2).await;
    let two = update(&*store, &one, with_env("/two", &[("A", "1"), ("B", "2")]), 3).await;
    update(&*store, &two, in_dir("/three"), 4).await;
    let now = fetch(&*store, "a").await;
    assert_eq!((now.version, now.state.cwd.clone()), (3, Bytes::from("/three")));
    assert_eq!(env_of(&now.state), [], "an update without an environment leaves none");
}

#[tokio::test]
async fn full_lifecycle() {
    let file = File::new();
    let store = file.open().await;
    let (_, zero, _) = make_thread(&*store, "a", 1).await;
    let one = update(&*store, &zero, in_dir("/one"), 2).await;
    update(&*store, &one, in_dir("/two"), 3).await;
    assert_eq!(fetch(&*store, "a").await.version, 2);
    store.delete_terminal(&zero.id).await.unwrap();
    assert_eq!(store.terminal(&zero.id).await.unwrap(), None);
}

#[tokio::test]
async fn multiple_terminals_different_leases() {
    let file = File::new();
    let store = file.open().await;
    make_thread(&*store, "a", 1).await;
    make_thread(&*store, "b", 2).await;
    let third = Terminal { id: terminal_id("c"), name: "second".into(), ..terminal("b", 3) };
    store.put_terminal(&third).await.unwrap();
    let mut leases = Vec::new();
    for name in ["a", "b", "c"] {
        leases.push(fetch(&*store, name).await.lease);
    }
    assert_eq!(leases, ["a", "b", "b"].map(lease_id));
}

#[tokio::test]
async fn state_isolation_between_terminals() {
    let file = File::new();
    let store = file.open().await;
    let (_, one, _) = make_thread(&*store, "a", 1).await;
    let mut other = Terminal { id: terminal_id("other"), name: "other".into(), ..terminal("a", 1) };
    other.state = in_dir("/own");
    store.put_terminal(&other).await.unwrap();
    update(&*store, &one, with_env("/tmp", &[("FOO", "bar")]), 2).await;
    let untouched = fetch(&*store, "other").await;
    assert_eq!((untouched.version, untouched.state.cwd.clone()), (0, Bytes::from("/own")));
    assert_eq!(env_of(&untouched.state), []);
}
