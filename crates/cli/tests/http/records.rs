//! The record of a command: one for everybody, whoever tells it, for ever. Cancelling and feeding a command whatever has
//! become of what runs it.

use crate::rig::{Rig, Sse, wait_for};
use serde_json::{Value, json};
use std::path::PathBuf;
use stead_term::tree::Tree;

/// Removes the output of everything that has ended, as the server does when there is no room.
fn evict_everything(rig: &Rig) {
    for lease in rig.get("/api/leases").is(200)["items"].as_array().unwrap() {
        let dir = steward_dir(rig, lease["lease_id"].as_str().unwrap());
        let mut client = stead_steward::client::Client::connect(&dir, "a test").unwrap();
        client.request(&stead_model::proto::Request::MakeRoom(u64::MAX)).unwrap();
    }
}

/// Where the steward of a lease on this machine lives.
fn steward_dir(rig: &Rig, lease: &str) -> PathBuf {
    let instances = std::fs::read_dir(rig.data()).unwrap().flatten().map(|entry| entry.path());
    let nested = |path: PathBuf| std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut places: Vec<PathBuf> = instances.flat_map(|path| nested(path.clone()).chain([path])).collect();
    places.push(rig.data());
    let of = |place: &PathBuf| Some(place.join("leases").join(lease).join("place")).filter(|dir| dir.is_dir());
    places.iter().find_map(of).unwrap_or_else(|| panic!("no steward of {lease}"))
}

fn pid_of_instance(rig: &Rig, thread: &str) -> i32 {
    let lease = rig.get(&format!("/api/threads/{thread}/lease")).is(200);
    let pid = lease["instance"]["metadata"]["pid"].as_str().and_then(|pid| pid.parse().ok());
    pid.unwrap_or_else(|| panic!("{lease}"))
}

/// Kills every process of a thread's instance, at once.
fn kill_instance(rig: &Rig, thread: &str) {
    let pid = pid_of_instance(rig, thread);
    let start_time = stead_term::proc::stat(pid).unwrap().start_time;
    Tree::of(pid, start_time).kill(std::time::Duration::from_secs(20)).unwrap();
}

/// `kill -9` of the steward alone; its keeper starts another.
fn kill_steward(rig: &Rig, thread: &str) {
    let root = pid_of_instance(rig, thread);
    let pid = wait_for("the steward's process", || {
        let (mut queue, mut found) = (vec![root], None);
        while let Some(pid) = queue.pop() {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0);
            found = found.or(words.any(|word| word == b"serve" || word == b"run").then_some(pid));
            queue.extend(stead_term::proc::children(pid));
        }
        found
    });
    stead_term::proc::signal(pid, rustix::process::Signal::KILL);
}

fn events(rig: &Rig, method: &str, path: &str, body: &Value) -> Vec<Sse> {
    rig.events(method, path, body).collect()
}

fn last(events: &[Sse]) -> &Sse {
    events.last().unwrap()
}

/// A record without what only answers have.
fn record(answer: &Value) -> Value {
    let mut record = answer.clone();
    for field in ["stdout", "stderr", "truncated", "warnings"] {
        record.as_object_mut().unwrap().remove(field);
    }
    record
}

