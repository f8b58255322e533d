//! Shells of one steward share the machine and nothing else: the isolation scenarios that others have tested before us.

use crate::rig::{Gate, Rig, TestShell, code, fate, open_shell, seen, wait_for};
use stead_model::frame::Stream;
use stead_model::proto::{Cancel, Ending, FaultCode, FirstSignal, Program, Read, ReadBytes, Reply, Request, Status};
use stead_model::state::Bytes;

fn shell_with(rig: &Rig, name: &str, env: &[(&str, &str)]) -> TestShell {
    let mut open = open_shell(name, Program::Bash, &rig.scratch());
    open.env.extend(env.iter().map(|(name, value)| (Bytes::from(name), Bytes::from(value))));
    TestShell::open(rig.client(), open)
}

#[test]
fn environments_are_apart() {
    let rig = Rig::new();
    let mut one = shell_with(
        &rig,
        "one",
        &[("NODE_ENV", "production"), ("API_KEY", "prod-key"), ("DB_HOST", "prod.example.com")],
    );
    let mut two =
        shell_with(&rig, "two", &[("NODE_ENV", "test"), ("API_KEY", "test-key"), ("DB_HOST", "test.example.com")]);
    let text = "echo \"$NODE_ENV|$API_KEY|$DB_HOST\"";
    assert_eq!(one.out(text), "production|prod-key|prod.example.com\n");
    assert_eq!(two.out(text), "test|test-key|test.example.com\n");
    one.run("export NEW_VAR=session1-only");
    assert_eq!(one.out("echo $NEW_VAR"), "session1-only\n");
    assert_eq!(two.out("echo \"value:$NEW_VAR\""), "value:\n");
}

#[test]
fn a_variable_can_be_set_again_and_again() {
    let rig = Rig::new();
    let mut one = rig.shell_named("one");
    let mut two = rig.shell_named("two");
    for value in ["first", "second", "third"] {
        one.run(format!("export V={value}"));
        two.run(format!("export V=not_{value}"));
        assert_eq!((one.out("printenv V"), two.out("printenv V")), (format!("{value}\n"), format!("not_{value}\n")));
    }
}

#[test]
fn directories_are_apart() {
    let rig = Rig::new();
    let scratch = rig.scratch();
    for dir in ["app/src", "test/unit"] {
        std::fs::create_dir_all(scratch.join(dir)).unwrap();
    }
    let mut one = TestShell::open(rig.client(), open_shell("one", Program::Bash, &scratch.join("app")));
    let mut two = TestShell::open(rig.client(), open_shell("two", Program::Bash, &scratch.join("test")));
    let in_scratch = |dir: &str| format!("{}/{dir}\n", scratch.display());
    assert_eq!((one.out("pwd"), two.out("pwd")), (in_scratch("app"), in_scratch("test")));
    one.run("cd src");
    two.run("cd unit");
    assert_eq!((one.out("pwd"), two.out("pwd")), (in_scratch("app/src"), in_scratch("test/unit")));
}

#[test]
fn a_directory_reached_through_a_symbolic_link_keeps_its_name() {
    let rig = Rig::new();
    let scratch = rig.scratch();
    std::fs::create_dir(scratch.join("real")).unwrap();
    std::os::unix::fs::symlink(scratch.join("real"), scratch.join("link")).unwrap();
    let mut shell = rig.shell();
    shell.run("cd link");
    let expected = format!("{0}/link\n{0}/real\n", scratch.display());
    assert_eq!(shell.out("pwd; pwd -P"), expected);
    shell.run("exit 1");
    assert_eq!(shell.out("pwd; pwd -P"), expected);
    assert_eq!(shell.out("cd ..; pwd"), format!("{}\n", scratch.display()));
}

#[test]
fn functions_and_aliases_are_apart() {
    let rig = Rig::new();
    let mut one = rig.shell_named("one");
    let mut two = rig.shell_named("two");
    one.run("greet() { echo \"Hello from one: $1\"; }; alias hi='greet alias'");
    assert_eq!(one.out("greet x"), "Hello from one: x\n");
    assert_eq!((code(&two.run("greet x")), code(&two.run("hi"))), (Some(127), Some(127)));
    two.run("greet() { echo \"Hello from two: $1\"; }");
    assert_eq!((one.out("greet x"), two.out("greet x")), ("Hello from one: x\n".into(), "Hello from two: x\n".into()));
}

#[test]
fn options_masks_and_traps_are_apart() {
    let rig = Rig::new();
    let mut one = rig.shell_named("one");
    let mut two = rig.shell_named("two");
    one.run("set -f; umask 077; trap 'echo got' USR1; shopt -s nullglob");
    assert_eq!(
        two.out("shopt -qo noglob || echo off; umask; trap -p USR1; shopt -q nullglob || echo off"),
        "off\n0022\noff\n"
    );
}

#[test]
fn processes_are_shared() {
    let rig = Rig::new();
    let mut one = rig.shell_named("one");
    let mut two = rig.shell_named("two");
    let pid = one.out("sleep 1000 >/dev/null 2>&1 & echo $!");
    let pid = pid.trim_end();
    assert_eq!(two.out(&format!("ps -o comm= -p {pid}")), "sleep\n");
    assert_eq!(two.out(&format!("kill {pid}")), "");
    assert_eq!(code(&one.run(format!("wait {pid}"))), Some(143));
    assert_eq!(code(&two.run(format!("kill -0 {pid} 2>/dev/null"))), Some(1));
}

