//! Leases.

use crate::rig::*;
use sqlx::Row;
use stead_model::lease::{Input, Lease, Observed};
use stead_model::thread::Instance;
use stead_server::store::{InstanceChange, Page, Store};

/// A lease with a running instance.
async fn running(store: &dyn Store, name: &str) -> Lease {
    let fresh = lease(name, 1);
    store.put_lease(&fresh).await.unwrap();
    let begin = Input::Begin(instance_id(name));
    let creating = fresh.apply(&begin, at(2)).unwrap();
    let started = InstanceChange::Started(Box::new(instance(name, name, 2)));
    let first = event(&format!("{name}-1"), &creating, &begin);
    store.replace_lease(&fresh, &creating, &first, &started).await.unwrap();
    let created = Input::Created(Vec::new());
    let up = creating.apply(&created, at(3)).unwrap();
    let known = Instance { reference: "ref".into(), last_seen_at: at(3), ..instance(name, name, 2) };
    let second = event(&format!("{name}-2"), &up, &created);
    store.replace_lease(&creating, &up, &second, &InstanceChange::Known(Box::new(known))).await.unwrap();
    up
}

#[tokio::test]
async fn create_instance() {
    let file = File::new();
    let store = file.open().await;
    running(&*store, "a").await;
    let made = store.instance(&instance_id("a")).await.unwrap().unwrap();
    assert_eq!((made.id, made.provider), (instance_id("a"), provider("local")));
    assert_eq!((made.started_at, made.ended_at, made.reference.as_str()), (at(2), None, "ref"));
}

#[tokio::test]
async fn ensure_tables() {
    let file = File::new();
    file.open().await;
    file.sql("SELECT id, provider, instance_id, observed, created_at, updated_at FROM leases").await;
    file.sql("SELECT id, lease_id, reference, started_at, last_seen_at FROM instances").await;
    file.sql("SELECT id, lease_id, version, kind, source, payload, error, at FROM lease_events").await;
}

#[tokio::test]
async fn create_lease() {
    let file = File::new();
    let store = file.open().await;
    let made = lease("a", 1);
    store.put_lease(&made).await.unwrap();
    let stored = store.lease(&made.id).await.unwrap().unwrap();
    assert_eq!((stored.instance, stored.observed, stored.provider), (None, Observed::None, provider("local")));
}

#[tokio::test]
async fn get_lease() {
    let file = File::new();
    let store = file.open().await;
    let made = lease("a", 1);
    store.put_lease(&made).await.unwrap();
    assert_eq!(store.lease(&made.id).await.unwrap(), Some(made));
}

#[tokio::test]
async fn get_nonexistent_lease() {
    let file = File::new();
    assert_eq!(file.open().await.lease(&lease_id("no")).await.unwrap(), None);
}

#[tokio::test]
async fn delete_lease() {
    let file = File::new();
    let store = file.open().await;
    store.put_lease(&lease("a", 1)).await.unwrap();
    store.delete_lease(&lease_id("a")).await.unwrap();
    assert_eq!(store.lease(&lease_id("a")).await.unwrap(), None);
}

#[tokio::test]
async fn list_all_leases() {
    let file = File::new();
    let store = file.open().await;
    for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
        store.put_lease(&lease(name, n as u64)).await.unwrap();
    }
    let ids: Vec<_> = store.leases(None, &Page::all()).await.unwrap().into_iter().map(|lease| lease.id).collect();
    assert_eq!(ids, ["c", "b", "a"].map(lease_id));
}

#[tokio::test]
async fn list_by_provider() {
    let file = File::new();
    let store = file.open().await;
    for (name, of) in [("a", "e2b"), ("b", "docker"), ("c", "e2b")] {
        store.put_lease(&Lease { provider: provider(of), ..lease(name, 1) }).await.unwrap();
    }
    let of_e2b = store.leases(Some(&provider("e2b")), &Page::all()).await.unwrap();
    assert_eq!(of_e2b.into_iter().map(|lease| lease.id).collect::<Vec<_>>(), ["c", "a"].map(lease_id));
}

#[tokio::test]
async fn instance_persists_to_db() {
    let file = File::new();
    let store = file.open().await;
    running(&*store, "a").await;
    let mut raw = file.raw().await;
    let row = sqlx::query("SELECT instance_id, observed FROM leases").fetch_one(&mut raw).await.unwrap();
    assert_eq!((row.get("instance_id"), row.get("observed")), ("inst-a", "running"));
    let row = sqlx::query("SELECT id, lease_id, reference FROM instances").fetch_one(&mut raw).await.unwrap();
    assert_eq!((row.get("id"), row.get("lease_id"), row.get("reference")), ("inst-a", "lease-a", "ref"));
}

#[tokio::test]
async fn instance_persists_across_retrieval() {
    let file = File::new();
    let made = running(&*file.open().await, "a").await;
    let again = file.open().await.lease(&made.id).await.unwrap().unwrap();
    assert_eq!((again.instance.as_ref(), again.observed), (Some(&instance_id("a")), Observed::Running));
    assert_eq!(again, made);
}

#[tokio::test]
async fn multiple_leases_different_providers() {
    let file = File::new();
    let store = file.open().await;
    for (name, of) in [("a", "e2b"), ("b", "docker")] {
        store.put_lease(&Lease { provider: provider(of), ..lease(name, 1) }).await.unwrap();
    }
    for (name, of) in [("a", "e2b"), ("b", "docker")] {
        assert_eq!(store.lease(&lease_id(name)).await.unwrap().unwrap().provider, provider(of));
    }
}
