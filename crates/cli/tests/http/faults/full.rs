//! A server that is started over a full disk, and one that has much to look at when it starts.

use super::Small;
use crate::rig::{Rig, wait_for};
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

/// Ends a server in some way.
type End = fn(&mut Rig);

#[test]
fn a_server_starts_over_a_full_disk_serves_what_needs_no_room_and_says_so() {
    let ends: [(&str, End); 2] = [("killed", Rig::kill), ("ended", |rig| assert!(rig.terminate().success()))];
    for (how, end) in ends {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let Some(small) = Small::mount(&data) else {
            println!("SKIPPED: no file system can be mounted here (it needs root)");
            return;
        };
        let mut rig = Rig::with_all("", &["--data", data.to_str().unwrap()], &[]);
        rig.post("/api/threads/t/exec", &json!({ "command": "A=1; echo kept | tee /workspace/f", "id": "c" })).is(200);
        rig.exec("other", "true");
        assert_eq!(rig.get("/readyz").status, 200, "{how}");
        wait_for("the reserve", || data.join("reserve").exists().then_some(()));
        end(&mut rig);
        small.fill();
        rig.start();
        assert_eq!(rig.get("/healthz").status, 200, "{how}");
        let unready = rig.get("/readyz").fails(503, "unavailable");
        assert_eq!((&unready["details"]["reason"], &unready["retryable"]), (&json!("no_room"), &json!(true)), "{how}");
        // What needs no room is served.
        let threads = rig.get("/api/threads").is(200)["items"].as_array().unwrap().len();
        assert_eq!(threads, 2, "{how}");
        assert_eq!(rig.get("/api/commands/c").is(200)["exit_code"], 0, "{how}");
        assert_eq!(rig.get("/api/commands/c/output/stdout").body, b"kept\n", "{how}");
        assert_eq!(rig.get("/api/threads/t/files?path=/workspace/f").body, b"kept\n", "{how}");
        assert_eq!(rig.get("/api/threads/t/terminal").is(200)["env_delta"], json!({}), "{how}");
        // What needs some is refused by name, with what to do.
        small.fill();
        let mut made = 0;
        let refused = wait_for("the end of all room", || {
            made += 1;
            let big = json!({ "id": format!("big{made}"), "env": { "A": "x".repeat(100_000) } });
            let answer = rig.post("/api/threads", &big);
            small.fill();
            (answer.status != 201).then_some(answer)
        });
        let error = refused.fails(507, "no_space");
        assert!(error["hint"].as_str().unwrap().contains("make room"), "{how}: {error}");
        // With room all is as ever, and nobody had to start anything again.
        small.make_room();
        wait_for("readiness", || (rig.get("/readyz").status == 200).then_some(()));
        assert_eq!(rig.exec("t", "echo $A; cat /workspace/f")["stdout"], "1\nkept\n", "{how}");
        rig.post("/api/threads", &json!({ "id": "new" })).is(201);
        rig.kill();
        rig.start();
        assert_eq!(rig.get("/readyz").status, 200, "{how}");
    }
}

