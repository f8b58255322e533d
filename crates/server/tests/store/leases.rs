//! Leases, their events and their instances, which change together or not at all.

use crate::rig::*;
use stead_model::ids::EventId;
use stead_model::lease::{Caveat, Desired, Input, Lease, Observed, Seen};
use stead_model::thread::Instance;
use stead_server::store::{InstanceChange, LeaseEvent, Page, Store};

on_every_store![
    every_field_of_a_lease_comes_back,
    a_taken_lease_id_is_refused,
    a_lease_its_event_and_its_instance_change_together,
    a_repeated_event_rolls_back_lease_event_and_instance,
    an_instance_that_can_not_be_written_rolls_back_lease_and_event,
    a_swap_needs_the_version_that_is_there,
    a_swap_of_what_is_gone_is_not_found,
    a_lease_has_one_live_instance,
    an_instance_is_known_seen_and_ended,
    a_change_of_an_instance_that_is_not_there_is_not_found,
    events_are_read_oldest_first_from_a_version_on,
    a_lease_in_use_is_not_deleted,
    deleting_a_lease_takes_events_and_instances,
    leases_are_newest_first_and_of_their_provider,
];

async fn every_field_of_a_lease_comes_back(store: Shared) {
    for (n, (desired, observed)) in Desired::ALL.into_iter().flat_map(|d| Observed::ALL.map(|o| (d, o))).enumerate() {
        let whole = Lease {
            desired,
            observed,
            observed_at: (n % 2 == 0).then_some(at(n as u64)),
            instance: (n % 3 == 0).then(|| instance_id("x")),
            needs_refresh: n % 2 == 1,
            last_error: (n % 2 == 1).then(|| "it \"said\"\nno: ä".into()),
            caveats: vec![Caveat { code: "c".into(), message: "\"m\" \\ ä\n".into() }; n % 3],
            version: n as u64,
            updated_at: at(500 + n as u64),
            ..lease(&format!("{n}"), n as u64)
        };
        store.put_lease(&whole).await.unwrap();
        assert_eq!(store.lease(&whole.id).await.unwrap(), Some(whole));
    }
}

async fn a_taken_lease_id_is_refused(store: Shared) {
    let first = lease("a", 1);
    store.put_lease(&first).await.unwrap();
    assert_refused!(store.put_lease(&lease("a", 2)).await, AlreadyExists, "lease", "lease-a");
    assert_eq!(store.lease(&first.id).await.unwrap(), Some(first));
}

/// One step of a lease: what it is then, and the event.
fn step(before: &Lease, input: &Input, id: &str, now: u64) -> (Lease, LeaseEvent) {
    let after = before.apply(input, at(now)).unwrap();
    let event = event(id, &after, input);
    (after, event)
}

/// A lease whose instance is being made.
async fn creating(store: &dyn Store, name: &str) -> Lease {
    let fresh = lease(name, 1);
    store.put_lease(&fresh).await.unwrap();
    let (after, event) = step(&fresh, &Input::Begin(instance_id(name)), &format!("begin-{name}"), 2);
    let started = InstanceChange::Started(Box::new(instance(name, name, 2)));
    store.replace_lease(&fresh, &after, &event, &started).await.unwrap();
    after
}

async fn a_lease_its_event_and_its_instance_change_together(store: Shared) {
    let fresh = lease("a", 1);
    store.put_lease(&fresh).await.unwrap();
    let (after, event) = step(&fresh, &Input::Begin(instance_id("1")), "1", 2);
    let event = LeaseEvent { payload: "{\"k\":[1]}".into(), error: Some("e".into()), ..event };
    let started =
        Instance { metadata: vec![("k".into(), "v".into()), ("k".into(), "w".into())], ..instance("1", "a", 2) };
    let change = InstanceChange::Started(Box::new(started.clone()));
    store.replace_lease(&fresh, &after, &event, &change).await.unwrap();
    assert_eq!(store.lease(&fresh.id).await.unwrap(), Some(after.clone()));
    assert_eq!(store.lease_events(&fresh.id, 0, 10).await.unwrap(), [event]);
    assert_eq!(store.instance(&started.id).await.unwrap(), Some(started.clone()));
    assert_eq!(store.lease_of_instance(&started.id).await.unwrap(), Some(after));
    assert_eq!(store.lease_of_instance(&instance_id("no")).await.unwrap(), None);
    assert_eq!(store.live_instances().await.unwrap(), [started]);
}

async fn a_repeated_event_rolls_back_lease_event_and_instance(store: Shared) {
    let a = creating(&*store, "a").await;
    let fresh = lease("b", 1);
    store.put_lease(&fresh).await.unwrap();
    // The id of an event of another lease.
    let (after, event) = step(&fresh, &Input::Begin(instance_id("b")), "begin-a", 3);
    let started = InstanceChange::Started(Box::new(instance("b", "b", 3)));
    let refused = store.replace_lease(&fresh, &after, &event, &started).await;
    assert_refused!(refused, AlreadyExists, "event", "evt-begin-a");
    assert_eq!(store.lease(&fresh.id).await.unwrap(), Some(fresh.clone()));
    assert_eq!(store.lease_events(&fresh.id, 0, 10).await.unwrap(), []);
    assert_eq!(store.instance(&instance_id("b")).await.unwrap(), None);
    assert_eq!(store.lease(&a.id).await.unwrap(), Some(a), "the other lease has not noticed");
}

