//! The text of a command: any bytes but NUL, up to 4 MiB, meant as they stand.

use super::Survivor;
use crate::rig::{Rig, TestShell, code, seen};
use stead_model::proto::{FaultCode, MAX_TEXT, Request};

/// A command of exactly `length` bytes that says how long its longest word was.
fn long_command(length: usize) -> (String, usize) {
    let around = "v='';echo ${#v}";
    let inside = length - around.len();
    (format!("v='{}';echo ${{#v}}", "x".repeat(inside)), inside)
}

#[track_caller]
fn refused(shell: &mut TestShell, text: impl Into<Vec<u8>>) {
    let exec = shell.exec(text);
    let command = exec.command.clone();
    assert_eq!(shell.client.exec(exec).unwrap_err().fault(), Some(FaultCode::Invalid));
    // Nothing of it was noted.
    let asked = shell.client.request(&Request::Command(command));
    assert_eq!(asked.unwrap_err().fault(), Some(FaultCode::NotFound));
}

#[test]
fn a_command_of_four_mebibytes_is_run() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let (text, inside) = long_command(MAX_TEXT);
    assert_eq!((MAX_TEXT, text.len()), (4 << 20, 4 << 20));
    assert_eq!(seen(&shell.run(text)), (Some(0), format!("{inside}\n"), String::new()));
    assert_eq!(shell.out("echo ${#v}"), format!("{inside}\n"));
}

#[test]
fn a_command_of_one_byte_more_is_refused_and_the_shell_not_troubled() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    refused(&mut shell, long_command(MAX_TEXT + 1).0);
    survivor.check(&mut shell);
}

#[test]
fn a_command_with_a_nul_byte_is_refused() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    refused(&mut shell, "echo a\0b");
    refused(&mut shell, "\0");
    survivor.check(&mut shell);
}

#[test]
fn a_short_command_after_a_long_one_has_nothing_of_it() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    assert_eq!(shell.out(&format!("echo long # {}\necho longer", "x".repeat(100_000))), "long\nlonger\n");
    assert_eq!(shell.out("echo short"), "short\n");
}

#[test]
fn an_empty_command_succeeds() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    for text in ["", "\n", " ", "# only a comment", ":"] {
        assert_eq!(seen(&shell.run(text)), (Some(0), String::new(), String::new()), "{text:?}");
    }
}

#[test]
fn carriage_returns_are_bytes_like_others() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    assert_eq!(shell.out("echo one\r\necho two\r\n"), "one\r\ntwo\r\n");
}

#[test]
fn bytes_that_are_not_text_arrive_as_they_are() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    assert_eq!(shell.run(b"printf %s '\xff\xfe\x01\x80'".to_vec()).stdout, b"\xff\xfe\x01\x80");
    assert_eq!(shell.run(b"v='\xc3\x28'".to_vec()).stdout, b"");
    assert_eq!(shell.run("printf %s \"$v\"").stdout, b"\xc3\x28");
}

#[test]
fn a_here_document_is_taken_as_it_is_indented() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    assert_eq!(
        shell.out("cat <<'EOF'\n  two $spaces\n\ttab `and` quotes \" '\nEOF\necho after"),
        "  two $spaces\n\ttab `and` quotes \" '\nafter\n"
    );
    assert_eq!(shell.out("cat <<-EOF\n\t\tstripped\n\tEOF\n"), "stripped\n");
}

#[test]
fn several_lines_are_one_command_with_the_status_of_the_last() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let outcome = shell.run("for i in 1 2; do\n  echo $i\ndone\nfunction g {\n  return 3\n}\ng");
    assert_eq!(seen(&outcome), (Some(3), "1\n2\n".into(), String::new()));
}

#[test]
fn an_alias_defined_on_one_line_works_on_a_later_line_of_the_same_command() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    assert_eq!(shell.out("alias hey='echo said'\nhey there"), "said there\n");
}

#[test]
fn a_history_expansion_is_not_one() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    assert_eq!(shell.out("echo hello!world !! !$"), "hello!world !! !$\n");
}

#[test]
fn a_backslash_at_the_end_joins_nothing_of_ours() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let outcome = shell.run("echo a \\");
    assert_eq!(code(&outcome), Some(0));
    assert!(outcome.stdout.starts_with(b"a"), "{outcome:?}");
    assert_eq!(shell.out("echo b"), "b\n");
}
