use crate::{SCRIPT, cloud, config, labels, nothing_was_violated, said, start, until, wish};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use stead_clouds::daytona::Config;
use stead_clouds::{Cloud, Condition, Effect, Trouble, Wish};
use stead_model::env::Secret;
use stead_testclouds::daytona::SNAPSHOT;

#[tokio::test]
async fn a_pause_keeps_the_disk_and_ends_what_runs() {
    let Some((test, client)) = start().await else { return };
    let id = client.create(&wish("a")).await.unwrap();
    assert_eq!(client.look(&id).await, Ok(Condition::Running));
    said(&client, &id, "echo kept > /home/user/file; sleep 1000 > /dev/null 2>&1 &").await;
    assert_eq!(said(&client, &id, "pgrep -x sleep | wc -l").await, "1\n");
    client.pause(&id).await.unwrap();
    assert_eq!(client.look(&id).await, Ok(Condition::Paused));
    assert_eq!(test.processes(&id), 0);
    client.pause(&id).await.unwrap();
    // It is said to sleep, and not woken.
    let refused = [client.run(&id, "true", SCRIPT).await.map(drop), client.metrics(&id).await.map(drop)];
    for refused in refused.map(Result::unwrap_err) {
        assert_eq!((refused.trouble, refused.effect), (Trouble::Conflict, Effect::None), "{refused}");
    }
    assert_eq!(client.look(&id).await, Ok(Condition::Paused));
    client.resume(&id).await.unwrap();
    client.resume(&id).await.unwrap();
    assert_eq!(said(&client, &id, "cat /home/user/file; pgrep -x sleep | wc -l").await, "kept\n0\n");
    client.pause(&id).await.unwrap();
    test.archive(&id).await;
    assert_eq!(client.look(&id).await, Ok(Condition::Paused));
    client.resume(&id).await.unwrap();
    assert_eq!(said(&client, &id, "cat /home/user/file").await, "kept\n");
    client.destroy(&id).await.unwrap();
    assert_eq!(client.look(&id).await, Ok(Condition::Gone));
    client.destroy(&id).await.unwrap();
    client.destroy("never-was").await.unwrap();
    assert_eq!(client.resume(&id).await.unwrap_err().trouble, Trouble::NotFound);
    nothing_was_violated(&test);
}

#[tokio::test]
async fn asking_twice_with_the_same_labels_makes_one_sandbox() {
    let Some((test, client)) = start().await else { return };
    let id = client.create(&wish("a")).await.unwrap();
    assert_eq!(client.create(&wish("a")).await.unwrap(), id);
    client.pause(&id).await.unwrap();
    assert_eq!(client.create(&wish("a")).await.unwrap(), id);
    assert_eq!(client.look(&id).await, Ok(Condition::Running));
    assert_ne!(client.create(&wish("b")).await.unwrap(), id);
    assert_eq!(test.faults.count("POST /api/sandbox"), 2 + 2, "two made; one stopped and started");
    nothing_was_violated(&test);
}

#[tokio::test]
async fn a_list_has_every_sandbox_with_the_labels_and_no_other() {
    let Some((test, client)) = start().await else { return };
    let mut expected = Vec::new();
    for number in 0..7 {
        expected.push(test.make(&labels(&number.to_string())).await);
    }
    let foreign = BTreeMap::from([("stead".to_owned(), "two".to_owned())]);
    test.make(&foreign).await;
    client.pause(&expected[2]).await.unwrap();
    client.destroy(&expected[3]).await.unwrap();
    test.fail(&expected[4], "its disk is full");
    let ours = BTreeMap::from([("stead".to_owned(), "one".to_owned())]);
    let listed = client.list(&ours).await.unwrap();
    let seen: Vec<_> = listed.iter().map(|one| (one.id.clone(), one.condition)).collect();
    let conditions = [Condition::Running, Condition::Running, Condition::Paused, Condition::Gone, Condition::Unclear];
    let conditions = conditions.into_iter().chain([Condition::Running; 2]);
    let mut wanted: Vec<_> = expected.iter().cloned().zip(conditions).collect();
    wanted.remove(3);
    assert_eq!(seen, wanted);
    assert_eq!(listed[0].labels, labels("0"));
    assert_eq!(client.list(&foreign).await.unwrap().len(), 1);
    assert_eq!(client.list(&labels("none")).await.unwrap(), []);
    nothing_was_violated(&test);
}

