//! `kill -9` of everything, at random instants: of the steward, of its keeper, of both, of the shell, of the client.
//! Every round has a seed; fixed ones for comparison, one fresh one for what nobody has thought of. A failure prints
//! the seed, `STEAD_SEED` runs it again.

use crate::rig::{
    Rig, Rng, TestShell, code, fresh_id, is_alive, kill, open_shell, rounds, seeds, steward_of, wait_for,
};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use stead_model::frame::Stream;
use stead_model::proto::{Event, Exec, Program, Reply, Request, Status};
use stead_model::state::Bytes;
use stead_steward::client::{Client, Told};

/// What a command printed, checked against what it must have printed, however often the connection broke.
struct Heard {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    seqs: Vec<u64>,
}

fn run_through_kills(rig: &Rig, exec: &Exec) -> (stead_model::proto::CommandInfo, Heard) {
    let mut heard = Heard { stdout: Vec::new(), stderr: Vec::new(), seqs: Vec::new() };
    let info = Client::run(exec, &mut || rig.try_client(), &mut |told| {
        heard.seqs.extend(told.seq());
        if let Told::Output(chunk) = told {
            let stream = if chunk.stream == Stream::Stdout { &mut heard.stdout } else { &mut heard.stderr };
            assert_eq!(chunk.offset, stream.len() as u64, "a hole or a repetition in the stream");
            stream.extend_from_slice(&chunk.bytes);
        }
    });
    (info.unwrap_or_else(|error| panic!("{error}: {error:?}\n{}", rig.log())), heard)
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Kills stewards until told to stop; counts them.
fn kill_stewards(rig: &Rig, seed: u64, stop: &AtomicBool, kills: &AtomicU32) {
    let mut rng = Rng::new(seed ^ 0x5eed);
    let keeper = rig.keeper_pid();
    while !stop.load(Ordering::Relaxed) {
        let until = Instant::now() + Duration::from_micros(rng.below(40_000) + 500);
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        if let Some(pid) = steward_of(keeper) {
            kill(pid);
            kills.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn killing_the_steward_at_any_instant_loses_no_byte_and_runs_nothing_twice() {
    for seed in seeds() {
        let rig = Rig::new();
        let mut shell = rig.shell();
        let pid = shell.pid();
        shell.run("count=0; big() { for i in {1..3000}; do echo \"line $i of $1\"; done; }");
        let (stop, kills) = (AtomicBool::new(false), AtomicU32::new(0));
        let commands = std::thread::scope(|scope| {
            scope.spawn(|| kill_stewards(&rig, seed, &stop, &kills));
            // The killer ends with us, also when we fail.
            let _stop = StopOnDrop(&stop);
            let mut rng = Rng::new(seed);
            let mut commands = 0;
            while kills.load(Ordering::Relaxed) < rounds(150) {
                commands += 1;
                one_command(&rig, &mut rng, commands, seed);
            }
            commands
        });
        let mut shell = TestShell { client: rig.client(), id: shell.id };
        assert_eq!(
            shell.out("echo $count"),
            format!("{commands}\n"),
            "seed {seed}: a command ran twice, or not at all"
        );
        assert_eq!(shell.pid(), pid, "seed {seed}: the shell was replaced");
        assert!(is_alive(pid));
    }
}

/// Runs one of several kinds of command and checks all that came of it.
fn one_command(rig: &Rig, rng: &mut Rng, number: u32, seed: u64) {
    let shell = stead_model::ids::ShellId::parse("main").unwrap();
    let status = rng.below(200);
    let (text, stdout, stderr): (String, String, String) = match rng.below(5) {
        0 => (format!("count=$((count+1)); (exit {status})"), String::new(), String::new()),
        1 => {
            let lines = (1..=3000).fold(String::new(), |text, i| text + &format!("line {i} of {number}\n"));
            (
                format!("count=$((count+1)); big {number}; echo e{number} >&2; (exit {status})"),
                lines,
                format!("e{number}\n"),
            )
        }
        2 => {
            // Enough to be moved by way of a basin.
            let lines = (1..=200_000).fold(String::new(), |text, i| text + &format!("{i}\n"));
            (format!("count=$((count+1)); seq 200000; (exit {status})"), lines, String::new())
        }
        3 => {
            let lines = (1..=20).fold(String::new(), |text, i| text + &format!("{i}\n"));
            (
                format!("count=$((count+1)); for i in {{1..20}}; do echo $i; sleep 0.002; done; (exit {status})"),
                lines,
                String::new(),
            )
        }
        _ => (format!("count=$((count+1)); cd /usr; echo $PWD; cd /; (exit {status})"), "/usr\n".into(), String::new()),
    };
    let (info, heard) = run_through_kills(rig, &Exec::new(shell, fresh_id(), text.clone()));
    let ending = info.ending.unwrap();
    assert_eq!(
        (ending.status, ending.exit_code, ending.shell_exited, ending.shell_replaced),
        (Status::Exited, Some(i32::try_from(status).unwrap()), false, false),
        "seed {seed}: {text}: {:?}",
        ending.warnings
    );
    assert!(
        heard.stdout == stdout.as_bytes(),
        "seed {seed}: {text}: output differs ({} bytes, expected {})",
        heard.stdout.len(),
        stdout.len()
    );
    assert_eq!(String::from_utf8_lossy(&heard.stderr), stderr, "seed {seed}: {text}");
    let holes: Vec<u64> = (1..=info.last_seq).collect();
    assert_eq!(heard.seqs, holes, "seed {seed}: {text}: the sequence has holes or repetitions");
}

#[test]
fn a_new_keeper_takes_the_place_of_one_that_was_killed_and_nothing_is_lost() {
    for seed in seeds() {
        let rig = Rig::new();
        let mut shell = rig.shell();
        let pid = shell.pid();
        shell.run("count=0; big() { for i in {1..3000}; do echo \"line $i of $1\"; done; }");
        let mut rng = Rng::new(seed);
        let mut commands = 0;
        for _ in 0..rounds(12) {
            let keeper = rig.keeper_pid();
            std::thread::scope(|scope| {
                let delay = rng.below(20_000);
                scope.spawn(move || {
                    let until = Instant::now() + Duration::from_micros(delay);
                    while Instant::now() < until {
                        std::thread::yield_now();
                    }
                    kill(keeper);
                });
                commands += 1;
                one_command(&rig, &mut rng, commands, seed);
            });
            let next = wait_for("a new keeper", || Some(rig.keeper_pid()).filter(|pid| *pid != keeper && *pid != 1));
            wait_for("the old keeper to be gone", || (!is_alive(keeper)).then_some(()));
            // The new one can be relied on: it starts the steward again.
            kill(wait_for("a steward", || steward_of(next)));
        }
        let mut shell = TestShell { client: rig.client(), id: shell.id };
        assert_eq!(shell.out("echo $count"), format!("{commands}\n"), "seed {seed}");
        assert_eq!(shell.pid(), pid, "seed {seed}: the shell was replaced");
        assert_eq!(
            code(&shell.run("exit 7")),
            Some(7),
            "the exit status comes by the EXIT trap where nobody reaps for us"
        );
    }
}

#[test]
fn with_keeper_and_steward_both_gone_the_shells_end_and_what_ran_is_lost_with_every_byte_it_had_written() {
    for seed in seeds() {
        let mut rng = Rng::new(seed);
        for round in 0..rounds(8) {
            let rig = Rig::new();
            let mut shell = rig.shell();
            let pid = shell.pid();
            shell.run(format!("cd /usr; kept=round{round}; f() {{ echo f $kept; }}"));
            let (keeper, steward) = (rig.keeper_pid(), rig.steward_pid());
            // After each line that is written it says so elsewhere.
            let witness = rig.scratch().join("witness");
            let running =
                shell.exec(format!("for ((i = 0; ; i++)); do echo line $i; echo $i >> {}; done", witness.display()));
            let queued = shell.exec("echo never");
            let mut heard = Vec::new();
            let mut killed = false;
            let enough = usize::try_from(rng.below(600_000)).unwrap();
            let first_keeper = rng.below(2) == 0;
            let mut client = rig.client();
            client.request(&Request::Exec(Box::new(running.clone()))).unwrap();
            client.request(&Request::Exec(Box::new(queued.clone()))).unwrap();
            let broken = client.follow_from(&running.command, 0, false, &mut |told| {
                if let Told::Output(chunk) = told {
                    heard.extend_from_slice(&chunk.bytes);
                }
                if heard.len() >= enough && !killed {
                    killed = true;
                    let order = if first_keeper { [keeper, steward] } else { [steward, keeper] };
                    // Stopped first, so that neither can replace the other.
                    for pid in order {
                        stead_term::proc::signal(pid, rustix::process::Signal::STOP);
                    }
                    if rng.below(2) == 0 {
                        wait_for("the pipe to be full", || {
                            let pid = stead_term::proc::stat(pid)?;
                            (pid.state == b'S').then_some(())
                        });
                    }
                    for pid in order {
                        kill(pid);
                    }
                }
            });
            assert!(broken.is_err());
            wait_for("the shell to end by itself", || (!is_alive(pid)).then_some(()));
            rig.start();
            let mut client = rig.client();
            let info = client.follow_from(&running.command, 0, true, &mut |_| {}).unwrap();
            let ending = info.ending.unwrap();
            assert_eq!((ending.status, ending.exit_code), (Status::Lost, None), "seed {seed}");
            let mut kept = Vec::new();
            client
                .follow_from(&running.command, 0, true, &mut |told| {
                    if let Told::Output(chunk) = told {
                        kept.extend_from_slice(&chunk.bytes);
                    }
                })
                .unwrap();
            assert!(kept.starts_with(&heard), "seed {seed}: {} bytes were heard, {} kept", heard.len(), kept.len());
            assert!(is_prefix_of_lines(&kept), "seed {seed}: what was kept is not what was printed");
            let lines = String::from_utf8_lossy(&kept).lines().count();
            let written = std::fs::read_to_string(&witness).unwrap().lines().count();
            assert!(lines >= written, "seed {seed}: {written} lines were written, {lines} kept");
            let Reply::Command(info) = client.request(&Request::Command(queued.command)).unwrap() else { panic!() };
            assert_eq!((info.status, info.ending.unwrap().exit_code), (Status::Failed, None));
            // The next shell is the same place.
            let mut shell = TestShell { client, id: shell.id };
            assert_eq!(shell.out("f; pwd"), format!("f round{round}\n/usr\n"));
        }
    }
}

#[test]
fn a_new_heir_takes_the_place_of_one_that_was_killed_and_keeps_what_is_in_the_pipes() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("true");
    let (keeper, steward) = (rig.keeper_pid(), rig.steward_pid());
    let heir_of = |not: i32| {
        let is_heir = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).nth(1) == Some(b"inherit") && *pid != not
        };
        stead_term::proc::children(steward).into_iter().find(is_heir)
    };
    let first = wait_for("a heir", || heir_of(0));
    kill(first);
    let second = wait_for("another heir", || heir_of(first));
    let done = rig.scratch().join("done");
    let text = format!("kill -STOP {steward}; echo kept; echo too >&2; : > {}; sleep 1000", done.display());
    let exec = shell.exec(text);
    let mut client = rig.client();
    client.send(&Request::Exec(Box::new(exec.clone()))).unwrap();
    wait_for("both lines to be written", || done.exists().then_some(()));
    kill(keeper);
    kill(steward);
    rig.start();
    let outcome = TestShell { client: rig.client(), id: shell.id }.run_exec(exec);
    let text = (String::from_utf8(outcome.stdout).unwrap(), String::from_utf8(outcome.stderr).unwrap());
    assert_eq!(text, ("kept\n".to_owned(), "too\n".to_owned()));
    assert_eq!(outcome.info.ending.unwrap().status, Status::Lost);
    wait_for("the heir to be gone", || (!is_alive(second)).then_some(()));
}

fn is_prefix_of_lines(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let mut lines: Vec<_> = text.split('\n').collect();
    let last = lines.pop().unwrap_or_default();
    let whole = lines.iter().enumerate().all(|(i, line)| *line == format!("line {i}"));
    whole && format!("line {}", lines.len()).starts_with(last)
}

#[test]
fn killing_the_shell_at_any_instant_ends_its_command_and_the_next_one_has_its_state() {
    for seed in seeds() {
        let rig = Rig::new();
        let mut shell = rig.shell();
        shell.run("cd /usr; kept=yes; f() { echo f $kept; }; shopt -s extglob");
        let mut rng = Rng::new(seed);
        for _ in 0..rounds(25) {
            let pid = shell.pid();
            let exec = shell.exec("for i in {1..2000}; do echo $i; done; sleep 0.01");
            std::thread::scope(|scope| {
                let delay = rng.below(15_000);
                scope.spawn(move || {
                    let until = Instant::now() + Duration::from_micros(delay);
                    while Instant::now() < until {
                        std::thread::yield_now();
                    }
                    kill(pid);
                });
                let outcome = shell.run_exec(exec);
                let ending = outcome.info.ending.clone().unwrap();
                let text = String::from_utf8(outcome.stdout).unwrap();
                let whole = (1..=2000).fold(String::new(), |text, i| text + &format!("{i}\n"));
                match (ending.exit_code, ending.signal) {
                    (Some(0), None) => assert_eq!(text, whole, "seed {seed}"),
                    (Some(137), Some(9)) => assert!(ending.shell_exited && whole.starts_with(&text), "seed {seed}"),
                    other => panic!("seed {seed}: {other:?} {:?}", ending.warnings),
                }
            });
            wait_for("the shell to be another one", || (shell.pid() != pid).then_some(()));
            assert_eq!(shell.out("f; pwd; shopt -q extglob && echo on"), "f yes\n/usr\non\n", "seed {seed}");
        }
    }
}

#[test]
fn a_client_that_is_killed_takes_nothing_with_it() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    for seed in seeds() {
        let mut rng = Rng::new(seed);
        for _ in 0..rounds(10) {
            // The client is another process, over the standard streams of `connect`.
            let mut bridge = Command::new(crate::rig::binary())
                .arg("connect")
                .arg("--dir")
                .arg(rig.path())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let (stdout, stdin) = (bridge.stdout.take().unwrap(), bridge.stdin.take().unwrap());
            let mut client = Client::over(Box::new(stdout), Box::new(stdin), "to be killed").unwrap();
            let exec = shell.exec("for i in {1..500}; do echo $i; done; (exit 3)");
            let seen_at = rng.below(3);
            client.send(&Request::Exec(Box::new(Exec { follow: Some(1 << 20), ..exec.clone() }))).unwrap();
            if seen_at > 0 {
                wait_for("it to be known", || rig.client().request(&Request::Command(exec.command.clone())).ok());
            }
            kill(i32::try_from(bridge.id()).unwrap());
            bridge.wait().unwrap();
            // Whether its request arrived is not known; asking again with the same id runs it once in any case.
            let outcome = shell.run_exec(exec);
            let whole = (1..=500).fold(String::new(), |text, i| text + &format!("{i}\n"));
            assert_eq!((code(&outcome), String::from_utf8(outcome.stdout).unwrap()), (Some(3), whole), "seed {seed}");
        }
    }
}

