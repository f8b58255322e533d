//! Exit codes, and the two ways of Ctrl-C.

use super::Front;
use crate::rig::{said, signal};
use rustix::process::Signal;

#[test]
fn the_exit_code_is_that_of_the_command() {
    let front = Front::new();
    for code in [0, 1, 42, 255] {
        assert_eq!(front.run(&["exec", &format!("(exit {code})")]), said(code, "", ""));
    }
    assert_eq!(front.run(&["exec", "no-such-program"]).code, Some(127));
    assert_eq!(front.run(&["exec", "kill -9 $$"]).code, Some(137));
    assert_eq!(front.run(&["exec", "exit 7"]), said(7, "", ""));
}

#[test]
fn a_time_out_is_124_and_the_shell_lives_on() {
    let front = Front::new();
    assert_eq!(front.run(&["exec", "v=kept"]).code, Some(0));
    let got = front.run(&["exec", "--timeout", "300ms", "echo begun; sleep 1000; echo never"]);
    assert_eq!(got, said(124, "begun\n", ""));
    assert_eq!(front.run(&["exec", "echo $v"]), said(0, "kept\n", ""));
}

#[test]
fn an_interrupt_cancels_the_command_with_130() {
    let front = Front::new();
    let run = front.start(&["exec", "v=kept; echo begun; sleep 1000; echo never"]);
    run.wait_for_stdout("begun");
    signal(run.pid(), Signal::INT);
    assert_eq!(run.end(), said(130, "begun\n", ""));
    assert_eq!(front.run(&["exec", "echo $v"]), said(0, "kept\n", ""));
}

#[test]
fn an_interrupt_while_it_waits_takes_the_command_out_of_the_queue() {
    let front = Front::new();
    let mut gate = front.rig.gate("gate");
    let first = front.start(&["exec", &format!("echo begun; {}; echo one", gate.wait())]);
    first.wait_for_stdout("begun");
    let second = front.start(&["exec", "--id", "waiting", "echo never"]);
    crate::rig::wait_for("the second command in the queue", || {
        let history = front.json(&["history", "--json"]);
        let mut items = history["items"].as_array().unwrap().iter();
        items.any(|item| item["id"] == "waiting" && item["status"] == "queued").then_some(())
    });
    signal(second.pid(), Signal::INT);
    assert_eq!(second.end(), said(130, "", ""));
    gate.release();
    assert_eq!(first.end(), said(0, "begun\none\n", ""));
}

#[test]
fn a_second_interrupt_leaves_the_command_running_and_says_how_to_follow_it() {
    let front = Front::new();
    let mut gate = front.rig.gate("gate");
    // It doesn't mind being interrupted, for a while.
    let text = format!("trap 'echo no' INT; echo begun; until {}; do :; done; echo end", gate.wait());
    let run = front.start(&["exec", "--id", "stubborn", &text]);
    run.wait_for_stdout("begun");
    signal(run.pid(), Signal::INT);
    run.wait_for_stdout("no\n");
    signal(run.pid(), Signal::INT);
    let got = run.end();
    assert_eq!(got.code, Some(130));
    let told =
        "stead: `stubborn` is left running; `stead logs -f stubborn` follows it, `stead cancel stubborn` stops it\n";
    assert_eq!(got.stderr, told);
    gate.release();
}

#[test]
fn a_command_that_somebody_else_cancels_is_130() {
    let front = Front::new();
    let run = front.start(&["exec", "--id", "long", "echo begun; sleep 1000"]);
    run.wait_for_stdout("begun");
    let cancelled = front.run(&["cancel", "long"]);
    assert_eq!((cancelled.code, cancelled.stderr.as_str()), (Some(0), ""));
    assert_eq!(run.end(), said(130, "begun\n", ""));
    assert_eq!(front.run(&["cancel", "long"]), said(0, "cancelled\n", ""), "what has ended stays as it ended");
}

#[test]
fn a_command_whose_instance_dies_is_lost_with_137() {
    let front = Front::new();
    let run = front.start(&["exec", "-t", "t", "--id", "c", "echo before; sleep 1000"]);
    run.wait_for_stdout("before\n");
    let follower = front.start(&["logs", "-f", "c"]);
    follower.wait_for_stdout("before\n");
    let lease = front.json(&["show", "--json", "t"]);
    let pid = lease["lease"]["instance"]["metadata"]["pid"].as_str().unwrap_or_else(|| panic!("{lease}"));
    let pid = pid.parse().unwrap();
    let start_time = stead_term::proc::stat(pid).unwrap().start_time;
    stead_term::tree::Tree::of(pid, start_time).kill(crate::rig::PATIENCE).unwrap();
    let got = run.end();
    assert_eq!((got.code, got.stdout.as_str()), (Some(137), "before\n"), "{got:?}");
    assert!(got.stderr.starts_with("stead: the command was lost: "), "{got:?}");
    assert_eq!(follower.end(), said(0, "before\n", ""));
}

#[test]
fn whoever_waits_long_is_told_for_what() {
    let front = Front::new();
    let mut gate = front.rig.gate("gate");
    let first = front.start(&["exec", "--id", "long", &format!("echo begun; {}", gate.wait())]);
    first.wait_for_stdout("begun");
    let second = front.start(&["exec", "--id", "short", "--timeout", "10s", "echo done"]);
    second.wait_for_stderr("stead: `short` waits: `long` runs");
    let refused = front.run(&["pause", "default"]);
    assert!(refused.code == Some(125) && refused.stderr.contains("`-f` pauses it"), "{refused:?}");
    gate.release();
    assert_eq!(first.end().code, Some(0));
    let got = second.end();
    assert_eq!((got.code, got.stdout.as_str()), (Some(0), "done\n"), "{got:?}");
}
