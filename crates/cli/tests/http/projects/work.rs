//! Threads of a project: what they share and what not, and what is counted and limited.

use super::{make, patch, show, thread};
use crate::rig::Rig;
use serde_json::{Value, json};

#[test]
fn threads_of_a_project_share_files_and_home_but_neither_directory_nor_variables() {
    let rig = Rig::new();
    let (id, _) = make(&rig, &json!({ "prefix": "app", "config": { "env": { "A": "project", "B": "project" } } }));
    let (other, _) = make(&rig, &json!({ "prefix": "other" }));
    thread(&rig, "one", &id);
    rig.post("/api/threads", &json!({ "id": "two", "project_id": id, "env": { "B": "own" } })).is(201);
    thread(&rig, "elsewhere", &other);
    rig.exec("one", "echo shared > f; mkdir -p d; cd d; export OWN=1; echo cache > ~/c");
    let seen = rig.exec("two", "cat f ~/c; echo $PWD [$OWN] $A $B");
    assert!(seen["stdout"].as_str().unwrap().starts_with("shared\ncache\n"), "{seen}");
    assert!(seen["stdout"].as_str().unwrap().ends_with(" [] project own\n"), "{seen}");
    assert_eq!(seen["cwd"], "/workspace");
    assert_eq!(rig.exec("one", "echo $OWN; true")["cwd"], "/workspace/d");
    assert_eq!(rig.exec("elsewhere", "ls -A; ls -A ~; echo [$A]")["stdout"], "[]\n");
    assert_eq!(std::fs::read_to_string(rig.data().join("projects").join(&id).join("repo/f")).unwrap(), "shared\n");
    let leases: Vec<Value> =
        ["one", "two"].map(|t| rig.get(&format!("/api/threads/{t}")).is(200)["lease_id"].clone()).into();
    assert_ne!(leases[0], leases[1], "each on its own instance");
    let shared = rig.post("/api/threads", &json!({ "id": "three", "share_with": "one" })).is(201);
    assert_eq!((&shared["lease_id"], &shared["project_id"]), (&leases[0], &json!(id)));
    // A terminal that is made later begins with the same.
    rig.post("/api/threads/one/terminals", &json!({ "name": "more" })).is(201);
    let more = rig.post("/api/threads/one/exec", &json!({ "command": "echo $A", "terminal": "more" })).is(200);
    assert_eq!(more["stdout"], "project\n");
}

#[test]
fn deleting_a_thread_leaves_the_files_of_its_project_and_takes_its_own() {
    let rig = Rig::new();
    let (id, _) = make(&rig, &json!({ "prefix": "w-lease" }));
    thread(&rig, "in", &id);
    rig.exec("in", "echo kept > f; echo kept > ~/g");
    rig.exec("alone", "echo gone > f");
    let own = || std::fs::read_dir(rig.data().join("workspaces")).map(Iterator::count).unwrap_or_default();
    assert_eq!(own(), 1);
    rig.delete("/api/threads/in").is(204);
    rig.delete("/api/threads/alone").is(204);
    assert_eq!(own(), 0);
    thread(&rig, "again", &id);
    assert_eq!(rig.exec("again", "cat f ~/g")["stdout"], "kept\nkept\n");
}

