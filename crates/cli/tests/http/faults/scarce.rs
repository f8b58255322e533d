//! Processes and open files that are used up, in a sandbox or by the server: told as what passes, and passed when they are
//! free again. Nothing has to be removed for it.

use crate::rig::{Rig, wait_for};
use rustix::process::{Pid, Resource, Rlimit};
use serde_json::{Value, json};

fn exec_in(rig: &Rig, terminal: &str, command: &str) -> crate::rig::Answer {
    rig.post("/api/threads/t/exec", &json!({ "command": command, "terminal": terminal }))
}

/// A server with a thread `t` in a sandbox that may have so many processes; `None`: not on this machine.
fn with_processes(most: u32) -> Option<Rig> {
    let config = format!("[provider.box]\nkind = 'namespace'\nlimits = {{ processes = {most} }}\n");
    let rig = Rig::with_config(&config, &[]);
    let made = rig.post("/api/threads", &json!({ "id": "t", "provider": "box" }));
    if made.status != 201 {
        println!("SKIPPED: no namespaces on this machine: {}", made.json());
        return None;
    }
    rig.exec("t", "true");
    for name in ["kept", "new"] {
        rig.post("/api/threads/t/terminals", &json!({ "name": name })).is(201);
    }
    let lease = rig.get("/api/threads/t/lease").is(200);
    let warnings = lease["warnings"].as_array().unwrap().clone();
    if let Some(warning) = warnings.iter().find(|warning| warning["code"] == "processes-not-limited") {
        println!("SKIPPED: {}", warning["message"]);
        return None;
    }
    Some(rig)
}

/// Uses up all processes of the sandbox, by a job of the first terminal that its shell can end without another.
fn use_up_processes(rig: &Rig) {
    rig.exec("t", "bash -c 'for i in {1..60}; do sleep 1000 & done; wait' >/dev/null 2>&1 &");
    wait_for("the process table to be full", || {
        let lease = rig.get("/api/threads/t/lease").is(200)["lease_id"].as_str().unwrap().to_owned();
        let (mut now, mut most) = (None, None);
        for root in ["/sys/fs/cgroup/pids/stead", "/sys/fs/cgroup/stead", "/sys/fs/cgroup/unified/stead"] {
            let number = |name: &str| {
                let text = std::fs::read_to_string(format!("{root}/{lease}/{name}")).ok()?;
                text.trim().parse::<u64>().ok()
            };
            now = now.or(number("pids.current"));
            most = most.or(number("pids.max"));
        }
        (now.is_some() && now >= most).then_some(())
    });
}

#[test]
fn a_full_process_table_is_told_as_passing_and_all_goes_on_when_there_is_room() {
    let Some(rig) = with_processes(40) else { return };
    exec_in(&rig, "kept", "kept=here; f() { echo f $kept; }; cd /usr").is(200);
    use_up_processes(&rig);
    for _ in 0..20 {
        let error = exec_in(&rig, "new", "echo new").fails(503, "unavailable");
        assert_eq!(error["retryable"], true, "{error}");
        assert!(error["message"].as_str().unwrap().contains("end some"), "{error}");
    }
    // One whose shell dies meanwhile has none for now, and loses nothing of its state.
    let died = exec_in(&rig, "kept", "kill -9 $$").is(200);
    assert_eq!(died["signal"], "KILL", "{died}");
    // Its own process was given back by that, and is taken again.
    rig.exec("t", "bash -c 'for i in {1..60}; do sleep 1000 & done; wait' >/dev/null 2>&1 &");
    let error = wait_for("the want of a process", || {
        let answer = exec_in(&rig, "kept", "f; pwd");
        (answer.status != 200).then_some(answer)
    });
    error.fails(503, "unavailable");
    rig.exec("t", "kill -9 %1 %2 2>/dev/null; true");
    let new = wait_for("a process", || Some(exec_in(&rig, "new", "echo new")).filter(|answer| answer.status == 200));
    assert_eq!(new.json()["stdout"], "new\n");
    let kept = exec_in(&rig, "kept", "f; pwd").is(200);
    assert_eq!((&kept["stdout"], &kept["warnings"]), (&json!("f here\n/usr\n"), &json!([])), "{kept}");
}

/// Lets a process open no more files than it has open, or as many as before.
fn limit_files(pid: Pid, most: Option<u64>) -> Option<u64> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let limit = Rlimit { current: most.or(limit.maximum), maximum: limit.maximum };
    rustix::process::prlimit(Some(pid), Resource::Nofile, limit).unwrap().current
}

fn open_files(pid: Pid) -> u64 {
    std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).unwrap().count() as u64
}

#[test]
fn a_steward_without_descriptors_says_so_and_goes_on_when_it_has_some() {
    let Some(rig) = with_processes(400) else { return };
    exec_in(&rig, "kept", "kept=here").is(200);
    let steward = wait_for("the steward", || super::memory::steward(&rig));
    let before = limit_files(steward, Some(open_files(steward)));
    for _ in 0..10 {
        let answer = exec_in(&rig, "new", "echo new");
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, &error["code"], &error["retryable"]), (503, &json!("unavailable"), &json!(true)));
    }
    limit_files(steward, before);
    let new = wait_for("a shell", || Some(exec_in(&rig, "new", "echo new")).filter(|answer| answer.status == 200));
    assert_eq!(new.json()["stdout"], "new\n");
    assert_eq!(exec_in(&rig, "kept", "echo $kept").is(200)["stdout"], "here\n");
}

