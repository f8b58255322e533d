//! Commands: their answers, their events, their output, and what survives.

use crate::rig::{Events, Rig, Sse, wait_for};
use serde_json::{Value, json};

fn names(events: &[Sse]) -> Vec<&str> {
    events.iter().map(|event| event.event.as_str()).collect()
}

fn text_of(events: &[Sse], stream: &str) -> String {
    let texts = events.iter().filter(|event| event.event == stream);
    texts.map(|event| event.data["data"].as_str().unwrap()).collect()
}

/// From `after` on without a hole.
#[track_caller]
fn are_numbered(events: &[Sse], after: u64) {
    let ids: Vec<_> = events.iter().map(|event| event.id.unwrap()).collect();
    let want: Vec<_> = (after + 1..).take(events.len()).collect();
    assert_eq!(ids, want, "{events:?}");
}

#[test]
fn an_answer_has_every_field_of_the_contract() {
    let rig = Rig::new();
    let answer = rig.exec("t", "cd /tmp; echo out; echo err >&2; (exit 3)");
    let keys: Vec<&str> = answer.as_object().unwrap().keys().map(String::as_str).collect();
    let mut wanted = vec![
        "id",
        "thread_id",
        "terminal_id",
        "session_id",
        "command",
        "status",
        "exit_code",
        "signal",
        "timed_out",
        "shell_exited",
        "shell_replaced",
        "oom_killed",
        "warnings",
        "stdout",
        "stderr",
        "stdout_bytes",
        "stderr_bytes",
        "truncated",
        "streams_open",
        "error",
        "cwd",
        "state_version",
        "state_changed",
        "created_at",
        "started_at",
        "ended_at",
        "duration_ms",
    ];
    wanted.sort_unstable();
    assert_eq!(keys, wanted);
    assert_eq!((&answer["status"], &answer["exit_code"]), (&json!("exited"), &json!(3)));
    assert_eq!((&answer["stdout"], &answer["stderr"]), (&json!("out\n"), &json!("err\n")));
    assert_eq!(
        (&answer["cwd"], &answer["state_version"], &answer["state_changed"]),
        (&json!("/tmp"), &json!(1), &json!(true))
    );
    let again = rig.get(&format!("/api/commands/{}", answer["id"].as_str().unwrap())).is(200);
    for key in ["status", "exit_code", "stdout_bytes", "cwd", "state_version", "ended_at"] {
        assert_eq!(again[key], answer[key], "{key}");
    }
}

#[test]
fn state_stays_from_one_command_to_the_next() {
    let rig = Rig::new();
    rig.exec("t", "cd /usr; export A=1; f() { echo \"f$A\"; }");
    assert_eq!(rig.exec("t", "pwd; f")["stdout"], "/usr\nf1\n");
    assert_eq!(rig.exec("other", "pwd; type f")["exit_code"], 1);
}

#[test]
fn events_are_numbered_without_holes_and_replayed_from_any_place() {
    let rig = Rig::new();
    let exec = json!({ "command": "echo a; echo b >&2; printf '\\xff'; echo é", "id": "c" });
    let all: Vec<Sse> = rig.events("POST", "/api/threads/t/exec", &exec).collect();
    assert_eq!((names(&all)[0], *names(&all).last().unwrap()), ("start", "exit"), "{all:?}");
    are_numbered(&all, 0);
    assert_eq!(all.last().unwrap().data["exit_code"], 0);
    for after in 0..=all.len() as u64 {
        let path = format!("/api/commands/c/events?after={after}");
        let rest: Vec<Sse> = rig.events("GET", &path, &Value::Null).collect();
        assert_eq!(rest, all[usize::try_from(after).unwrap()..], "after {after}");
    }
}

#[test]
fn a_command_that_has_to_wait_says_so_first_and_is_replayed_so() {
    let rig = Rig::new();
    let gate = json!({ "command": "cat", "id": "gate", "stdin_open": true, "background": true });
    rig.post("/api/threads/t/exec", &gate).is(202);
    let exec = json!({ "command": "echo done", "id": "c" });
    let mut events = rig.events("POST", "/api/threads/t/exec", &exec);
    let first = events.next().unwrap();
    assert_eq!((first.event.as_str(), first.id), ("queued", Some(1)));
    assert!(first.data["queued_at"].is_string() && first.data["seq"] == 1, "{first:?}");
    let opened = rig.call("POST", "/api/commands/gate/stdin?eof=true", &[], b"");
    assert!(opened.status < 300, "{}", opened.status);
    let mut all = vec![first];
    all.extend(events);
    assert_eq!(names(&all), ["queued", "start", "stdout", "exit"]);
    are_numbered(&all, 0);
    assert_eq!(rig.events("GET", "/api/commands/c/events", &Value::Null).collect::<Vec<_>>(), all);
    assert_eq!(rig.post("/api/threads/t/pause", &json!({})).is(200)["observed_state"], "paused");
    assert_eq!(rig.events("GET", "/api/commands/c/events", &Value::Null).collect::<Vec<_>>(), all);
}