async fn an_instance_that_can_not_be_written_rolls_back_lease_and_event(store: Shared) {
    let a = creating(&*store, "a").await;
    let fresh = lease("b", 1);
    store.put_lease(&fresh).await.unwrap();
    let (after, event) = step(&fresh, &Input::Begin(instance_id("a")), "2", 3);
    let taken = InstanceChange::Started(Box::new(instance("a", "b", 3)));
    let refused = store.replace_lease(&fresh, &after, &event, &taken).await;
    assert_refused!(refused, AlreadyExists, "instance", "inst-a");
    assert_eq!(store.lease(&fresh.id).await.unwrap(), Some(fresh.clone()));
    assert_eq!(store.lease_events(&fresh.id, 0, 10).await.unwrap(), []);
    assert_eq!(store.instance(&instance_id("a")).await.unwrap().unwrap().lease, a.id);
}

async fn a_swap_needs_the_version_that_is_there(store: Shared) {
    let before = creating(&*store, "a").await;
    let (after, won) = step(&before, &Input::Created(Vec::new()), "won", 3);
    let (_, lost) = step(&before, &Input::Saw(Seen::Gone), "lost", 3);
    store.replace_lease(&before, &after, &won, &InstanceChange::Nothing).await.unwrap();
    let ended = InstanceChange::Ended(instance_id("a"));
    assert_refused!(store.replace_lease(&before, &after, &lost, &ended).await, Conflict, "lease", "lease-a");
    assert_eq!(store.lease(&before.id).await.unwrap(), Some(after));
    assert_eq!(store.lease_events(&before.id, 1, 10).await.unwrap(), [won]);
    assert_eq!(store.live_instances().await.unwrap().len(), 1);
}

async fn a_swap_of_what_is_gone_is_not_found(store: Shared) {
    let before = creating(&*store, "a").await;
    store.delete_lease(&before.id).await.unwrap();
    let (after, event) = step(&before, &Input::WantPaused, "2", 3);
    let refused = store.replace_lease(&before, &after, &event, &InstanceChange::Nothing).await;
    assert_refused!(refused, NotFound, "lease", "lease-a");
}

async fn a_lease_has_one_live_instance(store: Shared) {
    let before = creating(&*store, "a").await;
    let (gone, event) = step(&before, &Input::Saw(Seen::Gone), "2", 3);
    store.replace_lease(&before, &gone, &event, &InstanceChange::Nothing).await.unwrap();
    let (again, event) = step(&gone, &Input::Begin(instance_id("new")), "3", 4);
    let started = InstanceChange::Started(Box::new(instance("new", "a", 4)));
    let refused = store.replace_lease(&gone, &again, &event, &started).await;
    assert_refused!(refused, AlreadyExists, "instance", "inst-a");

    let (ended, event) = step(&gone, &Input::Saw(Seen::Gone), "4", 5);
    store.replace_lease(&gone, &ended, &event, &InstanceChange::Ended(instance_id("a"))).await.unwrap();
    let (again, event) = step(&ended, &Input::Begin(instance_id("new")), "5", 6);
    store.replace_lease(&ended, &again, &event, &started).await.unwrap();
    assert_eq!(store.live_instances().await.unwrap(), [instance("new", "a", 4)]);
    assert_eq!(store.lease_of_instance(&instance_id("a")).await.unwrap(), Some(again), "of one that has ended too");
}

async fn an_instance_is_known_seen_and_ended(store: Shared) {
    let zero = creating(&*store, "a").await;
    let known = Instance {
        reference: "container 1".into(),
        metadata: vec![("image".into(), "debian".into())],
        last_seen_at: at(10),
        ..instance("a", "a", 2)
    };
    let (one, event) = step(&zero, &Input::Created(Vec::new()), "2", 10);
    store.replace_lease(&zero, &one, &event, &InstanceChange::Known(Box::new(known.clone()))).await.unwrap();
    assert_eq!(store.instance(&known.id).await.unwrap(), Some(known.clone()));

    let mut lease = one;
    for (n, (now, seen)) in [(20, 20), (15, 20)].into_iter().enumerate() {
        let (after, event) = step(&lease, &Input::Saw(Seen::Running), &format!("seen-{n}"), now);
        store.replace_lease(&lease, &after, &event, &InstanceChange::Seen(known.id.clone())).await.unwrap();
        lease = after;
        let expected = Instance { last_seen_at: at(seen), ..known.clone() };
        assert_eq!(store.instance(&known.id).await.unwrap(), Some(expected), "seen at {now}");
    }
    for (n, now) in [30, 40].into_iter().enumerate() {
        let (after, event) = step(&lease, &Input::Saw(Seen::Gone), &format!("gone-{n}"), now);
        store.replace_lease(&lease, &after, &event, &InstanceChange::Ended(known.id.clone())).await.unwrap();
        lease = after;
        let ended = Instance { last_seen_at: at(20), ended_at: Some(at(30)), ..known.clone() };
        assert_eq!(store.instance(&known.id).await.unwrap(), Some(ended), "it ends once");
    }
    assert_eq!(store.live_instances().await.unwrap(), []);
}

