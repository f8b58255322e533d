//! Lists, a page at a time, and reads that change nothing.

use crate::rig::{Rig, out, run, thread};
use crate::scene::*;
use std::time::Duration;
use stead_model::session::Status;
use stead_server::provider::{Availability, Metrics};
use stead_server::stead::{List, Listed};

fn page(limit: u32, cursor: Option<String>) -> List {
    List { limit: Some(limit), cursor }
}

/// Every page of a list, each item by its name.
async fn all<T, F: Future<Output = Listed<T>>>(
    limit: u32,
    name: impl Fn(&T) -> String,
    get: impl Fn(List) -> F,
) -> Vec<String> {
    let mut names = Vec::new();
    let mut cursor = None;
    loop {
        let listed = get(page(limit, cursor)).await;
        assert!(listed.items.len() <= limit as usize);
        names.extend(listed.items.iter().map(&name));
        cursor = listed.next_cursor;
        if cursor.is_none() {
            return names;
        }
    }
}

#[tokio::test]
async fn threads_and_terminals_come_and_go_while_they_are_listed() {
    let rig = Rig::new("toy").await;
    for n in 0..7 {
        rig.clock.advance(Duration::from_millis(5));
        rig.stead.create_thread(new_thread(&format!("t{n}"))).await.unwrap();
    }
    let first = rig.stead.list_threads(None, &page(3, None)).await.unwrap();
    let ids: Vec<_> = first.items.iter().map(|thread| thread.id.as_str()).collect();
    assert_eq!(ids, ["t6", "t5", "t4"]);
    rig.stead.delete_thread(&thread("t4")).await.unwrap();
    rig.stead.delete_thread(&thread("t3")).await.unwrap();
    rig.stead.create_thread(new_thread("late")).await.unwrap();
    let second = rig.stead.list_threads(None, &page(3, first.next_cursor)).await.unwrap();
    let ids: Vec<_> = second.items.iter().map(|thread| thread.id.as_str()).collect();
    assert_eq!((ids, second.next_cursor), (vec!["t2", "t1", "t0"], None));
    for name in ["a", "b", "c"] {
        rig.clock.advance(Duration::from_millis(5));
        rig.stead.create_terminal(&thread("t0"), name, None, &[]).await.unwrap();
    }
    let of = thread("t0");
    let names = all(
        2,
        |terminal: &stead_model::terminal::Terminal| terminal.name.clone(),
        async |list| rig.stead.list_terminals(Some(&of), &list).await.unwrap(),
    );
    assert_eq!(names.await, ["c", "b", "a", "default"]);
    let every = all(
        2,
        |terminal: &stead_model::terminal::Terminal| terminal.name.clone(),
        async |list| rig.stead.list_terminals(None, &list).await.unwrap(),
    );
    assert_eq!(every.await.len(), 9);
    let leases = all(
        4,
        |lease: &stead_model::lease::Lease| lease.id.to_string(),
        async |list| rig.stead.list_leases(Some(&crate::rig::name("toy")), &list).await.unwrap(),
    );
    assert_eq!(leases.await.len(), 6);
    let none = rig.stead.list_leases(Some(&crate::rig::name("local")), &List::default()).await.unwrap();
    assert_eq!(none.items.len(), 0);
}

#[tokio::test]
async fn commands_events_and_states_are_paged_in_their_order() {
    let rig = Rig::new("local").await;
    let sandbox = rig.sandbox("t").await;
    for n in 1..=5 {
        sandbox.run(execute(&format!("c{n}"), &format!("export N={n}"))).await.unwrap();
    }
    let of = thread("t");
    let commands = all(
        2,
        |command: &stead_model::command::Command| command.id.to_string(),
        async |list| rig.stead.list_commands(&of, &list).await.unwrap(),
    );
    assert_eq!(commands.await, ["c5", "c4", "c3", "c2", "c1"], "also what ended a moment ago");
    let id = sandbox.terminal();
    let states = all(
        2,
        |state: &stead_server::store::KeptState| state.version.to_string(),
        async |list| rig.stead.list_states(id, &list).await.unwrap(),
    );
    assert_eq!(states.await, ["5", "4", "3", "2", "1", "0"]);
    let lease = lease_of(&rig, "t").await.id;
    let listed = all(
        1,
        |event: &stead_server::store::LeaseEvent| event.kind.clone(),
        async |list| rig.stead.list_lease_events(&lease, &list).await.unwrap(),
    );
    assert_eq!(listed.await, kinds(&events(&rig, &lease).await), "oldest first, each once");
}

