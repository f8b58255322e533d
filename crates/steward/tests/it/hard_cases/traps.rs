//! Traps of the user last, fire in later commands, and can be taken back.

use super::Survivor;
use crate::rig::{Rig, fate, seen};
use stead_model::proto::{Ending, Status};

#[test]
fn an_exit_trap_of_the_user_runs_at_the_exit() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("trap 'echo bye' EXIT");
    assert_eq!(shell.out("echo not yet"), "not yet\n");
    let outcome = shell.run("kept=1; echo going; exit 3");
    assert_eq!(fate(&outcome), Ending { shell_exited: true, ..Ending::new(Status::Exited, Some(3)) });
    assert_eq!(outcome.stdout, b"going\nbye\n");
}

#[test]
fn an_exit_trap_of_the_user_is_still_set_in_the_shell_that_follows() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("trap 'echo bye' EXIT");
    for _ in 0..2 {
        assert_eq!(shell.run("exit 3").stdout, b"bye\n");
    }
    assert_eq!(shell.out("trap -p EXIT"), "trap -- 'echo bye' EXIT\n");
}

#[test]
fn an_exit_trap_taken_back_leaves_a_shell_that_keeps_its_state_at_exit() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("trap 'echo bye' EXIT");
    shell.run("trap - EXIT");
    assert_eq!(shell.run("cd /usr; exit 3").stdout, b"");
    assert_eq!(shell.out("echo alive"), "alive\n");
}

#[test]
fn a_debug_trap_fires_once_for_each_command_of_the_user() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("trap 'echo D' DEBUG");
    assert_eq!(shell.out("true; true"), "D\nD\n");
    assert_eq!(shell.out("v=1"), "D\n");
    assert_eq!(shell.out("echo $v"), "D\n1\n");
}

#[test]
fn a_debug_trap_taken_back_is_gone() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    shell.run("trap 'echo D' DEBUG");
    shell.run("trap - DEBUG");
    assert_eq!(shell.out("echo quiet"), "quiet\n");
    assert_eq!(shell.out("trap -p DEBUG"), "");
    survivor.check(&mut shell);
}

#[test]
fn under_a_debug_trap_commands_mean_what_they_mean_without() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    shell.run("trap ':' DEBUG");
    // As at a terminal: there is nothing to return from.
    assert_eq!(fate(&shell.run("return 7")), Ending::new(Status::Exited, Some(2)));
    assert_eq!(fate(&shell.run("fi")), Ending::new(Status::Exited, Some(2)));
    assert_eq!(fate(&shell.run("echo \"abc")), Ending::new(Status::Exited, Some(2)));
    assert_eq!(shell.out("cat <<'EOF'\ntext\n\nEOF\n"), "text\n\n");
    assert_eq!(shell.run("printf '%s' 'a\n\n'").stdout, b"a\n\n");
    survivor.check(&mut shell);
}

#[test]
fn a_debug_trap_that_refuses_commands_refuses_only_the_users() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("shopt -s extdebug; trap '[[ $BASH_COMMAND != \"echo forbidden\" ]]' DEBUG");
    assert_eq!(shell.run("echo forbidden; echo allowed").stdout, b"allowed\n");
    assert_eq!(shell.run("echo again").stdout, b"again\n");
}

#[test]
fn an_err_trap_fires_in_later_commands() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("trap 'echo E' ERR");
    assert_eq!(seen(&shell.run("false; true")), (Some(0), "E\n".into(), String::new()));
    assert_eq!(shell.out("true"), "");
    assert_eq!(seen(&shell.run("false")).0, Some(1));
    shell.run("trap - ERR");
    assert_eq!(seen(&shell.run("false")), (Some(1), String::new(), String::new()));
}

#[test]
fn an_interrupt_trap_fires_in_later_commands_and_the_command_goes_on() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    shell.run("trap 'echo I' INT");
    assert_eq!(shell.out("kill -INT $$; echo after"), "I\nafter\n");
    survivor.check(&mut shell);
}

#[test]
fn a_return_trap_fires_in_later_commands_for_what_returns_in_them() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    std::fs::write(rig.scratch().join("script"), "echo sourced\n").unwrap();
    shell.run("trap 'echo R' RETURN");
    assert_eq!(shell.out(". ./script; echo end"), "sourced\nR\nend\n");
    assert_eq!(shell.out("echo nothing returns"), "nothing returns\n");
    shell.run("trap - RETURN");
    assert_eq!(shell.out(". ./script"), "sourced\n");
}

#[test]
fn a_trap_on_a_signal_fires_in_a_later_command() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("trap 'echo got' USR1; trap '' USR2");
    assert_eq!(shell.out("kill -USR1 $$; kill -USR2 $$; echo on"), "got\non\n");
}

#[test]
fn traps_are_there_again_in_the_shell_that_follows_an_exit() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("trap 'echo got it' USR1; trap '' USR2; trap 'echo E' ERR");
    shell.run("exit 1");
    let expected = "trap -- 'echo got it' SIGUSR1\ntrap -- '' SIGUSR2\ntrap -- 'echo E' ERR\n";
    assert_eq!(shell.out("trap -p USR1; trap -p USR2; trap -p ERR"), expected);
}
