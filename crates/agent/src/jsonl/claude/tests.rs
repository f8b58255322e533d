#![expect(clippy::needless_pass_by_value, reason = "messages are written in place")]

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn setup(resume: Option<&str>) -> Setup {
    Setup { cwd: "/workspace".into(), model: None, resume: resume.map(str::to_owned) }
}

fn written(effects: &Effects) -> Vec<Value> {
    let lines = effects.write.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

fn say(claude: &mut Claude, message: Value) -> Effects {
    let kept = serde_json::to_string(&claude).unwrap();
    *claude = serde_json::from_str(&kept).unwrap();
    claude.line(serde_json::to_string(&message).unwrap().as_bytes())
}

fn hello() -> Value {
    json!({"type": "control_response", "response": {"subtype": "success", "request_id": GREETING, "response": {}}})
}

fn in_turn() -> Claude {
    let (mut claude, greeting) = Claude::begin(setup(None));
    assert_eq!(written(&greeting)[0]["request"]["subtype"], "initialize");
    assert_eq!(say(&mut claude, hello()).told, [Told::Ready { id: None, resumed: false }]);
    let sent = written(&claude.prompt("hi\nthere"));
    assert_eq!(sent[0]["message"]["content"][0]["text"], "hi\nthere");
    claude
}

fn result() -> Value {
    json!({"duration_ms": 3, "type": "result", "subtype": "success", "is_error": false, "result": "ok",
        "session_id": "s1", "usage": {"input_tokens": 2, "output_tokens": 5}})
}

#[test]
fn a_turn_from_its_first_word_to_its_usage() {
    let mut claude = in_turn();
    let init = json!({"type": "system", "subtype": "init", "session_id": "s1"});
    let text = |text: &str| {
        json!({"type": "stream_event", "parent_tool_use_id": null,
        "event": {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}})
    };
    let done = Usage { input_tokens: Some(2), output_tokens: Some(5), total_tokens: Some(7) };
    let steps = [
        (init.clone(), vec![Told::Named("s1".into())]),
        (init, vec![]),
        (text("MOCK"), vec![Told::Event(Event::Delta { text: "MOCK".into() })]),
        (
            json!({"type": "assistant", "parent_tool_use_id": null,
                "message": {"content": [{"type": "text", "text": "MOCK"}, {"type": "thinking", "thinking": "x"}]}}),
            vec![Told::Event(Event::Message { text: "MOCK".into() })],
        ),
        (result(), vec![Told::Event(Event::Done { usage: Some(done) })]),
        (result(), vec![]),
    ];
    for (message, expected) in steps {
        assert_eq!(say(&mut claude, message.clone()).told, expected, "{message}");
    }
}

#[test]
fn a_tool_is_asked_about_and_told_of() {
    let mut claude = in_turn();
    let used = json!({"type": "assistant", "parent_tool_use_id": null, "message": {"content": [
        {"type": "tool_use", "id": "u1", "name": "Bash", "input": {"command": "ls"}}]}});
    let begun = say(&mut claude, used).told;
    let Told::Event(Event::Tool(tool)) = &begun[0] else { panic!() };
    assert_eq!((tool.name.as_str(), tool.status), ("Bash", ToolStatus::Running));
    let ask = json!({"type": "control_request", "request_id": "r1",
        "request": {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}}});
    let asked = say(&mut claude, ask.clone()).told;
    let Told::Event(Event::Permission(permission)) = &asked[0] else { panic!() };
    assert_eq!((permission.title.as_str(), permission.kind.as_str()), ("Bash: ls", "execute"));
    let allowed = written(&claude.answer("r1", Some("allow")));
    assert_eq!(allowed[0]["response"]["response"], json!({"behavior": "allow", "updatedInput": {"command": "ls"}}));
    let ended = json!({"type": "user", "parent_tool_use_id": null, "message": {"content": [
        {"type": "tool_result", "tool_use_id": "u1", "is_error": true, "content": [{"type": "text", "text": "no"}]}]}});
    let told = say(&mut claude, ended.clone()).told;
    let Told::Event(Event::Tool(tool)) = &told[0] else { panic!() };
    assert_eq!((tool.status, tool.output.clone()), (ToolStatus::Failed, Some(json!({"output": "no"}))));
    assert_eq!(say(&mut claude, ended).told, [], "once");

    say(&mut claude, ask);
    let denied = written(&claude.answer("r1", None));
    assert_eq!(denied[0]["response"]["response"]["behavior"], "deny");
}

