//! What must hold when things go wrong around the server.

mod clock;
mod damage;
mod database;
mod full;
mod kills;
mod memory;
mod room;
mod scarce;

pub(crate) use room::Small;

use crate::rig::{Rig, rounds, wait_for};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

/// Starts a server that is expected to refuse, and hears why.
fn refusal(rig: &Rig) -> String {
    let mut command = rig.stead();
    command.args(["serve", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if !line.is_empty() {
        let _ = server.kill();
        let _ = server.wait();
        panic!("it started: {line}");
    }
    let mut said = String::new();
    server.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!server.wait().unwrap().success(), "{said}");
    said
}

#[test]
fn a_second_server_over_the_same_data_is_refused_and_the_first_goes_on() {
    let rig = Rig::new();
    rig.exec("t", "A=1");
    let said = refusal(&rig);
    assert!(said.contains("runs already") && said.contains(&*rig.data().to_string_lossy()), "{said}");
    assert_eq!(rig.exec("t", "echo $A")["stdout"], "1\n");
    assert!(rig.data().join("stead.sock").exists());
}

#[test]
fn a_second_server_is_refused_also_when_the_lock_file_was_removed() {
    let rig = Rig::new();
    std::fs::remove_file(rig.data().join("server.lock")).unwrap();
    let said = refusal(&rig);
    assert!(said.contains("runs already"), "{said}");
    // The way in over the socket is still the first server's.
    let listed = rig.stead().args(["ls", "--json"]).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    assert_eq!(rig.exec("t", "echo here")["stdout"], "here\n");
}

#[test]
fn a_server_that_is_started_while_the_one_before_it_is_still_dying_waits_for_its_end() {
    let mut rig = Rig::new();
    rig.kill();
    let lock = std::fs::File::open(rig.data()).unwrap();
    lock.lock().unwrap();
    let inode = std::os::unix::fs::MetadataExt::ino(&lock.metadata().unwrap());
    let letting_go = std::thread::spawn(move || {
        wait_for("somebody waits for the lock", || {
            let locks = std::fs::read_to_string("/proc/locks").unwrap();
            locks.lines().any(|line| line.contains("->") && line.contains(&format!(":{inode} "))).then_some(())
        });
        drop(lock);
    });
    rig.start();
    letting_go.join().unwrap();
    assert_eq!(rig.exec("t", "echo here")["stdout"], "here\n");
}

#[test]
fn shells_outlive_a_server_that_ends_and_the_next_one_finds_them() {
    let mut rig = Rig::new();
    let shell = rig.exec("t", "cd /usr; A=1; sleep 1000 & echo $$")["stdout"].clone();
    let exec = json!({ "command": "read x; echo got $x", "stdin_open": true, "background": true, "id": "c" });
    rig.post("/api/threads/other/exec", &exec).is(202);
    assert!(rig.terminate().success());
    assert!(!rig.data().join("stead.sock").exists(), "nobody listens there");
    rig.start();
    assert_eq!(rig.exec("t", "echo $$")["stdout"], shell);
    assert_eq!(rig.exec("t", "echo $A $PWD; jobs | wc -l")["stdout"], "1 /usr\n1\n");
    rig.call("POST", "/api/commands/c/stdin?eof=true", &[], b"it\n").is(204);
    let end = rig.events("GET", "/api/commands/c/events", &Value::Null).last().unwrap();
    assert_eq!((&end.data["status"], &end.data["exit_code"]), (&json!("exited"), &json!(0)));
}

#[test]
fn a_server_that_ends_pauses_or_destroys_where_it_was_told_to() {
    for (on_exit, observed) in [("pause", "paused"), ("destroy", "none")] {
        let config = format!("[provider.box]\nkind = 'namespace'\non_exit = '{on_exit}'\n");
        let mut rig = Rig::with_config(&config, &[]);
        let works = rig.get("/api/providers").is(200);
        if works["items"].as_array().unwrap().iter().any(|one| one["name"] == "box" && one["available"] == false) {
            println!("skipped: no namespaces on this machine");
            return;
        }
        rig.post("/api/threads", &json!({ "id": "t", "provider": "box" })).is(201);
        rig.exec("t", "cd /usr; A=1; echo x > /workspace/f");
        assert!(rig.terminate().success());
        rig.start();
        let lease = rig.get("/api/threads/t/lease").is(200);
        assert_eq!(lease["observed_state"], observed, "{on_exit}");
        assert_eq!(rig.exec("t", "echo $A $PWD; cat /workspace/f")["stdout"], "1 /usr\nx\n", "{on_exit}");
    }
}

/// 256 MiB, 1 GiB with `STEAD_STRESS=4`.
#[test]
fn a_client_that_reads_nothing_costs_no_memory_and_loses_no_byte() {
    let rig = Rig::new();
    let lines: u64 = u64::from(rounds(4)) * (1 << 20);
    // 64 bytes a line, numbered.
    let command = format!("seq -f '%063.0f' 1 {lines}");
    let mut stream = rig.events("POST", "/api/threads/slow/exec", &json!({ "command": command, "id": "c" }));
    assert_eq!(stream.next().unwrap().event, "start");
    let (mut most, mut served) = (0, 0);
    // Everything is written while nobody reads it.
    crate::rig::wait_for("the end of the command", || {
        assert_eq!(rig.exec("quick", "echo x")["stdout"], "x\n");
        served += 1;
        most = most.max(rig.memory());
        (rig.get("/api/commands/c").is(200)["status"] == "exited").then_some(())
    });
    println!("{served} commands of others meanwhile; the server had {most} KiB at most");
    assert!(most < 256 << 10, "{most} KiB");
    let (mut next, mut rest, mut seq) = (1u64, String::new(), 1);
    for event in stream {
        seq += 1;
        assert_eq!(event.id, Some(seq));
        if event.event == "exit" {
            assert_eq!(event.data["stdout_bytes"], json!(lines * 64));
            continue;
        }
        rest.push_str(event.data["data"].as_str().unwrap());
        let whole = rest.len() - rest.len() % 64;
        for line in rest[..whole].split_terminator('\n') {
            assert_eq!(line.trim_start_matches('0').parse(), Ok(next), "`{line}`");
            next += 1;
        }
        rest.drain(..whole);
    }
    assert_eq!((next, rest.as_str()), (lines + 1, ""));
    most = most.max(rig.memory());
    assert!(most < 256 << 10, "{most} KiB");
}
