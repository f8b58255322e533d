//! The files of a project through its routes: on disk, in RAM, for a session; and what is left of them after `kill -9`.

mod damage;
mod kills;
mod names;
mod room;
mod swap;
mod tables;

use crate::rig::{Rig, keys, wait_for};
use serde_json::{Value, json};
use std::path::PathBuf;

pub(crate) fn project(rig: &Rig) -> String {
    rig.post("/api/projects", &json!({ "prefix": "mem" })).is(201)["id"].as_str().unwrap().to_owned()
}

fn fs(project: &str, path: &str) -> String {
    format!("/api/projects/{project}/fs/{path}")
}

fn paths(listed: &Value) -> Vec<&str> {
    listed["items"].as_array().unwrap().iter().map(|item| item["path"].as_str().unwrap()).collect()
}

fn journal(rig: &Rig, project: &str) -> PathBuf {
    rig.data().join("projects").join(project).join(".memories/hot")
}

#[test]
fn a_file_is_written_read_and_removed_alike_wherever_its_route_leads() {
    let rig = Rig::new();
    let id = project(&rig);
    for base in ["workspace", "memories/hot", "memories/persistent"] {
        let at = fs(&id, &format!("{base}/d/report..final.md"));
        let made = rig.call("PUT", &at, &[("if-none-match", "*")], b"one\ntwo\nthree\n");
        assert_eq!(made.status, 201, "{base}");
        let etag = made.header("etag").unwrap().to_owned();
        rig.call("PUT", &at, &[("if-none-match", "*")], b"x").fails(412, "precondition_failed");
        let read = rig.get(&at);
        assert_eq!((read.status, read.body.as_slice()), (200, b"one\ntwo\nthree\n".as_slice()), "{base}");
        assert_eq!(read.header("etag"), Some(etag.as_str()), "{base}");
        assert_eq!(rig.call("GET", &at, &[("if-none-match", &etag)], b"").status, 304, "{base}");
        let part = rig.call("GET", &at, &[("range", "bytes=4-6")], b"");
        assert_eq!((part.status, part.body.as_slice()), (206, b"two".as_slice()), "{base}");
        assert_eq!(part.header("content-range"), Some("bytes 4-6/14"), "{base}");
        assert_eq!(rig.call("GET", &at, &[("range", "bytes=99-")], b"").status, 416, "{base}");
        let lines = rig.get(&format!("{at}?offset=1&limit=1"));
        assert_eq!((lines.status, lines.body.as_slice()), (200, b"two\n".as_slice()), "{base}");
        let told = ["stead-line-offset", "stead-line-count", "stead-total-lines", "stead-next-offset"];
        assert_eq!(told.map(|name| lines.header(name)), [Some("1"), Some("1"), Some("3"), Some("2")], "{base}");
        assert_eq!(rig.get(&format!("{at}?offset=2")).header("stead-next-offset"), None, "{base}");
        rig.call("GET", &format!("{at}?offset=1"), &[("range", "bytes=0-1")], b"").fails(400, "invalid_request");
        let path = format!("/{base}/d/report..final.md");
        let edit = json!({ "path": path, "old": "two", "new": "2" });
        let edited = rig.post(&fs(&id, "edit"), &edit).is(200);
        assert_eq!((&edited["replaced"], &edited["file"]["size"]), (&json!(1), &json!(12)), "{base}");
        rig.post(&fs(&id, "edit"), &edit).fails(409, "conflict");
        rig.call("PUT", &at, &[("if-match", &etag)], b"x").fails(412, "precondition_failed");
        rig.call("PUT", &at, &[("if-match", "*")], b"x\n").is(204);
        rig.get(&fs(&id, &format!("{base}/d"))).fails(400, "invalid_path");
        rig.get(&fs(&id, &format!("{base}/%2e%2e/x"))).fails(400, "invalid_path");
        rig.get(&fs(&id, &format!("{base}/none"))).fails(404, "not_found");
        rig.delete(&fs(&id, &format!("{base}/d"))).fails(409, "conflict");
        rig.delete(&fs(&id, base)).fails(400, "invalid_path");
    }
    let listed = rig.post(&fs(&id, "ls"), &json!({ "depth": 9 })).is(200);
    let want = [
        "/memories",
        "/memories/hot",
        "/memories/hot/d",
        "/memories/hot/d/report..final.md",
        "/memories/persistent",
        "/memories/persistent/d",
        "/memories/persistent/d/report..final.md",
        "/tmp",
        "/workspace",
        "/workspace/d",
        "/workspace/d/report..final.md",
    ];
    assert_eq!(paths(&listed), want);
    assert_eq!(keys(&listed["items"][0]), ["modified_at", "name", "path", "size", "type"]);
    let globbed = rig.post(&fs(&id, "glob"), &json!({ "pattern": "memories/**/*.md" })).is(200);
    assert_eq!(paths(&globbed), [want[3], want[6]]);
    let found = rig.post(&fs(&id, "grep"), &json!({ "pattern": "^x$" })).is(200);
    assert_eq!(paths(&found), [want[3], want[6], want[10]]);
    let found = rig.post(&fs(&id, "grep"), &json!({ "pattern": "^x$", "literal": true })).is(200);
    assert_eq!(paths(&found), [""; 0]);
    assert_eq!(rig.delete(&format!("{}?recursive=true", fs(&id, "memories/hot/d"))).status, 204);
    rig.get(&fs(&id, "memories/hot/d/report..final.md")).fails(404, "not_found");
    let on_disk = rig.data().join("projects").join(&id).join("repo/d/report..final.md");
    assert_eq!(std::fs::read_to_string(on_disk).unwrap(), "x\n");
    rig.get("/api/projects/none-00000000/fs/workspace/x").fails(404, "not_found");
}

