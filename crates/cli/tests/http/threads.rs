//! Threads, and the windows on their terminals.

use crate::rig::{Rig, Sse, is_time, keys, wait_for};
use serde_json::{Value, json};

#[test]
fn a_thread_is_made_as_asked_and_shown_with_every_field() {
    let rig = Rig::new();
    let made = rig.post("/api/threads", &json!({ "id": "A.b_c:d-1" })).is(201);
    let fields = [
        "created_at",
        "default_terminal_id",
        "id",
        "last_active_at",
        "lease_id",
        "project_id",
        "provider",
        "retention",
    ];
    assert_eq!(keys(&made), fields);
    assert_eq!((&made["id"], &made["project_id"]), (&json!("A.b_c:d-1"), &Value::Null));
    for (field, prefix) in [("default_terminal_id", "term-"), ("lease_id", "lease-")] {
        let digits = made[field].as_str().unwrap().strip_prefix(prefix).unwrap();
        assert!(digits.len() >= 12 && digits.bytes().all(|digit| b"0123456789abcdef".contains(&digit)), "{digits}");
    }
    is_time(&made["created_at"]);
    assert_eq!(made["last_active_at"], made["created_at"]);
    assert_eq!(rig.get("/api/threads/A.b_c:d-1").is(200), made);
    assert_eq!(rig.get("/api/threads").is(200), json!({ "items": [made], "next_cursor": null }));
}

#[test]
fn a_thread_without_an_id_gets_one() {
    let rig = Rig::new();
    let ids = [(); 2].map(|()| rig.post("/api/threads", &json!({})).is(201)["id"].as_str().unwrap().to_owned());
    assert!(ids[0] != ids[1] && ids.iter().all(|id| id.len() >= 16 && id.starts_with("thr-")), "{ids:?}");
    // Nothing at all is `{}`.
    rig.call("POST", "/api/threads", &[], b"").is(201);
}

#[test]
fn the_same_id_again_is_refused_and_the_first_one_stays() {
    let rig = Rig::new();
    let first = rig.post("/api/threads", &json!({ "id": "t" })).is(201);
    rig.post("/api/threads", &json!({ "id": "t", "cwd": "/tmp" })).fails(409, "already_exists");
    assert_eq!(rig.get("/api/threads/t").is(200), first);
    assert_eq!(rig.exec("t", "pwd")["stdout"], "/workspace\n");
}

#[test]
fn a_thread_begins_where_and_with_what_it_was_told() {
    let rig = Rig::new();
    let env = json!({ "A": "it's \"1\"\n", "EMPTY": "" });
    rig.post("/api/threads", &json!({ "id": "t", "cwd": "/usr/lib", "env": env })).is(201);
    assert_eq!(
        rig.exec("t", "pwd; printf '[%s][%s]' \"$A\" \"${EMPTY-unset}\"")["stdout"],
        "/usr/lib\n[it's \"1\"\n][]"
    );
}

#[test]
fn what_makes_no_thread_is_refused_and_makes_none() {
    let rig = Rig::new();
    let long = "x".repeat(129);
    let bad = [
        json!({ "id": "" }),
        json!({ "id": "-a" }),
        json!({ "id": "a/b" }),
        json!({ "id": "é" }),
        json!({ "id": long }),
        json!({ "id": 1 }),
        json!({ "name": "t" }),
        json!({ "policy": { "idle_timeout_s": -1 } }),
        json!({ "policy": { "idle": 1 } }),
        json!({ "policy": [1, 1] }),
        json!(["t", null, null, null, null, null, {}]),
        json!({ "policy": { "max_duration_s": u64::MAX } }),
        json!({ "provider": "nobody" }),
        json!([]),
        json!("t"),
    ];
    for body in bad {
        let answer = rig.post("/api/threads", &body);
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{body}");
    }
    rig.post("/api/threads", &json!({ "env": { "A B": "x" } })).fails(400, "invalid_env_name");
    rig.post("/api/threads", &json!({ "env": { "A": "x\0" } })).fails(400, "invalid_request");
    for cwd in ["relative", "", "/a\0b"] {
        rig.post("/api/threads", &json!({ "cwd": cwd })).fails(400, "invalid_path");
    }
    let error = rig.post("/api/threads", &json!({ "project_id": "app-01234567" })).fails(404, "not_found");
    assert_eq!(error["details"]["kind"], "project");
    let error = rig.post("/api/threads", &json!({ "share_with": "nobody" })).fails(404, "not_found");
    assert_eq!(error["details"]["kind"], "thread");
    assert_eq!(rig.get("/api/threads").is(200)["items"], json!([]));
    rig.post("/api/threads", &json!({ "id": "x".repeat(128) })).is(201);
}

