//! Sessions and the reaper.

use crate::rig::{Rig, name, out, run, thread};
use crate::scene::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stead_model::lease::{Observed, Seen};
use stead_model::session::{CloseReason, Status};
use stead_server::lease::Force;
use stead_server::provider::fake::{Call, Fake, Mischief, Shells};
use stead_server::stead::{Execute, NewThread};

const OVER: Duration = Duration::from_secs(3601);

fn reasons(sessions: &[stead_model::session::Session]) -> Vec<Option<CloseReason>> {
    sessions.iter().map(|session| session.ended.map(|(_, reason)| reason)).collect()
}

on_each_provider! {
    the_reaper_pauses_before_it_closes,
    a_running_command_defers_expiry,
    a_file_operation_counts_as_use,
    history_is_kept_with_its_reasons,
}

in_containers! {
    the_reaper_pauses_before_it_closes,
    a_running_command_defers_expiry,
}

async fn the_reaper_pauses_before_it_closes(rig: Rig, provider: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "cd /tmp; export KEPT=1").await;
    let session = sandbox.session().await.unwrap();
    rig.clock.advance(OVER);
    let reaped = rig.stead.reap().await.unwrap();
    assert_eq!(reaped.closed.iter().map(|closed| closed.reason).collect::<Vec<_>>(), [CloseReason::IdleTimeout]);
    let lease = lease_of(&rig, "t").await;
    assert_eq!(truth(&rig, provider).await, [(lease.instance.clone().unwrap(), Seen::Paused)]);
    let paused = events(&rig, &lease.id).await.into_iter().find(|event| event.kind == "instance.paused").unwrap();
    let row = session_row(&rig, &session).await;
    assert!(paused.at <= row.ended.unwrap().0, "{paused:?} {row:?}");
    assert_eq!(paused.source, "idle_reaper");
    assert_eq!(out(&sandbox, "pwd; echo $KEPT").await, "/tmp\n1\n");
    assert_eq!(lease_of(&rig, "t").await.instance, lease.instance, "the same one, woken");
}

async fn a_running_command_defers_expiry(rig: Rig, provider: &str) {
    let sandbox = rig.sandbox("t").await;
    let session = sandbox.session().await.unwrap();
    let running = start(&sandbox, Execute::new(format!(": >begun; {}; echo end", gate("go"))));
    wait_for_file(&sandbox, "begun").await;
    for days in [1, 30] {
        rig.clock.advance(Duration::from_hours(24 * days));
        let reaped = rig.stead.reap().await.unwrap();
        assert_eq!((reaped.closed.len(), reaped.kept.len()), (0, 0), "{reaped:?}");
        assert_eq!(sandbox.session().await.unwrap().id, session.id);
    }
    assert_eq!(truth(&rig, provider).await.into_iter().map(|(_, seen)| seen).collect::<Vec<_>>(), [Seen::Running]);
    open_gate(&sandbox, "go").await;
    assert_eq!(running.await.unwrap().unwrap().stdout, b"end\n");
    let reaped = rig.stead.reap().await.unwrap();
    assert_eq!(
        reaped.closed.iter().map(|one| one.reason).collect::<Vec<_>>(),
        [CloseReason::Expired],
        "now it is over"
    );
}

async fn a_file_operation_counts_as_use(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    let session = sandbox.session().await.unwrap();
    for _ in 0..3 {
        rig.clock.advance(Duration::from_mins(50));
        sandbox.files().await.unwrap().write("used", b"x".to_vec()).await.unwrap();
        assert_eq!(rig.stead.reap().await.unwrap().closed, []);
    }
    rig.clock.advance(Duration::from_mins(50));
    sandbox.files().await.unwrap().read("used").await.unwrap();
    rig.clock.advance(Duration::from_mins(50));
    assert_eq!(rig.stead.reap().await.unwrap().closed, []);
    assert!(session_row(&rig, &session).await.status.is_live());
}