#[test]
fn evicted_output_is_null_with_a_warning_and_never_empty() {
    let rig = Rig::new();
    let exec = |more: Value| {
        let mut body = json!({ "command": "echo one; (exit 3)", "id": "old" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let first = rig.post("/api/threads/t/exec", &exec(json!({}))).is(200);
    assert_eq!((&first["stdout"], &first["stderr"]), (&json!("one\n"), &json!("")));
    let again = rig.post("/api/threads/t/exec", &exec(json!({}))).is(200);
    assert_eq!(again, first, "the same id again is the same answer");
    rig.post("/api/threads/t/exec", &json!({ "command": "true", "id": "quiet" })).is(200);
    evict_everything(&rig);
    let evicted = |answer: &Value| {
        // Standard error was empty, and is known to be.
        assert_eq!((&answer["stdout"], &answer["stderr"]), (&Value::Null, &json!("")), "{answer}");
        let codes: Vec<_> = answer["warnings"].as_array().unwrap().iter().map(|one| &one["code"]).collect();
        assert_eq!(codes, [&json!("output_evicted")], "{answer}");
        assert_eq!(record(answer), record(&first));
    };
    evicted(&rig.post("/api/threads/t/exec", &exec(json!({}))).is(200));
    evicted(&rig.post("/api/threads/t/exec", &exec(json!({ "background": true }))).is(202));
    evicted(&rig.post("/api/threads/t/exec", &exec(json!({ "output_encoding": "base64" }))).is(200));
    let told = events(&rig, "POST", "/api/threads/t/exec", &exec(json!({})));
    let names: Vec<_> = told.iter().map(|event| event.event.as_str()).collect();
    assert_eq!(names, ["start", "exit"]);
    assert_eq!(last(&told).data["warnings"][0]["code"], "output_evicted");
    assert_eq!(record(&last(&told).data), record(&first));
    // The record itself is as it was, and the log says that it is gone.
    assert_eq!(rig.get("/api/commands/old").is(200)["warnings"], json!([]));
    assert_eq!(rig.get("/api/commands/old").is(200)["stdout_bytes"], 4);
    rig.get("/api/commands/old/events").fails(410, "gone");
    rig.get("/api/commands/old/output/stdout").fails(410, "gone");
    // What printed nothing lacks nothing.
    let quiet = rig.post("/api/threads/t/exec", &json!({ "command": "true", "id": "quiet" })).is(200);
    assert_eq!((&quiet["stdout"], &quiet["stderr"], &quiet["warnings"]), (&json!(""), &json!(""), &json!([])));
    // The command line says so on standard error, and its exit code is the command's.
    let mut stead = rig.stead();
    stead.args(["exec", "-t", "t", "--id", "old", "--", "echo one; (exit 3)"]).stdin(std::process::Stdio::null());
    let output = stead.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b""[..]), "{said}");
    assert!(said.contains("no longer kept"), "{said}");
}

#[test]
fn output_that_went_with_its_instances_journal_is_null_too() {
    let rig = Rig::new();
    let exec = json!({ "command": "echo one; echo two >&2", "id": "old" });
    let first = rig.post("/api/threads/t/exec", &exec).is(200);
    let lease = rig.get("/api/threads/t/lease").is(200);
    let dir = steward_dir(&rig, lease["lease_id"].as_str().unwrap());
    kill_instance(&rig, "t");
    std::fs::remove_dir_all(dir.join("journal")).unwrap();
    let again = rig.post("/api/threads/t/exec", &exec).is(200);
    assert_eq!((&again["stdout"], &again["stderr"]), (&Value::Null, &Value::Null), "{again}");
    assert_eq!(again["warnings"][0]["code"], "output_evicted");
    assert_eq!(record(&again), record(&first));
    let told = events(&rig, "POST", "/api/threads/t/exec", &exec);
    assert_eq!((last(&told).event.as_str(), record(&last(&told).data)), ("exit", record(&first)));
}

#[test]
fn an_answer_is_not_taken_back_by_a_journal_that_was_damaged() {
    let mut rig = Rig::new();
    let exec = json!({ "command": "cd /usr; echo one; (exit 3)", "id": "c" });
    let first = rig.post("/api/threads/t/exec", &exec).is(200);
    assert_eq!((&first["status"], &first["exit_code"]), (&json!("exited"), &json!(3)));
    wait_for("its row", || (rig.get("/api/commands/c").is(200)["status"] == "exited").then_some(()));
    let lease = rig.get("/api/threads/t/lease").is(200);
    let dir = steward_dir(&rig, lease["lease_id"].as_str().unwrap());
    kill_instance(&rig, "t");
    rig.kill();
    // The record of its end is cut off: what is left says that it runs.
    for log in glob(&dir.join("journal/1"), ".log") {
        let bytes = std::fs::read(&log).unwrap();
        std::fs::write(&log, &bytes[..bytes.len() - 3]).unwrap();
    }
    rig.start();
    let again = rig.post("/api/threads/t/exec", &exec).is(200);
    assert_eq!(record(&again), record(&first));
    assert_eq!(record(&rig.get("/api/commands/c").is(200)), record(&first));
    let told = events(&rig, "GET", "/api/commands/c/events", &Value::Null);
    assert_eq!((last(&told).event.as_str(), record(&last(&told).data)), ("exit", record(&first)));
}

fn glob(dir: &std::path::Path, end: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path());
    entries.filter(|path| path.to_string_lossy().ends_with(end)).collect()
}

