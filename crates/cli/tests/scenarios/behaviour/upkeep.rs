//! What is found at the start, prepared before the first command, and settled at the end.

use crate::rig::{Rig, local_named, name, out, run, thread};
use crate::scene::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use stead_model::ids::{InstanceId, LeaseId, ProviderName};
use stead_model::lease::{Observed, Seen};
use stead_server::Error;
use stead_server::provider::fake::{Call, Mischief};
use stead_server::provider::{Handle, Provider, Trouble};
use stead_server::stead::{NewThread, OnExit, Treatment, Where};

fn treated(provider: &str, treatment: Treatment) -> BTreeMap<ProviderName, Treatment> {
    BTreeMap::from([(name(provider), treatment)])
}

fn prepared(commands: &[&str]) -> Treatment {
    Treatment { init_commands: commands.iter().map(|text| (*text).to_owned()).collect(), ..Treatment::default() }
}

#[tokio::test]
async fn orphans_are_listed_adopted_and_removed() {
    let rig = Rig::new("toy").await;
    rig.sandbox("t").await;
    assert_eq!(rig.stead.orphans().await.unwrap(), [], "what has a lease is none");
    let handle = |number: u8| Handle {
        instance: InstanceId::made_of([number; 8]),
        lease: LeaseId::made_of([number; 8]),
        workspace: format!("w-{number}"),
        reference: format!("stray-{number}"),
    };
    for number in [1, 2] {
        rig.toy.abandon(handle(number));
    }
    let listed: Vec<_> = rig.stead.orphans().await.unwrap().into_iter().map(|orphan| orphan.handle).collect();
    assert_eq!(listed, [handle(1), handle(2)]);
    let lease = rig.stead.adopt(&handle(1).instance).await.unwrap();
    assert_eq!((lease.observed, lease.instance.as_ref()), (Observed::Running, Some(&handle(1).instance)));
    assert!(events(&rig, &lease.id).await.iter().all(|event| event.source == "adopt"));
    assert_eq!(rig.stead.lease(&lease.id).await.unwrap().instance.unwrap().reference, "stray-1");
    rig.stead.remove_orphan(&handle(2).instance).await.unwrap();
    assert_eq!(rig.stead.orphans().await.unwrap(), []);
    assert!(truth(&rig, "toy").await.contains(&(handle(1).instance, Seen::Running)));
    for again in
        [rig.stead.adopt(&handle(1).instance).await.map(drop), rig.stead.remove_orphan(&handle(2).instance).await]
    {
        assert_eq!(again.unwrap_err().code(), "not_found");
    }
}

#[tokio::test]
async fn an_adopted_instance_is_kept_by_the_next_server() {
    let mut rig = Rig::new("toy").await;
    let handle = Handle {
        instance: InstanceId::made_of([1; 8]),
        lease: LeaseId::made_of([1; 8]),
        workspace: "w-1".to_owned(),
        reference: "stray".to_owned(),
    };
    rig.toy.abandon(handle.clone());
    rig.stead.adopt(&handle.instance).await.unwrap();
    rig.restart().await;
    assert_eq!(truth(&rig, "toy").await, [(handle.instance.clone(), Seen::Running)]);
    assert_eq!(rig.stead.orphans().await.unwrap(), []);
    assert_eq!(lease_row(&rig, &handle.lease).await.instance, Some(handle.instance));
}

#[tokio::test]
async fn a_real_instance_whose_rows_are_lost_is_an_orphan_with_its_files() {
    let mut rig = Rig::new("local").await;
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "echo wanted >file").await;
    let lease = lease_of(&rig, "t").await;
    let tables =
        ["commands", "sessions", "terminal_states", "terminals", "threads", "instances", "lease_events", "leases"];
    sql(&rig, tables.map(|table| format!("DELETE FROM {table};")).concat()).await;
    rig.restart().await;
    let orphans = rig.stead.orphans().await.unwrap();
    let found: Vec<_> = orphans.iter().map(|orphan| (&orphan.handle.instance, orphan.seen)).collect();
    let instance = lease.instance.clone().unwrap();
    assert_eq!(found, [(&instance, Seen::Running)]);
    assert_eq!(rig.stead.adopt(&instance).await.unwrap().id, lease.id);
    assert_eq!(rig.stead.lease(&lease.id).await.unwrap().lease.observed, Observed::Running);
    let kept = rig.path().join("local/workspaces").join(&lease.workspace).join("files/file");
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "wanted\n");
}

#[tokio::test]
async fn at_the_end_instances_are_left_paused_or_destroyed_as_configured() {
    for (on_exit, left) in
        [(OnExit::Leave, vec![Seen::Running]), (OnExit::Pause, vec![Seen::Paused]), (OnExit::Destroy, vec![])]
    {
        for provider in ["local", "toy"] {
            let mut rig = Rig::with(provider, treated(provider, Treatment { on_exit, ..Treatment::default() })).await;
            let sandbox = rig.sandbox("t").await;
            run(&sandbox, "cd /tmp").await;
            let failed = rig.stead.stop().await;
            assert!(failed.is_empty(), "{failed:?}");
            let seen: Vec<_> = truth(&rig, provider).await.into_iter().map(|(_, seen)| seen).collect();
            assert_eq!(seen, left, "{provider} {on_exit:?}");
            assert_eq!(rig.stead.get_sandbox(Where::thread(thread("t"))).await.unwrap_err().code(), "unavailable");
            rig.restart().await;
            assert_eq!(out(&rig.sandbox("t").await, "pwd").await, "/tmp\n", "{provider} {on_exit:?}");
        }
    }
}

