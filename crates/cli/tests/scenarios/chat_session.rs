//! `test_chat_session`: those of its scenarios that need a runtime. The others are the store's.

use crate::rig::{Rig, out, run, thread};
use crate::scene::*;
use std::time::Duration;
use stead_model::session::{CloseReason, Policy, Status};
use stead_server::stead::NewThread;

const HOUR: Duration = Duration::from_hours(1);

async fn toy(idle: Duration, max: Duration) -> Rig {
    let rig = Rig::new("toy").await;
    let new = NewThread { policy: policy(idle, max), ..new_thread("t") };
    rig.stead.create_thread(new).await.unwrap();
    rig
}

#[tokio::test]
async fn touch_updates_activity() {
    let rig = Rig::new("toy").await;
    let sandbox = rig.sandbox("t").await;
    let before = sandbox.session().await.unwrap().last_active_at;
    rig.clock.advance(Duration::from_secs(10));
    sandbox.touch().await.unwrap();
    assert!(sandbox.session().await.unwrap().last_active_at.since(before) >= Duration::from_secs(10));
}

/// The shell's process is gone when the session is closed, once, and the terminal stays.
#[tokio::test]
async fn close_calls_runtime_close() {
    let rig = Rig::new("local").await;
    let sandbox = rig.sandbox("t").await;
    let pid: i32 = out(&sandbox, "echo $$").await.trim().parse().unwrap();
    assert!(stead_term::proc::stat(pid).is_some());
    let first = rig.stead.close_session(&thread("t"), CloseReason::Closed).await.unwrap();
    assert_eq!(first.map(|closed| closed.reason), Some(CloseReason::Closed));
    crate::rig::wait_for("the shell's end", || async { stead_term::proc::stat(pid).is_none().then_some(()) }).await;
    assert_eq!(rig.stead.close_session(&thread("t"), CloseReason::Closed).await.unwrap(), None, "there is none now");
}

#[tokio::test]
async fn get_expired_session_returns_none() {
    let rig = toy(Duration::ZERO, HOUR).await;
    let first = rig.sandbox("t").await.session().await.unwrap();
    rig.clock.advance(Duration::from_millis(100));
    let second = rig.sandbox("t").await.session().await.unwrap();
    assert_ne!(first.id, second.id);
    let row = session_row(&rig, &first).await;
    assert_eq!((row.status, row.ended.map(|(_, reason)| reason)), (Status::Closed, Some(CloseReason::IdleTimeout)));
}

#[tokio::test]
async fn cleanup_expired() {
    let rig = toy(Duration::ZERO, HOUR).await;
    rig.stead.create_thread(NewThread { policy: policy(HOUR, HOUR), ..new_thread("other") }).await.unwrap();
    let first = rig.sandbox("t").await.session().await.unwrap();
    let second = rig.sandbox("other").await.session().await.unwrap();
    rig.clock.advance(Duration::from_millis(100));
    let reaped = rig.stead.reap().await.unwrap();
    assert_eq!(reaped.closed.iter().map(|closed| &closed.session).collect::<Vec<_>>(), [&first.id], "{reaped:?}");
    assert_eq!(session_row(&rig, &first).await.status, Status::Closed);
    assert_eq!(session_row(&rig, &second).await.status, Status::Active);
}

#[tokio::test]
async fn full_lifecycle() {
    let rig = Rig::new("toy").await;
    let sandbox = rig.sandbox("t").await;
    let session = sandbox.session().await.unwrap();
    sandbox.touch().await.unwrap();
    assert_eq!(rig.sandbox("t").await.session().await.unwrap().id, session.id);
    rig.stead.close_session(&thread("t"), CloseReason::Closed).await.unwrap().unwrap();
    assert_eq!(rig.store().await.live_session(sandbox.terminal()).await.unwrap(), None);
    let row = session_row(&rig, &session).await;
    assert_eq!((row.status, row.ended.map(|(_, reason)| reason)), (Status::Closed, Some(CloseReason::Closed)));
}

/// The real limits, to the millisecond: at the limit it lives, one beyond it is over; what comes next has the same
/// terminal, lease and state.
#[tokio::test]
async fn the_default_policy_holds_to_the_millisecond() {
    for (limit, reason) in [(3600, CloseReason::IdleTimeout), (86400, CloseReason::Expired)] {
        let rig = Rig::new("toy").await;
        rig.clock.stop();
        let sandbox = rig.sandbox("t").await;
        run(&sandbox, "cd /somewhere").await;
        let session = sandbox.session().await.unwrap();
        assert_eq!(session.policy, Policy::default());
        let mut left = Duration::from_secs(limit);
        while left > Duration::from_hours(1) {
            rig.clock.advance(Duration::from_mins(30));
            left -= Duration::from_mins(30);
            sandbox.touch().await.unwrap();
        }
        rig.clock.advance(left);
        assert_eq!(rig.stead.reap().await.unwrap().closed, [], "at the limit it lives");
        assert!(session_row(&rig, &session).await.status.is_live());
        rig.clock.advance(Duration::from_millis(1));
        let closed = rig.stead.reap().await.unwrap().closed;
        assert_eq!(closed.iter().map(|one| (&one.session, one.reason)).collect::<Vec<_>>(), [(&session.id, reason)]);
        let again = rig.sandbox("t").await;
        let next = again.session().await.unwrap();
        assert_ne!(next.id, session.id);
        assert_eq!((&next.terminal, &next.lease), (&session.terminal, &session.lease));
        assert_eq!(out(&again, "pwd").await, "/somewhere\n");
    }
}
