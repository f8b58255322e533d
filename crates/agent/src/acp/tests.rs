#![expect(clippy::needless_pass_by_value, reason = "messages are written in place")]

use super::*;
use crate::event::{Tool, ToolStatus};
use proptest::prelude::*;
use serde_json::json;

fn setup(resume: Option<&str>, model: Option<&str>) -> Setup {
    let own = |text: Option<&str>| text.map(str::to_owned);
    Setup { cwd: "/workspace".into(), model: own(model), resume: own(resume) }
}

fn written(effects: &Effects) -> Vec<Value> {
    let lines = effects.write.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

fn say(acp: &mut Acp, message: Value) -> Effects {
    let kept = serde_json::to_string(&acp).unwrap();
    *acp = serde_json::from_str(&kept).unwrap();
    acp.line(serde_json::to_string(&message).unwrap().as_bytes())
}

fn greeting(loads: bool) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": 1, "agentCapabilities": {"loadSession": loads}}})
}

fn ready() -> Acp {
    let (mut acp, hello) = Acp::begin(setup(None, None), true, false);
    assert_eq!(written(&hello)[0]["params"]["protocolVersion"], 1);
    let sent = written(&say(&mut acp, greeting(true)));
    assert_eq!(sent[0]["params"], json!({"cwd": "/workspace", "mcpServers": []}));
    let opened = say(&mut acp, json!({"jsonrpc": "2.0", "id": 3, "result": {"sessionId": "s1"}}));
    assert_eq!(opened.told, [Told::Ready { id: Some("s1".into()), resumed: false }]);
    acp
}

fn in_turn() -> (Acp, Value) {
    let mut acp = ready();
    let sent = written(&acp.prompt("hi"));
    (acp, sent[0]["id"].clone())
}

fn update(update: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s1", "update": update}})
}

fn chunk(text: &str) -> Value {
    update(json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}))
}

#[test]
fn a_turn_with_a_tool_in_the_middle() {
    let (mut acp, id) = in_turn();
    let tool = |status, output: Option<Value>| {
        let (id, name) = ("c1".to_owned(), "Shell ls".to_owned());
        Told::Event(Event::Tool(Tool { id, name, input: json!({"command": "ls"}), output, status }))
    };
    let say_so = |text: &str| Told::Event(Event::Message { text: text.into() });
    let delta = |text: &str| Told::Event(Event::Delta { text: text.into() });
    let steps = [
        (chunk("I "), vec![delta("I ")]),
        (chunk("look"), vec![delta("look")]),
        (
            update(json!({"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "Shell ls", "kind": "execute",
                "status": "pending", "rawInput": {"command": "ls"}})),
            vec![say_so("I look"), tool(ToolStatus::Running, None)],
        ),
        (
            update(json!({"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed",
                "content": [{"type": "content", "content": {"type": "text", "text": "a b"}}]})),
            vec![tool(ToolStatus::Completed, Some(json!({"output": "a b"})))],
        ),
        (update(json!({"sessionUpdate": "agent_thought_chunk", "content": {"text": "x"}})), vec![]),
        (chunk("done"), vec![delta("done")]),
        (
            json!({"jsonrpc": "2.0", "id": id, "result": {"stopReason": "end_turn"}}),
            vec![say_so("done"), Told::Event(Event::Done { usage: None })],
        ),
    ];
    for (message, expected) in steps {
        assert_eq!(say(&mut acp, message.clone()).told, expected, "{message}");
    }
}

#[test]
fn a_conversation_that_is_loaded_is_not_told_again() {
    let (mut acp, _) = Acp::begin(setup(Some("s1"), None), true, false);
    let sent = written(&say(&mut acp, greeting(true)));
    assert_eq!((&sent[0]["method"], &sent[0]["params"]["sessionId"]), (&json!("session/load"), &json!("s1")));
    assert_eq!(say(&mut acp, chunk("old")), Effects::default());
    let loaded = say(&mut acp, json!({"jsonrpc": "2.0", "id": 2, "result": null}));
    assert_eq!(loaded.told, [Told::Ready { id: Some("s1".into()), resumed: true }]);
    acp.prompt("x");
    assert_eq!(say(&mut acp, chunk("new")).told.len(), 1);
}

#[test]
fn who_can_not_load_begins_anew_and_says_so() {
    for (known_to, says) in [(false, true), (true, false)] {
        let (mut acp, _) = Acp::begin(setup(Some("s0"), None), known_to, false);
        let greeted = say(&mut acp, greeting(says));
        assert_eq!(written(&greeted)[0]["method"], "session/new");
        assert_eq!(greeted.told.len(), 1);
    }
    let (mut acp, _) = Acp::begin(setup(Some("s0"), None), true, false);
    say(&mut acp, greeting(true));
    let failed = say(&mut acp, json!({"id": 2, "error": {"code": -1, "message": "Invalid session identifier"}}));
    assert_eq!(written(&failed)[0]["method"], "session/new");
    let opened = say(&mut acp, json!({"id": 3, "result": {"sessionId": "s2"}}));
    assert_eq!(opened.told, [Told::Ready { id: Some("s2".into()), resumed: false }]);
}