/// One that runs and one that waits behind it, when everything dies under them.
#[test]
fn stream_and_record_say_the_same_after_everything_was_killed_and_go_on_saying_it() {
    let mut rig = Rig::new();
    rig.exec("t", "cd /usr");
    for (id, command) in [("runs", "echo begun; sleep 1000"), ("waits", "echo never")] {
        rig.post("/api/threads/t/exec", &json!({ "command": command, "id": id, "background": true })).is(202);
    }
    wait_for("output", || (rig.get("/api/commands/runs/output/stdout").body == b"begun\n").then_some(()));
    let pid = pid_of_instance(&rig, "t");
    let start_time = stead_term::proc::stat(pid).unwrap().start_time;
    rig.kill();
    Tree::of(pid, start_time).kill(std::time::Duration::from_secs(20)).unwrap();
    rig.start();
    let tell = |rig: &Rig, id: &str| {
        let told = events(rig, "GET", &format!("/api/commands/{id}/events"), &Value::Null);
        (last(&told).event.clone(), record(&last(&told).data))
    };
    let (runs, waits) = (tell(&rig, "runs"), tell(&rig, "waits"));
    assert_eq!((runs.0.as_str(), &runs.1["status"]), ("exit", &json!("lost")));
    // It never ran, and that is known.
    assert_eq!((waits.0.as_str(), &waits.1["status"]), ("failed", &json!("failed")));
    for round in ["now", "with another instance", "with another server"] {
        for (id, told) in [("runs", &runs), ("waits", &waits)] {
            assert_eq!(record(&rig.get(&format!("/api/commands/{id}")).is(200)), told.1, "{id} {round}");
            assert_eq!(&tell(&rig, id), told, "{id} {round}");
        }
        if round == "now" {
            rig.exec("t", "true");
        } else {
            rig.kill();
            rig.start();
        }
    }
    let command = json!({ "command": "echo begun; sleep 1000", "id": "runs" });
    let again = rig.post("/api/threads/t/exec", &command).is(200);
    assert_eq!((record(&again), &again["stdout"]), (runs.1, &json!("begun\n")));
}

#[test]
fn a_command_on_a_dead_instance_is_found_lost_by_whoever_cancels_it_or_writes_to_it() {
    let rig = Rig::new();
    for (thread, id) in [("a", "one"), ("b", "two")] {
        let exec = json!({ "command": "echo before; cat", "id": id, "stdin_open": true, "background": true });
        rig.post(&format!("/api/threads/{thread}/exec"), &exec).is(202);
        wait_for("output", || {
            (rig.get(&format!("/api/commands/{id}/output/stdout")).body == b"before\n").then_some(())
        });
        kill_instance(&rig, thread);
    }
    let cancelled = rig.post("/api/commands/one/cancel", &json!({})).is(200);
    assert_eq!((&cancelled["status"], &cancelled["exit_code"]), (&json!("lost"), &Value::Null));
    let refused = rig.call("POST", "/api/commands/two/stdin", &[], b"x").fails(409, "conflict");
    assert!(refused["message"].as_str().unwrap().contains("ended"), "{refused}");
    assert_eq!(rig.get("/api/commands/two").is(200)["status"], "lost");
}

