//! Commands on compute that breaks.

use crate::rig::{Rig, name, out, run, thread, wait_for};
use crate::scene::*;
use async_trait::async_trait;
use rustix::process::Signal;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use stead_model::ids::LeaseId;
use stead_model::lease::{Observed, Seen};
use stead_model::proto::Status;
use stead_server::lease::Force;
use stead_server::provider::fake::{Fake, Shells};
use stead_server::provider::{
    Access, Availability, Blueprint, Capabilities, Created, Effect, Found, Handle, Metrics, OneShot, ProcessShot,
    Provider, ProviderError, Shot, ShotOutcome, Surroundings, Tree, Trouble,
};

/// A provider whose calls to run something break as planned.
#[derive(Debug, Clone)]
struct Flaky {
    name: stead_model::ids::ProviderName,
    fake: Fake,
    dir: std::path::PathBuf,
    plan: Arc<Mutex<VecDeque<Effect>>>,
    sent: Arc<Mutex<u64>>,
}

#[derive(Debug)]
struct FlakyShot {
    flaky: Flaky,
    real: ProcessShot,
}

#[async_trait]
impl OneShot for FlakyShot {
    async fn shoot(&self, shot: &Shot) -> Result<ShotOutcome, ProviderError> {
        *self.flaky.sent.lock().unwrap() += 1;
        let planned = self.flaky.plan.lock().unwrap().pop_front();
        let Some(effect) = planned else { return self.real.shoot(shot).await };
        if effect == Effect::Unknown {
            self.real.shoot(shot).await?;
        }
        let message = "connection reset";
        Err(ProviderError::new(&self.flaky.name, "run a command", Trouble::Unavailable, effect, message))
    }
}

#[async_trait]
impl Provider for Flaky {
    fn name(&self) -> &stead_model::ids::ProviderName {
        &self.name
    }
    fn kind(&self) -> &'static str {
        "flaky"
    }
    fn capabilities(&self) -> Capabilities {
        self.fake.capabilities()
    }
    async fn availability(&self) -> Availability {
        self.fake.availability().await
    }
    async fn create(&self, blueprint: &Blueprint) -> Result<Created, ProviderError> {
        self.fake.create(blueprint).await
    }
    async fn status(&self, handle: &Handle) -> Result<Seen, ProviderError> {
        self.fake.status(handle).await
    }
    async fn pause(&self, handle: &Handle) -> Result<(), ProviderError> {
        self.fake.pause(handle).await
    }
    async fn resume(&self, handle: &Handle) -> Result<(), ProviderError> {
        self.fake.resume(handle).await
    }
    async fn destroy(&self, handle: &Handle) -> Result<(), ProviderError> {
        self.fake.destroy(handle).await
    }
    async fn access(&self, handle: &Handle) -> Result<Access, ProviderError> {
        self.fake.access(handle).await?;
        let real = ProcessShot::new(self.name.clone(), self.dir.join(&handle.workspace));
        Ok(Access::OneShot(Arc::new(FlakyShot { flaky: self.clone(), real })))
    }
    async fn metrics(&self, handle: &Handle) -> Result<Metrics, ProviderError> {
        self.fake.metrics(handle).await
    }
    async fn last_words(&self, handle: &Handle) -> Result<Vec<stead_steward::past::PastShell>, ProviderError> {
        self.fake.last_words(handle).await
    }
    async fn list(&self) -> Result<Vec<Found>, ProviderError> {
        self.fake.list().await
    }
    fn surroundings(&self, workspace: &str) -> Surroundings {
        self.fake.surroundings(workspace)
    }
    fn trees(&self, workspace: &str) -> Vec<Tree> {
        self.fake.trees(workspace)
    }
    async fn forget(&self, lease: &LeaseId, workspace: Option<&str>) -> Result<(), ProviderError> {
        self.fake.forget(lease, workspace).await
    }
}

