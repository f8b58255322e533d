//! How many shells and connections there may be, and that one too many harms nobody else.

use crate::rig::{Gate, Rig, TestShell, open_shell};
use stead_model::proto::{FaultCode, Program, Request, Status, Stdin};
use stead_steward::client::ClientError;

fn refusal<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> FaultCode {
    match answer {
        Err(ClientError::Fault(fault)) => fault.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_shell_past_the_limit_is_refused_and_the_others_go_on() {
    let rig = Rig::with_flags(&["--shell-limit", "3"]);
    let mut shells: Vec<_> = (0..3).map(|n| rig.shell_named(&format!("s{n}"))).collect();
    let one_more = || Request::OpenShell(Box::new(open_shell("extra", Program::Bash, &rig.scratch())));
    assert_eq!(refusal(rig.client().request(&one_more())), FaultCode::LimitReached);
    for (n, shell) in shells.iter_mut().enumerate() {
        assert_eq!(shell.out(&format!("echo {n}")), format!("{n}\n"));
    }
    // One that is open already is found, also at the limit.
    assert_eq!(rig.shell_named("s1").out("echo again"), "again\n");
    let name = shells[0].info().shell;
    shells[0].client.request(&Request::CloseShell(name)).unwrap();
    rig.client().request(&one_more()).unwrap();
}

#[test]
fn a_connection_past_the_limit_is_told_so_and_the_others_go_on() {
    let rig = Rig::with_flags(&["--shell-limit", "1"]);
    let mut shell = rig.shell();
    // As many as shells, and 256 more; the shell has one.
    let mut connections: Vec<_> = (0..256).map(|_| rig.client()).collect();
    assert_eq!(refusal(rig.try_client()), FaultCode::LimitReached);
    assert_eq!(shell.out("echo served"), "served\n");
    for connection in &mut connections {
        connection.request(&Request::Stats).unwrap();
    }
    connections.pop();
    crate::rig::wait_for("room for another connection", || rig.try_client().ok());
}

#[test]
fn a_shell_takes_no_more_descriptors_than_are_reckoned_for_it() {
    const SHELLS: usize = 20;
    let rig = Rig::new();
    let gate = Gate::new(&rig, "gate");
    let steward = rig.steward_pid();
    let descriptors = || std::fs::read_dir(format!("/proc/{steward}/fd")).unwrap().count();
    let before = descriptors();
    let mut busy: Vec<TestShell> = (0..SHELLS).map(|n| rig.shell_named(&format!("s{n}"))).collect();
    for shell in &mut busy {
        let mut exec = shell.exec(gate.wait());
        exec.stdin = Stdin::Open;
        assert_eq!(shell.submit(exec).status, Status::Running);
    }
    let each = (descriptors() - before).div_ceil(SHELLS);
    // What `serve` reckons with.
    assert!(each <= 20, "each shell takes {each} descriptors");
}
