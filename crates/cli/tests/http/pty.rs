//! A person at a terminal, over a WebSocket.

use crate::rig::{PATIENCE, Rig, wait_for};
use serde_json::{Value, json};
use std::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{self, HandshakeError, Message, WebSocket};

struct Person {
    socket: WebSocket<TcpStream>,
    /// Everything that was shown.
    shown: String,
    /// What was said about the terminal.
    said: Vec<Value>,
}

type Headers<'a> = &'a [(&'a str, &'a str)];

/// The status of a refusal, and its code.
type Refused = (u16, String);

fn knock(rig: &Rig, path: &str, headers: &[(&str, &str)]) -> Result<Person, Refused> {
    let mut request = format!("ws://{}{path}", rig.address()).into_client_request().unwrap();
    for (name, value) in headers {
        let name: tungstenite::http::HeaderName = name.parse().unwrap();
        request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
    }
    let stream = TcpStream::connect(rig.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    match tungstenite::client(request, stream) {
        Ok((socket, _)) => Ok(Person { socket, shown: String::new(), said: Vec::new() }),
        Err(HandshakeError::Failure(tungstenite::Error::Http(answer))) => {
            let body: Value = serde_json::from_slice(answer.body().as_deref().unwrap_or(b"{}")).unwrap_or_default();
            Err((answer.status().as_u16(), body["error"]["code"].as_str().unwrap_or_default().to_owned()))
        }
        Err(error) => panic!("{path}: {error}"),
    }
}

fn attach(rig: &Rig, path: &str) -> Person {
    let bearer = format!("Bearer {}", rig.token);
    knock(rig, path, &[("authorization", &bearer)]).unwrap_or_else(|refused| panic!("{path}: {refused:?}"))
}

impl Person {
    fn types(&mut self, text: &str) {
        self.socket.send(Message::Binary(text.as_bytes().to_vec().into())).unwrap();
    }

    fn says(&mut self, value: &Value) {
        self.socket.send(Message::Text(value.to_string().into())).unwrap();
    }

    /// One more frame; false when they are gone.
    fn looks(&mut self) -> bool {
        match self.socket.read() {
            Ok(Message::Binary(bytes)) => self.shown.push_str(&String::from_utf8_lossy(&bytes)),
            Ok(Message::Text(text)) => self.said.push(serde_json::from_str(&text).unwrap()),
            Ok(Message::Close(_)) | Err(tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed) => {
                return false;
            }
            Ok(_) => {}
            Err(error) => panic!("{error}; it has shown:\n{}", self.shown),
        }
        true
    }

    #[track_caller]
    fn sees(&mut self, text: &str) {
        while !self.shown.contains(text) {
            assert!(self.looks(), "closed without `{text}`:\n{}", self.shown);
        }
    }

    #[track_caller]
    fn hears(&mut self, kind: &str) -> Value {
        loop {
            if let Some(at) = self.said.iter().position(|said| said["type"] == kind) {
                return self.said.remove(at);
            }
            assert!(self.looks(), "closed without `{kind}`: {:?}", self.said);
        }
    }
}

#[test]
fn a_person_types_and_sees_in_the_shell_that_the_agent_uses() {
    let rig = Rig::new();
    rig.exec("t", "cd /usr; export A=from-the-agent");
    let mut person = attach(&rig, "/api/threads/t/pty?cols=100&rows=30");
    person.types("echo \"[$PWD][$A]\"; export B=from-the-person; stty size\n");
    person.sees("[/usr][from-the-agent]");
    person.sees("30 100");
    assert_eq!(rig.exec("t", "echo $B")["stdout"], "from-the-person\n");
}

#[test]
fn attaching_makes_and_wakes_a_thread() {
    let rig = Rig::new();
    let mut person = attach(&rig, "/api/threads/new/pty");
    person.types("echo $((6*7))\n");
    person.sees("42");
    assert_eq!(rig.get("/api/threads/new/lease").is(200)["observed_state"], "running");
    drop(person);
    crate::rig::wait_for("a pause", || (rig.post("/api/threads/new/pause", &json!({})).status == 200).then_some(()));
    let mut person = attach(&rig, "/api/threads/new/pty");
    person.types("echo $((7*8))\n");
    person.sees("56");
}

#[test]
fn two_people_see_the_same_and_a_late_one_sees_the_present_screen() {
    let rig = Rig::new();
    let mut first = attach(&rig, "/api/threads/t/pty?cols=100&rows=30");
    first.types("echo before-$((1+1))\n");
    first.sees("before-2");
    let mut second = attach(&rig, "/api/threads/t/pty?cols=80&rows=24");
    second.sees("before-2");
    second.types("echo together-$((2+2))\n");
    second.sees("together-4");
    first.sees("together-4");
    // The terminal is as large as the smaller of them.
    loop {
        let size = first.hears("resize");
        if (&size["cols"], &size["rows"]) == (&json!(80), &json!(24)) {
            break;
        }
    }
    drop(second);
    first.types("echo alone-$((3+3))\n");
    first.sees("alone-6");
}

#[test]
fn a_terminal_changes_its_size() {
    let rig = Rig::new();
    let mut person = attach(&rig, "/api/threads/t/pty");
    person.types("stty size\n");
    person.sees("24 80");
    person.says(&json!({ "type": "resize", "cols": 132, "rows": 43 }));
    loop {
        let size = person.hears("resize");
        if (&size["cols"], &size["rows"]) == (&json!(132), &json!(43)) {
            break;
        }
    }
    person.types("stty size\n");
    person.sees("43 132");
}

#[test]
fn an_idle_prompt_keeps_nobody_waiting() {
    let rig = Rig::new();
    let mut person = attach(&rig, "/api/threads/t/pty");
    person.types("echo ready-$((1+1))\n");
    person.sees("ready-2");
    for round in 0..5 {
        let answer = rig.exec("t", &format!("N={round}; echo n$N"));
        assert_eq!(answer["stdout"], format!("n{round}\n"));
    }
    person.types("echo last-$N\n");
    person.sees("last-4");
}

#[test]
fn the_end_of_a_shell_is_told_and_its_state_goes_on() {
    let rig = Rig::new();
    let mut person = attach(&rig, "/api/threads/t/pty");
    person.types("export A=1; cd /usr\n");
    person.types("exit 3\n");
    let end = person.hears("exit");
    assert_eq!((&end["exit_code"], &end["signal"]), (&json!(3), &Value::Null));
    assert_eq!(rig.exec("t", "echo $A $PWD")["stdout"], "1 /usr\n");
}

#[test]
fn whoever_hangs_up_stops_nothing() {
    let rig = Rig::new();
    let mut person = attach(&rig, "/api/threads/t/pty");
    person.types("echo begun-$((1+1)); sleep 1; echo through > /workspace/f\n");
    person.sees("begun-2");
    drop(person);
    assert_eq!(rig.exec("t", "cat /workspace/f")["stdout"], "through\n");
}

#[test]
fn only_whoever_may_type_is_let_in() {
    let rig = Rig::new();
    let path = "/api/threads/t/pty";
    let bearer = format!("Bearer {}", rig.token);
    let cookie = format!("stead_token={}", rig.token);
    let own = format!("http://{}", rig.address());
    let read = rig.post("/api/tokens", &json!({ "name": "r", "scope": "read" })).is(201);
    let read = format!("Bearer {}", read["token"].as_str().unwrap());
    let port = rig.address().rsplit(':').next().unwrap();
    let named = format!("http://localhost:{port}");
    let cases: [(Headers<'_>, u16, &str); 10] = [
        (&[], 401, "unauthorized"),
        (&[("authorization", "Bearer stead_wrong")], 401, "unauthorized"),
        (&[("cookie", "stead_token=wrong")], 401, "unauthorized"),
        (&[("authorization", &read)], 403, "forbidden"),
        (&[("cookie", &cookie), ("origin", "http://evil.example")], 403, "forbidden"),
        (&[("cookie", &cookie), ("origin", "http://127.0.0.1:1")], 403, "forbidden"),
        (&[("cookie", &cookie), ("origin", "null")], 403, "forbidden"),
        (&[("cookie", &cookie), ("origin", &named)], 403, "forbidden"),
        (&[("authorization", &bearer), ("origin", "http://evil.example")], 403, "forbidden"),
        (&[("cookie", &cookie), ("origin", &own), ("host", "evil.example")], 403, "forbidden"),
    ];
    for (headers, status, code) in cases {
        let refused = knock(&rig, path, headers).err().unwrap_or_else(|| panic!("{headers:?} was let in"));
        assert_eq!(refused, (status, code.to_owned()), "{headers:?}");
    }
    assert_eq!(rig.get("/api/threads").is(200)["items"], json!([]), "one of them made the thread");
    knock(&rig, path, &[("cookie", &cookie), ("origin", &own)]).unwrap();
    knock(&rig, path, &[("authorization", &bearer)]).unwrap();
}

#[test]
fn what_can_not_be_attached_to_is_refused() {
    let rig = Rig::new();
    rig.post("/api/threads", &json!({ "id": "t" })).is(201);
    rig.get("/api/threads/t/pty").fails(400, "invalid_request");
    let bearer = format!("Bearer {}", rig.token);
    for query in ["cols=0", "rows=0", "cols=70000", "cols=x", "colour=red", "terminal=nobody"] {
        let refused = knock(&rig, &format!("/api/threads/t/pty?{query}"), &[("authorization", &bearer)]).err();
        let (status, code) = refused.unwrap_or_else(|| panic!("{query} was let in"));
        let want = if query == "terminal=nobody" { (404, "not_found") } else { (400, "invalid_request") };
        assert_eq!((status, code.as_str()), want, "{query}");
    }
    assert_eq!(rig.get("/api/threads/t/lease").is(200)["observed_state"], "none");
}

#[test]
fn whoever_is_attached_counts_among_the_connections() {
    let rig = Rig::with_config("[server]\nmax_connections = 4\n", &[]);
    let bearer = format!("Bearer {}", rig.token);
    let mut people = Vec::new();
    // What set the rig up may still have a connection of its own open.
    let refused =
        wait_for("being turned away", || match knock(&rig, "/api/threads/t/pty", &[("authorization", &bearer)]) {
            Ok(person) => {
                people.push(person);
                assert!(people.len() <= 4, "the limit is passed");
                None
            }
            Err(refused) => Some(refused),
        });
    assert_eq!(refused, (503, "unavailable".to_owned()));
    assert!(!people.is_empty());
    people.clear();
    wait_for("room", || knock(&rig, "/api/threads/t/pty", &[("authorization", &bearer)]).ok());
}

#[test]
fn who_says_what_is_not_the_protocol_is_told_so() {
    let rig = Rig::new();
    let mut person = attach(&rig, "/api/threads/t/pty");
    person.says(&json!({ "type": "dance" }));
    let told = loop {
        if let Message::Close(frame) = person.socket.read().unwrap() {
            break frame.unwrap();
        }
    };
    assert_eq!(u16::from(told.code), 1008);
    assert!(told.reason.contains("resize"), "{told:?}");
}