#[test]
fn a_running_command_is_found_again_by_whoever_cancels_it_or_writes_to_it_while_its_steward_is_replaced() {
    let rig = Rig::new();
    for round in 0..4 {
        let (reads, sleeps) = (format!("reads-{round}"), format!("sleeps-{round}"));
        let exec =
            json!({ "command": "echo on; read x; echo got $x", "id": reads, "stdin_open": true, "background": true });
        rig.post("/api/threads/a/exec", &exec).is(202);
        let exec = json!({ "command": "echo on; sleep 1000", "id": sleeps, "background": true });
        rig.post("/api/threads/b/exec", &exec).is(202);
        for id in [&reads, &sleeps] {
            wait_for("output", || {
                (rig.get(&format!("/api/commands/{id}/output/stdout")).body == b"on\n").then_some(())
            });
        }
        kill_steward(&rig, "a");
        kill_steward(&rig, "b");
        rig.call("POST", &format!("/api/commands/{reads}/stdin?offset=0&eof=true"), &[], b"it\n").is(204);
        let ended = rig.post(&format!("/api/commands/{sleeps}/cancel"), &json!({})).is(200);
        assert_eq!((&ended["status"], &ended["exit_code"]), (&json!("cancelled"), &json!(130)));
        let told = events(&rig, "GET", &format!("/api/commands/{reads}/events"), &Value::Null);
        assert_eq!(last(&told).data["exit_code"], 0, "{told:?}");
        assert_eq!(rig.get(&format!("/api/commands/{reads}/output/stdout")).body, b"on\ngot it\n");
    }
}

#[test]
fn a_queued_command_is_cancelled_at_once_and_can_be_written_to_when_it_runs() {
    let rig = Rig::new();
    let gate = json!({ "command": "read x", "id": "gate", "stdin_open": true, "background": true });
    rig.post("/api/threads/t/exec", &gate).is(202);
    for id in ["a", "b"] {
        let exec = json!({ "command": "cat", "id": id, "stdin_open": true, "background": true });
        assert_eq!(rig.post("/api/threads/t/exec", &exec).is(202)["status"], "queued");
    }
    let ended = rig.post("/api/commands/a/cancel", &json!({})).is(200);
    assert_eq!((&ended["status"], &ended["exit_code"]), (&json!("cancelled"), &json!(-1)));
    let refused =
        rig.call("POST", "/api/commands/b/stdin?offset=0&eof=true", &[], b"hello").fails(409, "terminal_busy");
    assert_eq!(refused["retryable"], true);
    rig.call("POST", "/api/commands/gate/stdin", &[], b"\n").is(204);
    wait_for("its turn", || {
        let sent = rig.call("POST", "/api/commands/b/stdin?offset=0&eof=true", &[], b"hello");
        (sent.status == 204).then_some(())
    });
    let told = events(&rig, "GET", "/api/commands/b/events", &Value::Null);
    assert_eq!(last(&told).data["exit_code"], 0);
    assert_eq!(rig.get("/api/commands/b/output/stdout").body, b"hello");
}

#[test]
fn a_paused_thread_says_so_to_whoever_cancels_or_writes() {
    let rig = Rig::new();
    let exec = json!({ "command": "read x; echo got $x", "id": "c", "stdin_open": true, "background": true });
    rig.post("/api/threads/t/exec", &exec).is(202);
    wait_for("it to run", || (rig.get("/api/commands/c").is(200)["status"] == "running").then_some(()));
    let paused = rig.post("/api/threads/t/pause", &json!({ "force": true }));
    if paused.status == 501 {
        println!("SKIPPED: nothing can be paused here");
        return;
    }
    paused.is(200);
    rig.post("/api/commands/c/cancel", &json!({})).fails(409, "paused");
    rig.call("POST", "/api/commands/c/stdin", &[], b"x\n").fails(409, "paused");
    rig.post("/api/threads/t/resume", &json!({})).is(200);
    rig.call("POST", "/api/commands/c/stdin", &[], b"x\n").is(204);
    wait_for("its end", || (rig.get("/api/commands/c").is(200)["status"] == "exited").then_some(()));
}