/// Output that stands still takes whatever a server gives up: its reserve, and what it removes when it ends.
#[test]
fn a_server_starts_over_a_full_disk_as_often_as_it_is_ended_there() {
    for reserve in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let Some(small) = Small::mount(&data) else {
            println!("SKIPPED: no file system can be mounted here (it needs root)");
            return;
        };
        if !reserve {
            // Too little room for one.
            std::fs::write(data.join("other"), vec![b'x'; 36 << 20]).unwrap();
        }
        let mut rig = Rig::with_all("", &["--data", data.to_str().unwrap()], &[]);
        rig.post("/api/threads/t/exec", &json!({ "command": "A=1; echo kept | tee /workspace/f", "id": "c" })).is(200);
        if reserve {
            wait_for("the reserve", || data.join("reserve").exists().then_some(()));
        }
        for round in 0..3 {
            println!("reserve: {reserve}, round {round}");
            assert!(rig.terminate().success());
            small.fill();
            rig.start();
            small.fill();
            let unready = rig.get("/readyz").fails(503, "unavailable");
            assert_eq!(unready["details"]["reason"], "no_room");
            assert_eq!(rig.get("/api/threads").is(200)["items"].as_array().unwrap().len(), 1);
            assert_eq!(rig.get("/api/commands/c/output/stdout").body, b"kept\n");
            assert!(!data.join("reserve").exists());
        }
        small.make_room();
        let _ = std::fs::remove_file(data.join("other"));
        wait_for("readiness", || (rig.get("/readyz").status == 200).then_some(()));
        assert_eq!(rig.exec("t", "echo $A; cat /workspace/f")["stdout"], "1\nkept\n");
        assert!(rig.terminate().success());
        let left = std::fs::metadata(data.join("stead.db-wal")).map_or(0, |file| file.len());
        assert_eq!(left, 0, "with room all is in the one file");
        rig.start();
        assert_eq!(rig.get("/api/threads").is(200)["items"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn a_thread_can_be_removed_from_a_full_disk_and_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let Some(small) = Small::mount(&data) else {
        println!("SKIPPED: no file system can be mounted here (it needs root)");
        return;
    };
    let rig = Rig::with_all("", &["--data", data.to_str().unwrap()], &[]);
    rig.exec("large", "head -c 20000000 /dev/zero > /workspace/f");
    rig.exec("t", "true");
    small.fill();
    // A disk is full to the last page only when nothing of its own grows any more.
    wait_for("the end of all room", || {
        let id = format!("n{}", data.read_dir().unwrap().count());
        let answer = rig.post("/api/threads", &json!({ "id": id, "env": { "A": "x".repeat(100_000) } }));
        small.fill();
        (answer.status == 507).then_some(())
    });
    assert_eq!(rig.get("/readyz").fails(503, "unavailable")["details"]["reason"], "no_room");
    rig.delete("/api/threads/large").is(204);
    wait_for("readiness", || (rig.get("/readyz").status == 200).then_some(()));
    assert_eq!(rig.exec("t", "echo on")["stdout"], "on\n");
}

#[test]
fn a_server_that_has_still_much_to_look_at_says_that_it_lives_and_is_not_ready() {
    let mut rig = Rig::new();
    rig.stay();
    rig.post("/api/threads", &json!({ "id": "t", "provider": "local" })).is(201);
    rig.exec("t", "A=1");
    let lease = rig.get("/api/threads/t/lease").is(200)["lease_id"].as_str().unwrap().to_owned();
    rig.kill();
    // What tells which instance a lease has: a pipe that nobody has written to yet keeps whoever looks at it waiting.
    let told = rig.data().join("providers/local/leases").join(lease).join("instance");
    let text = std::fs::read(&told).unwrap();
    std::fs::remove_file(&told).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &told, rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0)
        .unwrap();
    let log = std::fs::File::options().append(true).open(rig.dir.path().join("log")).unwrap();
    let mut command = rig.stead();
    command.args(["serve", "--listen", rig.address()]).stdout(Stdio::piped()).stderr(log);
    let mut server = command.spawn().unwrap();
    let mut said = BufReader::new(server.stdout.take().unwrap());
    rig.server = Some(server);
    // Opens only when the server looks.
    let mut telling = wait_for("the server to look", || {
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
        rustix::fs::open(&told, flags, rustix::fs::Mode::empty()).ok().map(std::fs::File::from)
    });
    assert_eq!(rig.call_as("GET", "/healthz", &[], b"").status, 200);
    let unready = rig.call_as("GET", "/readyz", &[], b"");
    assert_eq!(unready.fails(503, "unavailable")["details"]["reason"], "recovering");
    assert_eq!(unready.header("retry-after"), Some("1"));
    assert!(unready.header("stead-version").is_some());
    // Whoever wants more waits for it.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| rig.exec("t", "echo $A"));
        let new = told.with_extension("again");
        std::fs::write(&new, &text).unwrap();
        std::fs::rename(&new, &told).unwrap();
        telling.write_all(&text).unwrap();
        drop(telling);
        assert_eq!(waiting.join().unwrap()["stdout"], "1\n");
    });
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains(&rig.url), "{line}");
    assert_eq!(rig.get("/readyz").status, 200);
}