#[tokio::test]
async fn a_cursor_or_limit_that_no_list_gave_is_refused() {
    let rig = Rig::new("toy").await;
    for n in 0..3 {
        rig.stead.create_thread(new_thread(&format!("t{n}"))).await.unwrap();
    }
    let given = rig.stead.list_threads(None, &page(1, None)).await.unwrap().next_cursor.unwrap();
    let of = thread("t0");
    let (leased, terminal) = (lease_of(&rig, "t0").await.id, terminal(&rig, "t0").await.id);
    for list in [page(0, None), page(1001, None), page(1, Some("x".into())), page(1, Some(given.clone() + "A"))] {
        for answer in [
            rig.stead.list_threads(None, &list).await.map(drop),
            rig.stead.list_sessions(&list).await.map(drop),
            rig.stead.list_terminals(None, &list).await.map(drop),
            rig.stead.list_leases(None, &list).await.map(drop),
            rig.stead.list_lease_events(&leased, &list).await.map(drop),
            rig.stead.list_commands(&of, &list).await.map(drop),
            rig.stead.list_states(&terminal, &list).await.map(drop),
        ] {
            assert_eq!(answer.unwrap_err().code(), "invalid_request", "{list:?}");
        }
    }
    let strange = rig.stead.list_leases(None, &page(1, Some(given.clone()))).await.unwrap_err();
    assert_eq!(strange.code(), "invalid_request", "another list's");
    assert!(rig.stead.list_threads(None, &page(1000, Some(given))).await.is_ok());
    let nobody = thread("nobody");
    assert_eq!(rig.stead.list_commands(&nobody, &List::default()).await.unwrap_err().code(), "not_found");
    assert_eq!(rig.stead.list_terminals(Some(&nobody), &List::default()).await.unwrap_err().code(), "not_found");
    assert_eq!(rig.stead.session(&nobody).await.unwrap_err().code(), "not_found");
}

#[tokio::test]
async fn a_session_is_idle_after_a_minute_without_anybody_writing_so() {
    let rig = Rig::new("local").await;
    rig.stead.create_thread(new_thread("t")).await.unwrap();
    assert_eq!(rig.stead.session(&thread("t")).await.unwrap_err().code(), "not_found", "there never was one");
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "true").await;
    let before = session_row(&rig, &rig.stead.session(&thread("t")).await.unwrap()).await;
    let seen = async || {
        let one = rig.stead.session(&thread("t")).await.unwrap();
        let listed = rig.stead.list_sessions(&List::default()).await.unwrap().items;
        assert_eq!(listed, std::slice::from_ref(&one));
        one.status
    };
    assert_eq!(seen().await, Status::Active);
    rig.clock.advance(Duration::from_secs(70));
    assert_eq!(seen().await, Status::Idle);
    assert_eq!(session_row(&rig, &before).await, before, "looking writes nothing");
    let long = start(&sandbox, execute("long", &format!(": >begun; {}", gate("go"))));
    wait_for_file(&sandbox, "begun").await;
    rig.clock.advance(Duration::from_secs(70));
    assert_eq!(seen().await, Status::Active, "a command runs");
    open_gate(&sandbox, "go").await;
    long.await.unwrap().unwrap();
    assert_eq!(seen().await, Status::Active);
    rig.clock.advance(Duration::from_secs(70));
    assert_eq!(seen().await, Status::Idle);
}

#[tokio::test]
async fn providers_leases_and_metrics_are_looked_at_and_nothing_is_made() {
    let rig = Rig::new("local").await;
    rig.stead.create_thread(new_thread("t")).await.unwrap();
    let views = rig.stead.providers().await;
    let names: Vec<_> = views.iter().map(|view| (view.name.as_str(), view.kind, view.is_default)).collect();
    assert_eq!(names[1..3], [("local", "local", true), ("namespace", "namespace", false)], "{names:?}");
    assert!(matches!(views[1].availability, Availability::Works(_)));
    assert_eq!(rig.stead.providers().await, views);
    let view = rig.stead.lease_view(&thread("t")).await.unwrap();
    assert_eq!((view.ready.instance, view.terminals.len()), (None, 1));
    assert_eq!(rig.stead.metrics(&thread("t")).await.unwrap(), Metrics::default());
    assert_eq!(truth(&rig, "local").await, [], "nothing was made");
    let sandbox = rig.sandbox("t").await;
    out(&sandbox, "true").await;
    let metrics = rig.stead.metrics(&thread("t")).await.unwrap();
    assert!(metrics.memory_used_bytes.is_some_and(|bytes| bytes > 0), "{metrics:?}");
    assert!(rig.stead.lease_view(&thread("t")).await.unwrap().ready.instance.is_some());
}