#[test]
fn what_happens_is_counted_and_only_work_is_an_access() {
    let rig = Rig::new();
    let (id, made) = make(&rig, &json!({ "prefix": "app" }));
    thread(&rig, "t", &id);
    for path in [format!("/api/projects/{id}"), "/api/projects".into(), "/api/threads/t".into()] {
        rig.get(&path).is(200);
    }
    assert_eq!(show(&rig, &id)["last_accessed_at"], made["last_accessed_at"], "looking is no access");
    rig.exec("t", "printf 12345; printf 678 >&2; head -c 100000 /dev/zero > f");
    let after = show(&rig, &id);
    assert_ne!(after["last_accessed_at"], made["last_accessed_at"]);
    rig.exec("t", "false");
    let written = rig.call("PUT", "/api/threads/t/files?path=g", &[], b"x");
    assert_eq!(written.status, 201);
    assert!(show(&rig, &id)["last_accessed_at"].as_str() >= after["last_accessed_at"].as_str());
    let counted = crate::rig::wait_for("two commands", || {
        let statistics = show(&rig, &id)["statistics"].clone();
        (statistics["commands"] == 2).then_some(statistics)
    });
    let expected = (&json!(1), &json!(1), &json!(8), &Value::Null);
    let [sessions, failed, bytes, error] =
        ["sessions", "failed_commands", "output_bytes", "last_error"].map(|k| &counted[k]);
    assert_eq!((sessions, failed, bytes, error), expected, "{counted}");
    assert!(counted["disk_bytes"].as_u64().unwrap() >= 100_000, "{counted}");
    assert!(counted["run_seconds"].is_f64());
    let listed = rig.get("/api/projects").is(200)["items"][0]["statistics"].clone();
    assert_eq!(listed["commands"], 2);
    rig.delete("/api/threads/t").is(204);
    let after = show(&rig, &id);
    assert_eq!(after["statistics"]["commands"], 2, "deleting a thread takes nothing back");
    let record = &after["sessions"][0];
    assert_eq!((&record["thread_id"], &record["close_reason"]), (&json!("t"), &json!("destroyed")));
    assert!(record["opened_by"].is_string() && record["duration_s"].is_u64(), "{record}");
}

#[test]
fn beyond_its_disk_limit_a_project_takes_nothing_but_removals() {
    let rig = Rig::new();
    let (id, _) = make(&rig, &json!({ "prefix": "app", "config": { "limits": { "disk": "1MiB" } } }));
    thread(&rig, "t", &id);
    rig.exec("t", "head -c 3000000 /dev/urandom > big");
    let error = rig.post("/api/threads/t/exec", &json!({ "command": "true" })).fails(507, "no_space");
    assert!(error["message"].as_str().unwrap().contains(&id), "{error}");
    rig.call("PUT", "/api/threads/t/files?path=g", &[], b"x").fails(507, "no_space");
    let statistics = show(&rig, &id)["statistics"].clone();
    assert!(statistics["disk_bytes"].as_u64().unwrap() > 3_000_000, "{statistics}");
    assert!(statistics["last_error"]["message"].as_str().unwrap().contains("may hold"), "{statistics}");
    rig.delete("/api/threads/t/files?path=big").is(204);
    rig.exec("t", "true");
    patch(&rig, &format!("/api/projects/{id}"), &json!({ "config": { "limits": { "disk": null } } })).is(200);
    rig.exec("t", "head -c 3000000 /dev/urandom > big; true");
    rig.exec("t", "true");
}

