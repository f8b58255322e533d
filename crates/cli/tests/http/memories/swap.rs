//! A project gets other files while somebody is writing: what is acknowledged is kept, and what can't be kept is refused.

use super::{fs, project};
use crate::rig::{PATIENCE, Rig};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;

/// A file that is being sent: the server has begun to take it.
struct Upload(TcpStream);

impl Upload {
    fn begin(rig: &Rig, path: &str, length: usize) -> Self {
        let mut stream = TcpStream::connect(rig.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(
            stream,
            "PUT {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-length: {length}\r\nexpect: 100-continue\r\nconnection: close\r\n\r\n",
            rig.address(),
            rig.token
        )
        .unwrap();
        let mut go_on = [0; 25];
        stream.read_exact(&mut go_on).unwrap();
        assert_eq!(go_on.as_slice(), b"HTTP/1.1 100 Continue\r\n\r\n");
        Self(stream)
    }

    /// All that was answered.
    fn end(mut self, bytes: &[u8]) -> String {
        self.0.write_all(bytes).unwrap();
        let mut answer = String::new();
        self.0.read_to_string(&mut answer).unwrap();
        answer
    }
}

#[test]
fn who_writes_while_a_snapshot_is_restored_is_refused_or_has_written() {
    let rig = Rig::new();
    let id = project(&rig);
    for base in ["memories/hot", "memories/persistent", "workspace"] {
        rig.call("PUT", &fs(&id, &format!("{base}/old")), &[], b"old").is(201);
    }
    let at = format!("/api/projects/{id}/snapshots");
    let snapshot = rig.post(&at, &json!({})).is(201)["id"].as_str().unwrap().to_owned();
    for base in ["memories/hot", "memories/persistent", "workspace"] {
        let path = fs(&id, &format!("{base}/late"));
        let upload = Upload::begin(&rig, &path, 4);
        rig.post(&format!("{at}/{snapshot}/restore"), &json!({})).is(200);
        // Somebody has seen the new files already.
        assert_eq!(rig.get(&fs(&id, &format!("{base}/old"))).body, b"old");
        let answer = upload.end(b"late");
        if base == "memories/hot" {
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
            assert!(answer.contains("\r\nretry-after: 1\r\n") && answer.contains("\"retryable\":true"), "{answer}");
            assert!(answer.contains("\"code\":\"unavailable\""), "{answer}");
            rig.get(&path).fails(404, "not_found");
            rig.call("PUT", &path, &[], b"late").is(201);
        } else {
            assert!(answer.starts_with("HTTP/1.1 201 "), "{base}: {answer}");
        }
        assert_eq!(rig.get(&path).body, b"late", "{base}");
    }
}

#[test]
fn who_writes_while_a_project_goes_to_the_trash_is_refused() {
    let mut rig = Rig::new();
    let id = project(&rig);
    rig.call("PUT", &fs(&id, "memories/hot/old"), &[], b"old").is(201);
    let upload = Upload::begin(&rig, &fs(&id, "memories/hot/late"), 4);
    rig.delete(&format!("/api/projects/{id}")).is(204);
    let answer = upload.end(b"late");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    rig.kill();
    rig.start();
    rig.post(&format!("/api/projects/{id}/restore"), &json!({})).is(200);
    assert_eq!(rig.get(&fs(&id, "memories/hot/old")).body, b"old");
    rig.get(&fs(&id, "memories/hot/late")).fails(404, "not_found");
}
