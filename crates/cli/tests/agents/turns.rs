//! What holds for every agent, whatever it speaks.

use crate::model::MARKDOWN;
use crate::scene::with_each_agent;
use crate::scene::{AUGGIE, CLAUDE, CODEX, GEMINI, OPENCODE, Scene, last, names, resumed, said};
use serde_json::json;

with_each_agent![
    a_second_message_knows_the_first,
    an_answer_is_told_before_it_has_ended,
    markdown_stays_as_it_was_written,
    a_turn_can_be_aborted_and_the_next_goes_on,
];

fn a_second_message_knows_the_first(package: &str) {
    let scene = Scene::new(package);
    let first = scene.say("hello one");
    last(&first, "done");
    assert!(said(&first).contains("turn=1"), "{}", said(&first));
    assert!(!resumed(&first));
    let second = scene.say("hello two");
    last(&second, "done");
    assert!(said(&second).contains("turn=2 last='hello two'"), "{}", said(&second));
    assert!(resumed(&second));
    assert_eq!(scene.sessions().len(), 1);
}

fn an_answer_is_told_before_it_has_ended(package: &str) {
    let scene = Scene::new(package);
    let stream = scene.chat(json!({"message": "GATE please"}));
    let mut events = stream.until("delta");
    scene.model.release();
    events.extend(stream.rest());
    last(&events, "done");
    assert!(said(&events).contains("MOCK-REPLY"), "{events:#?}");
    assert_eq!(*names(&events).last().unwrap(), "done");
}

fn markdown_stays_as_it_was_written(package: &str) {
    let scene = Scene::new(package);
    let events = scene.say("MD please");
    last(&events, "done");
    let session = scene.sessions()[0]["id"].as_str().unwrap().to_owned();
    let messages = scene.rig.get(&format!("/api/chat/sessions/{session}/messages")).is(200);
    let texts: Vec<_> = messages["items"].as_array().unwrap().iter().map(|m| m["text"].as_str().unwrap()).collect();
    assert_eq!(texts.len(), 2, "{messages:#}");
    assert!(texts[0] == "MD please" && texts[1].ends_with(MARKDOWN), "{texts:#?}");
}

fn a_turn_can_be_aborted_and_the_next_goes_on(package: &str) {
    let scene = Scene::new(package);
    let stream = scene.chat(json!({"message": "GATE forever"}));
    let mut events = stream.until("delta");
    let aborted = scene.rig.post("/api/chat/abort", &json!({"run_id": stream.run()})).is(200);
    assert_eq!(aborted["id"], json!(stream.run()));
    events.extend(stream.rest());
    last(&events, "aborted");
    scene.model.release();
    let next = scene.say("after it");
    last(&next, "done");
    assert!(said(&next).ends_with("after it'"), "{}", said(&next));
}

#[test]
#[ignore = "needs the agents: `cargo xtask test --agents`"]
fn all_five_are_found_with_their_versions() {
    for (package, transport) in
        [(CODEX, "jsonl"), (CLAUDE, "jsonl"), (GEMINI, "acp"), (AUGGIE, "acp"), (OPENCODE, "acp")]
    {
        let scene = Scene::new(package);
        let agents = scene.rig.get("/api/agents").is(200);
        let (name, version) = package.split_once('-').unwrap();
        let agent = agents["items"].as_array().unwrap().iter().find(|agent| agent["name"] == name).unwrap().clone();
        assert_eq!(agent["available"], true, "{agent}");
        assert_eq!((agent["version"].as_str(), agent["transport"].as_str()), (Some(version), Some(transport)));
    }
}
