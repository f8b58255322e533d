//! Terminals: their state, its versions, going back, and more of them.

use crate::rig::{Rig, is_time, keys, wait_for};
use serde_json::{Value, json};

fn terminal(rig: &Rig, thread: &str) -> Value {
    rig.get(&format!("/api/threads/{thread}/terminal")).is(200)
}

fn states(rig: &Rig, terminal: &Value) -> Vec<u64> {
    let list = rig.get(&format!("/api/terminals/{}/states", terminal["terminal_id"].as_str().unwrap())).is(200);
    list["items"].as_array().unwrap().iter().map(|state| state["version"].as_u64().unwrap()).collect()
}

fn restore(rig: &Rig, terminal: &Value, version: u64) -> crate::rig::Answer {
    let path = format!("/api/terminals/{}/restore", terminal["terminal_id"].as_str().unwrap());
    rig.post(&path, &json!({ "version": version }))
}

#[test]
fn a_terminal_is_shown_with_every_field() {
    let rig = Rig::new();
    let thread = rig.post("/api/threads", &json!({ "id": "t" })).is(201);
    let fresh = terminal(&rig, "t");
    let fields = [
        "aliases",
        "created_at",
        "cwd",
        "env_delta",
        "functions",
        "lease_id",
        "name",
        "options",
        "terminal_id",
        "thread_id",
        "umask",
        "updated_at",
        "version",
    ];
    assert_eq!(keys(&fresh), fields);
    assert_eq!(
        (&fresh["version"], &fresh["cwd"], &fresh["name"]),
        (&json!(0), &json!("/workspace"), &json!("default"))
    );
    assert_eq!((&fresh["terminal_id"], &fresh["lease_id"]), (&thread["default_terminal_id"], &thread["lease_id"]));
    rig.exec(
        "t",
        "cd /usr; export A=1; unset HOME; f() { :; }; shopt -s expand_aliases; alias ll='ls -l'; set -f; umask 077",
    );
    let seen = terminal(&rig, "t");
    assert_eq!((&seen["cwd"], &seen["umask"], &seen["version"]), (&json!("/usr"), &json!("0077"), &json!(1)));
    assert_eq!((&seen["env_delta"]["A"], &seen["functions"]), (&json!("1"), &json!(["f"])));
    assert_eq!(seen["env_delta"].get("HOME"), Some(&Value::Null), "{seen}");
    assert_eq!((&seen["aliases"]["ll"], &seen["options"]["noglob"]), (&json!("ls -l"), &json!(true)));
    is_time(&seen["created_at"]);
    is_time(&seen["updated_at"]);
    assert_eq!(rig.get("/api/threads/t/terminal?terminal=default").is(200), seen);
    rig.get("/api/threads/t/terminal?terminal=other").fails(404, "not_found");
    rig.get("/api/threads/t/terminal?name=default").fails(400, "invalid_request");
}

#[test]
fn the_version_grows_by_one_with_each_command_and_states_are_kept_where_it_changed() {
    let rig = Rig::new();
    for (command, version) in [("export A=1", 1), ("true", 2), ("false", 3), ("cd /usr", 4), ("echo x", 5)] {
        let answer = rig.exec("t", command);
        assert_eq!(answer["state_version"], json!(version), "{command}");
        assert_eq!(terminal(&rig, "t")["version"], json!(version), "{command}");
    }
    assert_eq!(states(&rig, &terminal(&rig, "t")), [4, 1, 0]);
}

