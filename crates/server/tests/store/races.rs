//! Of any number of callers one wins.

use crate::rig::*;
use stead_model::lease::{Input, Lease};
use stead_model::session::{self, CloseReason, Session, Status};
use stead_server::store::{InstanceChange, LeaseEvent, Page, Result, StoreError};
use tokio::task::JoinSet;

on_every_store![
    of_fifty_threads_with_one_id_one_is_made,
    of_fifty_commands_with_one_id_one_is_put,
    of_fifty_sessions_on_one_terminal_one_is_live,
    a_lease_swapped_by_many_counts_every_win,
    a_terminal_swapped_by_many_counts_every_win,
    a_session_swapped_by_many_counts_every_win,
    a_future_that_is_dropped_leaves_the_writer_usable,
    an_end_is_not_written_under_somebody_who_came_or_used_it_since,
    nobody_begins_to_use_an_instance_that_is_to_end,
    of_a_destruction_and_a_session_on_one_lease_one_is_written,
];

const CALLERS: u64 = 50;
const ROUNDS: u64 = 10;
const RIVALS: u64 = 8;

/// How many were done; the rest were refused as they should be.
fn wins(results: &[Result<()>], is_refusal: fn(&StoreError) -> bool) -> usize {
    for error in results.iter().filter_map(|result| result.as_ref().err()) {
        assert!(is_refusal(error), "{error:?}");
    }
    results.iter().filter(|result| result.is_ok()).count()
}

async fn of_fifty_threads_with_one_id_one_is_made(store: Shared) {
    let mut callers = JoinSet::new();
    for n in 0..CALLERS {
        let store = store.clone();
        callers.spawn(async move {
            let (mut terminal, lease) = (terminal(&format!("{n}"), 1), lease(&format!("{n}"), 1));
            terminal.thread = thread_id("one");
            store.create_thread(&thread("one", n), &terminal, Some(&lease)).await
        });
    }
    let taken = |error: &StoreError| matches!(error, StoreError::AlreadyExists { kind: "thread", .. });
    assert_eq!(wins(&callers.join_all().await, taken), 1);
    assert_eq!(store.terminals(&Page::all()).await.unwrap().len(), 1);
    assert_eq!(store.leases(None, &Page::all()).await.unwrap().len(), 1);
}

async fn of_fifty_commands_with_one_id_one_is_put(store: Shared) {
    make_thread(&*store, "a", 1).await;
    let mut callers = JoinSet::new();
    for n in 0..CALLERS {
        let store = store.clone();
        callers.spawn(async move { store.put_command(&command("one", "a", n)).await });
    }
    let taken = |error: &StoreError| matches!(error, StoreError::AlreadyExists { kind: "command", .. });
    assert_eq!(wins(&callers.join_all().await, taken), 1);
}

async fn of_fifty_sessions_on_one_terminal_one_is_live(store: Shared) {
    let mut callers = JoinSet::new();
    for n in 0..CALLERS {
        let store = store.clone();
        callers.spawn(async move { store.open_session(&session(&format!("{n}"), "a", n)).await });
    }
    assert_eq!(wins(&callers.join_all().await, |_| false), 50, "each was live for a while");
    let sessions = store.sessions(&Page::all()).await.unwrap();
    assert_eq!(sessions.len(), 50);
    assert_eq!(sessions.iter().filter(|session| session.status == Status::Active).count(), 1);
    let superseded = |session: &&session::Session| {
        session.ended.is_some_and(|(_, reason)| reason == session::CloseReason::Superseded) && session.version == 1
    };
    assert_eq!(sessions.iter().filter(superseded).count(), 49);
}

