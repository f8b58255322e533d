//! What is wanted of an instance, what is seen of it, and a provider that breaks its word.

use crate::rig::{Rig, out, run, thread, wait_for};
use crate::scene::*;
use std::time::Duration;
use stead_model::lease::{Desired, Observed, Seen};
use stead_model::session::CloseReason;
use stead_server::lease::Force;
use stead_server::provider::Trouble;
use stead_server::provider::fake::{Call, Mischief};
use stead_server::stead::Where;

const STALE: Duration = Duration::from_secs(4);

on_each_provider! {
    who_may_not_wake_a_paused_lease_is_told_that_it_is_paused,
    waking_is_logged_as_auto_resume,
    pausing_resuming_and_destroying_twice_is_as_once,
}

in_containers! {
    who_may_not_wake_a_paused_lease_is_told_that_it_is_paused,
    waking_is_logged_as_auto_resume,
    pausing_resuming_and_destroying_twice_is_as_once,
}

async fn who_may_not_wake_a_paused_lease_is_told_that_it_is_paused(rig: Rig, provider: &str) {
    rig.sandbox("t").await;
    rig.stead.pause(&thread("t"), Force::No).await.unwrap();
    let refused = rig.stead.get_sandbox(awake_only("t")).await.unwrap_err();
    assert_eq!(refused.code(), "paused", "{refused}");
    assert_eq!(truth(&rig, provider).await.into_iter().map(|(_, seen)| seen).collect::<Vec<_>>(), [Seen::Paused]);
    rig.stead.resume(&thread("t")).await.unwrap();
    assert_eq!(out(&rig.stead.get_sandbox(awake_only("t")).await.unwrap(), "echo awake").await, "awake\n");
}

/// Whether it was paused by somebody or by the reaper, and whether a session waits for it or not.
async fn waking_is_logged_as_auto_resume(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    let id = lease_of(&rig, "t").await.id;
    for by_reaper in [false, true] {
        if by_reaper {
            rig.clock.advance(Duration::from_secs(3700));
            assert_eq!(rig.stead.reap().await.unwrap().closed.len(), 1);
        } else {
            rig.stead.pause(&thread("t"), Force::No).await.unwrap();
        }
        assert_eq!(lease_row(&rig, &id).await.observed, Observed::Paused);
        let before = events(&rig, &id).await.len();
        run(&sandbox, "echo awake").await;
        let log = events(&rig, &id).await.split_off(before);
        let told: Vec<_> = log.iter().map(|event| (event.kind.as_str(), event.source.as_str())).collect();
        let expected = [("intent.ensure_running", "auto_resume"), ("instance.resumed", "auto_resume")];
        assert_eq!(told, expected, "by_reaper: {by_reaper}");
    }
}

async fn pausing_resuming_and_destroying_twice_is_as_once(rig: Rig, provider: &str) {
    rig.sandbox("t").await;
    let id = lease_of(&rig, "t").await.id;
    for _ in 0..2 {
        assert_eq!(rig.stead.pause(&thread("t"), Force::No).await.unwrap().lease.observed, Observed::Paused);
    }
    for _ in 0..2 {
        assert_eq!(rig.stead.resume(&thread("t")).await.unwrap().lease.observed, Observed::Running);
    }
    for _ in 0..2 {
        assert_eq!(rig.stead.destroy(&thread("t"), Force::No).await.unwrap().lease.observed, Observed::None);
    }
    assert_eq!(truth(&rig, provider).await, []);
    let log = events(&rig, &id).await;
    let of = |kind: &str| log.iter().filter(|event| event.kind == kind).count();
    assert_eq!((of("instance.paused"), of("instance.resumed"), of("instance.destroyed")), (1, 1, 1), "{log:?}");
    assert_eq!(rig.stead.pause(&thread("t"), Force::No).await.unwrap().lease.instance, None, "nothing to pause");
    assert_eq!(rig.stead.resume(&thread("t")).await.unwrap().lease.instance, None, "nothing to wake");
}

#[tokio::test]
async fn what_was_seen_is_believed_for_three_seconds() {
    let rig = Rig::new("toy").await;
    rig.clock.stop();
    rig.sandbox("t").await;
    let id = lease_of(&rig, "t").await.id;
    let looked = rig.toy.calls(Call::Status);
    for _ in 0..5 {
        rig.stead.lease(&id).await.unwrap();
    }
    rig.clock.advance(Duration::from_secs(3));
    rig.stead.lease(&id).await.unwrap();
    assert_eq!(rig.toy.calls(Call::Status), looked, "at three seconds it is fresh");
    rig.clock.advance(Duration::from_millis(1));
    rig.stead.lease(&id).await.unwrap();
    rig.stead.lease(&id).await.unwrap();
    assert_eq!(rig.toy.calls(Call::Status), looked + 1, "a millisecond beyond it is looked at, once");
}

