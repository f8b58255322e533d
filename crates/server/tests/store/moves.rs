//! Threads that are copied and threads that move: rows that belong together, all or nothing.

use crate::rig::*;
use stead_model::lease::{Input, Lease};
use stead_model::terminal::Terminal;
use stead_model::thread::Thread;
use stead_server::store::{InstanceChange, Store};

on_every_store![
    a_fork_comes_with_all_its_terminals,
    a_fork_that_is_refused_leaves_nothing,
    a_thread_moves_with_its_terminals_and_remembers_where_it_was,
    a_move_is_refused_whole_if_anything_has_changed,
    a_lease_that_others_are_on_is_not_left,
    nobody_comes_to_a_lease_that_is_being_removed,
    past_leases_go_with_their_thread,
    a_workspace_is_used_as_long_as_a_thread_has_it,
];

/// A second terminal of a thread.
fn second(of: &str, now: u64) -> Terminal {
    let mut second = terminal(of, now);
    second.id = terminal_id(&format!("{of}-2"));
    second.name = "second".into();
    second
}

async fn a_fork_comes_with_all_its_terminals(store: Shared) {
    store.put_lease(&lease("a", 1)).await.unwrap();
    let mut one = terminal("a", 2);
    one.state = in_dir("/x");
    store.fork_thread(&thread("a", 2), &[one.clone(), second("a", 3)], &[]).await.unwrap();
    assert_eq!(store.thread(&thread_id("a")).await.unwrap(), Some(thread("a", 2)));
    assert_eq!(store.terminals_of_thread(&thread_id("a")).await.unwrap(), [second("a", 3), one]);
    assert_eq!(store.states(&terminal_id("a")).await.unwrap().len(), 1);
}

async fn a_fork_that_is_refused_leaves_nothing(store: Shared) {
    make_thread(&*store, "taken", 1).await;
    store.put_lease(&lease("a", 1)).await.unwrap();
    let refused = store.fork_thread(&thread("taken", 2), &[terminal("a", 2)], &[]).await;
    assert_refused!(refused, AlreadyExists, "thread", "thr-taken");
    let mut clash = second("a", 2);
    clash.id = terminal_id("taken");
    let refused = store.fork_thread(&thread("a", 2), &[terminal("a", 2), clash], &[]).await;
    assert_refused!(refused, AlreadyExists, "terminal", "term-taken");
    let refused = store.fork_thread(&thread("b", 2), &[terminal("b", 2)], &[]).await;
    assert_refused!(refused, NotFound, "lease", "lease-b");
    for name in ["a", "b"] {
        assert_eq!(store.thread(&thread_id(name)).await.unwrap(), None);
        assert_eq!(store.terminal(&terminal_id(name)).await.unwrap(), None);
    }
}

/// A thread with two terminals, another lease, and what the move makes of it.
async fn about_to_move(store: &dyn Store) -> (Thread, Thread, Vec<(Terminal, Terminal)>) {
    let (before, one, _) = make_thread(store, "a", 1).await;
    let two = second("a", 1);
    store.put_terminal(&two).await.unwrap();
    let there = Lease::new(lease_id("there"), provider("namespace"), "elsewhere".into(), at(5));
    store.put_lease(&there).await.unwrap();
    let after = Thread {
        provider: there.provider.clone(),
        lease: there.id.clone(),
        workspace: there.workspace,
        ..before.clone()
    };
    let moved = |was: Terminal| {
        let mut becomes = was.open(at(6));
        becomes.lease = lease_id("there");
        (was, becomes)
    };
    (before, after, vec![moved(one), moved(two)])
}

async fn a_thread_moves_with_its_terminals_and_remembers_where_it_was(store: Shared) {
    let (before, after, terminals) = about_to_move(&*store).await;
    store.move_thread(&before, &after, &terminals).await.unwrap();
    assert_eq!(store.thread(&before.id).await.unwrap(), Some(after.clone()));
    assert_eq!(store.terminals_of_lease(&before.lease).await.unwrap(), []);
    for (_, becomes) in &terminals {
        assert_eq!(store.terminal(&becomes.id).await.unwrap().as_ref(), Some(becomes));
    }
    assert_eq!(store.past_leases(&before.id).await.unwrap(), std::slice::from_ref(&before.lease));
    assert_eq!(store.mover(&before.lease).await.unwrap(), Some(before.id.clone()));
    assert_eq!(store.mover(&after.lease).await.unwrap(), None);
    let again = store.move_thread(&before, &after, &terminals).await;
    assert_refused!(again, Conflict, "thread", "thr-a");
}

