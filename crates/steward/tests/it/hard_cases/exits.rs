//! Commands that end the shell. The status is reported, and the next command finds a new shell in the old place.

use crate::rig::{Rig, code, fate, is_alive, seen, wait_for};
use stead_model::proto::{Ending, Status};

fn exited(code: i32) -> Ending {
    Ending { shell_exited: true, ..Ending::new(Status::Exited, Some(code)) }
}

fn killed(signal: i32) -> Ending {
    Ending { signal: Some(signal), ..exited(128 + signal) }
}

#[test]
fn exit_is_reported_and_the_next_command_has_everything_up_to_it() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let pid = shell.pid();
    let outcome = shell
        .run("cd /usr; plain=1; export exported=2; f() { echo f; }; echo out; echo err >&2; exit 5; echo not reached");
    assert_eq!(fate(&outcome), exited(5));
    assert_eq!(seen(&outcome), (Some(5), "out\n".into(), "err\n".into()));
    assert_eq!(shell.out("pwd; echo $plain; f; printenv exported"), "/usr\n1\nf\n2\n");
    assert!(!is_alive(pid));
}

#[test]
fn exit_without_a_number_has_the_status_of_the_last_command() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    assert_eq!(fate(&shell.run("(exit 33); exit")), exited(33));
    assert_eq!(fate(&shell.run("exit 0")), exited(0));
    assert_eq!(shell.out("echo alive"), "alive\n");
}

#[test]
fn exit_from_a_function_or_a_loop_is_an_exit() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    assert_eq!(fate(&shell.run("f() { while :; do exit 6; done; }; f")), exited(6));
    assert_eq!(fate(&shell.run("f")), exited(6));
    assert_eq!(shell.out("echo alive"), "alive\n");
}

#[test]
fn an_exit_in_a_subshell_is_not_the_end_of_the_shell() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let pid = shell.pid();
    assert_eq!(fate(&shell.run("(exit 5)")), Ending::new(Status::Exited, Some(5)));
    assert_eq!(shell.out("echo $$"), format!("{pid}\n"));
}

#[test]
fn errexit_ends_the_shell_and_is_not_given_to_the_next() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let outcome = shell.run("kept=1; set -e; false; echo not reached");
    assert_eq!((fate(&outcome), outcome.stdout.as_slice()), (exited(1), b"".as_slice()));
    let pid = shell.pid();
    assert_eq!(shell.out("shopt -qo errexit || echo off; echo $kept"), "off\n1\n");
    assert_eq!(fate(&shell.run("false")), Ending::new(Status::Exited, Some(1)));
    assert_eq!(shell.out("echo $$"), format!("{pid}\n"));
}

#[test]
fn errexit_set_in_one_command_is_still_on_in_the_next() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("set -e");
    assert_eq!(shell.out("shopt -qo errexit && echo on"), "on\n");
    assert_eq!(fate(&shell.run("false")), exited(1));
    assert_eq!(shell.out("echo alive"), "alive\n");
}

#[test]
fn a_program_that_took_the_place_of_the_shell_ends_it_with_its_own_status() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("kept=1; cd /usr");
    assert_eq!(fate(&shell.run("exec true")), exited(0));
    assert_eq!(fate(&shell.run("exec sh -c 'echo out; exit 9'")), exited(9));
    assert_eq!(shell.out("pwd; echo $kept"), "/usr\n1\n");
}

#[test]
fn an_exec_of_nothing_is_127_and_leaves_a_shell() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("kept=1");
    let outcome = shell.run("exec no_such_command_anywhere");
    assert_eq!(code(&outcome), Some(127));
    assert_eq!(shell.out("echo $kept"), "1\n");
}

#[test]
fn a_shell_that_kills_itself_is_a_shell_that_died_by_a_signal() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("kept=1; cd /usr");
    let outcome = shell.run("echo before; kill -9 $$; echo after");
    assert_eq!((fate(&outcome), outcome.stdout.as_slice()), (killed(9), b"before\n".as_slice()));
    assert_eq!(shell.out("pwd; echo $kept"), "/usr\n1\n");
}

#[test]
fn a_shell_killed_from_outside_between_two_commands_is_replaced_for_the_next() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("kept=1; cd /usr");
    let pid = shell.pid();
    crate::rig::kill(pid);
    wait_for("another shell", || shell.info().pid.filter(|now| *now != pid));
    assert_eq!(shell.out("pwd; echo $kept"), "/usr\n1\n");
}

#[test]
fn a_hangup_ends_the_shell_with_the_state_it_had() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let outcome = shell.run("kept=1; kill -HUP $$; echo after");
    assert_eq!((fate(&outcome), outcome.stdout.as_slice()), (killed(1), b"".as_slice()));
    assert_eq!(shell.out("echo $kept"), "1\n");
}

#[test]
fn a_crash_of_the_shell_is_a_signal_like_any_other() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("kept=1");
    assert_eq!(fate(&shell.run("kill -SEGV $$")), killed(11));
    assert_eq!(shell.out("echo $kept"), "1\n");
}

#[test]
fn recursion_without_end_takes_the_shell_and_nothing_else() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("kept=1");
    let outcome = shell.run("ulimit -s 256; f() { f; }; f");
    assert_eq!(fate(&outcome), killed(11));
    assert_eq!(shell.out("echo $kept"), "1\n");
}

#[test]
fn onecmd_ends_the_shell_and_the_next_command_has_another() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("kept=1");
    shell.run("set -t");
    // The shell leaves after it has reported: a command that comes just then must not be taken for one that ran.
    assert_eq!(shell.out("echo hi"), "hi\n");
    assert_eq!(shell.out("echo $kept"), "1\n");
}

#[test]
fn closing_every_descriptor_of_the_shell_costs_the_shell_but_not_its_state() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("kept=1");
    let outcome = shell.run("for fd in {3..255}; do eval \"exec $fd>&-\"; done; echo closed");
    assert_eq!((outcome.info.status, outcome.stdout.as_slice()), (Status::Exited, b"closed\n".as_slice()));
    assert_eq!(shell.out("echo $kept"), "1\n");
    assert_eq!(shell.out("echo again"), "again\n");
}

#[test]
fn a_hundred_exits_in_a_row_each_leave_a_shell() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("n=0");
    for status in 1..=100 {
        assert_eq!(fate(&shell.run(format!("n=$((n + 1)); exit {status}"))), exited(status));
    }
    assert_eq!(shell.out("echo $n"), "100\n");
}
