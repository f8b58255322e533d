//! Threads on somebody else's machines, through the whole server: the clouds' test servers beside it, or with keys the
//! clouds themselves.

mod live;

use crate::rig::{Rig, wait_for};
use serde_json::{Value, json};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use stead_testclouds::agentbay::{AgentBay, KEY as AGENTBAY_KEY};
use stead_testclouds::daytona::{API_KEY as DAYTONA_KEY, Daytona};
use stead_testclouds::e2b::{E2b, KEY as E2B_KEY};
use stead_testclouds::faults::Fault;
use stead_testclouds::machine::Machine;

static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());

/// All three clouds, and a server that is configured for them.
struct Sky {
    rig: Rig,
    e2b: E2b,
    daytona: Daytona,
    agentbay: AgentBay,
}

impl Sky {
    /// None, with a word about it, where sandboxes can't be made here or there is no steward to put into them.
    fn open() -> Option<Self> {
        let steward = std::env::var("STEAD_STATIC_STEWARD").ok().filter(|path| std::path::Path::new(path).is_file());
        let Some(steward) = steward.filter(|_| Machine::is_possible()) else {
            println!("SKIPPED: no namespaces here, or no STEAD_STATIC_STEWARD");
            return None;
        };
        let (e2b, daytona, agentbay) =
            RUNTIME.block_on(async { (E2b::start().await, Daytona::start().await, AgentBay::start().await) });
        let docker = std::env::var("STEAD_TEST_DOCKER").ok();
        let containers = docker.as_ref().map_or(String::new(), |socket| {
            format!(
                "[provider.docker]\nkind = 'docker'\nimage = 'stead/test-host'\nnetwork = 'none'\nsocket = '{socket}'\n"
            )
        });
        let config = format!(
            "{containers}[provider.e2b]\nkind = 'e2b'\n[provider.daytona]\nkind = 'daytona'\n[provider.agentbay]\nkind = 'agentbay'\n"
        );
        let rig = Rig::with_all(
            &config,
            &[],
            &[
                ("STEAD_STATIC_STEWARD", &steward),
                ("E2B_API_KEY", E2B_KEY),
                ("E2B_API_URL", &e2b.url),
                ("E2B_SANDBOX_URL", &e2b.url),
                ("DAYTONA_API_KEY", DAYTONA_KEY),
                ("DAYTONA_API_URL", &daytona.url),
                ("AGENTBAY_API_KEY", AGENTBAY_KEY),
                ("AGENTBAY_ENDPOINT", &agentbay.url),
            ],
        );
        Some(Self { rig, e2b, daytona, agentbay })
    }

    fn thread(&self, id: &str, provider: &str) {
        self.rig.post("/api/threads", &json!({ "id": id, "provider": provider })).is(201);
    }

    #[track_caller]
    fn out(&self, thread: &str, command: &str) -> String {
        let ran = self.rig.exec(thread, command);
        assert_eq!((&ran["status"], &ran["warnings"]), (&json!("exited"), &json!([])), "{ran}");
        ran["stdout"].as_str().unwrap().to_owned()
    }

    /// What the cloud calls the sandbox of a thread.
    fn sandbox(&self, thread: &str) -> String {
        let lease = self.rig.get(&format!("/api/threads/{thread}/lease")).is(200);
        lease["instance"]["metadata"]["id"].as_str().unwrap_or_else(|| panic!("{lease}")).to_owned()
    }
}

impl Drop for Sky {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let said = [self.e2b.violations(), self.daytona.violations(), self.agentbay.violations()].concat();
            assert!(said.is_empty(), "{said:?}");
        }
        let _inside = RUNTIME.enter();
    }
}

const CLOUDS: [&str; 3] = ["e2b", "daytona", "agentbay"];

#[test]
fn a_thread_on_a_cloud_keeps_its_state_and_its_output() {
    let Some(sky) = Sky::open() else { return };
    for cloud in CLOUDS {
        sky.thread(cloud, cloud);
        sky.out(cloud, "cd /usr; export A=1; f() { echo f$A; }; echo w > /workspace/w");
        assert_eq!(sky.out(cloud, "pwd; f; cat /workspace/w"), "/usr\nf1\nw\n", "{cloud}");
        let ran = sky.rig.exec(cloud, "echo out; echo err >&2; exit 3");
        let told = (&ran["exit_code"], &ran["stdout"], &ran["stderr"], &ran["shell_exited"]);
        assert_eq!(told, (&json!(3), &json!("out\n"), &json!("err\n"), &json!(true)), "{cloud}");
        assert_eq!(sky.out(cloud, "pwd; f"), "/usr\nf1\n", "{cloud}");
        let bytes = sky.rig.exec(cloud, "head -c 300000 /dev/zero | tr '\\0' x; printf '\\0\\377'");
        assert_eq!(bytes["stdout_bytes"], 300_002, "{cloud}");
    }
}