async fn flaky() -> (Rig, Flaky) {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("flaky");
    let flaky = Flaky {
        name: name("flaky"),
        fake: Fake::new(name("flaky"), Shells::Real(files.clone())),
        dir: files,
        plan: Arc::default(),
        sent: Arc::default(),
    };
    let (rig, _) = Rig::over(dir, "flaky", BTreeMap::new(), vec![Arc::new(flaky.clone())]).await;
    (rig, flaky)
}

impl Flaky {
    fn plan(&self, effects: &[Effect]) {
        *self.sent.lock().unwrap() = 0;
        self.plan.lock().unwrap().extend(effects);
    }

    fn sent(&self) -> u64 {
        *self.sent.lock().unwrap()
    }
}

#[tokio::test]
async fn a_command_that_can_not_have_run_is_sent_once_more() {
    let (rig, flaky) = flaky().await;
    let sandbox = rig.sandbox("t").await;
    flaky.plan(&[Effect::None]);
    assert_eq!(out(&sandbox, "echo ran >>ran; cat ran").await, "ran\n");
    assert_eq!(flaky.sent(), 2);
}

#[tokio::test]
async fn a_command_that_can_not_have_run_twice_in_a_row_is_given_up_as_failed() {
    let (rig, flaky) = flaky().await;
    let sandbox = rig.sandbox("t").await;
    flaky.plan(&[Effect::None, Effect::None]);
    let raised = sandbox.run(execute("c1", "echo ran >>ran")).await.unwrap_err();
    assert_eq!((raised.code(), flaky.sent()), ("provider_error", 2));
    assert_eq!(file(&sandbox, "ran").await, None);
    let row = ended(&rig, "c1").await;
    assert_eq!((row.status, row.ending.unwrap().exit_code), (Status::Failed, None), "it never ran");
}

#[tokio::test]
async fn a_command_that_may_have_run_is_lost_and_not_sent_again() {
    let (rig, flaky) = flaky().await;
    let sandbox = rig.sandbox("t").await;
    flaky.plan(&[Effect::Unknown]);
    let ran = sandbox.run(execute("c1", "echo ran >>ran")).await.unwrap();
    assert_eq!((ran.command.status, ran.exit_code(), flaky.sent()), (Status::Lost, None, 1));
    assert_eq!(file(&sandbox, "ran").await.as_deref(), Some("ran\n"));
    assert_eq!(out(&sandbox, "echo next").await, "next\n");
}

#[tokio::test]
async fn a_command_that_fails_by_itself_is_never_sent_again() {
    let (rig, flaky) = flaky().await;
    let sandbox = rig.sandbox("t").await;
    flaky.plan(&[]);
    for (text, code) in
        [("echo x >>ran; false", 1), ("echo x >>ran; exit 7", 7), ("echo x >>ran; no-such-program", 127)]
    {
        assert_eq!(run(&sandbox, text).await.exit_code(), Some(code), "{text}");
    }
    assert_eq!((flaky.sent(), file(&sandbox, "ran").await.as_deref()), (3, Some("x\nx\nx\n")));
}

on_each_steward! {
    an_instance_killed_under_a_command_makes_it_lost_and_it_is_not_run_again,
    a_steward_killed_under_a_command_changes_nothing_about_it,
    commands_beside_a_killed_instance_run_once_or_are_lost,
    pausing_freezes_a_command_and_resuming_lets_it_go_on,
    a_forced_pause_is_not_undone_by_the_one_who_waits_for_the_command,
    a_command_whose_caller_went_away_is_followed_to_its_end,
    the_same_id_again_is_told_with_what_it_printed,
}

in_containers! {
    an_instance_killed_under_a_command_makes_it_lost_and_it_is_not_run_again,
    a_steward_killed_under_a_command_changes_nothing_about_it,
    commands_beside_a_killed_instance_run_once_or_are_lost,
    pausing_freezes_a_command_and_resuming_lets_it_go_on,
    a_forced_pause_is_not_undone_by_the_one_who_waits_for_the_command,
    a_command_whose_caller_went_away_is_followed_to_its_end,
}

