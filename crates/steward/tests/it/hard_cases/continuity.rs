//! What a shell has done to itself is there for the next command as it is for the next line at a prompt. The judge is
//! bash itself: the same lines, one after another, in an interactive one.

use crate::rig::{Rig, TestShell, fate, kill_steward, seen, wait_for};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use stead_model::proto::{Cancel, FirstSignal, Request, Status};

/// What the lines print, and the files they leave.
type Seen = (String, BTreeMap<String, String>);

/// The same lines as commands of a shell of ours.
fn ours(lines: &[&str]) -> Seen {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let printed: Vec<u8> = lines.iter().flat_map(|line| shell.run(*line).stdout).collect();
    (String::from_utf8_lossy(&printed).into_owned(), files(&rig.scratch()))
}

/// Typed into an interactive bash.
fn typed(lines: &[&str]) -> Seen {
    let dir = tempfile::tempdir().unwrap();
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "--noediting", "-i"]).current_dir(dir.path());
    bash.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut bash = bash.spawn().unwrap();
    let mut input = bash.stdin.take().unwrap();
    // A line of its own, so that what is asked of the first is asked of a fresh shell; and the same `$_`.
    input.write_all(b"PS1= PS2=\nset +o history +H\n:\n").unwrap();
    for line in lines {
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
    // It would say that it leaves.
    input.write_all(b"kill -9 $$\n").unwrap();
    drop(input);
    let output = bash.wait_with_output().unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), files(dir.path()))
}

fn files(dir: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file());
    entries
        .map(|entry| {
            let text = String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap()).into_owned();
            (entry.file_name().to_string_lossy().into_owned(), text)
        })
        .collect()
}

#[track_caller]
pub(super) fn as_at_a_prompt(sequences: &[&[&str]]) {
    let differ: Vec<_> = sequences
        .iter()
        .filter_map(|lines| {
            let (ours, typed) = (ours(lines), typed(lines));
            (ours != typed).then(|| format!("{lines:#?}\nours:  {ours:?}\ntyped: {typed:?}\n"))
        })
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

const SHOW: &str = r#"echo "$? <${PIPESTATUS[@]}>""#;

#[test]
fn the_statuses_of_a_pipeline_are_there_for_the_next_command() {
    as_at_a_prompt(&[
        &["false | true | (exit 3)", r#"echo "${PIPESTATUS[@]}""#],
        &["false | true", SHOW, SHOW],
        &["true", SHOW],
        &["(exit 5)", SHOW],
        &["! true", SHOW],
        &["! false | true", SHOW],
        &["false | true; true", SHOW],
        &["false | true && echo yes", SHOW],
        &["true | false || true | false | true", SHOW],
        &["while false | (exit 4); do :; done", SHOW],
        &["if true | false; then :; fi", SHOW],
        &["false | true", "f() { :; }", SHOW],
        &["false | true", "for x in; do :; done", SHOW],
        &["f() { false | true; }", "f", SHOW],
        &["{ false | true; } >/dev/null", SHOW],
        &["false | true", "x=1", SHOW],
        &["x=$(false | true; exit 6)", SHOW],
        &["fi", SHOW],
        &["false | true; fi", SHOW],
        &["echo ${zz:?bad}", SHOW],
        &["echo x >/nowhere/x", SHOW],
        &["no_such_command | cat", SHOW],
        &["cat <<EOF | (cat >/dev/null; exit 4)\nit's\nEOF", SHOW],
        &["echo 'a\nb' | grep -q b", SHOW],
        &["false | true # it's a comment", SHOW],
        &["set -o pipefail", "(exit 7) | true", SHOW],
        &["IFS=; false | true | (exit 3)", SHOW],
        &["false | true", "eval 'echo ${PIPESTATUS[*]}'"],
        &["show() { echo \"${PIPESTATUS[@]}\"; }", "false | true | (exit 2)", "show"],
        &["alias show='echo ${PIPESTATUS[*]}'", "false | true | (exit 2)", "show"],
        &["echo 'echo \"${PIPESTATUS[@]}\"' >script", "false | true", ". ./script"],
        &["false | true", "s=(\"${PIPESTATUS[@]}\")", "echo \"${s[@]}\""],
        &["set -u", "false | true", SHOW],
        &["[[ a == b ]]", SHOW],
        &["((0))", SHOW],
        &["(exit 3) | (exit 4) &", "wait; true | false", SHOW],
        &["cd /nowhere 2>/dev/null", SHOW],
    ]);
}

#[test]
fn nothing_of_an_epilogue_is_seen() {
    as_at_a_prompt(&[
        &["cat <<EOF\nhi | $(echo there)\nEOF"],
        &["trap 'echo E' ERR", "true | false", "false"],
        &["set -- a b", "echo $# $1 | cat", "echo $# $1 | cat"],
        &["f() { true | false; }", "declare -f f | cat"],
        &["trap 'echo got' USR1; kill -USR1 $$ | cat; trap -p USR1"],
        &["false |", "echo after"],
    ]);
}

#[test]
fn a_trace_shows_no_line_of_ours() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    assert_eq!(seen(&shell.run("set -x; true | true")).2.lines().filter(|line| !line.ends_with(" true")).count(), 0);
    assert_eq!(seen(&shell.run("true | true")).2, "++ true\n++ true\n");
    shell.run("set +x; set -v");
    assert_eq!(seen(&shell.run("true | true")).2, "true | true\n");
}

#[test]
fn the_statuses_last_when_the_steward_dies() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("false | true | (exit 3)");
    kill_steward(&rig);
    let mut shell = TestShell { client: rig.client(), id: shell.id };
    assert_eq!(shell.out("echo $? ${PIPESTATUS[*]}"), "3 1 0 3\n");
}

#[test]
fn the_statuses_of_a_command_that_ends_when_the_steward_is_dead_are_known() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut gate = crate::rig::Gate::new(&rig, "gate");
    let exec = shell.exec(format!("{}; false | true | (exit 3)", gate.wait()));
    let id = shell.submit(exec).command;
    kill_steward(&rig);
    gate.release();
    let mut shell = TestShell { client: rig.client(), id: shell.id };
    shell.end_of(&id);
    assert_eq!(shell.out("echo $? ${PIPESTATUS[*]}"), "3 1 0 3\n");
}

#[test]
fn a_new_shell_has_statuses_of_its_own() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("false | true");
    shell.kill();
    assert_eq!(shell.out("echo ${#PIPESTATUS[@]}"), "1\n");
}

#[test]
fn a_command_that_was_stopped_leaves_what_an_interrupt_leaves() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut exec = shell.exec("sleep 1000");
    exec.timeout_ms = Some(50);
    assert_eq!(fate(&shell.run_exec(exec)).status, Status::TimedOut);
    assert_eq!(shell.out(SHOW), "130 <130>\n");
    let exec = shell.exec("touch ready; true | sleep 1000");
    let id = shell.submit(exec).command;
    wait_for("the command", || rig.scratch().join("ready").exists().then_some(()));
    // Both programs of the pipeline, once the second is there.
    let session = shell.pid();
    wait_for("its program", || {
        let found = stead_term::proc::of_session(session);
        found.iter().any(|stat| name(stat.pid) == "sleep").then_some(())
    });
    let cancel = Cancel { command: id.clone(), first: FirstSignal::Interrupt };
    shell.client.request(&Request::Cancel(cancel)).unwrap();
    assert_eq!(fate(&shell.end_of(&id)).status, Status::Cancelled);
    assert_eq!(shell.out(SHOW), "130 <130>\n");
}

fn name(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}
