//! How commands end, and shells with them.

use super::queue::Gate;
use super::{Ground, refusal};
use crate::bench::{exec, until};
use std::time::Duration;
use stead_model::proto::{CommandInfo, Exec, FaultCode, FirstSignal, Status};

pub(crate) async fn leaving_the_shell_keeps_what_was_set_before(ground: &Ground) {
    let shell = ground.shell("main").await;
    shell.run("export KEPT=before").await;
    let outcome = shell.run("cd /usr; v=1; f() { echo f; }; echo out; exit 42; v=2").await;
    let ending = outcome.ending();
    assert_eq!((ending.status, ending.exit_code, ending.shell_exited), (Status::Exited, Some(42), true));
    assert_eq!(outcome.stdout, b"out\n");
    assert_eq!(shell.out("echo $? $KEPT $v; f; pwd").await, "0 before 1\nf\n/usr\n");
    assert!(!shell.run("(exit 3)").await.ending().shell_exited);
}

pub(crate) async fn an_error_in_the_text_is_the_commands_own(ground: &Ground) {
    let shell = ground.shell("main").await;
    shell.run("v=1; cd /usr").await;
    for text in
        ["if", "echo 'unterminated", "echo \"unterminated", "echo $(", "(", ")", "fi", "case x in", "f() {", "echo `x"]
    {
        let outcome = shell.run(text).await;
        assert_eq!((outcome.ending().status, outcome.stdout.len()), (Status::Exited, 0), "{text}");
        assert!(outcome.code().is_some_and(|code| code != 0), "{text}: {outcome:?}");
        assert!(!outcome.stderr.is_empty(), "{text}");
    }
    assert_eq!(shell.out("echo $v; pwd").await, "1\n/usr\n");
    assert_eq!(shell.run("no-such-command").await.code(), Some(127));
    assert_eq!(shell.run("/etc/passwd").await.code(), Some(126));
}

pub(crate) async fn a_shell_that_is_replaced_or_killed_comes_back_as_it_was(ground: &Ground) {
    let shell = ground.shell("main").await;
    shell.run("v=before; cd /usr").await;
    for (text, code, signal) in [
        ("v=after; exec false", 1, None),
        ("v=after; exec bash -c 'exit 9'", 9, None),
        ("v=after; kill -9 $$; sleep 1000", 137, Some(9)),
    ] {
        let outcome = shell.run(text).await;
        let ending = outcome.ending();
        let seen = (ending.status, ending.exit_code, ending.shell_exited, ending.signal);
        assert_eq!(seen, (Status::Exited, Some(code), true, signal), "{text}");
        assert_eq!(shell.out("echo $v; pwd").await, "before\n/usr\n", "{text}");
    }
}

pub(crate) async fn a_shell_that_ends_at_the_first_error_comes_back_without_that(ground: &Ground) {
    let shell = ground.shell("main").await;
    shell.run("v=1; set -e").await;
    let outcome = shell.run("echo before; v=2; false; echo after").await;
    assert_eq!((outcome.code(), outcome.ending().shell_exited), (Some(1), true));
    assert_eq!(outcome.stdout, b"before\n");
    assert_eq!(shell.run("false; echo alive $v").await.seen().1, "alive 2\n");
}

pub(crate) async fn a_timeout_ends_the_command_and_keeps_the_state_before_it(ground: &Ground) {
    let shell = ground.shell("main").await;
    shell.run("v=before; cd /usr").await;
    let slow = Exec { timeout_ms: Some(300), ..exec("echo begun; sleep 1000 | sleep 1001; echo ended") };
    let outcome = shell.run_exec(slow).await;
    assert_eq!((outcome.ending().status, outcome.code()), (Status::TimedOut, Some(-1)));
    assert_eq!(outcome.stdout, b"begun\n");
    until("no process to be left", || !any_sleeper(ground)).await;
    assert_eq!(shell.out("echo $v; pwd").await, "before\n/usr\n");
    let quick = Exec { timeout_ms: Some(60_000), ..exec("echo quick") };
    assert_eq!(shell.run_exec(quick).await.seen(), (Some(0), "quick\n".to_owned(), String::new()));
}

