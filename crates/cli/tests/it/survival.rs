//! Deaths: of the client, of the steward, of the keeper, of all.

use crate::rig::{Pids, Rig, said, signal, text_of, wait_for};
use rustix::process::Signal;
use stead_model::frame::Stream;
use stead_model::ids::ShellId;
use stead_model::proto::{CommandInfo, ListCommands, Read, Reply, Request, Status};

#[test]
fn a_killed_client_leaves_its_command_running_to_the_end() {
    let rig = Rig::new();
    let mut gate = rig.gate("gate");
    let effect = rig.scratch().join("effect");
    let run = rig.start_shell(&["-c", &format!("echo begun; {}; echo whole >effect; v=set", gate.wait())]);
    run.wait_for_stdout("begun");
    run.kill();
    gate.release();
    wait_for("the side effect", || (text_of(&effect) == "whole\n").then_some(()));
    assert_eq!(rig.shell(&["-c", "echo $v"]), said(0, "set\n", ""), "and what it set is there for the next");
}

#[test]
fn a_steward_killed_again_and_again_costs_the_client_nothing_and_shows_nothing_twice() {
    let rig = Rig::new();
    let mut gate = rig.gate("gate");
    let run = rig.start_shell(&["-c", &format!("for i in 1 2 3 4 5; do echo $i; {}; done; (exit 6)", gate.wait())]);
    for step in 1..=5 {
        run.wait_for_stdout(&format!("{step}\n"));
        signal(rig.pids().steward, Signal::KILL);
        gate.release();
    }
    assert_eq!(run.end(), said(6, "1\n2\n3\n4\n5\n", ""));
}

#[test]
fn a_steward_killed_in_the_middle_of_much_output_loses_and_repeats_no_byte() {
    let rig = Rig::new();
    let mut gate = rig.gate("gate");
    let run = rig.start_shell(&["-c", &format!("seq 1 60000; {}; seq 60001 120000; echo end >&2", gate.wait())]);
    run.wait_for_stdout("\n1000\n");
    signal(rig.pids().steward, Signal::KILL);
    gate.release();
    let want: Vec<String> = (1..=120_000).map(|number| number.to_string()).collect();
    let want = want.join("\n") + "\n";
    let got = run.end();
    assert_eq!((got.code, got.stderr.as_str()), (Some(0), "end\n"));
    assert!(got.stdout == want, "{} bytes instead of {}", got.stdout.len(), want.len());
}

#[test]
fn a_killed_keeper_is_replaced_and_the_command_goes_on() {
    let rig = Rig::new();
    let mut gate = rig.gate("gate");
    let run = rig.start_shell(&["-c", &format!("echo begun; {}; echo end", gate.wait())]);
    run.wait_for_stdout("begun");
    let before = rig.pids();
    signal(before.keeper, Signal::KILL);
    wait_for("another keeper", || (rig.pids().keeper != before.keeper).then_some(()));
    gate.release();
    assert_eq!(run.end(), said(0, "begun\nend\n", ""));
}

#[test]
fn with_steward_and_keeper_dead_the_command_is_lost_but_not_its_output_nor_the_state_before_it() {
    let rig = Rig::new();
    let gate = rig.gate("gate");
    rig.shell(&["-c", "v=before; cd /usr"]);
    let run = rig.start_shell(&["-c", &format!("echo begun; v=during; {}", gate.wait())]);
    run.wait_for_stdout("begun");
    kill_both(rig.pids());
    assert_eq!(run.end().stdout, "begun\n");
    assert_eq!(rig.shell(&["-c", "echo $v; pwd"]), said(0, "before\n/usr\n", ""));
    let lost = commands(&rig).into_iter().find(|info| info.number == 2).unwrap();
    assert_eq!((lost.status, lost.ending.unwrap().exit_code), (Status::Lost, None));
    let read = Read { command: lost.command, stream: Stream::Stdout, offset: 0, length: 100 };
    let Reply::Bytes(read) = rig.client().request(&Request::Read(read)).unwrap() else { panic!("no bytes") };
    assert_eq!((&*read.bytes, read.total), (b"begun\n".as_slice(), 6));
}

#[test]
fn a_lost_command_has_the_code_137() {
    let rig = Rig::new();
    let gate = rig.gate("gate");
    let run = rig.start_shell(&["-c", &format!("echo begun; {}", gate.wait())]);
    run.wait_for_stdout("begun");
    kill_both(rig.pids());
    assert_eq!(run.end(), said(137, "begun\n", ""));
}

#[test]
fn a_killed_shell_is_started_again_with_its_state_and_says_so_once() {
    let rig = Rig::new();
    let pid = rig.shell(&["-c", "v=kept; a=(1 '2 3'); f() { echo f; }; cd /usr; umask 027; echo $$"]).stdout;
    signal(pid.trim().parse().unwrap(), Signal::KILL);
    wait_for("another shell", || (shell_pid(&rig)? != pid.trim()).then_some(()));
    let warning = "stead: warning: the shell died between two commands and was started again with its state\n";
    assert_eq!(rig.shell(&["-c", "echo $v ${a[1]}; f; pwd; umask"]), said(0, "kept 2 3\nf\n/usr\n0027\n", warning));
    assert_eq!(rig.shell(&["-c", "echo $v"]), said(0, "kept\n", ""));
}

#[test]
fn a_directory_that_is_gone_is_replaced_by_the_nearest_parent_with_a_warning() {
    let rig = Rig::new();
    let scratch = rig.scratch().canonicalize().unwrap();
    rig.shell(&["-c", "mkdir -p a/b; cd a/b"]);
    assert_eq!(rig.shell(&["-c", "rm -r ../../a; kill -9 $$"]).code, Some(137));
    let warning = format!("stead: warning: `{0}/a/b` is gone; the shell is in `{0}`\n", scratch.display());
    assert_eq!(rig.shell(&["-c", "pwd"]), said(0, &format!("{}\n", scratch.display()), &warning));
}

/// Stopped first, so that neither sees the other die and makes a new one.
fn kill_both(pids: Pids) {
    for how in [Signal::STOP, Signal::KILL] {
        signal(pids.steward, how);
        signal(pids.keeper, how);
    }
}

fn commands(rig: &Rig) -> Vec<CommandInfo> {
    let list = ListCommands { shell: default_shell(), limit: 100, before: None };
    let Reply::Commands(commands) = rig.client().request(&Request::Commands(list)).unwrap() else { panic!("no list") };
    commands
}

fn shell_pid(rig: &Rig) -> Option<String> {
    let Reply::Shell(info) = rig.client().request(&Request::Shell(default_shell())).unwrap() else {
        panic!("no shell")
    };
    info.pid.map(|pid| pid.to_string())
}

fn default_shell() -> ShellId {
    ShellId::parse("default").unwrap()
}