#[test]
fn files_of_a_session_are_its_own() {
    let rig = Rig::new();
    let id = project(&rig);
    rig.post("/api/threads", &json!({ "id": "t", "project_id": id, "provider": "local" })).is(201);
    rig.exec("t", "true");
    rig.post("/api/threads", &json!({ "id": "other", "provider": "local" })).is(201);
    rig.exec("other", "true");
    let session = |thread: &str| {
        let session = rig.get(&format!("/api/threads/{thread}/session")).is(200);
        session["session_id"].as_str().unwrap().to_owned()
    };
    let (mine, foreign) = (session("t"), session("other"));
    let at = fs(&id, "tmp/x");
    rig.call("PUT", &at, &[], b"1").fails(400, "invalid_request");
    rig.call("PUT", &format!("{at}?session_id=nobody"), &[], b"1").fails(404, "not_found");
    rig.call("PUT", &format!("{at}?session_id={foreign}"), &[], b"1").fails(404, "not_found");
    rig.call("PUT", &format!("{at}?session_id={mine}"), &[], b"1").is(201);
    assert_eq!(rig.get(&format!("{at}?session_id={mine}")).body, b"1");
    let listed = rig.post(&fs(&id, "ls"), &json!({ "path": "/tmp", "session_id": mine })).is(200);
    assert_eq!(paths(&listed), ["/tmp/x"]);
    // As for the other verbs, in the query.
    let of = |verb: &str| format!("{}?session_id={mine}", fs(&id, verb));
    assert_eq!(paths(&rig.post(&of("ls"), &json!({ "path": "/tmp" })).is(200)), ["/tmp/x"]);
    assert_eq!(paths(&rig.post(&of("glob"), &json!({ "pattern": "tmp/*" })).is(200)), ["/tmp/x"]);
    assert_eq!(paths(&rig.post(&of("grep"), &json!({ "pattern": "1" })).is(200)), ["/tmp/x"]);
    rig.post(&of("edit"), &json!({ "path": "/tmp/x", "old": "1", "new": "2" })).is(200);
    assert_eq!(rig.get(&format!("{at}?session_id={mine}")).body, b"2");
    rig.post(&of("ls"), &json!({ "path": "/tmp", "session_id": foreign })).fails(400, "invalid_request");
    for verb in ["ls", "glob", "grep", "edit"] {
        let body = json!({ "path": "/tmp/x", "pattern": "x", "old": "1", "new": "2" });
        let known = match verb {
            "ls" => ["path"].as_slice(),
            "edit" => &["path", "old", "new"],
            _ => &["path", "pattern"],
        };
        let body: serde_json::Map<_, _> =
            body.as_object().unwrap().clone().into_iter().filter(|(name, _)| known.contains(&name.as_str())).collect();
        rig.post(&format!("{}?colour=red", fs(&id, verb)), &body.into()).fails(400, "invalid_request");
    }
    assert_eq!(paths(&rig.post(&fs(&id, "glob"), &json!({ "pattern": "tmp/*" })).is(200)), [""; 0]);
}

