//! Speaking to a program through a ferry.

use crate::rig::{Rig, STEWARD, Way, until, wish};
use std::time::Duration;
use stead_clouds::{Channel, Cloud, Effect};
use stead_steward::client::Client;
use stead_testclouds::agentbay::Switch;
use stead_testclouds::faults::Fault;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// For all of a test's bytes.
const PATIENCE: Duration = Duration::from_mins(2);

/// A program behind the steward's ferry: `env` runs it, so that any can be spoken to.
async fn open(rig: &Rig, id: &str, words: &[&str]) -> Box<dyn Channel> {
    rig.cloud.run(id, "mkdir -p /opt/stead/bin", Duration::from_secs(20)).await.unwrap();
    rig.cloud.upload(id, "/opt/stead/bin/either", either(words)).await.unwrap();
    rig.cloud.open(id, "/opt/stead/bin/either", words).await.unwrap()
}

/// The steward, when it is called as a ferry, and the program otherwise.
fn either(words: &[&str]) -> bytes::Bytes {
    let program = words.join(" ");
    format!("#!/bin/sh\ncase $1 in ferry) exec {STEWARD} \"$@\";; *) exec {program};; esac\n").into_bytes().into()
}

/// Every value, and no step of a piece.
fn all_values(count: usize) -> Vec<u8> {
    (0..count).map(|n| u8::try_from((n * 13 + n / 255) % 256).unwrap()).collect()
}

/// Sends and reads back until the end.
async fn there_and_back(channel: Box<dyn Channel>, sent: &[u8], piece: usize) -> Vec<u8> {
    let (mut reader, mut writer) = tokio::io::split(channel);
    let mut back = Vec::new();
    let writing = async {
        for piece in sent.chunks(piece) {
            writer.write_all(piece).await.unwrap();
        }
        writer.shutdown().await.unwrap();
    };
    let carried = async { tokio::join!(writing, reader.read_to_end(&mut back)) };
    tokio::time::timeout(PATIENCE, carried).await.expect("it comes to an end").1.unwrap();
    back
}

