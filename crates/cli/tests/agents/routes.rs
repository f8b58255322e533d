//! The second route: two agents as people see them, on a terminal, read from their screens and hooks.

use crate::model::MARKDOWN;
use crate::rig::wait_for;
use crate::scene::{CLAUDE, CODEX, Scene, Told, last, marked, resumed, said};
use serde_json::json;
use std::path::Path;

macro_rules! on_a_terminal {
    ($($test:ident),* $(,)?) => {
        mod codex {
            $(#[test]
            #[ignore = "needs the agents: `cargo xtask test --agents`"]
            fn $test() {
                super::$test("codex-tui", super::CODEX);
            })*
        }
        mod claude {
            $(#[test]
            #[ignore = "needs the agents: `cargo xtask test --agents`"]
            fn $test() {
                super::$test("claude-tui", super::CLAUDE);
            })*
        }
    };
}

on_a_terminal![
    a_second_message_knows_the_first_and_so_does_the_next_process,
    a_tool_is_asked_about_and_allowed_or_denied,
    a_turn_is_aborted_and_the_next_goes_on,
    a_turn_goes_on_when_the_server_is_killed,
    lines_are_told_before_the_answer_has_ended_and_whoever_leaves_stops_nothing,
    after_the_agent_died_in_a_turn_the_next_message_resumes,
    its_session_is_another_than_that_of_the_other_route_and_is_reset_alone,
    one_that_is_unused_rests_and_one_that_is_used_does_not,
    a_turn_in_which_nothing_happens_is_ended,
    a_model_that_can_not_be_reached_is_no_reason_to_wait_for_ever,
    a_flood_is_told_as_it_was_written,
];

fn message(events: &[Told]) -> String {
    let message = events.iter().rfind(|event| event.name == "message").unwrap_or_else(|| panic!("{events:#?}"));
    message.data["text"].as_str().unwrap().to_owned()
}

fn a_second_message_knows_the_first_and_so_does_the_next_process(agent: &str, package: &str) {
    let scene = Scene::tui(agent, package, "");
    let first = scene.say("MD one");
    last(&first, "done");
    assert!(!resumed(&first));
    let text = message(&first);
    assert!(text.contains("turn=1 last='MD one'") && text.ends_with(MARKDOWN), "{text}");
    check_pieces(&first);
    let second = scene.say("hello two");
    last(&second, "done");
    assert!(message(&second).contains("turn=2 last='hello two'"), "{second:#?}");
    check_pieces(&second);
    // One that is killed before it has written down what it said has nothing to go on with, and says so.
    wait_for("its own record", || has_written(&scene.rig.data(), "turn=2").then_some(()));
    for pid in scene.processes() {
        stead_term::proc::signal(pid, rustix::process::Signal::KILL);
    }
    wait_for("its death to be noticed", || (scene.sessions()[0]["running"] == json!(false)).then_some(()));
    let third = scene.say("hello three");
    last(&third, "done");
    assert!(resumed(&third), "{third:#?}");
    assert!(message(&third).contains("turn=3 last='hello three'"), "{third:#?}");
}

/// What is told on the way is of the answer; what is drawn around it, and earlier turns, are no part of it. How much of it
/// is seen before its end is a matter of speed.
fn check_pieces(events: &[Told]) {
    let (pieces, whole) = (said(events), message(events));
    let is_word = |word: &&str| word.contains(char::is_alphanumeric);
    for word in pieces.split_whitespace().filter(is_word) {
        assert!(whole.contains(word), "`{word}` is not of the answer: {events:#?}");
    }
}

/// Whether an agent's own record of a conversation, somewhere below a directory, has this in it.
fn has_written(dir: &Path, text: &str) -> bool {
    std::fs::read_dir(dir).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            return has_written(&path, text);
        }
        // Not what its hooks are told, nor its list of what was typed.
        let is_record =
            [".claude/projects/", ".codex/sessions/"].iter().any(|place| path.to_string_lossy().contains(place));
        is_record && std::fs::read_to_string(&path).is_ok_and(|record| record.contains(text))
    })
}

