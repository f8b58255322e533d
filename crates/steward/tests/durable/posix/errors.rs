//! Errors, exits and violence, none of which may cost more than the command.

use super::{Bench, in_both};
use crate::rig::{Gate, code, is_alive, seen, wait_for};
use stead_model::proto::{Cancel, Exec, FirstSignal, Request, Status};

in_both! {
    a_syntax_error_is_confined_to_its_command
    an_unterminated_quote_or_document_is_confined_to_its_command
    an_unset_variable_under_nounset_ends_the_command_and_not_the_state
    a_failing_command_under_errexit_leaves_a_shell_that_works
    a_time_out_ends_the_command_and_keeps_the_shell
    a_cancellation_ends_the_command_and_keeps_the_shell
    a_loop_inside_the_shell_can_be_cancelled
    a_shell_whose_command_word_was_taken_is_replaced
    a_return_and_a_break_out_of_place_are_harmless
    an_exec_is_the_end_of_the_shell_and_its_status_the_commands
}

#[track_caller]
fn still_works(bench: &mut Bench) {
    assert_eq!(bench.shell.out("echo $mark; pwd; echo done"), "kept\n/usr\ndone\n");
}

fn mark(bench: &mut Bench) -> i32 {
    bench.shell.out("cd /usr; mark=kept");
    bench.shell.pid()
}

fn a_syntax_error_is_confined_to_its_command(bench: &mut Bench) {
    let pid = mark(bench);
    for text in ["if", "fi", "echo )", "for", "echo a; ;; echo b", "case x in"] {
        let (status, stdout, stderr) = seen(&bench.shell.run(text));
        assert_eq!((status, stdout.as_str()), (Some(2), ""), "{text}: {stderr}");
        assert!(stderr.contains("yntax error"), "{text}: {stderr}");
        still_works(bench);
    }
    assert_eq!(bench.shell.pid(), pid);
}

fn an_unterminated_quote_or_document_is_confined_to_its_command(bench: &mut Bench) {
    let pid = mark(bench);
    for text in ["echo \"abc", "echo 'abc", "echo $(", "echo `a", "echo ${x"] {
        let (status, stdout, stderr) = seen(&bench.shell.run(text));
        assert_eq!((status, stdout.as_str()), (Some(2), ""), "{text}: {stderr}");
        still_works(bench);
    }
    assert_eq!(bench.shell.run("cat <<EOF\nhi\n").stdout, b"hi\n");
    still_works(bench);
    assert_eq!(bench.shell.pid(), pid);
}

fn an_unset_variable_under_nounset_ends_the_command_and_not_the_state(bench: &mut Bench) {
    mark(bench);
    bench.shell.out("set -u");
    let (status, stdout, stderr) = seen(&bench.shell.run("echo before; echo $nowhere; echo behind"));
    assert_eq!((status, stdout.as_str()), (Some(2), "before\n"), "{stderr}");
    assert!(stderr.contains("nowhere"), "{stderr}");
    still_works(bench);
}

fn a_failing_command_under_errexit_leaves_a_shell_that_works(bench: &mut Bench) {
    mark(bench);
    let (status, stdout, _) = seen(&bench.shell.run("set -e; echo before; (exit 5); echo behind"));
    assert_eq!((status, stdout.as_str()), (Some(5), "before\n"));
    still_works(bench);
}

fn a_time_out_ends_the_command_and_keeps_the_shell(bench: &mut Bench) {
    let pid = mark(bench);
    let exec = Exec { timeout_ms: Some(100), ..bench.shell.exec("inside=yes; sleep 1000; echo behind") };
    let outcome = bench.shell.run_exec(exec);
    assert_eq!((outcome.info.status, outcome.stdout), (Status::TimedOut, Vec::new()));
    assert!(!outcome.info.ending.unwrap().shell_replaced);
    still_works(bench);
    assert_eq!((bench.shell.out("echo $inside"), bench.shell.pid()), ("yes\n".to_owned(), pid));
}

fn a_cancellation_ends_the_command_and_keeps_the_shell(bench: &mut Bench) {
    let pid = mark(bench);
    for first in [FirstSignal::Interrupt, FirstSignal::Terminate, FirstSignal::Kill] {
        let exec = bench.shell.exec("sleep 1000 & echo $!; sleep 1000");
        let command = exec.command.clone();
        bench.shell.submit(exec);
        let printed = |info: stead_model::proto::CommandInfo| (info.stdout_bytes > 0).then_some(());
        wait_for("it to run", || match bench.shell.client.request(&Request::Command(command.clone())) {
            Ok(stead_model::proto::Reply::Command(info)) => printed(*info),
            other => panic!("{other:?}"),
        });
        bench.shell.client.request(&Request::Cancel(Cancel { command: command.clone(), first })).unwrap();
        let outcome = bench.shell.silence_of(&command);
        assert_eq!(outcome.info.status, Status::Cancelled, "{first:?}");
        let child: i32 = String::from_utf8(outcome.stdout).unwrap().trim().parse().unwrap();
        wait_for("its background child to be gone too", || (!is_alive(child)).then_some(()));
        still_works(bench);
        assert_eq!(bench.shell.pid(), pid, "{first:?} cost the shell: {:?}", outcome.info.ending);
    }
}

fn a_loop_inside_the_shell_can_be_cancelled(bench: &mut Bench) {
    mark(bench);
    let exec = bench.shell.exec("echo begun; while :; do :; done");
    let command = exec.command.clone();
    bench.shell.submit(exec);
    bench
        .shell
        .client
        .request(&Request::Cancel(Cancel { command: command.clone(), first: FirstSignal::Interrupt }))
        .unwrap();
    assert_eq!(bench.shell.end_of(&command).info.status, Status::Cancelled);
    still_works(bench);
}

fn a_shell_whose_command_word_was_taken_is_replaced(bench: &mut Bench) {
    mark(bench);
    let outcome = bench.shell.run("command() { :; }");
    let ending = outcome.info.ending.unwrap();
    assert!(ending.shell_replaced, "{ending:?}");
    assert_eq!(ending.exit_code, None, "what it can't report is not made up");
    assert_eq!(ending.warnings.iter().map(|warning| warning.code.as_str()).collect::<Vec<_>>(), ["shell_mute"]);
    still_works(bench);
}

fn a_return_and_a_break_out_of_place_are_harmless(bench: &mut Bench) {
    let pid = mark(bench);
    for text in ["return 4", "break", "continue"] {
        bench.shell.run(text);
        still_works(bench);
    }
    assert_eq!(code(&bench.shell.run("return 4")), Some(4));
    assert_eq!(bench.shell.pid(), pid);
}

fn an_exec_is_the_end_of_the_shell_and_its_status_the_commands(bench: &mut Bench) {
    mark(bench);
    let mut gate = Gate::new(&bench.rig, "gate");
    gate.release();
    let outcome = bench.shell.run(format!("exec /bin/sh -c \"{}; echo out; exit 9\"", gate.wait()));
    let ending = outcome.info.ending.clone().unwrap();
    assert_eq!((seen(&outcome), ending.shell_exited), ((Some(9), "out\n".to_owned(), String::new()), true));
    still_works(bench);
}