#[test]
fn a_server_without_descriptors_says_so_and_goes_on_when_it_has_some() {
    for provider in ["local", "namespace"] {
        let rig = Rig::new();
        let made = rig.post("/api/threads", &json!({ "id": "t", "provider": provider }));
        if made.status != 201 {
            println!("SKIPPED: no `{provider}` on this machine: {}", made.json());
            continue;
        }
        rig.exec("t", "kept=here");
        rig.post("/api/threads", &json!({ "id": "late", "provider": provider })).is(201);
        let begin = json!({ "command": "read x; echo $x", "id": "long", "stdin_open": true, "background": true });
        rig.post("/api/threads/t/exec", &begin).is(202);
        let instance = || rig.get("/api/threads/t/lease").is(200)["instance"]["instance_id"].clone();
        let first = instance();
        let server = Pid::from_child(rig.server.as_ref().unwrap());
        // The connection that we have is one of them.
        let before = limit_files(server, Some(open_files(server)));
        let late = |id: &str| rig.post("/api/threads/late/exec", &json!({ "command": "echo late", "id": id }));
        for round in 0..5 {
            let answer = late(&format!("refused-{round}"));
            let told = answer.json();
            let error = &told["error"];
            let code = error["code"].as_str().unwrap_or_default();
            assert!(["unavailable", "provider_error"].contains(&code), "{provider}: {} {told}", answer.status);
            assert_ne!(error["retryable"], false, "{provider}: {told}");
            // What can't be looked at is not taken for gone.
            for what in ["lease", "metrics"] {
                let _ = rig.get(&format!("/api/threads/t/{what}"));
            }
        }
        limit_files(server, before);
        let ran = wait_for("an instance", || Some(late("c")).filter(|answer| answer.status == 200));
        assert_eq!((&ran.json()["stdout"], &ran.json()["status"]), (&json!("late\n"), &json!("exited")), "{provider}");
        rig.call("POST", "/api/commands/long/stdin?eof=true", &[], b"on\n").is(204);
        let end = wait_for("its end", || {
            let record = rig.get("/api/commands/long").is(200);
            (record["ended_at"] != Value::Null).then_some(record)
        });
        assert_eq!((&end["status"], &end["stdout_bytes"]), (&json!("exited"), &json!(3)), "{provider}: {end}");
        assert_eq!((rig.exec("t", "echo $kept")["stdout"].clone(), instance()), (json!("here\n"), first), "{provider}");
    }
}

/// Into a user namespace, as somebody who has no rights there.
const ORDINARY: &str = "unshare -U --map-user=1000 --map-group=1000";

/// Has the server start where so many user namespaces are allowed and all of them are in use, by processes that the file
/// `pids` names; they are no children of the server, which would leave them as zombies in their namespaces. The limit is
/// that of a user namespace of its own, so nobody else has less for it.
fn without_namespaces(rig: &mut Rig, most: usize) {
    let limit =
        format!("echo {} > /proc/sys/user/max_user_namespaces\nexec {ORDINARY} sh \"$0.user\" \"$@\"\n", most + 1);
    // Each tries until it has one: what has just ended may still count for a moment.
    let inside = format!(
        "cd '{dir}'\n\
         for i in $(seq {most}); do (until [ -e held.$i ]; do\n\
           unshare -U sh -c 'echo $$ >>pids; : >held.'$i'; exec sleep 1000'\n\
         done >/dev/null 2>&1 &); done\n\
         for i in $(seq {most}); do until [ -e held.$i ]; do :; done; done\n\
         exec '{program}' \"$@\"\n",
        dir = rig.dir.path().display(),
        program = rig.program.display(),
    );
    let (inner, outer) = (rig.dir.path().join("inside"), rig.dir.path().join("limited"));
    std::fs::write(&inner, limit).unwrap();
    std::fs::write(inner.with_extension("user"), inside).unwrap();
    std::fs::write(&outer, format!("#!/bin/sh\nexec unshare -Ur sh '{}' \"$@\"\n", inner.display())).unwrap();
    std::fs::set_permissions(&outer, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    rig.program = outer;
}

#[test]
fn a_server_that_starts_while_namespaces_are_used_up_isolates_as_soon_as_there_are_some() {
    let nested = format!("echo 6 > /proc/sys/user/max_user_namespaces && {ORDINARY} unshare -Urmpf --mount-proc true");
    let possible = std::process::Command::new("unshare").args(["-Ur", "sh", "-c", &nested]).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: a user namespace can't have a limit and namespaces of its own here");
        return;
    }
    let mut rig = Rig::prepare("", &[], &[]);
    let program = rig.program.clone();
    without_namespaces(&mut rig, 6);
    rig.start();
    rig.program = program;
    let providers = rig.get("/api/providers").is(200);
    let find = |name: &str| providers["items"].as_array().unwrap().iter().find(|item| item["name"] == name).unwrap();
    let namespace = find("namespace");
    assert_eq!((&namespace["default"], &namespace["available"]), (&json!(true), &json!(false)), "{providers}");
    assert_eq!(find("local")["default"], false, "{providers}");
    let error = rig.post("/api/threads/t/exec", &json!({ "command": "true" })).fails(503, "unavailable");
    assert_eq!(error["retryable"], true, "{error}");
    let pids = std::fs::read_to_string(rig.dir.path().join("pids")).unwrap();
    for pid in pids.lines() {
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    let ran = wait_for("a sandbox", || {
        let answer = rig.post("/api/threads/t/exec", &json!({ "command": "echo $$" }));
        if answer.status != 200 {
            // 503, or 502 where some became free between a start that failed and the look at why.
            assert_eq!(answer.json()["error"]["retryable"], true, "{} {}", answer.status, answer.json());
            return None;
        }
        Some(answer.json())
    });
    assert_eq!(ran["exit_code"], 0, "{ran}");
    assert_eq!(rig.get("/api/threads/t").is(200)["provider"], "namespace");
}