#[test]
fn a_table_of_routes_is_honoured_or_refused_at_start_with_its_entry() {
    let table = r#"{"/a/": "store", "/a/deep/": "filesystem", "/ö/": {"type": "filesystem"}, "/": "state"}"#;
    let rig = Rig::with_all("", &[], &[("AGENT_BACKEND_ROUTES", table)]);
    let id = project(&rig);
    for path in ["a/x", "a/deep/x", "%C3%B6/x"] {
        rig.call("PUT", &fs(&id, path), &[], b"1").is(201);
    }
    rig.call("PUT", &fs(&id, "elsewhere"), &[], b"1").fails(400, "invalid_request");
    let listed = rig.post(&fs(&id, "ls"), &json!({ "depth": 5 })).is(200);
    assert_eq!(paths(&listed), ["/a", "/a/deep", "/a/deep/x", "/a/x", "/ö", "/ö/x"]);
    // A project may have a table of its own.
    let own = json!({ "prefix": "own", "config": { "routes": { "/m/": { "type": "store" } } } });
    let own = rig.post("/api/projects", &own).is(201)["id"].as_str().unwrap().to_owned();
    rig.call("PUT", &fs(&own, "m/ls"), &[], b"1").is(201);
    rig.call("PUT", &fs(&own, "a/x"), &[], b"1").fails(400, "invalid_path");
    let wrong = json!({ "prefix": "own", "config": { "routes": { "/m/": { "type": "tape" } } } });
    let error = rig.post("/api/projects", &wrong).fails(400, "invalid_request");
    assert!(error["message"].as_str().unwrap().contains("/m/"), "{error}");
    for wrong in [r#"{"/a/": "tape"}"#, "{", r#"{"a": "store"}"#] {
        let mut command = rig.stead();
        let run = command.args(["doctor"]).env("AGENT_BACKEND_ROUTES", wrong).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(!run.status.success() && said.contains("AGENT_BACKEND_ROUTES"), "{wrong}: {said}");
    }
}

#[test]
fn memory_is_bounded_and_what_shrinks_makes_room() {
    let rig = Rig::with_config("[memory]\nhot_limit = '4KiB'\nvalue_limit = '2KiB'\n", &[]);
    let id = project(&rig);
    rig.call("PUT", &fs(&id, "memories/hot/large"), &[], &[b'x'; 2049]).fails(413, "too_large");
    rig.call("PUT", &fs(&id, "memories/hot/a"), &[], &[b'x'; 2048]).is(201);
    rig.call("PUT", &fs(&id, "memories/hot/b"), &[], &[b'x'; 2048]).fails(507, "no_space");
    rig.call("PUT", &fs(&id, "memories/hot/a"), &[], b"x").is(204);
    rig.call("PUT", &fs(&id, "memories/hot/b"), &[], &[b'x'; 2048]).is(201);
    let status = rig.get(&format!("/api/projects/{id}/memory")).is(200);
    assert_eq!((&status["entries"], &status["limit_bytes"]), (&json!(2), &json!(4096)));
    rig.call("PUT", &fs(&id, "workspace/large"), &[], &[b'x'; 5000]).is(201);
}

#[test]
fn a_damaged_snapshot_is_told_and_the_one_before_it_has_everything_with_the_journals() {
    let mut rig = Rig::with_config("[memory]\nsnapshot_interval_s = 1\n", &[]);
    let id = project(&rig);
    let snapshots = |rig: &Rig| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(journal(rig, &id)).unwrap().map(|entry| entry.unwrap().path());
        let mut found: Vec<_> = entries.filter(|path| path.to_str().unwrap().contains("snapshot-")).collect();
        found.retain(|path| path.extension().is_none());
        found.sort();
        found
    };
    for (number, least) in [(1, 1), (2, 2)] {
        rig.call("PUT", &fs(&id, &format!("memories/hot/f{number}")), &[], b"kept").is(201);
        wait_for("snapshot", || (snapshots(&rig).len() >= least).then_some(()));
    }
    rig.call("PUT", &fs(&id, "memories/hot/f3"), &[], b"kept").is(201);
    rig.kill();
    let newest = snapshots(&rig).pop().unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&newest, bytes).unwrap();
    rig.start();
    for number in 1..=3 {
        assert_eq!(rig.get(&fs(&id, &format!("memories/hot/f{number}"))).body, b"kept", "f{number}");
    }
    let status = rig.get(&format!("/api/projects/{id}/memory")).is(200);
    assert!(status["warnings"][0].as_str().unwrap().contains("is damaged"), "{status}");
    assert!(rig.log().contains("of hot memory is damaged"), "{}", rig.log());
}

