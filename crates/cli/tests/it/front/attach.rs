//! Somebody sits down at the shell of a thread.

use super::Front;
use crate::rig::{said, signal, wait_for};
use crate::terminal::Terminal;
use rustix::process::Signal;

fn attached(front: &Front, arguments: &[&str]) -> Terminal {
    let mut command = front.stead(["attach"].iter().chain(arguments));
    command.env("TERM", "xterm");
    let mut terminal = Terminal::with(crate::rig::Rig::new(), &command);
    terminal.expect("attached to `default`; ");
    wait_for("the raw terminal", || (!terminal.is_sane()).then_some(()));
    terminal
}

#[test]
fn what_is_typed_runs_in_the_shell_of_the_thread_and_the_keys_leave() {
    let front = Front::new();
    assert_eq!(front.run(&["exec", "v=kept"]).code, Some(0));
    let mut terminal = attached(&front, &[]);
    terminal.expect("Ctrl-\\ leaves");
    terminal.type_in("echo \"<$v>\"; w=too\r");
    terminal.expect("<kept>\r\n");
    terminal.type_in("\x1c");
    terminal.expect("left `default`; it goes on");
    assert!(terminal.is_sane());
    assert_eq!(terminal.end(), Some(0));
    assert_eq!(front.run(&["exec", "echo $w"]), said(0, "too\n", ""));
}

#[test]
fn other_keys_leave_if_asked_for() {
    let front = Front::new();
    let mut terminal = attached(&front, &["--detach-keys", "ctrl-p,q"]);
    terminal.type_in("\x10q");
    terminal.expect("left `default`");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn the_terminal_is_itself_again_after_a_signal() {
    let front = Front::new();
    let mut terminal = attached(&front, &[]);
    signal(terminal.pid(), Signal::TERM);
    assert_eq!(terminal.end(), Some(143));
    assert!(terminal.is_sane());
}

#[test]
fn the_death_of_the_server_is_lived_through_and_the_keys_leave_meanwhile() {
    let front = Front::new();
    let mut terminal = attached(&front, &[]);
    terminal.type_in("echo be''fore\r");
    terminal.expect("before\r\n");
    front.kill_server(Signal::KILL);
    terminal.expect("[the connection broke; connecting again, Ctrl-\\ leaves]");
    terminal.expect("[connected again]");
    terminal.type_in("echo af''ter\r");
    terminal.expect("after\r\n");
    terminal.type_in("\x1c");
    terminal.expect("left `default`");
    assert!(terminal.is_sane());
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn without_a_terminal_there_is_nothing_to_sit_at() {
    let front = Front::new();
    let message = "stead: `stead attach` wants a terminal; `stead exec` runs commands without one\n";
    assert_eq!(front.run(&["attach"]), said(125, "", message));
}
