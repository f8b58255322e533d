//! What a command does to descriptors: they are the user's, and ours can't be hurt. What it does to the shell's own
//! outputs is in `redirections`.

use super::Survivor;
use crate::rig::{Gate, Rig, fate, seen};
use stead_model::proto::{Ending, Status};

#[test]
fn a_reader_of_standard_input_gets_end_of_file_at_once() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    assert_eq!(shell.out("cat"), "");
    assert_eq!(seen(&shell.run("read -r x")), (Some(1), String::new(), String::new()));
    assert_eq!(shell.out("wc -c"), "0\n");
    survivor.check(&mut shell);
}

#[test]
fn standard_input_redirected_for_good_does_not_turn_the_shell_from_us() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    assert_eq!(shell.out("echo 'echo stolen' >script; exec <script; read -r line; echo $line"), "echo stolen\n");
    assert_eq!(shell.out("cat"), "");
    survivor.check(&mut shell);
}

#[test]
fn a_descriptor_opened_by_one_command_is_open_in_the_next() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("exec 5>f");
    shell.run("echo one >&5");
    shell.run("echo two >&5; exec 5>&-");
    assert_eq!(shell.out("cat f; (echo three >&5) 2>/dev/null || echo closed"), "one\ntwo\nclosed\n");
}

#[test]
fn two_writers_to_the_device_of_standard_error_lose_nothing() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let outcome = shell.run("echo a >/dev/stderr; echo b >/dev/stderr; echo c >/dev/stdout; echo d >/dev/stdout");
    assert_eq!(seen(&outcome), (Some(0), "c\nd\n".into(), "a\nb\n".into()));
}

#[test]
fn a_background_child_that_holds_the_streams_does_not_hold_the_command() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut gate = Gate::new(&rig, "gate");
    let outcome = shell.run(format!("{{ {}; echo late; }} & echo done", gate.wait()));
    assert_eq!(seen(&outcome), (Some(0), "done\n".into(), String::new()));
    assert!(outcome.info.ending.as_ref().unwrap().streams_open);
    assert_eq!(shell.out("echo next"), "next\n");
    gate.release();
    assert_eq!(shell.silence_of(&outcome.info.command).stdout, b"done\nlate\n");
}

#[test]
fn a_job_of_an_earlier_command_can_be_listed_killed_and_waited_for() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("sleep 1000 >/dev/null 2>&1 & job=$!");
    let (code, stdout, _) = seen(&shell.run("jobs"));
    assert_eq!(code, Some(0));
    assert!(stdout.contains("Running") && stdout.contains("sleep 1000"), "{stdout}");
    assert_eq!(seen(&shell.run("kill %1; wait $job")).0, Some(143));
}

#[test]
fn a_coprocess_can_be_talked_to_by_later_commands() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("coproc sed -u 's/^/heard /'");
    assert_eq!(shell.out("echo one >&${COPROC[1]}; read -r x <&${COPROC[0]}; echo $x"), "heard one\n");
    assert_eq!(shell.out("echo two >&${COPROC[1]}; read -r x <&${COPROC[0]}; echo $x"), "heard two\n");
    shell.run("kill $COPROC_PID");
}

#[test]
fn output_through_a_process_substitution_is_kept_even_when_it_comes_late() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut gate = Gate::new(&rig, "gate");
    let outcome = shell.run(format!("echo hi > >({}; sed 's/^/late /')", gate.wait()));
    assert_eq!(seen(&outcome), (Some(0), String::new(), String::new()));
    gate.release();
    assert_eq!(shell.silence_of(&outcome.info.command).stdout, b"late hi\n");
}

#[test]
fn late_output_never_lands_in_the_next_command() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let (mut first_gate, mut second_gate) = (Gate::new(&rig, "first"), Gate::new(&rig, "second"));
    let first = shell.run(format!("{{ {}; echo late; echo late >&2; }} & disown", first_gate.wait())).info.command;
    let exec = shell.exec(format!("{}; echo second", second_gate.wait()));
    let second = shell.submit(exec).command;
    first_gate.release();
    assert_eq!(seen(&shell.silence_of(&first)), (Some(0), "late\n".into(), "late\n".into()));
    second_gate.release();
    assert_eq!(seen(&shell.end_of(&second)), (Some(0), "second\n".into(), String::new()));
}

#[test]
fn a_nested_shell_ends_for_want_of_input() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    assert_eq!(shell.out("bash"), "");
    assert_eq!(fate(&shell.run("bash -i")), Ending::new(Status::Exited, Some(0)));
    assert_eq!(shell.out("bash -c 'echo nested; exit 0'"), "nested\n");
    survivor.check(&mut shell);
}

#[test]
fn the_terminal_can_be_set_through_its_device() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    assert_eq!(shell.out("stty rows 33 cols 77 </dev/tty; stty size </dev/tty"), "33 77\n");
    shell.run("stty raw -echo -isig </dev/tty");
    assert_eq!(seen(&shell.run("stty -a")).0, Some(1));
    survivor.check(&mut shell);
}

#[test]
fn what_is_written_to_the_terminal_is_not_output() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    assert_eq!(shell.out("echo seen; head -c 300000 /dev/zero | tr '\\0' x >/dev/tty"), "seen\n");
}

#[test]
fn a_shell_with_room_for_few_descriptors_still_runs_commands() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    assert_eq!(shell.out("ulimit -n 10; echo one; /bin/echo two"), "one\ntwo\n");
    assert_eq!(shell.out("echo three; /bin/echo four"), "three\nfour\n");
}

#[test]
fn a_shell_that_may_not_write_files_still_runs_commands() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    assert_eq!(shell.out("ulimit -f 0; echo one"), "one\n");
    assert_eq!(shell.out("v=2; echo two"), "two\n");
    assert_eq!(shell.out("echo $v"), "2\n");
}

#[test]
fn noclobber_is_about_files_of_the_user() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    shell.run("set -C; echo x >f");
    let (code, _, stderr) = seen(&shell.run("echo y >f"));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("cannot overwrite existing file"), "{stderr}");
    assert_eq!(shell.out("v=1; cat f"), "x\n");
    survivor.check(&mut shell);
}