#[test]
fn a_version_is_restored_in_the_live_shell_as_a_new_one() {
    let rig = Rig::new();
    rig.exec("t", "cd /usr; A=1; f() { echo f; }");
    rig.exec("t", "cd /tmp; A=2; unset -f f; B=2");
    let back = restore(&rig, &terminal(&rig, "t"), 1).is(200);
    assert_eq!((&back["version"], &back["cwd"]), (&json!(3), &json!("/usr")));
    assert_eq!(rig.exec("t", "pwd; echo $A ${B-unset}; f")["stdout"], "/usr\n1 unset\nf\n");
    assert_eq!(states(&rig, &terminal(&rig, "t")), [3, 2, 1, 0]);
    restore(&rig, &terminal(&rig, "t"), 99).fails(404, "not_found");
    rig.post("/api/terminals/term-0123456789ab/restore", &json!({ "version": 1 })).fails(404, "not_found");
    let path = format!("/api/terminals/{}/restore", back["terminal_id"].as_str().unwrap());
    for body in [json!({}), json!({ "version": -1 }), json!({ "version": "1" }), json!({ "version": 1, "x": 1 })] {
        rig.post(&path, &body).fails(400, "invalid_request");
    }
    assert_eq!(terminal(&rig, "t")["version"], json!(4));
}

#[test]
fn nothing_is_restored_under_a_running_command() {
    let rig = Rig::new();
    rig.exec("t", "A=1");
    let exec = json!({ "command": "read x", "background": true, "stdin_open": true, "id": "c" });
    rig.post("/api/threads/t/exec", &exec).is(202);
    wait_for("a running command", || (rig.get("/api/commands/c").is(200)["status"] == "running").then_some(()));
    let error = restore(&rig, &terminal(&rig, "t"), 1).fails(409, "terminal_busy");
    assert_eq!(error["retryable"], true);
    rig.call("POST", "/api/commands/c/stdin?eof=true", &[], b"x\n").is(204);
    wait_for("its end", || (rig.get("/api/commands/c").is(200)["status"] == "exited").then_some(()));
    restore(&rig, &terminal(&rig, "t"), 1).is(200);
}

#[test]
fn a_busy_terminal_refuses_who_would_not_wait() {
    let rig = Rig::new();
    let exec = json!({ "command": "read x", "background": true, "stdin_open": true, "id": "c" });
    rig.post("/api/threads/t/exec", &exec).is(202);
    wait_for("a running command", || (rig.get("/api/commands/c").is(200)["status"] == "running").then_some(()));
    rig.post("/api/threads/t/exec", &json!({ "command": "true", "if_busy": "reject" })).fails(409, "terminal_busy");
    // Sixty-four may wait.
    for number in 0..64 {
        let queued = json!({ "command": "true", "background": true, "id": format!("q{number}") });
        let answer = rig.post("/api/threads/t/exec", &queued).is(202);
        assert_eq!(answer["status"], "queued", "{number}");
    }
    let full = rig.post("/api/threads/t/exec", &json!({ "command": "true", "background": true }));
    full.fails(429, "limit_reached");
    assert!(full.header("retry-after").is_some());
    rig.call("POST", "/api/commands/c/stdin?eof=true", &[], b"x\n").is(204);
    wait_for("the last of them", || (rig.get("/api/commands/q63").is(200)["status"] == "exited").then_some(()));
}

#[test]
fn terminals_of_a_thread_share_files_and_nothing_else() {
    let rig = Rig::new();
    rig.exec("t", "cd /usr; export A=1; echo x > /workspace/f");
    let made =
        rig.post("/api/threads/t/terminals", &json!({ "name": "two", "cwd": "/tmp", "env": { "B": "2" } })).is(201);
    assert_eq!((&made["name"], &made["thread_id"], &made["version"]), (&json!("two"), &json!("t"), &json!(0)));
    let exec = json!({ "command": "pwd; echo ${A-unset} $B; cat /workspace/f", "terminal": "two" });
    assert_eq!(rig.post("/api/threads/t/exec", &exec).is(200)["stdout"], "/tmp\nunset 2\nx\n");
    assert_eq!(rig.exec("t", "pwd")["stdout"], "/usr\n");
    let list = rig.get("/api/threads/t/terminals").is(200);
    let names: Vec<&str> = list["items"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.len() == 2 && names.contains(&"two") && names.contains(&"default"), "{names:?}");
    let lease = rig.get("/api/threads/t/lease").is(200);
    assert_eq!(lease["terminals"].as_array().unwrap().len(), 2);
    rig.post("/api/threads/t/exec", &json!({ "command": "true", "terminal": "three" })).fails(404, "not_found");
    assert_eq!(rig.get("/api/threads/t/terminal?terminal=two").is(200)["terminal_id"], made["terminal_id"]);
}

