//! A command runs at most once, also when it leaves no trace of having run: it prints nothing, and an interrupt throws
//! away its report while no steward is there to notice.

use crate::rig::{Rig, Runs, TestShell, fate, is_alive, kill, kill_these, rounds, wait_for};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stead_model::proto::{Cancel, Ending, Exec, FirstSignal, Program, Request, Status};
use stead_steward::client::{Client, Outcome};
use stead_term::proc;

const SHELLS: [Program; 3] = [Program::Bash, Program::Dash, Program::Ash];

/// Runs a command to its end, by whichever steward is there.
fn run_through_deaths(rig: &Rig, exec: &Exec) -> Outcome {
    let info = Client::run(exec, &mut || rig.try_client(), &mut |_| {}).unwrap();
    Outcome { info, stdout: Vec::new(), stderr: Vec::new() }
}

/// A command that kills the steward and then leaves its shell without a report ran once, and ends with this status.
#[track_caller]
fn ends_once(program: &Program, rest: &str, status: i32) {
    let rig = Rig::new();
    let mut shell = rig.open("main", program.clone());
    let pid = shell.pid();
    let runs = Runs::new(&rig);
    let steward = rig.steward_pid();
    let exec = shell.exec(runs.counted(&format!("kill -KILL {steward}\n{rest}")));
    let outcome = run_through_deaths(&rig, &exec);
    assert_eq!(runs.count(), 1, "{program:?}: {rest}");
    assert_eq!(fate(&outcome), Ending::new(Status::Exited, Some(status)), "{program:?}: {rest}");
    let mut again = TestShell { client: rig.client(), id: shell.id.clone() };
    assert_eq!(again.out("echo $$"), format!("{pid}\n"), "{program:?}: {rest}");
    assert_eq!(runs.count(), 1, "{program:?}: {rest}: it ran after its end");
}

#[test]
fn a_command_that_interrupts_its_shell_while_no_steward_lives_is_not_run_again() {
    for program in &SHELLS {
        ends_once(program, "kill -INT $$", 130);
    }
}

#[test]
fn a_syntax_error_behind_a_part_that_ran_does_not_make_it_run_again() {
    for program in &SHELLS {
        ends_once(program, "fi", 2);
    }
}

#[test]
fn a_time_out_that_passes_while_no_steward_lives_ends_the_command_once() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let runs = Runs::new(&rig);
    let (keeper, steward) = (rig.keeper_pid(), rig.steward_pid());
    let exec = Exec { timeout_ms: Some(150), ..shell.exec(runs.counted("sleep 1000")) };
    let from = Instant::now();
    shell.submit(exec.clone());
    wait_for("it to run", || (runs.count() > 0).then_some(()));
    crate::rig::stop(keeper);
    kill(steward);
    wait_for("its time to pass", || (from.elapsed() > Duration::from_millis(200)).then_some(()));
    stead_term::proc::signal(keeper, Signal::CONT);
    let outcome = run_through_deaths(&rig, &exec);
    assert_eq!(fate(&outcome), Ending::new(Status::TimedOut, Some(-1)));
    assert_eq!(runs.count(), 1);
}

#[test]
fn a_command_that_was_cancelled_in_the_queue_is_not_started_by_the_next_steward() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let runs = Runs::new(&rig);
    let first = shell.exec("read -t 1000 x </dev/tty");
    let queued = shell.exec(runs.counted("true"));
    shell.submit(first.clone());
    shell.submit(queued.clone());
    let cancel = |command| Request::Cancel(Cancel { command, first: FirstSignal::Interrupt });
    shell.client.request(&cancel(queued.command.clone())).unwrap();
    kill(rig.steward_pid());
    let asked = cancel(first.command.clone());
    wait_for("the cancellation to be taken", || rig.client().request(&asked).ok());
    let outcome = run_through_deaths(&rig, &queued);
    assert_eq!(fate(&outcome), Ending::new(Status::Cancelled, Some(-1)));
    assert_eq!(fate(&run_through_deaths(&rig, &first)), Ending::new(Status::Cancelled, Some(130)));
    let mut again = TestShell { client: rig.client(), id: shell.id.clone() };
    assert_eq!(again.out("echo behind both"), "behind both\n");
    assert_eq!(runs.count(), 0);
}

