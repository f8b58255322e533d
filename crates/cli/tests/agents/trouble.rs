//! Agents that hang, flood, or have nobody to talk to.

use crate::rig::wait_for;
use crate::scene::{Scene, last, names, said, with_each_agent};
use serde_json::json;

with_each_agent![
    a_turn_in_which_nothing_happens_is_ended,
    a_model_that_can_not_be_reached_is_no_reason_to_wait_for_ever,
    a_flood_is_told_to_its_end,
];

fn a_turn_in_which_nothing_happens_is_ended(package: &str) {
    let mut scene = Scene::new(package);
    last(&scene.say("hello"), "done");
    let events = scene.impatiently(|scene| scene.say("HANG on"));
    assert_eq!(last(&events, "error")["error"]["code"], "agent_timeout", "{events:#?}");
    let next = scene.say("still there");
    last(&next, "done");
}

fn a_model_that_can_not_be_reached_is_no_reason_to_wait_for_ever(package: &str) {
    let mut scene = Scene::new(package);
    last(&scene.say("hello"), "done");
    scene.model.leave();
    let events = scene.impatiently(|scene| scene.say("anybody"));
    last(&events, "error");
}

fn a_flood_is_told_to_its_end(package: &str) {
    let scene = Scene::new(package);
    let events = scene.say("FLOOD me");
    last(&events, "done");
    let text = said(&events);
    let told: Vec<_> = text.lines().filter(|line| line.ends_with(" of a flood")).collect();
    let whole: Vec<_> = (0..2000).map(|number| format!("line {number} of a flood")).collect();
    assert_eq!(told, whole, "each once and in order");
}

/// One that reads nothing and says nothing, and doesn't end when it is asked to.
#[test]
fn an_agent_that_does_nothing_at_all_is_killed() {
    let toy = tempfile::tempdir().unwrap();
    let program = toy.path().join("deaf");
    std::fs::write(&program, "#!/bin/bash\ntrap '' INT TERM HUP\nwhile :; do read -r -t 60 _ </dev/zero; done\n")
        .unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let settings = format!(
        "[agents]\nactivity_timeout_s = 1\n[agent.deaf]\ncommand = ['{}']\ntransport = 'acp'\n",
        program.display()
    );
    let scene = Scene::plain("deaf", &settings);
    let events = scene.say("hello");
    assert_eq!(last(&events, "error")["error"]["code"], "agent_timeout", "{events:#?}");
    wait_for("its processes to end", || (scene.processes().is_empty()).then_some(()));
}

#[test]
fn an_agent_that_is_not_there_says_how_to_get_it() {
    let settings = "[agent.codex]\ncommand = ['/nonexistent/codex', 'app-server']\n";
    let scene = Scene::plain("codex", settings);
    let refused = scene.chat(json!({"message": "hello"}));
    assert_eq!((refused.status, &refused.error["error"]["code"]), (501, &json!("unsupported")));
    assert!(refused.error["error"]["message"].as_str().unwrap().contains("npm install -g @openai/codex"));
    let agents = scene.rig.get("/api/agents").is(200);
    let codex = agents["items"].as_array().unwrap().iter().find(|agent| agent["name"] == "codex").unwrap().clone();
    assert_eq!((&codex["available"], &codex["version"]), (&json!(false), &json!(null)));
}

/// It says why in colours, for a terminal that isn't there, and never listens.
#[test]
fn an_agent_that_can_not_start_has_a_start_and_an_error_in_plain_text() {
    let toy = tempfile::tempdir().unwrap();
    let program = toy.path().join("broken");
    let script = "#!/bin/bash\nprintf '\\e]0;title\\a\\e[1;31mno licence\\e[0m\\e[?25h: buy one\\r\\n' >&2\nexit 3\n";
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let settings = format!("[agent.broken]\ncommand = ['{}']\ntransport = 'acp'\n", program.display());
    let scene = Scene::plain("broken", &settings);
    let events = scene.say("hello");
    let names = names(&events);
    assert_eq!((names.first(), names.last()), (Some(&"start"), Some(&"error")), "{events:#?}");
    assert_eq!(names.iter().filter(|name| **name == "start").count(), 1, "{events:#?}");
    assert_eq!(events[0].data["resumed"], json!(false));
    let error = last(&events, "error")["error"].clone();
    assert_eq!(error["code"], "agent_died");
    assert_eq!(error["message"], "the agent's process ended with status 3: no licence: buy one");
}