#[tokio::test]
async fn looking_wakes_nothing_and_makes_nothing() {
    let rig = Rig::new("toy").await;
    rig.stead.create_thread(new_thread("t")).await.unwrap();
    let id = lease_of(&rig, "t").await.id;
    assert_eq!(rig.stead.lease(&id).await.unwrap().lease.observed, Observed::None);
    rig.sandbox("t").await;
    rig.stead.pause(&thread("t"), Force::No).await.unwrap();
    rig.clock.advance(STALE);
    assert_eq!(rig.stead.lease(&id).await.unwrap().lease.observed, Observed::Paused);
    assert_eq!((rig.toy.calls(Call::Create), rig.toy.calls(Call::Resume)), (1, 0));
}

#[tokio::test]
async fn a_provider_that_fails_is_written_down_and_raised() {
    let rig = Rig::new("toy").await;
    rig.sandbox("t").await;
    let id = lease_of(&rig, "t").await.id;
    rig.clock.advance(STALE);
    rig.toy.next(Call::Status, Mischief::FailBefore);
    let raised = rig.stead.lease(&id).await.unwrap_err();
    assert_eq!(raised.code(), "provider_error");
    let lease = lease_row(&rig, &id).await;
    assert_eq!((lease.needs_refresh, lease.last_error.as_deref()), (true, Some(raised.to_string().as_str())));
    let last = events(&rig, &id).await.pop().unwrap();
    assert_eq!((last.kind.as_str(), last.error), ("provider.error", Some(raised.to_string())));
    let lease = rig.stead.lease(&id).await.unwrap().lease;
    assert_eq!((lease.needs_refresh, lease.last_error), (false, None), "seen again, and well");
    assert_eq!(lease_row(&rig, &id).await.last_error, None);
}

/// Each call, failing before and after it did what was asked.
#[tokio::test]
async fn a_call_that_throws_after_success_converges_and_one_that_did_nothing_is_raised() {
    for (call, mischief) in [
        (Call::Create, Mischief::FailAfter),
        (Call::Create, Mischief::FailBefore),
        (Call::Pause, Mischief::FailAfter),
        (Call::Pause, Mischief::FailBefore),
        (Call::Resume, Mischief::FailAfter),
        (Call::Resume, Mischief::FailBefore),
        (Call::Destroy, Mischief::FailAfter),
        (Call::Destroy, Mischief::FailBefore),
    ] {
        let case = format!("{call:?} {mischief:?}");
        let rig = Rig::new("toy").await;
        let at = thread("t");
        rig.stead.create_thread(new_thread("t")).await.unwrap();
        if call != Call::Create {
            rig.sandbox("t").await;
        }
        if call == Call::Resume {
            rig.stead.pause(&at, Force::No).await.unwrap();
        }
        rig.toy.next(call, mischief.clone());
        let outcome = match call {
            Call::Pause => rig.stead.pause(&at, Force::No).await.map(drop),
            Call::Resume => rig.stead.resume(&at).await.map(drop),
            Call::Destroy => rig.stead.destroy(&at, Force::No).await.map(drop),
            Call::Create | Call::Status | Call::Access | Call::Run | Call::Capture => {
                rig.stead.get_sandbox(Where::thread(at.clone())).await.map(drop)
            }
        };
        let lease = lease_of(&rig, "t").await;
        let log = events(&rig, &lease.id).await;
        assert!(log.iter().any(|event| event.kind == "provider.error" && event.error.is_some()), "{case}: {log:?}");
        let really: Vec<_> = truth(&rig, "toy").await.into_iter().map(|(_, seen)| seen).collect();
        let seen: Vec<_> = match lease.observed {
            Observed::Running => vec![Seen::Running],
            Observed::Paused => vec![Seen::Paused],
            Observed::None | Observed::Stopped => Vec::new(),
            Observed::Creating | Observed::Unknown => vec![Seen::Unclear],
        };
        assert_eq!(seen, really, "{case}: what is known is what is");
        if mischief == Mischief::FailAfter {
            outcome.unwrap_or_else(|error| panic!("{case}: {error}"));
        } else {
            assert_eq!(outcome.unwrap_err().code(), "provider_error", "{case}");
        }
        // Whatever happened, it can be used again, or ended.
        assert_eq!(out(&rig.sandbox("t").await, "echo on").await, "on\n", "{case}");
        rig.stead.destroy(&at, Force::No).await.unwrap();
        assert_eq!(truth(&rig, "toy").await, [], "{case}: nothing is left over");
    }
}

