//! An oracle that lets everything pass is worth nothing: each of these must be told.

use super::*;
use crate::campaign::script::Body;
use serde_json::json;

fn command(body: Body) -> Planned {
    Planned::new_answered("c".into(), body)
}

fn lines() -> Planned {
    command(Body::Lines { count: 1, code: 7 })
}

fn record() -> Value {
    json!({ "id": "c", "thread_id": "t", "terminal_id": "term-1", "session_id": "sess-1", "command": "x",
        "oom_killed": null, "status": "exited", "exit_code": 7, "signal": null, "timed_out": false, "shell_exited": false,
        "shell_replaced": false, "state_changed": true, "warnings": [], "stdout_bytes": 7, "stderr_bytes": 4, "streams_open": false,
        "error": null, "cwd": "/workspace", "state_version": 1, "created_at": "2026-01-01T00:00:00.000Z",
        "started_at": "2026-01-01T00:00:00.001Z", "ended_at": "2026-01-01T00:00:00.002Z", "duration_ms": 1 })
}

fn told(command: &Planned, circumstances: Circumstances, change: &[(&str, Value)], runs: usize) -> Vec<String> {
    let mut record = record();
    for (name, value) in change {
        record[*name] = value.clone();
    }
    let (stdout, stderr) = ("c 1 ü\n".as_bytes(), b"n=1\n".as_slice());
    judge(command, circumstances, Seen { record: &record, stdout, stderr, runs }, &mut Terminal::fresh())
}

#[test]
fn a_command_that_did_what_its_text_says_is_in_order() {
    assert_eq!(told(&lines(), Circumstances::default(), &[], 1), Vec::<String>::new());
}

#[test]
fn every_field_that_is_wrong_is_told() {
    let wrong = [
        ("exit_code", json!(0)),
        ("exit_code", Value::Null),
        ("signal", json!("KILL")),
        ("timed_out", json!(true)),
        ("shell_exited", json!(true)),
        ("shell_replaced", json!(true)),
        ("warnings", json!([{ "code": "shell_mute" }])),
        ("stdout_bytes", json!(6)),
        ("stderr_bytes", Value::Null),
        ("streams_open", json!(true)),
        ("error", json!({ "code": "unavailable" })),
        ("cwd", json!("/")),
        ("state_version", json!(2)),
        ("ended_at", Value::Null),
        ("started_at", Value::Null),
        ("started_at", json!("2026-01-01T00:00:00.009Z")),
        ("duration_ms", Value::Null),
        ("status", json!("running")),
        ("status", json!("lost")),
        ("status", json!("failed")),
        ("status", json!("cancelled")),
        ("status", json!("timed_out")),
    ];
    for (name, value) in wrong {
        let found = told(&lines(), Circumstances::default(), &[(name, value.clone())], 1);
        assert!(!found.is_empty(), "{name} {value} passed");
    }
}

#[test]
fn a_command_that_ran_twice_or_not_at_all_is_told_whatever_was_done_to_it() {
    let all = Circumstances {
        server_killed_first: true,
        steward_killed: true,
        instance_killed: true,
        shell_killed: true,
        shell_killed_before: true,
        keeper_killed: true,
        cancel_asked: true,
    };
    assert!(!told(&lines(), all, &[], 2).is_empty());
    assert!(!told(&lines(), all, &[], 0).is_empty());
    let failed = [("status", json!("failed")), ("exit_code", Value::Null), ("error", json!({}))];
    assert!(!told(&lines(), all, &failed, 1).is_empty());
    let unstarted = [("status", json!("cancelled")), ("exit_code", json!(-1))];
    assert!(!told(&lines(), all, &unstarted, 1).is_empty());
}

#[test]
fn an_instance_that_died_excuses_a_loss_and_nothing_else() {
    let killed = Circumstances { instance_killed: true, ..Circumstances::default() };
    let unchanged = ("state_changed", json!(false));
    let lost = [("status", json!("lost")), ("exit_code", Value::Null), unchanged, ("state_version", json!(0))];
    assert_eq!(told(&lines(), killed, &lost, 1), Vec::<String>::new());
    // Of a command that nobody saw the end of, nothing is known to have changed.
    assert_eq!(told(&lines(), killed, &lost[..3], 1).len(), 1);
    assert!(!told(&lines(), killed, &[("exit_code", json!(137)), ("signal", json!("KILL"))], 1).is_empty());
    assert!(!told(&lines(), killed, &[("status", json!("lost")), ("exit_code", json!(0))], 1).is_empty());
}

#[test]
fn output_that_is_no_beginning_of_what_was_written_is_told() {
    let killed = Circumstances { instance_killed: true, ..Circumstances::default() };
    let mut record = record();
    (record["status"], record["exit_code"], record["stdout_bytes"]) = (json!("lost"), Value::Null, json!(3));
    (record["state_version"], record["state_changed"]) = (Value::Null, json!(false));
    let mut terminal = Terminal::fresh();
    let seen = Seen { record: &record, stdout: b"c 2", stderr: b"n=1\n", runs: 1 };
    assert_eq!(judge(&lines(), killed, seen, &mut terminal).len(), 1);
    let seen = Seen { stdout: b"c 1", ..seen };
    assert_eq!(judge(&lines(), killed, seen, &mut Terminal::fresh()), Vec::<String>::new());
}