async fn history_is_kept_with_its_reasons(rig: Rig, _: &str) {
    rig.stead.create_thread(new_thread("t")).await.unwrap();
    for reason in [CloseReason::Closed, CloseReason::IdleTimeout, CloseReason::Expired, CloseReason::Destroyed] {
        let sandbox = rig.sandbox("t").await;
        run(&sandbox, "true").await;
        match reason {
            CloseReason::IdleTimeout => {
                rig.clock.advance(OVER);
                rig.stead.reap().await.unwrap();
            }
            CloseReason::Expired => {
                for _ in 0..50 {
                    rig.clock.advance(Duration::from_secs(1750));
                    sandbox.touch().await.unwrap();
                }
                rig.stead.reap().await.unwrap();
            }
            CloseReason::Destroyed => drop(rig.stead.destroy(&thread("t"), Force::No).await.unwrap()),
            CloseReason::Closed | CloseReason::Superseded | CloseReason::ServerRestart | CloseReason::RuntimeLost => {
                rig.stead.close_session(&thread("t"), reason).await.unwrap().unwrap();
            }
        }
    }
    let mut all = sessions(&rig).await;
    all.reverse();
    let told = reasons(&all);
    // A touch on a session that is over opens the next.
    assert_eq!(told.first(), Some(&Some(CloseReason::Closed)));
    for reason in [CloseReason::IdleTimeout, CloseReason::Expired, CloseReason::Destroyed] {
        assert!(told.contains(&Some(reason)), "{reason:?}: {told:?}");
    }
    assert!(all.iter().all(|session| session.thread == thread("t") && session.ended.is_some()), "{all:?}");
}

/// A child that a command left behind, and which holds no terminal's attention.
#[tokio::test]
async fn a_live_background_job_defers_expiry() {
    let rig = Rig::new("local").await;
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, &format!("({}; echo done >done) >/dev/null 2>&1 &", gate("go"))).await;
    rig.clock.advance(OVER);
    let reaped = rig.stead.reap().await.unwrap();
    assert_eq!(reaped.closed, [], "it still works");
    open_gate(&sandbox, "go").await;
    assert_eq!(wait_for_file(&sandbox, "done").await, "done\n");
}

#[tokio::test]
async fn a_session_whose_instance_can_not_be_paused_now_is_kept_with_a_reason() {
    let rig = Rig::new("toy").await;
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "cd /kept").await;
    let session = sandbox.session().await.unwrap();
    rig.clock.advance(OVER);
    rig.toy.next(Call::Pause, Mischief::FailBefore);
    let reaped = rig.stead.reap().await.unwrap();
    assert_eq!(reaped.closed, []);
    assert_eq!(reaped.kept.len(), 1);
    assert_eq!(reaped.kept[0].0, session.id);
    assert!(reaped.kept[0].1.contains("pause"), "{reaped:?}");
    assert!(session_row(&rig, &session).await.status.is_live());
    let reaped = rig.stead.reap().await.unwrap();
    assert_eq!(reaped.closed.len(), 1, "the next round gets it: {reaped:?}");
    assert_eq!(lease_of(&rig, "t").await.observed, Observed::Paused);
}

/// Whichever of the two is older, and though the other's use is known only to memory.
#[tokio::test]
async fn the_reaper_does_not_pause_a_lease_that_another_live_session_uses() {
    for (first, second) in [("idle", "busy"), ("busy", "idle")] {
        let rig = Rig::new("toy").await;
        rig.sandbox(first).await;
        rig.clock.advance(Duration::from_millis(5));
        share(&rig, second, first).await;
        let (idle, busy) = (rig.sandbox("idle").await.session().await.unwrap(), rig.sandbox("busy").await);
        rig.clock.advance(Duration::from_secs(3500));
        run(&busy, "echo in use").await;
        rig.clock.advance(Duration::from_secs(200));
        let reaped = rig.stead.reap().await.unwrap();
        let closed: Vec<_> = reaped.closed.iter().map(|one| (&one.session, one.reason)).collect();
        assert_eq!(closed, [(&idle.id, CloseReason::IdleTimeout)], "{first} first: {reaped:?}");
        assert_eq!(rig.toy.calls(Call::Pause), 0, "{first} first");
        assert_eq!(lease_of(&rig, "idle").await.observed, Observed::Running);
    }
}

