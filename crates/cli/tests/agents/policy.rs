//! What becomes of questions that nobody is asked.

use crate::polly::Polly;
use crate::scene::{last, said};
use serde_json::json;

#[test]
fn a_rule_for_a_kind_that_does_not_exist_is_refused() {
    let polly = Polly::new("", "");
    polly.scene.thread("t");
    let body = json!({"provider": "polly", "thread_id": "t", "message": "ASK:delete",
        "permissions": {"default": "allow", "tools": {"delte": "deny"}}});
    let error = polly.scene.rig.post("/api/chat", &body).fails(400, "invalid_request");
    assert!(error["message"].as_str().unwrap().contains("`delete`"), "{error}");
    let rule =
        |kind: &str| json!({"message": "ASK:delete", "permissions": {"default": "allow", "tools": {kind: "deny"}}});
    assert_eq!(said(&polly.scene.chat(rule("delete")).rest()), "denied turn=1");
    assert_eq!(said(&polly.scene.chat(rule("execute")).rest()), "allowed turn=2");
}

#[test]
fn a_session_has_a_policy_for_messages_that_have_none() {
    let mut polly = Polly::new("", "");
    last(&polly.scene.say("hello"), "done");
    let path = format!("/api/chat/sessions/{}", polly.scene.sessions()[0]["id"].as_str().unwrap());
    let decide = |polly: &Polly, body: serde_json::Value| {
        let headers = [("content-type", "application/json")];
        polly.scene.rig.call("PATCH", &path, &headers, body.to_string().as_bytes())
    };
    let policy = json!({"default": "deny", "tools": {"read": "allow"}});
    assert_eq!(decide(&polly, json!({"permissions": policy})).is(200)["permissions"], policy);
    decide(&polly, json!({"permissions": {"tools": {"raed": "allow"}}})).fails(400, "invalid_request");
    polly.scene.rig.kill();
    polly.scene.rig.start();
    assert_eq!(polly.scene.rig.get(&path).is(200)["permissions"], policy, "it is kept");
    assert_eq!(said(&polly.scene.say("ASK:execute")), "denied turn=2");
    assert_eq!(said(&polly.scene.say("ASK:read")), "allowed turn=3");
    let own = json!({"message": "ASK:execute", "permissions": {"default": "allow"}});
    assert_eq!(said(&polly.scene.chat(own).rest()), "allowed turn=4", "what a message says counts more");
}

#[test]
fn nothing_is_promised_of_an_agent_that_does_not_ask() {
    let polly = Polly::new("", "asks = false");
    polly.scene.thread("t");
    let denied = json!({"provider": "polly", "thread_id": "t", "message": "x", "permissions": {"default": "deny"}});
    let error = polly.scene.rig.post("/api/chat", &denied).fails(501, "unsupported");
    assert!(error["message"].as_str().unwrap().contains("asks nothing"), "{error}");
    let events = polly.scene.say("hello");
    last(&events, "done");
    let told = events.iter().any(|event| event.data["text"].as_str().is_some_and(|text| text.contains("asks nothing")));
    assert!(told, "{events:#?}");
    let agents = polly.scene.rig.get("/api/agents").is(200);
    let asks = |name: &str| {
        let all = agents["items"].as_array().unwrap();
        all.iter().find(|agent| agent["name"] == name).unwrap()["asks"].clone()
    };
    assert_eq!((asks("polly"), asks("auggie"), asks("codex")), (json!(false), json!(false), json!(true)));
}
