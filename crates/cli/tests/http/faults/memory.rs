//! Memory that runs out inside an instance: whoever wanted it is told, and nobody else is harmed.

use crate::rig::{Rig, wait_for};
use serde_json::{Value, json};

/// Takes 200 MB of its own, or dies of it. Its parent goes on.
const HOG: &str = "head -c 200000000 /dev/zero | tail -c 200000000 > /dev/null";

/// A server whose sandboxes may use 64 MiB, with one of them; `None`: this machine can't do that.
fn limited(kind: &str) -> Option<Rig> {
    let config = format!("[provider.box]\nkind = '{kind}'\nlimits = {{ memory = '64MiB' }}\n");
    let rig = Rig::with_config(&config, &[]);
    let made = rig.post("/api/threads", &json!({ "id": "t", "provider": "box" }));
    if made.status != 201 {
        println!("SKIPPED: no `{kind}` on this machine: {}", made.json());
        return None;
    }
    rig.exec("t", "kept=here");
    rig.post("/api/threads/t/terminals", &json!({ "name": "other" })).is(201);
    let lease = rig.get("/api/threads/t/lease").is(200);
    if let Some(warning) =
        lease["warnings"].as_array().unwrap().iter().find(|warning| warning["code"] == "memory-not-limited")
    {
        println!("SKIPPED: {}", warning["message"]);
        return None;
    }
    Some(rig)
}

fn instance(rig: &Rig) -> Value {
    rig.get("/api/threads/t/lease").is(200)["instance"]["instance_id"].clone()
}

/// The steward's process, as this machine numbers it.
pub(super) fn steward(rig: &Rig) -> Option<rustix::process::Pid> {
    let lease = rig.get("/api/threads/t/lease").is(200);
    let keeper = lease["instance"]["metadata"]["pid"].as_str()?.to_owned();
    let tasks = std::fs::read_dir(format!("/proc/{keeper}/task")).ok()?.flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<String> =
        children.flat_map(|list| list.split(' ').map(str::to_owned).collect::<Vec<_>>()).collect();
    let is_steward = |pid: &&String| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == b"run")
    };
    rustix::process::Pid::from_raw(children.iter().find(is_steward)?.parse().ok()?)
}

/// The process ids of shell, steward and keeper, as they are seen inside.
fn trunk(rig: &Rig) -> Value {
    rig.exec("t", "echo $$; read -r _ _ _ keeper _ </proc/$$/stat; echo $keeper; cat /proc/$keeper/task/*/children")
        ["stdout"]
        .clone()
}

#[test]
fn a_full_tmp_is_no_space_and_takes_nobody_with_it() {
    let Some(rig) = limited("namespace") else { return };
    let before = instance(&rig);
    for place in ["/tmp", "/dev/shm", "/var/tmp", "/run"] {
        let end = rig.exec("t", &format!("head -c 200000000 /dev/zero > {place}/f; s=$?; ls -s {place}/f; (exit $s)"));
        if place == "/run" && end["stderr"].as_str().unwrap().contains("Permission denied") {
            continue;
        }
        assert_eq!((&end["status"], &end["exit_code"]), (&json!("exited"), &json!(1)), "{place}: {end}");
        assert!(end["stderr"].as_str().unwrap().contains("No space left on device"), "{place}: {end}");
        assert_eq!(end["oom_killed"], false, "{place}: {end}");
        // With it full the shell, and others, go on.
        assert_eq!(rig.exec("t", "echo $kept")["stdout"], "here\n", "{place}");
        let other = json!({ "command": "echo other", "terminal": "other" });
        assert_eq!(rig.post("/api/threads/t/exec", &other).is(200)["stdout"], "other\n", "{place}");
        rig.exec("t", &format!("rm {place}/f"));
    }
    assert_eq!(instance(&rig), before);
}

#[test]
fn a_command_that_is_killed_for_memory_says_so_and_its_shell_lives_on() {
    for kind in ["namespace", "local"] {
        let Some(rig) = limited(kind) else { continue };
        rig.post("/api/threads/t/exec", &json!({ "command": "true", "terminal": "other" })).is(200);
        let (before, trunk_before) = (instance(&rig), trunk(&rig));
        let waiting = json!({ "command": "read x; echo got $x", "terminal": "other", "id": "waiting",
            "stdin_open": true, "background": true });
        rig.post("/api/threads/t/exec", &waiting).is(202);
        wait_for("it runs", || (rig.get("/api/commands/waiting").is(200)["status"] == "running").then_some(()));
        for round in 0..3 {
            let end = rig.exec("t", HOG);
            let got = (&end["status"], &end["exit_code"], &end["oom_killed"], &end["shell_exited"]);
            assert_eq!(got, (&json!("exited"), &json!(137), &json!(true), &json!(false)), "{kind} {round}: {end}");
            // What is killed by others was not killed for memory.
            let end = rig.exec("t", "bash -c 'kill -9 $$'");
            assert_eq!((&end["exit_code"], &end["oom_killed"]), (&json!(137), &json!(false)), "{kind}: {end}");
            let end = rig.exec("t", "echo $kept");
            assert_eq!((&end["stdout"], &end["oom_killed"]), (&json!("here\n"), &json!(false)), "{kind}: {end}");
        }
        rig.call("POST", "/api/commands/waiting/stdin?eof=true", &[], b"it\n").is(204);
        let other = wait_for("its end", || {
            let record = rig.get("/api/commands/waiting").is(200);
            (record["status"] == "exited").then_some(record)
        });
        assert_ne!(other["oom_killed"], true, "{kind}: {other}");
        assert_eq!((&other["exit_code"], &other["stdout_bytes"]), (&json!(0), &json!(7)), "{kind}: {other}");
        assert_eq!((instance(&rig), trunk(&rig)), (before, trunk_before), "{kind}");
    }
}