#[test]
fn terminals_that_can_not_be_are_refused() {
    let rig = Rig::new();
    rig.post("/api/threads", &json!({ "id": "t" })).is(201);
    let path = "/api/threads/t/terminals";
    let long = "x".repeat(65);
    for name in ["", "-a", "a b", "a/b", "é", long.as_str()] {
        rig.post(path, &json!({ "name": name })).fails(400, "invalid_request");
    }
    rig.post(path, &json!({})).fails(400, "invalid_request");
    rig.post(path, &json!({ "name": "a", "env": { "1": "x" } })).fails(400, "invalid_env_name");
    rig.post(path, &json!({ "name": "a", "cwd": "relative" })).fails(400, "invalid_path");
    rig.post(path, &json!({ "name": "default" })).fails(409, "already_exists");
    rig.post("/api/threads/nobody/terminals", &json!({ "name": "a" })).fails(404, "not_found");
    assert_eq!(rig.get(path).is(200)["items"].as_array().unwrap().len(), 1);
}

#[test]
fn a_terminal_is_removed_with_what_runs_in_it_but_never_the_default_one() {
    let rig = Rig::new();
    rig.exec("t", "true");
    let two = rig.post("/api/threads/t/terminals", &json!({ "name": "two" })).is(201);
    let exec = json!({ "command": "sleep 1000", "terminal": "two", "background": true, "id": "c" });
    rig.post("/api/threads/t/exec", &exec).is(202);
    let path = format!("/api/terminals/{}", two["terminal_id"].as_str().unwrap());
    for _ in 0..2 {
        rig.delete(&path).is(204);
    }
    rig.get("/api/threads/t/terminal?terminal=two").fails(404, "not_found");
    let ps = rig.exec("t", "pgrep -x sleep || echo none")["stdout"].clone();
    assert_eq!(ps, "none\n");
    let default = terminal(&rig, "t")["terminal_id"].as_str().unwrap().to_owned();
    rig.delete(&format!("/api/terminals/{default}")).fails(409, "conflict");
    rig.post("/api/threads/t/terminals", &json!({ "name": "two" })).is(201);
}

#[test]
fn three_hundred_terminals_of_one_thread_run_and_are_read_at_the_same_time() {
    let rig = Rig::new();
    let first = rig.exec("t", "echo first")["id"].as_str().unwrap().to_owned();
    for n in 0..300 {
        rig.post("/api/threads/t/terminals", &json!({ "name": format!("n{n}") })).is(201);
        let request = json!({ "command": format!("echo {n}"), "terminal": format!("n{n}") });
        let answer = rig.post("/api/threads/t/exec", &request).is(200);
        assert_eq!((&answer["status"], &answer["stdout"]), (&json!("exited"), &json!(format!("{n}\n"))), "{answer}");
    }
    // Each has a live shell and a connection of its own; what was there before is still told.
    let events = rig.get(&format!("/api/commands/{first}/events"));
    assert!(String::from_utf8_lossy(&events.body).contains("first"), "{events:?}");
    assert_eq!(rig.get(&format!("/api/commands/{first}/output/stdout")).body, b"first\n");
    assert_eq!(rig.exec("t", "echo still here")["stdout"], "still here\n");
}

#[test]
fn a_terminal_is_shown_as_the_last_answer_left_it_also_by_a_server_that_did_not_give_the_answer() {
    let mut rig = Rig::new();
    for command in ["export A=1", "cd /", "true"] {
        let answer = rig.exec("t", command);
        rig.kill();
        rig.start();
        let terminal = rig.get("/api/threads/t/terminal").is(200);
        let (shown, told) = ((&terminal["version"], &terminal["cwd"]), (&answer["state_version"], &answer["cwd"]));
        assert_eq!(shown, told, "{command}");
        assert_eq!(terminal["env_delta"], json!({ "A": "1" }), "{command}");
    }
}