#[test]
fn files_of_a_sandbox_that_is_somewhere_else_are_served_and_changed() {
    let Some(sky) = Sky::open() else { return };
    for cloud in CLOUDS {
        sky.thread(cloud, cloud);
        sky.out(cloud, "mkdir d; echo inside > d/f");
        let at = |path: &str| format!("/api/threads/{cloud}/files?path={path}");
        assert_eq!(sky.rig.get(&at("d/f")).body, b"inside\n", "{cloud}");
        assert_eq!(sky.rig.call("PUT", &at("d/new"), &[], b"outside\n").status, 201);
        assert_eq!(sky.out(cloud, "cat d/new; rm d/f"), "outside\n", "{cloud}");
        sky.rig.get(&at("d/f")).fails(404, "not_found");
        assert_eq!(sky.rig.call("DELETE", &at("d/new"), &[], b"").status, 204);
        assert_eq!(sky.out(cloud, "ls d"), "", "{cloud}");
        sky.rig.get(&at("/etc/passwd")).fails(400, "invalid_path");
    }
}

#[test]
fn a_lost_sandbox_leaves_output_state_and_files_for_the_next() {
    let Some(sky) = Sky::open() else { return };
    for cloud in CLOUDS {
        sky.thread(cloud, cloud);
        let ran = sky.rig.exec(cloud, "echo said; cd /usr; export A=1; echo w > /workspace/w");
        assert_eq!(sky.rig.get(&format!("/api/threads/{cloud}/files?path=w")).body, b"w\n");
        let id = sky.sandbox(cloud);
        match cloud {
            "e2b" => sky.e2b.lose(&id),
            "daytona" => sky.daytona.lose(&id),
            _ => sky.agentbay.lose(&id),
        }
        let output = format!("/api/commands/{}/output/stdout", ran["id"].as_str().unwrap());
        assert_eq!(sky.rig.get(&output).body, b"said\n", "{cloud}");
        assert_eq!(sky.out(cloud, "pwd; echo $A; cat /workspace/w"), "/usr\n1\nw\n", "{cloud}");
        assert_ne!(sky.sandbox(cloud), id);
        assert_eq!(sky.rig.get(&output).body, b"said\n", "{cloud}");
    }
}

#[test]
fn a_sandbox_in_which_the_steward_or_everything_was_killed_goes_on_with_the_next_command() {
    let Some(sky) = Sky::open() else { return };
    for cloud in CLOUDS {
        let pids = || match cloud {
            "e2b" => sky.e2b.pids(),
            "daytona" => sky.daytona.pids(),
            _ => sky.agentbay.pids(),
        };
        let is_steward = |pid: &i32| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.starts_with(b"/var/tmp/.stead/steward\0")
        };
        sky.thread(cloud, cloud);
        sky.out(cloud, "cd /usr; export A=1; echo w > /workspace/w");
        assert_eq!(sky.rig.get(&format!("/api/threads/{cloud}/files?path=w")).body, b"w\n");
        let id = sky.sandbox(cloud);
        // All at once: they start each other again.
        kill(&pids().into_iter().filter(is_steward).collect::<Vec<_>>());
        assert_eq!(sky.out(cloud, "pwd; echo $A; cat /workspace/w"), "/usr\n1\nw\n", "{cloud}");
        assert_eq!(sky.sandbox(cloud), id, "{cloud}: it is the same sandbox");
        kill(&pids());
        assert_eq!(sky.out(cloud, "pwd; echo $A; cat /workspace/w"), "/usr\n1\nw\n", "{cloud}");
    }
}

#[test]
fn a_sandbox_that_its_cloud_says_has_failed_is_followed_by_another() {
    let Some(sky) = Sky::open() else { return };
    sky.thread("failed", "daytona");
    sky.out("failed", "cd /usr; export A=1; echo w > /workspace/w");
    assert_eq!(sky.rig.get("/api/threads/failed/files?path=w").body, b"w\n");
    let id = sky.sandbox("failed");
    sky.daytona.fail(&id, "its disk broke");
    assert_eq!(sky.out("failed", "pwd; echo $A; cat /workspace/w"), "/usr\n1\nw\n");
    assert_ne!(sky.sandbox("failed"), id);
    assert_eq!(sky.daytona.ids(), [sky.sandbox("failed")], "what failed is not left there");
}

/// Kills all of these, and returns when they are dead.
fn kill(pids: &[i32]) {
    let send = |signal: rustix::process::Signal| {
        for pid in pids.iter().filter_map(|pid| rustix::process::Pid::from_raw(*pid)) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    };
    let all_are = |states: &[char]| {
        pids.iter().all(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(states))
        })
    };
    send(rustix::process::Signal::STOP);
    wait_for("end of their moves", || all_are(&['T', 'Z', 'X']).then_some(()));
    send(rustix::process::Signal::KILL);
    wait_for("end of them all", || {
        stead_testclouds::machine::release_doors();
        all_are(&['Z', 'X']).then_some(())
    });
}

