//! What is followed goes on when the server dies under it.

use super::Front;
use crate::rig::{Run, said};
use rustix::process::Signal;

#[test]
fn a_command_is_followed_over_the_death_of_the_server_and_no_byte_is_lost_or_doubled() {
    let front = Front::new();
    let mut gate = front.rig.gate("gate");
    let text = format!("seq 2000; {}; seq 2001 4000; {}; seq 4001 6000; (exit 3)", gate.wait(), gate.wait());
    let run = front.start(&["exec", &text]);
    run.wait_for_stdout("\n2000\n");
    front.kill_server(Signal::KILL);
    gate.release();
    run.wait_for_stdout("\n4000\n");
    front.kill_server(Signal::KILL);
    gate.release();
    let want: String = (1..=6000).flat_map(|number: u32| [number.to_string(), "\n".to_owned()]).collect();
    assert!(run.end() == said(3, &want, ""));
}

#[test]
fn a_server_that_is_stopped_in_an_orderly_way_is_followed_by_another() {
    let front = Front::new();
    front.configure("default_provider = 'local'\n[server]\nlisten = '127.0.0.1:0'\n");
    let mut gate = front.rig.gate("gate");
    let run = front.start(&["exec", &format!("echo one; {}; echo two", gate.wait())]);
    run.wait_for_stdout("one\n");
    front.kill_server(Signal::TERM);
    gate.release();
    assert_eq!(run.end(), said(0, "one\ntwo\n", ""));
    front.configure("default_provider = 'local'\n[server]\nlisten = '127.0.0.1:0'\n[provider.local]\nkind = 'local'\non_exit = 'destroy'\n");
    front.kill_server(Signal::TERM);
}

#[test]
fn a_log_and_a_document_are_waited_for_over_the_death_of_the_server() {
    let front = Front::new();
    let mut gate = front.rig.gate("gate");
    let first: Run = front.start(&["exec", "--json", "--id", "held", &format!("echo one; {}; echo two", gate.wait())]);
    crate::rig::wait_for("the command to run", || {
        let got = front.run(&["logs", "held"]);
        (got.stdout == "one\n").then_some(())
    });
    let second = front.start(&["logs", "-f", "held"]);
    second.wait_for_stdout("one\n");
    front.kill_server(Signal::KILL);
    gate.release();
    assert_eq!(second.end(), said(0, "one\ntwo\n", ""));
    let got = first.end();
    let record: serde_json::Value = serde_json::from_str(&got.stdout).unwrap();
    assert_eq!((got.code, &record["stdout"]), (Some(0), &"one\ntwo\n".into()));
}
