//! Many at once make one of each.

use crate::rig::{Rig, out, thread};
use crate::scene::*;
use stead_model::lease::Seen;
use stead_server::lease::Force;
use stead_server::provider::fake::{Call, Mischief};
use stead_server::stead::{Execute, Where};
use tokio::task::JoinSet;

const CALLERS: usize = 32;

on_each_provider! {
    thirty_two_callers_of_a_new_thread_get_one_of_each_layer,
    thirty_two_commands_on_a_new_thread_get_one_of_each_layer,
}

in_containers! {
    thirty_two_callers_of_a_new_thread_get_one_of_each_layer,
}

async fn assert_one_of_each(rig: &Rig, provider: &str) {
    for table in ["threads", "terminals", "leases", "instances", "sessions"] {
        assert_eq!(count(rig, &format!("SELECT count(*) FROM {table}")).await, 1, "{table}");
    }
    assert_eq!(terminal(rig, "t").await.generation, 1, "one runtime");
    let instance = lease_of(rig, "t").await.instance.unwrap();
    assert_eq!(truth(rig, provider).await, [(instance, Seen::Running)]);
}

async fn thirty_two_callers_of_a_new_thread_get_one_of_each_layer(rig: Rig, provider: &str) {
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let stead = rig.stead.clone();
        callers.spawn(async move {
            let sandbox = stead.get_sandbox(Where::thread(thread("t"))).await.unwrap();
            (sandbox.terminal().clone(), sandbox.session().await.unwrap().id)
        });
    }
    let mut got = callers.join_all().await;
    got.dedup();
    assert_eq!(got.len(), 1, "{got:?}");
    assert_one_of_each(&rig, provider).await;
}

async fn thirty_two_commands_on_a_new_thread_get_one_of_each_layer(rig: Rig, provider: &str) {
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        let stead = rig.stead.clone();
        callers.spawn(async move {
            let sandbox = stead.get_sandbox(Where::thread(thread("t"))).await.unwrap();
            let ran = sandbox.run(Execute::new(format!("echo {number} >>all; echo {number}"))).await.unwrap();
            assert_eq!(String::from_utf8(ran.stdout).unwrap(), format!("{number}\n"));
        });
    }
    callers.join_all().await;
    assert_one_of_each(&rig, provider).await;
    let sandbox = rig.sandbox("t").await;
    let mut all: Vec<usize> = out(&sandbox, "cat all").await.lines().map(|line| line.parse().unwrap()).collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..CALLERS), "each ran once");
}

#[tokio::test]
async fn sixteen_callers_over_a_dead_instance_get_the_same_new_one() {
    let rig = Rig::new("toy").await;
    rig.sandbox("t").await;
    let dead = lease_of(&rig, "t").await.instance.unwrap();
    rig.toy.kill(&dead);
    let mut callers = JoinSet::new();
    for _ in 0..16 {
        let stead = rig.stead.clone();
        callers.spawn(async move {
            let sandbox = stead.get_sandbox(Where::thread(thread("t"))).await.unwrap();
            assert_eq!(out(&sandbox, "echo here").await, "here\n");
            sandbox.lease().await.unwrap().lease.instance.unwrap()
        });
    }
    let mut got = callers.join_all().await;
    got.dedup();
    assert_eq!((got.len(), rig.toy.calls(Call::Create)), (1, 2), "{got:?}");
    assert_ne!(got[0], dead);
    assert_eq!(truth(&rig, "toy").await, [(got[0].clone(), Seen::Running)]);
}

#[tokio::test]
async fn sixteen_callers_over_a_killed_steward_and_its_shells_get_one_new_instance() {
    let rig = Rig::new("local").await;
    let sandbox = rig.sandbox("t").await;
    crate::rig::run(&sandbox, "export KEPT=1").await;
    kill_instance(&sandbox).await;
    let mut callers = JoinSet::new();
    for _ in 0..16 {
        let stead = rig.stead.clone();
        callers.spawn(async move {
            let sandbox = stead.get_sandbox(Where::thread(thread("t"))).await.unwrap();
            assert_eq!(out(&sandbox, "echo $KEPT").await, "1\n");
        });
    }
    callers.join_all().await;
    assert_eq!(count(&rig, "SELECT count(*) FROM instances").await, 2, "the dead one and its successor");
    assert_eq!(truth(&rig, "local").await.len(), 1);
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_what_it_began_to_be_finished() {
    let rig = Rig::new("toy").await;
    rig.toy.next(Call::Create, Mischief::Delay(std::time::Duration::from_millis(50)));
    let stead = rig.stead.clone();
    let caller = tokio::spawn(async move { stead.get_sandbox(Where::thread(thread("t"))).await.map(drop) });
    crate::rig::wait_for("the provider to be called", || async { (rig.toy.calls(Call::Create) == 1).then_some(()) })
        .await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    let sandbox = rig.sandbox("t").await;
    assert_eq!(out(&sandbox, "echo here").await, "here\n");
    assert_eq!(rig.toy.calls(Call::Create), 1, "what was begun was taken, not begun again");
}

#[tokio::test]
async fn sixteen_destroyers_destroy_once() {
    let rig = Rig::new("toy").await;
    rig.sandbox("t").await;
    let mut callers = JoinSet::new();
    for _ in 0..16 {
        let stead = rig.stead.clone();
        callers.spawn(async move { stead.destroy(&thread("t"), Force::No).await.unwrap().lease.instance });
    }
    assert!(callers.join_all().await.into_iter().all(|instance| instance.is_none()));
    assert_eq!(rig.toy.calls(Call::Destroy), 1);
}
