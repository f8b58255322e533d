//! Rows that mean nothing: named where they are asked for, passed over in lists.

use crate::rig::*;
use stead_model::lease::Input;
use stead_server::store::{InstanceChange, Page, StoreError};

/// Three of everything, of which the one in the middle is damaged by a statement.
async fn damaged(sql: &str) -> (File, Shared) {
    let file = File::new();
    let store = file.open().await;
    for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
        let now = 10 + n as u64;
        let (_, zero, lease) = make_thread(&*store, name, now).await;
        store.replace_terminal(&zero, &next(&zero, in_dir("/x"), now)).await.unwrap();
        let begin = Input::Begin(instance_id(name));
        let after = lease.apply(&begin, at(now)).unwrap();
        let started = InstanceChange::Started(Box::new(instance(name, name, now)));
        store.replace_lease(&lease, &after, &event(name, &after, &begin), &started).await.unwrap();
        store.open_session(&session(name, name, now)).await.unwrap();
        store.put_command(&command(name, name, now)).await.unwrap();
    }
    file.sql(format!("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON; {sql}")).await;
    (file, store)
}

macro_rules! assert_corrupt {
    ($result:expr, $kind:literal, $id:literal, $what:literal) => {
        match $result {
            Err(error @ StoreError::Corrupt { .. }) => {
                let said = error.to_string();
                let expected = format!("{} `{}` can't be read from the database: ", $kind, $id);
                assert!(said.starts_with(&expected) && said.contains($what), "{said}");
            }
            other => panic!("{other:?}"),
        }
    };
}

#[tokio::test]
async fn a_bad_thread_is_named_and_does_not_hide_the_others() {
    let (_file, store) = damaged("UPDATE threads SET provider = 'no good' WHERE id = 'thr-b'").await;
    assert_corrupt!(store.thread(&thread_id("b")).await, "thread", "thr-b", "provider");
    let ids: Vec<_> = store.threads(None, &Page::all()).await.unwrap().into_iter().map(|thread| thread.id).collect();
    assert_eq!(ids, [thread_id("c"), thread_id("a")]);
}

#[tokio::test]
async fn a_page_is_full_although_rows_were_left_out() {
    let (_file, store) = damaged("UPDATE threads SET lease_id = '' WHERE id IN ('thr-b', 'thr-c')").await;
    let ids: Vec<_> = store.threads(None, &first(1)).await.unwrap().into_iter().map(|thread| thread.id).collect();
    assert_eq!(ids, [thread_id("a")], "a short page would mean the end of the list");
}

#[tokio::test]
async fn a_bad_state_is_named_and_does_not_hide_the_others() {
    let (_file, store) =
        damaged("UPDATE terminal_states SET state = x'ff00' WHERE terminal_id = 'term-b' AND version = 1").await;
    assert_corrupt!(store.terminal(&terminal_id("b")).await, "terminal", "term-b", "state");
    assert_corrupt!(store.state_at(&terminal_id("b"), 1).await, "terminal state", "term-b version 1", "state");
    assert_eq!(store.state_at(&terminal_id("b"), 0).await.unwrap().unwrap().version, 0);
    let versions = store.states(&terminal_id("b")).await.unwrap();
    assert_eq!(versions.into_iter().map(|state| state.version).collect::<Vec<_>>(), [0]);
    assert_eq!(store.terminals(&Page::all()).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_terminal_whose_state_is_gone_is_not_taken_for_a_fresh_one() {
    let (_file, store) = damaged("DELETE FROM terminal_states WHERE terminal_id = 'term-b' AND version = 1").await;
    assert_corrupt!(store.terminal(&terminal_id("b")).await, "terminal", "term-b", "version 1 is missing");
}

#[tokio::test]
async fn a_bad_lease_is_named_and_does_not_hide_the_others() {
    for sql in ["caveats = '[1'", "observed = 'gone'", "desired = ''", "version = -4", "instance_id = '/'"] {
        let (_file, store) = damaged(&format!("UPDATE leases SET {sql} WHERE id = 'lease-b'")).await;
        let column = sql.split(' ').next().unwrap();
        let read = store.lease(&lease_id("b")).await;
        let Err(StoreError::Corrupt { kind: "lease", id, what }) = read else { panic!("{sql}: {read:?}") };
        assert!(id == "lease-b" && what.contains(column), "{sql}: {what}");
        assert_eq!(store.leases(None, &Page::all()).await.unwrap().len(), 2, "{sql}");
    }
}

#[tokio::test]
async fn a_bad_event_or_instance_does_not_hide_the_others() {
    let (_file, store) = damaged(
        "UPDATE lease_events SET id = 'no good' WHERE id = 'evt-b';
         UPDATE instances SET metadata = '{}' WHERE id = 'inst-b'",
    )
    .await;
    assert_corrupt!(store.instance(&instance_id("b")).await, "instance", "inst-b", "metadata");
    assert_eq!(store.live_instances().await.unwrap().len(), 2);
    assert_eq!(store.lease_events(&lease_id("b"), 0, 10).await.unwrap(), []);
    assert_eq!(store.lease_events(&lease_id("a"), 0, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_bad_session_is_named_and_does_not_hide_the_others() {
    let (_file, store) = damaged("UPDATE sessions SET ended_at = 5 WHERE id = 'sess-b'").await;
    assert_corrupt!(store.session(&session_id("b")).await, "session", "sess-b", "close_reason");
    assert_corrupt!(store.live_session(&terminal_id("b")).await, "session", "sess-b", "close_reason");
    assert_eq!(store.live_sessions().await.unwrap().len(), 2);
    assert_eq!(store.sessions(&Page::all()).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_bad_command_is_named_and_does_not_hide_the_others() {
    let (_file, store) = damaged("UPDATE commands SET ending = x'01' WHERE id = 'cmd-b'").await;
    assert_corrupt!(store.command(&command_id("b")).await, "command", "cmd-b", "ending");
    assert_eq!(store.open_commands().await.unwrap().len(), 2);
    assert_eq!(store.commands_of_thread(&thread_id("b"), &Page::all()).await.unwrap(), []);
}