/// What was sent is sent again, whole or in part, also when server and steward have died in between.
#[test]
fn input_with_its_offset_arrives_once_however_often_it_is_sent() {
    let mut rig = Rig::new();
    let exec =
        json!({ "command": "cat; read -r go < /workspace/go", "id": "c", "stdin_open": true, "background": true });
    rig.exec("t", "mkfifo /workspace/go");
    rig.post("/api/threads/t/exec", &exec).is(202);
    wait_for("it to run", || (rig.get("/api/commands/c").is(200)["status"] == "running").then_some(()));
    let send =
        |rig: &Rig, query: &str, bytes: &[u8]| rig.call("POST", &format!("/api/commands/c/stdin?{query}"), &[], bytes);
    let taken = |answer: crate::rig::Answer| {
        assert_eq!(answer.status, 204, "{}", String::from_utf8_lossy(&answer.body));
        answer.header("stead-stdin-offset").map(|offset| offset.parse::<u64>().unwrap())
    };
    assert_eq!(taken(send(&rig, "offset=0", b"one ")), Some(4));
    assert_eq!(taken(send(&rig, "offset=0", b"one ")), Some(4), "all of it again");
    assert_eq!(taken(send(&rig, "offset=2", b"e two ")), Some(8), "some of it again");
    assert_eq!(taken(send(&rig, "offset=0", b"one")), Some(8), "less than was there");
    let gap = send(&rig, "offset=9", b"hole").fails(409, "conflict");
    assert_eq!(gap["details"]["expected_offset"], 8);
    kill_steward(&rig, "t");
    assert_eq!(taken(send(&rig, "offset=4", b"two three ")), Some(14));
    rig.kill();
    rig.start();
    assert_eq!(taken(send(&rig, "offset=4", b"two three ")), Some(14));
    assert_eq!(taken(send(&rig, "offset=14&eof=true", b"four")), Some(18));
    assert_eq!(taken(send(&rig, "offset=14&eof=true", b"four")), Some(18), "the end again");
    kill_steward(&rig, "t");
    assert_eq!(taken(send(&rig, "offset=14&eof=true", b"four")), Some(18), "the end again, to another steward");
    send(&rig, "offset=18", b"more").fails(409, "conflict");
    rig.exec("other", "true");
    let lease = rig.get("/api/threads/t/lease").is(200);
    assert_eq!(lease["observed_state"], "running");
    rig.call("PUT", "/api/threads/t/files?path=/workspace/done", &[], b"").is(201);
    rig.post("/api/commands/c/cancel", &json!({})).is(200);
    assert_eq!(rig.get("/api/commands/c/output/stdout").body, b"one two three four");
}

/// The command line goes on feeding a command when the server and the steward were killed under it.
#[test]
fn a_command_that_is_fed_by_the_command_line_outlives_server_and_steward_and_reads_each_byte_once() {
    use std::io::Write;
    let mut rig = Rig::new();
    rig.stay();
    let mut stead = rig.stead();
    stead.env("STEAD_URL", &rig.url).env("STEAD_TOKEN", &rig.token);
    stead.args(["exec", "-t", "t", "--id", "fed", "--", "cat"]);
    stead.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = stead.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut sent = Vec::new();
    for round in 0..4_u32 {
        let piece: Vec<u8> = (0..20_000).flat_map(|line| format!("{round} {line}\n").into_bytes()).collect();
        input.write_all(&piece).unwrap();
        sent.extend_from_slice(&piece);
        // What follows strikes while it is on its way, or has arrived and was not acknowledged.
        wait_for("some of it", || (rig.get("/api/commands/fed").status == 200).then_some(()));
        if round % 2 == 0 {
            rig.kill();
            rig.start();
        } else {
            kill_steward(&rig, "t");
        }
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(output.stdout == sent, "{} bytes of {}: {said}", output.stdout.len(), sent.len());
    assert_eq!(rig.get("/api/commands/fed").is(200)["status"], "exited");
}

#[test]
fn statistics_of_a_project_count_what_was_answered() {
    let rig = Rig::new();
    let project = rig.post("/api/projects", &json!({ "prefix": "p" })).is(201)["id"].as_str().unwrap().to_owned();
    rig.post("/api/threads", &json!({ "id": "t", "project_id": project })).is(201);
    for number in 1..=50 {
        let record = rig.exec("t", if number % 5 == 0 { "echo 12345; false" } else { "echo 12345" });
        assert_eq!(record["stdout_bytes"], 6);
        let seen = rig.get(&format!("/api/projects/{project}")).is(200)["statistics"].clone();
        let want = (json!(number), json!(number / 5), json!(6 * number));
        let got = (seen["commands"].clone(), seen["failed_commands"].clone(), seen["output_bytes"].clone());
        assert_eq!(got, want);
        let listed = rig.get("/api/projects").is(200)["items"][0]["statistics"]["commands"].clone();
        assert_eq!(listed, json!(number));
    }
}
