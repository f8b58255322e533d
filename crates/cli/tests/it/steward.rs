//! `stead steward`.

use crate::rig::{Rig, is_alive, said, signal, wait, wait_for};
use rustix::process::Signal;
use std::process::Stdio;
use stead_steward::client::Client;

#[test]
fn a_steward_is_started_once_found_again_and_stopped() {
    let rig = Rig::new();
    assert_eq!(rig.steward("start"), said(0, "started\n", ""));
    assert_eq!(rig.steward("start"), said(0, "already running\n", ""));
    let pids = rig.pids();
    let status = format!(
        "steward {} running as {} (keeper {}), start 1\n",
        env!("CARGO_PKG_VERSION"),
        pids.steward,
        pids.keeper
    );
    assert_eq!(rig.steward("status"), said(0, &status, ""));
    assert_eq!(rig.steward("stop"), said(0, "stopped\n", ""));
    for pid in [pids.steward, pids.keeper] {
        wait_for("both processes to end", || (!is_alive(pid)).then_some(()));
    }
}

#[test]
fn where_no_steward_runs_status_and_stop_say_how_to_start_one() {
    let rig = Rig::new();
    let dir = rig.path().display().to_string();
    let message = format!("stead: no steward answers in `{dir}`; start one with `stead steward start --dir {dir}`: ");
    for role in ["status", "stop"] {
        let got = rig.steward(role);
        assert_eq!((got.code, got.stdout.as_str()), (Some(125), ""), "{role}");
        assert!(got.stderr.starts_with(&message), "{role}: {got:?}");
    }
}

#[test]
fn what_a_stopped_steward_had_is_there_for_the_next() {
    let rig = Rig::new();
    rig.shell(&["-c", "v=kept; f() { echo f; }; cd /usr"]);
    assert_eq!(rig.steward("stop"), said(0, "stopped\n", ""));
    assert_eq!(rig.shell(&["-c", "echo $v; f; pwd"]), said(0, "kept\nf\n/usr\n", ""));
}

#[test]
fn stopping_ends_the_processes_of_its_shells() {
    let rig = Rig::new();
    let got = rig.shell(&["-c", "sleep 1000 & echo $$ $!"]);
    let pids: Vec<i32> = got.stdout.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2, "{got:?}");
    rig.steward("stop");
    for pid in pids {
        wait_for("a process of the shell to end", || (!is_alive(pid)).then_some(()));
    }
}

#[test]
fn each_start_has_its_number() {
    let rig = Rig::new();
    rig.steward("start");
    signal(rig.pids().steward, Signal::KILL);
    wait_for("the second start", || rig.steward("status").stdout.ends_with("start 2\n").then_some(()));
}

#[test]
fn connect_carries_the_protocol_over_standard_streams() {
    let rig = Rig::new();
    rig.steward("start");
    let mut command = rig.stead(["steward", "connect", "--dir"]);
    command.arg(rig.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (read, write) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    let client = Client::over(Box::new(read), Box::new(write), "test").unwrap();
    assert_eq!(i32::try_from(client.welcome().pid).unwrap(), rig.pids().steward);
    drop(client);
    assert_eq!(wait(&mut child).code(), Some(0), "it ends with its input");
}

#[test]
fn what_a_steward_cant_do_is_said_with_the_usage() {
    let rig = Rig::new();
    let usage = stead_steward::entry::USAGE;
    let check = |words: &[&str], message: &str| {
        let command = rig.stead(["steward"].iter().chain(words));
        assert_eq!(rig.run(command), said(125, "", &format!("stead: {message}\n\n{usage}\n")), "{words:?}");
    };
    check(&["frob", "--dir", "x"], "`frob` is not something a steward can do");
    check(&["start"], "`--dir DIR` is missing");
    check(&["start", "--dir"], "`--dir` needs a value");
    check(&["start", "--dir", "x", "--journal-limit", "much"], "`much` is not a number for `--journal-limit`");
    check(&["start", "--dir", "x", "--bogus", "1"], "unknown option `--bogus`");
}
