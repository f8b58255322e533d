//! The exit status of a shell: told when the keeper saw it, and never made up when nobody did.

use crate::rig::{Rig, TestShell, fate, kill, stop, wait_for};
use rustix::process::Signal;
use stead_model::proto::{Ending, Status};

/// Kills the shell under a running command while the keeper stands still.
fn kill_shell_behind_the_keepers_back(rig: &Rig, shell: &mut TestShell) -> stead_model::ids::CommandId {
    shell.run("kept=here");
    let exec = shell.exec("echo before; while :; do sleep 0.01; done");
    shell.submit(exec.clone());
    wait_for("it to run", || (shell.command(&exec.command).stdout_bytes > 0).then_some(()));
    let pid = shell.pid();
    let keeper = rig.keeper_pid();
    stop(keeper);
    kill(pid);
    wait_for("the shell to be dead", || {
        stead_term::proc::stat(pid).is_some_and(|stat| stat.state == b'Z').then_some(())
    });
    exec.command
}

#[test]
fn a_keeper_that_is_slow_still_tells_how_the_shell_ended() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let keeper = rig.keeper_pid();
    let command = kill_shell_behind_the_keepers_back(&rig, &mut shell);
    stead_term::proc::signal(keeper, Signal::CONT);
    let ending = fate(&shell.end_of(&command));
    assert_eq!(ending, Ending { signal: Some(9), shell_exited: true, ..Ending::new(Status::Exited, Some(137)) });
    assert_eq!(shell.out("echo $kept"), "here\n");
}

#[test]
fn a_command_whose_shell_died_unseen_is_lost() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let keeper = rig.keeper_pid();
    let command = kill_shell_behind_the_keepers_back(&rig, &mut shell);
    kill(keeper);
    // A new keeper means a new steward. The old one may still answer for a moment, with whoever has taken over as its
    // parent.
    let before = shell.client.welcome().epoch;
    let mut again = wait_for("the next steward", || {
        let client = rig.try_client().ok()?;
        (client.welcome().epoch > before).then(|| TestShell { client, id: shell.id.clone() })
    });
    let outcome = again.end_of(&command);
    let ending = fate(&outcome);
    assert_eq!((ending.status, ending.exit_code, ending.signal), (Status::Lost, None, None), "{ending:?}");
    assert_eq!(outcome.stdout, b"before\n");
    assert_eq!(again.out("echo $kept"), "here\n");
}
