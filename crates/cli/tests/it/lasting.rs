//! What lasts from one command, and from one call, to the next.

use crate::rig::{Rig, said};
use std::fs::File;
use std::io::Write;

#[test]
fn directory_variables_functions_and_aliases_last_from_one_c_to_the_next() {
    let rig = Rig::new();
    let setup = "cd /usr; export E=exported; p=plain; f() { echo \"f $1\"; }; alias say='echo said'";
    let got = rig.shell(&["-c", setup, "-c", "pwd; echo $E $p; f x", "-c", "say hello"]);
    assert_eq!(got, said(0, "/usr\nexported plain\nf x\nsaid hello\n", ""));
}

#[test]
fn they_last_from_one_call_to_the_next_too() {
    let rig = Rig::new();
    assert_eq!(rig.shell(&["-c", "cd /usr; v=1; f() { echo \"$v\"; }"]), said(0, "", ""));
    assert_eq!(rig.shell(&["-c", "pwd; f; v=2"]), said(0, "/usr\n1\n", ""));
    assert_eq!(rig.shell(&["-c", "f"]), said(0, "2\n", ""));
}

#[test]
fn the_last_status_is_there_for_the_next_call() {
    let rig = Rig::new();
    assert_eq!(rig.shell(&["-c", "(exit 42)"]), said(42, "", ""));
    assert_eq!(rig.shell(&["-c", "echo $?"]), said(0, "42\n", ""));
}

#[test]
fn the_first_call_gives_the_shell_its_directory_and_environment_and_later_ones_dont() {
    let rig = Rig::new();
    let mut first = rig.stead(["shell", "-c", "echo $FIRST; pwd"]);
    first.env("FIRST", "one");
    let here = rig.scratch().canonicalize().unwrap();
    assert_eq!(rig.run(first), said(0, &format!("one\n{}\n", here.display()), ""));
    let mut second = rig.stead(["shell", "-c", "echo $FIRST; pwd"]);
    second.env("FIRST", "two").current_dir("/");
    assert_eq!(rig.run(second), said(0, &format!("one\n{}\n", here.display()), ""));
}

#[test]
fn shells_of_other_names_know_nothing_of_each_other() {
    let rig = Rig::new();
    assert_eq!(rig.shell(&["--name", "a", "-c", "v=a; cd /usr"]), said(0, "", ""));
    assert_eq!(rig.shell(&["--name", "b", "-c", "v=b; cd /tmp"]), said(0, "", ""));
    assert_eq!(rig.shell(&["--name", "a", "-c", "echo $v; pwd"]), said(0, "a\n/usr\n", ""));
    assert_eq!(rig.shell(&["--name", "b", "-c", "echo $v; pwd"]), said(0, "b\n/tmp\n", ""));
}

#[test]
fn fresh_forgets_the_shell_of_that_name_and_no_other() {
    let rig = Rig::new();
    rig.shell(&["-c", "v=old"]);
    rig.shell(&["--name", "other", "-c", "v=kept"]);
    assert_eq!(rig.shell(&["--fresh", "-c", "echo [$v]"]), said(0, "[]\n", ""));
    assert_eq!(rig.shell(&["--name", "other", "-c", "echo [$v]"]), said(0, "[kept]\n", ""));
}

#[test]
fn fresh_is_no_failure_where_there_was_no_shell() {
    let rig = Rig::new();
    assert_eq!(rig.shell(&["--fresh", "-c", "echo new"]), said(0, "new\n", ""));
}

#[test]
fn dash_keeps_its_state_and_stays_dash() {
    let rig = Rig::new();
    assert_eq!(rig.shell(&["--shell", "dash", "-c", "cd /usr; v=1; f() { echo f$v; }"]), said(0, "", ""));
    let look = "pwd; f; echo ${BASH_VERSION-not bash}";
    assert_eq!(rig.shell(&["-c", look]), said(0, "/usr\nf1\nnot bash\n", ""), "what runs is chosen when it is opened");
}

#[test]
fn a_script_on_standard_input_is_one_command() {
    let rig = Rig::new();
    let script = rig.scratch().join("script");
    File::create(&script)
        .unwrap()
        .write_all(b"for i in 1 2\ndo\n  echo $i\ndone\ncat <<EOF\nhere\nEOF\nx=5\n")
        .unwrap();
    let mut command = rig.stead(["shell"]);
    command.stdin(File::open(&script).unwrap());
    assert_eq!(rig.run(command), said(0, "1\n2\nhere\n", ""));
    assert_eq!(rig.shell(&["-c", "echo $x"]), said(0, "5\n", ""));
}

#[test]
fn a_command_has_an_empty_standard_input_whatever_the_caller_has() {
    let rig = Rig::new();
    let given = rig.scratch().join("given");
    std::fs::write(&given, "not for the command").unwrap();
    let mut command = rig.stead(["shell", "-c", "cat; echo end"]);
    command.stdin(File::open(&given).unwrap());
    assert_eq!(rig.run(command), said(0, "end\n", ""));
}

#[test]
fn both_streams_come_apart_and_byte_for_byte() {
    let rig = Rig::new();
    let bytes: Vec<u8> = (0..=255).collect();
    std::fs::write(rig.scratch().join("bytes"), &bytes).unwrap();
    let run = rig.start_shell(&["-c", "cat bytes; printf 'no newline' >&2; printf '\\0\\377' >&2"]);
    assert_eq!(run.end_bytes(), (Some(0), bytes, b"no newline\0\xff".to_vec()));
}

#[test]
fn much_output_without_a_newline_is_whole() {
    let rig = Rig::new();
    let (code, stdout, stderr) = rig.start_shell(&["-c", "head -c 5000000 /dev/zero | tr '\\0' x"]).end_bytes();
    assert_eq!((code, stdout.len(), stderr.len()), (Some(0), 5_000_000, 0));
    assert!(stdout.iter().all(|byte| *byte == b'x'));
}
