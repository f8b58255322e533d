//! Sessions on a project, by calls and over a WebSocket.

use super::{make, show, thread};
use crate::rig::{PATIENCE, Rig, rounds, wait_for};
use serde_json::{Value, json};
use std::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

pub(super) struct Client {
    pub(super) socket: WebSocket<TcpStream>,
    said: Vec<Value>,
}

impl Client {
    pub(super) fn new(rig: &Rig, path: &str) -> Self {
        let mut request = format!("ws://{}{path}", rig.address()).into_client_request().unwrap();
        let bearer = format!("Bearer {}", rig.token).parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        let stream = TcpStream::connect(rig.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (socket, _) = tungstenite::client(request, stream).unwrap_or_else(|error| panic!("{path}: {error}"));
        Self { socket, said: Vec::new() }
    }

    pub(super) fn say(&mut self, value: &Value) {
        self.socket.send(Message::Text(value.to_string().into())).unwrap();
    }

    /// The next of this kind, for this `ref`; those before it stay.
    #[track_caller]
    pub(super) fn hear(&mut self, event: &str, reference: &str) -> Value {
        loop {
            let fits = |said: &Value| said["event"] == event && said["ref"].as_str().unwrap_or_default() == reference;
            if let Some(at) = self.said.iter().position(fits) {
                return self.said.remove(at);
            }
            match self.socket.read() {
                Ok(Message::Text(text)) => self.said.push(serde_json::from_str(&text).unwrap()),
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                other => panic!("{other:?} instead of `{event}` for `{reference}`; before it {:?}", self.said),
            }
        }
    }

    /// Everything, as it comes, and nothing of it kept; the one that `is_last`.
    pub(super) fn each(&mut self, mut is_last: impl FnMut(&Value) -> bool) -> Value {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => {
                    let said = serde_json::from_str(&text).unwrap();
                    if is_last(&said) {
                        return said;
                    }
                }
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn close(mut self) {
        self.socket.close(None).unwrap();
        while self.socket.read().is_ok() {}
    }
}

fn instance(rig: &Rig, thread: &str) -> (Value, Value) {
    let lease = rig.get(&format!("/api/threads/{thread}/lease")).is(200);
    (lease["instance"]["instance_id"].clone(), lease["observed_state"].clone())
}

fn open(rig: &Rig, id: &str, thread: &str) -> String {
    let session = rig.post(&format!("/api/projects/{id}/sessions"), &json!({ "thread_id": thread })).is(201);
    assert_eq!((&session["thread_id"], &session["status"]), (&json!(thread), &json!("active")));
    session["session_id"].as_str().unwrap().to_owned()
}

fn close(rig: &Rig, id: &str, session: &str) {
    rig.delete(&format!("/api/projects/{id}/sessions/{session}")).is(204);
}

/// With the two settings, what becomes of an instance between two sessions, and whether the second one has it, too.
fn between(stop: bool, recreate: bool) -> (Value, bool) {
    let config = format!("[projects]\nstop_on_disconnect = {stop}\nrecreate_on_reconnect = {recreate}\n");
    let rig = Rig::with_config(&config, &[]);
    let (id, _) = make(&rig, &json!({ "prefix": "app" }));
    let first = open(&rig, &id, "t");
    rig.exec("t", "cd /usr; export A=1; echo kept > /workspace/f; f() { echo $1; }");
    let (before, _) = instance(&rig, "t");
    close(&rig, &id, &first);
    close(&rig, &id, &first);
    let (_, stopped) = instance(&rig, "t");
    let second = open(&rig, &id, "t");
    assert_ne!(first, second);
    let seen = rig.exec("t", "f \"$PWD $A $(cat /workspace/f)\"");
    assert_eq!(seen["stdout"], "/usr 1 kept\n", "files and terminal state are the same");
    let (after, _) = instance(&rig, "t");
    let records = show(&rig, &id)["sessions"].clone();
    assert_eq!(records.as_array().unwrap().len(), 2, "{records}");
    assert_eq!((&records[0]["close_reason"], &records[1]["close_reason"]), (&Value::Null, &json!("closed")));
    (stopped, before == after)
}

#[test]
fn the_instance_stops_and_whoever_comes_back_gets_a_fresh_one() {
    assert_eq!(between(true, true), (json!("none"), false));
}

#[test]
fn an_instance_that_was_stopped_goes_on_if_none_is_to_be_made_anew() {
    assert_eq!(between(true, false), (json!("paused"), true));
}

#[test]
fn an_instance_that_is_not_stopped_is_replaced_when_somebody_comes_back() {
    assert_eq!(between(false, true), (json!("running"), false));
}

#[test]
fn with_neither_setting_nothing_happens_to_the_instance() {
    assert_eq!(between(false, false), (json!("running"), true));
}

#[test]
fn a_session_is_of_its_project_and_keeps_it_from_being_deleted() {
    let rig = Rig::new();
    let (id, _) = make(&rig, &json!({ "prefix": "app" }));
    let (other, _) = make(&rig, &json!({ "prefix": "other" }));
    let session = open(&rig, &id, "t");
    rig.post(&format!("/api/projects/{other}/sessions"), &json!({ "thread_id": "t" })).fails(409, "conflict");
    rig.delete(&format!("/api/projects/{other}/sessions/{session}")).fails(404, "not_found");
    rig.delete(&format!("/api/projects/{id}/sessions/sess-none")).fails(404, "not_found");
    rig.post("/api/projects/none-00000000/sessions", &json!({})).fails(404, "not_found");
    rig.post(&format!("/api/projects/{id}/sessions"), &json!({ "colour": 1 })).fails(400, "invalid_request");
    rig.delete(&format!("/api/projects/{id}")).fails(409, "conflict");
    rig.delete(&format!("/api/projects/{id}?force=true")).is(204);
    let gone = show(&rig, &id);
    assert_eq!((&gone["status"], &gone["sessions"][0]["close_reason"]), (&json!("trashed"), &json!("destroyed")));
    rig.post("/api/threads/t/exec", &json!({ "command": "true" })).fails(409, "conflict");
    rig.post(&format!("/api/projects/{id}/sessions"), &json!({})).fails(409, "conflict");
    // Without a name there is a thread of its own.
    let made = rig.post(&format!("/api/projects/{other}/sessions"), &json!({})).is(201);
    assert!(made["thread_id"].as_str().unwrap().starts_with("thr-"));
    rig.delete(&format!("/api/projects/{other}")).fails(409, "conflict");
    close(&rig, &other, made["session_id"].as_str().unwrap());
    rig.delete(&format!("/api/projects/{other}")).is(204);
}

#[test]
fn disconnecting_ends_what_runs_and_each_session_has_a_log() {
    let rig = Rig::new();
    let (id, _) = make(&rig, &json!({ "prefix": "app" }));
    let session = open(&rig, &id, "t");
    rig.exec("t", "echo one\necho two");
    rig.post("/api/threads/t/exec", &json!({ "command": "sleep 1000", "background": true, "id": "long" })).is(202);
    close(&rig, &id, &session);
    assert_eq!(rig.get("/api/commands/long").is(200)["status"], "cancelled");
    let path = rig.data().join("projects").join(&id).join(format!(".logs/{session}.log"));
    let log = wait_for("the last line of the log", || {
        std::fs::read_to_string(&path).ok().filter(|log| log.contains(" closed: closed after "))
    });
    assert!(log.lines().next().unwrap().contains(" opened by `tok-"), "{log}");
    assert!(log.contains("exited 0 after ") && log.contains("8 bytes: echo one\\necho two\n"), "{log}");
    assert!(log.contains("`long` cancelled 130"), "{log}");
}

#[test]
fn a_websocket_runs_commands_and_its_end_is_the_end_of_the_session() {
    let rig = Rig::new();
    let (id, _) = make(&rig, &json!({ "prefix": "app" }));
    let mut client = Client::new(&rig, &format!("/api/projects/{id}/ws?thread_id=t"));
    let session = client.hear("session", "")["data"]["session_id"].clone();
    client.say(&json!({ "op": "exec", "ref": "a", "command": "cd /usr; echo out; echo err >&2" }));
    client.say(&json!({ "op": "exec", "ref": "b", "command": "pwd; exit 3" }));
    let accepted = client.hear("accepted", "a");
    assert!(accepted["data"]["id"].as_str().unwrap().starts_with("cmd-"));
    assert_eq!(client.hear("start", "a")["ref"], "a");
    assert_eq!(client.hear("stdout", "a")["data"]["data"], "out\n");
    assert_eq!(client.hear("stderr", "a")["data"]["data"], "err\n");
    let exit = client.hear("exit", "a");
    assert_eq!((&exit["data"]["exit_code"], exit["id"].as_u64().unwrap() > 2), (&json!(0), true));
    assert_eq!(client.hear("stdout", "b")["data"]["data"], "/usr\n", "one after the other");
    assert_eq!(client.hear("exit", "b")["data"]["exit_code"], 3);
    client.say(&json!({ "op": "ping", "ref": "p" }));
    client.hear("pong", "p");
    client.say(&json!({ "op": "exec", "ref": "c", "command": "read x; echo [$x]; cat", "stdin_open": true }));
    let command = client.hear("accepted", "c")["data"]["id"].clone();
    client.say(&json!({ "op": "stdin", "ref": "s1", "command_id": command, "data": "hi\n" }));
    client.hear("ok", "s1");
    assert_eq!(client.hear("stdout", "c")["data"]["data"], "[hi]\n");
    let typed =
        json!({ "op": "stdin", "ref": "s2", "command_id": command, "data": "/w==", "encoding": "base64", "eof": true });
    client.say(&typed);
    client.hear("ok", "s2");
    let raw = client.hear("stdout", "c");
    assert_eq!((&raw["data"]["data"], &raw["data"]["encoding"]), (&json!("/w=="), &json!("base64")));
    client.hear("exit", "c");
    client.say(&json!({ "op": "exec", "ref": "d", "command": "sleep 1000" }));
    let command = client.hear("accepted", "d")["data"]["id"].clone();
    client.hear("start", "d");
    client.say(&json!({ "op": "cancel", "ref": "x", "command_id": command, "signal": "KILL" }));
    client.hear("ok", "x");
    assert_eq!(client.hear("exit", "d")["data"]["status"], "cancelled");
    assert_eq!(instance(&rig, "t").1, "running");
    client.close();
    let record = wait_for("the end of the session", || {
        Some(show(&rig, &id)["sessions"][0].clone()).filter(|record| record["ended_at"].is_string())
    });
    assert_eq!((&record["session_id"], &record["close_reason"]), (&session, &json!("closed")));
    wait_for("the end of the instance", || (instance(&rig, "t").1 == "none").then_some(()));
}

#[test]
fn a_thread_that_is_deleted_under_a_connection_is_made_again_inside_the_project() {
    let rig = Rig::new();
    let (id, _) = make(&rig, &json!({ "prefix": "app", "config": { "provider": "local" } }));
    let mut client = Client::new(&rig, &format!("/api/projects/{id}/ws?thread_id=t"));
    client.hear("session", "");
    client.say(&json!({ "op": "exec", "ref": "a", "command": "echo shared > f" }));
    client.hear("exit", "a");
    rig.delete("/api/threads/t").is(204);
    client.say(&json!({ "op": "exec", "ref": "none", "command": "true", "create": false }));
    assert_eq!(client.hear("error", "none")["error"]["code"], "not_found");
    client.say(&json!({ "op": "exec", "ref": "b", "command": "cat f -", "stdin_open": true }));
    let command = client.hear("accepted", "b")["data"]["id"].clone();
    let made = rig.get("/api/threads/t").is(200);
    assert_eq!((&made["project_id"], &made["provider"]), (&json!(id), &json!("local")), "{made}");
    assert_eq!(client.hear("stdout", "b")["data"]["data"], "shared\n");
    client.say(&json!({ "op": "stdin", "ref": "s", "command_id": command, "data": "typed\n" }));
    client.hear("ok", "s");
    assert_eq!(client.hear("stdout", "b")["data"]["data"], "typed\n");
    client.say(&json!({ "op": "cancel", "ref": "x", "command_id": command }));
    client.hear("ok", "x");
    client.hear("exit", "b");
    // Made again somewhere else, it is none that this connection may use.
    rig.delete("/api/threads/t").is(204);
    rig.post("/api/threads", &json!({ "id": "t" })).is(201);
    client.say(&json!({ "op": "exec", "ref": "c", "command": "true" }));
    assert_eq!(client.hear("error", "c")["error"]["code"], "conflict");
}

#[test]
fn input_over_a_connection_arrives_in_the_order_in_which_it_was_sent() {
    const FRAMES: usize = 60;
    let rig = Rig::new();
    let (id, _) = make(&rig, &json!({ "prefix": "app" }));
    let mut client = Client::new(&rig, &format!("/api/projects/{id}/ws?thread_id=t"));
    for round in 0..rounds(20) {
        let reference = format!("run-{round}");
        let body = json!({ "op": "exec", "ref": reference, "command": "sha256sum; echo end", "stdin_open": true });
        client.say(&body);
        let command = client.hear("accepted", &reference)["data"]["id"].clone();
        let mut all = String::new();
        for frame in 0..FRAMES {
            // Some are large, so that some take longer than others.
            let data = format!("{frame} {}\n", "x".repeat(if frame % 7 == 0 { 20_000 } else { 1 }));
            all += &data;
            let reference = format!("{round}-{frame}");
            let eof = frame + 1 == FRAMES;
            client.say(&json!({ "op": "stdin", "ref": reference, "command_id": command, "data": data, "eof": eof }));
        }
        let (mut taken, mut told) = (0, String::new());
        client.each(|said| {
            assert_ne!(said["event"], "error", "round {round}: {said}");
            taken += usize::from(said["event"] == "ok");
            if said["event"] == "stdout" {
                told += said["data"]["data"].as_str().unwrap();
            }
            said["event"] == "exit"
        });
        assert_eq!(taken, FRAMES, "round {round}");
        let mut sum = std::process::Command::new("sha256sum")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut sum.stdin.take().unwrap(), all.as_bytes()).unwrap();
        let wanted = String::from_utf8(sum.wait_with_output().unwrap().stdout).unwrap();
        assert_eq!(told.lines().next(), wanted.lines().next(), "round {round}");
    }
}

#[test]
fn what_makes_no_sense_is_told_and_the_connection_stays() {
    let rig = Rig::new();
    let (id, _) = make(&rig, &json!({ "prefix": "app" }));
    thread(&rig, "t", &id);
    rig.post("/api/threads/alone/exec", &json!({ "command": "true", "id": "others" })).is(200);
    let mut client = Client::new(&rig, &format!("/api/projects/{id}/ws?thread_id=t"));
    for (message, reference, code) in [
        (json!([]), "", "invalid_request"),
        (json!({ "op": "exec", "command": "true" }), "", "invalid_request"),
        (json!({ "op": "exec", "ref": 5, "command": "true" }), "", "invalid_request"),
        (json!({ "op": "fly", "ref": "a" }), "a", "invalid_request"),
        (json!({ "op": "exec", "ref": "b" }), "b", "invalid_request"),
        (json!({ "op": "exec", "ref": "c", "command": "true", "colour": 1 }), "c", "invalid_request"),
        (json!({ "op": "exec", "ref": "d", "command": "true", "terminal": "none" }), "d", "not_found"),
        (json!({ "op": "stdin", "ref": "e", "command_id": "none", "data": "x" }), "e", "not_found"),
        (json!({ "op": "stdin", "ref": "f", "command_id": "others", "data": "x" }), "f", "not_found"),
        (json!({ "op": "cancel", "ref": "g", "command_id": "others" }), "g", "not_found"),
        (json!({ "op": "cancel", "ref": "h", "command_id": "none", "signal": "HUP" }), "h", "invalid_request"),
        (json!({ "op": "ping", "ref": "i", "x": 1 }), "i", "invalid_request"),
    ] {
        client.say(&message);
        let error = client.hear("error", reference);
        assert_eq!(error["error"]["code"], code, "{message}: {error}");
    }
    client.socket.send(Message::Text("{".into())).unwrap();
    client.hear("error", "");
    client.socket.send(Message::Binary(vec![1].into())).unwrap();
    client.hear("error", "");
    client.say(&json!({ "op": "exec", "ref": "ok", "command": "echo still here" }));
    assert_eq!(client.hear("stdout", "ok")["data"]["data"], "still here\n");
}

#[test]
fn the_last_to_leave_ends_the_session_and_a_command_that_runs_is_waited_for() {
    let rig = Rig::new();
    let (id, _) = make(&rig, &json!({ "prefix": "app" }));
    let path = format!("/api/projects/{id}/ws?thread_id=t");
    let (mut one, mut two) = (Client::new(&rig, &path), Client::new(&rig, &path));
    let session = one.hear("session", "")["data"]["session_id"].clone();
    assert_eq!(two.hear("session", "")["data"]["session_id"], session);
    one.close();
    two.say(&json!({ "op": "exec", "ref": "a", "command": "echo $$" }));
    two.hear("exit", "a");
    assert_eq!(rig.get("/api/threads/t/session").is(200)["status"], "active");
    two.say(&json!({ "op": "exec", "ref": "b", "command": "while [ ! -e go ]; do sleep 0.05; done; echo done", "id": "waits" }));
    two.hear("start", "b");
    two.close();
    assert_eq!(rig.get("/api/commands/waits").is(200)["status"], "running");
    assert_eq!(rig.get("/api/threads/t/session").is(200)["status"], "active");
    assert_eq!(rig.call("PUT", "/api/threads/t/files?path=go", &[], b"").status, 201);
    wait_for("the end of the session", || {
        (rig.get("/api/threads/t/session").is(200)["status"] == "closed").then_some(())
    });
    let command = rig.get("/api/commands/waits").is(200);
    assert_eq!((&command["status"], &command["exit_code"]), (&json!("exited"), &json!(0)));
}

#[test]
fn many_who_open_one_new_thread_of_a_project_at_once_share_it() {
    let rig = Rig::new();
    let id = rig.post("/api/projects", &json!({ "prefix": "app" })).is(201)["id"].as_str().unwrap().to_owned();
    for round in 0..5 {
        let thread = format!("t{round}");
        let opened: Vec<_> = std::thread::scope(|scope| {
            let open = || rig.post(&format!("/api/projects/{id}/sessions"), &json!({ "thread_id": thread })).is(201);
            let tasks: Vec<_> = (0..12).map(|_| scope.spawn(open)).collect();
            tasks.into_iter().map(|task| task.join().unwrap()).collect()
        });
        assert!(opened.iter().all(|session| session["session_id"] == opened[0]["session_id"]), "{opened:?}");
    }
}
