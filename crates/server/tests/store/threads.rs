//! Threads: made whole, paged, deleted with what is theirs.

use crate::rig::*;
use std::time::Duration;
use stead_model::ids::ThreadId;
use stead_model::proto::{Ending, Status};
use stead_model::session::Policy;
use stead_model::thread::Thread;
use stead_server::store::Page;

on_every_store![
    epochs_count_up,
    a_thread_comes_with_its_terminal_and_lease,
    every_field_of_a_thread_comes_back,
    a_thread_may_share_the_lease_of_another,
    a_taken_thread_id_leaves_nothing_behind,
    a_taken_terminal_or_lease_id_leaves_no_thread_behind,
    a_thread_on_a_lease_that_is_not_there_is_refused_whole,
    touching_moves_activity_forward_only,
    touching_what_is_not_there_is_not_found,
    deleting_a_thread_takes_terminals_states_and_commands_and_leaves_sessions,
    deleting_a_thread_that_is_not_there_is_fine,
    threads_are_newest_first_and_of_their_project,
    pages_are_stable_while_threads_come_and_go,
    threads_of_one_moment_are_ordered_by_id,
];

async fn epochs_count_up(store: Shared) {
    for epoch in 1..=3 {
        assert_eq!(store.begin_epoch().await.unwrap(), epoch);
    }
}

async fn a_thread_comes_with_its_terminal_and_lease(store: Shared) {
    let (thread, terminal, lease) = make_thread(&*store, "a", 7).await;
    assert_eq!(store.thread(&thread.id).await.unwrap(), Some(thread.clone()));
    assert_eq!(store.terminal(&terminal.id).await.unwrap(), Some(terminal.clone()));
    assert_eq!(store.terminal_named(&thread.id, "default").await.unwrap(), Some(terminal));
    assert_eq!(store.lease(&lease.id).await.unwrap(), Some(lease));
    assert_eq!(store.thread(&thread_id("nobody")).await.unwrap(), None);
}

async fn every_field_of_a_thread_comes_back(store: Shared) {
    let whole = Thread {
        project: Some(project("proj.1")),
        workspace: "a \"work\"\nspace '; DROP TABLE threads; -- ä\0".into(),
        policy: Policy { idle_timeout: Duration::from_millis(1), max_duration: Duration::from_millis(u64::MAX / 4) },
        last_active_at: at(9),
        ..thread("whole", 5)
    };
    store.create_thread(&whole, &terminal("whole", 5), Some(&lease("whole", 5))).await.unwrap();
    assert_eq!(store.thread(&whole.id).await.unwrap(), Some(whole));
}

async fn a_thread_may_share_the_lease_of_another(store: Shared) {
    let (_, _, lease) = make_thread(&*store, "a", 1).await;
    let guest = Thread { lease: lease.id.clone(), ..thread("b", 2) };
    let mut guests = terminal("b", 2);
    guests.lease = lease.id.clone();
    store.create_thread(&guest, &guests, None).await.unwrap();
    let on_lease: Vec<_> = store.terminals_of_lease(&lease.id).await.unwrap().into_iter().map(|t| t.id).collect();
    assert_eq!(on_lease, [terminal_id("b"), terminal_id("a")], "newest first");
}

async fn a_taken_thread_id_leaves_nothing_behind(store: Shared) {
    let (first, _, _) = make_thread(&*store, "a", 1).await;
    let mut late = terminal("late", 2);
    late.thread = first.id.clone();
    let again = Thread { workspace: "another".into(), ..first.clone() };
    let refused = store.create_thread(&again, &late, Some(&lease("late", 2))).await;
    assert_refused!(refused, AlreadyExists, "thread", first.id.as_str());
    assert_eq!(store.thread(&first.id).await.unwrap(), Some(first));
    assert_eq!(store.terminal(&late.id).await.unwrap(), None);
    assert_eq!(store.lease(&lease_id("late")).await.unwrap(), None);
}

async fn a_taken_terminal_or_lease_id_leaves_no_thread_behind(store: Shared) {
    make_thread(&*store, "a", 1).await;
    let refused = store.create_thread(&thread("b", 2), &terminal("b", 2), Some(&lease("a", 2))).await;
    assert_refused!(refused, AlreadyExists, "lease", "lease-a");
    let mut taken = terminal("b", 2);
    taken.id = terminal_id("a");
    let refused = store.create_thread(&thread("b", 2), &taken, Some(&lease("b", 2))).await;
    assert_refused!(refused, AlreadyExists, "terminal", "term-a");
    assert_eq!(store.thread(&thread_id("b")).await.unwrap(), None);
    assert_eq!(store.lease(&lease_id("b")).await.unwrap(), None);
}

async fn a_thread_on_a_lease_that_is_not_there_is_refused_whole(store: Shared) {
    let refused = store.create_thread(&thread("a", 1), &terminal("a", 1), None).await;
    assert_refused!(refused, NotFound, "lease", "lease-a");
    assert_eq!(store.thread(&thread_id("a")).await.unwrap(), None);
}

