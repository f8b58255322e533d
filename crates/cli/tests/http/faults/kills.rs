//! `kill -9` of the server, over and over, under load.

use crate::rig::{PATIENCE, Rig, rounds, wait_for};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// What all of them know.
struct Common {
    agent: ureq::Agent,
    url: String,
    bearer: String,
    /// Grows with everything that any of them hears.
    heard: AtomicU64,
    over: AtomicBool,
}

/// One client with a thread of its own.
struct Client {
    common: Arc<Common>,
    thread: String,
    acknowledged: BTreeMap<String, Value>,
}

const LINES: usize = 40;

fn text(id: &str) -> String {
    (1..=LINES).map(|line| format!("{id} {line} ü\n")).collect::<Vec<_>>().concat()
}

impl Common {
    /// One try; nothing if the server went away under it.
    fn call(&self, method: &str, path: &str, accept: &str, body: &[u8]) -> Option<(u16, ureq::Body)> {
        let request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.url));
        let request = request.header("authorization", &self.bearer).header("accept", accept);
        let request = request.header("content-type", "application/json").body(body.to_vec()).unwrap();
        let answer = self.agent.run(request).ok()?;
        self.heard.fetch_add(1, Ordering::Relaxed);
        Some((answer.status().as_u16(), answer.into_body()))
    }

    fn json(&self, method: &str, path: &str, body: &[u8]) -> Option<(u16, Value)> {
        let (status, body) = self.call(method, path, "application/json", body)?;
        let mut bytes = Vec::new();
        body.into_reader().read_to_end(&mut bytes).ok()?;
        self.heard.fetch_add(1, Ordering::Relaxed);
        Some((status, serde_json::from_slice(&bytes).unwrap_or_default()))
    }

    /// Until the server is there to answer.
    fn insist(&self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        crate::rig::wait_for(path, || {
            let (status, answer) = self.json(method, path, body)?;
            (status != 503).then_some((status, answer))
        })
    }
}

impl Client {
    fn work(mut self) -> Self {
        for number in 0.. {
            if self.common.over.load(Ordering::Relaxed) {
                break;
            }
            let id = format!("{}-{number}", self.thread);
            let record = match number % 3 {
                0 => self.plainly(&id),
                1 => self.streaming(&id),
                _ => self.feeding(&id),
            };
            assert_eq!((&record["status"], &record["exit_code"]), (&json!("exited"), &json!(7)), "{record}");
            self.acknowledged.insert(id, record);
        }
        self
    }

    /// Leaves a mark each time it runs.
    fn exec(id: &str, more: &str) -> Value {
        let command = format!(
            "echo {id} >> /workspace/ran; N=$((N+1)); {more}for i in $(seq {LINES}); do echo \"{id} $i ü\"; done; (exit 7)"
        );
        json!({ "command": command, "id": id })
    }

    fn plainly(&self, id: &str) -> Value {
        let path = format!("/api/threads/{}/exec", self.thread);
        let (status, answer) = self.common.insist("POST", &path, Self::exec(id, "").to_string().as_bytes());
        assert_eq!((status, answer["stdout"].as_str()), (200, Some(text(id).as_str())), "{answer}");
        answer
    }

    /// Asks with its id until it is taken, then follows from wherever the last stream broke.
    fn streaming(&self, id: &str) -> Value {
        let (mut last, mut shown) = (0, String::new());
        let (exec, begun) = (Self::exec(id, "").to_string(), Instant::now());
        let first = format!("/api/threads/{}/exec", self.thread);
        loop {
            assert!(begun.elapsed() < PATIENCE, "{id} doesn't end");
            let again = format!("/api/commands/{id}/events?after={last}");
            let answer = if last == 0 {
                self.common.call("POST", &first, "text/event-stream", exec.as_bytes())
            } else {
                self.common.call("GET", &again, "text/event-stream", b"")
            };
            let Some((status, body)) = answer else { continue };
            if status == 503 {
                continue;
            }
            assert_eq!(status, 200, "{id} after {last}");
            if let Some(end) = self.read(BufReader::new(body.into_reader()), &mut last, &mut shown) {
                assert_eq!(shown, text(id));
                return end;
            }
        }
    }