async fn an_instance_killed_under_a_command_makes_it_lost_and_it_is_not_run_again(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "export KEPT=yes").await;
    let text = format!("echo x >>ran; echo said; {}; echo y >>ran", gate("never"));
    let running = start(&sandbox, execute("c1", &text));
    wait_for_file(&sandbox, "ran").await;
    let before = lease_of(&rig, "t").await.instance;
    kill_instance(&sandbox).await;
    let ran = running.await.unwrap().unwrap();
    assert_eq!((ran.command.status, ran.exit_code()), (Status::Lost, None));
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "said\n", "what it had written is kept");
    assert_eq!(out(&sandbox, "cat ran; echo $KEPT").await, "x\nyes\n");
    assert_ne!(lease_of(&rig, "t").await.instance, before);
    let row = ended(&rig, "c1").await;
    assert_eq!((row.status, row.stdout_bytes), (Status::Lost, 5));
    // Asked for again, it is the same record.
    let again = sandbox.run(execute("c1", &text)).await.unwrap();
    assert_eq!(again.command.status, Status::Lost);
    assert_eq!(out(&sandbox, "cat ran").await, "x\n");
}

/// The steward's process, as this machine numbers it: the program that is neither the keeper nor a shell.
async fn steward_pid(sandbox: &stead_server::stead::Sandbox) -> i32 {
    let root = first_process(sandbox).await;
    wait_for("the steward's process", || async {
        let mut queue = vec![root];
        let mut found = None;
        while let Some(pid) = queue.pop() {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|byte| *byte == 0).collect();
            if words.contains(&&b"serve"[..]) || words.contains(&&b"run"[..]) {
                found = Some(pid);
            }
            queue.extend(stead_term::proc::children(pid));
        }
        found
    })
    .await
}

async fn a_steward_killed_under_a_command_changes_nothing_about_it(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    let text = format!("seq 1 30000; : >begun; {}; seq 30001 60000; echo e >&2; (exit 6)", gate("go"));
    let running = start(&sandbox, execute("c1", &text));
    wait_for_file(&sandbox, "begun").await;
    let instance = lease_of(&rig, "t").await.instance;
    for _ in 0..3 {
        let pid = steward_pid(&sandbox).await;
        stead_term::proc::signal(pid, Signal::KILL);
        wait_for("another steward", || async { stead_term::proc::stat(pid).is_none().then_some(()) }).await;
    }
    open_gate(&sandbox, "go").await;
    let ran = running.await.unwrap().unwrap();
    let numbers: Vec<String> = (1..=60000).map(|number| number.to_string()).collect();
    let want = numbers.join("\n") + "\n";
    assert_eq!((ran.command.status, ran.exit_code(), &*ran.stderr), (Status::Exited, Some(6), &b"e\n"[..]));
    assert!(ran.stdout == want.as_bytes(), "{} bytes instead of {}", ran.stdout.len(), want.len());
    assert_eq!(lease_of(&rig, "t").await.instance, instance, "it is the same instance");
}

async fn commands_beside_a_killed_instance_run_once_or_are_lost(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    let mut outcomes = Vec::new();
    for round in 0..3 {
        let mut running = Vec::new();
        for number in 0..6 {
            let id = format!("c{round}-{number}");
            running.push((id.clone(), start(&sandbox, execute(&id, &format!("echo {id} >>ran")))));
        }
        wait_for("the first of them", || async {
            file(&sandbox, "ran").await.filter(|ran| ran.contains(&format!("c{round}-")))
        })
        .await;
        kill_instance(&sandbox).await;
        for (id, handle) in running {
            outcomes.push((id, handle.await.unwrap().unwrap().command.status));
        }
    }
    let ran = file(&sandbox, "ran").await.unwrap();
    for (id, status) in outcomes {
        let times = ran.lines().filter(|line| *line == id).count();
        match status {
            Status::Exited => assert_eq!(times, 1, "{id} has ended"),
            Status::Lost => assert!(times <= 1, "{id} was lost and ran {times} times"),
            Status::Failed => assert_eq!(times, 0, "{id} never ran"),
            Status::Queued | Status::Running | Status::TimedOut | Status::Cancelled => {
                panic!("{id} became {status:?}")
            }
        }
    }
}

