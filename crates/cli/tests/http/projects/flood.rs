//! The WebSocket of a project and clients that don't behave: one that doesn't read, one that asks for too much at once,
//! one that sends what is no message.

use super::make;
use super::sessions::Client;
use crate::rig::{Rig, rounds, wait_for};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use tokio_tungstenite::tungstenite::Message;

/// 128 MiB of output.
#[test]
fn a_client_that_reads_nothing_costs_no_memory_and_loses_no_byte_and_others_go_on() {
    let rig = Rig::new();
    let (id, _) = make(&rig, &json!({ "prefix": "app" }));
    let mut slow = Client::new(&rig, &format!("/api/projects/{id}/ws?thread_id=slow"));
    let mut quick = Client::new(&rig, &format!("/api/projects/{id}/ws?thread_id=quick"));
    slow.hear("session", "");
    let lines = u64::from(rounds(2)) << 20;
    slow.say(&json!({ "op": "exec", "ref": "a", "command": format!("seq -f '%063.0f' 1 {lines}"), "id": "flood" }));
    let (mut most, mut served) = (0, 0);
    wait_for("the end of the command", || {
        served += 1;
        let reference = served.to_string();
        quick.say(&json!({ "op": "exec", "ref": reference, "command": "echo x" }));
        assert_eq!(quick.hear("stdout", &reference)["data"]["data"], "x\n");
        quick.hear("exit", &reference);
        most = most.max(rig.memory());
        let answer = rig.get("/api/commands/flood");
        (answer.status == 200 && answer.json()["status"] == "exited").then_some(())
    });
    println!("{served} commands of another meanwhile; the server had {most} KiB at most");
    assert!(most < 128 << 10, "{most} KiB for {lines} lines of 64 bytes");
    let (mut next, mut rest) = (1_u64, String::new());
    let whole = slow.each(|event| {
        if event["event"] != "stdout" {
            return event["event"] == "exit";
        }
        rest.push_str(event["data"]["data"].as_str().unwrap());
        let whole = rest.len() - rest.len() % 64;
        for line in rest[..whole].split_terminator('\n') {
            assert_eq!(line.trim_start_matches('0').parse(), Ok(next), "`{line}`");
            next += 1;
        }
        rest.drain(..whole);
        false
    });
    assert_eq!((next, rest.as_str(), &whole["data"]["stdout_bytes"]), (lines + 1, "", &json!(lines * 64)));
}

#[test]
fn what_is_more_than_one_connection_may_have_is_refused_and_the_rest_goes_on() {
    let rig = Rig::new();
    let (id, _) = make(&rig, &json!({ "prefix": "app" }));
    let path = format!("/api/projects/{id}/ws?thread_id=t");
    let mut client = Client::new(&rig, &path);
    for number in 0..70 {
        // The first stands in the way of the others, which wait for it.
        let command = if number == 0 { "until [ -e go ]; do sleep 0.02; done" } else { "true" };
        client.say(&json!({ "op": "exec", "ref": number.to_string(), "command": command }));
    }
    for number in 64..70 {
        let error = client.hear("error", &number.to_string());
        assert_eq!((&error["error"]["code"], &error["error"]["retryable"]), (&json!("limit_reached"), &json!(true)));
    }
    client.say(&json!({ "op": "ping", "ref": "p" }));
    assert_eq!(client.hear("error", "p")["error"]["code"], "limit_reached");
    // Another connection has its own.
    let mut other = Client::new(&rig, &path);
    other.say(&json!({ "op": "ping", "ref": "p" }));
    other.hear("pong", "p");
    rig.call("PUT", &format!("/api/projects/{id}/fs/workspace/go"), &[], b"").is(201);
    for number in 0..64 {
        assert_eq!(client.hear("exit", &number.to_string())["data"]["exit_code"], 0, "{number}");
    }
    let ran = rig.get("/api/threads/t/commands?limit=1000").is(200);
    let ids: BTreeSet<_> = ran["items"].as_array().unwrap().iter().map(|one| one["id"].to_string()).collect();
    assert_eq!(ids.len(), 64, "what was refused did not run");
    client.say(&json!({ "op": "exec", "ref": "again", "command": "echo on" }));
    assert_eq!(client.hear("stdout", "again")["data"]["data"], "on\n");
}

#[test]
fn a_client_that_sends_what_is_no_frame_is_let_go_and_the_server_stays() {
    let rig = Rig::new();
    let (id, _) = make(&rig, &json!({ "prefix": "app" }));
    let path = format!("/api/projects/{id}/ws?thread_id=t");
    let mut good = Client::new(&rig, &path);
    good.hear("session", "");
    let large = Message::Text("x".repeat((2 << 20) + 1).into());
    let frames: [&[u8]; 5] = [
        // A reserved opcode, a frame without a mask, text that is no UTF-8, a length of 2^63, a continuation of nothing.
        b"\x83\x80\0\0\0\0",
        b"\x81\x02{}",
        b"\x81\x82\0\0\0\0\xff\xfe",
        b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0x",
        b"\x80\x80\0\0\0\0",
    ];
    for frame in frames {
        let mut bad = Client::new(&rig, &path);
        bad.hear("session", "");
        let stream = bad.socket.get_mut();
        stream.write_all(frame).unwrap();
        // To its end, whatever is said before it.
        let ended = stream.read_to_end(&mut Vec::new());
        assert!(ended.is_ok_and(|said| said < 1024), "{frame:?}");
    }
    let mut bad = Client::new(&rig, &path);
    bad.hear("session", "");
    // It may be gone before all of it was sent.
    let _ = bad.socket.send(large);
    wait_for("its end", || bad.socket.read().is_err().then_some(()));
    let before = rig.memory();
    let mut half = Client::new(&rig, &path);
    half.hear("session", "");
    // A message that never ends, in pieces that are small enough each.
    let piece = [b"\x01\xfe\xff\xff\0\0\0\0".as_slice(), "x".repeat(65535).as_bytes()].concat();
    let more = [b"\x00\xfe\xff\xff\0\0\0\0".as_slice(), "x".repeat(65535).as_bytes()].concat();
    let stream = half.socket.get_mut();
    stream.write_all(&piece).unwrap();
    let sent = (0..4096).take_while(|_| stream.write_all(&more).is_ok()).count();
    assert!(sent < 4096, "all of 256 MiB was taken for one message");
    assert!(rig.memory() < before + (32 << 10), "{} KiB, before it {before}", rig.memory());
    good.say(&json!({ "op": "exec", "ref": "a", "command": "echo still here" }));
    assert_eq!(good.hear("stdout", "a")["data"]["data"], "still here\n");
    let sessions = rig.get(&format!("/api/projects/{id}")).is(200)["sessions"].clone();
    assert_eq!(sessions.as_array().map(Vec::len), Some(1), "{sessions}");
    assert_eq!(sessions[0]["close_reason"], Value::Null);
}