#[tokio::test]
async fn an_instance_that_can_not_be_paused_is_destroyed_instead() {
    let still = Fake::new(name("still"), Shells::Toy).without_pause();
    let more: Vec<Arc<dyn stead_server::provider::Provider>> = vec![Arc::new(still.clone())];
    let (rig, _) = Rig::over(tempfile::tempdir().unwrap(), "still", BTreeMap::new(), more).await;
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "cd /kept").await;
    rig.clock.advance(OVER);
    let reaped = rig.stead.reap().await.unwrap();
    assert_eq!(reaped.closed.len(), 1, "{reaped:?}");
    assert_eq!((still.calls(Call::Destroy), still.truth().len()), (1, 0));
    assert_eq!(out(&sandbox, "pwd").await, "/kept\n");
    let refused = rig.stead.pause(&thread("t"), Force::No).await.unwrap_err();
    assert_eq!(refused.code(), "unsupported");
    assert_eq!(lease_of(&rig, "t").await.observed, Observed::Running, "and it is not left half asleep");
    assert_eq!(out(&sandbox, "pwd").await, "/kept\n");
}

#[tokio::test]
async fn a_policy_of_nothing_expires_at_once_and_strictly() {
    let rig = Rig::new("toy").await;
    rig.clock.stop();
    let new = NewThread { policy: policy(Duration::ZERO, Duration::ZERO), ..new_thread("t") };
    rig.stead.create_thread(new).await.unwrap();
    let first = rig.sandbox("t").await.session().await.unwrap();
    assert_eq!(rig.stead.reap().await.unwrap().closed, [], "no time has passed");
    rig.clock.advance(Duration::from_millis(1));
    assert_eq!(rig.stead.reap().await.unwrap().closed.len(), 1);
    assert_ne!(rig.sandbox("t").await.session().await.unwrap().id, first.id);
}

/// Two servers over one store, each with a session for the same terminal: the later one counts.
#[tokio::test]
async fn there_is_one_live_session_on_a_terminal_and_the_one_before_is_superseded() {
    let rig = Rig::new("toy").await;
    let sandbox = rig.sandbox("t").await;
    let first = sandbox.session().await.unwrap();
    let store = rig.store().await;
    let id = stead_model::ids::SessionId::made_of([7; 8]);
    let second = stead_model::session::Session { id: id.clone(), ..first.clone() };
    store.open_session(&second).await.unwrap();
    assert_eq!(reasons(&[session_row(&rig, &first).await]), [Some(CloseReason::Superseded)]);
    assert_eq!(store.live_session(sandbox.terminal()).await.unwrap().unwrap().id, id);
    // The first server notices when it writes down what it knows, and goes on in the one that counts.
    rig.clock.advance(Duration::from_secs(10));
    run(&sandbox, "echo on").await;
    rig.stead.reap().await.unwrap();
    assert_eq!(count(&rig, "SELECT count(*) FROM sessions WHERE status IN ('active', 'idle', 'paused')").await, 1);
}

#[tokio::test]
async fn a_session_falls_idle_after_a_minute_and_is_active_again_with_use() {
    let rig = Rig::new("toy").await;
    let sandbox = rig.sandbox("t").await;
    let session = sandbox.session().await.unwrap();
    rig.clock.advance(Duration::from_secs(61));
    rig.stead.reap().await.unwrap();
    assert_eq!(session_row(&rig, &session).await.status, Status::Idle);
    run(&sandbox, "echo up").await;
    rig.stead.reap().await.unwrap();
    assert_eq!(session_row(&rig, &session).await.status, Status::Active);
}