#[tokio::test]
async fn an_instance_said_to_run_that_is_gone_is_replaced_when_it_can_not_be_reached() {
    let rig = Rig::new("toy").await;
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "cd /kept").await;
    let dead = lease_of(&rig, "t").await.instance.unwrap();
    rig.toy.kill(&dead);
    rig.clock.advance(STALE);
    rig.toy.next(Call::Status, Mischief::Say(Seen::Running));
    assert_eq!(out(&sandbox, "pwd").await, "/kept\n");
    let lease = lease_of(&rig, "t").await;
    assert_ne!(lease.instance, Some(dead));
    assert_eq!(truth(&rig, "toy").await, [(lease.instance.unwrap(), Seen::Running)]);
}

#[tokio::test]
async fn a_provider_that_never_answers_is_given_up_on_and_the_lease_is_not_stuck() {
    let rig = Rig::new("toy").await;
    rig.toy.next(Call::Create, Mischief::Hang);
    let stead = rig.stead.clone();
    let asking = tokio::spawn(async move { stead.get_sandbox(Where::thread(thread("t"))).await.map(drop) });
    wait_for("the call", || async { (rig.toy.calls(Call::Create) == 1).then_some(()) }).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(119)).await;
    assert!(!asking.is_finished(), "it is given two minutes");
    tokio::time::advance(Duration::from_secs(2)).await;
    tokio::time::resume();
    let raised = asking.await.unwrap().unwrap_err();
    assert_eq!(raised.code(), "provider_timeout", "{raised}");
    let log = events(&rig, &lease_of(&rig, "t").await.id).await;
    assert!(log.iter().any(|event| event.error.is_some()), "{log:?}");
    assert_eq!(out(&rig.sandbox("t").await, "echo on").await, "on\n");
}

#[tokio::test]
async fn a_refused_creation_leaves_no_instance() {
    let rig = Rig::new("toy").await;
    let refusals =
        [(Trouble::Exhausted, "limit_reached"), (Trouble::NoSpace, "no_space"), (Trouble::Denied, "provider_error")];
    for (trouble, code) in refusals {
        rig.toy.next(Call::Create, Mischief::Refuse(trouble));
        let raised = rig.stead.get_sandbox(Where::thread(thread("t"))).await.unwrap_err();
        assert_eq!(raised.code(), code);
        let lease = lease_of(&rig, "t").await;
        assert_eq!((lease.observed, &lease.instance), (Observed::None, &None));
        assert_eq!(lease.last_error.as_deref(), Some(raised.to_string().as_str()));
        assert_eq!(truth(&rig, "toy").await, []);
        assert_eq!(rig.store().await.live_instances().await.unwrap(), []);
    }
    assert_eq!(out(&rig.sandbox("t").await, "echo on").await, "on\n");
}

#[tokio::test]
async fn a_shared_lease_is_neither_paused_nor_destroyed_under_another_live_session_unless_forced() {
    let rig = Rig::new("toy").await;
    rig.sandbox("a").await;
    let b = share(&rig, "b", "a").await;
    for refused in [rig.stead.pause(&thread("a"), Force::No).await, rig.stead.destroy(&thread("a"), Force::No).await] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), "conflict");
        assert!(refused.to_string().contains('b'), "it says whose: {refused}");
    }
    assert_eq!(truth(&rig, "toy").await.into_iter().map(|(_, seen)| seen).collect::<Vec<_>>(), [Seen::Running]);
    assert_eq!(out(&b, "echo undisturbed").await, "undisturbed\n");
    assert_eq!(rig.stead.pause(&thread("a"), Force::Yes).await.unwrap().lease.observed, Observed::Paused);
    assert_eq!(out(&b, "echo awake").await, "awake\n");
    assert_eq!(rig.stead.destroy(&thread("a"), Force::Yes).await.unwrap().lease.observed, Observed::None);
    assert!(
        sessions(&rig).await.iter().all(|session| session.ended.map(|(_, why)| why) == Some(CloseReason::Destroyed))
    );
}

