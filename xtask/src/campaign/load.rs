//! `cargo xtask campaign --load`: many clients at many terminals of one instance, on a machine that is kept busy on purpose,
//! while server and steward are killed. Every field of every answer is checked.

mod case;

use super::chance::Chance;
use super::driver::{Hung, insist, rest};
use super::plan::Provider;
use super::processes::{self, Part};
use super::server::Server;
use super::wire::Wire;
use crate::failed::{Failed, Result, While};
use case::{Case, Shell};
use serde_json::json;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Threads on one lease, and terminals in each.
const THREADS: u64 = 4;
const TERMINALS: u64 = 4;

/// How often it is told how far it has come.
const TELL_EVERY: Duration = Duration::from_secs(30);

/// Violations that are told one by one; the rest is counted.
const MOST_TOLD: u64 = 50;

struct Count {
    wanted: u64,
    begun: AtomicU64,
    done: AtomicU64,
    violations: AtomicU64,
}

pub(super) fn run(program: &Path, commands: u64, seed: u64, provider: Provider) -> Result<String> {
    let scratch = tempfile::Builder::new().prefix("stead-campaign-").tempdir().or_failed("can't make a directory")?;
    let mut server = Server::start(program, scratch.path())?;
    let wire = server.wire();
    let lease = make_threads(&wire, provider).map_err(|Hung(why)| Failed::new(why))?;
    let hogs = Hogs::start()?;
    let count =
        Count { wanted: commands, begun: AtomicU64::new(0), done: AtomicU64::new(0), violations: AtomicU64::new(0) };
    let kills = std::thread::scope(|scope| {
        for client in 0..THREADS * TERMINALS {
            let (wire, count) = (&wire, &count);
            scope.spawn(move || work(wire, seed, client, count));
        }
        kill_now_and_then(&mut server, &lease, seed, &count)
    })?;
    drop(hogs);
    for number in 0..THREADS {
        super::driver::delete(&wire, &thread(number)).map_err(|Hung(why)| Failed::new(why))?;
    }
    server.stop()?;
    let violations = count.violations.load(Ordering::Relaxed);
    let summary = format!("{} commands, {kills} kills, {violations} violations", count.done.load(Ordering::Relaxed));
    if violations == 0 { Ok(summary) } else { Err(Failed::new(format!("seed {seed}: {summary}"))) }
}

fn thread(number: u64) -> String {
    format!("load{number}")
}

/// Threads that share one lease, which is given back.
fn make_threads(wire: &Wire, provider: Provider) -> std::result::Result<String, Hung> {
    let mut lease = String::new();
    for number in 0..THREADS {
        let mut body = json!({ "id": thread(number), "provider": provider.name() });
        if number > 0 {
            body = json!({ "id": thread(number), "share_with": thread(0) });
        }
        let made = insist("create a thread", || wire.post("/api/threads", &body))?;
        let text = made.json()["lease_id"].as_str().map(str::to_owned);
        lease = text.ok_or_else(|| Hung(format!("a thread can't be made: {}", made.text())))?;
        let path = format!("/api/threads/{}/terminals", thread(number));
        for terminal in 0..TERMINALS {
            let made = insist("make a terminal", || wire.post(&path, &json!({ "name": format!("t{terminal}") })))?;
            if made.status != 201 {
                return Err(Hung(format!("a terminal can't be made: {}", made.text())));
            }
        }
    }
    Ok(lease)
}

/// One client: commands at its own terminal, one after the other.
fn work(wire: &Wire, seed: u64, client: u64, count: &Count) {
    let (thread, terminal) = (thread(client % THREADS), format!("t{}", client / THREADS));
    let mut chance = Chance::new(seed, client);
    let mut shell = Shell { last_code: 0, cwd: "/workspace".to_owned(), version: 0 };
    for number in 0_u64.. {
        if count.begun.fetch_add(1, Ordering::Relaxed) >= count.wanted {
            return;
        }
        let id = format!("{thread}-{terminal}-{number}");
        let case = Case::new(&mut chance, &id, &shell);
        let body = json!({ "command": case.text, "id": id, "terminal": terminal, "create": true });
        let answer = insist(&id, || wire.post(&format!("/api/threads/{thread}/exec"), &body));
        let found = match answer {
            Ok(answer) if answer.status == 200 => {
                let wrong = case.check(&answer.json(), &id, &thread, &mut shell);
                (!wrong.is_empty()).then(|| format!("{id}: {}; the answer is {}", wrong.join(", "), answer.text()))
            }
            Ok(answer) => Some(format!("{id} was refused: {}", answer.text())),
            Err(Hung(why)) => Some(why),
        };
        count.done.fetch_add(1, Ordering::Relaxed);
        if let Some(found) = found
            && count.violations.fetch_add(1, Ordering::Relaxed) < MOST_TOLD
        {
            println!("  seed {seed}: {found}");
        }
    }
}

/// Kills the server or the steward every few seconds until all commands are done; neither may be noticed.
fn kill_now_and_then(server: &mut Server, lease: &str, seed: u64, count: &Count) -> Result<u64> {
    let mut chance = Chance::new(seed, u64::MAX);
    let (mut kills, begun, mut told) = (0, Instant::now(), Instant::now());
    loop {
        let until = Instant::now() + Duration::from_millis(chance.between(400, 8000));
        while Instant::now() < until {
            let done = count.done.load(Ordering::Relaxed);
            if done >= count.wanted {
                return Ok(kills);
            }
            if told.elapsed() > TELL_EVERY {
                told = Instant::now();
                let wrong = count.violations.load(Ordering::Relaxed);
                println!("{done} commands, {kills} kills, {wrong} violations ({:.0} s)", begun.elapsed().as_secs_f64());
            }
            rest(Duration::from_millis(20));
        }
        if chance.one_in(2) {
            server.kill()?;
            server.start_again()?;
            kills += 1;
        } else {
            let stewards = processes::of_lease(lease);
            let hit = stewards.iter().filter(|process| process.part == Part::Steward && process.kill()).count();
            kills += hit as u64;
        }
    }
}

/// Programs that keep the processors busy, two for each, below us in priority so that we are slow and not stuck. One
/// computes; the other starts processes, so that process ids come round within the minute and are given again. All of them
/// end with the campaign, whose process id is `$0`, also if it is killed.
const BUSY: [&str; 2] = ["while kill -0 $0; do :; done", "while kill -0 $0; do (:); done"];

/// One that takes half of the memory that is free, gives it back, and takes it again: the kernel reclaims pages of files.
const GREEDY: &str = "while kill -0 $0; do \
    half=$(awk '/^MemAvailable:/ { print int($2 / 2) }' /proc/meminfo); \
    head -c \"${half}K\" /dev/zero | tail -c \"${half}K\" >/dev/null; done";

struct Hogs(Vec<Child>);

impl Hogs {
    fn start() -> Result<Self> {
        let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let mut hogs = Self(Vec::new());
        for script in BUSY.into_iter().cycle().take(processors * 2).chain([GREEDY]) {
            let mut command = Command::new("nice");
            command.args(["-n", "5", "sh", "-c", script, &std::process::id().to_string()]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            // A group of its own, so that what it starts ends with it.
            hogs.0.push(command.process_group(0).spawn().or_failed("can't start a program that loads the machine")?);
        }
        Ok(hogs)
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            if let Some(group) = i32::try_from(hog.id()).ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            let _ = hog.wait();
        }
    }
}
