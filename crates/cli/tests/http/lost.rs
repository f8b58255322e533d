//! An instance that dies under a command: everybody who waits for it is told, in whatever way they wait.

use crate::rig::{Rig, Sse, wait_for};
use serde_json::{Value, json};
use std::time::Duration;
use stead_term::tree::Tree;

const COMMAND: &str = "echo before; sleep 1000";

/// Kills every process of a thread's instance, at once.
fn kill_instance(rig: &Rig, thread: &str) {
    let lease = rig.get(&format!("/api/threads/{thread}/lease")).is(200);
    let pid = &lease["instance"]["metadata"]["pid"];
    let pid = pid.as_str().and_then(|pid| pid.parse().ok()).unwrap_or_else(|| panic!("{lease}"));
    let start_time = stead_term::proc::stat(pid).unwrap().start_time;
    Tree::of(pid, start_time).kill(Duration::from_secs(20)).unwrap();
}

fn wait_for_output(rig: &Rig, command: &str) {
    wait_for("output", || {
        let path = format!("/api/commands/{command}/output/stdout");
        (rig.get(&path).body == b"before\n").then_some(())
    });
}

#[test]
fn whoever_follows_a_command_whose_instance_dies_hears_that_it_is_lost() {
    let rig = Rig::new();
    let exec = json!({ "command": COMMAND, "id": "c" });
    std::thread::scope(|scope| {
        let first = scope.spawn(|| rig.events("POST", "/api/threads/t/exec", &exec).collect::<Vec<Sse>>());
        wait_for("the command", || (rig.get("/api/commands/c").status == 200).then_some(()));
        wait_for_output(&rig, "c");
        let followers: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| rig.events("GET", "/api/commands/c/events", &Value::Null).collect::<Vec<Sse>>()))
            .collect();
        let waiter = scope.spawn(|| rig.post("/api/threads/t/exec", &exec));
        let raw = scope.spawn(|| rig.get("/api/commands/c/output/stdout?follow=true").body);
        kill_instance(&rig, "t");
        for follower in std::iter::once(first).chain(followers) {
            let events = follower.join().unwrap();
            let last = events.last().unwrap();
            assert_eq!((last.event.as_str(), &last.data["status"]), ("exit", &json!("lost")), "{events:?}");
            let ids: Vec<_> = events.iter().map(|event| event.id.unwrap()).collect();
            assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>(), "{events:?}");
        }
        let answer = waiter.join().unwrap().is(200);
        assert_eq!((&answer["status"], &answer["exit_code"]), (&json!("lost"), &Value::Null));
        assert_eq!(raw.join().unwrap(), b"before\n");
    });
    assert_eq!(rig.get("/api/commands/c").is(200)["status"], "lost");
    assert_eq!(rig.get("/api/commands/c/output/stdout").body, b"before\n");
    assert_eq!(rig.exec("t", "echo on")["stdout"], "on\n");
}

#[test]
fn a_background_command_whose_instance_died_is_found_lost() {
    let rig = Rig::new();
    rig.post("/api/threads/t/exec", &json!({ "command": COMMAND, "id": "c", "background": true })).is(202);
    wait_for_output(&rig, "c");
    kill_instance(&rig, "t");
    let events: Vec<Sse> = rig.events("GET", "/api/commands/c/events", &Value::Null).collect();
    assert_eq!(events.last().unwrap().data["status"], "lost", "{events:?}");
    assert_eq!(rig.get("/api/commands/c/output/stdout").body, b"before\n");
}
