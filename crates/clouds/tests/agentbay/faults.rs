//! What goes wrong on the way: lost answers, refusals, nonsense.

use crate::rig::{Rig, SOON, Way, wish};
use std::time::Duration;
use stead_clouds::{Cloud, Condition, Effect, Trouble};
use stead_testclouds::faults::Fault;

#[tokio::test(flavor = "multi_thread")]
async fn looking_bears_what_passes() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let id = rig.create("one").await;
    for fault in [
        Fault::Refuse(429),
        Fault::Refuse(500),
        Fault::Refuse(503),
        Fault::AfterSuccess(502),
        Fault::Cut(0),
        Fault::Cut(40),
    ] {
        let before = rig.bay.faults.count("GetSession");
        rig.bay.faults.plan("GetSession", fault.clone());
        assert_eq!(rig.cloud.look(&id).await, Ok(Condition::Running), "{fault:?}");
        assert_eq!(rig.bay.faults.count("GetSession"), before + 2, "{fault:?}");
    }
    rig.bay.faults.plan("GetSession", Fault::Nonsense);
    let error = rig.cloud.look(&id).await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::Broken, Effect::None), "{error}");
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_cloud_is_not_waited_for_without_end() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let id = rig.create("one").await;
    let hasty = rig.another(|config| config.patience = Duration::from_secs(1));
    rig.bay.faults.plan("GetSession", Fault::NoAnswer);
    assert_eq!(hasty.look(&id).await, Ok(Condition::Running));
    rig.bay.faults.plan("GetLabel", Fault::NoAnswer);
    assert_eq!(hasty.list(&wish("one").labels).await.unwrap().len(), 1);
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_whose_answer_is_lost_is_found_by_its_labels() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let hasty = rig.another(|config| config.patience = Duration::from_secs(5));
    for (n, fault) in [
        Fault::AfterSuccess(500),
        Fault::AfterSuccess(504),
        Fault::Cut(0),
        Fault::Cut(60),
        Fault::Nonsense,
        Fault::NoAnswer,
        Fault::Refuse(429),
    ]
    .into_iter()
    .enumerate()
    {
        rig.bay.faults.plan("CreateMcpSession", fault.clone());
        let id = hasty.create(&wish(&n.to_string())).await.unwrap();
        assert_eq!(rig.bay.sessions().len(), n + 1, "{fault:?}");
        assert_eq!(rig.says(&id, "echo here").await, "here\n", "{fault:?}");
    }
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_of_which_nothing_is_known_is_told_as_that() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    rig.bay.faults.plan("CreateMcpSession", Fault::Refuse(500));
    let error = rig.cloud.create(&wish("one")).await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::Unavailable, Effect::Unknown), "{error}");
    assert_eq!(rig.bay.faults.count("CreateMcpSession"), 1);
    rig.create("one").await;
    assert_eq!(rig.bay.sessions().len(), 1);
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_is_never_run_twice() {
    for way in [Way::Link, Way::Front] {
        let Some(rig) = Rig::start(way).await else { return };
        let id = rig.create("one").await;
        for (n, fault) in [Fault::AfterSuccess(500), Fault::Cut(10), Fault::Nonsense, Fault::AfterSuccess(503)]
            .into_iter()
            .enumerate()
        {
            rig.bay.faults.plan("shell: sh -c 'echo once", fault.clone());
            let error = rig.cloud.run(&id, "echo once >> /tmp/runs", SOON).await.unwrap_err();
            assert_eq!(error.effect, Effect::Unknown, "{fault:?}: {error}");
            assert_eq!(rig.says(&id, "wc -l < /tmp/runs").await, format!("{}\n", n + 1), "{fault:?}");
        }
        rig.bay.faults.plan("shell: sh -c 'echo never", Fault::Refuse(429));
        let error = rig.cloud.run(&id, "echo never >> /tmp/runs", SOON).await.unwrap_err();
        assert_eq!((error.trouble, error.effect), (Trouble::Exhausted, Effect::None), "{error}");
        assert_eq!(rig.says(&id, "grep -c never /tmp/runs || true").await, "0\n");
        rig.assert_clean();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_whose_answers_are_lost_are_taken() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    for fault in [Fault::AfterSuccess(500), Fault::Cut(5), Fault::Refuse(503), Fault::Refuse(429), Fault::Nonsense] {
        let id = rig.create("one").await;
        for action in ["PauseSessionAsync", "ResumeSessionAsync", "DeleteSessionAsync"] {
            rig.bay.faults.plan(action, fault.clone());
        }
        rig.cloud.pause(&id).await.unwrap();
        assert_eq!(rig.cloud.look(&id).await, Ok(Condition::Paused), "{fault:?}");
        rig.cloud.resume(&id).await.unwrap();
        assert_eq!(rig.says(&id, "echo awake").await, "awake\n", "{fault:?}");
        rig.cloud.destroy(&id).await.unwrap();
        assert_eq!(rig.bay.sessions().len(), 0, "{fault:?}");
    }
    rig.bay.faults.plan("RefreshSessionIdleTime", Fault::AfterSuccess(500));
    let id = rig.create("two").await;
    rig.cloud.keep_awake(&id).await.unwrap();
    rig.assert_clean();
}
