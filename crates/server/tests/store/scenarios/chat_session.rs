//! Chat sessions.

use crate::rig::*;
use std::time::Duration;
use stead_model::session::{CloseReason, Input, Policy, Session, Status};
use stead_server::store::Page;

const SECOND: Duration = Duration::from_secs(1);

/// A session with a policy, as it comes back from the store.
async fn stored(file: &File, policy: Policy, now: u64) -> Session {
    let store = file.open().await;
    let session = Session { policy, ..session("1", "a", now) };
    store.open_session(&session).await.unwrap();
    store.session(&session.id).await.unwrap().unwrap()
}

#[tokio::test]
async fn default_policy() {
    let session = stored(&File::new(), Policy::default(), 0).await;
    assert_eq!(session.policy.idle_timeout, Duration::from_hours(1));
    assert_eq!(session.policy.max_duration, Duration::from_hours(24));
}

#[tokio::test]
async fn custom_policy() {
    let policy = Policy { idle_timeout: Duration::from_mins(30), max_duration: Duration::from_hours(12) };
    assert_eq!(stored(&File::new(), policy, 0).await.policy, policy);
}

#[tokio::test]
async fn is_expired_idle_timeout() {
    let policy = Policy { idle_timeout: SECOND, ..Policy::default() };
    let session = stored(&File::new(), policy, 10_000).await;
    assert_eq!(session.expiry(at(12_000)), Some(CloseReason::IdleTimeout));
}

#[tokio::test]
async fn is_expired_max_duration() {
    let policy = Policy { max_duration: SECOND, ..Policy::default() };
    let session = stored(&File::new(), policy, 10_000).await.apply(Input::Touch, at(12_000)).unwrap();
    assert_eq!(session.expiry(at(12_000)), Some(CloseReason::Expired));
}

#[tokio::test]
async fn not_expired() {
    let session = stored(&File::new(), Policy::default(), 10_000).await;
    assert_eq!(session.expiry(at(10_000)), None);
}

#[tokio::test]
async fn ensure_tables() {
    let file = File::new();
    file.open().await;
    file.sql(
        "SELECT id, thread_id, terminal_id, lease_id, status, idle_timeout, max_duration, started_at, last_active_at,
           ended_at, close_reason FROM sessions",
    )
    .await;
}

#[tokio::test]
async fn create_session() {
    let made = stored(&File::new(), Policy::default(), 5).await;
    assert_eq!((made.id, made.thread), (session_id("1"), thread_id("a")));
    assert_eq!((made.terminal, made.lease), (terminal_id("a"), lease_id("a")));
    assert_eq!((made.status, made.started_at), (Status::Active, at(5)));
}

#[tokio::test]
async fn get_session() {
    let file = File::new();
    let made = stored(&file, Policy::default(), 5).await;
    let store = file.open().await;
    assert_eq!(store.newest_session(&thread_id("a")).await.unwrap(), Some(made.clone()));
    assert_eq!(store.live_session(&terminal_id("a")).await.unwrap(), Some(made));
}

#[tokio::test]
async fn get_nonexistent_session() {
    let file = File::new();
    let store = file.open().await;
    assert_eq!(store.session(&session_id("no")).await.unwrap(), None);
    assert_eq!(store.newest_session(&thread_id("no")).await.unwrap(), None);
    assert_eq!(store.live_session(&terminal_id("no")).await.unwrap(), None);
}

#[tokio::test]
async fn touch_updates_db() {
    let file = File::new();
    let made = stored(&file, Policy::default(), 5).await;
    let store = file.open().await;
    store.replace_session(&made, &made.apply(Input::Touch, at(50)).unwrap()).await.unwrap();
    assert_eq!(store.session(&made.id).await.unwrap().unwrap().last_active_at, at(50));
    let last: i64 =
        sqlx::query_scalar("SELECT last_active_at FROM sessions").fetch_one(&mut file.raw().await).await.unwrap();
    assert_eq!(last, 50);
}

/// It is closed with a reason and not live any more; the row stays, as history.
#[tokio::test]
async fn delete_session() {
    let file = File::new();
    let made = stored(&file, Policy::default(), 5).await;
    let store = file.open().await;
    let closed = made.apply(Input::Close(CloseReason::Closed), at(9)).unwrap();
    store.replace_session(&made, &closed).await.unwrap();
    assert_eq!(store.live_session(&made.terminal).await.unwrap(), None);
    assert_eq!(store.live_sessions().await.unwrap(), []);
    assert_eq!(store.session(&made.id).await.unwrap().unwrap().ended, Some((at(9), CloseReason::Closed)));
}

#[tokio::test]
async fn list_all_sessions() {
    let file = File::new();
    let store = file.open().await;
    store.open_session(&session("1", "a", 1)).await.unwrap();
    store.open_session(&session("2", "b", 2)).await.unwrap();
    let ids: Vec<_> = store.sessions(&Page::all()).await.unwrap().into_iter().map(|session| session.id).collect();
    assert_eq!(ids, ["2", "1"].map(session_id));
}

#[tokio::test]
async fn session_with_custom_policy() {
    let file = File::new();
    let policy = Policy { idle_timeout: Duration::from_millis(1), max_duration: Duration::from_millis(2) };
    stored(&file, policy, 5).await;
    let row: (i64, i64) = sqlx::query_as("SELECT idle_timeout, max_duration FROM sessions")
        .fetch_one(&mut file.raw().await)
        .await
        .unwrap();
    assert_eq!(row, (1, 2));
}