#[test]
fn whoever_shares_has_the_same_files_and_processes_but_a_state_of_their_own() {
    let rig = Rig::new();
    rig.exec("a", "echo 1 > /workspace/f; cd /usr; export A=1");
    let a = rig.get("/api/threads/a").is(200);
    let b = rig.post("/api/threads", &json!({ "id": "b", "share_with": "a" })).is(201);
    assert_eq!(b["lease_id"], a["lease_id"]);
    assert_ne!(b["default_terminal_id"], a["default_terminal_id"]);
    assert_eq!(rig.exec("b", "pwd; cat f; echo ${A-unset}")["stdout"], "/workspace\n1\nunset\n");
    let other = if a["provider"] == "local" { "namespace" } else { "local" };
    rig.post("/api/threads", &json!({ "share_with": "a", "provider": other })).fails(409, "conflict");
    // It is destroyed with the last of them.
    rig.delete("/api/threads/a").is(204);
    assert_eq!(rig.exec("b", "cat f")["stdout"], "1\n");
    assert_eq!(rig.get("/api/threads/b/lease").is(200)["observed_state"], "running");
}

#[test]
fn a_thread_is_deleted_once_however_often_and_its_id_is_free_again() {
    let rig = Rig::new();
    rig.exec("t", "cd /usr; export A=1; echo kept > /workspace/f");
    rig.post("/api/threads/t/exec", &json!({ "command": "echo x", "id": "c" })).is(200);
    let old = rig.get("/api/threads/t").is(200);
    for _ in 0..2 {
        rig.delete("/api/threads/t").is(204);
    }
    rig.delete("/api/threads/never").is(204);
    let error = rig.get("/api/threads/t").fails(404, "not_found");
    assert_eq!(error["details"]["kind"], "thread");
    assert_eq!(rig.exec("t", "pwd; echo ${A-unset}; ls")["stdout"], "/workspace\nunset\n");
    let new = rig.get("/api/threads/t").is(200);
    assert!(new["lease_id"] != old["lease_id"] && new["default_terminal_id"] != old["default_terminal_id"]);
    let history = rig.get("/api/threads/t/commands").is(200);
    assert_eq!(history["items"].as_array().unwrap().len(), 1, "{history}");
}

#[test]
fn deleting_a_thread_cancels_what_runs_in_it() {
    let rig = Rig::new();
    let exec = json!({ "command": "echo $BASHPID; exec sleep 1000", "id": "c" });
    let mut events = rig.events("POST", "/api/threads/t/exec", &exec);
    assert!(events.any(|event| event.event == "stdout"));
    rig.delete("/api/threads/t").is(204);
    let rest: Vec<Sse> = events.collect();
    assert!(rest.iter().all(|event| event.data["status"] != "exited"), "{rest:?}");
    assert_eq!(rig.get("/api/threads").is(200)["items"], json!([]));
}