fn a_tool_is_asked_about_and_allowed_or_denied(agent: &str, package: &str) {
    if agent == "codex-tui" {
        // It has no sandbox of its own to ask about.
        let scene = Scene::tui(agent, package, "");
        last(&scene.say("RUN:touch yes.txt;;"), "done");
        assert_eq!(scene.rig.call("GET", "/api/threads/t/files?path=/workspace/yes.txt", &[], b"").status, 200);
        return;
    }
    for (kind, name) in [("allow_once", "yes.txt"), ("reject_once", "no.txt")] {
        let scene = Scene::tui(agent, package, "");
        let stream = scene.chat(json!({"message": format!("RUN:touch {name};;")}));
        let mut events = stream.until("permission");
        let permission = events.last().unwrap().data.clone();
        assert_eq!(permission["kind"], "execute", "{permission:#}");
        // It is asked as the agent says it (OSC 7501), not as its screen does: "Do you want to proceed?"
        assert_eq!(permission["title"], format!("approve Bash: touch {name}"), "{permission:#}");
        let options = permission["options"].as_array().unwrap();
        let option = options.iter().find(|option| option["kind"] == kind).unwrap();
        let choice = json!({"permission_id": permission["id"], "option_id": option["id"]});
        assert_eq!(scene.rig.post(&format!("/api/chat/runs/{}/permission", stream.run()), &choice).status, 204);
        events.extend(stream.rest());
        assert!(["done", "aborted"].contains(&events.last().unwrap().name.as_str()), "{events:#?}");
        let file = scene.rig.call("GET", &format!("/api/threads/t/files?path=/workspace/{name}"), &[], b"");
        assert_eq!(file.status == 200, kind == "allow_once", "{events:#?}");
        if kind == "allow_once" {
            assert!(message(&events).contains("turn=1"), "{events:#?}");
        }
    }
}

fn a_turn_is_aborted_and_the_next_goes_on(agent: &str, package: &str) {
    let scene = Scene::tui(agent, package, "");
    last(&scene.say("hello one"), "done");
    let stream = scene.chat(json!({"message": "GATE forever"}));
    let mut events = stream.until("start");
    scene.model.wait_at_gate();
    scene.rig.post("/api/chat/abort", &json!({"run_id": stream.run()})).is(200);
    events.extend(stream.rest());
    last(&events, "aborted");
    scene.model.release();
    let next = scene.say("after it");
    last(&next, "done");
    assert!(message(&next).ends_with("after it'"), "{next:#?}");
}

fn a_turn_goes_on_when_the_server_is_killed(agent: &str, package: &str) {
    let mut scene = Scene::tui(agent, package, "");
    last(&scene.say("hello one"), "done");
    let stream = scene.chat(json!({"message": "GATE two"}));
    let before = stream.until("start");
    let run = stream.run();
    scene.model.wait_at_gate();
    scene.rig.kill();
    scene.model.release();
    scene.rig.start();
    let all = scene.replay(&run, 0).rest();
    last(&all, "done");
    assert_eq!(all[..before.len()], before[..], "what was told is told again as it was");
    assert!(message(&all).contains("turn=2 last='GATE two'"), "{all:#?}");
}

fn lines_are_told_before_the_answer_has_ended_and_whoever_leaves_stops_nothing(agent: &str, package: &str) {
    let scene = Scene::tui(agent, package, "");
    let stream = scene.chat(json!({"message": "GATE MD", "id": "run-mine"}));
    let before = stream.until("delta");
    drop(stream);
    scene.model.release();
    let all = scene.replay("run-mine", 0).rest();
    last(&all, "done");
    assert_eq!(all[..before.len()], before[..]);
    assert!(message(&all).ends_with(MARKDOWN), "{all:#?}");
}

fn after_the_agent_died_in_a_turn_the_next_message_resumes(agent: &str, package: &str) {
    let scene = Scene::tui(agent, package, "");
    last(&scene.say("hello one"), "done");
    let stream = scene.chat(json!({"message": "GATE two"}));
    let mut events = stream.until("start");
    scene.model.wait_at_gate();
    for pid in scene.processes() {
        stead_term::proc::signal(pid, rustix::process::Signal::KILL);
    }
    events.extend(stream.rest());
    assert_eq!(last(&events, "error")["error"]["code"], "agent_died");
    scene.model.release();
    let next = scene.say("hello three");
    last(&next, "done");
    assert!(resumed(&next), "{next:#?}");
    assert!(!message(&next).contains("turn=1"), "{next:#?}");
}