#[test]
fn what_a_shell_says_when_it_is_hung_up_is_its_own() {
    let mut record = record();
    (record["status"], record["exit_code"], record["stderr_bytes"]) = (json!("lost"), Value::Null, json!(15));
    (record["state_version"], record["state_changed"]) = (Value::Null, json!(false));
    let seen = Seen { record: &record, stdout: "c 1 ü\n".as_bytes(), stderr: b"n=1\nbash: wait\n", runs: 1 };
    let killed = Circumstances { instance_killed: true, ..Circumstances::default() };
    assert_eq!(judge(&lines(), killed, seen, &mut Terminal::fresh()), Vec::<String>::new());
    let seen = Seen { stderr: b"n=1\nother: wait", ..seen };
    assert_eq!(judge(&lines(), killed, seen, &mut Terminal::fresh()).len(), 1);
}

#[test]
fn a_counter_that_lost_what_was_acknowledged_is_told() {
    let mut terminal = Terminal { counters: [1].into(), version: 1, ..Terminal::fresh() };
    let mut record = record();
    record["state_version"] = json!(2);
    let seen = Seen { record: &record, stdout: "c 1 ü\n".as_bytes(), stderr: b"n=1\n", runs: 1 };
    assert_eq!(judge(&lines(), Circumstances::default(), seen, &mut terminal).len(), 1);
}

#[test]
fn a_shell_that_was_killed_while_it_said_what_it_leaves_may_not_be_captured() {
    let mut record = record();
    for (name, value) in [
        ("exit_code", json!(137)),
        ("signal", json!("KILL")),
        ("shell_exited", json!(true)),
        ("stdout_bytes", json!(0)),
        ("stderr_bytes", json!(0)),
        ("warnings", json!([{ "code": "state_not_captured" }])),
    ] {
        record[name] = value;
    }
    let killed = Circumstances { shell_killed: true, ..Circumstances::default() };
    let seen = Seen { record: &record, stdout: b"", stderr: b"", runs: 1 };
    let exit = command(Body::Exit { code: 5 });
    assert_eq!(judge(&exit, killed, seen, &mut Terminal::fresh()), Vec::<String>::new());
    // One that says nothing when it ends has nothing to be cut short.
    assert_eq!(judge(&lines(), killed, seen, &mut Terminal::fresh()).len(), 1);
    assert!(!judge(&exit, Circumstances::default(), seen, &mut Terminal::fresh()).is_empty());
}

#[test]
fn a_field_that_is_missing_or_new_is_told() {
    for name in FIELDS {
        let mut record = record();
        record.as_object_mut().unwrap().remove(name);
        let seen = Seen { record: &record, stdout: "c 1 ü\n".as_bytes(), stderr: b"n=1\n", runs: 1 };
        assert!(!judge(&lines(), Circumstances::default(), seen, &mut Terminal::fresh()).is_empty(), "{name}");
    }
    assert_eq!(told(&lines(), Circumstances::default(), &[("new", json!(1))], 1).len(), 1);
}

#[test]
fn a_shell_that_did_not_outlive_a_cancellation_is_told() {
    let asked = Circumstances { cancel_asked: true, ..Circumstances::default() };
    let cancelled = [("status", json!("cancelled")), ("exit_code", json!(130))];
    assert_eq!(told(&lines(), asked, &cancelled, 1), Vec::<String>::new());
    for name in ["shell_exited", "shell_replaced"] {
        let [status, code] = cancelled.clone();
        assert_eq!(told(&lines(), asked, &[status, code, (name, json!(true))], 1).len(), 1, "{name}");
    }
}

#[test]
fn a_command_that_was_taken_does_not_fail_because_the_server_is_killed_later() {
    let failed = [
        ("status", json!("failed")),
        ("exit_code", Value::Null),
        ("error", json!({})),
        ("started_at", Value::Null),
        ("duration_ms", Value::Null),
        ("stdout_bytes", json!(0)),
        ("stderr_bytes", json!(0)),
        ("state_changed", json!(false)),
        ("state_version", Value::Null),
    ];
    let mut record = record();
    for (name, value) in failed {
        record[name] = value;
    }
    let seen = Seen { record: &record, stdout: b"", stderr: b"", runs: 0 };
    assert_eq!(judge(&lines(), Circumstances::default(), seen, &mut Terminal::fresh()).len(), 1);
    let first = Circumstances { server_killed_first: true, ..Circumstances::default() };
    assert_eq!(judge(&lines(), first, seen, &mut Terminal::fresh()), Vec::<String>::new());
}

#[test]
fn a_command_without_an_answer_may_have_counted_or_not() {
    let mut terminal = Terminal::fresh();
    terminal.may_have_run(&lines());
    for (version, counter) in [(1, "n=1\n"), (2, "n=2\n")] {
        let mut record = record();
        record["state_version"] = json!(version);
        let seen = Seen { record: &record, stdout: "c 1 ü\n".as_bytes(), stderr: counter.as_bytes(), runs: 1 };
        let mut after = terminal.clone();
        assert_eq!(judge(&lines(), Circumstances::default(), seen, &mut after), Vec::<String>::new());
        assert_eq!((after.version, after.unknown, after.counters.len()), (version, 0, 1));
    }
}