#[test]
fn a_withdrawn_question_can_not_be_answered() {
    let mut claude = in_turn();
    say(
        &mut claude,
        json!({"type": "control_request", "request_id": "r1",
        "request": {"subtype": "can_use_tool", "tool_name": "Write", "input": {"file_path": "/a"}}}),
    );
    assert_eq!(claude.questions()[0].kind, "edit");
    say(&mut claude, json!({"type": "control_cancel_request", "request_id": "r1"}));
    assert!(claude.questions().is_empty());
}

#[test]
fn an_interruption_ends_with_aborted_whatever_the_result_says() {
    let mut claude = in_turn();
    assert_eq!(written(&claude.interrupt())[0]["request"]["subtype"], "interrupt");
    assert_eq!(claude.interrupt(), Effects::default(), "once");
    let stopped = json!({"type": "result", "subtype": "error_during_execution", "is_error": true});
    assert_eq!(say(&mut claude, stopped).told, [Told::Event(Event::Aborted {})]);
}

#[test]
fn a_conversation_that_is_gone_is_told_before_anything_else() {
    let (mut claude, _) = Claude::begin(setup(Some("old")));
    claude.prompt("x");
    let greeted = say(&mut claude, hello());
    assert_eq!((greeted.told.as_slice(), claude.is_ready()), ([].as_slice(), false), "not known yet");
    let gone = json!({"type": "result", "subtype": "error_during_execution", "is_error": true,
        "errors": ["No conversation found with session ID: old"]});
    assert_eq!(say(&mut claude, gone).told, [Told::CannotResume]);
}

#[test]
fn a_conversation_is_resumed_when_it_is_seen_to_go_on() {
    let (mut claude, _) = Claude::begin(setup(Some("old")));
    claude.prompt("x");
    assert!(!say(&mut claude, hello()).write.is_empty(), "the message is not held back");
    let init = json!({"type": "system", "subtype": "init", "session_id": "old"});
    let resumed = Told::Ready { id: Some("old".into()), resumed: true };
    assert_eq!(say(&mut claude, init.clone()).told, [resumed, Told::Named("old".into())]);
    assert!(claude.is_ready());
    assert_eq!(say(&mut claude, init).told, []);
}

#[test]
fn failures_and_retries_say_why() {
    let mut claude = in_turn();
    let retry = say(&mut claude, json!({"type": "system", "subtype": "api_retry", "attempt": 3}));
    assert_eq!(retry.told, [Told::Event(Event::status("the model can't be reached, attempt 3"))]);
    let failed = json!({"type": "result", "subtype": "success", "is_error": true, "result": "API Error: 500"});
    assert_eq!(say(&mut claude, failed).told, [Told::Event(Event::error("agent_error", "API Error: 500"))]);
}

#[test]
fn what_an_agent_within_says_is_its_own() {
    let mut claude = in_turn();
    let inner = json!({"type": "assistant", "parent_tool_use_id": "u1",
        "message": {"content": [{"type": "text", "text": "inner"}]}});
    assert_eq!(say(&mut claude, inner).told, []);
}

proptest! {
    #[test]
    fn garbage_changes_nothing(lines in proptest::collection::vec("[{}\\[\\]\":,a-z0-9 ]{0,60}", 0..20)) {
        let mut claude = in_turn();
        for line in &lines {
            claude.line(line.as_bytes());
        }
        prop_assert!(claude.is_in_turn());
    }
}
