//! E2B on this machine, asked as nobody's client would: what it refuses, and what it remembers of it.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "helpers fail the test they are called from, as tests themselves do"
)]

use serde_json::{Value, json};
use std::time::Duration;
use stead_testclouds::e2b::{E2b, KEY};
use stead_testclouds::machine::Machine;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const JSON: &str = "Content-Type: application/json\r\n";
const STREAM: &str = "Content-Type: application/connect+json\r\nConnect-Protocol-Version: 1\r\n";
const UNARY: &str = "Content-Type: application/json\r\nConnect-Protocol-Version: 1\r\n";

struct Asked<'a> {
    cloud: &'a E2b,
    /// Of whoever may ask.
    headers: String,
}

impl Asked<'_> {
    /// The status and the body of the answer, as it came.
    async fn call(&self, line: &str, headers: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let address = self.cloud.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let length = body.len();
        let own = &self.headers;
        let head = format!(
            "{line} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n{own}{headers}\r\n"
        );
        stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
        let mut answer = Vec::new();
        let reading = stream.read_to_end(&mut answer);
        tokio::time::timeout(Duration::from_mins(1), reading).await.unwrap().unwrap();
        let at = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let status = std::str::from_utf8(answer.get(9..12).unwrap()).unwrap().parse().unwrap();
        (status, answer.split_off(at + 4))
    }

    async fn json(&self, line: &str, body: &Value) -> (u16, Value) {
        let (status, body) = self.call(line, JSON, body.to_string().as_bytes()).await;
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }
}

fn envelope(flags: u8, length: u8, message: &Value) -> Vec<u8> {
    [&[flags, 0, 0, 0, length], message.to_string().as_bytes()].concat()
}

fn enveloped(message: &Value) -> Vec<u8> {
    envelope(0, u8::try_from(message.to_string().len()).unwrap(), message)
}

