//! `test_e2e_providers`: its three simulations, as far as they need no HTTP.

use crate::rig::{Rig, out, run, thread};
use crate::scene::*;
use stead_model::lease::Observed;
use stead_model::lease::Seen;
use stead_model::session::Status;
use stead_server::lease::Force;
use stead_server::provider::fake::Call;

#[tokio::test]
async fn simulate_session_status_endpoints() {
    let rig = Rig::new("toy").await;
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "cd /there").await;
    let session = rig.store().await.newest_session(&thread("t")).await.unwrap().unwrap();
    assert_eq!((session.status, &session.terminal), (Status::Active, sandbox.terminal()));
    assert_eq!(
        session.expires_at(&rig.stead.present_moment()),
        session.last_active_at.after(session.policy.idle_timeout)
    );
    let state = view(&rig, "t").await;
    assert_eq!((state.cwd.as_str(), state.version), ("/there", 1));
    let lease = rig.stead.lease(&session.lease).await.unwrap();
    assert_eq!((lease.lease.provider.as_str(), lease.lease.observed), ("toy", Observed::Running));
    assert_eq!(lease.instance.unwrap().ended_at, None);
}

#[tokio::test]
async fn simulate_pause_resume_flow() {
    let rig = Rig::new("toy").await;
    assert_eq!(out(&rig.sandbox("t").await, "echo before").await, "before\n");
    rig.stead.pause(&thread("t"), Force::No).await.unwrap();
    assert_eq!(truth(&rig, "toy").await.into_iter().map(|(_, seen)| seen).collect::<Vec<_>>(), [Seen::Paused]);
    rig.stead.resume(&thread("t")).await.unwrap();
    assert_eq!(truth(&rig, "toy").await.into_iter().map(|(_, seen)| seen).collect::<Vec<_>>(), [Seen::Running]);
    assert_eq!((rig.toy.calls(Call::Pause), rig.toy.calls(Call::Resume)), (1, 1));
}

#[tokio::test]
async fn simulate_multiple_threads() {
    let rig = Rig::new("toy").await;
    let (a, b) = (rig.sandbox("a").await, rig.sandbox("b").await);
    let (one, two) = tokio::join!(out(&a, "echo a"), out(&b, "echo b"));
    assert_eq!((one.as_str(), two.as_str()), ("a\n", "b\n"));
    assert_ne!(a.session().await.unwrap().id, b.session().await.unwrap().id);
    assert_ne!(a.terminal(), b.terminal());
}
