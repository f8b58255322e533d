//! A server that is killed (-9) and another one over what it left. The server is a real process: this test program again,
//! told by its environment to play one.

use crate::rig::{MovedClock, Rig, name, out, start as start_server, thread, wait_for};
use crate::scene::*;
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stead_model::lease::{Observed, Seen};
use stead_model::proto::Status;
use stead_model::session::CloseReason;
use stead_server::lease::Force;
use stead_server::provider::fake::{Fake, Shells};
use stead_server::stead::{Execute, Recovered, Where};
use tempfile::TempDir;

/// Directory, provider and play of the server to be killed, separated by line ends.
const PART: &str = "STEAD_SCENARIO_PART";

pub(super) fn play(dir: &Path, provider: &str, play: &str) -> Child {
    let test = "behaviour::restart::the_server_that_is_killed";
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test, "--nocapture"])
        .env(PART, format!("{}\n{provider}\n{play}", dir.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

pub(super) fn kill(mut child: Child) {
    stead_term::proc::signal(i32::try_from(child.id()).unwrap(), Signal::KILL);
    child.wait().unwrap();
}

#[tokio::test]
#[ignore = "started by the tests that kill it"]
async fn the_server_that_is_killed() {
    let part = std::env::var(PART).expect("the part to play");
    let [dir, provider, play] = part.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let dir = Path::new(dir);
    let fake = Fake::new(name("fake"), Shells::Real(dir.join("fake")));
    let toy = Fake::new(name("toy"), Shells::Toy);
    let clock = Arc::new(MovedClock::default());
    let (stead, _) = start_server(dir, &clock, (&fake, &toy), &[], &name(provider), &BTreeMap::new()).await;
    let sandbox = stead.get_sandbox(Where::thread(thread("t"))).await.unwrap();
    if play == "births" {
        for number in 1.. {
            acknowledge(dir, number);
            stead.destroy(&thread("t"), Force::No).await.unwrap();
            stead.get_sandbox(Where::thread(thread("t"))).await.unwrap();
        }
    }
    if play == "forks" {
        super::forks::fork_for_ever(dir, &stead, &sandbox).await;
    }
    if play == "moves" {
        super::moves::move_for_ever(dir, &stead, &sandbox).await;
    }
    if let Some(first) = play.strip_prefix("churn ") {
        for number in first.parse::<u64>().unwrap().. {
            let text = format!("echo {number} >>ran; echo out {number}; export N={number}");
            sandbox.run(execute(&format!("c{number}"), &text)).await.unwrap();
            acknowledge(dir, number);
            match number % 4 {
                0 => drop(stead.pause(&thread("t"), Force::No).await.unwrap()),
                1 => drop(stead.close_session(&thread("t"), CloseReason::Closed).await.unwrap()),
                2 => drop(stead.destroy(&thread("t"), Force::No).await.unwrap()),
                _ => {}
            }
        }
    }
    sandbox.run(execute("before", "echo before; export KEPT=yes")).await.unwrap();
    let ran = sandbox.run(execute("long", play)).await;
    panic!("it was to be killed, and heard {ran:?}");
}

/// How far the server had come that was killed.
pub(super) fn acknowledged(dir: &Path) -> Option<u64> {
    std::fs::read_to_string(dir.join("acknowledged")).ok()?.parse().ok()
}

/// Tells the test that this one was answered; whole, whenever we are killed.
pub(super) fn acknowledge(dir: &Path, number: u64) {
    std::fs::write(dir.join("acknowledging"), number.to_string()).unwrap();
    std::fs::rename(dir.join("acknowledging"), dir.join("acknowledged")).unwrap();
}

/// A server is killed while `text` runs, when `begun` is there; then `meanwhile`, then another server.
async fn killed_during(provider: &str, text: &str, meanwhile: impl AsyncFnOnce(&Path)) -> Option<(Rig, Recovered)> {
    if !is_here(provider).await {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let child = play(dir.path(), provider, text);
    let begun = wait_for("the command to begin", || async { find(&dir, provider, "begun") }).await;
    kill(child);
    meanwhile(begun.parent().unwrap()).await;
    Some(Rig::over(dir, provider, BTreeMap::new(), Vec::new()).await)
}

/// A file of the only workspace there is.
fn find(dir: &TempDir, provider: &str, file: &str) -> Option<std::path::PathBuf> {
    let workspaces = std::fs::read_dir(dir.path().join(provider).join("workspaces")).ok()?;
    workspaces.flatten().map(|entry| entry.path().join("files").join(file)).find(|path| path.exists())
}

fn ids(commands: &[stead_model::ids::CommandId]) -> Vec<&str> {
    commands.iter().map(stead_model::ids::CommandId::as_str).collect()
}

/// The providers whose stewards outlive a server.
macro_rules! on_each_survivor {
    ($($(#[$note:meta])* $test:ident),* $(,)?) => {
        mod local {
            $(#[tokio::test]
            $(#[$note])*
            async fn $test() {
                super::$test("local").await;
            })*
        }
        mod namespace {
            $(#[tokio::test]
            $(#[$note])*
            async fn $test() {
                super::$test("namespace").await;
            })*
        }
        mod docker {
            $(#[tokio::test]
            $(#[$note])*
            async fn $test() {
                super::$test("docker").await;
            })*
        }
    };
}

/// Whether there is such a provider here; if not the test says so and is over.
async fn is_here(provider: &str) -> bool {
    match provider {
        "namespace" => isolated().await.is_some(),
        "docker" => contained().await.is_some(),
        _ => true,
    }
}

/// Containers take ten times as long to be made as processes: of what is done again and again, a fifth of the rounds.
fn rounds(provider: &str, usual: u32) -> u32 {
    if provider == "docker" { usual.div_ceil(5) } else { usual }
}

on_each_survivor! {
    a_running_command_is_followed_to_its_end,
    a_command_that_ended_meanwhile_is_noted,
    an_instance_killed_meanwhile_makes_its_command_lost_with_what_the_journal_has,
    a_server_killed_again_and_again_loses_and_repeats_nothing,
    a_command_asleep_at_the_start_is_followed_after_it_is_woken,
    a_command_that_outlived_its_server_can_be_heard_from_its_first_byte,
    a_server_killed_while_an_instance_is_made_leaves_a_thread_that_works,
}

const LONG: &str = "echo ran >>ran; seq 1 20000; : >begun; until [ -e go ]; do sleep 0.01; done; seq 20001 40000; \
                    echo err >&2; export DURING=1; (exit 9)";

async fn a_running_command_is_followed_to_its_end(provider: &str) {
    let Some((rig, recovered)) = killed_during(provider, LONG, async |_| ()).await else { return };
    assert_eq!((ids(&recovered.running), ids(&recovered.lost)), (vec!["long"], vec![]), "{recovered:?}");
    assert_eq!((recovered.kept_sessions.len(), recovered.closed_sessions.len()), (1, 0));
    assert_eq!(command_row(&rig, "before").await.unwrap().status, Status::Exited);
    let sandbox = rig.sandbox("t").await;
    open_gate(&sandbox, "go").await;
    let row = ended(&rig, "long").await;
    assert_eq!((row.status, row.ending.unwrap().exit_code), (Status::Exited, Some(9)));
    let bytes = (1..=40000).map(|number: u32| number.to_string().len() as u64 + 1).sum::<u64>();
    assert_eq!((row.stdout_bytes, row.stderr_bytes), (bytes, 4), "every byte");
    assert_eq!(out(&sandbox, "cat ran; echo $KEPT $DURING").await, "ran\nyes 1\n");
    assert_eq!(count(&rig, "SELECT count(*) FROM sessions").await, 1, "in the session it began in");
}

async fn a_command_that_outlived_its_server_can_be_heard_from_its_first_byte(provider: &str) {
    let Some((rig, _)) = killed_during(provider, LONG, async |_| ()).await else { return };
    let sandbox = rig.sandbox("t").await;
    // Asked for again by its id: heard, not run.
    let heard = start(&sandbox, execute("long", LONG));
    open_gate(&sandbox, "go").await;
    let heard = heard.await.unwrap().unwrap();
    let numbers: Vec<String> = (1..=40000).map(|number| number.to_string()).collect();
    let want = numbers.join("\n") + "\n";
    assert!(heard.stdout == want.as_bytes(), "{} bytes instead of {}", heard.stdout.len(), want.len());
    assert_eq!((heard.exit_code(), &*heard.stderr), (Some(9), &b"err\n"[..]));
    assert_eq!(file(&sandbox, "ran").await.as_deref(), Some("ran\n"));
}

async fn a_command_that_ended_meanwhile_is_noted(provider: &str) {
    let text = format!("{LONG} || {{ : >end; (exit 9); }}");
    let end = async |files: &Path| {
        std::fs::write(files.join("go"), "").unwrap();
        wait_for("the end of it", || async { files.join("end").exists().then_some(()) }).await;
    };
    let Some((rig, recovered)) = killed_during(provider, &text, end).await else { return };
    // Between its last word and its report it may be found on its way.
    assert!(recovered.lost.is_empty(), "{recovered:?}");
    let row = ended(&rig, "long").await;
    assert_eq!((row.status, row.ending.unwrap().exit_code), (Status::Exited, Some(9)));
    assert_eq!(out(&rig.sandbox("t").await, "cat ran; echo $DURING").await, "ran\n1\n");
}

async fn an_instance_killed_meanwhile_makes_its_command_lost_with_what_the_journal_has(provider: &str) {
    let death = async |files: &Path| {
        let leases = files.ancestors().nth(3).unwrap().join("leases");
        let lease = std::fs::read_dir(leases).unwrap().flatten().next().unwrap().path();
        let text = std::fs::read_to_string(lease.join("instance")).unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        if provider == "docker" {
            ask_engine(&format!("POST /containers/stead-{}/kill", words[0]));
            return;
        }
        let (pid, start_time) = (words[1].parse().unwrap(), words[2].parse().unwrap());
        let kill = move || stead_term::tree::Tree::of(pid, start_time).kill(Duration::from_secs(20));
        tokio::task::spawn_blocking(kill).await.unwrap().unwrap();
    };
    let Some((rig, recovered)) = killed_during(provider, LONG, death).await else { return };
    assert_eq!((ids(&recovered.running), ids(&recovered.lost)), (vec![], vec!["long"]), "{recovered:?}");
    assert_eq!((recovered.kept_sessions.len(), recovered.closed_sessions.len()), (0, 1));
    let closed: Vec<_> = sessions(&rig).await.into_iter().map(|session| session.ended.map(|(_, why)| why)).collect();
    assert_eq!(closed, [Some(CloseReason::ServerRestart)]);
    let row = command_row(&rig, "long").await.unwrap();
    let bytes = (1..=20000).map(|number: u32| number.to_string().len() as u64 + 1).sum::<u64>();
    assert_eq!((row.status, row.ending.unwrap().exit_code, row.stdout_bytes), (Status::Lost, None, bytes));
    let sandbox = rig.sandbox("t").await;
    assert_eq!(out(&sandbox, "cat ran; echo $KEPT").await, "ran\nyes\n", "a new instance with the old state");
    let again = sandbox.run(execute("long", LONG)).await.unwrap();
    assert_eq!(again.command.status, Status::Lost, "and it is not run again");
    assert_eq!(file(&sandbox, "ran").await.as_deref(), Some("ran\n"));
}

async fn a_command_asleep_at_the_start_is_followed_after_it_is_woken(provider: &str) {
    if !is_here(provider).await {
        return;
    }
    let mut rig = Rig::new(provider).await;
    let sandbox = rig.sandbox("t").await;
    let running = start(&sandbox, execute("c1", &format!(": >begun; {}; echo end; (exit 2)", gate("go"))));
    wait_for_file(&sandbox, "begun").await;
    rig.stead.pause(&thread("t"), Force::Yes).await.unwrap();
    // The server before ends without a word.
    running.abort();
    let recovered = rig.restart().await;
    assert_eq!((ids(&recovered.running), recovered.kept_sessions.len()), (vec!["c1"], 1), "{recovered:?}");
    assert_eq!(truth(&rig, provider).await.into_iter().map(|(_, seen)| seen).collect::<Vec<_>>(), [Seen::Paused]);
    let sandbox = rig.sandbox("t").await;
    open_gate(&sandbox, "go").await;
    let row = ended(&rig, "c1").await;
    assert_eq!((row.status, row.ending.unwrap().exit_code), (Status::Exited, Some(2)));
}

/// Numbers that look random and are the same each time.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Ten servers one after the other, each killed at some moment of running, pausing, closing, destroying and making.
async fn a_server_killed_again_and_again_loses_and_repeats_nothing(provider: &str) {
    if !is_here(provider).await {
        return;
    }
    let mut dice = Dice(41);
    let dir = tempfile::tempdir().unwrap();
    let mut next = 1;
    let mut answered = BTreeSet::new();
    for round in 0..rounds(provider, 10) {
        let child = play(dir.path(), provider, &format!("churn {next}"));
        wait_for("an answer of this server", || async {
            let text = std::fs::read_to_string(dir.path().join("acknowledged")).ok()?;
            text.parse::<u64>().ok().filter(|number| *number >= next)
        })
        .await;
        let moment = Instant::now() + Duration::from_millis(dice.below(700));
        wait_for("the moment", || async { (Instant::now() >= moment).then_some(()) }).await;
        kill(child);
        let acknowledged: u64 = std::fs::read_to_string(dir.path().join("acknowledged")).unwrap().parse().unwrap();
        answered.extend(next..=acknowledged);
        // Another server looks at what is left, settles it, and ends.
        let fake = Fake::new(name("fake"), Shells::Real(dir.path().join("fake")));
        let toy = Fake::new(name("toy"), Shells::Toy);
        let clock = Arc::new(MovedClock::default());
        let (stead, recovered) =
            start_server(dir.path(), &clock, (&fake, &toy), &[], &name(provider), &BTreeMap::new()).await;
        let case = format!("{provider}, round {round}, {acknowledged} acknowledged: {recovered:?}");
        let sandbox =
            stead.get_sandbox(Where::thread(thread("t"))).await.unwrap_or_else(|error| panic!("{case}: {error}"));
        let told =
            sandbox.run(Execute::new("cat ran; echo N $N")).await.unwrap_or_else(|error| panic!("{case}: {error}"));
        let told = String::from_utf8(told.stdout).unwrap();
        let (ran, n) = told.split_once("N ").unwrap();
        let n: u64 = n.trim().parse().unwrap();
        assert!(n == acknowledged || n == acknowledged + 1, "{case}: the state is of {n}");
        let ran: Vec<u64> = ran.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(ran.iter().collect::<BTreeSet<_>>().len(), ran.len(), "{case}: something ran twice: {ran:?}");
        let store = stead_server::store::SqliteStore::open(&dir.path().join("stead.db")).await.unwrap();
        let store: &dyn stead_server::store::Store = &store;
        wait_for("everything to have ended", || async {
            store.open_commands().await.unwrap().is_empty().then_some(())
        })
        .await;
        for number in 1..=acknowledged + 1 {
            let row = store.command(&command(&format!("c{number}"))).await.unwrap();
            let times = ran.iter().filter(|one| **one == number).count();
            match row.map(|row| row.status) {
                Some(Status::Exited) => assert_eq!(times, 1, "{case}: c{number}"),
                // Only one that nobody was answered.
                Some(Status::Lost | Status::Failed) => {
                    assert!(!answered.contains(&number) && times <= 1, "{case}: c{number} ran {times} times");
                }
                None => assert_eq!(times, 0, "{case}: c{number} was never asked for"),
                other => panic!("{case}: c{number} is {other:?}"),
            }
        }
        let live = store.live_sessions().await.unwrap();
        assert_eq!(live.len(), 1, "{case}: {live:?}");
        let lease = store.lease(&live[0].lease).await.unwrap().unwrap();
        assert_eq!(lease.observed, Observed::Running, "{case}");
        let instances: Vec<_> = match provider {
            "local" => crate::rig::local(dir.path()).list_ids().await,
            "docker" => crate::rig::docker(dir.path()).list_ids().await,
            _ => crate::rig::namespace(dir.path()).list_ids().await,
        };
        assert_eq!(instances, [lease.instance.clone().unwrap()], "{case}: one instance");
        let failed = stead.stop().await;
        assert!(failed.is_empty(), "{case}: {failed:?}");
        next = acknowledged + 2;
    }
    // Whoever cleans up.
    drop(Rig::over(dir, provider, BTreeMap::new(), Vec::new()).await);
}

async fn a_server_killed_while_an_instance_is_made_leaves_a_thread_that_works(provider: &str) {
    if !is_here(provider).await {
        return;
    }
    let mut dice = Dice(11);
    let dir = tempfile::tempdir().unwrap();
    for round in 0..rounds(provider, 25) {
        let _ = std::fs::remove_file(dir.path().join("acknowledged"));
        let child = play(dir.path(), provider, "births");
        wait_for("the first", || async { dir.path().join("acknowledged").exists().then_some(()) }).await;
        let moment = Instant::now() + Duration::from_millis(dice.below(if provider == "docker" { 1500 } else { 150 }));
        wait_for("the moment", || async { (Instant::now() >= moment).then_some(()) }).await;
        kill(child);
        let fake = Fake::new(name("fake"), Shells::Real(dir.path().join("fake")));
        let toy = Fake::new(name("toy"), Shells::Toy);
        let clock = Arc::new(MovedClock::default());
        let (stead, recovered) =
            start_server(dir.path(), &clock, (&fake, &toy), &[], &name(provider), &BTreeMap::new()).await;
        let case = format!("{provider}, round {round}: {recovered:?}");
        let sandbox =
            stead.get_sandbox(Where::thread(thread("t"))).await.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(out(&sandbox, "echo works").await, "works\n", "{case}");
        let instance = only_instance(&dir).await;
        assert_eq!(stead.pause(&thread("t"), Force::No).await.unwrap().lease.observed, Observed::Paused, "{case}");
        let seen: Vec<_> = match provider {
            "local" => crate::rig::local(dir.path()).list_all().await,
            "docker" => crate::rig::docker(dir.path()).list_all().await,
            _ => crate::rig::namespace(dir.path()).list_all().await,
        };
        assert_eq!(seen, [(instance, Seen::Paused)], "{case}: one instance, and it sleeps");
        stead.resume(&thread("t")).await.unwrap();
        assert!(stead.stop().await.is_empty());
    }
    drop(Rig::over(dir, provider, BTreeMap::new(), Vec::new()).await);
}

/// The instance of the only lease.
async fn only_instance(dir: &TempDir) -> stead_model::ids::InstanceId {
    let store = stead_server::store::SqliteStore::open(&dir.path().join("stead.db")).await.unwrap();
    let store: &dyn stead_server::store::Store = &store;
    let leases = store.leases(None, &stead_server::store::Page::all()).await.unwrap();
    leases[0].instance.clone().unwrap()
}

trait ListIds {
    async fn list_ids(&self) -> Vec<stead_model::ids::InstanceId>;
    async fn list_all(&self) -> Vec<(stead_model::ids::InstanceId, Seen)>;
}

impl<P: stead_server::provider::Provider> ListIds for P {
    async fn list_ids(&self) -> Vec<stead_model::ids::InstanceId> {
        self.list().await.unwrap().into_iter().map(|found| found.handle.instance).collect()
    }

    async fn list_all(&self) -> Vec<(stead_model::ids::InstanceId, Seen)> {
        self.list().await.unwrap().into_iter().map(|found| (found.handle.instance, found.seen)).collect()
    }
}
