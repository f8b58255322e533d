//! Speaking to programs.

use super::*;
use stead_clouds::{Channel, Condition};
use stead_testclouds::faults::Fault;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Everything until it ends, or why it broke off.
async fn all(channel: &mut Box<dyn Channel>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(LONG, channel.read_to_end(&mut bytes)).await.expect("it never ends");
    read.map(|_| bytes).map_err(|error| error.to_string())
}

/// Writes all of it and reads until it ends, at the same time.
async fn there_and_back(channel: Box<dyn Channel>, pieces: impl IntoIterator<Item = Bytes>) -> Vec<u8> {
    let (mut read, mut write) = tokio::io::split(channel);
    let writing = async {
        for piece in pieces {
            write.write_all(&piece).await.unwrap();
        }
        write.shutdown().await.unwrap();
    };
    let mut bytes = Vec::new();
    let both = async { tokio::join!(writing, read.read_to_end(&mut bytes)).1.map(drop) };
    tokio::time::timeout(LONG, both).await.expect("it never ends").unwrap();
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn every_byte_goes_there_and_comes_back() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    let bytes = noise(5 << 20);
    let channel = client.open(&id, "/bin/cat", &["-"]).await.unwrap();
    let back = there_and_back(channel, [bytes.clone()]).await;
    assert!(back == bytes, "{} bytes of {} came back, or others", back.len(), bytes.len());
    assert_eq!(cloud.programs(&id), Vec::<u32>::new());
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_small_writes_keep_their_order_and_go_together() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    let lines: Vec<_> = (0..5000).map(|number| Bytes::from(format!("{number}\n"))).collect();
    let channel = client.open(&id, "/bin/cat", &[]).await.unwrap();
    let back = there_and_back(channel, lines.clone()).await;
    assert_eq!(String::from_utf8(back).unwrap(), String::from_utf8(lines.concat()).unwrap());
    assert!(cloud.faults.count("SendInput") < lines.len() / 2, "{} calls", cloud.faults.count("SendInput"));
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_is_answered_before_more_is_said() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    let mut channel = client.open(&id, "/bin/cat", &[]).await.unwrap();
    for word in [&b"one"[..], b"\0\xff", b"three"] {
        channel.write_all(word).await.unwrap();
        let mut back = vec![0; word.len()];
        tokio::time::timeout(LONG, channel.read_exact(&mut back)).await.unwrap().unwrap();
        assert_eq!(back, word);
    }
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_fails_says_why() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    let mut failing = client.open(&id, "/bin/sh", &["-c", "echo some; echo oops >&2; exit 3"]).await.unwrap();
    let why = all(&mut failing).await.unwrap_err();
    assert!(why.contains("exit status 3") && why.contains("oops"), "{why}");
    let mut missing = client.open(&id, "/no/such/program", &[]).await.unwrap();
    let why = all(&mut missing).await.unwrap_err();
    assert!(why.contains("127") && why.contains("not found"), "{why}");
    let mut fine = client.open(&id, "/bin/sh", &["-c", "echo noise >&2; echo fine"]).await.unwrap();
    assert_eq!(all(&mut fine).await, Ok(b"fine\n".to_vec()));
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_stops_listening_is_heard_to_its_end() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    for _ in 0..5 {
        let channel = client.open(&id, "/usr/bin/head", &["-c", "5"]).await.unwrap();
        let (mut read, mut write) = tokio::io::split(channel);
        let (too_much, mut back) = (noise(2 << 20), Vec::new());
        let both = async { tokio::join!(write.write_all(&too_much), read.read_to_end(&mut back)) };
        let (written, read) = tokio::time::timeout(LONG, both).await.unwrap();
        assert_eq!(written.map_err(|error| error.kind()), Err(std::io::ErrorKind::BrokenPipe));
        read.unwrap();
        assert_eq!(back, noise(5));
    }
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_ends_with_its_channel() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    // It would neither notice that its input ends nor that nobody reads.
    let deaf = client.open(&id, "/bin/sh", &["-c", "exec sleep 1000"]).await.unwrap();
    assert_eq!(cloud.programs(&id).len(), 1);
    drop(deaf);
    until("ended", async || cloud.programs(&id).is_empty()).await;

    for fault in [Fault::Cut(50), Fault::Cut(70)] {
        cloud.faults.plan("Process/Start", fault);
        let mut cut = client.open(&id, "/bin/sh", &["-c", "echo first; exec sleep 1000"]).await.unwrap();
        let why = all(&mut cut).await.unwrap_err();
        assert!(why.contains("can't start a program"), "{why}");
        until("ended", async || cloud.programs(&id).is_empty()).await;
    }
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn input_is_tried_again_when_it_was_refused_and_never_when_it_may_have_been_taken() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    cloud.faults.plan("SendInput", Fault::Refuse(429));
    let channel = client.open(&id, "/bin/cat", &[]).await.unwrap();
    assert_eq!(there_and_back(channel, [Bytes::from_static(b"once")]).await, b"once");

    for fault in [Fault::AfterSuccess(500), Fault::AfterSuccess(503), Fault::Cut(0)] {
        let before = cloud.faults.count("SendInput");
        cloud.faults.plan("SendInput", fault.clone());
        let mut channel = client.open(&id, "/bin/sh", &["-c", "exec cat >> taken"]).await.unwrap();
        channel.write_all(b"x").await.unwrap();
        let why = all(&mut channel).await.unwrap_err();
        assert!(why.contains("can't speak to a program"), "{fault:?}: {why}");
        assert_eq!(cloud.faults.count("SendInput") - before, 1, "{fault:?}");
        assert!(channel.write_all(b"more").await.is_err(), "{fault:?}");
    }
    until("ended", async || cloud.programs(&id).is_empty()).await;
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_breaks_what_is_open_and_nothing_stays_behind_after_it() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    let mut open = client.open(&id, "/bin/cat", &[]).await.unwrap();
    open.write_all(b"before").await.unwrap();
    let mut back = [0; 6];
    tokio::time::timeout(LONG, open.read_exact(&mut back)).await.unwrap().unwrap();
    client.pause(&id).await.unwrap();
    let why = all(&mut open).await.unwrap_err();
    assert!(!why.is_empty());
    assert_eq!(client.look(&id).await.unwrap(), Condition::Paused);
    assert_eq!(cloud.programs(&id).len(), 1);
    // The one who would end it has given up by then.
    until("given up", async || cloud.faults.count("SendSignal") > 0).await;
    assert_eq!(cloud.faults.count("/connect"), 0);

    client.resume(&id).await.unwrap();
    let channel = client.open(&id, "/bin/cat", &[]).await.unwrap();
    assert_eq!(there_and_back(channel, [Bytes::from_static(b"after")]).await, b"after");
    until("ended", async || {
        // What could not be ended while it slept is ended when the next one starts.
        drop(client.open(&id, "/bin/true", &[]).await.unwrap());
        cloud.programs(&id).is_empty()
    })
    .await;
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_is_no_end_while_there_are_signs_of_life_and_is_one_without() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    // Longer than silence may last.
    let mut quiet = client.open(&id, "/bin/sh", &["-c", "sleep 5; echo here"]).await.unwrap();
    assert_eq!(all(&mut quiet).await, Ok(b"here\n".to_vec()));

    let mut lost = client.open(&id, "/bin/cat", &[]).await.unwrap();
    cloud.mute(&id);
    let why = all(&mut lost).await.unwrap_err();
    assert!(why.contains("no sign of life"), "{why}");
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_nobody_reads_holds_up_itself_alone() {
    let Some((cloud, client)) = start().await else { return };
    let id = client.create(&wish("one")).await.unwrap();
    let mut held_up = Vec::new();
    for _ in 0..5 {
        held_up.push(client.open(&id, "/bin/sh", &["-c", "head -c 20000000 /dev/zero; echo end"]).await.unwrap());
    }
    let channel = client.open(&id, "/bin/cat", &[]).await.unwrap();
    assert_eq!(there_and_back(channel, [noise(1 << 20)]).await, noise(1 << 20));
    let bytes = all(&mut held_up[0]).await.unwrap();
    assert_eq!((bytes.len(), bytes.ends_with(b"\0end\n")), (20_000_004, true));
    drop(held_up);
    until("ended", async || cloud.programs(&id).is_empty()).await;
    assert_proper(&cloud);
}

#[tokio::test(flavor = "multi_thread")]
async fn channels_to_two_sandboxes_don_t_mix() {
    let Some((cloud, client)) = start().await else { return };
    let mut channels = Vec::new();
    for name in ["one", "two"] {
        let id = client.create(&wish(name)).await.unwrap();
        said(&client, &id, &format!("echo {name} > name")).await;
        channels.push((name, client.open(&id, "/bin/sh", &["-c", "cat name; cat"]).await.unwrap()));
    }
    for (name, channel) in channels {
        let back = there_and_back(channel, [Bytes::from(format!("to {name}"))]).await;
        assert_eq!(String::from_utf8(back).unwrap(), format!("{name}\nto {name}"));
    }
    assert_proper(&cloud);
}
