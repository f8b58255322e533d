//! A thread from another, and a thread on another provider.

use crate::rig::{Rig, wait_for};
use serde_json::{Value, json};

/// A thread with something in every part of its state, and a file in its workspace and home.
fn furnished() -> Rig {
    let rig = Rig::new();
    rig.exec(
        "a",
        "mkdir -p /workspace/d; cd /workspace/d; export A=1; f() { echo f$A; }; echo w > /workspace/w; echo h > ~/h",
    );
    rig
}

const LOOK: &str = "pwd; f; cat /workspace/w ~/h";
const SEEN: &str = "/workspace/d\nf1\nw\nh\n";

#[test]
fn a_fork_has_the_same_state_and_a_copy_of_the_files() {
    let rig = furnished();
    let a = rig.get("/api/threads/a").is(200);
    let b = rig.post("/api/threads/a/fork", &json!({ "id": "b", "workspace": "copy" })).is(201);
    assert_eq!((&b["id"], &b["provider"]), (&json!("b"), &a["provider"]));
    assert_ne!(b["lease_id"], a["lease_id"]);
    assert_eq!(rig.exec("b", LOOK)["stdout"], SEEN);
    rig.exec("b", "echo changed > /workspace/w; A=2; cd /");
    assert_eq!(rig.exec("a", LOOK)["stdout"], SEEN);
    rig.delete("/api/threads/a").is(204);
    assert_eq!(rig.exec("b", "cat /workspace/w; f")["stdout"], "changed\nf2\n");
}

#[test]
fn a_fork_that_shares_has_the_same_files_and_lease() {
    let rig = furnished();
    let a = rig.get("/api/threads/a").is(200);
    let b = rig.post("/api/threads/a/fork", &json!({ "workspace": "share" })).is(201);
    let id = b["id"].as_str().unwrap();
    assert!(id.starts_with("thr-") && b["lease_id"] == a["lease_id"], "{b}");
    assert_eq!(rig.exec(id, LOOK)["stdout"], SEEN);
    rig.exec(id, "echo changed > /workspace/w; A=2; cd /");
    assert_eq!(rig.exec("a", "pwd; f; cat /workspace/w")["stdout"], "/workspace/d\nf1\nchanged\n");
}

#[test]
fn a_fork_that_can_not_be_is_refused() {
    let rig = furnished();
    rig.post("/api/threads/a/fork", &json!({ "id": "a" })).fails(409, "already_exists");
    rig.post("/api/threads/nobody/fork", &json!({})).fails(404, "not_found");
    for body in [json!({ "workspace": "link" }), json!({ "id": "/" }), json!({ "of": "a" })] {
        rig.post("/api/threads/a/fork", &body).fails(400, "invalid_request");
    }
    assert_eq!(rig.get("/api/threads").is(200)["items"].as_array().unwrap().len(), 1);
}

#[test]
fn a_thread_moves_to_another_provider_and_back_with_everything() {
    let rig = furnished();
    let home = rig.get("/api/threads/a").is(200)["provider"].as_str().unwrap().to_owned();
    if home == "local" {
        println!("skipped: this machine has one provider only");
        return;
    }
    for provider in ["local", home.as_str()] {
        let lease = rig.post("/api/threads/a/move", &json!({ "provider": provider })).is(200);
        assert_eq!(lease["provider"], provider);
        assert_eq!(rig.get("/api/threads/a").is(200)["provider"], provider);
        let cat = if provider == "local" {
            "f; cat ../w ~/h; cd /workspace/d 2>/dev/null; true"
        } else {
            "f; cat /workspace/w ~/h"
        };
        assert_eq!(rig.exec("a", cat)["stdout"], "f1\nw\nh\n", "{provider}");
        assert_eq!(rig.get("/api/threads/a/terminal").is(200)["cwd"], "/workspace/d", "{provider}");
    }
    assert_eq!(rig.exec("a", LOOK)["stdout"], SEEN);
}

#[test]
fn nothing_moves_under_a_command_nor_to_where_nobody_is() {
    let rig = furnished();
    rig.post("/api/threads/a/move", &json!({ "provider": "nobody" })).fails(400, "invalid_request");
    rig.post("/api/threads/a/move", &json!({})).fails(400, "invalid_request");
    rig.post("/api/threads/nobody/move", &json!({ "provider": "local" })).fails(404, "not_found");
    let exec = json!({ "command": "read x", "stdin_open": true, "background": true, "id": "c" });
    rig.post("/api/threads/a/exec", &exec).is(202);
    wait_for("a running command", || (rig.get("/api/commands/c").is(200)["status"] == "running").then_some(()));
    let answer = rig.post("/api/threads/a/move", &json!({ "provider": "local" }));
    assert!(
        answer.status == 409 && ["conflict", "terminal_busy"].contains(&answer.code().as_str()),
        "{:?}",
        answer.json()
    );
    rig.call("POST", "/api/commands/c/stdin?eof=true", &[], b"x\n").is(204);
    wait_for("its end", || (rig.get("/api/commands/c").is(200)["status"] == "exited").then_some(()));
    assert_eq!(rig.exec("a", LOOK)["stdout"], SEEN);
    assert_eq!(rig.get("/api/threads/a/lease").is(200)["last_error"], Value::Null);
}