async fn a_lease_swapped_by_many_counts_every_win(store: Shared) {
    store.put_lease(&lease("a", 1)).await.unwrap();
    for round in 0..ROUNDS {
        let before = store.lease(&lease_id("a")).await.unwrap().unwrap();
        let mut callers = JoinSet::new();
        for n in 0..RIVALS {
            let (store, before) = (store.clone(), before.clone());
            callers.spawn(async move {
                let after = before.apply(&Input::WantRunning, at(n)).unwrap();
                let event = event(&format!("{round}-{n}"), &after, &Input::WantRunning);
                store.replace_lease(&before, &after, &event, &InstanceChange::Nothing).await
            });
        }
        let lost = |error: &StoreError| matches!(error, StoreError::Conflict { kind: "lease", .. });
        assert_eq!(wins(&callers.join_all().await, lost), 1);
    }
    assert_eq!(store.lease(&lease_id("a")).await.unwrap().unwrap().version, ROUNDS);
    let events = store.lease_events(&lease_id("a"), 0, 1000).await.unwrap();
    assert_eq!(events.iter().map(|event| event.version).collect::<Vec<_>>(), (1..=ROUNDS).collect::<Vec<_>>());
}

async fn a_terminal_swapped_by_many_counts_every_win(store: Shared) {
    make_thread(&*store, "a", 1).await;
    for _ in 0..ROUNDS {
        let before = store.terminal(&terminal_id("a")).await.unwrap().unwrap();
        let mut callers = JoinSet::new();
        for n in 0..RIVALS {
            let (store, before) = (store.clone(), before.clone());
            callers.spawn(async move {
                let dir = format!("/{}/{n}", before.version);
                store.replace_terminal(&before, &next(&before, in_dir(&dir), n)).await
            });
        }
        let lost = |error: &StoreError| matches!(error, StoreError::Conflict { kind: "terminal", .. });
        assert_eq!(wins(&callers.join_all().await, lost), 1);
    }
    let terminal = store.terminal(&terminal_id("a")).await.unwrap().unwrap();
    assert_eq!(terminal.version, ROUNDS);
    let states = store.states(&terminal.id).await.unwrap();
    assert_eq!((states.len() as u64, &states[0].state), (ROUNDS + 1, &terminal.state));
}

async fn a_session_swapped_by_many_counts_every_win(store: Shared) {
    store.open_session(&session("1", "a", 1)).await.unwrap();
    for _ in 0..ROUNDS {
        let before = store.session(&session_id("1")).await.unwrap().unwrap();
        let mut callers = JoinSet::new();
        for n in 0..RIVALS {
            let (store, before) = (store.clone(), before.clone());
            callers.spawn(async move {
                let after = before.apply(session::Input::Touch, at(n)).unwrap();
                store.replace_session(&before, &after).await
            });
        }
        let lost = |error: &StoreError| matches!(error, StoreError::Conflict { kind: "session", .. });
        assert_eq!(wins(&callers.join_all().await, lost), 1);
    }
    assert_eq!(store.session(&session_id("1")).await.unwrap().unwrap().version, ROUNDS);
}

/// A lease that runs an instance, as it is and as it is wanted to be destroyed.
async fn running(store: &Shared, name: &str) -> (Lease, Lease, LeaseEvent) {
    let fresh = lease(name, 1);
    store.put_lease(&fresh).await.unwrap();
    let begin = Input::Begin(instance_id(name));
    let before = fresh.apply(&begin, at(2)).unwrap();
    let started = InstanceChange::Started(Box::new(instance(name, name, 2)));
    let making = event(&format!("begin-{name}"), &before, &begin);
    store.replace_lease(&fresh, &before, &making, &started).await.unwrap();
    let doomed = before.apply(&Input::WantDestroyed, at(9)).unwrap();
    let told = event(&format!("doom-{name}"), &doomed, &Input::WantDestroyed);
    (before, doomed, told)
}

