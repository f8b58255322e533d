//! Commands that break other ways of driving a shell. Here: text that isn't a program, and errors inside the shell,
//! none of which may cost more than the command itself. The modules hold the rest, by what they attack.

mod bytes;
mod continuity;
mod descriptors;
mod exits;
mod mute;
mod redirections;
mod settings;
mod text;
mod traps;

use crate::rig::{Rig, TestShell, fate, seen};
use stead_model::proto::{Ending, Status};

/// The same process as before, with its variables, and not one that was started in its place.
struct Survivor {
    pid: i32,
}

impl Survivor {
    fn mark(shell: &mut TestShell) -> Self {
        shell.run("mark=still_here");
        Self { pid: shell.pid() }
    }

    #[track_caller]
    fn check(&self, shell: &mut TestShell) {
        let after = shell.run("echo $$ $mark");
        assert_eq!(seen(&after), (Some(0), format!("{} still_here\n", self.pid), String::new()));
    }
}

/// A command that must end with `code`, say `complaint` on standard error and nothing else, and leave the shell alone.
#[track_caller]
fn fails_alone(text: &str, code: i32, complaint: &str) {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    let outcome = shell.run(text);
    assert_eq!(fate(&outcome), Ending::new(Status::Exited, Some(code)), "{text}");
    let (_, stdout, stderr) = seen(&outcome);
    assert_eq!(stdout, "", "{text}");
    assert!(stderr.contains(complaint), "{text}: {stderr}");
    survivor.check(&mut shell);
}

#[test]
fn a_keyword_out_of_place_is_a_syntax_error() {
    fails_alone("fi", 2, "syntax error near unexpected token `fi'");
}

#[test]
fn an_unterminated_double_quote_ends_with_its_command() {
    fails_alone("echo \"abc", 2, "unexpected EOF while looking for matching `\"'");
}

#[test]
fn an_unterminated_single_quote_ends_with_its_command() {
    fails_alone("echo 'abc", 2, "unexpected EOF while looking for matching `''");
}

#[test]
fn an_unterminated_command_substitution_ends_with_its_command() {
    fails_alone("echo $(", 2, "unexpected EOF");
}

#[test]
fn an_unterminated_compound_command_ends_with_its_command() {
    fails_alone("if true; then\necho no", 2, "syntax error: unexpected end of file");
}

#[test]
fn an_unterminated_here_document_takes_what_there_is_of_it() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    let (code, stdout, stderr) = seen(&shell.run("cat <<EOF\nhi"));
    assert_eq!((code, stdout.trim_end()), (Some(0), "hi"));
    assert!(stderr.contains("delimited by end-of-file (wanted `EOF')"), "{stderr}");
    survivor.check(&mut shell);
}

#[test]
fn a_syntax_error_in_posix_mode_does_not_end_the_shell() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    shell.run("set -o posix");
    assert_eq!(fate(&shell.run("fi")), Ending::new(Status::Exited, Some(2)));
    assert_eq!(shell.out("shopt -qo posix && echo posix"), "posix\n");
    survivor.check(&mut shell);
}

#[test]
fn an_error_of_a_special_builtin_in_posix_mode_does_not_end_the_shell() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    shell.run("set -o posix");
    let outcome = shell.run("export 1bad=x");
    assert_ne!(fate(&outcome).exit_code, Some(0));
    assert!(!fate(&outcome).shell_exited);
    survivor.check(&mut shell);
}

#[test]
fn return_ends_the_command_with_its_status() {
    fails_alone("return 7", 7, "");
}

#[test]
fn return_ends_the_command_before_what_follows() {
    fails_alone("return 7\necho not reached", 7, "");
}

#[test]
fn break_outside_of_a_loop_has_nothing_of_ours_to_break() {
    fails_alone("break", 0, "break: only meaningful in a `for', `while', or `until' loop");
}

#[test]
fn continue_outside_of_a_loop_has_nothing_of_ours_to_continue() {
    fails_alone("continue", 0, "continue: only meaningful in a `for', `while', or `until' loop");
}

#[test]
fn a_required_parameter_that_is_not_set_fails_the_command_only() {
    fails_alone("echo ${zz:?bad}", 1, "zz: bad");
}

#[test]
fn a_write_to_a_readonly_variable_fails_the_command_only() {
    fails_alone("readonly q=1; q=2", 1, "q: readonly variable");
}

#[test]
fn an_unbound_variable_under_nounset_fails_the_command_only() {
    fails_alone("set -u; echo $zz", 1, "zz: unbound variable");
}

#[test]
fn nounset_lasts_and_still_does_not_end_the_shell() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    shell.run("set -u");
    for _ in 0..2 {
        assert_eq!(fate(&shell.run("echo $zz")), Ending::new(Status::Exited, Some(1)));
    }
    survivor.check(&mut shell);
}

#[test]
fn a_division_by_zero_fails_the_command_only() {
    fails_alone("echo $((1/0))", 1, "division by 0");
}

#[test]
fn a_command_that_is_not_there_is_127() {
    fails_alone("no_such_command_anywhere", 127, "command not found");
}

#[test]
fn a_term_signal_to_the_shell_is_ignored_as_by_any_interactive_shell() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    assert_eq!(shell.out("kill $$; echo unharmed"), "unharmed\n");
    survivor.check(&mut shell);
}

#[test]
fn the_status_of_a_command_is_what_the_next_one_finds() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    for status in [42, 1, 255, 0] {
        shell.run(format!("(exit {status})"));
        assert_eq!(shell.out("echo $?"), format!("{status}\n"));
    }
}

#[test]
fn a_failed_status_that_is_carried_on_does_not_trip_errexit() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    shell.run("(exit 9)");
    assert_eq!(shell.out("echo $?; set -e"), "9\n");
    survivor.check(&mut shell);
}

#[test]
fn a_deleted_directory_is_no_obstacle() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    shell.run("mkdir gone; cd gone; rmdir ../gone");
    survivor.check(&mut shell);
    assert_eq!(shell.run("ls").stdout, b"");
    assert_eq!(shell.out("cd /usr && pwd"), "/usr\n");
    survivor.check(&mut shell);
}