fn any_sleeper(ground: &Ground) -> bool {
    ground
        .bench
        .processes()
        .iter()
        .any(|stat| std::fs::read_to_string(format!("/proc/{}/comm", stat.pid)).is_ok_and(|comm| comm == "sleep\n"))
}

pub(crate) async fn a_timeout_ends_what_ignores_it(ground: &Ground) {
    let shell = ground.shell("main").await;
    shell.run("v=before").await;
    let stubborn = "bash -c \"trap '' INT TERM HUP; sleep 1000; sleep 1001; sleep 1002\"";
    let slow = Exec { timeout_ms: Some(300), grace_ms: Some(300), ..exec(stubborn) };
    let outcome = tokio::time::timeout(Duration::from_secs(20), shell.run_exec(slow)).await.unwrap();
    assert_eq!((outcome.ending().status, outcome.code()), (Status::TimedOut, Some(-1)));
    until("no process to be left", || !any_sleeper(ground)).await;
    assert_eq!(shell.out("echo $v").await, "before\n");
}

pub(crate) async fn a_running_command_is_cancelled(ground: &Ground) {
    let shell = ground.shell("main").await;
    shell.run("v=before; cd /usr").await;
    for first in [FirstSignal::Interrupt, FirstSignal::Terminate, FirstSignal::Kill] {
        let begun = ground.outside("begun");
        let long = exec(format!("echo begun; touch {}/begun; sleep 1000", ground.cwd()));
        let running = {
            let (shell, long) = (shell.clone(), long.clone());
            tokio::spawn(async move { shell.run_exec(long).await })
        };
        until("it to run", || begun.exists()).await;
        shell.runtime.cancel(&long.command, first).await.unwrap();
        let outcome = running.await.unwrap();
        assert_eq!((outcome.ending().status, outcome.code()), (Status::Cancelled, Some(130)), "{first:?}");
        assert_eq!(outcome.stdout, b"begun\n");
        until("no process to be left", || !any_sleeper(ground)).await;
        assert_eq!(shell.out("echo $v; pwd").await, "before\n/usr\n");
        std::fs::remove_file(begun).unwrap();
    }
}

pub(crate) async fn a_waiting_command_is_cancelled_before_it_runs(ground: &Ground) {
    let shell = ground.shell("main").await;
    let mut gate = Gate::new(ground);
    let running = gate.running(&shell).await;
    let (waiting, more) = (exec("touch ran"), exec("echo more"));
    let [cancelled, other] = [&waiting, &more].map(|exec| {
        let (shell, exec) = (shell.clone(), exec.clone());
        tokio::spawn(async move { shell.run_exec(exec).await })
    });
    // Both are in: a third would be refused, and cancelling one that isn't there too.
    crate::runtime::queue::until_waiting(&shell, &waiting).await;
    shell.runtime.cancel(&waiting.command, FirstSignal::Interrupt).await.unwrap();
    let outcome = tokio::time::timeout(Duration::from_secs(20), cancelled).await.unwrap().unwrap();
    assert_eq!((outcome.ending().status, outcome.code()), (Status::Cancelled, Some(-1)));
    assert_eq!(outcome.info.started_at, None);
    gate.release();
    assert_eq!(running.await.unwrap().code(), Some(0));
    assert_eq!(other.await.unwrap().stdout, b"more\n");
    assert!(!ground.outside("ran").exists());
}

pub(crate) async fn a_command_that_ended_is_not_cancelled(ground: &Ground) {
    let shell = ground.shell("main").await;
    let ended = shell.run("v=1; (exit 3)").await.info;
    let told = shell.runtime.cancel(&ended.command, FirstSignal::Kill).await.unwrap();
    assert_eq!(told, CommandInfo { state: None, ..ended });
    assert_eq!(shell.out("echo $? $v").await, "3 1\n");
}

pub(crate) async fn a_command_that_nobody_knows_is_not_cancelled(ground: &Ground) {
    let shell = ground.shell("main").await;
    let answer = shell.runtime.cancel(&exec("never").command, FirstSignal::Kill).await;
    assert_eq!(refusal(answer), FaultCode::NotFound);
}