#[tokio::test]
async fn what_is_on_its_way_is_unclear_until_it_is_there() {
    let Some((test, client)) = start().await else { return };
    let id = client.create(&wish("a")).await.unwrap();
    test.hold(true);
    let pausing = tokio::spawn({
        let (client, id) = (client.clone(), id.clone());
        async move { client.pause(&id).await }
    });
    until("it stops", async || test.state(&id) == Some("stopping")).await;
    assert_eq!(client.look(&id).await, Ok(Condition::Unclear));
    assert!(!pausing.is_finished());
    test.hold(false);
    pausing.await.unwrap().unwrap();
    assert_eq!(client.look(&id).await, Ok(Condition::Paused));
    nothing_was_violated(&test);
}

#[tokio::test]
async fn a_sandbox_that_failed_says_why_and_is_not_left_behind_when_it_was_being_made() {
    let Some((test, client)) = start().await else { return };
    test.fail_next("no runner has room");
    let error = client.create(&wish("a")).await.unwrap_err();
    assert!(error.trouble == Trouble::Broken && error.message.contains("no runner has room"), "{error}");
    assert_eq!(test.ids(), Vec::<String>::new());
    let id = client.create(&wish("a")).await.unwrap();
    test.fail(&id, "its runner burns");
    for error in [
        client.look(&id).await.unwrap_err(),
        client.pause(&id).await.unwrap_err(),
        client.resume(&id).await.unwrap_err(),
        client.create(&wish("a")).await.unwrap_err(),
    ] {
        assert!(error.trouble == Trouble::Broken && error.message.contains("its runner burns"), "{error}");
    }
    assert_eq!(test.ids(), std::slice::from_ref(&id), "one that was used is somebody's");
    client.destroy(&id).await.unwrap();
    assert_eq!(test.ids(), Vec::<String>::new());
    nothing_was_violated(&test);
}

#[tokio::test]
async fn one_that_is_said_to_run_and_is_gone_is_found_out_by_using_it() {
    let Some((test, client)) = start().await else { return };
    let id = client.create(&wish("a")).await.unwrap();
    test.lose(&id);
    assert_eq!(client.look(&id).await, Ok(Condition::Running), "as the cloud tells");
    let brief = cloud(Config { patience: Duration::from_millis(500), ..config(&test) }).unwrap();
    for error in [
        brief.run(&id, "true", SCRIPT).await.unwrap_err(),
        brief.resume(&id).await.unwrap_err(),
        brief.create(&wish("a")).await.unwrap_err(),
        brief.open(&id, "cat", &[]).await.err().unwrap(),
    ] {
        assert_eq!(error.trouble, Trouble::Unavailable, "{error}");
    }
    assert_eq!(test.ids(), std::slice::from_ref(&id));
    brief.destroy(&id).await.unwrap();
    nothing_was_violated(&test);
}

#[tokio::test]
async fn only_traffic_keeps_a_sandbox_awake() {
    let Some((test, client)) = start().await else { return };
    let id = client.create(&wish("a")).await.unwrap();
    said(&client, &id, "sleep 1000 > /dev/null 2>&1 &").await;
    for _ in 0..3 {
        test.pass(14);
        client.keep_awake(&id).await.unwrap();
        assert_eq!(client.look(&id).await, Ok(Condition::Running));
    }
    test.pass(14);
    said(&client, &id, "true").await;
    test.pass(14);
    // Looked at and measured it is, but not used.
    assert!(client.metrics(&id).await.unwrap().memory_used_bytes.unwrap() > 0);
    assert_eq!(client.look(&id).await, Ok(Condition::Running));
    test.pass(1);
    until("it is stopped", async || client.look(&id).await == Ok(Condition::Paused)).await;
    assert_eq!(test.processes(&id), 0);
    let never = cloud(Config { auto_stop: Duration::ZERO, ..config(&test) }).unwrap();
    let id = never.create(&wish("b")).await.unwrap();
    test.pass(100_000);
    assert_eq!(never.look(&id).await, Ok(Condition::Running));
    nothing_was_violated(&test);
}