    /// Events until the connection breaks or the command ends; none without its number, none twice.
    fn read(&self, mut lines: impl BufRead, last: &mut u64, shown: &mut String) -> Option<Value> {
        let (mut id, mut name, mut line) = (None, String::new(), String::new());
        loop {
            line.clear();
            if lines.read_line(&mut line).unwrap_or(0) == 0 || !line.ends_with('\n') {
                return None;
            }
            self.common.heard.fetch_add(1, Ordering::Relaxed);
            match line.trim_end_matches('\n').split_once(": ") {
                Some(("id", number)) => id = number.parse::<u64>().ok(),
                Some(("event", event)) => event.clone_into(&mut name),
                Some(("data", data)) => {
                    let data: Value = serde_json::from_str(data).unwrap();
                    if name == "error" {
                        // The end of this stream, not of the command.
                        return None;
                    }
                    assert_eq!(id, Some(*last + 1), "{name} {data}");
                    *last += 1;
                    match name.as_str() {
                        "stdout" => {
                            assert_eq!(data["offset"], json!(shown.len()));
                            shown.push_str(data["data"].as_str().unwrap());
                        }
                        "exit" => return Some(data),
                        _ => assert_eq!(name, "start"),
                    }
                }
                _ => {}
            }
        }
    }

    /// In the background, fed through its standard input.
    fn feeding(&self, id: &str) -> Value {
        let mut exec = Self::exec(id, "read x; [ \"$x\" = food ] || exit 9; ");
        exec["background"] = json!(true);
        exec["stdin_open"] = json!(true);
        let path = format!("/api/threads/{}/exec", self.thread);
        let (status, answer) = self.common.insist("POST", &path, exec.to_string().as_bytes());
        assert_eq!(status, 202, "{answer}");
        let feed = format!("/api/commands/{id}/stdin?eof=true");
        let (status, answer) = self.common.insist("POST", &feed, b"food\n");
        // It may have come the first time, unheard.
        assert!(status == 204 || status == 409, "{status} {answer}");
        let path = format!("/api/commands/{id}");
        let record = crate::rig::wait_for("the end", || {
            let (status, record) = self.common.json("GET", &path, b"")?;
            (status == 200 && record["status"] != "queued" && record["status"] != "running").then_some(record)
        });
        let output = crate::rig::wait_for("its output", || {
            let (status, body) = self.common.call("GET", &format!("{path}/output/stdout"), "*/*", b"")?;
            let mut bytes = Vec::new();
            let read = body.into_reader().read_to_end(&mut bytes);
            (status == 200 && read.is_ok()).then_some(bytes)
        });
        assert_eq!(String::from_utf8(output).unwrap(), text(id));
        record
    }
}

/// Repeats itself; good enough to choose moments.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[test]
fn a_server_killed_at_any_moment_loses_nothing_and_runs_nothing_twice() {
    let mut rig = Rig::new();
    rig.stay();
    let seed = std::env::var("STEAD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed);
    println!("STEAD_SEED={seed}");
    let agent = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE)).build().into();
    let common = Arc::new(Common {
        agent,
        url: rig.url.clone(),
        bearer: format!("Bearer {}", rig.token),
        heard: AtomicU64::new(0),
        over: AtomicBool::new(false),
    });
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let (common, thread) = (Arc::clone(&common), format!("t{number}"));
            std::thread::spawn(move || Client { common, thread, acknowledged: BTreeMap::new() }.work())
        })
        .collect();
    let mut chance = Chance(seed);
    let rounds = rounds(200);
    for _ in 0..rounds {
        // Some rounds are so short that nothing is heard: those kill a server that is still recovering.
        let until = common.heard.load(Ordering::Relaxed) + chance.below(300);
        crate::rig::wait_for("somebody to hear something", || {
            let broken = clients.iter().any(std::thread::JoinHandle::is_finished);
            (broken || common.heard.load(Ordering::Relaxed) >= until).then_some(())
        });
        rig.kill();
        rig.start();
    }
    common.over.store(true, Ordering::Relaxed);
    let mut count = 0;
    for client in clients {
        let Client { thread, acknowledged, .. } = client.join().unwrap();
        count += acknowledged.len();
        check(&rig, &thread, &acknowledged);
    }
    println!("{rounds} kills, {count} commands");
    assert!(count > 20, "{count} commands is no load");
}

