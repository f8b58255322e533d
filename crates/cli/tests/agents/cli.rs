//! Agents from the command line.

use crate::lasting::whole;
use crate::person::Person;
use crate::polly::Polly;
use crate::scene::Scene;
use crate::toy::toy;
use std::process::{Output, Stdio};

fn stead(scene: &Scene, words: &[&str]) -> Output {
    scene.rig.stead().args(words).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_message_is_answered_on_standard_output() {
    let (_dir, scene) = toy("");
    for turn in 1..3 {
        let said = stead(&scene, &["chat", "--agent", "toy", "-t", "here", "hello there"]);
        assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
        assert_eq!(text(&said.stdout), format!("turn={turn} you said: hello there\nand that is all\n"));
    }
}

#[test]
fn lines_are_messages_where_none_is_given() {
    use std::io::Write;
    let (_dir, scene) = toy("");
    let mut command = scene.rig.stead();
    command.args(["chat", "--agent", "toy", "-t", "here"]);
    let mut chat = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    chat.stdin.take().unwrap().write_all(b"first one\n\nsecond one\n").unwrap();
    let said = chat.wait_with_output().unwrap();
    let expected = "turn=1 you said: first one\nand that is all\nturn=2 you said: second one\nand that is all\n";
    assert_eq!((said.status.code(), text(&said.stdout).as_str()), (Some(0), expected));
}

#[test]
fn where_nobody_can_be_asked_nothing_is_allowed() {
    let (_dir, scene) = toy("");
    let said = stead(&scene, &["chat", "--agent", "toy", "-t", "here", "WRITE it"]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    assert!(text(&said.stderr).contains("permission: write the file?"), "{}", text(&said.stderr));
    assert!(text(&said.stdout).ends_with("not written\n"), "{}", text(&said.stdout));
    let allowed = stead(&scene, &["chat", "--agent", "toy", "-t", "here", "--permissions", "allow", "WRITE it"]);
    assert!(text(&allowed.stdout).ends_with("* written\n") || text(&allowed.stdout).ends_with("written\n"));
    assert!(!text(&allowed.stdout).contains("not written"), "{}", text(&allowed.stdout));
}

#[test]
fn an_agent_that_dies_is_a_failure() {
    let (_dir, scene) = toy("");
    let said = stead(&scene, &["chat", "--agent", "toy", "-t", "here", "DIE"]);
    assert_eq!(said.status.code(), Some(1), "{}", text(&said.stderr));
    assert!(text(&said.stderr).contains("ended with status 3"), "{}", text(&said.stderr));
    let nobody = stead(&scene, &["chat", "--agent", "nobody", "-t", "here", "x"]);
    assert_eq!(nobody.status.code(), Some(125));
    assert_eq!(
        text(&nobody.stderr),
        "stead: no agent `nobody`\n  `stead agents` tells which there are and how to get them\n"
    );
}

#[test]
fn an_agent_that_is_not_there_is_a_failure_that_says_how_to_get_it() {
    let (_dir, scene) = toy("[agent.codex]\ncommand = ['/nonexistent/codex']\n");
    let missing = stead(&scene, &["chat", "--agent", "codex", "-t", "here", "x"]);
    assert_eq!(missing.status.code(), Some(125));
    let said = text(&missing.stderr);
    assert!(said.contains("npm install -g @openai/codex") && said.contains("`stead agents`"), "{said}");
}

#[test]
fn the_agents_are_listed_with_what_is_missing() {
    let (_dir, scene) = toy("[agent.codex]\ncommand = ['/nonexistent/codex']\n");
    let listed = text(&stead(&scene, &["agents"]).stdout);
    let line = |name: &str| listed.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("toy").contains("yes") && line("toy").contains("pty"), "{listed}");
    assert!(line("codex").contains("no") && line("codex").contains("npm install -g @openai/codex"), "{listed}");
    stead(&scene, &["chat", "--agent", "toy", "-t", "here", "hello"]);
    let sessions = text(&stead(&scene, &["agents", "--sessions"]).stdout);
    assert!(sessions.contains("toy:/"), "{sessions}");
}

#[test]
fn a_message_that_comes_whole_is_printed_whole() {
    let (_dir, scene) = whole();
    let said = stead(&scene, &["chat", "--agent", "whole", "-t", "here", "hello"]);
    assert_eq!(
        (said.status.code(), text(&said.stdout).as_str()),
        (Some(0), "**whole** fresh\n"),
        "{}",
        text(&said.stderr)
    );
}

fn talks(polly: &Polly) -> Person {
    let mut chat = polly.scene.rig.stead();
    chat.args(["chat", "--agent", "polly", "-t", "here"]);
    let mut person = Person::calls(&chat, 80, 24);
    person.sees("> ");
    person
}

#[test]
fn control_c_ends_a_turn_and_then_the_conversation() {
    let polly = Polly::new("", "");
    let mut person = talks(&polly);
    person.types("WAIT\n");
    person.sees("waiting");
    person.types("\u{3}");
    person.sees("aborted");
    person.sees("> ");
    person.types("hello\n");
    person.sees("turn=2");
    person.sees("> ");
    person.types("\u{3}");
    assert_eq!(person.leaves(), Some(130));
}

#[test]
fn a_question_is_answered_by_number_or_ended_with_control_c() {
    let polly = Polly::new("", "");
    let mut person = talks(&polly);
    person.types("ASK:execute\n");
    person.sees("permission: to execute");
    person.sees("? ");
    person.types("9\n");
    person.sees("type the number of an answer");
    person.types("1\n");
    person.sees("allowed turn=1");
    person.sees("> ");
    person.types("ASK:edit\n");
    person.sees("? ");
    person.types("\u{3}");
    person.sees("aborted");
    person.sees("> ");
}

#[test]
fn a_question_whose_time_is_over_holds_nobody_up() {
    let polly = Polly::new("[agents]\npermission_timeout_s = 1\n", "");
    let mut person = talks(&polly);
    person.types("ASK:execute\n");
    person.sees("? ");
    person.sees("nobody answered in time");
    person.sees("denied turn=1");
    person.sees("> ");
    person.types("hello\n");
    person.sees("turn=2");
}
