//! Where a command points the shell's own outputs, there those of the next commands go, as at a prompt.

use super::Survivor;
use super::continuity::as_at_a_prompt;
use crate::rig::{Gate, Rig, TestShell, fate, kill_steward, seen};
use stead_model::proto::Status;
use stead_steward::client::Outcome;

fn warned(outcome: &Outcome) -> Vec<String> {
    outcome.info.ending.as_ref().unwrap().warnings.iter().map(|warning| warning.code.clone()).collect()
}

fn again(rig: &Rig, shell: TestShell) -> TestShell {
    TestShell { client: rig.client(), id: shell.id }
}

#[test]
fn what_is_redirected_stays_so() {
    as_at_a_prompt(&[
        &["exec 2>errors.txt", "echo one >&2", "echo out; echo two >&2", "cat errors.txt"],
        &["exec >out.txt", "echo hidden", "x=1; echo more $x"],
        &["exec >out.txt 2>&1", "echo hidden; echo err >&2"],
        &["exec 3>&1; exec >out.txt", "echo hidden", "exec 1>&3", "echo back", "x=1; echo again"],
        &["exec 3>&1 >out.txt; echo seen >&3", "echo hidden", "exec 1>&3 3>&-", "echo back"],
        &["exec 2>>log", "echo a >&2", "exec 2>&1", "echo b >&2", "echo c >&2"],
        &["exec 2>>log; echo now >&2", "echo a >&2; exec 2>>other", "echo b >&2"],
        &["exec 3>&2 2>log", "echo a >&2", "exec 2>&3", "echo not in the log >&2", "cat log"],
        &["exec 3<>file", "echo x >&3", "cat file"],
        &["exec >/dev/null", "echo gone"],
        &["exec 2>/dev/null", "echo gone >&2", "echo here"],
        &["f() { exec 2>errors.txt; }", "f", "echo e >&2"],
        &["(exec 2>errors.txt; echo sub >&2)", "echo out"],
        &["eval 'exec 2>errors.txt'", "echo e >&2"],
        &["echo 'exec 2>errors.txt' >script", ". ./script", "echo e >&2"],
        &["alias quiet='exec 2>errors.txt'", "quiet", "echo e >&2"],
        &["e=exec", "$e 2>errors.txt", "echo e >&2"],
        &["if true; then exec 2>errors.txt; fi", "echo e >&2"],
        &["exec 2>&-", "echo x >&2; echo $?", "echo out"],
        &["exec >&-", "echo x || touch failed"],
        &["exec >&- 2>&-", "touch made; x=5", "echo $x >kept"],
        &["set -C", "exec 2>e1", "echo a >&2", "exec 2>e1 || echo refused", "echo b >&2"],
        &["exec 2>e1", "false | true | (exit 3)", "echo \"$? ${PIPESTATUS[@]}\""],
        &["exec 2>e1", "(exit 3)", "echo $?", "echo $? >&2"],
        &["trap 'echo t >&2' USR1", "exec 2>e1", "kill -USR1 $$", "echo z >&2"],
        &["exec 2>e1", "cat <<EOF >&2\nit's\nEOF", "cat e1"],
        &["exec 5>f", "echo one >&5", "exec 5>&-", "cat f"],
    ]);
}

#[test]
fn a_command_whose_output_went_elsewhere_says_so() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    let file = rig.scratch().join("f");
    assert_eq!(warned(&shell.run("exec >f; echo into the file")), ["stdout_redirected"]);
    let outcome = shell.run("echo more; echo error >&2");
    assert_eq!(seen(&outcome), (Some(0), String::new(), "error\n".into()));
    assert_eq!((outcome.info.stdout_bytes, warned(&outcome)), (0, vec!["stdout_redirected".to_owned()]));
    let message = outcome.info.ending.as_ref().unwrap().warnings[0].message.clone();
    assert!(message.contains(&format!("`{}`", file.display())), "{message}");
    assert_eq!(warned(&shell.run("exec 2>&-")), ["stdout_redirected", "stderr_redirected"]);
    let outcome = shell.run("exec >/dev/tty 2>/dev/tty");
    assert_eq!((fate(&outcome).exit_code, warned(&outcome)), (Some(0), vec![]));
    assert_eq!(seen(&shell.run("echo out; echo err >&2")), (Some(0), "out\n".into(), "err\n".into()));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "into the file\nmore\n");
    survivor.check(&mut shell);
}

#[test]
fn a_command_that_may_redirect_and_does_not_is_like_any_other() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let outcome = shell.run("eval 'echo out; echo err >&2; (exit 3)'");
    assert_eq!(seen(&outcome), (Some(3), "out\n".into(), "err\n".into()));
    let ending = outcome.info.ending.as_ref().unwrap();
    assert_eq!((ending.streams_open, warned(&outcome)), (false, vec![]));
    assert_eq!(seen(&shell.run("echo $?; echo err >&2")), (Some(0), "3\n".into(), "err\n".into()));
}

