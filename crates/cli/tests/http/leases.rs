//! Leases: what is wanted, what is seen; pause and resume; providers and orphans.

use crate::rig::{Rig, Sse, is_time, keys, wait_for};
use serde_json::{Value, json};

fn lease(rig: &Rig, thread: &str) -> Value {
    rig.get(&format!("/api/threads/{thread}/lease")).is(200)
}

#[test]
fn a_lease_is_shown_with_every_field_before_and_after_it_has_an_instance() {
    let rig = Rig::new();
    let thread = rig.post("/api/threads", &json!({ "id": "t" })).is(201);
    let before = lease(&rig, "t");
    let fields = [
        "desired_state",
        "instance",
        "last_error",
        "lease_id",
        "observed_at",
        "observed_state",
        "provider",
        "terminals",
        "version",
        "warnings",
    ];
    assert_eq!(keys(&before), fields);
    assert_eq!((&before["observed_state"], &before["instance"]), (&json!("none"), &Value::Null));
    assert_eq!((&before["lease_id"], &before["provider"]), (&thread["lease_id"], &thread["provider"]));
    assert_eq!(before["terminals"], json!([thread["default_terminal_id"]]));
    rig.exec("t", "true");
    let after = lease(&rig, "t");
    assert_eq!((&after["desired_state"], &after["observed_state"]), (&json!("running"), &json!("running")));
    assert_eq!(keys(&after["instance"]), ["instance_id", "metadata", "started_at", "status"]);
    assert_eq!((&after["instance"]["status"], after["instance"]["metadata"].is_object()), (&json!("running"), true));
    is_time(&after["instance"]["started_at"]);
    is_time(&after["observed_at"]);
    assert!(after["version"].as_u64() > before["version"].as_u64() && after["last_error"].is_null(), "{after}");
    assert!(after["warnings"].as_array().unwrap().iter().all(|warning| keys(warning) == ["code", "message"]));
    assert_eq!(rig.get("/api/leases").is(200)["items"][0]["lease_id"], after["lease_id"]);
}

#[test]
fn pausing_and_resuming_may_be_asked_for_any_number_of_times() {
    let rig = Rig::new();
    rig.exec("t", "cd /usr; A=1; sleep 1000 & echo $! > /workspace/pid");
    // A background job is no command.
    let instance = lease(&rig, "t")["instance"]["instance_id"].clone();
    for _ in 0..3 {
        let paused = rig.post("/api/threads/t/pause", &json!({})).is(200);
        assert_eq!((&paused["desired_state"], &paused["observed_state"]), (&json!("paused"), &json!("paused")));
    }
    rig.post("/api/threads/t/exec", &json!({ "command": "true", "auto_resume": false })).fails(409, "paused");
    for _ in 0..3 {
        let resumed = rig.post("/api/threads/t/resume", &json!({})).is(200);
        assert_eq!((&resumed["desired_state"], &resumed["observed_state"]), (&json!("running"), &json!("running")));
        assert_eq!(resumed["instance"]["instance_id"], instance);
    }
    let on = rig.exec("t", "pwd; echo $A; kill -0 $(cat /workspace/pid) && echo alive");
    assert_eq!(on["stdout"], "/usr\n1\nalive\n");
}

#[test]
fn a_command_wakes_a_paused_thread_unless_it_is_told_not_to() {
    let rig = Rig::new();
    rig.exec("t", "A=1");
    rig.post("/api/threads/t/pause", &json!({})).is(200);
    rig.post("/api/threads/t/exec", &json!({ "command": "echo $A", "auto_resume": false })).fails(409, "paused");
    assert_eq!(lease(&rig, "t")["observed_state"], "paused");
    assert_eq!(rig.exec("t", "echo $A")["stdout"], "1\n");
    assert_eq!(lease(&rig, "t")["observed_state"], "running");
}

