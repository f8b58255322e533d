//! What goes wrong between us and the cloud.

use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use stead_clouds::{Condition, Effect, Trouble};
use stead_testclouds::faults::Fault;

#[tokio::test(flavor = "multi_thread")]
async fn one_sandbox_is_made_however_its_making_is_answered() {
    for fault in [Fault::AfterSuccess(500), Fault::AfterSuccess(504), Fault::NoAnswer, Fault::Cut(10), Fault::Nonsense]
    {
        let Some((cloud, client)) = start().await else { return };
        cloud.faults.plan("POST /sandboxes", fault.clone());
        let id = client.create(&wish("one")).await.unwrap();
        assert_eq!(cloud.sandboxes(), [id.as_str()], "{fault:?}");
        assert_eq!(said(&client, &id, "echo up").await, "up\n");
        assert_proper(&cloud);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn making_one_is_tried_again_only_when_nothing_was_made() {
    let Some((cloud, client)) = start().await else { return };
    cloud.faults.plan("POST /sandboxes", Fault::Refuse(503));
    let error = client.create(&wish("one")).await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::Unavailable, Effect::Unknown));
    assert_eq!((cloud.faults.count("POST /sandboxes"), cloud.sandboxes().len()), (1, 0));
    cloud.faults.plan("POST /sandboxes", Fault::Refuse(429));
    client.create(&wish("one")).await.unwrap();
    assert_eq!((cloud.faults.count("POST /sandboxes"), cloud.sandboxes().len()), (3, 1));
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_may_be_made_twice_are() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    let soon = Duration::from_secs(2);
    let times = Times { read: soon, change: soon, pause: soon, sign_of_life: soon };
    let client = with_times(config(&cloud, KEY), times).unwrap();
    for fault in [
        Fault::Refuse(429),
        Fault::Refuse(500),
        Fault::AfterSuccess(502),
        Fault::AfterSuccess(503),
        Fault::NoAnswer,
        Fault::Cut(0),
    ] {
        for path in ["GET /sandboxes/", "GET /v2/sandboxes", "/refreshes", "/pause", "/connect", "/metrics", "DELETE"] {
            cloud.faults.plan(path, fault.clone());
        }
        assert_eq!(client.look(&id).await.unwrap(), Condition::Running, "{fault:?}");
        assert_eq!(client.list(&wish("one").labels).await.unwrap().len(), 1, "{fault:?}");
        client.keep_awake(&id).await.unwrap();
        client.pause(&id).await.unwrap();
        assert_eq!(client.look(&id).await.unwrap(), Condition::Paused, "{fault:?}");
        client.resume(&id).await.unwrap();
        client.metrics(&id).await.unwrap();
        assert_eq!(said(&client, &id, "echo up").await, "up\n", "{fault:?}");
        client.destroy("i0").await.unwrap();
        assert_proper(&cloud);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_make_no_sense_are_the_cloud_s_breach() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    for path in ["GET /sandboxes/", "GET /v2/sandboxes", "/connect", "/metrics", "Process/Start"] {
        cloud.faults.plan(path, Fault::Nonsense);
    }
    let errors = [
        client.look(&id).await.unwrap_err(),
        client.list(&BTreeMap::new()).await.unwrap_err(),
        client.resume(&id).await.unwrap_err(),
        client.metrics(&id).await.unwrap_err(),
        client.run(&id, "true", LONG).await.unwrap_err(),
    ];
    assert_eq!(errors.map(|error| error.trouble), [Trouble::Broken; 5]);
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_something_is_never_asked_for_twice() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    let faults = [
        (Fault::Refuse(429), Trouble::Exhausted, Effect::None),
        (Fault::Refuse(500), Trouble::Unavailable, Effect::Unknown),
        (Fault::Refuse(502), Trouble::Unavailable, Effect::Unknown),
        (Fault::AfterSuccess(500), Trouble::Unavailable, Effect::Unknown),
        (Fault::NoAnswer, Trouble::TimedOut, Effect::Unknown),
        (Fault::Nonsense, Trouble::Broken, Effect::Unknown),
        (Fault::Cut(0), Trouble::Unavailable, Effect::Unknown),
        (Fault::Cut(4), Trouble::Unavailable, Effect::Unknown),
        (Fault::Cut(60), Trouble::Unavailable, Effect::Unknown),
    ];
    for (number, (fault, trouble, effect)) in faults.into_iter().enumerate() {
        let before = cloud.faults.count("Process/Start");
        cloud.faults.plan("Process/Start", fault.clone());
        let script = format!("echo ran >> ran-{number}; head -c 9999 /dev/zero");
        let error = client.run(&id, &script, LONG).await.unwrap_err();
        assert_eq!((error.trouble, error.effect), (trouble, effect), "{fault:?}: {error}");
        assert_eq!(cloud.faults.count("Process/Start") - before, 1, "{fault:?}");
        until("over", async || cloud.programs(&id).is_empty()).await;
        let expected = if matches!(fault, Fault::Refuse(_)) { "" } else { "ran\n" };
        let ran = said(&client, &id, &format!("cat ran-{number} 2> /dev/null || :")).await;
        assert_eq!(ran, expected, "{fault:?}");
    }
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_arrives_whole_or_not_at_all() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    let faults = [
        ("POST /files", Fault::Refuse(429)),
        ("POST /files", Fault::AfterSuccess(500)),
        ("POST /files", Fault::NoAnswer),
        ("POST /files", Fault::Cut(0)),
        ("Filesystem/Move", Fault::Refuse(503)),
    ];
    for (number, (path, fault)) in faults.into_iter().enumerate() {
        cloud.faults.plan(path, fault);
        let (name, bytes) = (format!("/home/user/deep/down/{number} &?"), noise(300_000 + number));
        client.upload(&id, &name, bytes.clone()).await.unwrap();
        let length = said(&client, &id, &format!("wc -c < '{name}'")).await;
        assert_eq!(length.trim(), bytes.len().to_string());
    }
    // The directory has nothing else in it.
    assert_eq!(said(&client, &id, "ls deep/down").await, "0 &?\n1 &?\n2 &?\n3 &?\n4 &?\n");

    // What can't be put there leaves what was there.
    client.upload(&id, "/home/user/last/file", Bytes::from_static(b"before")).await.unwrap();
    cloud.faults.plan("Filesystem/Move", Fault::Refuse(507));
    let error = client.upload(&id, "/home/user/last/file", noise(1000)).await.unwrap_err();
    assert_eq!(error.trouble, Trouble::NoSpace);
    assert_eq!(said(&client, &id, "ls last; cat last/file").await, "file\nbefore");

    // Its bytes are those that were sent.
    let bytes = noise(3 << 20);
    client.upload(&id, "/home/user/exact", bytes.clone()).await.unwrap();
    let encoded = said(&client, &id, "tail -c 100000 exact | base64 -w 0").await;
    assert_eq!(STANDARD.decode(encoded).unwrap(), bytes[bytes.len() - 100_000..]);
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_whose_arrival_was_not_confirmed_is_sent_again() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    cloud.faults.plan("Filesystem/Move", Fault::AfterSuccess(500));
    client.upload(&id, "/home/user/file", Bytes::from_static(b"whole")).await.unwrap();
    assert_eq!(said(&client, &id, "ls; cat file").await, "file\nwhole");
    assert_eq!(cloud.faults.count("POST /files") - cloud.faults.count("POST /filesystem"), 2);
    assert_proper(&cloud);
}