fn its_session_is_another_than_that_of_the_other_route_and_is_reset_alone(agent: &str, package: &str) {
    let scene = Scene::tui(agent, package, "");
    let other = package.split('-').next().unwrap();
    let turn = |provider: &str, number: u32| {
        let events = scene.chat(json!({"provider": provider, "message": format!("{provider} {number}")})).rest();
        last(&events, "done");
        let text = message(&events);
        assert!(text.contains(&format!("turn={number} last='{provider} {number}'")), "{text}");
    };
    for number in 1..3 {
        turn(agent, number);
        turn(other, number);
    }
    let session = |provider: &str| {
        let all = scene.sessions();
        all.into_iter().find(|session| session["provider"] == provider).unwrap()
    };
    let stream = scene.chat(json!({"message": "GATE three"}));
    let mut events = stream.until("start");
    scene.model.wait_at_gate();
    let reset = json!({"thread_id": "t", "provider": agent});
    scene.rig.post("/api/chat/reset", &reset).fails(409, "session_in_use");
    assert_eq!(session(agent)["running"], json!(true), "nothing was touched");
    scene.model.release();
    events.extend(stream.rest());
    last(&events, "done");
    assert_eq!(scene.rig.post("/api/chat/reset", &reset).is(200)["reset"], json!([session(agent)["key"]]));
    assert!(marked(&[session(agent)["id"].as_str().unwrap().to_owned()]).is_empty(), "its processes have ended");
    turn(agent, 1);
    turn(other, 3);
}

fn one_that_is_unused_rests_and_one_that_is_used_does_not(agent: &str, package: &str) {
    let scene = Scene::tui(agent, package, "[agents]\nidle_timeout_s = 3\n");
    scene.thread("u");
    last(&scene.chat(json!({"thread_id": "u", "message": "hello"})).rest(), "done");
    let stream = scene.chat(json!({"thread_id": "u", "message": "GATE two"}));
    let mut events = stream.until("start");
    scene.model.wait_at_gate();
    last(&scene.say("hello"), "done");
    let session = |busy: bool| {
        let all = scene.sessions();
        all.into_iter().find(|session| (session["run_id"] == json!(stream.run())) == busy).unwrap()
    };
    let resting = session(false)["id"].as_str().unwrap().to_owned();
    wait_for("it to rest", || (session(false)["running"] == json!(false)).then_some(()));
    wait_for("its processes to end", || marked(std::slice::from_ref(&resting)).is_empty().then_some(()));
    assert_eq!((&session(true)["running"], &session(true)["in_use"]), (&json!(true), &json!(true)));
    scene.model.release();
    events.extend(stream.rest());
    last(&events, "done");
    let next = scene.say("again");
    last(&next, "done");
    assert!(resumed(&next) && message(&next).contains("turn=2"), "{next:#?}");
}

fn a_turn_in_which_nothing_happens_is_ended(agent: &str, package: &str) {
    let mut scene = Scene::tui(agent, package, "");
    last(&scene.say("hello"), "done");
    // Its screen counts the seconds all the while.
    let events = scene.impatiently(|scene| scene.say("HANG on"));
    assert_eq!(last(&events, "error")["error"]["code"], "agent_timeout", "{events:#?}");
    last(&scene.say("still there"), "done");
}

fn a_model_that_can_not_be_reached_is_no_reason_to_wait_for_ever(agent: &str, package: &str) {
    let mut scene = Scene::tui(agent, package, "");
    last(&scene.say("hello"), "done");
    scene.model.leave();
    let events = scene.impatiently(|scene| scene.say("anybody"));
    assert_eq!(last(&events, "error")["error"]["code"], "agent_timeout", "{events:#?}");
}

fn a_flood_is_told_as_it_was_written(agent: &str, package: &str) {
    let scene = Scene::tui(agent, package, "");
    let events = scene.say("FLOOD me");
    last(&events, "done");
    let whole: Vec<_> = (0..2000).map(|number| format!("line {number} of a flood")).collect();
    // Its screen holds less than that; what its model wrote comes through its hook.
    let text = message(&events);
    assert_eq!(text.lines().filter(|line| line.ends_with(" of a flood")).collect::<Vec<_>>(), whole);
    assert!(!said(&events).is_empty(), "and some of it as it was drawn");
}