/// Where a sandbox has its memories.
fn inside(provider: &str, which: &str) -> String {
    if provider == "local" {
        format!("\"$STEAD_MEMORIES_{}\"", which.to_uppercase())
    } else {
        format!("/memories/{which}")
    }
}

#[test]
fn memories_are_files_in_a_sandbox_and_what_is_written_there_is_kept() {
    let mut rig = Rig::new();
    let works = rig.get("/api/providers").is(200);
    for provider in ["local", "namespace"] {
        let items = works["items"].as_array().unwrap();
        if items.iter().any(|one| one["name"] == provider && one["available"] == false) {
            println!("skipped: no {provider} on this machine");
            continue;
        }
        let id = project(&rig);
        rig.post("/api/threads", &json!({ "id": provider, "project_id": id, "provider": provider })).is(201);
        rig.call("PUT", &fs(&id, "memories/hot/d/plan.md"), &[], b"from outside\n").is(201);
        rig.call("PUT", &fs(&id, "memories/persistent/note"), &[], b"a file\n").is(201);
        let (hot, persistent) = (inside(provider, "hot"), inside(provider, "persistent"));
        let ran = rig.exec(provider, &format!("cat {hot}/d/plan.md {persistent}/note"));
        assert_eq!(ran["stdout"], "from outside\na file\n", "{provider}: {ran}");
        // What a command wrote is kept before its answer comes.
        rig.exec(
            provider,
            &format!("echo from inside > {hot}/d/plan.md; echo 2 > {hot}/second; echo 3 > {persistent}/more"),
        );
        assert_eq!(rig.get(&fs(&id, "memories/hot/d/plan.md")).body, b"from inside\n", "{provider}");
        assert_eq!(rig.get(&fs(&id, "memories/hot/second")).body, b"2\n", "{provider}");
        assert_eq!(rig.get(&fs(&id, "memories/persistent/more")).body, b"3\n", "{provider}");
        rig.call("PUT", &fs(&id, "memories/hot/d/plan.md"), &[], b"again outside\n").is(204);
        assert_eq!(rig.exec(provider, &format!("cat {hot}/d/plan.md"))["stdout"], "again outside\n", "{provider}");
        rig.delete(&fs(&id, "memories/hot/second")).is(204);
        assert_eq!(rig.exec(provider, &format!("ls {hot}"))["stdout"], "d\n", "{provider}");
        rig.exec(provider, &format!("rm {hot}/d/plan.md"));
        rig.get(&fs(&id, "memories/hot/d/plan.md")).fails(404, "not_found");
        // Written while no server is there: a loop that goes on.
        let stay =
            format!("(until [ -e /workspace/go ] || [ -e ./go ]; do :; done; echo late > {hot}/late; echo > done) &");
        rig.exec(provider, &stay);
        rig.kill();
        std::fs::write(rig.data().join("projects").join(&id).join("repo/go"), "").unwrap();
        wait_for("the job", || rig.data().join("projects").join(&id).join("repo/done").exists().then_some(()));
        rig.start();
        assert_eq!(rig.get(&fs(&id, "memories/hot/late")).body, b"late\n", "{provider}");
    }
}

#[test]
fn the_end_of_a_session_writes_hot_memory_as_a_whole_and_takes_its_files() {
    let rig = Rig::new();
    let id = project(&rig);
    let session = rig.post(&format!("/api/projects/{id}/sessions"), &json!({})).is(201);
    let session = session["session_id"].as_str().unwrap().to_owned();
    rig.call("PUT", &fs(&id, "memories/hot/x"), &[], b"1").is(201);
    let passing = format!("{}?session_id={session}", fs(&id, "tmp/x"));
    rig.call("PUT", &passing, &[], b"1").is(201);
    assert_eq!(rig.get(&format!("/api/projects/{id}/memory")).is(200)["snapshot_at"], Value::Null);
    assert_eq!(rig.delete(&format!("/api/projects/{id}/sessions/{session}")).status, 204);
    let status = rig.get(&format!("/api/projects/{id}/memory")).is(200);
    assert!(status["snapshot_at"].is_string(), "{status}");
    rig.get(&passing).fails(409, "conflict");
}