async fn a_move_is_refused_whole_if_anything_has_changed(store: Shared) {
    let (before, after, terminals) = about_to_move(&*store).await;
    let (one, _) = &terminals[0];
    store.replace_terminal(one, &next(one, in_dir("/new"), 7)).await.unwrap();
    let refused = store.move_thread(&before, &after, &terminals).await;
    assert_refused!(refused, Conflict, "terminal", "term-a");
    assert_eq!(store.thread(&before.id).await.unwrap(), Some(before.clone()));
    assert_eq!(store.terminals_of_lease(&before.lease).await.unwrap().len(), 2);
    assert_eq!(store.past_leases(&before.id).await.unwrap(), []);
    let nobody = Thread { id: thread_id("no"), ..before };
    assert_refused!(store.move_thread(&nobody, &after, &[]).await, NotFound, "thread", "thr-no");
}

async fn a_lease_that_others_are_on_is_not_left(store: Shared) {
    let (before, after, terminals) = about_to_move(&*store).await;
    let refused = store.move_thread(&before, &after, &terminals[..1]).await;
    assert_refused!(refused, Conflict, "lease", "lease-a");
    let guest = Thread { lease: before.lease.clone(), ..thread("guest", 2) };
    let mut guests = terminal("guest", 2);
    guests.lease = before.lease.clone();
    store.create_thread(&guest, &guests, None).await.unwrap();
    let refused = store.move_thread(&before, &after, &terminals).await;
    assert_refused!(refused, Conflict, "lease", "lease-a");
    assert_eq!(store.terminals_of_lease(&before.lease).await.unwrap().len(), 3);
}

async fn nobody_comes_to_a_lease_that_is_being_removed(store: Shared) {
    let (before, after, terminals) = about_to_move(&*store).await;
    for (id, doomed) in [("1", store.lease(&after.lease).await.unwrap().unwrap()), ("2", lease("b", 1))] {
        if id == "2" {
            store.put_lease(&doomed).await.unwrap();
        }
        let input = Input::WantDestroyed;
        let wanted = doomed.apply(&input, at(9)).unwrap();
        store.replace_lease(&doomed, &wanted, &event(id, &wanted, &input), &InstanceChange::Nothing).await.unwrap();
    }
    assert_refused!(store.move_thread(&before, &after, &terminals).await, Conflict, "lease", "lease-there");
    assert_refused!(store.fork_thread(&thread("b", 2), &[terminal("b", 2)], &[]).await, Conflict, "lease", "lease-b");
    assert_eq!(store.thread(&thread_id("b")).await.unwrap(), None);
    assert_eq!(store.thread(&before.id).await.unwrap(), Some(before));
}

async fn past_leases_go_with_their_thread(store: Shared) {
    let (before, after, terminals) = about_to_move(&*store).await;
    store.move_thread(&before, &after, &terminals).await.unwrap();
    store.delete_thread(&before.id).await.unwrap();
    assert_eq!(store.mover(&before.lease).await.unwrap(), None);
    store.delete_lease(&before.lease).await.unwrap();
    assert_eq!(store.past_leases(&before.id).await.unwrap(), []);
}

async fn a_workspace_is_used_as_long_as_a_thread_has_it(store: Shared) {
    assert!(!store.is_workspace_used("work of a").await.unwrap());
    let (before, after, terminals) = about_to_move(&*store).await;
    assert!(store.is_workspace_used("work of a").await.unwrap());
    assert!(!store.is_workspace_used("elsewhere").await.unwrap());
    store.move_thread(&before, &after, &terminals).await.unwrap();
    assert!(!store.is_workspace_used("work of a").await.unwrap());
    assert!(store.is_workspace_used("elsewhere").await.unwrap());
}
