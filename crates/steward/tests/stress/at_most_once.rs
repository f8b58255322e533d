//! A command runs at most once, also when it leaves no trace of having run: it prints nothing, and an interrupt throws
//! away its report while no steward is there to notice.

use crate::rig::{Rig, Runs, TestShell, fate, is_alive, kill, wait_for};
use rustix::process::Signal;
use std::time::{Duration, Instant};
use stead_model::proto::{Cancel, Ending, Exec, FirstSignal, Program, Request, Status};
use stead_steward::client::{Client, Outcome};

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
    stead_term::proc::signal(keeper, Signal::STOP);
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