async fn a_change_of_an_instance_that_is_not_there_is_not_found(store: Shared) {
    let before = creating(&*store, "a").await;
    creating(&*store, "b").await;
    // The second is there, but another's.
    for id in ["no", "b"] {
        let (after, event) = step(&before, &Input::WantPaused, "2", 3);
        let known = InstanceChange::Known(Box::new(instance(id, "a", 3)));
        for change in [InstanceChange::Seen(instance_id(id)), InstanceChange::Ended(instance_id(id)), known] {
            let refused = store.replace_lease(&before, &after, &event, &change).await;
            assert_refused!(refused, NotFound, "instance", format!("inst-{id}"));
        }
    }
    assert_eq!(store.lease(&before.id).await.unwrap(), Some(before));
}

async fn events_are_read_oldest_first_from_a_version_on(store: Shared) {
    let mut now = lease("a", 1);
    store.put_lease(&now).await.unwrap();
    let mut events = Vec::new();
    for n in 1..=9 {
        // Neither ids nor moments are in order: versions are.
        let (after, event) = step(&now, &Input::WantPaused, &format!("{}", 100 - n), 100 - n);
        store.replace_lease(&now, &after, &event, &InstanceChange::Nothing).await.unwrap();
        events.push(event);
        now = after;
    }
    assert_eq!(store.lease_events(&now.id, 0, 100).await.unwrap(), events);
    assert_eq!(store.lease_events(&now.id, 0, 4).await.unwrap(), events[..4]);
    assert_eq!(store.lease_events(&now.id, 4, 4).await.unwrap(), events[4..8]);
    assert_eq!(store.lease_events(&now.id, 9, 4).await.unwrap(), []);
    assert_eq!(store.lease_events(&lease_id("no"), 0, 4).await.unwrap(), []);
}

async fn a_lease_in_use_is_not_deleted(store: Shared) {
    let (thread, terminal, lease) = make_thread(&*store, "a", 1).await;
    assert_refused!(store.delete_lease(&lease.id).await, Conflict, "lease", "lease-a");
    assert_eq!(store.lease(&lease.id).await.unwrap(), Some(lease.clone()));
    assert_eq!(store.terminal(&terminal.id).await.unwrap(), Some(terminal));
    store.delete_thread(&thread.id).await.unwrap();
    store.delete_lease(&lease.id).await.unwrap();
    assert_eq!(store.lease(&lease.id).await.unwrap(), None);
    store.delete_lease(&lease.id).await.unwrap();
}

async fn deleting_a_lease_takes_events_and_instances(store: Shared) {
    let lease = creating(&*store, "a").await;
    creating(&*store, "b").await;
    store.delete_lease(&lease.id).await.unwrap();
    assert_eq!(store.lease_events(&lease.id, 0, 10).await.unwrap(), []);
    assert_eq!(store.instance(&instance_id("a")).await.unwrap(), None);
    assert_eq!(store.live_instances().await.unwrap(), [instance("b", "b", 2)]);
    // The id of its event is free again.
    let fresh = self::lease("c", 1);
    store.put_lease(&fresh).await.unwrap();
    let (after, event) = step(&fresh, &Input::WantPaused, "begin-a", 3);
    assert_eq!(event.id, EventId::parse("evt-begin-a").unwrap());
    store.replace_lease(&fresh, &after, &event, &InstanceChange::Nothing).await.unwrap();
}

async fn leases_are_newest_first_and_of_their_provider(store: Shared) {
    for (name, of, now) in [("a", "docker", 5), ("b", "local", 9), ("c", "docker", 7), ("d", "docker", 7)] {
        store.put_lease(&Lease { provider: provider(of), ..lease(name, now) }).await.unwrap();
    }
    let ids = |leases: Vec<Lease>| leases.into_iter().map(|lease| lease.id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(store.leases(None, &Page::all()).await.unwrap()), ["lease-b", "lease-d", "lease-c", "lease-a"]);
    let docker = provider("docker");
    assert_eq!(ids(store.leases(Some(&docker), &first(2)).await.unwrap()), ["lease-d", "lease-c"]);
    let rest = Page { limit: 2, after: Some((at(7), "lease-c".into())) };
    assert_eq!(ids(store.leases(Some(&docker), &rest).await.unwrap()), ["lease-a"]);
    assert_eq!(ids(store.leases(Some(&provider("no")), &Page::all()).await.unwrap()), [""; 0]);
}