fn check(rig: &Rig, thread: &str, acknowledged: &BTreeMap<String, Value>) {
    for (id, acknowledged) in acknowledged {
        let record = rig.get(&format!("/api/commands/{id}")).is(200);
        for field in ["status", "exit_code", "state_version", "cwd", "stdout_bytes", "stderr_bytes", "ended_at"] {
            assert_eq!(record[field], acknowledged[field], "{id} {field}");
        }
        let output = rig.get(&format!("/api/commands/{id}/output/stdout")).body;
        assert_eq!(String::from_utf8(output).unwrap(), text(id));
        let events: Vec<_> = rig.events("GET", &format!("/api/commands/{id}/events"), &Value::Null).collect();
        assert!(events.iter().zip(1..).all(|(event, number)| event.id == Some(number)), "{events:?}");
    }
    let ran = rig.exec(thread, "cat /workspace/ran; echo $N");
    let mut lines: Vec<&str> = ran["stdout"].as_str().unwrap().lines().collect();
    let counted: usize = lines.pop().unwrap().parse().unwrap();
    assert_eq!(counted, lines.len(), "its state is that of all that ran");
    lines.sort_unstable();
    let mut once = lines.clone();
    once.dedup();
    assert_eq!(lines, once, "something ran twice");
    let ids: Vec<&str> = acknowledged.keys().map(String::as_str).collect();
    assert!(ids.iter().all(|id| lines.binary_search(id).is_ok()), "something that was acknowledged never ran");
    let listed = rig.get(&format!("/api/threads/{thread}/commands?limit=1000")).is(200);
    let listed: Vec<&Value> = listed["items"].as_array().unwrap().iter().collect();
    if acknowledged.len() < 990 {
        let known = |id: &&str| listed.iter().any(|record| record["id"] == **id);
        assert!(ids.iter().all(known), "something is not in its thread's history");
    }
}

#[test]
fn a_fork_just_after_its_steward_was_killed_has_the_state_that_was_answered_last() {
    let mut rig = Rig::new();
    rig.post("/api/threads", &json!({ "id": "t", "provider": "local" })).is(201);
    rig.exec("t", "kept=none");
    for round in 0..rounds(6) {
        let body =
            json!({ "command": format!("sleep 0.3; kept={round}; cd /usr; echo set"), "id": format!("c{round}") });
        let mut background = body.clone();
        background["background"] = json!(true);
        rig.post("/api/threads/t/exec", &background).is(202);
        rig.kill();
        rig.start();
        let steward = wait_for("the steward", || super::memory::steward(&rig));
        // Heard of by a server that did not send it, and so was told no state with it.
        assert_eq!(rig.post("/api/threads/t/exec", &body).is(200)["stdout"], "set\n");
        // Before the store has the state: the answer doesn't wait for that.
        rustix::process::kill_process(steward, Signal::KILL).unwrap();
        let fork = format!("f{round}");
        rig.post("/api/threads/t/fork", &json!({ "id": fork, "workspace": "copy" })).is(201);
        assert_eq!(rig.exec(&fork, "echo $kept; pwd")["stdout"], format!("{round}\n/usr\n"));
    }
}

/// The process that a process comes from.
fn parent(pid: Pid) -> Pid {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    let fields = stat.rsplit_once(") ").unwrap().1;
    Pid::from_raw(fields.split(' ').nth(1).unwrap().parse().unwrap()).unwrap()
}

#[test]
fn the_record_of_a_lost_command_counts_what_lay_in_its_pipes() {
    let mut rig = Rig::new();
    rig.post("/api/threads", &json!({ "id": "t", "provider": "local" })).is(201);
    rig.exec("t", "true");
    let steward = wait_for("the steward", || super::memory::steward(&rig));
    let keeper = parent(steward);
    let command = "echo one; until [ -e go ]; do :; done; echo two; echo three >&2; : >written; sleep 1000";
    rig.post("/api/threads/t/exec", &json!({ "command": command, "id": "c", "background": true })).is(202);
    let seen = |rig: &Rig| rig.get("/api/commands/c").is(200);
    wait_for("its first line", || (seen(&rig)["stdout_bytes"] == 4).then_some(()));
    // Nobody moves what it writes from now on.
    for pid in [keeper, steward] {
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
    }
    let file = |name: &str| format!("/api/threads/t/files?path={name}");
    rig.call("PUT", &file("go"), &[], b"");
    wait_for("it to write", || (rig.call("GET", &file("written"), &[], b"").status == 200).then_some(()));
    for pid in [keeper, steward] {
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
    }
    rig.kill();
    rig.start();
    let lost = wait_for("its end", || Some(seen(&rig)).filter(|record| record["status"] == "lost"));
    let output = |stream: &str| rig.get(&format!("/api/commands/c/output/{stream}")).body;
    let written = [b"one\ntwo\n".to_vec(), b"three\n".to_vec()];
    assert_eq!((&lost["stdout_bytes"], &lost["stderr_bytes"]), (&json!(8), &json!(6)));
    assert_eq!(["stdout", "stderr"].map(output), written);
    // Another instance takes over what this one has left.
    rig.exec("t", "true");
    assert_eq!(seen(&rig), lost);
    assert_eq!(["stdout", "stderr"].map(output), written);
}

