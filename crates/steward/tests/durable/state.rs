//! Capture and rehydrate. The law: a shell that is made from a state says the same state of itself.

mod acknowledged;
mod law;
mod nasty;
mod place;
mod sizes;
mod version;

use crate::rig::{Rig, TestShell, code, kill, open_shell, seen, wait_for};
use stead_model::proto::{Program, StoredState};
use stead_model::state::ShellState;

/// Makes the steward capture, and changes nothing. (A lone `:` would not make it look.)
const LOOK: &str = "{ :; }";

/// Another shell, made from what the first one was.
fn rehydrated(rig: &Rig, name: &str, stored: &StoredState) -> TestShell {
    let mut open = open_shell(name, Program::Bash, &rig.scratch());
    open.state = Some(stored.state.clone());
    TestShell::open(rig.client(), open)
}

/// What a shell says of itself now, asked anew, with whether that was news to the steward.
#[track_caller]
fn captured_anew(shell: &mut TestShell) -> (ShellState, bool) {
    let outcome = shell.run(LOOK);
    let ending = outcome.info.ending.clone().unwrap();
    assert_eq!(code(&outcome), Some(0), "{:?}", seen(&outcome));
    assert_eq!(codes_but_restarts(&ending.warnings), Vec::<&str>::new(), "{:?}", ending.warnings);
    (shell.state(), ending.state_changed)
}

/// It is what it was, and the steward knew.
#[track_caller]
fn is_still(shell: &mut TestShell, before: &ShellState) {
    let (state, news) = captured_anew(shell);
    assert_eq!(state, *before);
    assert!(!news, "nothing has changed, and the steward says that something has");
}

/// Codes of warnings, other than that the test killed a shell.
fn codes_but_restarts(warnings: &[stead_model::proto::Warning]) -> Vec<&str> {
    warnings.iter().map(|warning| warning.code.as_str()).filter(|code| *code != "shell_restarted").collect()
}

/// `kill -9`, and the shell is there again as another process.
#[track_caller]
pub(crate) fn kill_shell(shell: &mut TestShell) {
    let pid = shell.pid();
    kill(pid);
    wait_for("another shell in place of the killed one", || shell.info().pid.filter(|now| *now != pid));
}