async fn touching_moves_activity_forward_only(store: Shared) {
    let (thread, ..) = make_thread(&*store, "a", 10).await;
    for (touched, expected) in [(15, 15), (12, 15), (15, 15), (16, 16)] {
        store.touch_thread(&thread.id, at(touched)).await.unwrap();
        let now = store.thread(&thread.id).await.unwrap().unwrap();
        assert_eq!(now, Thread { last_active_at: at(expected), ..thread.clone() }, "touched at {touched}");
    }
}

async fn touching_what_is_not_there_is_not_found(store: Shared) {
    assert_refused!(store.touch_thread(&thread_id("no"), at(1)).await, NotFound, "thread", "thr-no");
}

async fn deleting_a_thread_takes_terminals_states_and_commands_and_leaves_sessions(store: Shared) {
    let (thread, terminal, lease) = make_thread(&*store, "a", 1).await;
    let (other, ..) = make_thread(&*store, "b", 1).await;
    let changed = next(&terminal, in_dir("/x"), 2);
    store.replace_terminal(&terminal, &changed).await.unwrap();
    let done = command("1", "a", 3).end(Ending::new(Status::Failed, None), at(4)).unwrap();
    store.save_commands(&[done, command("2", "a", 3), command("3", "b", 3)]).await.unwrap();
    let session = session("1", "a", 3);
    store.open_session(&session).await.unwrap();

    store.delete_thread(&thread.id).await.unwrap();
    assert_eq!(store.thread(&thread.id).await.unwrap(), None);
    assert_eq!(store.terminal(&terminal.id).await.unwrap(), None);
    assert_eq!(store.terminals_of_thread(&thread.id).await.unwrap(), []);
    assert_eq!(store.states(&terminal.id).await.unwrap(), []);
    assert_eq!(store.commands_of_thread(&thread.id, &Page::all()).await.unwrap(), []);
    let left: Vec<_> = store.open_commands().await.unwrap().into_iter().map(|command| command.id).collect();
    assert_eq!(left, [command_id("3")], "what is of others stays");
    assert_eq!(store.thread(&other.id).await.unwrap(), Some(other));
    assert_eq!(store.session(&session.id).await.unwrap(), Some(session), "history stays");
    assert_eq!(store.lease(&lease.id).await.unwrap(), Some(lease), "a lease is not the thread's to delete");
}

async fn deleting_a_thread_that_is_not_there_is_fine(store: Shared) {
    store.delete_thread(&thread_id("no")).await.unwrap();
}

async fn threads_are_newest_first_and_of_their_project(store: Shared) {
    for (n, of) in [None, Some("p"), Some("q"), Some("p")].into_iter().enumerate() {
        let name = format!("{n}");
        let thread = Thread { project: of.map(project), ..thread(&name, 100 + n as u64) };
        store.create_thread(&thread, &terminal(&name, 1), Some(&lease(&name, 1))).await.unwrap();
    }
    let ids = |threads: Vec<Thread>| threads.into_iter().map(|thread| thread.id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(store.threads(None, &Page::all()).await.unwrap()), ["thr-3", "thr-2", "thr-1", "thr-0"]);
    assert_eq!(ids(store.threads(None, &first(2)).await.unwrap()), ["thr-3", "thr-2"]);
    assert_eq!(ids(store.threads(None, &first(0)).await.unwrap()), [""; 0]);
    let of_p = |page: Page| ids_of(store.clone(), page);
    assert_eq!(of_p(Page::all()).await, ["thr-3", "thr-1"]);
    assert_eq!(of_p(Page { limit: 9, after: Some((at(103), "thr-3".into())) }).await, ["thr-1"]);
    assert_eq!(of_p(Page { limit: 9, after: Some((at(101), "thr-1".into())) }).await, [""; 0]);
}

async fn ids_of(store: Shared, page: Page) -> Vec<String> {
    let threads = store.threads(Some(&project("p")), &page).await.unwrap();
    threads.into_iter().map(|thread| thread.id.to_string()).collect()
}

async fn pages_are_stable_while_threads_come_and_go(store: Shared) {
    for n in 10..30 {
        make_thread(&*store, &format!("{n}"), n).await;
    }
    let mut seen: Vec<ThreadId> = Vec::new();
    let mut page = first(3);
    loop {
        let threads = store.threads(None, &page).await.unwrap();
        let Some(last) = threads.last() else { break };
        page.after = Some((last.created_at, last.id.to_string()));
        let last = last.clone();
        seen.extend(threads.into_iter().map(|thread| thread.id));
        // What is new comes before the first page, and what is deleted leaves no hole: not even the last seen.
        make_thread(&*store, &format!("new-{}", seen.len()), 100 + seen.len() as u64).await;
        store.delete_thread(&last.id).await.unwrap();
    }
    let all: Vec<_> = (10..30).rev().map(|n| thread_id(&format!("{n}"))).collect();
    assert_eq!(seen, all);
}

async fn threads_of_one_moment_are_ordered_by_id(store: Shared) {
    for name in ["b", "a", "d", "c"] {
        make_thread(&*store, name, 5).await;
    }
    let mut seen = Vec::new();
    let mut page = first(1);
    while let Some(thread) = store.threads(None, &page).await.unwrap().pop() {
        page.after = Some((thread.created_at, thread.id.to_string()));
        seen.push(thread.id.to_string());
    }
    assert_eq!(seen, ["thr-d", "thr-c", "thr-b", "thr-a"]);
}
