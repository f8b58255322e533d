//! Sessions: one live one for each terminal, and all the others as history.

use crate::rig::*;
use std::time::Duration;
use stead_model::session::{CloseReason, Input, Policy, Session, Status};
use stead_server::store::Page;

on_every_store![
    every_field_of_a_session_comes_back,
    opening_supersedes_the_live_one_of_the_same_terminal,
    a_taken_session_id_supersedes_nobody,
    a_swap_needs_the_version_that_is_there,
    a_swap_of_what_is_not_there_is_not_found,
    what_was_closed_does_not_come_back_beside_another,
    the_newest_session_of_a_thread_may_be_closed,
    live_sessions_are_those_that_hold_their_terminal,
    sessions_need_neither_thread_nor_terminal,
    sessions_are_paged_newest_first,
];

async fn every_field_of_a_session_comes_back(store: Shared) {
    let policy = Policy { idle_timeout: Duration::from_millis(1500), max_duration: Duration::ZERO };
    for (n, status) in Status::ALL.into_iter().enumerate() {
        for (m, reason) in CloseReason::ALL.into_iter().enumerate() {
            let whole = Session {
                status,
                policy,
                last_active_at: at(50),
                ended: (status == Status::Closed).then_some((at(60), reason)),
                version: m as u64,
                ..session(&format!("{n}-{m}"), &format!("{n}-{m}"), 40)
            };
            store.open_session(&whole).await.unwrap();
            assert_eq!(store.session(&whole.id).await.unwrap(), Some(whole));
        }
    }
}

async fn opening_supersedes_the_live_one_of_the_same_terminal(store: Shared) {
    let statuses = [Input::Touch, Input::FellIdle, Input::Paused];
    for (n, input) in statuses.into_iter().enumerate() {
        let (old, new) =
            (session(&format!("old-{n}"), &format!("{n}"), 10), session(&format!("new-{n}"), &format!("{n}"), 30));
        store.open_session(&old).await.unwrap();
        let used = old.apply(input, at(20)).unwrap();
        store.replace_session(&old, &used).await.unwrap();
        store.open_session(&new).await.unwrap();
        let superseded = used.apply(Input::Close(CloseReason::Superseded), at(30)).unwrap();
        assert_eq!(store.session(&old.id).await.unwrap(), Some(superseded), "as the model would");
        assert_eq!(store.live_session(&new.terminal).await.unwrap(), Some(new));
    }
    assert_eq!(store.live_sessions().await.unwrap().len(), 3, "those of other terminals stay");
}

async fn a_taken_session_id_supersedes_nobody(store: Shared) {
    let live = session("1", "a", 1);
    store.open_session(&live).await.unwrap();
    assert_refused!(store.open_session(&session("1", "a", 2)).await, AlreadyExists, "session", "sess-1");
    assert_eq!(store.live_session(&live.terminal).await.unwrap(), Some(live));
}

async fn a_swap_needs_the_version_that_is_there(store: Shared) {
    let zero = session("1", "a", 1);
    store.open_session(&zero).await.unwrap();
    let one = zero.apply(Input::Touch, at(5)).unwrap();
    store.replace_session(&zero, &one).await.unwrap();
    let closed = zero.apply(Input::Close(CloseReason::IdleTimeout), at(6)).unwrap();
    assert_refused!(store.replace_session(&zero, &closed).await, Conflict, "session", "sess-1");
    assert_eq!(store.session(&zero.id).await.unwrap(), Some(one));
}

async fn a_swap_of_what_is_not_there_is_not_found(store: Shared) {
    let zero = session("1", "a", 1);
    let one = zero.apply(Input::Touch, at(5)).unwrap();
    assert_refused!(store.replace_session(&zero, &one).await, NotFound, "session", "sess-1");
}

async fn what_was_closed_does_not_come_back_beside_another(store: Shared) {
    let old = session("old", "a", 1);
    store.open_session(&old).await.unwrap();
    store.open_session(&session("new", "a", 2)).await.unwrap();
    let closed = store.session(&old.id).await.unwrap().unwrap();
    let revived = Session { status: Status::Active, ended: None, version: closed.version + 1, ..closed.clone() };
    assert_refused!(store.replace_session(&closed, &revived).await, Conflict, "session", "sess-old");
    assert_eq!(store.session(&old.id).await.unwrap(), Some(closed));
}

async fn the_newest_session_of_a_thread_may_be_closed(store: Shared) {
    assert_eq!(store.newest_session(&thread_id("a")).await.unwrap(), None);
    for (name, now) in [("1", 10), ("3", 30), ("2", 20)] {
        store.open_session(&session(name, "a", now)).await.unwrap();
    }
    store.open_session(&session("other", "b", 99)).await.unwrap();
    let newest = store.newest_session(&thread_id("a")).await.unwrap().unwrap();
    assert_eq!((newest.id, newest.status), (session_id("3"), Status::Closed));
}

async fn live_sessions_are_those_that_hold_their_terminal(store: Shared) {
    let inputs = [
        ("active", None, true),
        ("idle", Some(Input::FellIdle), true),
        ("paused", Some(Input::Paused), true),
        ("failed", Some(Input::Failed), false),
        ("closed", Some(Input::Close(CloseReason::Closed)), false),
    ];
    let mut live = Vec::new();
    for (n, (name, input, is_live)) in inputs.into_iter().enumerate() {
        let mut session = Session { lease: lease_id("shared"), ..session(name, name, 10 + n as u64) };
        store.open_session(&session).await.unwrap();
        if let Some(input) = input {
            let after = session.apply(input, at(50)).unwrap();
            store.replace_session(&session, &after).await.unwrap();
            session = after;
        }
        let found = store.live_session(&session.terminal).await.unwrap();
        assert_eq!(found, is_live.then(|| session.clone()), "{name}");
        if is_live {
            live.insert(0, session);
        }
    }
    let elsewhere = session("elsewhere", "elsewhere", 1);
    store.open_session(&elsewhere).await.unwrap();
    assert_eq!(store.live_sessions_of_lease(&lease_id("shared")).await.unwrap(), live);
    live.push(elsewhere);
    assert_eq!(store.live_sessions().await.unwrap(), live);
}

async fn sessions_need_neither_thread_nor_terminal(store: Shared) {
    let (thread, ..) = make_thread(&*store, "a", 1).await;
    let session = session("1", "a", 1);
    store.open_session(&session).await.unwrap();
    store.delete_thread(&thread.id).await.unwrap();
    store.delete_lease(&lease_id("a")).await.unwrap();
    let closed = session.apply(Input::Close(CloseReason::Destroyed), at(5)).unwrap();
    store.replace_session(&session, &closed).await.unwrap();
    assert_eq!(store.newest_session(&thread.id).await.unwrap(), Some(closed));
}

async fn sessions_are_paged_newest_first(store: Shared) {
    for (name, now) in [("1", 10), ("2", 20), ("3", 20), ("4", 5)] {
        store.open_session(&session(name, "a", now)).await.unwrap();
    }
    let ids = |sessions: Vec<Session>| sessions.into_iter().map(|session| session.id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(store.sessions(&Page::all()).await.unwrap()), ["sess-3", "sess-2", "sess-1", "sess-4"]);
    let rest = Page { limit: 2, after: Some((at(20), "sess-3".into())) };
    assert_eq!(ids(store.sessions(&rest).await.unwrap()), ["sess-2", "sess-1"]);
}