#[tokio::test]
async fn a_script_s_exit_and_output_are_its_own() {
    let Some((test, client)) = start().await else { return };
    let id = client.create(&wish("a")).await.unwrap();
    let ran = client.run(&id, "echo 'it'\"'\"'s'; echo no >&2; cd /tmp && pwd\nexit 7", SCRIPT).await.unwrap();
    assert_eq!((ran.exit_code, String::from_utf8(ran.output).unwrap()), (7, "it's\nno\n/tmp\n".to_owned()));
    let late = client.run(&id, "echo $$ > /tmp/pid; sleep 1000", Duration::from_millis(200)).await.unwrap_err();
    assert_eq!((late.trouble, late.effect), (Trouble::TimedOut, Effect::Unknown), "{late}");
    until("it is killed", async || said(&client, &id, "pgrep -x sleep | wc -l").await == "0\n").await;
    let killed = client.run(&id, "kill -9 $$", SCRIPT).await;
    assert!(killed.as_ref().map_or(true, |ran| ran.exit_code == 137), "{killed:?}");
    nothing_was_violated(&test);
}

#[tokio::test]
async fn a_file_is_in_its_place_whole_whatever_the_toolbox_is() {
    let Some((test, client)) = start().await else { return };
    let id = client.create(&wish("a")).await.unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251).to_le_bytes()[0] ^ n.to_le_bytes()[2]).collect();
    let path = "/opt/a b/it's/file";
    client.upload(&id, path, Bytes::from(bytes.clone())).await.unwrap();
    let back = |script: &str| format!("{script} \"/opt/a b/it's/\"*");
    let sum = said(&client, &id, &(back("cat") + " | sha256sum")).await;
    assert_eq!(
        said(&client, &id, &back("stat -c '%n %s'")).await,
        format!("{path} 3000000\n"),
        "and nothing beside it"
    );
    // Over one that is there.
    client.upload(&id, path, Bytes::from_static(b"short")).await.unwrap();
    assert_eq!(said(&client, &id, &back("cat")).await, "short");
    test.be_old();
    client.pause(&id).await.unwrap();
    client.resume(&id).await.unwrap();
    client.upload(&id, path, Bytes::from(bytes)).await.unwrap();
    assert_eq!(said(&client, &id, &(back("cat") + " | sha256sum")).await, sum);
    assert_eq!(test.faults.count("/files/upload"), 4, "three, and one more that an old toolbox refused");
    assert!(test.faults.count("/toolbox-proxy-url") > 0, "it was asked for");
    nothing_was_violated(&test);
}

#[tokio::test]
async fn a_key_that_is_not_taken_is_told_without_it() {
    let Some((test, _)) = start().await else { return };
    let wrong = cloud(Config { api_key: Secret::new("dtn_wrong_and_secret"), ..config(&test) }).unwrap();
    let error = wrong.check().await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::Denied, Effect::None), "{error}");
    for text in [error.to_string(), format!("{wrong:?}")] {
        assert!(!text.contains("dtn_wrong"), "{text}");
    }
    assert_eq!(test.faults.count(""), 1, "asked once");
    assert_eq!(cloud(Config::new(Secret::new(""))).unwrap_err().trouble, Trouble::Denied);
}

#[tokio::test]
async fn what_it_can_not_give_is_refused_before_anything_is_made() {
    let Some((test, client)) = start().await else { return };
    for wish in [Wish { cpus: Some(2), ..wish("a") }, Wish { memory_bytes: Some(1 << 30), ..wish("a") }] {
        let error = client.create(&wish).await.unwrap_err();
        assert_eq!((error.trouble, error.effect), (Trouble::Unsupported, Effect::None), "{error}");
    }
    let other = Wish { template: Some("nobody/made:this".to_owned()), ..wish("a") };
    assert_eq!(client.create(&other).await.unwrap_err().trouble, Trouble::NotFound);
    assert_eq!(test.ids(), Vec::<String>::new());
    client.check().await.unwrap();
    let with = |snapshot: &str| cloud(Config { snapshot: Some(snapshot.to_owned()), ..config(&test) }).unwrap();
    assert_eq!(with("nobody/made:this").check().await.unwrap_err().trouble, Trouble::NotFound);
    assert!(with(SNAPSHOT).check().await.unwrap().iter().any(|note| note.contains(SNAPSHOT)));
    let closed = Wish { network: Some(false), template: Some(SNAPSHOT.to_owned()), ..wish("a") };
    client.create(&closed).await.unwrap();
    nothing_was_violated(&test);
}