async fn an_end_is_not_written_under_somebody_who_came_or_used_it_since(store: Shared) {
    let (before, doomed, told) = running(&store, "a").await;
    let end = async |known: &[Session]| store.replace_lease_if_sessions_unchanged(known, &before, &doomed, &told).await;
    let first = session("1", "a", 3);
    store.open_session_on(&instance_id("a"), None, &first).await.unwrap();
    assert_refused!(end(&[]).await, Conflict, "session", "sess-1");
    let used = first.apply(session::Input::Touch, at(4)).unwrap();
    store.replace_session(&first, &used).await.unwrap();
    assert_refused!(end(std::slice::from_ref(&first)).await, Conflict, "session", "sess-1");
    assert_eq!(store.lease(&before.id).await.unwrap(), Some(before.clone()));
    assert_eq!(store.lease_events(&before.id, before.version, 10).await.unwrap(), []);
    // One that has ended, or is on another lease, is nobody.
    let closed = used.apply(session::Input::Close(CloseReason::Closed), at(5)).unwrap();
    store.replace_session(&used, &closed).await.unwrap();
    store.open_session(&session("2", "b", 6)).await.unwrap();
    end(std::slice::from_ref(&first)).await.unwrap();
    assert_eq!(store.lease(&before.id).await.unwrap(), Some(doomed));
}

async fn nobody_begins_to_use_an_instance_that_is_to_end(store: Shared) {
    let (before, doomed, told) = running(&store, "a").await;
    let here = session("1", "a", 3);
    let elsewhere = store.open_session_on(&instance_id("b"), None, &here).await;
    assert_refused!(elsewhere, Conflict, "lease", "lease-a");
    assert_eq!(store.session(&here.id).await.unwrap(), None);
    store.open_session_on(&instance_id("a"), None, &here).await.unwrap();
    let used = here.apply(session::Input::Touch, at(4)).unwrap();
    store.open_session_on(&instance_id("a"), Some(&here), &used).await.unwrap();
    assert_refused!(store.open_session_on(&instance_id("a"), Some(&here), &used).await, Conflict, "session", "sess-1");
    store.replace_lease(&before, &doomed, &told, &InstanceChange::Nothing).await.unwrap();
    let again = used.apply(session::Input::Touch, at(5)).unwrap();
    let refused = store.open_session_on(&instance_id("a"), Some(&used), &again).await;
    assert_refused!(refused, Conflict, "lease", "lease-a");
    assert_eq!(store.session(&here.id).await.unwrap(), Some(used));
}

async fn of_a_destruction_and_a_session_on_one_lease_one_is_written(store: Shared) {
    for round in 0..20 {
        let name = format!("{round}");
        let (before, doomed, told) = running(&store, &name).await;
        let opened = session(&name, &name, 3);
        let (one, other, instance) = (store.clone(), store.clone(), instance_id(&name));
        let ending =
            tokio::spawn(async move { one.replace_lease_if_sessions_unchanged(&[], &before, &doomed, &told).await });
        let opening = tokio::spawn(async move { other.open_session_on(&instance, None, &opened).await });
        let lost = |error: &StoreError| matches!(error, StoreError::Conflict { .. });
        assert_eq!(wins(&[ending.await.unwrap(), opening.await.unwrap()], lost), 1);
    }
}

/// Callers go away in the middle of everything; what they leave is done or not, never half, and others go on.
async fn a_future_that_is_dropped_leaves_the_writer_usable(store: Shared) {
    for n in 0..200 {
        let name = format!("{n}");
        let (thread, terminal, lease) = (thread(&name, n), terminal(&name, n), lease(&name, n));
        let mut making = Box::pin(store.create_thread(&thread, &terminal, Some(&lease)));
        // Polled a few times and then dropped, each time a bit further.
        for _ in 0..n % 12 {
            let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(making.as_mut().poll(cx))).await;
            if polled.is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    make_thread(&*store, "after", 1000).await;
    for thread in store.threads(None, &Page::all()).await.unwrap() {
        assert!(store.terminal(&thread.default_terminal).await.unwrap().is_some(), "{} is half made", thread.id);
        assert!(store.lease(&thread.lease).await.unwrap().is_some(), "{} is half made", thread.id);
    }
    let count = store.threads(None, &Page::all()).await.unwrap().len();
    assert_eq!(store.terminals(&Page::all()).await.unwrap().len(), count);
    assert_eq!(store.leases(None, &Page::all()).await.unwrap().len(), count);
}