#[test]
fn nothing_is_paused_under_a_command_unless_forced_and_then_it_goes_on() {
    let rig = Rig::new();
    let exec = json!({ "command": "read x; echo got $x", "stdin_open": true, "background": true, "id": "c" });
    rig.post("/api/threads/t/exec", &exec).is(202);
    wait_for("a running command", || (rig.get("/api/commands/c").is(200)["status"] == "running").then_some(()));
    rig.post("/api/threads/t/pause", &json!({})).fails(409, "conflict");
    rig.post("/api/threads/t/pause", &json!({ "force": false })).fails(409, "conflict");
    assert_eq!(lease(&rig, "t")["observed_state"], "running");
    let paused = rig.post("/api/threads/t/pause", &json!({ "force": true })).is(200);
    assert_eq!(paused["observed_state"], "paused");
    assert_eq!(rig.get("/api/commands/c").is(200)["status"], "running");
    rig.post("/api/threads/t/resume", &json!({})).is(200);
    rig.call("POST", "/api/commands/c/stdin?eof=true", &[], b"it\n").is(204);
    let events: Vec<Sse> = rig.events("GET", "/api/commands/c/events", &Value::Null).collect();
    assert_eq!(events.last().unwrap().data["exit_code"], json!(0), "{events:?}");
    assert_eq!(rig.get("/api/commands/c/output/stdout").body, b"got it\n");
}

#[test]
fn what_another_thread_uses_is_paused_only_by_force() {
    let rig = Rig::new();
    rig.exec("a", "true");
    rig.post("/api/threads", &json!({ "id": "b", "share_with": "a" })).is(201);
    rig.exec("b", "true");
    rig.post("/api/threads/a/pause", &json!({})).fails(409, "conflict");
    assert_eq!(rig.post("/api/threads/a/pause", &json!({ "force": true })).is(200)["observed_state"], "paused");
    assert_eq!(lease(&rig, "b")["observed_state"], "paused");
    assert_eq!(rig.exec("b", "echo on")["stdout"], "on\n");
}

#[test]
fn without_an_instance_there_is_nothing_to_pause() {
    let rig = Rig::new();
    rig.post("/api/threads", &json!({ "id": "t" })).is(201);
    let answer = rig.post("/api/threads/t/pause", &json!({})).is(200);
    assert_eq!((&answer["observed_state"], &answer["instance"]), (&json!("none"), &Value::Null));
    assert_eq!(rig.exec("t", "echo on")["stdout"], "on\n");
    for what in ["pause", "resume"] {
        rig.post(&format!("/api/threads/nobody/{what}"), &json!({})).fails(404, "not_found");
        rig.post(&format!("/api/threads/t/{what}"), &json!({ "hard": true })).fails(400, "invalid_request");
    }
    assert_eq!(rig.get("/api/threads").is(200)["items"].as_array().unwrap().len(), 1);
}

#[test]
fn what_happens_to_a_lease_is_in_its_events_with_who_caused_it() {
    let rig = Rig::new();
    let id = rig.post("/api/threads", &json!({ "id": "t" })).is(201)["lease_id"].as_str().unwrap().to_owned();
    rig.exec("t", "true");
    rig.post("/api/threads/t/pause", &json!({})).is(200);
    rig.exec("t", "true");
    let events = rig.get(&format!("/api/leases/{id}/events")).is(200);
    let items = events["items"].as_array().unwrap();
    let fields = ["created_at", "error", "id", "kind", "lease_id", "payload", "source", "version"];
    assert!(items.len() >= 4 && items.iter().all(|event| keys(event) == fields), "{events}");
    let versions: Vec<u64> = items.iter().map(|event| event["version"].as_u64().unwrap()).collect();
    assert!(versions.is_sorted(), "{versions:?}");
    assert!(items.iter().all(|event| event["lease_id"] == json!(id)));
    is_time(&items[0]["created_at"]);
    let mut paged = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = rig.get(&format!("/api/leases/{id}/events?limit=1{cursor}")).is(200);
        paged.extend(page["items"].as_array().unwrap().clone());
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(&paged, items);
}