#[test]
fn a_process_that_is_killed_inside_a_command_is_told_also_when_the_command_goes_on() {
    let Some(rig) = limited("namespace") else { return };
    let end = rig.exec("t", &format!("{HOG}; echo $?"));
    assert_eq!((&end["exit_code"], &end["stdout"]), (&json!(0), &json!("137\n")), "{end}");
    assert_eq!(end["oom_killed"], true, "{end}");
    let end = rig.exec("t", &format!("({HOG}) | cat"));
    assert_eq!((&end["exit_code"], &end["oom_killed"]), (&json!(0), &json!(true)), "{end}");
    // With somebody else there, who could have been killed as well, nobody knows.
    rig.exec("t", "sleep 1000 &");
    let end = rig.exec("t", &format!("{HOG}; true"));
    assert_eq!((&end["exit_code"], &end["oom_killed"]), (&json!(0), &Value::Null), "{end}");
}

#[test]
fn a_command_that_somebody_else_killed_is_not_told_of_anothers_kill_for_memory() {
    let Some(rig) = limited("namespace") else { return };
    for terminal in ["default", "other"] {
        rig.post("/api/threads/t/exec", &json!({ "command": "/bin/true", "terminal": terminal })).is(200);
    }
    let start = |terminal: &str, id: &str, command: &str| {
        let body =
            json!({ "command": command, "terminal": terminal, "id": id, "stdin_open": true, "background": true });
        rig.post("/api/threads/t/exec", &body).is(202);
    };
    let ended = |id: &str| {
        rig.call("POST", &format!("/api/commands/{id}/stdin?eof=true"), &[], b"go\n").is(204);
        wait_for("its end", || {
            let record = rig.get(&format!("/api/commands/{id}")).is(200);
            (record["ended_at"] != Value::Null).then_some(record)
        })
    };
    // One loses a process and goes on; the other, which began before, ends as if it had lost one.
    start("other", "killed", "bash -c 'read go; kill -9 $$'");
    start("default", "lost-one", &format!("{HOG}; echo over; read go; true"));
    wait_for("the kill", || (rig.get("/api/commands/lost-one").is(200)["stdout_bytes"] == 5).then_some(()));
    let killed = ended("killed");
    assert_eq!((&killed["exit_code"], &killed["oom_killed"]), (&json!(137), &Value::Null), "{killed}");
    let lost_one = ended("lost-one");
    assert_eq!(lost_one["exit_code"], 0, "{lost_one}");
    assert_ne!(lost_one["oom_killed"], false, "{lost_one}");
    // The same beside a command that has no process: then it is told apart.
    start("other", "builtin", "read go");
    let hog = rig.exec("t", &format!("{HOG}; true"));
    assert_eq!((&hog["exit_code"], &hog["oom_killed"]), (&json!(0), &json!(true)), "{hog}");
    assert_eq!(ended("builtin")["oom_killed"], false);
}

#[test]
fn a_steward_that_was_killed_meanwhile_still_knows_of_a_kill_for_memory() {
    let Some(mut rig) = limited("namespace") else { return };
    let exec = json!({ "command": format!("read x; {HOG}"), "id": "c", "stdin_open": true, "background": true });
    rig.post("/api/threads/t/exec", &exec).is(202);
    wait_for("it runs", || (rig.get("/api/commands/c").is(200)["status"] == "running").then_some(()));
    let first = wait_for("the steward", || steward(&rig));
    rustix::process::kill_process(first, rustix::process::Signal::KILL).unwrap();
    wait_for("another steward", || steward(&rig).filter(|now| *now != first));
    wait_for("it takes input", || {
        (rig.call("POST", "/api/commands/c/stdin?eof=true", &[], b"go\n").status == 204).then_some(())
    });
    let end = wait_for("its end", || {
        let record = rig.get("/api/commands/c").is(200);
        (record["ended_at"] != Value::Null).then_some(record)
    });
    assert_eq!((&end["status"], &end["exit_code"], &end["oom_killed"]), (&json!("exited"), &json!(137), &json!(true)));
    rig.kill();
    rig.start();
    assert_eq!(rig.get("/api/commands/c").is(200)["oom_killed"], true);
}