#[test]
fn a_client_that_hangs_up_stops_nothing() {
    let rig = Rig::new();
    let exec = json!({ "command": "echo begun; sleep 0.3; echo done", "id": "c" });
    let mut events = rig.events("POST", "/api/threads/t/exec", &exec);
    assert_eq!(events.next().unwrap().event, "start");
    drop(events);
    let rest: Vec<Sse> = rig.events("GET", "/api/commands/c/events", &Value::Null).collect();
    assert_eq!(text_of(&rest, "stdout"), "begun\ndone\n");
}

#[test]
fn a_command_and_its_stream_survive_the_death_of_the_server() {
    let mut rig = Rig::new();
    let exec = json!({ "command": "cd /usr; for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.1; done", "id": "c" });
    let mut heard = Vec::new();
    let mut events: Events = rig.events("POST", "/api/threads/t/exec", &exec);
    heard.extend(events.by_ref().take(3));
    rig.kill();
    rig.start();
    let path = format!("/api/commands/c/events?after={}", heard.last().unwrap().id.unwrap());
    heard.extend(rig.events("GET", &path, &Value::Null));
    are_numbered(&heard, 0);
    assert_eq!(text_of(&heard, "stdout"), "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    let end = &heard.last().unwrap().data;
    assert_eq!((&end["status"], &end["exit_code"], &end["cwd"]), (&json!("exited"), &json!(0), &json!("/usr")));
    assert_eq!(rig.exec("t", "pwd")["stdout"], "/usr\n");
    // Asked for once more, it is the same and does not run again.
    let again = rig.post("/api/threads/t/exec", &exec).is(200);
    assert_eq!(again["stdout"], "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
}

#[test]
fn output_is_served_as_it_was_written_whole_and_in_parts() {
    let rig = Rig::new();
    rig.post("/api/threads/t/exec", &json!({ "command": "printf 'a\\0b\\xff\\n'; printf e >&2", "id": "c" })).is(200);
    assert_eq!(rig.get("/api/commands/c/output/stdout").body, b"a\0b\xff\n");
    assert_eq!(rig.get("/api/commands/c/output/stderr").body, b"e");
    let part = rig.call("GET", "/api/commands/c/output/stdout", &[("range", "bytes=1-2")], b"");
    assert_eq!((part.status, part.body.as_slice()), (206, &b"\0b"[..]));
    assert_eq!(part.header("content-range"), Some("bytes 1-2/5"));
    let outside = rig.call("GET", "/api/commands/c/output/stdout", &[("range", "bytes=9-")], b"");
    assert_eq!((outside.status, outside.code().as_str()), (416, "invalid_request"));
    assert_eq!(rig.get("/api/commands/c/output/other").code(), "not_found");
}

#[test]
fn output_is_readable_while_the_thread_is_paused_and_after_it_lost_its_instance() {
    let rig = Rig::new();
    rig.post("/api/threads/t/exec", &json!({ "command": "echo kept", "id": "c" })).is(200);
    let events: Vec<Sse> = rig.events("GET", "/api/commands/c/events", &Value::Null).collect();
    assert_eq!(rig.post("/api/threads/t/pause", &json!({})).is(200)["observed_state"], "paused");
    assert_eq!(rig.get("/api/commands/c/output/stdout").body, b"kept\n");
    assert_eq!(rig.events("GET", "/api/commands/c/events", &Value::Null).collect::<Vec<_>>(), events);
    assert_eq!(rig.get("/api/threads/t/lease").is(200)["observed_state"], "paused", "reading woke it");
}

#[test]
fn the_same_id_runs_once_and_for_something_else_is_refused() {
    let rig = Rig::new();
    let exec = json!({ "command": "echo $RANDOM | tee -a /workspace/n", "id": "c" });
    let first = rig.post("/api/threads/t/exec", &exec).is(200);
    assert_eq!(rig.post("/api/threads/t/exec", &exec).is(200)["stdout"], first["stdout"]);
    let other = rig.post("/api/threads/t/exec", &json!({ "command": "true", "id": "c" }));
    assert_eq!((other.status, other.code().as_str()), (409, "conflict"));
    assert_eq!(rig.exec("t", "wc -l < n")["stdout"], "1\n");
}

#[test]
fn a_background_command_answers_at_once_and_is_found_by_its_id() {
    let rig = Rig::new();
    let exec = json!({ "command": "read x; echo got $x", "background": true, "stdin_open": true, "id": "c" });
    let answer = rig.post("/api/threads/t/exec", &exec).is(202);
    assert!(["queued", "running"].contains(&answer["status"].as_str().unwrap()) && answer["exit_code"].is_null());
    rig.call("POST", "/api/commands/c/stdin?eof=true", &[], b"it\n").is(204);
    let ended = wait_for("end", || {
        let record = rig.get("/api/commands/c").is(200);
        (record["status"] == "exited").then_some(record)
    });
    assert_eq!((&ended["exit_code"], rig.get("/api/commands/c/output/stdout").body), (&json!(0), b"got it\n".to_vec()));
    let late = rig.call("POST", "/api/commands/c/stdin", &[], b"more");
    assert_eq!((late.status, late.code().as_str()), (409, "conflict"));
}

#[test]
fn a_command_is_cancelled_and_its_shell_lives_on() {
    let rig = Rig::new();
    rig.exec("t", "export KEPT=1");
    rig.post("/api/threads/t/exec", &json!({ "command": "sleep 100", "background": true, "id": "c" })).is(202);
    let record = rig.post("/api/commands/c/cancel", &json!({})).is(200);
    assert_eq!((&record["status"], &record["exit_code"]), (&json!("cancelled"), &json!(130)));
    assert_eq!(rig.exec("t", "echo $KEPT")["stdout"], "1\n");
    assert_eq!(rig.post("/api/commands/c/cancel", &json!({"signal": "KILL"})).is(200)["status"], "cancelled");
}

#[test]
fn a_time_out_is_told_apart_and_the_shell_lives_on() {
    let rig = Rig::new();
    let answer = rig.post("/api/threads/t/exec", &json!({ "command": "echo x; sleep 100", "timeout_ms": 200 })).is(200);
    assert_eq!((&answer["status"], &answer["exit_code"]), (&json!("timed_out"), &json!(-1)));
    assert_eq!((&answer["timed_out"], &answer["stdout"]), (&json!(true), &json!("x\n")));
    assert_eq!(rig.exec("t", "echo on")["stdout"], "on\n");
}

#[test]
fn of_a_long_output_the_beginning_and_the_end_are_in_the_answer_and_all_of_it_in_the_log() {
    let rig = Rig::new();
    let answer = rig.post("/api/threads/t/exec", &json!({ "command": "seq 1 500000", "id": "c" })).is(200);
    assert_eq!((&answer["truncated"], &answer["stdout_bytes"]), (&json!(true), &json!(3_388_895)));
    let text = answer["stdout"].as_str().unwrap();
    assert!(text.len() == 1 << 20 && text.starts_with("1\n2\n") && text.ends_with("\n500000\n"));
    let all = (1..=500_000).map(|number| format!("{number}\n")).collect::<Vec<_>>().concat();
    assert!(rig.get("/api/commands/c/output/stdout").body == all.as_bytes(), "the log differs");
    let events: Vec<Sse> = rig.events("GET", "/api/commands/c/events", &Value::Null).collect();
    assert!(text_of(&events, "stdout") == all, "the events differ");
    are_numbered(&events, 0);
}

#[test]
fn what_can_not_be_asked_is_refused_and_changes_nothing() {
    let rig = Rig::new();
    let path = "/api/threads/t/exec";
    let bad = [
        json!({}),
        json!({ "command": 1 }),
        json!({ "command": "true", "colour": "red" }),
        json!({ "command": "a\0b" }),
        json!({ "command": "true", "timeout_ms": 0 }),
        json!({ "command": "true", "timeout_ms": -1 }),
        json!({ "command": "true", "timeout_ms": u64::MAX }),
        json!({ "command": "true", "id": "no/slash" }),
        json!({ "command": "true", "if_busy": "wait" }),
        json!({ "command": "true", "stdin": "a", "stdin_open": true }),
        json!([]),
    ];
    for body in bad {
        let answer = rig.post(path, &body);
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{body}");
    }
    let name = rig.post(path, &json!({ "command": "true", "env": { "1A": "x" } }));
    assert_eq!((name.status, name.code().as_str()), (400, "invalid_env_name"));
    let text = rig.call("POST", path, &[("content-type", "application/json")], b"{\"command\":");
    assert_eq!((text.status, text.code().as_str()), (400, "invalid_request"));
    let absent = rig.post(path, &json!({ "command": "true", "create": false }));
    assert_eq!((absent.status, absent.code().as_str()), (404, "not_found"));
    assert_eq!(rig.get("/api/threads/t").status, 404, "one of them made the thread");
}

#[test]
fn what_is_turned_away_leaves_no_record_and_may_be_asked_for_again() {
    let rig = Rig::new();
    let gate = json!({ "command": "cat", "id": "gate", "stdin_open": true, "background": true });
    rig.post("/api/threads/t/exec", &gate).is(202);
    let ways = [json!({}), json!({ "background": true })];
    for way in &ways {
        let mut exec = json!({ "command": "echo ran", "id": "c", "if_busy": "reject" });
        exec.as_object_mut().unwrap().extend(way.as_object().unwrap().clone());
        let refused = rig.post("/api/threads/t/exec", &exec).fails(409, "terminal_busy");
        assert_eq!(refused["retryable"], true);
        rig.get("/api/commands/c").fails(404, "not_found");
    }
    for number in 0..64 {
        let waits = json!({ "command": "true", "id": format!("w{number}"), "background": true });
        rig.post("/api/threads/t/exec", &waits).is(202);
    }
    let exec = json!({ "command": "echo ran", "id": "c" });
    rig.post("/api/threads/t/exec", &exec).fails(429, "limit_reached");
    let listed = rig.get("/api/threads/t/commands?limit=100").is(200);
    assert!(!listed["items"].as_array().unwrap().iter().any(|item| item["id"] == "c"), "{listed}");
    rig.call("POST", "/api/commands/gate/stdin?eof=true", &[], b"").is(204);
    wait_for("room", || (rig.get("/api/commands/w63").is(200)["status"] == "exited").then_some(()));
    assert_eq!(rig.post("/api/threads/t/exec", &exec).is(200)["stdout"], "ran\n");
}

#[test]
fn a_list_of_commands_tells_how_far_each_has_come() {
    let rig = Rig::new();
    let gate = json!({ "command": "cat", "id": "gate", "stdin_open": true, "background": true });
    rig.post("/api/threads/t/exec", &gate).is(202);
    rig.post("/api/threads/t/exec", &json!({ "command": "true", "id": "next", "background": true })).is(202);
    let statuses = || {
        let listed = rig.get("/api/threads/t/commands").is(200);
        let items = listed["items"].as_array().unwrap().clone();
        items.iter().map(|item| (item["id"].clone(), item["status"].clone())).collect::<Vec<_>>()
    };
    wait_for("a running command", || (rig.get("/api/commands/gate").is(200)["status"] == "running").then_some(()));
    assert_eq!(statuses(), [(json!("next"), json!("queued")), (json!("gate"), json!("running"))]);
    rig.post("/api/threads/t/pause", &json!({ "force": true })).is(200);
    assert_eq!(statuses(), [(json!("next"), json!("queued")), (json!("gate"), json!("running"))]);
}

#[test]
fn what_a_child_writes_after_the_end_is_counted_in_the_record() {
    let rig = Rig::new();
    let answer = rig.exec("t", "(read x < <(sleep 0.2); echo lateout) & echo now");
    assert_eq!((&answer["stdout_bytes"], &answer["streams_open"]), (&json!(4), &json!(true)));
    let path = format!("/api/commands/{}", answer["id"].as_str().unwrap());
    let record = wait_for("the end of its streams", || {
        let record = rig.get(&path).is(200);
        (record["streams_open"] == false).then_some(record)
    });
    assert_eq!((&record["stdout_bytes"], &record["status"]), (&json!(12), &json!("exited")));
    assert_eq!(rig.get(&format!("{path}/output/stdout")).body, b"now\nlateout\n");
    assert_eq!(rig.get("/api/threads/t/commands").is(200)["items"][0]["stdout_bytes"], 12);
}

#[test]
fn the_id_of_a_deleted_threads_command_runs_nothing_again() {
    let mut rig = Rig::new();
    let exec = json!({ "command": "echo once", "id": "c" });
    rig.post("/api/threads/t/exec", &exec).is(200);
    rig.delete("/api/threads/t").is(204);
    let told = rig.post("/api/threads/t/exec", &exec).fails(409, "conflict");
    assert!(told["message"].as_str().unwrap().contains("24 hours"), "{told}");
    rig.kill();
    rig.start();
    rig.post("/api/threads/u/exec", &exec).fails(409, "conflict");
    assert_eq!(rig.exec("t", "echo other")["stdout"], "other\n");
}