#[test]
fn a_command_on_a_cloud_outlives_the_server() {
    let Some(mut sky) = Sky::open() else { return };
    for cloud in CLOUDS {
        sky.thread(cloud, cloud);
        let slow = "echo one; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo two";
        let body = json!({ "command": slow, "id": format!("slow-{cloud}"), "background": true });
        sky.rig.post(&format!("/api/threads/{cloud}/exec"), &body).is(202);
    }
    sky.rig.kill();
    sky.rig.start();
    for cloud in CLOUDS {
        sky.rig.post(&format!("/api/threads/{cloud}/terminals"), &json!({ "name": "other" })).is(201);
        let body = json!({ "command": "touch /tmp/go", "terminal": "other" });
        let touched = sky.rig.post(&format!("/api/threads/{cloud}/exec"), &body).is(200);
        assert_eq!(touched["exit_code"], 0, "{cloud} {touched}");
        let ended = wait_for("its end", || {
            let command = sky.rig.get(&format!("/api/commands/slow-{cloud}")).is(200);
            (command["status"] != "running" && command["status"] != "queued").then_some(command)
        });
        assert_eq!((&ended["status"], &ended["exit_code"]), (&json!("exited"), &json!(0)), "{cloud}");
        assert_eq!(sky.rig.get(&format!("/api/commands/slow-{cloud}/output/stdout")).body, b"one\ntwo\n", "{cloud}");
    }
}

#[test]
fn a_paused_sandbox_shows_its_files_and_output_and_wakes_with_its_state() {
    let Some(sky) = Sky::open() else { return };
    for cloud in ["e2b", "daytona"] {
        sky.thread(cloud, cloud);
        let ran = sky.rig.exec(cloud, "cd /usr; export A=1; echo w > /workspace/w; echo said");
        let lease = sky.rig.post(&format!("/api/threads/{cloud}/pause"), &json!({})).is(200);
        assert_eq!(lease["observed_state"], "paused", "{cloud}");
        assert_eq!(sky.rig.get(&format!("/api/threads/{cloud}/files?path=w")).body, b"w\n", "{cloud}");
        let output = format!("/api/commands/{}/output/stdout", ran["id"].as_str().unwrap());
        assert_eq!(sky.rig.get(&output).body, b"said\n", "{cloud}");
        let put = sky.rig.call("PUT", &format!("/api/threads/{cloud}/files?path=asleep"), &[], b"new\n");
        assert_eq!(put.status, 201);
        let still = sky.rig.get(&format!("/api/threads/{cloud}/lease")).is(200);
        assert_eq!(still["observed_state"], "paused", "nothing was woken: {cloud}");
        assert_eq!(sky.out(cloud, "pwd; echo $A; cat /workspace/asleep"), "/usr\n1\nnew\n", "{cloud}");
    }
    sky.thread("agentbay", "agentbay");
    sky.out("agentbay", "true");
    sky.rig.post("/api/threads/agentbay/pause", &json!({})).fails(501, "unsupported");
}

#[test]
fn a_forced_pause_of_a_busy_thread_lasts_until_it_is_resumed_whatever_becomes_of_its_connections() {
    let Some(sky) = Sky::open() else { return };
    let mut providers = vec!["e2b", "daytona", "namespace", "local"];
    if std::env::var_os("STEAD_TEST_DOCKER").is_some() {
        providers.push("docker");
    } else {
        println!("SKIPPED: no engine in STEAD_TEST_DOCKER, so not on docker");
    }
    for provider in providers {
        let rig = &sky.rig;
        let (thread, command) = (format!("t-{provider}"), format!("busy-{provider}"));
        sky.thread(&thread, provider);
        let ended = std::thread::scope(|scope| {
            let body = json!({
                "command": "echo one; echo > begun; while [ ! -e go ]; do sleep 0.05; done; echo two",
                "id": command,
            });
            // Its caller waits for the answer all the time.
            let waits = scope.spawn({
                let path = format!("/api/threads/{thread}/exec");
                move || rig.post(&path, &body)
            });
            wait_for("the command", || {
                let seen = rig.get(&format!("/api/commands/{command}"));
                (seen.status == 200 && seen.json()["stdout_bytes"] == 4).then_some(())
            });
            let paused = rig.post(&format!("/api/threads/{thread}/pause"), &json!({ "force": true })).is(200);
            assert_eq!(paused["observed_state"], "paused", "{provider}");
            // Whoever would wake it does so within this time.
            let until = Instant::now() + Duration::from_secs(3);
            while Instant::now() < until {
                let lease = rig.get(&format!("/api/threads/{thread}/lease")).is(200);
                let states = (&lease["desired_state"], &lease["observed_state"]);
                assert_eq!(states, (&json!("paused"), &json!("paused")), "{provider}: {lease}");
                assert_eq!(rig.get(&format!("/api/commands/{command}")).is(200)["status"], "running", "{provider}");
            }
            rig.post(&format!("/api/threads/{thread}/resume"), &json!({})).is(200);
            assert!(matches!(
                rig.call("PUT", &format!("/api/threads/{thread}/files?path=go"), &[], b"").status,
                201 | 204
            ));
            waits.join().unwrap().is(200)
        });
        let told = (&ended["status"], &ended["exit_code"], &ended["stdout"]);
        // There a pause keeps the disk, and ends processes.
        let lost = (&json!("lost"), &Value::Null, &json!("one\n"));
        let went_on = (&json!("exited"), &json!(0), &json!("one\ntwo\n"));
        assert_eq!(told, if provider == "daytona" { lost } else { went_on }, "{provider}: {ended}");
        let lease = rig.get(&format!("/api/threads/{thread}/lease")).is(200);
        assert_eq!(lease["observed_state"], "running", "{provider}");
    }
}