#[test]
fn a_thread_that_is_deleted_while_it_is_busy_stays_deleted() {
    let mut rig = Rig::new();
    for round in 0..15 {
        let (thread, command) = (format!("busy{round}"), format!("loop{round}"));
        let exec = json!({ "command": "echo on; while :; do :; done", "id": command });
        let mut events = rig.events("POST", &format!("/api/threads/{thread}/exec"), &exec);
        assert!(events.any(|event| event.event == "stdout"));
        // One more waits behind it.
        let behind = json!({ "command": "true", "background": true });
        rig.post(&format!("/api/threads/{thread}/exec"), &behind).is(202);
        rig.delete(&format!("/api/threads/{thread}")).is(204);
        // Whoever carries the commands has heard of it by the end of the stream.
        let last = events.last();
        assert!(last.is_none_or(|last| last.data["status"] != "exited"));
        assert_eq!(rig.get("/api/threads").is(200)["items"], json!([]), "round {round}");
    }
    // Whatever was still on its way has arrived when the server has ended.
    rig.terminate();
    rig.start();
    assert_eq!(rig.get("/api/threads").is(200)["items"], json!([]));
    assert_eq!(rig.get("/api/leases").is(200)["items"], json!([]));
    assert_eq!(rig.get("/api/orphans").is(200)["items"], json!([]));
}

#[test]
fn a_session_opens_with_the_first_command_and_has_every_field() {
    let rig = Rig::new();
    let thread = rig.post("/api/threads", &json!({ "id": "t" })).is(201);
    rig.get("/api/threads/t/session").fails(404, "not_found");
    rig.get("/api/threads/nobody/session").fails(404, "not_found");
    let command = rig.exec("t", "true");
    let session = rig.get("/api/threads/t/session").is(200);
    let fields = [
        "close_reason",
        "ended_at",
        "expires_at",
        "last_active_at",
        "lease_id",
        "policy",
        "session_id",
        "started_at",
        "status",
        "terminal_id",
        "thread_id",
    ];
    assert_eq!(keys(&session), fields);
    assert_eq!(session["policy"], json!({ "idle_timeout_s": 3600, "max_duration_s": 86400 }));
    assert_eq!((&session["status"], &session["thread_id"]), (&json!("active"), &json!("t")));
    assert_eq!((&session["ended_at"], &session["close_reason"]), (&Value::Null, &Value::Null));
    assert_eq!((&session["lease_id"], &session["terminal_id"]), (&thread["lease_id"], &thread["default_terminal_id"]));
    assert_eq!(session["session_id"], command["session_id"]);
    for field in ["started_at", "last_active_at", "expires_at"] {
        is_time(&session[field]);
    }
    assert!(session["expires_at"].as_str() > session["last_active_at"].as_str());
    // Whoever goes on uses the same.
    assert_eq!(rig.exec("t", "true")["session_id"], session["session_id"]);
    assert_eq!(rig.get("/api/sessions").is(200)["items"].as_array().unwrap().len(), 1);
}

#[test]
fn a_paused_thread_has_a_paused_session_that_goes_on() {
    let rig = Rig::new();
    let session = rig.exec("t", "true")["session_id"].clone();
    rig.post("/api/threads/t/pause", &json!({})).is(200);
    assert_eq!(rig.get("/api/threads/t/session").is(200)["status"], "paused");
    rig.post("/api/threads/t/resume", &json!({})).is(200);
    let after = rig.get("/api/threads/t/session").is(200);
    assert!(["active", "idle"].contains(&after["status"].as_str().unwrap()), "{after}");
    assert_eq!(rig.exec("t", "true")["session_id"], session);
}

#[test]
fn a_policy_of_nothing_expires_at_once_and_state_goes_on_in_the_next_session() {
    let rig = Rig::new();
    let cases = [
        ("idle", json!({ "idle_timeout_s": 0 }), "idle_timeout"),
        ("longest", json!({ "max_duration_s": 0 }), "expired"),
    ];
    for (id, policy, _) in &cases {
        rig.post("/api/threads", &json!({ "id": id, "policy": policy })).is(201);
        let first = rig.exec(id, "cd /usr; export A=1");
        let again = rig.exec(id, "pwd; echo $A");
        assert_eq!(again["stdout"], "/usr\n1\n", "{id}");
        assert_ne!(again["session_id"], first["session_id"], "{id}");
    }
    for (id, _, reason) in &cases {
        let closed = wait_for("a closed session", || {
            let session = rig.get(&format!("/api/threads/{id}/session")).is(200);
            (session["status"] == "closed").then_some(session)
        });
        is_time(&closed["ended_at"]);
        assert_eq!(closed["close_reason"], *reason);
    }
}

