//! Who may do what: asked, allowed, denied, not answered.

use crate::scene::{Scene, Told, last, said};
use serde_json::{Value, json};

fn asks(package: &str) -> bool {
    // Its tools run without asking, whoever starts it.
    !package.starts_with("auggie")
}

crate::scene::with_each_agent![
    a_tool_is_asked_about_and_allowed,
    a_tool_is_asked_about_and_denied,
    a_policy_answers_for_whoever_is_not_there,
    a_question_that_nobody_answers_is_answered_with_no,
];

fn there(scene: &Scene, name: &str) -> bool {
    let file = scene.rig.call("GET", &format!("/api/threads/t/files?path=/workspace/{name}"), &[], b"");
    file.status == 200
}

fn answered(scene: &Scene, kind: &str) -> (Vec<Told>, Value) {
    let stream = scene.chat(json!({"message": "RUN:touch made.txt;;"}));
    let mut events = stream.until("permission");
    let permission = events.last().unwrap().data.clone();
    assert!(!there(scene, "made.txt"));
    let option = permission["options"].as_array().unwrap().iter().find(|option| option["kind"] == kind).cloned();
    let option = option.unwrap_or_else(|| panic!("{permission:#}"));
    let path = format!("/api/chat/runs/{}/permission", stream.run());
    let wrong = json!({"permission_id": permission["id"], "option_id": "no such"});
    scene.rig.post(&path, &wrong).fails(400, "invalid_request");
    scene.rig.post(&path, &json!({"permission_id": "none", "option_id": "x"})).fails(404, "not_found");
    let choice = json!({"permission_id": permission["id"], "option_id": option["id"]});
    assert_eq!(scene.rig.post(&path, &choice).status, 204);
    scene.rig.post(&path, &choice).fails(404, "not_found");
    events.extend(stream.rest());
    (events, permission)
}

fn a_tool_is_asked_about_and_allowed(package: &str) {
    let scene = Scene::new(package);
    if !asks(package) {
        let events = scene.say("RUN:touch made.txt;;");
        last(&events, "done");
        assert!(there(&scene, "made.txt"));
        return;
    }
    let (events, permission) = answered(&scene, "allow_once");
    last(&events, "done");
    assert!(permission["title"].as_str().unwrap().contains("touch made.txt"), "{permission:#}");
    assert!(there(&scene, "made.txt"), "{events:#?}");
    let tools: Vec<_> = events.iter().filter(|event| event.name == "tool").collect();
    assert_eq!(tools.last().unwrap().data["status"], "completed", "{tools:#?}");
    assert!(said(&events).contains("MOCK-REPLY turn=1"), "{}", said(&events));
    let session = scene.sessions()[0]["id"].as_str().unwrap().to_owned();
    let messages = scene.rig.get(&format!("/api/chat/sessions/{session}/messages")).is(200);
    let all = messages["items"].as_array().unwrap();
    assert!(all.iter().any(|message| message["tools"][0]["status"] == "completed"), "{messages:#}");
}

fn a_tool_is_asked_about_and_denied(package: &str) {
    let scene = Scene::new(package);
    if !asks(package) {
        let events = scene.say("RUN:touch made.txt;;");
        assert!(
            events.iter().all(|event| event.name != "permission"),
            "it asks by now, and can be denied: {events:#?}"
        );
        return;
    }
    let (events, _) = answered(&scene, "reject_once");
    assert!(["done", "aborted"].contains(&events.last().unwrap().name.as_str()), "{events:#?}");
    assert!(!there(&scene, "made.txt"));
    last(&scene.say("and on"), "done");
}

fn a_policy_answers_for_whoever_is_not_there(package: &str) {
    let scene = Scene::new(package);
    let message = |name: &str| format!("RUN:touch {name};;");
    let allowed = json!({"message": message("a.txt"), "permissions": {"default": "allow"}});
    last(&scene.chat(allowed).rest(), "done");
    assert!(there(&scene, "a.txt"));
    let denied =
        json!({"message": message("b.txt"), "permissions": {"default": "allow", "tools": {"execute": "deny"}}});
    let stream = scene.chat(denied);
    if !asks(package) {
        assert_eq!((stream.status, &stream.error["error"]["code"]), (501, &json!("unsupported")));
        return;
    }
    let events = stream.rest();
    assert!(events.iter().all(|event| event.name != "permission"), "{events:#?}");
    assert!(!there(&scene, "b.txt"));
}

fn a_question_that_nobody_answers_is_answered_with_no(package: &str) {
    if !asks(package) {
        println!("SKIPPED: {package} asks nothing");
        return;
    }
    let scene = Scene::with(package, "[agents]\npermission_timeout_s = 1\n");
    let stream = scene.chat(json!({"message": "RUN:touch late.txt;;"}));
    let mut events = stream.until("permission");
    events.extend(stream.rest());
    assert!(!there(&scene, "late.txt"));
    let status =
        events.iter().any(|event| event.data["text"].as_str().is_some_and(|text| text.contains("nobody answered")));
    assert!(status, "{events:#?}");
}