#[test]
fn metrics_are_numbers_where_they_are_known_and_null_elsewhere() {
    let rig = Rig::new();
    rig.post("/api/threads", &json!({ "id": "t" })).is(201);
    let fields = [
        "cpu_percent",
        "disk_used_bytes",
        "memory_limit_bytes",
        "memory_used_bytes",
        "network_rx_bytes",
        "network_tx_bytes",
        "processes",
    ];
    let none = rig.get("/api/threads/t/metrics").is(200);
    assert_eq!(keys(&none), fields);
    assert!(none.as_object().unwrap().values().all(Value::is_null), "{none}");
    rig.exec("t", "true");
    let some = rig.get("/api/threads/t/metrics").is(200);
    assert_eq!(keys(&some), fields);
    assert!(some["processes"].as_u64().is_some_and(|count| count >= 1), "{some}");
    assert!(some["memory_used_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{some}");
}

#[test]
fn providers_say_what_they_are_and_whether_they_work() {
    let rig = Rig::with_config("[provider.plain]\nkind = 'local'\n", &[]);
    let providers = rig.get("/api/providers").is(200);
    let items = providers["items"].as_array().unwrap();
    for provider in items {
        let fields = ["available", "capabilities", "default", "hint", "kind", "name", "notes", "reason"];
        assert_eq!(keys(provider), fields);
        let capabilities = ["durable_journal", "isolated", "live_pause", "metrics", "pause", "steward"];
        assert_eq!(keys(&provider["capabilities"]), capabilities);
        assert_eq!(provider["available"].as_bool().unwrap(), provider["reason"].is_null(), "{provider}");
    }
    let named = |name: &str| items.iter().find(|provider| provider["name"] == name).unwrap();
    assert_eq!((&named("plain")["kind"], &named("plain")["available"]), (&json!("local"), &json!(true)));
    assert_eq!(items.iter().filter(|provider| provider["default"] == true).count(), 1);
    rig.post("/api/threads", &json!({ "id": "p", "provider": "plain" })).is(201);
    rig.exec("p", "true");
    rig.exec("n", "true");
    let of = |name: &str| rig.get(&format!("/api/leases?provider={name}")).is(200)["items"].as_array().unwrap().len();
    assert_eq!((of("plain"), of("nobody")), (1, 0));
}

#[test]
fn an_instance_that_no_lease_knows_is_listed_adopted_and_removed() {
    let mut rig = Rig::new();
    rig.post("/api/orphans/inst-0123456789ab/adopt", &json!({})).fails(404, "not_found");
    rig.post("/api/orphans/inst-0123456789ab/remove", &json!({})).fails(404, "not_found");
    rig.exec("t", "true");
    let instance = lease(&rig, "t")["instance"]["instance_id"].as_str().unwrap().to_owned();
    assert_eq!(rig.get("/api/orphans").is(200)["items"], json!([]));
    // The memory of the server is lost, what runs is not.
    rig.kill();
    rig.forget_everything();
    rig.start();
    let orphans = rig.get("/api/orphans").is(200);
    let found = &orphans["items"][0];
    assert_eq!(keys(found), ["instance_id", "lease_id", "provider", "status"], "{orphans}");
    assert_eq!((&found["instance_id"], &found["status"]), (&json!(instance), &json!("running")));
    let adopted = rig.post(&format!("/api/orphans/{instance}/adopt"), &json!({})).is(200);
    assert_eq!(adopted["instance"]["instance_id"], json!(instance));
    assert_eq!(rig.get("/api/orphans").is(200)["items"], json!([]));
    rig.post(&format!("/api/orphans/{instance}/remove"), &json!({})).fails(404, "not_found");
}

#[test]
fn an_orphan_is_removed_with_its_processes() {
    let mut rig = Rig::new();
    rig.exec("t", "true");
    let instance = lease(&rig, "t")["instance"]["instance_id"].as_str().unwrap().to_owned();
    rig.kill();
    rig.forget_everything();
    rig.start();
    rig.post(&format!("/api/orphans/{instance}/remove"), &json!({})).is(204);
    assert_eq!(rig.get("/api/orphans").is(200)["items"], json!([]));
}

#[test]
fn what_was_paused_by_force_may_be_paused_again() {
    let rig = Rig::new();
    rig.post("/api/threads/t/exec", &json!({ "command": "cat", "id": "c", "stdin_open": true, "background": true }))
        .is(202);
    let hint = rig.post("/api/threads/t/pause", &json!({})).fails(409, "conflict")["hint"].clone();
    assert!(hint.as_str().unwrap().contains("force"), "{hint}");
    rig.post("/api/threads/t/pause", &json!({ "force": true })).is(200);
    for body in [json!({}), json!({ "force": true }), json!({ "force": false })] {
        assert_eq!(rig.post("/api/threads/t/pause", &body).is(200)["observed_state"], "paused", "{body}");
    }
    assert_eq!(rig.get("/api/threads/t/session").is(200)["status"], "paused");
    rig.post("/api/threads/t/resume", &json!({})).is(200);
    rig.call("POST", "/api/commands/c/stdin?eof=true", &[], b"").is(204);
}

#[test]
fn the_terminals_of_a_lease_are_in_one_order_everywhere() {
    let rig = Rig::new();
    rig.exec("t", "true");
    for name in ["b", "a"] {
        rig.post("/api/threads/t/terminals", &json!({ "name": name })).is(201);
    }
    let shown = lease(&rig, "t")["terminals"].clone();
    assert_eq!(shown.as_array().unwrap().len(), 3);
    assert_eq!(rig.post("/api/threads/t/pause", &json!({})).is(200)["terminals"], shown);
    assert_eq!(rig.post("/api/threads/t/resume", &json!({})).is(200)["terminals"], shown);
    assert_eq!(rig.get("/api/leases").is(200)["items"][0]["terminals"], shown);
}

#[test]
fn a_server_that_pauses_at_its_end_leaves_a_paused_session_whose_command_goes_on() {
    let mut rig = Rig::with_config("default_provider = 'p'\n[provider.p]\nkind = 'local'\non_exit = 'pause'\n", &[]);
    let exec = json!({ "command": "read x; echo got $x", "stdin_open": true, "background": true, "id": "c" });
    rig.post("/api/threads/t/exec", &exec).is(202);
    wait_for("a running command", || (rig.get("/api/commands/c").is(200)["status"] == "running").then_some(()));
    let session = rig.get("/api/threads/t/session").is(200)["session_id"].clone();
    rig.terminate();
    rig.start();
    let after = rig.get("/api/threads/t/session").is(200);
    assert_eq!((&after["session_id"], &after["status"]), (&session, &json!("paused")), "{after}");
    rig.post("/api/threads/t/resume", &json!({})).is(200);
    rig.call("POST", "/api/commands/c/stdin?eof=true", &[], b"it\n").is(204);
    wait_for("its end", || (rig.get("/api/commands/c").is(200)["status"] == "exited").then_some(()));
    assert_eq!(rig.get("/api/commands/c/output/stdout").body, b"got it\n");
}

#[test]
fn a_server_that_destroys_at_its_end_makes_no_instance_while_it_stops() {
    let config = "default_provider = 'p'\n[provider.p]\nkind = 'local'\non_exit = 'destroy'\n";
    let mut rig = Rig::with_config(config, &[]);
    let threads = ["a", "b", "c", "d"];
    for thread in threads {
        let exec = json!({ "command": "sleep 1000", "background": true, "id": format!("job-{thread}") });
        rig.post(&format!("/api/threads/{thread}/exec"), &exec).is(202);
        rig.post(&format!("/api/threads/{thread}/exec"), &json!({ "command": "true", "background": true })).is(202);
    }
    rig.terminate();
    rig.start();
    for thread in threads {
        let lease = rig.get(&format!("/api/threads/{thread}/lease")).is(200);
        assert_eq!(lease["instance"], json!(null), "{lease}");
        let events = rig.get(&format!("/api/leases/{}/events", lease["lease_id"].as_str().unwrap())).is(200);
        let events = events["items"].as_array().unwrap();
        let text = |event: &serde_json::Value| event.to_string();
        let destroyed = events.iter().position(|event| text(event).contains("\"destroyed\"")).unwrap();
        let after = |event: &serde_json::Value| text(event).contains("ensure_running");
        assert!(!events[destroyed..].iter().any(after), "{events:?}");
        assert_eq!(rig.get(&format!("/api/commands/job-{thread}")).is(200)["status"], "lost");
    }
    assert_eq!(rig.get("/api/orphans").is(200)["items"], json!([]));
    assert_eq!(rig.exec("a", "echo on")["stdout"], "on\n");
}

/// The processes of an instance as its provider has written them down: which file, process id, start time.
fn note_of_instance(rig: &Rig, thread: &str) -> (std::path::PathBuf, i32, u64) {
    let lease = rig.get(&format!("/api/threads/{thread}/lease")).is(200)["lease_id"].as_str().unwrap().to_owned();
    let note = rig.data().join("providers/p/leases").join(lease).join("instance");
    let text = std::fs::read_to_string(&note).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    (note, words[1].parse().unwrap(), words[2].parse().unwrap())
}

#[test]
fn numbers_that_were_written_down_before_a_reboot_are_nobodys() {
    for kind in ["local", "namespace"] {
        let mut rig = Rig::with_config(&format!("default_provider = 'p'\n[provider.p]\nkind = '{kind}'\n"), &[]);
        rig.exec("t", "true");
        let (note, pid, start_time) = note_of_instance(&rig, "t");
        rig.kill();
        stead_term::tree::Tree::of(pid, start_time).kill(std::time::Duration::from_secs(20)).unwrap();
        // As after a reboot: somebody else has the numbers.
        let mut bystander = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let other = i32::try_from(bystander.id()).unwrap();
        let other = (other, stead_term::proc::stat(other).unwrap().start_time);
        for file in [note.clone(), note.with_file_name("place").join("enclosed")] {
            let Ok(text) = std::fs::read_to_string(&file) else { continue };
            let text = text.replace(&format!("{pid} {start_time}"), &format!("{} {}", other.0, other.1));
            let text = text.replace(stead_term::proc::boot_id(), "00000000-0000-0000-0000-000000000000");
            std::fs::write(&file, text).unwrap();
        }
        rig.start();
        rig.delete("/api/threads/t").is(204);
        assert_eq!(bystander.try_wait().unwrap(), None, "{kind}: a process that has nothing to do with it was killed");
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    }
}

#[test]
fn a_local_instance_whose_steward_is_killed_as_it_is_made_leaves_nobody_outside_of_its_group() {
    let rig = Rig::with_config("default_provider = 'p'\n[provider.p]\nkind = 'local'\n", &[]);
    let groups = rig.exec("first", "cat /proc/self/cgroup")["stdout"].as_str().unwrap().to_owned();
    if !groups.contains("lease-") {
        println!("SKIPPED: no control group can be made here");
        return;
    }
    for round in 0..10 {
        let thread = format!("t{round}");
        let over = std::sync::atomic::AtomicBool::new(false);
        let pid = std::thread::scope(|scope| {
            scope.spawn(|| {
                let known = stewards(&rig);
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    if let Some(new) = stewards(&rig).into_iter().find(|pid| !known.contains(pid)) {
                        let pid = rustix::process::Pid::from_raw(new).unwrap();
                        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                        return;
                    }
                }
            });
            // Without job control, so that the child leads no group and `setsid` keeps its process id.
            let ran = rig.exec(&thread, "sh -c 'setsid sleep 1000 >/dev/null 2>&1 & echo $!'");
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            ran["stdout"].as_str().unwrap().trim().parse::<i32>().unwrap()
        });
        assert!(stead_term::proc::stat(pid).is_some());
        rig.delete(&format!("/api/threads/{thread}")).is(204);
        wait_for("the end of the daemon", || {
            stead_term::proc::stat(pid).is_none_or(|stat| stat.state == b'Z').then_some(())
        });
    }
}

/// The stewards of this server's instances.
fn stewards(rig: &Rig) -> Vec<i32> {
    let data = rig.data().to_string_lossy().into_owned();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_steward = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        words.iter().any(|word| word == "run") && words.iter().any(|word| word.starts_with(&data))
    };
    pids.filter(is_steward).collect()
}