/// A process beside it, which nobody pauses, tells how much time passes.
async fn pausing_freezes_a_command_and_resuming_lets_it_go_on(rig: Rig, provider: &str) {
    let sandbox = rig.sandbox("t").await;
    let ticks = format!("until [ -e go ]; do printf x >>ticks; sleep 0.01; done; echo {}", "through");
    let running = start(&sandbox, execute("c1", &ticks));
    wait_for("some ticks", || async { file(&sandbox, "ticks").await.filter(|ticks| ticks.len() > 3) }).await;
    assert_eq!(rig.stead.pause(&thread("t"), Force::No).await.unwrap_err().code(), "conflict", "it runs");
    let lease = rig.stead.pause(&thread("t"), Force::Yes).await.unwrap().lease;
    assert_eq!(lease.observed, Observed::Paused);
    let frozen = file(&sandbox, "ticks").await.unwrap();
    let meter = tempfile::NamedTempFile::new().unwrap();
    let loop_text = format!("while :; do printf x >>{}; sleep 0.01; done", meter.path().display());
    let mut beside = std::process::Command::new("bash").args(["-c", &loop_text]).spawn().unwrap();
    wait_for("time to pass", || async { (meter.path().metadata().unwrap().len() > 30).then_some(()) }).await;
    beside.kill().unwrap();
    beside.wait().unwrap();
    assert_eq!(file(&sandbox, "ticks").await.unwrap(), frozen, "while another ticked thirty times");
    assert_eq!(truth(&rig, provider).await, [(lease.instance.clone().unwrap(), Seen::Paused)]);
    rig.stead.resume(&thread("t")).await.unwrap();
    wait_for("more ticks", || async { file(&sandbox, "ticks").await.filter(|ticks| ticks.len() > frozen.len()) }).await;
    open_gate(&sandbox, "go").await;
    let ran = running.await.unwrap().unwrap();
    assert_eq!((ran.exit_code(), &*ran.stdout), (Some(0), &b"through\n"[..]));
}

/// Whoever waits hears nothing for as long as it sleeps; that is no reason to wake it. Nor is a look at the session.
async fn a_forced_pause_is_not_undone_by_the_one_who_waits_for_the_command(rig: Rig, provider: &str) {
    let sandbox = rig.sandbox("t").await;
    let running = start(&sandbox, execute("c1", &format!(": >begun; {}; echo woken", gate("go"))));
    wait_for_file(&sandbox, "begun").await;
    rig.stead.pause(&thread("t"), Force::Yes).await.unwrap();
    // Longer than a steward may take to answer anything.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(12);
    wait_for("twelve seconds", || async { (std::time::Instant::now() > until).then_some(()) }).await;
    assert_eq!(truth(&rig, provider).await.into_iter().map(|(_, seen)| seen).collect::<Vec<_>>(), [Seen::Paused]);
    assert!(!running.is_finished());
    open_gate(&sandbox, "go").await;
    rig.stead.resume(&thread("t")).await.unwrap();
    assert_eq!(running.await.unwrap().unwrap().stdout, b"woken\n");
}

async fn a_command_whose_caller_went_away_is_followed_to_its_end(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    let running = start(&sandbox, execute("c1", &format!(": >begun; {}; echo end; (exit 3)", gate("go"))));
    wait_for_file(&sandbox, "begun").await;
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    open_gate(&sandbox, "go").await;
    let row = ended(&rig, "c1").await;
    assert_eq!((row.status, row.ending.unwrap().exit_code, row.stdout_bytes), (Status::Exited, Some(3), 4));
}

async fn the_same_id_again_is_told_with_what_it_printed(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    let first = sandbox.run(execute("c1", "echo out; echo err >&2")).await.unwrap();
    let second = sandbox.run(execute("c1", "echo out; echo err >&2")).await.unwrap();
    assert_eq!((second.stdout, second.stderr), (first.stdout, first.stderr));
}
