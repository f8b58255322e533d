use crate::{SCRIPT, cloud, config, labels, nothing_was_violated, said, start, wish};
use bytes::Bytes;
use std::time::Duration;
use stead_clouds::daytona::Config;
use stead_clouds::{Cloud, Condition, Effect, Trouble};
use stead_testclouds::faults::Fault;

/// Everything after which nobody knows what was done.
fn lost_answers() -> [Fault; 5] {
    [Fault::AfterSuccess(500), Fault::AfterSuccess(504), Fault::NoAnswer, Fault::Cut(10), Fault::Nonsense]
}

fn brief(test: &stead_testclouds::daytona::Daytona) -> stead_clouds::daytona::Daytona {
    cloud(Config { patience: Duration::from_millis(700), ..config(test) }).unwrap()
}

#[tokio::test]
async fn a_sandbox_whose_answer_was_lost_is_found_and_not_made_again() {
    let Some((test, _)) = start().await else { return };
    let client = brief(&test);
    for (number, fault) in lost_answers().into_iter().enumerate() {
        test.faults.plan("POST /api/sandbox", fault.clone());
        let id = client.create(&wish(&number.to_string())).await.unwrap();
        let listed = client.list(&labels(&number.to_string())).await.unwrap();
        assert_eq!(listed.iter().map(|one| &one.id).collect::<Vec<_>>(), [&id], "{fault:?}");
        client.destroy(&id).await.unwrap();
    }
    nothing_was_violated(&test);
}

#[tokio::test]
async fn an_order_that_was_refused_for_the_time_being_is_given_again() {
    let Some((test, client)) = start().await else { return };
    test.faults.plan("POST /api/sandbox", Fault::Refuse(429));
    let id = client.create(&wish("a")).await.unwrap();
    assert_eq!(test.faults.count("POST /api/sandbox"), 2);
    // One that the cloud may have taken is looked for, and then it is an error: it could still come.
    test.faults.plan("POST /api/sandbox", Fault::Refuse(500));
    let error = client.create(&wish("b")).await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::Unavailable, Effect::Unknown), "{error}");
    assert_eq!(test.ids(), std::slice::from_ref(&id));
    for status in [429, 500, 503] {
        for (order, call) in [("stop", "POST"), ("start", "POST")] {
            test.faults.plan(&format!("{call} /api/sandbox/{id}/{order}"), Fault::Refuse(status));
        }
        client.pause(&id).await.unwrap();
        assert_eq!(test.state(&id), Some("stopped"));
        client.resume(&id).await.unwrap();
        assert_eq!(test.state(&id), Some("started"));
    }
    test.faults.plan(&format!("DELETE /api/sandbox/{id}"), Fault::Refuse(503));
    client.destroy(&id).await.unwrap();
    assert_eq!(test.ids(), Vec::<String>::new());
    nothing_was_violated(&test);
}

#[tokio::test]
async fn a_change_whose_answer_was_lost_is_seen_to_its_end() {
    let Some((test, _)) = start().await else { return };
    let client = brief(&test);
    for fault in lost_answers() {
        let id = client.create(&wish("a")).await.unwrap();
        test.faults.plan("/stop", fault.clone());
        client.pause(&id).await.unwrap();
        assert_eq!(test.state(&id), Some("stopped"), "{fault:?}");
        test.faults.plan("/start", fault.clone());
        client.resume(&id).await.unwrap();
        assert_eq!(test.state(&id), Some("started"), "{fault:?}");
        test.faults.plan("DELETE /api/sandbox", fault.clone());
        client.destroy(&id).await.unwrap();
        assert!(!test.ids().contains(&id), "{fault:?}");
    }
    nothing_was_violated(&test);
}

#[tokio::test]
async fn a_script_is_run_once_whatever_becomes_of_its_answer() {
    let Some((test, _)) = start().await else { return };
    let client = brief(&test);
    let id = client.create(&wish("a")).await.unwrap();
    let mut faults = lost_answers().to_vec();
    faults.push(Fault::AfterSuccess(429));
    for fault in faults {
        let (before, runs) = (said(&client, &id, "cat /tmp/runs || :").await, test.faults.count("/process/execute"));
        test.faults.plan("/process/execute", fault.clone());
        let error = client.run(&id, "echo x >> /tmp/runs", Duration::from_secs(1)).await.unwrap_err();
        if fault != Fault::AfterSuccess(429) {
            assert_eq!(error.effect, Effect::Unknown, "{fault:?}: {error}");
        }
        assert_eq!(test.faults.count("/process/execute"), runs + 1, "{fault:?}");
        let after = said(&client, &id, "cat /tmp/runs").await;
        assert_eq!(after.lines().count(), before.lines().filter(|line| *line == "x").count() + 1, "{fault:?}");
    }
    test.faults.plan("/process/execute", Fault::Refuse(503));
    assert!(client.run(&id, "echo x >> /tmp/runs", SCRIPT).await.is_err());
    assert_eq!(said(&client, &id, "wc -l < /tmp/runs").await, "6\n");
    nothing_was_violated(&test);
}

#[tokio::test]
async fn what_may_be_asked_twice_is_asked_again_within_its_budget() {
    let Some((test, client)) = start().await else { return };
    let id = client.create(&wish("a")).await.unwrap();
    for fault in [Fault::Refuse(429), Fault::Refuse(502), Fault::AfterSuccess(503), Fault::Cut(20)] {
        test.faults.plan(&format!("GET /api/sandbox/{id}"), fault.clone());
        assert_eq!(client.look(&id).await, Ok(Condition::Running), "{fault:?}");
        test.faults.plan("GET /api/sandbox", fault.clone());
        assert_eq!(client.list(&labels("a")).await.unwrap().len(), 1, "{fault:?}");
        test.faults.plan("/system/metrics", fault.clone());
        client.metrics(&id).await.unwrap();
        test.faults.plan("/files/upload-v2", fault.clone());
        client.upload(&id, "/tmp/file", Bytes::from(format!("{fault:?}"))).await.unwrap();
        assert_eq!(said(&client, &id, "cat /tmp/file").await, format!("{fault:?}"));
        if fault != Fault::Cut(20) {
            test.faults.plan("/last-activity", fault);
            client.keep_awake(&id).await.unwrap();
        }
    }
    for status in [401, 403, 404] {
        let asked = test.faults.count("/system/metrics");
        test.faults.plan("/system/metrics", Fault::Refuse(status));
        client.metrics(&id).await.unwrap_err();
        assert_eq!(test.faults.count("/system/metrics"), asked + 1, "{status}");
    }
    test.faults.plan(&format!("GET /api/sandbox/{id}"), Fault::Nonsense);
    assert_eq!(client.look(&id).await.unwrap_err().trouble, Trouble::Broken);
    nothing_was_violated(&test);
}

#[tokio::test]
async fn a_cloud_that_is_not_there_is_unavailable_and_nothing_was_done() {
    let Some((test, client)) = start().await else { return };
    drop(test);
    let error = client.run("any", "true", SCRIPT).await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::Unavailable, Effect::None), "{error}");
}