/// A body that doesn't say how long it is.
fn put_in_pieces(rig: &Rig, path: &str, bytes: &[u8]) -> u16 {
    use std::io::{BufRead, BufReader, Write};
    let mut stream = std::net::TcpStream::connect(rig.address()).unwrap();
    stream.set_read_timeout(Some(crate::rig::PATIENCE)).unwrap();
    let head = format!("PUT {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}", rig.address(), rig.token);
    write!(stream, "{head}\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
    for piece in bytes.chunks(50_000) {
        // It may have answered, and hung up.
        let sent = write!(stream, "{:x}\r\n", piece.len())
            .and_then(|()| stream.write_all(piece))
            .and_then(|()| stream.write_all(b"\r\n"));
        if sent.is_err() {
            break;
        }
    }
    let _ = stream.write_all(b"0\r\n\r\n");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn what_does_not_fit_below_the_disk_limit_is_refused_and_nothing_has_changed() {
    let rig = Rig::new();
    let (id, _) = make(&rig, &json!({ "prefix": "app", "config": { "limits": { "disk": "1MiB" } } }));
    thread(&rig, "t", &id);
    rig.exec("t", "true");
    let big = vec![b'x'; 3_000_000];
    let fs = |path: &str| format!("/api/projects/{id}/fs/{path}");
    let ways = [fs("workspace/g"), fs("memories/hot/g"), "/api/threads/t/files?path=g".to_owned()];
    for path in &ways {
        let error = rig.call("PUT", path, &[], &big).fails(507, "no_space");
        assert!(error["message"].as_str().unwrap().contains("does not fit"), "{path}: {error}");
        assert_eq!(put_in_pieces(&rig, path, &big), 507, "{path}");
        rig.get(path).fails(404, "not_found");
    }
    let place = rig.data().join("projects").join(&id).join("repo");
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0, "nothing of it is left");
    // What is replaced makes room for what replaces it.
    let most = vec![b'y'; 600_000];
    rig.call("PUT", &ways[0], &[], &most).is(201);
    for path in [&ways[0], &ways[2]] {
        rig.call("PUT", path, &[], &most).is(204);
        rig.call("PUT", path, &[], &big).fails(507, "no_space");
    }
    rig.call("PUT", &fs("workspace/h"), &[], &most).fails(507, "no_space");
    assert_eq!(rig.get(&ways[0]).body, most);
    // What an edit adds counts, and what an archive has in it.
    rig.call("PUT", &fs("workspace/small"), &[], b"a").is(201);
    let edit = json!({ "path": "/workspace/small", "old": "a", "new": "b".repeat(600_000) });
    rig.post(&fs("edit"), &edit).fails(507, "no_space");
    rig.post("/api/threads/t/files/edit", &edit).fails(507, "no_space");
    assert_eq!(rig.get(&fs("workspace/small")).body, b"a");
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(big.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, "in/big", big.as_slice()).unwrap();
    let archive = archive.into_inner().unwrap();
    rig.call("PUT", "/api/threads/t/files/archive?path=.", &[], &archive).fails(507, "no_space");
    assert!(!place.join("in").exists());
}

#[test]
fn a_project_has_no_more_live_instances_than_it_may() {
    let rig = Rig::new();
    let (id, _) = make(&rig, &json!({ "prefix": "app", "config": { "limits": { "instances": 2 } } }));
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..5)
            .map(|n| {
                let (rig, id) = (&rig, &id);
                scope.spawn(move || {
                    thread(rig, &format!("t{n}"), id);
                    rig.post(&format!("/api/threads/t{n}/exec"), &json!({ "command": "true" })).status
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 2, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 3, "{statuses:?}");
    let (works, refused) =
        (statuses.iter().position(|s| *s == 200).unwrap(), statuses.iter().position(|s| *s == 429).unwrap());
    rig.exec(&format!("t{works}"), "true");
    rig.delete(&format!("/api/threads/t{works}")).is(204);
    rig.exec(&format!("t{refused}"), "true");
    // Who shares an instance needs none of its own.
    rig.post("/api/threads", &json!({ "id": "shares", "share_with": format!("t{refused}") })).is(201);
    rig.exec("shares", "true");
}

#[test]
fn what_a_project_asks_of_its_provider_is_done_or_refused() {
    let rig = Rig::new();
    let (id, _) = make(&rig, &json!({ "prefix": "app", "config": { "image": "debian" } }));
    let error = rig.post("/api/threads", &json!({ "project_id": id })).fails(501, "unsupported");
    assert!(error["message"].as_str().unwrap().contains("config.image"), "{error}");
    let providers = rig.get("/api/providers").is(200);
    let works =
        providers["items"].as_array().unwrap().iter().any(|p| p["kind"] == "namespace" && p["available"] == true);
    let (id, _) = make(&rig, &json!({ "prefix": "app", "config": { "provider": "local" } }));
    assert_eq!(thread(&rig, "l", &id)["provider"], "local");
    if !works {
        println!("SKIPPED: no namespaces here to give a project no network");
        return;
    }
    let config = json!({ "provider": "namespace", "network": "none", "limits": { "processes": 64 } });
    let (id, _) = make(&rig, &json!({ "prefix": "app", "config": config }));
    thread(&rig, "n", &id);
    let links = rig.exec("n", "ls /sys/class/net 2>/dev/null || tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '");
    assert_eq!(links["stdout"].as_str().unwrap().trim(), "lo", "{links}");
    // A copy of a thread is in the project, too.
    rig.post("/api/threads/n/fork", &json!({ "id": "copy", "workspace": "copy" })).is(201);
    let links = rig.exec("copy", "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '");
    assert_eq!(links["stdout"].as_str().unwrap().trim(), "lo", "{links}");
}
