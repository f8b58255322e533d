use crate::{DEADLINE, nothing_was_violated, said, start, until, wish};
use std::time::Duration;
use stead_clouds::{Channel, Cloud, Trouble};
use stead_testclouds::faults::Fault;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Bytes of every value in every neighbourhood.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let all = 0..=255_u8;
    all.chain(std::iter::repeat_with(|| next().to_le_bytes()[3])).take(length).collect()
}

/// Sends all of it in pieces while it comes back. At most `ahead` pieces are on their way: the toolbox cuts off whoever is
/// 256 messages behind.
async fn there_and_back(channel: Box<dyn Channel>, bytes: &[u8], piece: usize, ahead: usize) -> Box<dyn Channel> {
    let (mut read, mut write) = tokio::io::split(channel);
    let allowed = tokio::sync::Semaphore::new(piece * ahead);
    let sending = async {
        for piece in bytes.chunks(piece) {
            allowed.acquire_many(piece.len().try_into().unwrap()).await.unwrap().forget();
            write.write_all(piece).await.unwrap();
        }
    };
    let mut back = Vec::new();
    let receiving = async {
        let mut buffer = vec![0; 64 << 10];
        while back.len() < bytes.len() {
            let length = read.read(&mut buffer).await.unwrap();
            assert_ne!(length, 0, "it ended after {} bytes", back.len());
            back.extend_from_slice(&buffer[..length]);
            allowed.add_permits(length);
        }
    };
    tokio::time::timeout(DEADLINE, async { tokio::join!(sending, receiving) }).await.expect("it comes back in time");
    let first = bytes.iter().zip(&back).position(|(sent, came)| sent != came);
    assert_eq!(first, None, "the first byte that differs");
    read.unsplit(write)
}

#[tokio::test]
async fn a_channel_carries_every_byte_both_ways() {
    let Some((test, client)) = start().await else { return };
    let id = client.create(&wish("a")).await.unwrap();
    let channel = client.open(&id, "cat", &[]).await.unwrap();
    let channel = there_and_back(channel, &noise(4 << 20), 50_000, 4).await;
    let mut channel = there_and_back(channel, &noise(5_000), 1, 200).await;
    channel.shutdown().await.unwrap();
    until("the terminal is deleted", async || test.terminals(&id) == 0).await;
    until("nothing runs", async || said(&client, &id, "pgrep -x cat | wc -l").await == "0\n").await;
    nothing_was_violated(&test);
}

#[tokio::test]
async fn a_program_has_its_arguments_and_its_complaints_go_nowhere() {
    let Some((test, client)) = start().await else { return };
    let id = client.create(&wish("a")).await.unwrap();
    let script = "echo no >&2; printf '%s|' \"$@\" \"$STEAD_CHANNEL\"; exec cat";
    let long = "x".repeat(20_000);
    let mut channel = client.open(&id, "sh", &["-c", script, "sh", "a b", "it's", "$HOME\n", &long]).await.unwrap();
    let expected = format!("a b|it's|$HOME\n|{long}||");
    let mut came = vec![0; expected.len()];
    channel.read_exact(&mut came).await.unwrap();
    assert_eq!(String::from_utf8(came).unwrap(), expected);
    there_and_back(channel, b"\x03\x04\x11\x13\x1a\x1c\r\n", 1, 9).await;
    nothing_was_violated(&test);
}

#[tokio::test]
async fn an_end_that_is_not_the_program_s_own_is_an_error() {
    let Some((test, client)) = start().await else { return };
    let id = client.create(&wish("a")).await.unwrap();
    // Each waits for a word: what is said just before an end may be lost with it, and that it began is said too.
    let mut ended = client.open(&id, "sh", &["-c", "head -c 1 > /dev/null"]).await.unwrap();
    ended.write_all(b"x").await.unwrap();
    assert_eq!(ended.read_to_end(&mut Vec::new()).await.unwrap(), 0, "a good end is an end");
    let mut failed = client.open(&id, "sh", &["-c", "head -c 1 > /dev/null; exit 3"]).await.unwrap();
    failed.write_all(b"x").await.unwrap();
    let error = failed.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert!(error.to_string().contains("\"exitCode\":3"), "{error}");
    // In the middle of what it says.
    test.faults.plan("/connect", Fault::Cut(200_000));
    let mut broken = client.open(&id, "sh", &["-c", "head -c 1000000 /dev/zero; cat"]).await.unwrap();
    let mut came = Vec::new();
    broken.read_to_end(&mut came).await.unwrap_err();
    assert!(came.len() < 1_000_000 && came.iter().all(|byte| *byte == 0), "{}", came.len());
    until("no terminal is left", async || test.terminals(&id) == 0).await;
    nothing_was_violated(&test);
}

#[tokio::test]
async fn a_stop_breaks_an_open_channel() {
    let Some((test, client)) = start().await else { return };
    let id = client.create(&wish("a")).await.unwrap();
    let channel = client.open(&id, "cat", &[]).await.unwrap();
    let mut channel = there_and_back(channel, b"still there", 3, 9).await;
    client.pause(&id).await.unwrap();
    let read = tokio::time::timeout(DEADLINE, channel.read(&mut [0; 10])).await.expect("it is told");
    read.unwrap_err();
    until("writing is over", async || channel.write_all(b"x").await.is_err()).await;
    client.resume(&id).await.unwrap();
    let channel = client.open(&id, "cat", &[]).await.unwrap();
    there_and_back(channel, b"again", 3, 9).await;
    nothing_was_violated(&test);
}

#[tokio::test]
async fn who_does_not_read_is_cut_off_and_told_so() {
    let Some((test, client)) = start().await else { return };
    let id = client.create(&wish("a")).await.unwrap();
    let mut channel = client.open(&id, "cat", &["/dev/zero"]).await.unwrap();
    // The program waits for nobody: most of what it says is lost.
    until("it is cut off", async || test.listeners(&id) == 0).await;
    let mut came = Vec::new();
    let reading = tokio::time::timeout(DEADLINE, channel.read_to_end(&mut came)).await.expect("it ends");
    reading.unwrap_err();
    until("the program is ended", async || test.terminals(&id) == 0).await;
    nothing_was_violated(&test);
}

#[tokio::test]
async fn what_was_begun_for_nobody_is_ended() {
    let Some((test, client)) = start().await else { return };
    let id = client.create(&wish("a")).await.unwrap();
    let missing = client.open(&id, "/opt/no such program", &[]).await.err().unwrap();
    assert_eq!(missing.trouble, Trouble::NotFound, "{missing}");
    for call in ["POST /toolbox", "/connect"] {
        test.faults.plan(&format!("{call}{}", if call == "/connect" { "" } else { "/" }), Fault::AfterSuccess(500));
        client.open(&id, "cat", &[]).await.err().unwrap();
    }
    let deleted = test.faults.count("DELETE /toolbox");
    // Whoever asked stops waiting while the terminal is being made.
    let waiting = tokio::time::timeout(Duration::from_millis(1), client.open(&id, "cat", &[])).await;
    drop(waiting);
    until("it is deleted", async || test.faults.count("DELETE /toolbox") > deleted).await;
    drop(client.open(&id, "cat", &[]).await.unwrap());
    until("no terminal is left", async || test.terminals(&id) == 0).await;
    until("nothing runs", async || said(&client, &id, "pgrep -x cat | wc -l").await == "0\n").await;
    nothing_was_violated(&test);
}
