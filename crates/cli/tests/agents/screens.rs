//! Agents on a terminal that are harder to read: titles, hooks, lines too long or too much like others; and people who look
//! at them.

use crate::person::Person;
use crate::polly::write_program;
use crate::rig::wait_for;
use crate::scene::{Scene, Told, last, resumed, said};
use serde_json::json;

/// Pauses for longer than a screen takes to settle, where it is to be seen that nobody believes in its end.
const PAINTER: &str = r#"#!/bin/bash
[ "$1" = --resume ] && known=$2
while IFS= read -r -e -p 'paint> ' line; do
  case $line in
    *TITLE*)
      printf '\033]0;Working\007* part one\npaint> '
      read -r -t 2 _ <> <(:)
      printf '\r\033[K  part two\n\033]0;Ready\007' ;;
    *LONG*) printf '* '; printf 'word %d ' {1..100}; printf 'end\n' ;;
    *LIKE*) printf '* type\npaint> \n  and more\n' ;;
    *STAYS*) printf 'thinking\n* done thinking about it\n' ;;
    *RAW*)
      printf '* a rendered list\n'
      printf '{"said":"a title","to":"find a title"}\n{"said":"- a *raw* list","to":"%s","id":"c7"}\n' "$line" >> ~/.painter.jsonl ;;
    *) printf '* known=%s\n' "${known:-nobody}" ;;
  esac
done
"#;

fn painter(settings: &str, own: &str, screen: &str) -> (tempfile::TempDir, Scene) {
    let dir = tempfile::tempdir().unwrap();
    let program = write_program(dir.path().join("painter"), PAINTER);
    let settings = format!(
        "{settings}\n[agent.painter]\ncommand = ['{}']\ntransport = 'pty'\n{own}\n[agent.painter.screen]\n\
         prompt = '^paint> ?$'\nbusy = '^thinking'\necho = 'paint> '\nanswer = '* '\npaste = false\n{screen}\n",
        program.display()
    );
    (dir, Scene::plain("painter", &settings))
}

fn message(events: &[Told]) -> String {
    let message = events.iter().rfind(|event| event.name == "message").unwrap_or_else(|| panic!("{events:#?}"));
    message.data["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_title_that_says_it_works_keeps_a_turn_open() {
    let (_dir, scene) = painter("", "", "busy_title = '^Working'\nidle_title = '^Ready'");
    let events = scene.say("TITLE");
    last(&events, "done");
    let text = message(&events);
    assert!(text.starts_with("part one") && text.ends_with("part two"), "{text}");
}

#[test]
fn lines_that_are_long_or_look_like_others_are_read_as_they_are() {
    let (_dir, scene) = painter("", "", "");
    let words: Vec<_> = (1..=100).map(|number| format!("word {number}")).collect();
    assert_eq!(message(&scene.say("LONG")), format!("{} end", words.join(" ")), "one line is one line");
    assert_eq!(message(&scene.say("LIKE")), "type\npaint>\nand more");
    assert_eq!(message(&scene.say("STAYS")), "done thinking about it");
}

#[test]
fn a_hook_tells_what_was_written_and_by_what_name_to_resume_it() {
    let hook = "hook = { file = '.painter.jsonl', text = '/said', message = '/to', id = '/id' }";
    let (_dir, scene) = painter("", "resume_args = ['--resume', '{id}']", hook);
    let first = scene.say("RAW please");
    last(&first, "done");
    assert_eq!(message(&first), "- a *raw* list", "{first:#?}");
    assert_eq!(scene.sessions()[0]["resumable"], json!(true));
    for pid in scene.processes() {
        stead_term::proc::signal(pid, rustix::process::Signal::KILL);
    }
    wait_for("its death to be noticed", || (scene.sessions()[0]["running"] == json!(false)).then_some(()));
    let next = scene.say("who is it");
    last(&next, "done");
    assert_eq!((resumed(&next), message(&next).as_str()), (true, "known=c7"), "{next:#?}");
    let told =
        next.iter().any(|event| event.data["text"].as_str().is_some_and(|text| text.contains("hook said nothing")));
    assert!(told, "{next:#?}");
}

#[test]
fn an_agent_that_somebody_looks_at_is_in_use_and_is_read_at_their_size() {
    let (_dir, scene) = painter("[agents]\nidle_timeout_s = 2\n", "", "");
    assert_eq!(said(&scene.say("hello there")), "known=nobody");
    let session = scene.sessions()[0].clone();
    let mut attach = scene.rig.stead();
    attach.args(["attach", "--agent", session["key"].as_str().unwrap()]);
    let mut person = Person::calls(&attach, 60, 20);
    person.sees("hello there");
    person.sees("known=nobody");
    // Longer than the idle time-out: what is looked at is used.
    wait_for("looking to count as use", || {
        let now = scene.sessions()[0].clone();
        assert_eq!(now["running"], json!(true));
        (now["last_used_at"] != session["last_used_at"]).then_some(())
    });
    let words: Vec<_> = (1..=100).map(|number| format!("word {number}")).collect();
    let events = scene.say("LONG");
    assert_eq!(message(&events), format!("{} end", words.join(" ")), "read at the size of whoever looks");
    person.sees("word 100");
    assert!(!person.shown.contains("/workspace $"), "a prompt of ours has no place there: {}", person.shown);
    drop(person);
    wait_for("it to rest when nobody looks", || (scene.sessions()[0]["running"] == json!(false)).then_some(()));
}
