//! `kill -9` at any moment: what was acknowledged is there, and what is there is whole.
//!
//! The process that is killed is this test binary itself, started again for the one test below that does nothing
//! unless it is told where to write.

use crate::rig::*;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use stead_model::lease::{Input, Lease};
use stead_model::proto::{Ending, Status};
use stead_model::session::Session;
use stead_model::terminal::Terminal;
use stead_server::store::{InstanceChange, SqliteStore, Store};
use tokio::task::JoinSet;

const ROUNDS: u64 = 20;
const WRITERS: u64 = 4;
const WHERE: &str = "STEAD_STORE_CRASH_FILE";

/// xorshift: the same moments in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_kill_9() {
    let file = File::new();
    let mut dice = Dice(0x5eed_57ea_d000_0001);
    let mut acknowledged: Vec<String> = Vec::new();
    for round in 0..ROUNDS {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::writes_until_it_is_killed", "--nocapture", "--test-threads=1"])
            .env(WHERE, file.path())
            .env("STEAD_STORE_CRASH_ROUND", round.to_string())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        let stdout = child.stdout.take().unwrap();
        let until = 1 + dice.roll(120);
        let mut heard = 0;
        for line in BufReader::new(stdout).lines() {
            // The harness, too, writes to this pipe. A line that was cut by the kill acknowledges nothing.
            let Some(ack) =
                line.unwrap().strip_prefix("ack ").and_then(|ack| ack.strip_suffix(" .")).map(str::to_owned)
            else {
                continue;
            };
            acknowledged.push(ack);
            heard += 1;
            if heard == until {
                child.kill().unwrap();
            }
        }
        assert!(heard >= until, "round {round}: it ended by itself after {heard} acknowledgements");
        child.wait().unwrap();

        // As the killed one left it: without the store, looking would put the log into the file.
        let store = file.open().await;
        file.check().await;
        assert_eq!(store.begin_epoch().await.unwrap(), 2 * round + 2, "one of the killed one, one of ours");
        for ack in &acknowledged {
            check(&*store, ack).await;
        }
    }
    assert!(acknowledged.len() as u64 > ROUNDS, "{}", acknowledged.len());
}

/// An acknowledgement: what was written, by whom, and how often before.
async fn check(store: &dyn Store, ack: &str) {
    let mut words = ack.split(' ');
    let (what, name) = (words.next().unwrap(), words.next().unwrap());
    let count: u64 = words.next().unwrap().parse().unwrap();
    match what {
        "thread" => {
            let thread = store.thread(&thread_id(name)).await.unwrap().unwrap();
            assert!(store.lease(&thread.lease).await.unwrap().is_some(), "{ack}");
            assert!(store.terminal(&thread.default_terminal).await.unwrap().is_some(), "{ack}");
        }
        "terminal" => {
            let terminal = store.terminal(&terminal_id(name)).await.unwrap().unwrap();
            assert!(terminal.version >= count, "{ack}: {}", terminal.version);
            let state = store.state_at(&terminal.id, count).await.unwrap().unwrap();
            assert_eq!((state.version, state.state), (count, in_dir(&format!("/{count}"))), "{ack}");
        }
        "lease" => {
            let lease = store.lease(&lease_id(name)).await.unwrap().unwrap();
            assert!(lease.version >= count, "{ack}: {}", lease.version);
            let events = store.lease_events(&lease.id, 0, u32::MAX).await.unwrap();
            let versions: Vec<_> = events.iter().map(|event| event.version).collect();
            assert_eq!(versions, (1..=lease.version).collect::<Vec<_>>(), "{ack}: each change has its event");
        }
        "session" => {
            let live = store.live_session(&terminal_id(name)).await.unwrap().unwrap();
            let opened = store.session(&session_id(&format!("{name}-{count}"))).await.unwrap().unwrap();
            assert!(live.id == opened.id || opened.ended.is_some(), "{ack}");
        }
        "commands" => {
            for n in 0..3 {
                let id = command_id(&format!("{name}-{count}-{n}"));
                assert_eq!(store.command(&id).await.unwrap().unwrap().status, Status::Exited, "{ack}");
            }
        }
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(WHERE) else { return };
    let round = std::env::var("STEAD_STORE_CRASH_ROUND").unwrap();
    let store: Shared = Arc::new(SqliteStore::open(Path::new(&path)).await.unwrap());
    store.begin_epoch().await.unwrap();
    let mut writers = JoinSet::new();
    for n in 0..WRITERS {
        writers.spawn(write_for_ever(store.clone(), format!("{round}-{n}")));
    }
    writers.join_all().await;
}

/// In one write, so that lines of several tasks don't mix.
fn acknowledge(what: &str, name: &str, count: u64) {
    std::io::stdout().write_all(format!("ack {what} {name} {count} .\n").as_bytes()).unwrap();
}

async fn write_for_ever(store: Shared, name: String) {
    let (_, mut terminal, mut lease): (_, Terminal, Lease) = make_thread(&*store, &name, 1).await;
    acknowledge("thread", &name, 0);
    for n in 1_u64.. {
        let after = next(&terminal, in_dir(&format!("/{n}")), n);
        store.replace_terminal(&terminal, &after).await.unwrap();
        acknowledge("terminal", &name, n);
        terminal = after;

        let after = lease.apply(&Input::WantRunning, at(n)).unwrap();
        let event = event(&format!("{name}-{n}"), &after, &Input::WantRunning);
        store.replace_lease(&lease, &after, &event, &InstanceChange::Nothing).await.unwrap();
        acknowledge("lease", &name, n);
        lease = after;

        let opened: Session = session(&format!("{name}-{n}"), &name, n);
        store.open_session(&opened).await.unwrap();
        acknowledge("session", &name, n);

        let of = |m: u64| command(&format!("{name}-{n}-{m}"), &name, n);
        let ended = |m: u64| of(m).become_status(Status::Running)?.end(Ending::new(Status::Exited, Some(0)), at(n));
        store.put_command(&of(0)).await.unwrap();
        store.save_commands(&[ended(0).unwrap(), ended(1).unwrap(), ended(2).unwrap()]).await.unwrap();
        acknowledge("commands", &name, n);
    }
}