/// One sandbox; who asks for it, and who asks it.
async fn start(cloud: &E2b) -> (String, Asked<'_>, Asked<'_>) {
    let rest = Asked { cloud, headers: format!("X-API-Key: {KEY}\r\n") };
    let (status, made) = rest.json("POST /sandboxes", &json!({ "templateID": "base", "timeout": 300 })).await;
    assert_eq!(status, 201, "{made}");
    let (id, token) = (made["sandboxID"].as_str().unwrap(), made["envdAccessToken"].as_str().unwrap());
    let headers = format!("E2b-Sandbox-Id: {id}\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: {token}\r\n");
    (id.to_owned(), rest, Asked { cloud, headers })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_reference_doesn_t_know_is_refused_and_remembered() {
    if !Machine::is_possible() {
        println!("SKIPPED: no namespaces here");
        return;
    }
    let cloud = E2b::start().await;
    let (id, rest, envd) = start(&cloud).await;
    let nobody = Asked { cloud: &cloud, headers: String::new() };
    let lost = Asked { cloud: &cloud, headers: format!("E2b-Sandbox-Id: {id}\r\n") };
    let tokenless = Asked { cloud: &cloud, headers: format!("E2b-Sandbox-Id: {id}\r\nE2b-Sandbox-Port: 49983\r\n") };
    let connect = format!("POST /sandboxes/{id}/connect");
    let pause = format!("POST /sandboxes/{id}/pause");
    let refresh = format!("POST /sandboxes/{id}/refreshes");
    let run = json!({ "process": { "cmd": "true" } });
    let cases: Vec<(&Asked, &str, &str, Vec<u8>)> = vec![
        (&nobody, "GET /v2/sandboxes", "", vec![]),
        (&rest, "GET /sandboxes", "", vec![]),
        (&rest, "GET /v2/sandboxes?limit=0", "", vec![]),
        (&rest, "GET /v2/sandboxes?state=asleep", "", vec![]),
        (&rest, "GET /v2/sandboxes?colour=red", "", vec![]),
        (&rest, "GET /v2/sandboxes?metadata=alone", "", vec![]),
        (&rest, "POST /sandboxes", JSON, br#"{"templateID":"base","colour":"red"}"#.to_vec()),
        (&rest, "POST /sandboxes", JSON, b"{}".to_vec()),
        (&rest, "POST /sandboxes", "Content-Type: text/plain\r\n", br#"{"templateID":"base"}"#.to_vec()),
        (&rest, &connect, JSON, b"{}".to_vec()),
        (&rest, &pause, JSON, vec![]),
        (&rest, &refresh, JSON, br#"{"duration":3601}"#.to_vec()),
        (&lost, "POST /process.Process/List", UNARY, b"{}".to_vec()),
        (&tokenless, "POST /process.Process/List", UNARY, b"{}".to_vec()),
        (&envd, "POST /process.Process/List", JSON, b"{}".to_vec()),
        (&envd, "POST /process.Process/Lost", UNARY, b"{}".to_vec()),
        (&envd, "POST /process.Process/Start", UNARY, run.to_string().into_bytes()),
        (&envd, "POST /process.Process/Start", STREAM, run.to_string().into_bytes()),
        (&envd, "POST /process.Process/Start", STREAM, envelope(1, 28, &run)),
        (&envd, "POST /process.Process/Start", STREAM, envelope(0, 27, &run)),
        (&envd, "POST /process.Process/Start", STREAM, enveloped(&json!({ "process": { "cmd": "a", "dir": "/" } }))),
        (&envd, "POST /process.Process/SendInput", UNARY, br#"{"process":{"pid":1},"input":{"stdin":"?"}}"#.to_vec()),
        (&envd, "POST /process.Process/SendSignal", UNARY, br#"{"process":{"pid":1},"signal":9}"#.to_vec()),
        (&envd, "POST /files?path=/tmp/x", "Content-Type: text/plain\r\n", b"x".to_vec()),
        (&envd, "POST /files", "Content-Type: application/octet-stream\r\n", b"x".to_vec()),
        (&envd, "GET /nothing", "", vec![]),
    ];
    for (number, (asked, line, headers, body)) in cases.into_iter().enumerate() {
        let (status, answer) = asked.call(line, headers, &body).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert_eq!((status, cloud.violations().len()), (400, number + 1), "{line} {body:?}: {answer}");
    }
    assert_eq!(cloud.sandboxes(), [id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_merely_refused_is_no_violation() {
    if !Machine::is_possible() {
        println!("SKIPPED: no namespaces here");
        return;
    }
    let cloud = E2b::start().await;
    let (id, rest, envd) = start(&cloud).await;
    let wrong = Asked { cloud: &cloud, headers: "X-API-Key: e2b_0\r\n".to_owned() };
    let forged = Asked { cloud: &cloud, headers: envd.headers.replace("Access-Token: ea_", "Access-Token: eb_") };
    let away = Asked { cloud: &cloud, headers: envd.headers.replace(&id, "i0") };
    let other_port = Asked { cloud: &cloud, headers: envd.headers.replace("49983", "8080") };
    let get = format!("GET /sandboxes/{id}");
    let hang_up = br#"{"process":{"pid":1},"signal":"SIGNAL_SIGHUP"}"#;
    let kill = br#"{"process":{"pid":4711},"signal":"SIGNAL_SIGKILL"}"#;
    for (asked, line, headers, body, expected) in [
        (&rest, get.as_str(), "", &b""[..], 200),
        (&wrong, get.as_str(), "", b"", 401),
        (&rest, "GET /sandboxes/i0", "", b"", 404),
        (&rest, "POST /sandboxes", JSON, br#"{"templateID":"none"}"#, 404),
        (&rest, "POST /sandboxes", JSON, br#"{"templateID":"base","timeout":99999999}"#, 400),
        (&envd, "GET /health", "", b"", 204),
        (&forged, "GET /health", "", b"", 204),
        (&forged, "POST /process.Process/List", UNARY, b"{}", 401),
        (&away, "GET /health", "", b"", 502),
        (&other_port, "GET /health", "", b"", 502),
        (&envd, "POST /process.Process/SendSignal", UNARY, hang_up, 501),
        (&envd, "POST /process.Process/SendSignal", UNARY, kill, 404),
        (&envd, "GET /files?path=/tmp/none", "", b"", 404),
        (&envd, "GET /files?path=/tmp", "", b"", 400),
    ] {
        let (status, answer) = asked.call(line, headers, body).await;
        assert_eq!(status, expected, "{line}: {}", String::from_utf8_lossy(&answer));
    }
    assert_eq!(cloud.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn how_a_program_ended_is_told_for_half_a_minute() {
    if !Machine::is_possible() {
        println!("SKIPPED: no namespaces here");
        return;
    }
    let cloud = E2b::start().await;
    let (_, _, envd) = start(&cloud).await;
    let run = enveloped(&json!({ "process": { "cmd": "/bin/sh", "args": ["-c", "echo $$; exit 4"] } }));
    let (status, heard) = envd.call("POST /process.Process/Start", STREAM, &run).await;
    let heard = String::from_utf8_lossy(&heard).into_owned();
    assert_eq!(status, 200);
    let told = |text: &str| text.contains(r#""exitCode":4,"exited":true"#);
    assert!(heard.contains(r#""data":{"stdout":"#) && told(&heard), "{heard}");
    let pid: u32 = heard.split_once(r#""pid":"#).unwrap().1.split_once('}').unwrap().0.parse().unwrap();

    let connect = enveloped(&json!({ "process": { "pid": pid } }));
    cloud.advance(Duration::from_secs(25)).await;
    let (_, late) = envd.call("POST /process.Process/Connect", STREAM, &connect).await;
    let late = String::from_utf8_lossy(&late).into_owned();
    assert!(late.contains(&format!(r#""start":{{"pid":{pid}}}"#)) && told(&late) && !late.contains("stdout"), "{late}");
    cloud.advance(Duration::from_secs(6)).await;
    let (status, too_late) = envd.call("POST /process.Process/Connect", STREAM, &connect).await;
    let too_late = String::from_utf8_lossy(&too_late).into_owned();
    assert!(status == 200 && too_late.contains(r#"{"error":{"code":"not_found""#), "{too_late}");
    assert_eq!(cloud.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_whose_time_is_over_is_gone_unless_it_was_to_sleep() {
    if !Machine::is_possible() {
        println!("SKIPPED: no namespaces here");
        return;
    }
    let cloud = E2b::start().await;
    let (gone, rest, _) = start(&cloud).await;
    let sleepy = json!({ "templateID": "base", "timeout": 300, "autoPause": true });
    let (_, sleepy) = rest.json("POST /sandboxes", &sleepy).await;
    let sleepy = sleepy["sandboxID"].as_str().unwrap();
    cloud.advance(Duration::from_mins(6)).await;
    assert_eq!(rest.json(&format!("GET /sandboxes/{gone}"), &json!({})).await.0, 404);
    let (_, told) = rest.json(&format!("GET /sandboxes/{sleepy}"), &json!({})).await;
    assert_eq!(told["state"], "paused");
    // It isn't killed later on either.
    cloud.advance(Duration::from_hours(48)).await;
    let (status, woken) = rest.json(&format!("POST /sandboxes/{sleepy}/connect"), &json!({ "timeout": 60 })).await;
    assert_eq!((status, woken["sandboxID"].as_str()), (201, Some(sleepy)));
    assert_ne!(woken["envdAccessToken"], told["envdAccessToken"]);
    let (status, again) = rest.json(&format!("POST /sandboxes/{sleepy}/connect"), &json!({ "timeout": 60 })).await;
    assert_eq!((status, &again["envdAccessToken"]), (200, &woken["envdAccessToken"]));
    assert_eq!(cloud.violations(), Vec::<String>::new());
}
