//! Sessions: made, found, looked at, put to sleep, woken and ended.

use crate::rig::{Rig, SOON, Way, labels, until, wish};
use std::collections::BTreeMap;
use std::time::Duration;
use stead_clouds::{Cloud, Condition, Effect, Listed, Trouble, Wish};
use stead_model::env::Secret;
use stead_testclouds::agentbay::{KEY, Switch};

#[tokio::test(flavor = "multi_thread")]
async fn a_session_lives_by_a_link() {
    a_session_lives(Way::Link).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_lives_by_the_front_door() {
    a_session_lives(Way::Front).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_lives_where_errors_are_told_in_the_body() {
    a_session_lives(Way::FrontWithErrorsInBody).await;
}

async fn a_session_lives(way: Way) {
    let Some(rig) = Rig::start(way).await else { return };
    assert!(rig.cloud.check().await.unwrap().iter().any(|said| said.contains("linux_latest")));
    let id = rig.create("one").await;
    assert_eq!(rig.cloud.look(&id).await, Ok(Condition::Running));
    let ran = rig.run(&id, "echo out; echo err >&2; exit 7").await;
    assert_eq!((ran.exit_code, ran.output), (7, b"out\nerr\n".to_vec()));
    assert_eq!(rig.says(&id, "printf '%s' \"it's\" > /tmp/kept; cat /tmp/kept").await, "it's");
    rig.cloud.keep_awake(&id).await.unwrap();
    let metrics = rig.cloud.metrics(&id).await.unwrap();
    assert!(metrics.memory_used_bytes.unwrap() < metrics.memory_limit_bytes.unwrap());
    assert!(metrics.disk_used_bytes.unwrap() > 1 << 20 && metrics.cpu_percent.is_some());
    assert!(metrics.network_rx_bytes.is_some() && metrics.network_tx_bytes.is_some());

    rig.cloud.pause(&id).await.unwrap();
    assert_eq!(rig.cloud.look(&id).await, Ok(Condition::Paused));
    rig.cloud.pause(&id).await.unwrap();
    let refused = rig.cloud.run(&id, "true", SOON).await.unwrap_err();
    assert_eq!((refused.trouble, refused.effect), (Trouble::Conflict, Effect::None), "{refused}");
    rig.cloud.resume(&id).await.unwrap();
    rig.cloud.resume(&id).await.unwrap();
    assert_eq!(rig.says(&id, "cat /tmp/kept").await, "it's");

    rig.cloud.destroy(&id).await.unwrap();
    assert_eq!(rig.cloud.look(&id).await, Ok(Condition::Gone));
    rig.cloud.destroy(&id).await.unwrap();
    for error in [
        rig.cloud.run(&id, "true", SOON).await.unwrap_err(),
        rig.cloud.pause(&id).await.unwrap_err(),
        rig.cloud.resume(&id).await.unwrap_err(),
        rig.cloud.keep_awake(&id).await.unwrap_err(),
        rig.cloud.metrics(&id).await.unwrap_err(),
    ] {
        assert_eq!(error.trouble, Trouble::NotFound, "{error}");
    }
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn asking_twice_with_the_same_labels_makes_one() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let id = rig.create("one").await;
    assert_eq!(rig.create("one").await, id);
    assert_ne!(rig.create("two").await, id);
    assert_eq!(rig.bay.sessions().len(), 2);
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_had_is_said() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    for bad in [
        Wish { network: Some(false), ..wish("one") },
        Wish { cpus: Some(8), ..wish("one") },
        Wish { memory_bytes: Some(1 << 30), ..wish("one") },
        Wish::default(),
    ] {
        assert_eq!(rig.cloud.create(&bad).await.unwrap_err().trouble, Trouble::Unsupported, "{bad:?}");
    }
    let bad = Wish { template: Some("windows_95".to_owned()), ..wish("one") };
    let error = rig.cloud.create(&bad).await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::NotFound, Effect::None), "{error}");
    assert!(error.message.contains("windows_95"), "{error}");
    let ours = Wish { template: Some("code_latest".to_owned()), network: Some(true), ..wish("one") };
    rig.cloud.create(&ours).await.unwrap();
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_is_denied_and_never_told() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let stranger = rig.another(|config| config.api_key = Secret::new("not-the-key"));
    let error = stranger.check().await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::Denied, Effect::None));
    assert!(!format!("{error} {error:?} {stranger:?}").contains("not-the-key"));
    assert!(!format!("{:?}", rig.cloud).contains(KEY));
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_may_not_pause_is_told_so_and_its_session_runs_on() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    rig.bay.switch(Switch::MayPause, false);
    let id = rig.create("one").await;
    let error = rig.cloud.pause(&id).await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::Denied, Effect::None));
    assert!(error.message.contains("accounts on its list"), "{error}");
    assert_eq!(rig.says(&id, "echo on").await, "on\n");
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_sleeps_is_woken_to_be_ended() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let id = rig.create("one").await;
    rig.cloud.pause(&id).await.unwrap();
    rig.cloud.destroy(&id).await.unwrap();
    assert_eq!(rig.bay.faults.count("ResumeSessionAsync"), 1);
    assert_eq!(rig.bay.sessions(), BTreeMap::new());
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_sleeps_is_not_made_again_and_not_woken_by_the_way() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let id = rig.create("one").await;
    rig.cloud.pause(&id).await.unwrap();
    let error = rig.cloud.create(&wish("one")).await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::Conflict, Effect::None), "{error}");
    assert_eq!(rig.cloud.look(&id).await, Ok(Condition::Paused));
    assert_eq!(rig.bay.faults.count("ResumeSessionAsync"), 0);
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_before_is_read_anew() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let id = rig.create("one").await;
    assert_eq!(rig.says(&id, "echo 1 >> /tmp/count; cat /tmp/count").await, "1\n");
    let other = rig.another(|_| {});
    other.pause(&id).await.unwrap();
    other.resume(&id).await.unwrap();
    assert_eq!(rig.says(&id, "echo 1 >> /tmp/count; cat /tmp/count").await, "1\n1\n");
    assert_eq!(rig.bay.faults.count("CallMcpTool"), 0);
    // A link that is no more leads through the front door.
    other.pause(&id).await.unwrap();
    other.resume(&id).await.unwrap();
    rig.bay.switch(Switch::Links, false);
    assert_eq!(rig.says(&id, "echo 1 >> /tmp/count; cat /tmp/count").await, "1\n1\n1\n");
    assert_eq!(rig.bay.faults.count("CallMcpTool"), 1);
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_only_seems_to_run_is_gone_once_its_tools_are() {
    for way in [Way::Link, Way::Front] {
        let Some(rig) = Rig::start(way).await else { return };
        let id = rig.create("one").await;
        rig.bay.lose(&id);
        let error = rig.cloud.run(&id, "true", SOON).await.unwrap_err();
        assert_eq!((error.trouble, error.effect), (Trouble::NotFound, Effect::None), "{error}");
        assert_eq!(rig.bay.sessions().get(&id).map(String::as_str), Some("RUNNING"));
        assert_eq!(rig.cloud.look(&id).await, Ok(Condition::Gone));
        let next = rig.create("one").await;
        assert_ne!(next, id);
        assert_eq!(rig.says(&next, "echo here").await, "here\n");
        rig.cloud.destroy(&id).await.unwrap();
        rig.assert_clean();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_with_the_labels_are_listed_whatever_they_do() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    rig.bay.shorten_pages(2);
    let mut ids = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        ids.push(rig.create(name).await);
    }
    rig.cloud.pause(&ids[1]).await.unwrap();
    rig.cloud.destroy(&ids[2]).await.unwrap();
    let listed = |name: &str, id: &str, condition| Listed { id: id.to_owned(), labels: labels(name), condition };
    let mut all = rig.cloud.list(&BTreeMap::from([("stead".to_owned(), "test".to_owned())])).await.unwrap();
    all.sort_by(|one, other| one.labels.cmp(&other.labels));
    let wanted = [
        listed("a", &ids[0], Condition::Running),
        listed("b", &ids[1], Condition::Paused),
        listed("d", &ids[3], Condition::Running),
        listed("e", &ids[4], Condition::Running),
    ];
    assert_eq!(all, wanted);
    assert_eq!(rig.cloud.list(&labels("d")).await.unwrap(), [listed("d", &ids[3], Condition::Running)]);
    assert_eq!(rig.cloud.list(&labels("nobody")).await.unwrap(), []);
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_used_is_kept_awake_and_one_that_is_not_ends() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let short = rig.another(|config| config.idle_timeout = Duration::from_secs(2));
    let id = short.create(&wish("one")).await.unwrap();
    for _ in 0..8 {
        short.keep_awake(&id).await.unwrap();
        assert_eq!(rig.says(&id, "sleep 0.5; echo on").await, "on\n");
    }
    until("it ends for being idle", async || short.look(&id).await == Ok(Condition::Gone)).await;
    rig.assert_clean();
}