#[test]
fn the_record_of_a_command_whose_namespace_died_stays_as_it_was_first_told() {
    let mut rig = Rig::new();
    for round in 0..rounds(12) {
        let (thread, id) = ("t", format!("c{round}"));
        rig.post("/api/threads", &json!({ "id": thread, "provider": "namespace" })).is(201);
        rig.exec(thread, "true");
        let steward = wait_for("the steward", || super::memory::steward(&rig));
        let keeper = parent(steward);
        let command = "echo one; until [ -e go ]; do :; done; echo two; echo three >&2; : >written; sleep 1000";
        rig.post(&format!("/api/threads/{thread}/exec"), &json!({ "command": command, "id": id, "background": true }))
            .is(202);
        let seen = |rig: &Rig| rig.get(&format!("/api/commands/{id}")).is(200);
        wait_for("its first line", || (seen(&rig)["stdout_bytes"] == 4).then_some(()));
        rustix::process::kill_process(steward, Signal::STOP).unwrap();
        let file = |name: &str| format!("/api/threads/{thread}/files?path={name}");
        rig.call("PUT", &file("go"), &[], b"");
        wait_for("it to write", || (rig.call("GET", &file("written"), &[], b"").status == 200).then_some(()));
        for pid in [steward, keeper] {
            rustix::process::kill_process(pid, Signal::KILL).unwrap();
        }
        rig.kill();
        rig.start();
        let lost = wait_for("its end", || Some(seen(&rig)).filter(|record| record["status"] == "lost"));
        let outputs =
            |rig: &Rig| ["stdout", "stderr"].map(|stream| rig.get(&format!("/api/commands/{id}/output/{stream}")).body);
        let told = outputs(&rig);
        assert_eq!([&lost["stdout_bytes"], &lost["stderr_bytes"]], [&json!(told[0].len()), &json!(told[1].len())]);
        // Another instance takes over what this one has left.
        rig.exec(thread, "true");
        assert_eq!((seen(&rig), outputs(&rig)), (lost, told), "round {round}");
        rig.call("DELETE", &format!("/api/threads/{thread}"), &[], b"").is(204);
    }
}

/// What the history of a thread has, newest first.
fn history(rig: &Rig, thread: &str) -> Vec<Value> {
    let list = rig.get(&format!("/api/threads/{thread}/commands?limit=1000")).is(200);
    list["items"].as_array().unwrap().clone()
}

#[test]
fn a_command_without_an_id_is_found_after_the_server_was_killed_just_after_it_was_answered() {
    let mut rig = Rig::new();
    rig.stay();
    for thread in ["quick", "long"] {
        rig.post("/api/threads", &json!({ "id": thread, "provider": "local" })).is(201);
        rig.exec(thread, "N=0");
    }
    let shown = |answer: &Value| {
        let mut record = answer.clone();
        for field in ["stdout", "stderr", "truncated"] {
            record.as_object_mut().unwrap().remove(field);
        }
        record
    };
    for round in 1..=rounds(16) {
        let answer = rig.exec("quick", "N=$((N+1)); echo $N; echo no >&2; cd /usr; (exit 7)");
        rig.kill();
        assert_eq!(answer["stdout"], format!("{round}\n"));
        rig.start();
        let id = answer["id"].as_str().unwrap();
        let found = rig.get(&format!("/api/commands/{id}")).is(200);
        assert_eq!(shown(&found), shown(&answer), "round {round}");
        assert_eq!(shown(&history(&rig, "quick")[0]), shown(&answer), "round {round}");
        assert_eq!(rig.get(&format!("/api/commands/{id}/output/stdout")).body, format!("{round}\n").as_bytes());

        let exec = json!({ "command": "read x; echo got $x", "stdin_open": true, "background": true });
        let taken = rig.post("/api/threads/long/exec", &exec);
        rig.kill();
        let taken = taken.is(202);
        rig.start();
        let id = taken["id"].as_str().unwrap();
        let found = rig.get(&format!("/api/commands/{id}")).is(200);
        for field in ["id", "thread_id", "terminal_id", "session_id", "command", "created_at", "exit_code"] {
            assert_eq!(found[field], taken[field], "round {round}: {field} of {found}");
        }
        assert_eq!(found["status"], "running", "round {round}");
        assert_eq!(history(&rig, "long")[0]["id"], taken["id"], "round {round}");
        rig.call("POST", &format!("/api/commands/{id}/stdin?eof=true"), &[], b"it\n").is(204);
        let end = rig.events("GET", &format!("/api/commands/{id}/events"), &Value::Null).last().unwrap();
        assert_eq!((&end.data["status"], &end.data["exit_code"]), (&json!("exited"), &json!(0)), "round {round}");
        assert_eq!(rig.get(&format!("/api/commands/{id}/output/stdout")).body, b"got it\n");
    }
    assert_eq!(history(&rig, "quick").len(), rounds(16) as usize + 1);
    assert_eq!(history(&rig, "long").len(), rounds(16) as usize + 1);
}

