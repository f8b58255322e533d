//! Exit codes.

use crate::rig::{Rig, said, signal, wait, wait_for};
use rustix::process::Signal;
use std::process::Stdio;

#[test]
fn the_exit_code_is_that_of_the_command() {
    let rig = Rig::new();
    for code in [0, 1, 42, 255] {
        assert_eq!(rig.shell(&["-c", &format!("(exit {code})")]), said(code, "", ""), "in a subshell");
        assert_eq!(rig.shell(&["-c", &format!("exit {code}")]), said(code, "", ""), "by leaving the shell");
    }
}

#[test]
fn a_command_that_is_not_there_and_one_that_is_killed_have_the_codes_of_the_shell() {
    let rig = Rig::new();
    assert_eq!(rig.shell(&["-c", "no-such-program"]).code, Some(127));
    assert_eq!(rig.shell(&["-c", "/"]).code, Some(126));
    assert_eq!(rig.shell(&["-c", "sh -c 'kill -9 $$'"]).code, Some(137));
    assert_eq!(rig.shell(&["-c", "kill -9 $$"]).code, Some(137), "the shell itself");
}

#[test]
fn the_first_c_that_fails_is_the_last_that_runs() {
    let rig = Rig::new();
    let got = rig.shell(&["-c", "echo one", "-c", "(exit 3)", "-c", "echo never"]);
    assert_eq!(got, said(3, "one\n", ""));
}

#[test]
fn a_syntax_error_is_the_commands_and_the_shell_goes_on() {
    let rig = Rig::new();
    let got = rig.shell(&["-c", "echo 'open"]);
    assert_eq!((got.code, got.stdout.as_str()), (Some(2), ""));
    assert!(got.stderr.contains("unexpected EOF while looking for matching"), "{got:?}");
    assert_eq!(rig.shell(&["-c", "echo on"]), said(0, "on\n", ""));
}

#[test]
fn a_time_out_is_124_and_the_shell_lives_on() {
    let rig = Rig::new();
    rig.shell(&["-c", "v=kept"]);
    let got = rig.shell(&["--timeout", "200ms", "-c", "echo begun; sleep 1000; echo never"]);
    assert_eq!(got, said(124, "begun\n", ""));
    assert_eq!(rig.shell(&["-c", "echo $v"]), said(0, "kept\n", ""));
}

#[test]
fn a_command_within_its_time_is_none_the_worse() {
    let rig = Rig::new();
    assert_eq!(rig.shell(&["--timeout", "1h", "-c", "echo quick"]), said(0, "quick\n", ""));
}

#[test]
fn an_interrupt_stops_the_command_with_130_and_the_shell_lives_on() {
    let rig = Rig::new();
    let pid = rig.shell(&["-c", "v=kept; echo $$"]).stdout;
    let run = rig.start_shell(&["-c", "echo begun; sleep 1000; echo never", "-c", "echo never"]);
    run.wait_for_stdout("begun");
    signal(run.pid(), Signal::INT);
    assert_eq!(run.end(), said(130, "begun\n", ""));
    assert_eq!(rig.shell(&["-c", "echo $v; echo $$"]), said(0, &format!("kept\n{pid}"), ""));
}

#[test]
fn an_interrupt_while_it_waits_in_the_queue_takes_the_command_out_of_it() {
    let rig = Rig::new();
    let mut gate = rig.gate("gate");
    let first = rig.start_shell(&["-c", &format!("echo begun; {}; echo one", gate.wait())]);
    first.wait_for_stdout("begun");
    let second = rig.start_shell(&["-c", "echo never"]);
    wait_for("the second command in the queue", || (rig.stats().queued == 1).then_some(()));
    signal(second.pid(), Signal::INT);
    assert_eq!(second.end(), said(130, "", ""));
    gate.release();
    assert_eq!(first.end(), said(0, "begun\none\n", ""));
}

#[test]
fn a_reader_that_has_read_enough_is_no_failure() {
    let rig = Rig::new();
    let mut command = rig.stead(["shell", "-c", "seq 100000; echo done >&2"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(wait(&mut child).code(), Some(0));
}
