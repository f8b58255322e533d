//! A shell without a process: it rests, and goes on as if nothing had been. And one whose state is put in its place.

use crate::rig::{Gate, Rig, TestShell, is_alive, kill, wait_for};
use stead_model::proto::{FaultCode, Reply, Request, SetState, StoredState};
use stead_steward::client::ClientError;

fn rest(shell: &mut TestShell) -> Result<Reply, ClientError> {
    shell.client.request(&Request::RestShell(shell.id.clone()))
}

fn state(shell: &mut TestShell) -> StoredState {
    match shell.client.request(&Request::State(shell.id.clone())).unwrap() {
        Reply::State(state) => state,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_shell_that_rests_has_no_process_and_wakes_with_its_state_and_its_history() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let first = shell.run("cd /usr; kept=yes; f() { echo f $kept; }; echo one");
    let pid = shell.pid();
    assert!(matches!(rest(&mut shell), Ok(Reply::Done)));
    assert!(!is_alive(pid));
    let Reply::Shell(info) = shell.client.request(&Request::Shell(shell.id.clone())).unwrap() else { panic!() };
    assert_eq!((info.pid, info.state_version), (None, 1));
    assert!(matches!(rest(&mut shell), Ok(Reply::Done)), "resting twice is resting");
    assert_eq!(shell.end_of(&first.info.command).stdout, b"one\n");
    assert_eq!(shell.out("f; pwd"), "f yes\n/usr\n");
    assert_ne!(shell.pid(), pid);
}

#[test]
fn a_resting_shell_outlives_its_steward_and_keeper() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("cd /usr; kept=yes");
    rest(&mut shell).unwrap();
    let (keeper, steward) = (rig.keeper_pid(), rig.steward_pid());
    for pid in [keeper, steward] {
        stead_term::proc::signal(pid, rustix::process::Signal::STOP);
    }
    for pid in [keeper, steward] {
        kill(pid);
    }
    rig.start();
    let mut shell = TestShell { client: rig.client(), id: shell.id };
    let outcome = shell.run("echo $kept $PWD");
    assert_eq!(outcome.stdout, b"yes /usr\n");
    assert_eq!(outcome.info.ending.unwrap().warnings, []);
    rest(&mut shell).unwrap();
    let steward = rig.steward_pid();
    kill(steward);
    wait_for("another steward", || (rig.steward_pid() != steward).then_some(()));
    let mut shell = TestShell { client: rig.client(), id: shell.id };
    assert_eq!(shell.out("echo $kept $PWD"), "yes /usr\n");
}

#[test]
fn a_busy_shell_neither_rests_nor_takes_another_state() {
    let rig = Rig::new();
    let mut gate = Gate::new(&rig, "gate");
    let mut shell = rig.shell();
    let stored = state(&mut shell);
    let running = shell.exec(format!("{}; echo done", gate.wait()));
    shell.submit(running.clone());
    assert_eq!(rest(&mut shell).unwrap_err().fault(), Some(FaultCode::Busy));
    let set = SetState { shell: shell.id.clone(), state: stored.state, version: stored.version + 1 };
    let answer = shell.client.request(&Request::SetState(Box::new(set)));
    assert_eq!(answer.unwrap_err().fault(), Some(FaultCode::Busy));
    gate.release();
    assert_eq!(shell.end_of(&running.command).stdout, b"done\n");
}

#[test]
fn a_state_that_is_set_holds_from_the_next_command_on_and_over_a_kill() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("cd /usr; x=old; f() { echo f $x; }");
    let old = state(&mut shell);
    shell.run("cd /tmp; x=new; unset -f f");
    let set = SetState { shell: shell.id.clone(), state: old.state.clone(), version: 9 };
    let Reply::Shell(info) = shell.client.request(&Request::SetState(Box::new(set))).unwrap() else { panic!() };
    assert_eq!((info.state_version, &*info.cwd), (9, b"/usr".as_slice()));
    let steward = rig.steward_pid();
    kill(steward);
    wait_for("another steward", || (rig.steward_pid() != steward).then_some(()));
    let mut shell = TestShell { client: rig.client(), id: shell.id };
    let outcome = shell.run("f; pwd");
    assert_eq!((outcome.stdout.as_slice(), outcome.info.state_version), (b"f old\n/usr\n".as_slice(), 10));
    let back = SetState { shell: shell.id.clone(), state: old.state, version: 10 };
    let answer = shell.client.request(&Request::SetState(Box::new(back)));
    assert_eq!(answer.unwrap_err().fault(), Some(FaultCode::Conflict), "a version can't come again");
}

#[test]
fn a_shell_opened_with_a_state_goes_on_from_its_version() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("cd /usr; x=1");
    let stored = state(&mut shell);
    let mut open = crate::rig::open_shell("second", stead_model::proto::Program::Best, &rig.scratch());
    (open.state, open.version) = (Some(stored.state), Some(41));
    let Reply::Shell(info) = shell.client.request(&Request::OpenShell(Box::new(open))).unwrap() else { panic!() };
    assert_eq!((info.state_version, &*info.cwd), (41, b"/usr".as_slice()));
    let mut second = TestShell { client: rig.client(), id: info.shell };
    let outcome = second.run("echo $x");
    assert_eq!((outcome.stdout.as_slice(), outcome.info.state_version), (b"1\n".as_slice(), 42));
}

#[test]
fn jobs_in_the_background_are_counted_when_a_shell_is_asked_about() {
    let rig = Rig::new();
    let mut gate = Gate::new(&rig, "gate");
    let mut shell = rig.shell();
    let mut jobs = || match shell.client.request(&Request::Shell(shell.id.clone())).unwrap() {
        Reply::Shell(info) => info.jobs,
        other => panic!("{other:?}"),
    };
    assert_eq!(jobs(), Some(0));
    let mut second = TestShell { client: rig.client(), id: shell.id.clone() };
    second.run(format!("{{ {}; }} &", gate.wait()));
    assert_eq!(jobs(), Some(1));
    gate.release();
    wait_for("the job to end", || (jobs() == Some(0)).then_some(()));
}