#[test]
fn a_model_is_chosen_where_that_takes_a_message() {
    let (mut acp, _) = Acp::begin(setup(None, Some("m/x")), true, true);
    say(&mut acp, greeting(true));
    let opened = say(&mut acp, json!({"id": 3, "result": {"sessionId": "s1", "models": {"currentModelId": "m/y"}}}));
    assert_eq!(written(&opened)[0]["params"], json!({"sessionId": "s1", "modelId": "m/x"}));
    let mut refused = acp.clone();
    assert!(matches!(say(&mut acp, json!({"id": 4, "result": {}})).told[..], [Told::Ready { .. }]));
    refused.prompt("x");
    let told = say(&mut refused, json!({"id": 4, "error": {"message": "unknown"}})).told;
    assert_eq!(told, [Told::Event(Event::error("agent_failed", "the agent does not take the model `m/x`: unknown"))]);
    assert!(refused.has_failed(), "another process has to be started");
}

#[test]
fn permission_is_asked_with_the_agents_own_options() {
    let (mut acp, _) = in_turn();
    let ask = json!({"jsonrpc": "2.0", "id": 0, "method": "session/request_permission", "params": {"sessionId": "s1",
        "toolCall": {"toolCallId": "c1", "title": "Shell", "kind": "execute", "rawInput": {"command": "touch x"}},
        "options": [{"optionId": "proceed_once", "name": "Allow", "kind": "allow_once"},
                    {"optionId": "cancel", "name": "Reject", "kind": "reject_once"}]}});
    let asked = say(&mut acp, ask.clone()).told;
    let Told::Event(Event::Permission(permission)) = &asked[0] else { panic!() };
    assert_eq!((permission.id.as_str(), permission.title.as_str()), ("0", "Shell: touch x"));
    let answer = written(&acp.answer("0", Some("cancel")));
    assert_eq!(answer[0]["result"]["outcome"], json!({"outcome": "selected", "optionId": "cancel"}));
    say(&mut acp, ask);
    let sent = written(&acp.interrupt());
    assert_eq!(sent[0]["method"], "session/cancel");
    assert_eq!(sent[1]["result"]["outcome"], json!({"outcome": "cancelled"}));
}

#[test]
fn a_turn_ends_as_its_answer_says() {
    let cases = [
        (json!({"result": {"stopReason": "cancelled"}}), Event::Aborted {}),
        (json!({"result": {"stopReason": "refusal"}}), Event::error("refused", "the model refused to go on")),
        (json!({"result": {"stopReason": "max_tokens"}}), Event::Done { usage: None }),
        (
            json!({"error": {"code": -32603, "message": "Internal error", "data": {"details": "quota"}}}),
            Event::error("agent_error", "Internal error: quota"),
        ),
    ];
    for (mut message, last) in cases {
        let (mut acp, id) = in_turn();
        message["id"] = id;
        let told = say(&mut acp, message).told;
        assert_eq!(told.last(), Some(&Told::Event(last)));
        assert!(!acp.is_in_turn());
    }
}

#[test]
fn another_version_is_refused() {
    let (mut acp, _) = Acp::begin(setup(None, None), true, false);
    acp.prompt("x");
    let told = say(&mut acp, json!({"id": 1, "result": {"protocolVersion": 2}})).told;
    assert!(matches!(&told[..], [Told::Event(Event::Error { .. })]));
}

#[test]
fn what_is_not_offered_is_refused() {
    let (mut acp, _) = in_turn();
    let sent = written(&say(&mut acp, json!({"id": 5, "method": "fs/read_text_file", "params": {}})));
    assert_eq!(sent[0]["error"]["code"], -32601);
}

proptest! {
    #[test]
    fn any_message_ends_a_turn_at_most_once(
        lines in proptest::collection::vec((0u64..15, "[a-z_]{0,10}", any::<bool>(), any::<bool>()), 0..40)
    ) {
        let (mut acp, _) = in_turn();
        let mut ends = 0;
        for (id, word, named, fails) in lines {
            let mut message = json!({"id": id, "params": {"sessionId": "s1", "update": {"sessionUpdate": word}}});
            if named { message["method"] = json!(word); }
            if fails { message["error"] = json!({"message": word}); } else { message["result"] = json!({"stopReason": word}); }
            let effects = acp.line(message.to_string().as_bytes());
            ends += effects.told.iter().filter(|told| matches!(told, Told::Event(event) if event.is_last())).count();
        }
        prop_assert!(ends <= 1);
        prop_assert_eq!(ends == 1, !acp.is_in_turn());
    }

    #[test]
    fn garbage_changes_nothing(lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..20)) {
        let (mut acp, _) = in_turn();
        for line in &lines {
            prop_assert_eq!(acp.line(line), Effects::default());
        }
    }
}
