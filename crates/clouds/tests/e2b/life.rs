//! The life of sandboxes.

use super::*;
use stead_clouds::{Condition, Effect, Trouble};

#[tokio::test(flavor = "multi_thread")]
async fn labels_make_one_sandbox_and_find_it_again() {
    let Some((cloud, client)) = start().await else { return };
    let one = client.create(&wish("one")).await.unwrap();
    assert_eq!(client.create(&wish("one")).await.unwrap(), one);
    let two = client.create(&wish("two")).await.unwrap();
    assert_ne!(one, two);
    assert_eq!(cloud.faults.count("POST /sandboxes"), 2);

    // Labels that all of them have make another one: it is not one of them.
    let bare = Wish { labels: labels(&[("stead", "s1")]), ..Wish::default() };
    let bare = client.create(&bare).await.unwrap();
    assert!(bare != one && bare != two);

    cloud.set_page(1);
    let mut found: Vec<_> = client.list(&labels(&[("stead", "s1")])).await.unwrap();
    found.sort_by_key(|listed| listed.labels.get("name").cloned());
    assert_eq!(found.iter().map(|listed| listed.id.as_str()).collect::<Vec<_>>(), [&bare, &one, &two]);
    assert_eq!(found[1].labels, wish("one").labels);
    assert_eq!(client.list(&labels(&[("stead", "s2")])).await.unwrap(), []);
    assert_eq!(client.list(&BTreeMap::new()).await.unwrap().len(), 3);

    client.destroy(&one).await.unwrap();
    client.destroy(&one).await.unwrap();
    assert_eq!(client.look(&one).await.unwrap(), Condition::Gone);
    assert_eq!(client.look(&two).await.unwrap(), Condition::Running);
    assert_eq!(client.run(&one, "true", LONG).await.unwrap_err().trouble, Trouble::NotFound);
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_may_have_any_characters() {
    let Some((cloud, client)) = start().await else { return };
    let strange = Wish { labels: labels(&[("a b&c=d", "50% + ü/é?"), ("e", "")]), ..Wish::default() };
    let id = client.create(&strange).await.unwrap();
    assert_eq!(client.create(&strange).await.unwrap(), id);
    let found = client.list(&labels(&[("a b&c=d", "50% + ü/é?")])).await.unwrap();
    assert_eq!(found.into_iter().map(|listed| listed.labels).collect::<Vec<_>>(), [strange.labels]);
    assert_eq!(client.list(&labels(&[("a b&c=d", "50%")])).await.unwrap(), []);
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_sleeps_wakes_when_it_is_told_to_and_never_before() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    said(&client, &id, "echo kept > kept; (while :; do echo x >> ticks; sleep 0.05; done) > /dev/null 2>&1 &").await;
    until("ticking", async || said(&client, &id, "cat ticks").await.len() > 4).await;
    client.pause(&id).await.unwrap();
    client.pause(&id).await.unwrap();

    for _ in 0..2 {
        assert_eq!(client.look(&id).await.unwrap(), Condition::Paused);
        let asleep = [
            client.run(&id, "true", LONG).await.unwrap_err(),
            client.open(&id, "cat", &[]).await.err().unwrap(),
            client.upload(&id, "/tmp/x", Bytes::new()).await.unwrap_err(),
            client.keep_awake(&id).await.unwrap_err(),
        ];
        for error in asleep {
            assert_eq!(error.trouble, Trouble::Conflict, "{error}");
            assert!(error.message.contains("it sleeps"), "{error}");
        }
    }
    assert_eq!(cloud.faults.count("/connect"), 0);

    client.resume(&id).await.unwrap();
    client.resume(&id).await.unwrap();
    assert_eq!(client.look(&id).await.unwrap(), Condition::Running);
    let ticks = said(&client, &id, "cat kept; cat ticks").await;
    assert!(ticks.starts_with("kept\nx"), "{ticks}");
    until("ticking on", async || said(&client, &id, "cat kept ticks").await.len() > ticks.len()).await;
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn asking_for_one_that_sleeps_wakes_it() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    client.pause(&id).await.unwrap();
    assert_eq!(client.create(&wish("one")).await.unwrap(), id);
    assert_eq!(said(&client, &id, "echo up").await, "up\n");
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_changed_behind_our_back_is_read_again() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    assert_eq!(said(&client, &id, "echo 1").await, "1\n");
    let other = super::client(&cloud, Duration::from_mins(5));
    other.pause(&id).await.unwrap();
    other.resume(&id).await.unwrap();
    assert_eq!(said(&client, &id, "echo 2 | tee -a ran").await, "2\n");
    assert_eq!(said(&client, &id, "cat ran").await, "2\n");
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_whose_time_is_over_sleeps_and_is_kept_awake_without_losing_time() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    let left = || cloud.time_left(&id).unwrap().as_secs();
    assert!((280..=300).contains(&left()), "{}", left());
    cloud.advance(Duration::from_secs(200)).await;
    client.keep_awake(&id).await.unwrap();
    assert!((280..=300).contains(&left()), "{}", left());

    // One who asks for less doesn't take any away, nor does one who wakes what is awake.
    let hasty = super::client(&cloud, Duration::from_secs(20));
    hasty.keep_awake(&id).await.unwrap();
    hasty.resume(&id).await.unwrap();
    assert!((250..=300).contains(&left()), "{}", left());
    // More than the cloud gives at once is what it gives.
    super::client(&cloud, Duration::from_hours(3)).keep_awake(&id).await.unwrap();
    assert!((3500..=3600).contains(&left()), "{}", left());

    cloud.advance(Duration::from_secs(3601)).await;
    assert_eq!(client.look(&id).await.unwrap(), Condition::Paused);
    client.resume(&id).await.unwrap();
    assert_eq!(said(&client, &id, "echo up").await, "up\n");
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_to_run_but_is_gone_is_not_believed() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    cloud.lose(&id);
    assert_eq!(client.look(&id).await.unwrap(), Condition::Unclear);
    for error in [client.run(&id, "true", LONG).await.unwrap_err(), client.open(&id, "cat", &[]).await.err().unwrap()] {
        assert_eq!(error.trouble, Trouble::Unavailable, "{error}");
        assert!(error.message.contains("said to run"), "{error}");
    }
    client.destroy(&id).await.unwrap();
    assert_eq!(client.look(&id).await.unwrap(), Condition::Gone);
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_run_is_heard_to_its_end() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&Wish { network: Some(false), ..wish("one") }).await.unwrap();
    let ran = client.run(&id, "echo out; echo err >&2; exit 3", LONG).await.unwrap();
    assert_eq!(ran, Ran { exit_code: 3, output: b"out\nerr\n".to_vec() });
    let much = client.run(&id, "head -c 3000000 /dev/zero", LONG).await.unwrap();
    assert_eq!((much.exit_code, much.output.len()), (0, 1 << 20));

    let error = client.run(&id, "kill -9 $$", LONG).await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::Unavailable, Effect::Unknown), "{error}");
    assert!(error.message.contains("signal: killed"), "{error}");

    let error = client.run(&id, "exec sleep 1000", Duration::from_secs(1)).await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::TimedOut, Effect::Unknown), "{error}");
    until("ended by the daemon", async || cloud.programs(&id).is_empty()).await;
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_measured() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    let measured = client.metrics(&id).await.unwrap();
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert_eq!(measured.memory_limit_bytes, Some(total << 10));
    assert_eq!(measured.cpu_percent, Some(1.5));
    assert!(measured.memory_used_bytes.is_some_and(|used| used > 0 && used < total << 10));
    assert!(measured.disk_used_bytes.is_some());
    assert_eq!(client.metrics("i0").await.unwrap_err().trouble, Trouble::NotFound);
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_t_be_had_is_said_and_no_key_with_it() {
    let Some((cloud, client)) = start().await else { return };
    assert!(client.check().await.unwrap()[0].contains("accepts the key"));
    let wrong = with_times(config(&cloud, "e2b_secretsecret"), TIMES).unwrap();
    let error = wrong.check().await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::Denied, Effect::None));
    assert!(!format!("{wrong:?} {error:?} {error}").contains("secretsecret"));

    let unknown = Wish { template: Some("nothing".to_owned()), ..wish("one") };
    let error = client.create(&unknown).await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::NotFound, Effect::None));
    assert!(error.message.contains("template 'nothing' not found"), "{error}");
    for wish in [Wish { cpus: Some(64), ..wish("one") }, Wish::default()] {
        assert_eq!(client.create(&wish).await.unwrap_err().trouble, Trouble::Unsupported);
    }
    assert_eq!(cloud.sandboxes(), Vec::<String>::new());
    assert_proper(&cloud);
}
