//! What is only to be said of SQLite: its settings, its files, several handles on one file.

use crate::rig::*;
use sqlx::Row;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use stead_server::store::{Page, SqliteStore, StoreError};
use tokio::task::JoinSet;

#[tokio::test]
async fn only_its_owner_can_read_the_files() {
    let file = File::new();
    let store = file.open().await;
    make_thread(&*store, "a", 1).await;
    let mode = |suffix: &str| {
        let path = format!("{}{suffix}", file.path().display());
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(["", "-wal", "-shm"].map(mode), [0o600; 3]);
    drop(store);
    std::fs::set_permissions(file.path(), PermissionsExt::from_mode(0o644)).unwrap();
    file.open().await;
    assert_eq!(mode(""), 0o600, "one that was left open to others is closed to them");
}

#[tokio::test]
async fn the_file_is_marked_as_ours_and_has_a_log() {
    let file = File::new();
    let _store = file.open().await;
    let mut raw = file.raw().await;
    let id: i64 = sqlx::query_scalar("PRAGMA application_id").fetch_one(&mut raw).await.unwrap();
    assert_eq!(id, 0x7374_6561);
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut raw).await.unwrap();
    assert_eq!(mode, "wal");
    let strict = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND strict = 0
                  AND name NOT LIKE 'sqlite%' AND name <> '_sqlx_migrations'";
    let loose: Vec<String> = sqlx::query_scalar(strict).fetch_all(&mut raw).await.unwrap();
    assert_eq!(loose, [""; 0], "tables that take any type");
}

#[tokio::test]
async fn many_may_open_a_new_file_at_once() {
    let file = Arc::new(File::new());
    let mut openers = JoinSet::new();
    for n in 0..12 {
        let file = file.clone();
        openers.spawn(async move {
            let store = file.open().await;
            make_thread(&*store, &format!("{n}"), n).await;
            store.begin_epoch().await.unwrap()
        });
    }
    let mut epochs = openers.join_all().await;
    epochs.sort_unstable();
    assert_eq!(epochs, (1..=12).collect::<Vec<_>>());
    assert_eq!(file.open().await.threads(None, &Page::all()).await.unwrap().len(), 12);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_handle_writes_the_other_reads_and_of_two_one_wins() {
    let file = File::new();
    let handles = [file.open().await, file.open().await];
    make_thread(&*handles[0], "a", 1).await;
    for round in 0..20_usize {
        let before = handles[round % 2].terminal(&terminal_id("a")).await.unwrap().unwrap();
        assert_eq!(before.version, round as u64);
        let mut rivals = JoinSet::new();
        for n in 0..8_usize {
            let (store, before) = (handles[n % 2].clone(), before.clone());
            rivals.spawn(async move {
                store.replace_terminal(&before, &next(&before, in_dir(&format!("/{round}/{n}")), 1)).await
            });
        }
        let results = rivals.join_all().await;
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
        let lost = results.iter().filter(|result| matches!(result, Err(StoreError::Conflict { .. }))).count();
        assert_eq!(lost, 7, "{results:?}");
    }
}

/// A writer in another process holds the file for as long as it takes.
#[tokio::test]
async fn a_write_waits_for_that_of_another_handle_and_reads_do_not() {
    let file = File::new();
    let store = file.open().await;
    let (thread, ..) = make_thread(&*store, "a", 1).await;
    let mut other = file.raw().await;
    sqlx::raw_sql("BEGIN IMMEDIATE; UPDATE threads SET last_active_at = 50").execute(&mut other).await.unwrap();
    let touch = store.touch_thread(&thread.id, at(60));
    let mut touch = std::pin::pin!(touch);
    let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(touch.as_mut().poll(cx))).await;
    assert!(polled.is_pending());
    assert_eq!(store.thread(&thread.id).await.unwrap(), Some(thread.clone()), "as it was last committed");
    sqlx::raw_sql("COMMIT").execute(&mut other).await.unwrap();
    touch.await.unwrap();
    assert_eq!(store.thread(&thread.id).await.unwrap().unwrap().last_active_at, at(60));
}

#[tokio::test]
async fn a_backup_taken_while_the_server_runs_is_whole() {
    let file = File::new();
    let store = file.open().await;
    let (thread, terminal, _) = make_thread(&*store, "a", 1).await;
    let backup = File::new();
    file.sql(format!("VACUUM INTO '{}'", backup.path().display())).await;
    store.delete_thread(&thread.id).await.unwrap();
    let restored = backup.open().await;
    assert_eq!(restored.terminal(&terminal.id).await.unwrap(), Some(terminal));
    backup.check().await;
}

#[tokio::test]
async fn the_schema_refuses_what_the_model_has_no_word_for() {
    let file = File::new();
    make_thread(&*file.open().await, "a", 1).await;
    let mut raw = file.raw().await;
    for sql in [
        "UPDATE leases SET desired = 'sleeping'",
        "UPDATE leases SET observed = 'x'",
        "UPDATE leases SET version = -1",
        "UPDATE leases SET needs_refresh = 2",
        "UPDATE threads SET created_at = 'yesterday'",
        "UPDATE terminals SET lease_id = 'lease-none'",
        "DELETE FROM leases",
    ] {
        assert!(sqlx::query(sql).execute(&mut raw).await.is_err(), "{sql}");
    }
    let tables = sqlx::query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name");
    let tables: Vec<String> = tables.fetch_all(&mut raw).await.unwrap().iter().map(|row| row.get("name")).collect();
    let agents = ["_sqlx_migrations", "agent_events", "agent_runs", "agent_sessions"];
    let ours = ["commands", "instances", "kept_threads", "lease_events", "leases", "meta"];
    let more = ["notices", "past_leases", "projects", "sessions", "snapshots", "spent_commands"];
    let rest =
        ["sqlite_sequence", "terminal_env", "terminal_secrets", "terminal_states", "terminals", "threads", "tokens"];
    assert_eq!(tables, [&agents[..], &ours[..], &more[..], &rest[..]].concat());
}

/// The same path through the type itself, as the server will use it.
#[tokio::test]
async fn a_store_is_shared_between_tasks() {
    fn shareable<T: Send + Sync + std::fmt::Debug + 'static>(_: &T) {}
    let file = File::new();
    shareable(&SqliteStore::open(&file.path()).await.unwrap());
}

/// The locks that this process has on a file, by what the kernel tells.
fn locks(path: &str) -> usize {
    let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    let (pid, end) = (std::process::id().to_string(), format!(":{inode}"));
    let all = std::fs::read_to_string("/proc/locks").unwrap();
    let is_ours = |line: &&str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields.get(4) == Some(&pid.as_str()) && fields.get(5).is_some_and(|file| file.ends_with(&end))
    };
    all.lines().filter(is_ours).count()
}

/// Without them another process takes the database for one that nobody has open, and cuts the index under the one that has.
#[tokio::test]
async fn a_handle_keeps_its_locks_when_another_of_the_same_process_is_opened_and_closed() {
    let file = File::new();
    let store = file.open().await;
    make_thread(&*store, "a", 1).await;
    let index = format!("{}-shm", file.path().display());
    let before = locks(&index);
    assert!(before > 0, "the kernel tells of no lock");
    for _ in 0..3 {
        SqliteStore::open(&file.path()).await.unwrap().close().await.unwrap();
        assert_eq!(locks(&index), before);
    }
    make_thread(&*store, "b", 2).await;
}