fn assert_same(back: &[u8], sent: &[u8]) {
    assert!(back == sent, "{} of {} bytes, or others", back.len(), sent.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mebibyte_goes_there_and_back_by_a_link() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let Some(id) = rig.with_steward("one").await else { return };
    let sent = all_values((1 << 20) + 3);
    let channel = open(&rig, &id, &["cat"]).await;
    assert_same(&there_and_back(channel, &sent, 64 << 10).await, &sent);
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mebibyte_goes_there_and_back_by_the_front_door() {
    let Some(mut rig) = Rig::start(Way::Link).await else { return };
    let Some(id) = rig.with_steward("one").await else { return };
    rig.bay.switch(Switch::Links, false);
    rig.cloud = rig.another(|_| {});
    let sent = all_values((1 << 20) + 3);
    let channel = open(&rig, &id, &["cat"]).await;
    assert_same(&there_and_back(channel, &sent, 64 << 10).await, &sent);
    assert!(rig.bay.faults.count("CallMcpTool/shell") > 40);
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_small_writes_arrive_in_their_order() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let Some(id) = rig.with_steward("one").await else { return };
    let sent = all_values(20_000);
    let channel = open(&rig, &id, &["cat"]).await;
    assert_same(&there_and_back(channel, &sent, 7).await, &sent);
    assert!(rig.bay.faults.count("ferry put") < 200, "they go together");
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_break_nothing() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let Some(id) = rig.with_steward("one").await else { return };
    let sent = all_values(400_000);
    let faults = [
        Fault::AfterSuccess(500),
        Fault::Cut(0),
        Fault::Cut(2000),
        Fault::Nonsense,
        Fault::Refuse(503),
        Fault::Refuse(429),
    ];
    rig.bay.faults.plan("ferry open", Fault::AfterSuccess(500));
    let channel = open(&rig, &id, &["cat"]).await;
    for fault in faults {
        rig.bay.faults.plan("ferry take", fault.clone());
        rig.bay.faults.plan("ferry put", fault);
    }
    // After each has gone wrong in a row, some more in the middle.
    let again = async {
        for _ in 0..3 {
            until("all of them have happened", async || rig.bay.faults.are_over()).await;
            rig.bay.faults.plan("ferry put", Fault::AfterSuccess(502));
            rig.bay.faults.plan("ferry take", Fault::Cut(100));
        }
        std::future::pending().await
    };
    let back = tokio::select! {
        back = there_and_back(channel, &sent, 5000) => back,
        never = again => never,
    };
    assert_same(&back, &sent);
    assert_eq!(rig.bay.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_speaks_first_and_answers_is_heard_at_once() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let Some(id) = rig.with_steward("one").await else { return };
    let script = "sh -c 'echo hello; while read line; do echo \"got $line\"; done; echo bye'";
    let mut channel = open(&rig, &id, &[script]).await;
    let mut buffer = [0; 100];
    for (say, hear) in [("", "hello\n"), ("one\n", "got one\n"), ("two\n", "got two\n")] {
        channel.write_all(say.as_bytes()).await.unwrap();
        let count = tokio::time::timeout(PATIENCE, channel.read(&mut buffer)).await.unwrap().unwrap();
        assert_eq!(std::str::from_utf8(&buffer[..count]).unwrap(), hear);
    }
    // Once it is known that both ways go at once, a take waits long.
    until("takes wait long", async || {
        channel.write_all(b"more\n").await.unwrap();
        let count = channel.read(&mut buffer).await.unwrap();
        assert_eq!(std::str::from_utf8(&buffer[..count]).unwrap(), "got more\n");
        rig.says(&id, "sleep 0.5").await;
        rig.bay.faults.count("--wait 40000 --most") > 0
    })
    .await;
    channel.shutdown().await.unwrap();
    let mut rest = String::new();
    channel.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "bye\n");
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_does_one_thing_after_the_other_is_not_kept_from_input() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let Some(id) = rig.with_steward("one").await else { return };
    rig.bay.switch(Switch::OneAtATime, true);
    let mut channel = open(&rig, &id, &["cat"]).await;
    let mut buffer = [0; 5];
    for word in ["one 1", "two 2", "three", "four "] {
        // The take that waits now has the session for itself.
        let takes = rig.bay.faults.count("ferry take");
        until("it waits", async || rig.bay.faults.count("ferry take") > takes).await;
        channel.write_all(word.as_bytes()).await.unwrap();
        tokio::time::timeout(PATIENCE, channel.read_exact(&mut buffer)).await.unwrap().unwrap();
        assert_eq!(buffer, word.as_bytes());
    }
    assert_eq!(rig.bay.faults.count("--wait 40000 --most"), 0);
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_s_end_is_the_channel_s() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let Some(id) = rig.with_steward("one").await else { return };
    let mut channel = open(&rig, &id, &["printf last"]).await;
    let mut all = Vec::new();
    channel.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"last");
    until("writing fails", async || channel.write_all(b"more").await.is_err()).await;
    let no_ferry = "ls -A /tmp | grep -c stead-ferry || true";
    until("the ferry is gone", async || rig.says(&id, no_ferry).await == "0\n").await;
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_is_dropped_lets_go_of_its_program() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let Some(id) = rig.with_steward("one").await else { return };
    let mut channel = open(&rig, &id, &["sh -c 'echo $$; exec cat'"]).await;
    let mut buffer = [0; 20];
    let count = channel.read(&mut buffer).await.unwrap();
    let pid = std::str::from_utf8(&buffer[..count]).unwrap().trim().to_owned();
    drop(channel);
    let script = format!("kill -0 {pid} 2>/dev/null && echo lives || ls -A /tmp | grep stead-ferry || echo gone");
    until("the program ends", async || rig.says(&id, &script).await == "gone\n").await;
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_breaks_the_channel_and_not_the_session() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let Some(id) = rig.with_steward("one").await else { return };
    let mut channel = open(&rig, &id, &["cat"]).await;
    channel.write_all(b"x").await.unwrap();
    let mut byte = [0];
    channel.read_exact(&mut byte).await.unwrap();
    rig.cloud.pause(&id).await.unwrap();
    let error = tokio::time::timeout(PATIENCE, channel.read(&mut byte)).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("speak to a program"), "{error}");
    assert_eq!(rig.bay.faults.count("ResumeSessionAsync"), 0);
    rig.cloud.resume(&id).await.unwrap();
    let sent = all_values(1000);
    let channel = open(&rig, &id, &["cat"]).await;
    assert_same(&there_and_back(channel, &sent, 1000).await, &sent);
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_goes_breaks_the_channel() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let Some(id) = rig.with_steward("one").await else { return };
    let mut channel = open(&rig, &id, &["cat"]).await;
    rig.bay.lose(&id);
    let mut byte = [0];
    let error = tokio::time::timeout(PATIENCE, channel.read(&mut byte)).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("speak to a program"), "{error}");
    until("writing fails", async || channel.write_all(b"more").await.is_err()).await;
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_steward_inside_is_spoken_to() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let Some(id) = rig.with_steward("one").await else { return };
    assert_eq!(rig.says(&id, &format!("{STEWARD} start --dir /opt/place")).await, "started\n");
    let mut channel = rig.cloud.open(&id, STEWARD, &["connect", "--dir", "/opt/place"]).await.unwrap();
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    let mut far = tokio::net::UnixStream::from_std(far).unwrap();
    let speaking = tokio::task::spawn_blocking(move || {
        let read = near.try_clone().unwrap();
        let client = Client::over(Box::new(read), Box::new(near), "test").unwrap();
        client.welcome().pid
    });
    let carried = tokio::time::timeout(PATIENCE, tokio::io::copy_bidirectional(&mut channel, &mut far));
    let (carried, pid) = tokio::join!(carried, speaking);
    carried.expect("it comes to an end").unwrap();
    let said = rig.says(&id, &format!("{STEWARD} status --dir /opt/place")).await;
    assert!(said.contains(&format!("running as {} ", pid.unwrap())), "{said}");
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_steward_that_is_not_there_is_told_of() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let id = rig.cloud.create(&wish("one")).await.unwrap();
    let Err(error) = rig.cloud.open(&id, "/nowhere/steward", &["connect"]).await else { panic!("it opened") };
    assert!(error.message.contains("127") && error.effect == Effect::Unknown, "{error}");
    rig.assert_clean();
}