#[test]
fn a_follower_that_resumes_anywhere_hears_exactly_the_rest() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let exec = shell.exec("for i in 1 2 3 4 5; do echo out$i; sleep 0.01; echo err$i >&2; sleep 0.01; done");
    let mut all = Vec::new();
    let follow = Request::Exec(Box::new(Exec { follow: Some(1 << 20), ..exec.clone() }));
    let info = shell.client.follow(&follow, &mut |told| all.push(told)).unwrap();
    assert_eq!(all.len() as u64, info.last_seq);
    assert!(
        matches!(all.first(), Some(Told::Event(Event::Started(_))))
            && matches!(all.last(), Some(Told::Event(Event::Ended(_))))
    );
    for after in 0..=info.last_seq {
        let mut rest = Vec::new();
        shell.client.follow_from(&exec.command, after, false, &mut |told| rest.push(told)).unwrap();
        assert_eq!(rest, all[usize::try_from(after).unwrap()..]);
    }
}

#[test]
fn a_shell_that_is_killed_before_it_is_ready_is_started_again_with_all_of_its_state() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("f() { echo f $kept; }; kept=yes");
    let keeper = rig.keeper_pid();
    let mut killed_early = 0;
    for _ in 0..rounds(60) {
        let before = shell.pid();
        shell.run("exit 1");
        let is_shell = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            *pid != before && String::from_utf8_lossy(&line).contains("--noediting")
        };
        kill(wait_for("the next shell", || stead_term::proc::children(keeper).into_iter().find(is_shell)));
        let mut outcome = shell.run("f");
        if code(&outcome) == Some(137) {
            // It was ready, and had the command already.
            outcome = shell.run("f");
        }
        let ending = outcome.info.ending.unwrap();
        let warnings: Vec<_> = ending.warnings.iter().map(|warning| warning.code.as_str()).collect();
        assert_eq!(String::from_utf8(outcome.stdout).unwrap(), "f yes\n");
        assert!(!warnings.contains(&"state_not_restored"), "{warnings:?}");
        killed_early += u32::from(warnings.is_empty());
    }
    assert!(killed_early > 0, "none was killed before it was ready");
}