#[tokio::test]
async fn one_that_can_not_be_settled_does_not_keep_the_others() {
    for (on_exit, call) in [(OnExit::Pause, Call::Pause), (OnExit::Destroy, Call::Destroy)] {
        let rig = Rig::with("toy", treated("toy", Treatment { on_exit, ..Treatment::default() })).await;
        for at in ["a", "b", "c"] {
            rig.sandbox(at).await;
        }
        rig.toy.next(call, Mischief::Refuse(Trouble::Denied));
        let failed = rig.stead.stop().await;
        assert_eq!(failed.iter().map(Error::code).collect::<Vec<_>>(), ["provider_error"], "{failed:?}");
        let running = truth(&rig, "toy").await.into_iter().filter(|(_, seen)| *seen == Seen::Running).count();
        assert_eq!(running, 1, "{on_exit:?}");
    }
}

async fn preparations_run_once(mut rig: Rig) {
    let sandbox = rig.sandbox("t").await;
    assert_eq!(out(&sandbox, "cat prepared; echo $READY").await, "one\ntwo\nyes\n");
    rig.stead.close_session(&thread("t"), stead_model::session::CloseReason::Closed).await.unwrap().unwrap();
    assert_eq!(out(&sandbox, "cat prepared; echo $READY").await, "one\ntwo\nyes\n", "not again for a new session");
    rig.stead.pause(&thread("t"), stead_server::lease::Force::No).await.unwrap();
    assert_eq!(out(&sandbox, "cat prepared").await, "one\ntwo\n", "nor when it wakes");
    rig.restart().await;
    assert_eq!(out(&rig.sandbox("t").await, "cat prepared").await, "one\ntwo\n", "nor under another server");
}

const PREPARATIONS: [&str; 2] = ["echo one >>prepared; export READY=yes", "echo two >>prepared"];

#[tokio::test]
async fn preparations_run_once_with_a_steward() {
    preparations_run_once(Rig::with("local", treated("local", prepared(&PREPARATIONS))).await).await;
}

#[tokio::test]
async fn preparations_run_once_one_shot() {
    preparations_run_once(Rig::with("fake", treated("fake", prepared(&PREPARATIONS))).await).await;
}

async fn a_preparation_that_fails_is_raised_and_tried_again(rig: Rig) {
    rig.stead.create_thread(new_thread("t")).await.unwrap();
    for tries in 1..=2 {
        let raised = rig.stead.get_sandbox(Where::thread(thread("t"))).await.unwrap_err();
        let Error::InitFailed { command, output, .. } = &raised else { panic!("{raised:?}") };
        assert!(command.contains("tried"), "{raised}");
        assert!(output.contains("not yet"), "{raised}");
        let (lease, row) = (lease_of(&rig, "t").await, rig.stead.thread(&thread("t")).await.unwrap());
        let files = match lease.provider.as_str() {
            "local" => rig.path().join("local/workspaces").join(&row.workspace).join("files"),
            other => rig.path().join(other).join(&row.workspace),
        };
        let tried = std::fs::read_to_string(files.join("tried")).unwrap();
        assert_eq!(tried.lines().count(), tries, "it is really tried");
        if tries == 2 {
            std::fs::write(files.join("now"), "").unwrap();
        }
    }
    assert_eq!(out(&rig.sandbox("t").await, "echo works").await, "works\n");
}

const FAILING: [&str; 1] = ["echo x >>tried; [ -e now ] || { echo not yet; false; }"];

#[tokio::test]
async fn a_preparation_that_fails_is_raised_and_tried_again_with_a_steward() {
    a_preparation_that_fails_is_raised_and_tried_again(Rig::with("local", treated("local", prepared(&FAILING))).await)
        .await;
}

#[tokio::test]
async fn a_preparation_that_fails_is_raised_and_tried_again_one_shot() {
    a_preparation_that_fails_is_raised_and_tried_again(Rig::with("fake", treated("fake", prepared(&FAILING))).await)
        .await;
}

#[tokio::test]
async fn two_providers_of_one_kind_live_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let other: Arc<dyn Provider> = Arc::new(local_named(dir.path(), "other"));
    let treatments = treated("other", prepared(&["export WHOSE=other"]));
    let (rig, _) = Rig::over(dir, "local", treatments, vec![Arc::clone(&other)]).await;
    let first = rig.sandbox("first").await;
    rig.stead.create_thread(NewThread { provider: Some(name("other")), ..new_thread("second") }).await.unwrap();
    let second = rig.sandbox("second").await;
    run(&first, "echo first >mine").await;
    assert_eq!(out(&second, "ls; echo $WHOSE").await, "other\n");
    assert_eq!(out(&first, "echo ${WHOSE-nobody}").await, "nobody\n");
    assert_eq!(
        (lease_of(&rig, "first").await.provider, lease_of(&rig, "second").await.provider),
        (name("local"), name("other"))
    );
    assert_eq!((truth(&rig, "local").await.len(), other.list().await.unwrap().len()), (1, 1));
    rig.stead.pause(&thread("second"), stead_server::lease::Force::No).await.unwrap();
    assert_eq!(out(&first, "cat mine").await, "first\n");
    let store = rig.store().await;
    let of = |provider: &str| name(provider);
    for provider in ["local", "other"] {
        let leases = store.leases(Some(&of(provider)), &stead_server::store::Page::all()).await.unwrap();
        assert_eq!(leases.len(), 1, "{provider}");
    }
    let unknown = NewThread { provider: Some(name("third")), ..new_thread("x") };
    assert_eq!(rig.stead.create_thread(unknown).await.unwrap_err().code(), "invalid_request");
}
