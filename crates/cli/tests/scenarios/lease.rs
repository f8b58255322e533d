//! `test_lease`: those of its scenarios in which a provider takes part. The others are the store's.

use crate::rig::{Rig, out, run, thread};
use crate::scene::*;
use std::time::Duration;
use stead_model::lease::{Desired, Observed, Seen};
use stead_server::lease::Force;
use stead_server::provider::fake::{Call, Mischief};

/// More than what was seen stays fresh.
const STALE: Duration = Duration::from_secs(4);

#[tokio::test]
async fn ensure_active_instance_creates_new() {
    let rig = Rig::new("toy").await;
    let ready = rig.sandbox("t").await.lease().await.unwrap();
    assert_eq!(rig.toy.calls(Call::Create), 1);
    assert_eq!(truth(&rig, "toy").await, [(ready.instance.unwrap().id, Seen::Running)]);
    assert_eq!(lease_row(&rig, &ready.lease.id).await.instance, ready.lease.instance);
}

#[tokio::test]
async fn ensure_active_instance_reuses_running() {
    let rig = Rig::new("toy").await;
    let first = rig.sandbox("t").await.lease().await.unwrap().lease.instance;
    rig.clock.advance(STALE);
    rig.stead.close_session(&thread("t"), stead_model::session::CloseReason::Closed).await.unwrap();
    let second = rig.sandbox("t").await.lease().await.unwrap().lease.instance;
    assert!(first.is_some());
    assert_eq!((first, rig.toy.calls(Call::Create)), (second, 1));
}

/// Somebody else paused it and woke it again; we had seen the one and not the other.
#[tokio::test]
async fn ensure_active_instance_converges_stale_paused_state() {
    let rig = Rig::new("toy").await;
    let sandbox = rig.sandbox("t").await;
    let lease = lease_of(&rig, "t").await;
    let instance = lease.instance.clone().unwrap();
    rig.toy.pause_behind_our_back(&instance, true);
    rig.clock.advance(STALE);
    rig.stead.lease(&lease.id).await.unwrap();
    assert_eq!(lease_row(&rig, &lease.id).await.observed, Observed::Paused);
    rig.toy.pause_behind_our_back(&instance, false);
    rig.clock.advance(STALE);
    assert_eq!(out(&sandbox, "echo runs").await, "runs\n");
    assert_eq!(sandbox.lease().await.unwrap().lease.observed, Observed::Running);
    assert_eq!(lease_row(&rig, &lease.id).await.observed, Observed::Running);
    assert_eq!((rig.toy.calls(Call::Resume), rig.toy.calls(Call::Create)), (0, 1));
}

#[tokio::test]
async fn ensure_active_instance_resumes_paused() {
    let rig = Rig::new("toy").await;
    let sandbox = rig.sandbox("t").await;
    let lease = lease_of(&rig, "t").await;
    rig.toy.pause_behind_our_back(lease.instance.as_ref().unwrap(), true);
    assert_eq!(out(&sandbox, "echo runs").await, "runs\n");
    assert_eq!((rig.toy.calls(Call::Resume), rig.toy.calls(Call::Create)), (1, 1));
    let after = lease_row(&rig, &lease.id).await;
    assert_eq!((after.observed, after.instance), (Observed::Running, lease.instance));
}

/// Gone is gone; but a provider that can't be asked has not said that it is gone, and two of one are worse than none.
#[tokio::test]
async fn ensure_active_instance_recreates_dead() {
    let rig = Rig::new("toy").await;
    let sandbox = rig.sandbox("t").await;
    let first = lease_of(&rig, "t").await.instance.unwrap();
    assert!(rig.toy.kill(&first));
    run(&sandbox, "echo again").await;
    let second = lease_of(&rig, "t").await.instance.unwrap();
    assert_ne!(first, second);
    assert_eq!(rig.toy.calls(Call::Create), 2);
    rig.clock.advance(STALE);
    rig.toy.next(Call::Status, Mischief::FailBefore);
    let id = lease_of(&rig, "t").await.id;
    assert_eq!(rig.stead.lease(&id).await.unwrap_err().code(), "provider_error");
    assert_eq!(rig.toy.calls(Call::Create), 2, "not replaced on a rumour");
    assert_eq!(truth(&rig, "toy").await, [(second, Seen::Running)]);
}

#[tokio::test]
async fn destroy_instance() {
    let rig = Rig::new("toy").await;
    rig.sandbox("t").await;
    let lease = rig.stead.destroy(&thread("t"), Force::No).await.unwrap();
    assert_eq!((lease.lease.instance, lease.lease.desired), (None, Desired::Destroyed));
    assert_eq!((rig.toy.calls(Call::Destroy), truth(&rig, "toy").await), (1, Vec::new()));
}

#[tokio::test]
async fn pause_instance() {
    let rig = Rig::new("toy").await;
    rig.sandbox("t").await;
    let lease = rig.stead.pause(&thread("t"), Force::No).await.unwrap().lease;
    assert_eq!((lease.observed, rig.toy.calls(Call::Pause)), (Observed::Paused, 1));
    assert_eq!(truth(&rig, "toy").await, [(lease.instance.clone().unwrap(), Seen::Paused)]);
    assert_eq!(lease_row(&rig, &lease.id).await, lease);
}

#[tokio::test]
async fn resume_instance() {
    let rig = Rig::new("toy").await;
    rig.sandbox("t").await;
    rig.stead.pause(&thread("t"), Force::No).await.unwrap();
    let lease = rig.stead.resume(&thread("t")).await.unwrap().lease;
    assert_eq!((lease.observed, rig.toy.calls(Call::Resume)), (Observed::Running, 1));
    assert_eq!(truth(&rig, "toy").await, [(lease.instance.clone().unwrap(), Seen::Running)]);
    assert_eq!(lease_row(&rig, &lease.id).await, lease);
}

#[tokio::test]
async fn full_lifecycle() {
    let rig = Rig::new("toy").await;
    rig.stead.create_thread(new_thread("t")).await.unwrap();
    let lease = lease_of(&rig, "t").await;
    assert_eq!((lease.observed, &lease.instance, lease.version), (Observed::None, &None, 0));
    rig.sandbox("t").await;
    rig.stead.pause(&thread("t"), Force::No).await.unwrap();
    rig.stead.resume(&thread("t")).await.unwrap();
    rig.stead.destroy(&thread("t"), Force::No).await.unwrap();
    let expected = [
        "instance.creating",
        "instance.created",
        "intent.pause",
        "instance.paused",
        "intent.ensure_running",
        "instance.resumed",
        "intent.destroy",
        "instance.destroyed",
    ];
    let log = events(&rig, &lease.id).await;
    assert_eq!(kinds(&log), expected);
    assert!(log.iter().map(|event| event.version).eq(1..=8), "without holes: {log:?}");
    rig.stead.delete_thread(&thread("t")).await.unwrap();
    assert_eq!(rig.store().await.lease(&lease.id).await.unwrap(), None);
    assert_eq!(count(&rig, "SELECT count(*) FROM lease_events").await, 0);
    assert_eq!(count(&rig, "SELECT count(*) FROM instances").await, 0);
}