/// A `bash` that waits as long as there is a file `hold` beside it, and then becomes the real one.
fn bash_that_waits(rig: &Rig) -> (Bytes, PathBuf) {
    let dir = rig.scratch().join("bin");
    std::fs::create_dir(&dir).unwrap();
    let hold = dir.join("hold");
    let script = format!("#!/bin/sh\nwhile [ -e '{}' ]; do :; done\nexec /bin/bash \"$@\"\n", hold.display());
    let program = dir.join("bash");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    (Bytes::from(format!("{}:/usr/bin:/bin", dir.display()).as_str()), hold)
}

#[test]
fn a_shell_that_is_killed_with_its_keeper_before_it_is_ready_is_started_again_with_all_of_its_state() {
    let rig = Rig::new();
    let (path, hold) = bash_that_waits(&rig);
    let mut open = open_shell("main", Program::Bash, &rig.scratch());
    open.env.iter_mut().filter(|(name, _)| name.0 == b"PATH").for_each(|(_, value)| *value = path.clone());
    let mut shell = TestShell::open(rig.client(), open);
    shell.run("f() { echo f $kept; }; kept=yes");
    let (keeper, steward, before) = (rig.keeper_pid(), rig.steward_pid(), shell.pid());
    std::fs::write(&hold, "").unwrap();
    shell.run("exit 1");
    let newborn = wait_for("the next shell", || shell.info().pid.filter(|pid| *pid != before));
    // Given to it before it is ready, so that the next steward keeps to it.
    let exec = shell.exec("f");
    shell.submit(exec.clone());
    wait_for("its start", || shell.command(&exec.command).started_at);
    // Nobody is there any more to see how it ends.
    crate::rig::stop(steward);
    kill(keeper);
    kill(newborn);
    std::fs::remove_file(&hold).unwrap();
    stead_term::proc::signal(steward, Signal::CONT);
    wait_for("another keeper", || (rig.keeper_pid() != keeper).then_some(()));
    let mut again = TestShell { client: rig.client(), id: shell.id.clone() };
    let outcome = again.end_of(&exec.command);
    assert_eq!(String::from_utf8(outcome.stdout).unwrap(), "f yes\n", "{:?}", outcome.info);
    assert_eq!(outcome.info.ending.unwrap().warnings, Vec::new());
}