#[test]
fn a_thread_moves_through_providers_and_back_with_state_and_files() {
    let Some(sky) = Sky::open() else { return };
    sky.thread("t", "local");
    sky.out("t", "echo 0 > steps; mkdir d; cd d; export A=0; f() { echo f$A; }; echo h > ~/h");
    let mut stations = vec!["namespace", "e2b", "daytona", "agentbay", "local"];
    if std::env::var_os("STEAD_TEST_DOCKER").is_some() {
        stations.insert(1, "docker");
    } else {
        println!("SKIPPED: no engine in STEAD_TEST_DOCKER, so not through docker");
    }
    for (number, station) in stations.iter().enumerate() {
        let moved = sky.rig.post("/api/threads/t/move", &json!({ "provider": station }));
        let moved = moved.is(200);
        assert_eq!(moved["provider"], json!(station), "{moved}");
        let seen = sky.out("t", "basename $PWD; f; tail -n 1 ../steps; cat ~/h");
        assert_eq!(seen, format!("d\nf{number}\n{number}\nh\n"), "at {station}");
        let next = number + 1;
        sky.out("t", &format!("A={next}; echo {next} >> ../steps"));
    }
    let steps = (0..=stations.len()).fold(String::new(), |steps, step| steps + &format!("{step}\n"));
    assert_eq!(sky.out("t", "cat ../steps"), steps);
    let left: Vec<Value> = sky.rig.get("/api/orphans").is(200)["items"].as_array().unwrap().clone();
    assert_eq!(left, Vec::<Value>::new());
}

#[test]
fn trouble_with_a_cloud_is_told_and_runs_nothing_twice() {
    let Some(sky) = Sky::open() else { return };
    sky.thread("a", "e2b");
    // Made, and the answer lost: it is found by its labels, and there is one.
    sky.e2b.faults.plan("POST /sandboxes", Fault::AfterSuccess(500));
    assert_eq!(sky.out("a", "echo 1"), "1\n");
    assert_eq!(sky.e2b.sandboxes().len(), 1);
    assert!(sky.e2b.faults.are_over());
    sky.thread("b", "e2b");
    for _ in 0..20 {
        sky.e2b.faults.plan("POST /sandboxes", Fault::Refuse(401));
    }
    let refused = sky.rig.post("/api/threads/b/exec", &json!({ "command": "echo never" }));
    assert!(refused.status >= 500 || refused.json()["status"] == "failed", "{}", refused.json());
    let lease = sky.rig.get("/api/threads/b/lease").is(200);
    assert!(lease["last_error"].is_string(), "{lease}");
}

#[test]
fn a_cloud_without_a_key_is_said_to_be_missing_it() {
    let rig = Rig::with_config("[provider.sky]\nkind = 'e2b'\n[provider.sea]\nkind = 'daytona'\n", &[]);
    let providers = rig.get("/api/providers").is(200);
    let sky = providers["items"].as_array().unwrap().iter().find(|provider| provider["name"] == "sky").unwrap();
    assert_eq!(sky["available"], false);
    assert!(sky["reason"].as_str().unwrap_or_default().contains("E2B_API_KEY"), "{sky}");
    rig.post("/api/threads", &json!({ "id": "t", "provider": "sky" })).is(201);
    let refused = rig.post("/api/threads/t/exec", &json!({ "command": "true" }));
    assert!(refused.status >= 400, "{}", refused.json());
    assert!(refused.json().to_string().contains("E2B_API_KEY"), "{}", refused.json());
}