/// The other's last use is known only to the server's memory, and it is long ago in the rows.
#[tokio::test]
async fn a_session_whose_last_use_is_not_written_down_yet_counts_as_live() {
    for (first, second) in [("a", "b"), ("b", "a")] {
        let rig = Rig::new("toy").await;
        rig.sandbox(first).await;
        share(&rig, second, first).await;
        let b = rig.sandbox("b").await;
        rig.clock.advance(Duration::from_secs(3500));
        run(&b, "echo in use").await;
        rig.clock.advance(Duration::from_secs(200));
        let refused = rig.stead.pause(&thread("a"), Force::No).await;
        assert_eq!(refused.map(drop).map_err(|error| error.code()), Err("conflict"), "{first} first");
        let refused = rig.stead.destroy(&thread("a"), Force::No).await;
        assert_eq!(refused.map(drop).map_err(|error| error.code()), Err("conflict"), "{first} first");
    }
}

#[tokio::test]
async fn deleting_a_thread_leaves_the_instance_that_another_uses() {
    let rig = Rig::new("toy").await;
    rig.sandbox("a").await;
    let b = share(&rig, "b", "a").await;
    rig.stead.delete_thread(&thread("a")).await.unwrap();
    rig.stead.delete_thread(&thread("a")).await.unwrap();
    assert_eq!(rig.toy.calls(Call::Destroy), 0);
    assert_eq!(out(&b, "echo still").await, "still\n");
    rig.stead.delete_thread(&thread("b")).await.unwrap();
    assert_eq!((rig.toy.calls(Call::Destroy), truth(&rig, "toy").await), (1, Vec::new()));
    assert_eq!(count(&rig, "SELECT count(*) FROM leases").await, 0);
}

/// A thousand things may happen to it: each is an event, and the row is what the last one says.
#[tokio::test]
async fn the_log_of_a_lease_has_no_holes_and_its_row_is_what_the_last_event_says() {
    let rig = Rig::new("toy").await;
    let id = {
        rig.sandbox("t").await;
        lease_of(&rig, "t").await.id
    };
    for round in 0..12 {
        match round % 4 {
            0 => drop(rig.stead.pause(&thread("t"), Force::No).await),
            1 => {
                rig.toy.next(Call::Resume, Mischief::FailAfter);
                rig.sandbox("t").await;
            }
            2 => {
                rig.toy.kill(&lease_row(&rig, &id).await.instance.unwrap());
                rig.sandbox("t").await;
            }
            _ => {
                rig.toy.next(Call::Destroy, Mischief::FailBefore);
                assert!(rig.stead.destroy(&thread("t"), Force::No).await.is_err());
                rig.stead.destroy(&thread("t"), Force::No).await.unwrap();
                rig.sandbox("t").await;
            }
        }
        let (log, row) = (events(&rig, &id).await, lease_row(&rig, &id).await);
        assert!(log.iter().map(|event| event.version).eq(1..=row.version), "round {round}: {log:?}");
        let payload: serde_json::Value = serde_json::from_str(&log.last().unwrap().payload).unwrap();
        let told = serde_json::json!({
            "desired": row.desired.as_str(), "observed": row.observed.as_str(),
            "instance": row.instance.as_ref().map(stead_model::ids::InstanceId::as_str),
        });
        assert_eq!(payload, told, "round {round}");
    }
    assert_eq!(lease_row(&rig, &id).await.desired, Desired::Running);
}

/// An event that can't be written takes the change with it.
#[tokio::test]
async fn a_change_and_its_event_are_written_together_or_not_at_all() {
    let rig = Rig::new("toy").await;
    rig.sandbox("t").await;
    let lease = lease_of(&rig, "t").await;
    // Its place in the log is taken.
    let next = lease.version + 1;
    let taken =
        format!("INSERT INTO lease_events VALUES ('event-taken', '{}', {next}, 'x', 'x', '{{}}', NULL, 0)", lease.id);
    sql(&rig, taken).await;
    assert!(rig.stead.pause(&thread("t"), Force::No).await.is_err());
    assert_eq!(lease_row(&rig, &lease.id).await, lease);
    sql(&rig, "DELETE FROM lease_events WHERE id = 'event-taken'".to_owned()).await;
    assert_eq!(rig.stead.pause(&thread("t"), Force::No).await.unwrap().lease.observed, Observed::Paused);
}
