//! Somebody outside who is told, and knows by whom.

use super::clock::Clock;
use crate::rig::{Rig, wait_for};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

const SECRET: &str = "not to be seen anywhere";

#[derive(Debug, Clone)]
pub(super) struct Heard {
    pub(super) headers: HashMap<String, String>,
    pub(super) body: String,
}

/// Answers the first few with an error.
pub(super) struct Ear {
    pub(super) url: String,
    pub(super) heard: Arc<Mutex<Vec<Heard>>>,
}

impl Ear {
    fn new(refuse: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook?user=hunter2", listener.local_addr().unwrap());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                hear(stream, &all, refuse);
            }
        });
        Self { url, heard }
    }

    pub(super) fn config(&self) -> String {
        format!(
            "[projects]\ncleanup_check_interval_s = 315360000\nwebhook_url = '{}'\nwebhook_secret = '{SECRET}'\n",
            self.url
        )
    }

    pub(super) fn all(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    pub(super) fn wait(&self, many: usize) -> Vec<Heard> {
        wait_for("call of the webhook", || (self.all().len() >= many).then(|| self.all()))
    }
}

/// One call, which is answered with an error while there were no more than `refuse`.
pub(super) fn hear(stream: impl Read + Write, all: &Mutex<Vec<Heard>>, refuse: usize) {
    let mut reader = BufReader::new(stream);
    let (mut headers, mut line) = (HashMap::new(), String::new());
    while reader.read_line(&mut line).unwrap_or(0) > 2 {
        if let Some((name, value)) = line.trim_end().split_once(": ") {
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        line.clear();
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    if length.is_none() || reader.read_exact(&mut body).is_err() {
        return;
    }
    let number = {
        let mut all = all.lock().unwrap();
        all.push(Heard { headers, body: String::from_utf8(body).unwrap() });
        all.len()
    };
    let status = if number <= refuse { "500 No" } else { "204 Yes" };
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let _ = reader.get_mut().write_all(answer.as_bytes()).and_then(|()| reader.get_mut().flush());
}

pub(super) fn is_signed(heard: &Heard) {
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(format!("{}.{}", heard.headers["stead-timestamp"], heard.body).as_bytes());
    let digits: Vec<String> = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(heard.headers["stead-signature"], format!("v1={}", digits.concat()));
    assert_eq!(heard.headers["content-type"], "application/json");
}

pub(super) fn pending(rig: &Rig, project: &str) -> Vec<bool> {
    let events = rig.get(&format!("/api/projects/{project}/events")).is(200);
    events["items"].as_array().unwrap().iter().map(|event| event["pending"].as_bool().unwrap()).collect()
}

#[test]
fn a_webhook_is_told_signed_and_again_until_it_listens() {
    let ear = Ear::new(2);
    let rig = Rig::with_config(&ear.config(), &[]);
    let project = rig.project("told");
    rig.delete(&format!("/api/projects/{project}")).is(204);
    let heard = ear.wait(3);
    for one in &heard {
        is_signed(one);
        assert_eq!(one.headers["stead-event-id"], heard[0].headers["stead-event-id"], "one event, told three times");
        assert_eq!(one.body, heard[0].body);
    }
    let body: Value = serde_json::from_str(&heard[0].body).unwrap();
    assert_eq!((&body["type"], &body["project_id"]), (&json!("project.trashed"), &json!(project)));
    assert_eq!(body["id"], heard[0].headers["stead-event-id"].as_str());
    wait_for("the end of it", || (pending(&rig, &project) == [false]).then_some(()));
    rig.post(&format!("/api/projects/{project}/restore"), &json!({})).is(200);
    let heard = ear.wait(4);
    assert_ne!(heard[3].headers["stead-event-id"], heard[0].headers["stead-event-id"]);
    assert!(!rig.log().contains(SECRET) && !rig.log().contains("hunter2"), "{}", rig.log());
}

#[test]
fn what_was_not_told_when_the_server_died_is_told_by_the_next() {
    let Some(clock) = Clock::new() else { return };
    let ear = Ear::new(1);
    let mut rig = clock.rig(&ear.config());
    let project = rig.project("late");
    clock.restart(&mut rig, "+27d");
    rig.clean();
    ear.wait(1);
    rig.kill();
    rig.start();
    let heard = ear.wait(2);
    assert_eq!(heard[1].headers["stead-event-id"], heard[0].headers["stead-event-id"]);
    let body: Value = serde_json::from_str(&heard[1].body).unwrap();
    assert_eq!((&body["type"], &body["project_id"]), (&json!("project.warning"), &json!(project)));
    wait_for("the end of it", || (pending(&rig, &project) == [false]).then_some(()));
    // Nobody hears of it again.
    rig.kill();
    rig.start();
    assert_eq!(rig.clean()["warned"], json!([]));
    assert_eq!(ear.all().len(), 2);
}

#[test]
fn nobody_waits_for_a_webhook_that_does_not_answer() {
    // Takes connections, and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = Ear { url: format!("http://{}/", listener.local_addr().unwrap()), heard: Arc::default() };
    let mut rig = Rig::with_config(&silent.config(), &[]);
    let project = rig.project("silent");
    for _ in 0..20 {
        rig.delete(&format!("/api/projects/{project}")).is(204);
        rig.post(&format!("/api/projects/{project}/restore"), &json!({})).is(200);
    }
    assert_eq!(pending(&rig, &project), vec![true; 40]);
    assert!(rig.terminate().success());
    rig.start();
}