#[test]
fn commands_of_a_deleted_thread_do_not_come_back_with_the_next_server() {
    let mut rig = Rig::new();
    let make = |rig: &Rig| rig.post("/api/threads", &json!({ "id": "t", "provider": "local" })).is(201);
    make(&rig);
    let shared = json!({ "id": "other", "share_with": "t" });
    rig.post("/api/threads", &shared).is(201);
    let of_other = rig.exec("other", "echo other")["id"].clone();
    let of_deleted = rig.exec("t", "echo t")["id"].clone();
    rig.delete("/api/threads/t").is(204);
    make(&rig);
    rig.kill();
    rig.start();
    rig.get(&format!("/api/commands/{}", of_deleted.as_str().unwrap())).fails(404, "not_found");
    assert_eq!(history(&rig, "t"), Vec::<Value>::new());
    assert_eq!(history(&rig, "other")[0]["id"], of_other);
}

/// The pipe from which the only command reads what is sent to it.
fn input_pipe(dir: &std::path::Path) -> Option<std::path::PathBuf> {
    let entries: Vec<_> = std::fs::read_dir(dir).into_iter().flatten().flatten().collect();
    let is_input = |entry: &&std::fs::DirEntry| {
        let is_pipe = entry.file_type().is_ok_and(|kind| std::os::unix::fs::FileTypeExt::is_fifo(&kind));
        is_pipe && entry.file_name().to_string_lossy().starts_with("i.")
    };
    let found = entries.iter().find(is_input).map(std::fs::DirEntry::path);
    let dirs = entries.iter().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    found.or_else(|| dirs.map(std::fs::DirEntry::path).find_map(|dir| input_pipe(&dir)))
}

#[test]
fn input_without_its_place_is_not_to_be_sent_again_when_the_steward_is_killed_meanwhile() {
    let rig = Rig::new();
    rig.post("/api/threads", &json!({ "id": "t", "provider": "local" })).is(201);
    let exec = json!({ "command": "until [ -e go ]; do :; done; cat | wc -c", "stdin_open": true, "background": true });
    let id = rig.post("/api/threads/t/exec", &exec).is(202)["id"].as_str().unwrap().to_owned();
    let steward = wait_for("the steward", || super::memory::steward(&rig));
    let stdin = |query: &str, bytes: &[u8]| rig.call("POST", &format!("/api/commands/{id}/stdin{query}"), &[], bytes);
    // More than a pipe takes, and nobody reads it.
    let refused = std::thread::scope(|scope| {
        let sent = scope.spawn(|| stdin("", &vec![b'x'; 200_000]));
        let pipe = wait_for("the pipe", || input_pipe(&rig.data().join("providers")));
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
        let pipe = rustix::fs::open(&pipe, flags, rustix::fs::Mode::empty()).unwrap();
        wait_for("the first of it", || rustix::io::ioctl_fionread(&pipe).is_ok_and(|bytes| bytes > 0).then_some(()));
        rustix::process::kill_process(steward, Signal::KILL).unwrap();
        sent.join().unwrap()
    });
    let error = refused.fails(503, "unavailable");
    assert_eq!(error["retryable"], false, "{error}");
    assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("?offset=")), "{error}");
    rig.post(&format!("/api/commands/{id}/cancel"), &json!({ "signal": "KILL" })).is(200);
}
