//! `stead memory`: kept, printed, listed, forgotten.

use super::Front;
use crate::rig::said;
use serde_json::Value;
use std::fs;

/// A project, made over the socket: its verb has tests of its own.
fn project(front: &Front) -> String {
    assert_eq!(front.run(&["exec", "true"]).code, Some(0), "starts the server");
    let agent: ureq::Agent = ureq::Agent::config_builder().build().into();
    let version: Value = serde_json::from_str(&front.run(&["version", "--json"]).stdout).unwrap();
    let address = version.pointer("/server/address").and_then(Value::as_str).unwrap();
    let token = fs::read_to_string(front.data().join("token")).unwrap();
    let request = agent.post(format!("http://{address}/api/projects"));
    let request = request.header("authorization", format!("Bearer {}", token.trim()));
    let mut answer = request.header("content-type", "application/json").send("{\"prefix\":\"app\"}").unwrap();
    let made: Value = serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap();
    made.get("id").and_then(Value::as_str).unwrap().to_owned()
}

#[test]
fn memories_are_put_printed_listed_and_forgotten() {
    let front = Front::new();
    let id = project(&front);
    let bytes: Vec<u8> = (0..=255).collect();
    fs::write(front.rig.scratch().join("raw"), &bytes).unwrap();
    fs::write(front.rig.scratch().join("plan"), "one\ntwo\nthree\n").unwrap();
    for more in [&[][..], &["--persistent"][..]] {
        let memory = |words: &[&str]| {
            let all = [&["memory"], words, &["-p", id.as_str()], more].concat();
            front.run(&all)
        };
        assert_eq!(memory(&["ls"]).code, Some(0));
        assert_eq!(memory(&["put", "notes/plan ü.md", "plan"]), said(0, "", ""));
        assert_eq!(memory(&["put", "--new", "notes/plan ü.md", "plan"]).code, Some(125), "there is one");
        assert_eq!(memory(&["get", "notes/plan ü.md"]), said(0, "one\ntwo\nthree\n", ""));
        assert_eq!(memory(&["get", "notes/plan ü.md", "--offset", "1", "--limit", "1"]), said(0, "two\n", ""));
        let put: Value = serde_json::from_str(&memory(&["put", "raw", "raw", "--json"]).stdout).unwrap();
        assert_eq!((&put["created"], &put["size"]), (&Value::Bool(true), &Value::from(256)));
        let listed: Value = serde_json::from_str(&memory(&["ls", "--json"]).stdout).unwrap();
        let names: Vec<_> =
            listed["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["notes", "plan ü.md", "raw"]);
        let table = memory(&["ls"]).stdout;
        assert!(table.starts_with("SIZE") && table.contains("notes/plan ü.md"), "{table}");
        assert_eq!(memory(&["rm", "notes"]).code, Some(125), "it is not empty");
        assert_eq!(memory(&["rm", "-r", "notes"]), said(0, "", ""));
        assert_eq!(memory(&["get", "notes/plan ü.md"]).code, Some(125));
    }
    let from = front.rig.scratch().join("raw");
    let printed = front.stead(["memory", "get", "-p", &id, "raw"]).output().unwrap();
    assert_eq!(printed.stdout, fs::read(from).unwrap(), "byte for byte");
    let mut command = front.stead(["memory", "put", "-p", &id, "from-stdin"]);
    command.stdin(fs::File::open(front.rig.scratch().join("plan")).unwrap());
    assert!(command.status().unwrap().success());
    assert_eq!(front.run(&["memory", "get", "-p", &id, "/memories/hot/from-stdin"]).stdout, "one\ntwo\nthree\n");
    assert_eq!(front.run(&["memory", "ls", "-p", "none-00000000"]).code, Some(125));
    // Files of a session: its own, and nobody's without it.
    assert_eq!(front.run(&["exec", "--project", &id, "true"]).code, Some(0));
    let project: Value = serde_json::from_str(&front.run(&["project", "show", "--json", &id]).stdout).unwrap();
    let session = project.pointer("/sessions/0/session_id").and_then(Value::as_str).unwrap();
    assert_eq!(front.run(&["memory", "put", "-p", &id, "/tmp/x", "plan"]).code, Some(125));
    let memory = |words: &[&str]| front.run(&[&["memory"], words, &["-p", id.as_str(), "--session", session]].concat());
    assert_eq!(memory(&["put", "/tmp/x", "plan"]), said(0, "", ""));
    assert_eq!(memory(&["get", "/tmp/x", "--offset", "2"]).stdout, "three\n");
    assert!(memory(&["ls", "/tmp"]).stdout.ends_with(" x\n"));
    assert_eq!(memory(&["rm", "/tmp/x"]), said(0, "", ""));
    assert_eq!(memory(&["get", "/tmp/x"]).code, Some(125));
}