#[test]
fn a_running_command_defers_the_end_of_its_session() {
    let rig = Rig::new();
    rig.post("/api/threads", &json!({ "id": "t", "policy": { "idle_timeout_s": 0, "max_duration_s": 0 } })).is(201);
    let answer = rig.exec("t", "sleep 2; echo through");
    assert_eq!((&answer["status"], &answer["stdout"]), (&json!("exited"), &json!("through\n")));
}

/// Everything that can be read of a thread.
fn reads(id: &str) -> Vec<String> {
    let of = |what: &str| format!("/api/threads/{id}{what}");
    let parts = ["", "/session", "/terminal", "/terminals", "/lease", "/metrics", "/commands", "/files/list"];
    parts.iter().map(|part| of(part)).collect()
}

#[test]
fn reading_makes_nothing() {
    let rig = Rig::new();
    for path in reads("nobody") {
        let answer = rig.get(&path);
        assert_eq!((answer.status, answer.code().as_str()), (404, "not_found"), "{path}");
    }
    for path in ["/api/terminals/term-0123456789ab/states", "/api/leases/lease-0123456789ab/events"] {
        rig.get(path).fails(404, "not_found");
    }
    for path in ["/api/commands/nothing", "/api/commands/nothing/events", "/api/commands/nothing/output/stdout"] {
        let error = rig.get(path).fails(404, "not_found");
        assert_eq!(error["details"]["kind"], "command", "{path}");
    }
    for list in ["threads", "sessions", "terminals", "leases", "orphans"] {
        assert_eq!(rig.get(&format!("/api/{list}")).is(200), json!({ "items": [], "next_cursor": null }), "{list}");
    }
}

#[test]
fn reading_wakes_nothing() {
    let rig = Rig::new();
    rig.post("/api/threads", &json!({ "id": "new" })).is(201);
    rig.exec("paused", "echo x");
    rig.post("/api/threads/paused/pause", &json!({})).is(200);
    for (id, observed) in [("new", "none"), ("paused", "paused")] {
        let before = rig.get(&format!("/api/threads/{id}/lease")).is(200);
        for path in reads(id) {
            let status = rig.get(&path).status;
            assert!(status == 200 || (path.ends_with("/session") && status == 404), "{path} {status}");
        }
        let after = rig.get(&format!("/api/threads/{id}/lease")).is(200);
        assert_eq!((&after["observed_state"], &after["desired_state"]), (&json!(observed), &before["desired_state"]));
    }
    assert_eq!(rig.get("/api/sessions").is(200)["items"].as_array().unwrap().len(), 1);
}

#[test]
fn a_session_whose_time_is_over_is_shown_closed_before_anybody_closes_it() {
    let rig = Rig::new();
    rig.post("/api/threads", &json!({ "id": "t", "policy": { "idle_timeout_s": 0 } })).is(201);
    rig.exec("t", "true");
    // A moment later; the reaper comes much later.
    let shown = wait_for("the end of the session", || {
        let shown = rig.get("/api/threads/t/session").is(200);
        (shown["status"] == "closed").then_some(shown)
    });
    assert_eq!((&shown["close_reason"], &shown["ended_at"]), (&json!("idle_timeout"), &shown["expires_at"]));
    assert_eq!(rig.get("/api/sessions").is(200)["items"][0]["status"], "closed");
}

#[test]
fn a_thread_is_shown_with_its_latest_use() {
    let mut rig = Rig::new();
    rig.exec("a", "true");
    rig.exec("b", "true");
    let used = |rig: &Rig, id: &str| rig.get(&format!("/api/threads/{id}")).is(200)["last_active_at"].clone();
    rig.exec("a", "true");
    let (a, b) = (used(&rig, "a"), used(&rig, "b"));
    assert!(a.as_str() > b.as_str(), "{a} {b}");
    let listed = rig.get("/api/threads").is(200);
    let listed = listed["items"].as_array().unwrap().iter().find(|item| item["id"] == "a").unwrap();
    assert_eq!(listed["last_active_at"], a);
    rig.terminate();
    rig.start();
    assert_eq!(used(&rig, "a"), a);
}
