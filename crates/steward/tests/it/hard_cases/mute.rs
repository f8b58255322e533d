//! Shells that can't report, or don't go on by themselves. They are noticed, not waited for.

use super::Survivor;
use crate::rig::{Gate, Rig, TestShell, fate, seen};
use stead_model::proto::{Ending, Status};

/// A command, ending in status 3, after which the shell can't report: it is replaced, the status is the true one or
/// the command is lost, and the next command has a shell like any other with the state from before.
#[track_caller]
fn is_replaced(text: &str) {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("kept=1; f() { echo f; }; cd /usr");
    let pid = shell.pid();
    let outcome = shell.run(format!("echo before; {text}; (exit 3)"));
    let ending = fate(&outcome);
    let status = if ending.exit_code == Some(3) { Status::Exited } else { Status::Lost };
    let code = ending.exit_code.filter(|_| status == Status::Exited);
    assert_eq!(ending, Ending { shell_replaced: true, ..Ending::new(status, code) }, "{text}");
    assert_eq!(outcome.stdout, b"before\n", "{text}");
    works_normally(&mut shell);
    assert_ne!(shell.pid(), pid, "{text}");
}

#[track_caller]
fn works_normally(shell: &mut TestShell) {
    assert_eq!(shell.out("pwd; echo $kept; f"), "/usr\n1\nf\n");
    assert_eq!(seen(&shell.run("v=2; echo out; echo err >&2; (exit 4)")), (Some(4), "out\n".into(), "err\n".into()));
    assert_eq!(shell.out("echo $? $v"), "4 2\n");
}

#[test]
fn a_shell_whose_builtin_word_was_taken_is_replaced() {
    is_replaced("builtin() { :; }");
}

#[test]
fn a_shell_without_printf_is_replaced() {
    is_replaced("enable -n printf");
}

#[test]
fn a_restricted_shell_is_replaced() {
    is_replaced("set -r");
}

#[test]
fn a_shell_without_the_dot_is_replaced_before_it_swallows_a_command() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("kept=1; f() { echo f; }; cd /usr");
    shell.run("enable -n .");
    works_normally(&mut shell);
}

#[test]
fn an_interrupt_that_the_shell_sends_itself_ends_the_command_and_not_the_shell() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    let outcome = shell.run("echo before; v=2; kill -INT $$; echo after");
    assert_eq!(fate(&outcome), Ending::new(Status::Exited, Some(130)));
    assert_eq!(outcome.stdout, b"before\n");
    assert_eq!(shell.out("echo $v"), "2\n");
    survivor.check(&mut shell);
}

#[test]
fn an_interrupt_out_of_loops_and_functions_leaves_what_they_had_set() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    let outcome = shell.run("f() { for i in 1 2 3; do v=$i; [[ $i = 2 ]] && kill -INT $$; done; }; f");
    assert_eq!(fate(&outcome), Ending::new(Status::Exited, Some(130)));
    assert_eq!(shell.out("echo $v"), "2\n");
    assert!(shell.state().variables.contains_key(b"v".as_slice()));
    survivor.check(&mut shell);
}

#[test]
fn a_child_that_dies_of_an_interrupt_is_a_status_of_130() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    assert_eq!(fate(&shell.run("sh -c 'kill -INT $$'")), Ending::new(Status::Exited, Some(130)));
    survivor.check(&mut shell);
}

#[test]
fn a_shell_that_suspends_itself_is_woken() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    assert_eq!(seen(&shell.run("suspend; echo awake")).1, "awake\n");
    survivor.check(&mut shell);
}

#[test]
fn a_shell_that_stops_itself_is_woken() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    assert_eq!(shell.out("kill -STOP $$; echo awake"), "awake\n");
    assert_eq!(shell.out("kill -TSTP $$; echo awake"), "awake\n");
    survivor.check(&mut shell);
}

#[test]
fn a_shell_that_sleeps_over_a_read_of_its_own_is_not_taken_for_mute() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    // Nothing tells it from a shell at its top but what it reads: its streams are closed, and it sleeps on descriptor 0
    // for longer than it takes to give up a mute one.
    let gate = Gate::new(&rig, "gate");
    let outcome = shell.run(format!("exec >&- 2>&-; {}; (exit 5)", gate.wait().replace("read", "read -t 2")));
    assert_eq!(fate(&outcome), Ending::new(Status::Exited, Some(5)));
    shell.run("exec >/dev/tty 2>&1");
    survivor.check(&mut shell);
}