#[test]
fn a_cancellation_by_the_next_steward_leaves_jobs_of_earlier_commands_alone() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let runs = Runs::new(&rig);
    let earlier: i32 = shell.out("sleep 1000 & echo $!").trim().parse().unwrap();
    let exec = shell.exec(runs.counted("sleep 1000 & sleep 1000"));
    shell.submit(exec.clone());
    wait_for("it to run", || (runs.count() > 0).then_some(()));
    kill(rig.steward_pid());
    let cancel = Request::Cancel(Cancel { command: exec.command.clone(), first: FirstSignal::Interrupt });
    wait_for("the cancellation to be taken", || rig.client().request(&cancel).ok());
    assert_eq!(fate(&run_through_deaths(&rig, &exec)), Ending::new(Status::Cancelled, Some(130)));
    assert!(is_alive(earlier), "a background job of an earlier command was killed");
}

/// A command that was told to have started, and whose shell was killed before it read it, while no other can be started: the
/// steward has too few descriptors. Gives how many it had.
fn started_and_never_read(shell: &mut TestShell, runs: &Runs) -> (Exec, Option<u64>) {
    let exec = shell.exec(runs.counted("true"));
    let pid = shell.pid();
    stead_term::proc::signal(pid, Signal::STOP);
    shell.submit(exec.clone());
    wait_for("the start to be noted", || shell.command(&exec.command).started_at);
    let usual = shell.limit_descriptors(Some(3));
    kill(pid);
    (exec, usual)
}

#[test]
fn a_command_that_was_told_to_have_started_is_lost_and_not_failed_if_no_shell_gets_it_any_more() {
    for kill_all in [false, true] {
        let rig = Rig::new();
        let mut shell = rig.shell();
        let runs = Runs::new(&rig);
        let both = [rig.keeper_pid(), rig.steward_pid()];
        let (exec, usual) = started_and_never_read(&mut shell, &runs);
        let (outcome, why) = if kill_all {
            wait_for("the shell to be gone", || shell.info().pid.is_none().then_some(()));
            let waiting = shell.command(&exec.command);
            assert_eq!((waiting.status, waiting.started_at.is_some()), (Status::Running, true));
            kill_these(&rig, both);
            (run_through_deaths(&rig, &exec), "the steward and its keeper died before it could run")
        } else {
            let outcome = shell.end_of(&exec.command);
            shell.limit_descriptors(usual);
            (outcome, "Too many open files")
        };
        assert_eq!((outcome.info.status, outcome.info.started_at.is_some()), (Status::Lost, true));
        let error = outcome.info.ending.and_then(|ending| ending.error).map(|error| error.message);
        assert!(error.as_ref().is_some_and(|error| error.contains(why)), "{error:?}");
        assert_eq!(runs.count(), 0);
    }
}

#[test]
fn the_time_of_a_command_counts_from_its_first_start_also_if_another_shell_gets_it() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let exec = Exec { timeout_ms: Some(200), ..shell.exec("sleep 1000") };
    let pid = shell.pid();
    stead_term::proc::signal(pid, Signal::STOP);
    shell.submit(exec.clone());
    let started = wait_for("the start to be noted", || shell.command(&exec.command).started_at);
    kill(pid);
    let info = run_through_deaths(&rig, &exec).info;
    assert_eq!((info.status, info.started_at), (Status::TimedOut, Some(started)));
    let ran = Duration::from_micros(info.ended_at.unwrap() - started);
    assert!(ran >= Duration::from_millis(200), "it was told to be over after {ran:?}");
}

/// Kills shells in the very moment in which they come into being, until told to stop.
fn kill_the_newborn(keeper: i32, stop: &AtomicBool) {
    let mut known = proc::children(keeper);
    while !stop.load(Ordering::Relaxed) {
        let now = proc::children(keeper);
        for new in now.iter().filter(|pid| !known.contains(pid)) {
            kill(*new);
            // One that gets the processor late could still take a line.
            wait_for("it to be dead", || (!is_alive(*new)).then_some(()));
        }
        known = now;
    }
}

#[test]
fn a_shell_that_is_killed_while_it_starts_keeps_no_command_waiting() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let runs = Runs::new(&rig);
    for round in 0..rounds(150) {
        let pid = shell.pid();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let killer = scope.spawn(|| kill_the_newborn(rig.keeper_pid(), &stop));
            kill(pid);
            wait_for("another shell to be started", || (shell.info().pid != Some(pid)).then_some(()));
            stop.store(true, Ordering::Relaxed);
            killer.join().unwrap();
        });
        let outcome = shell.run(runs.counted("true"));
        assert_eq!(
            (outcome.info.status, runs.count()),
            (Status::Exited, usize::try_from(round + 1).unwrap()),
            "{outcome:?}"
        );
    }
}
