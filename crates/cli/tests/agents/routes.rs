//! The second route: two agents as people see them, on a terminal, read from their screens and hooks.

use crate::model::MARKDOWN;
use crate::scene::{CLAUDE, CODEX, Scene, Told, last, resumed};
use serde_json::json;

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
];

fn message(events: &[Told]) -> String {
    let message = events.iter().rfind(|event| event.name == "message").unwrap_or_else(|| panic!("{events:#?}"));
    message.data["text"].as_str().unwrap().to_owned()
}

fn a_second_message_knows_the_first_and_so_does_the_next_process(agent: &str, package: &str) {
    let scene = Scene::tui(agent, package);
    let first = scene.say("MD one");
    last(&first, "done");
    assert!(!resumed(&first));
    let text = message(&first);
    assert!(text.contains("turn=1 last='MD one'") && text.ends_with(MARKDOWN), "{text}");
    let second = scene.say("hello two");
    last(&second, "done");
    assert!(message(&second).contains("turn=2 last='hello two'"), "{second:#?}");
    for pid in scene.processes() {
        stead_term::proc::signal(pid, rustix::process::Signal::KILL);
    }
    crate::rig::wait_for("its death to be noticed", || (scene.sessions()[0]["running"] == json!(false)).then_some(()));
    let third = scene.say("hello three");
    last(&third, "done");
    assert!(resumed(&third), "{third:#?}");
    assert!(message(&third).contains("turn=3 last='hello three'"), "{third:#?}");
}

fn a_tool_is_asked_about_and_allowed_or_denied(agent: &str, package: &str) {
    if agent == "codex-tui" {
        let scene = Scene::tui(agent, package);
        last(&scene.say("RUN:touch yes.txt;;"), "done");
        assert_eq!(scene.rig.call("GET", "/api/threads/t/files?path=/workspace/yes.txt", &[], b"").status, 200);
        return;
    }
    for (kind, name) in [("allow_once", "yes.txt"), ("reject_once", "no.txt")] {
        let scene = Scene::tui(agent, package);
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
    let scene = Scene::tui(agent, package);
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
    let mut scene = Scene::tui(agent, package);
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