#[test]
fn files_are_shared() {
    let rig = Rig::new();
    let mut one = rig.shell_named("one");
    let mut two = rig.shell_named("two");
    one.run("echo 'written by one' >shared");
    assert_eq!(two.out("cat shared"), "written by one\n");
    two.run("echo 'changed by two' >>shared");
    assert_eq!(one.out("cat shared"), "written by one\nchanged by two\n");
}

#[test]
fn commands_of_different_shells_run_at_the_same_time_and_do_not_mix() {
    let rig = Rig::new();
    let mut one = rig.shell_named("one");
    let mut two = rig.shell_named("two");
    // Each can only end after the other has begun.
    one.run("mkfifo to_one to_two");
    let first = one.submit(one.exec("echo one begins; echo from one >to_two; cat to_one; echo one ends")).command;
    let second = two.submit(two.exec("echo two begins; cat to_two; echo from two >to_one; echo two ends")).command;
    assert_eq!(seen(&two.end_of(&second)), (Some(0), "two begins\nfrom one\ntwo ends\n".into(), String::new()));
    assert_eq!(seen(&one.end_of(&first)), (Some(0), "one begins\nfrom two\none ends\n".into(), String::new()));
}

#[test]
fn commands_fired_together_at_one_shell_each_get_their_own_output() {
    let rig = Rig::new();
    let shell = rig.shell();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let start = |n: usize| {
            let exec =
                shell.exec(format!("echo START-{n}; sleep 0.01; echo END-{n} >&2; echo END-{n}; count=$((count + 1))"));
            let mut client = rig.client();
            scope.spawn(move || (n, client.exec(exec).unwrap()))
        };
        let threads: Vec<_> = (0..8).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (n, outcome) in outcomes {
        assert_eq!(seen(&outcome), (Some(0), format!("START-{n}\nEND-{n}\n"), format!("END-{n}\n")));
    }
    let mut shell = shell;
    assert_eq!(shell.out("echo $count"), "8\n");
}

#[test]
fn a_closed_shell_is_forgotten_and_the_others_live_on() {
    let rig = Rig::new();
    let mut one = rig.shell_named("one");
    let mut two = rig.shell_named("two");
    two.run("kept=2");
    let done = one.run("marker=was_here; echo done").info.command;
    assert_eq!(one.client.request(&Request::CloseShell(one.id.clone())).unwrap(), Reply::Done);
    // Neither the shell nor its commands come back by being asked for.
    assert_eq!(one.client.exec(one.exec("echo x")).unwrap_err().fault(), Some(FaultCode::NotFound));
    assert_eq!(one.client.request(&Request::Command(done)).unwrap_err().fault(), Some(FaultCode::NotFound));
    assert_eq!(
        one.client.request(&Request::CloseShell(one.id.clone())).unwrap_err().fault(),
        Some(FaultCode::NotFound)
    );
    let mut one = rig.shell_named("one");
    assert_eq!(one.out("echo \"marker:$marker\""), "marker:\n");
    assert_eq!(two.out("echo $kept"), "2\n");
}

#[test]
fn an_exit_in_one_shell_is_recovered_from_and_not_noticed_by_another() {
    let rig = Rig::new();
    let mut one = rig.shell_named("one");
    let mut two = rig.shell_named("two");
    let pid = two.pid();
    one.run("export MARKER=before");
    assert_eq!(fate(&one.run("exit 42")), Ending { shell_exited: true, ..Ending::new(Status::Exited, Some(42)) });
    assert_eq!(one.out("echo \"marker:$MARKER\""), "marker:before\n");
    assert_eq!(two.out("echo \"marker:$MARKER $$\""), format!("marker: {pid}\n"));
}

#[test]
fn a_command_that_ends_at_once_has_a_record_and_its_output() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let exec = shell.exec("echo quick; echo err >&2; (exit 2)");
    let command = shell.submit(exec).command;
    let ended = shell.end_of(&command).info;
    assert_eq!((ended.status, ended.stdout_bytes, ended.stderr_bytes), (Status::Exited, 6, 4));
    let read = Read { command, stream: Stream::Stdout, offset: 2, length: 100 };
    let reply = shell.client.request(&Request::Read(read)).unwrap();
    assert_eq!(reply, Reply::Bytes(ReadBytes { bytes: "ick\n".into(), total: 6 }));
}

#[test]
fn a_command_is_not_held_up_by_one_in_the_background() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut gate = Gate::new(&rig, "gate");
    shell.run(format!("({}; echo late) & background=$!", gate.wait()));
    assert_eq!(shell.out("kill -0 $background && echo alive"), "alive\n");
    gate.release();
    assert_eq!(code(&shell.run("wait $background")), Some(0));
}

#[test]
fn a_cancelled_command_takes_its_tree_of_processes_with_it() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let pid = shell.pid();
    shell.run("kept=1");
    let mut exec = shell
        .exec("trap '' INT TERM; bash -c \"trap '' INT TERM; bash -c 'trap \\\"\\\" INT TERM; sleep 1000; :' ; :\"; :");
    exec.grace_ms = Some(200);
    let command = shell.submit(exec).command;
    wait_for("the deepest of them", || (stead_term::proc::of_session(pid).len() == 4).then_some(()));
    shell.client.request(&Request::Cancel(Cancel { command: command.clone(), first: FirstSignal::Terminate })).unwrap();
    assert_eq!(shell.end_of(&command).info.status, Status::Cancelled);
    assert_eq!(
        stead_term::proc::of_session(pid).into_iter().filter(|stat| stat.pid != pid && stat.state != b'Z').count(),
        0
    );
    assert_eq!(shell.out("echo $kept"), "1\n");
}