#[test]
fn redirections_last_when_the_steward_dies() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("exec 3>&1 2>errors >out");
    kill_steward(&rig);
    let mut shell = again(&rig, shell);
    let outcome = shell.run("echo o; echo e >&2");
    assert_eq!(seen(&outcome), (Some(0), String::new(), String::new()));
    assert_eq!(warned(&outcome), ["stdout_redirected", "stderr_redirected"]);
    shell.run("exec 1>&3 3>&-");
    kill_steward(&rig);
    let mut shell = again(&rig, shell);
    assert_eq!(seen(&shell.run("cat out errors; echo e2 >&2")), (Some(0), "o\ne\n".into(), String::new()));
    assert_eq!(shell.run("cat errors").stdout, b"e\ne2\n");
}

#[test]
fn a_redirection_that_was_made_when_no_steward_was_there_is_seen() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut gate = Gate::new(&rig, "gate");
    let exec = shell.exec(format!("echo first; {}; exec 2>errors; echo second; echo e >&2", gate.wait()));
    let id = shell.submit(exec).command;
    kill_steward(&rig);
    gate.release();
    let mut shell = again(&rig, shell);
    let outcome = shell.end_of(&id);
    assert_eq!(seen(&outcome), (Some(0), "first\nsecond\n".into(), String::new()));
    assert_eq!(warned(&outcome), ["stderr_redirected"]);
    shell.run("echo more >&2");
    assert_eq!(shell.run("cat errors").stdout, b"e\nmore\n");
}

#[test]
fn a_redirection_by_a_command_that_is_stopped_ends_with_it() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    let mut exec = shell.exec("exec 2>errors; sleep 1000");
    exec.timeout_ms = Some(100);
    let outcome = shell.run_exec(exec);
    assert_eq!((fate(&outcome).status, warned(&outcome)), (Status::TimedOut, vec![]));
    assert_eq!(seen(&shell.run("echo e >&2")).2, "e\n");
    survivor.check(&mut shell);
}

#[test]
fn a_command_whose_outputs_both_go_elsewhere_can_be_stopped() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    shell.run("exec >out 2>errors");
    let mut exec = shell.exec("echo o; sleep 1000");
    exec.timeout_ms = Some(100);
    assert_eq!(fate(&shell.run_exec(exec)).status, Status::TimedOut);
    shell.run("exec >/dev/tty 2>&1");
    assert_eq!(shell.out("cat out errors"), "o\n");
    survivor.check(&mut shell);
}

#[test]
fn a_new_shell_of_a_new_steward_has_outputs_of_its_own() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("exec >f 2>&1");
    shell.run("exit 3");
    kill_steward(&rig);
    let mut shell = again(&rig, shell);
    assert_eq!(seen(&shell.run("echo out; echo err >&2")), (Some(0), "out\n".into(), "err\n".into()));
}

#[test]
fn closing_every_descriptor_there_may_be_gives_outputs_back() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("exec 2>errors");
    shell.run("for ((fd = 200; fd < 255; fd++)); do eval \"exec $fd>&-\"; done");
    shell.run("exec 2>errors; for ((fd = 200; fd < 255; fd++)); do eval \"exec $fd>&-\"; done");
    assert_eq!(fate(&shell.run("echo out; echo err >&2")).exit_code, Some(0));
    assert_eq!(shell.out("cat errors"), "err\n");
}

#[test]
fn programs_do_not_see_the_descriptors_that_keep_a_redirection() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("exec 3>&1 2>errors");
    shell.run("sleep 1000 >/dev/null 2>&1 3>&- &");
    let seen = shell.out("sh -c 'ls /proc/self/fd'; ls -l /proc/$!/fd | grep -c errors; kill $!");
    assert_eq!(seen, "0\n1\n2\n3\n4\n0\n");
}

#[test]
fn redirections_end_with_the_shell() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("exec >f 2>&1");
    shell.run("exit 3");
    let outcome = shell.run("echo out; echo err >&2");
    assert_eq!(seen(&outcome), (Some(0), "out\n".into(), "err\n".into()));
    assert_eq!(warned(&outcome), Vec::<String>::new());
    shell.run("exec >f 2>&1");
    shell.kill();
    assert_eq!(seen(&shell.run("echo out; echo err >&2")), (Some(0), "out\n".into(), "err\n".into()));
}

#[test]
fn a_program_in_place_of_the_shell_has_the_streams_of_its_command() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let outcome = shell.run("exec sh -c 'echo out; echo err >&2; exit 4'");
    assert_eq!(seen(&outcome), (Some(4), "out\n".into(), "err\n".into()));
    assert!(fate(&outcome).shell_exited);
    assert_eq!(shell.out("echo alive"), "alive\n");
}
