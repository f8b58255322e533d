#![expect(clippy::needless_pass_by_value, reason = "messages are written in place")]

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn setup(resume: Option<&str>) -> Setup {
    Setup { cwd: "/workspace".into(), model: None, resume: resume.map(str::to_owned) }
}

fn told(effects: &Effects) -> Vec<Told> {
    effects.told.clone()
}

fn written(effects: &Effects) -> Vec<Value> {
    let lines = effects.write.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

fn say(codex: &mut Codex, message: Value) -> Effects {
    // What was written down goes on like what was not.
    let kept = serde_json::to_string(&codex).unwrap();
    *codex = serde_json::from_str(&kept).unwrap();
    codex.line(serde_json::to_string(&message).unwrap().as_bytes())
}

fn event(event: Event) -> Told {
    Told::Event(event)
}

fn ready() -> Codex {
    let (mut codex, hello) = Codex::begin(setup(None));
    assert_eq!(written(&hello)[0]["method"], "initialize");
    let opening = say(&mut codex, json!({"id": 1, "result": {"userAgent": "x"}}));
    let sent = written(&opening);
    assert_eq!((&sent[0]["method"], &sent[1]["method"]), (&json!("initialized"), &json!("thread/start")));
    assert_eq!(sent[1]["params"]["approvalPolicy"], "untrusted");
    let opened = say(&mut codex, json!({"id": 2, "result": {"thread": {"id": "t1"}}}));
    assert_eq!(told(&opened), [Told::Ready { id: Some("t1".into()), resumed: false }]);
    codex
}

fn in_turn() -> Codex {
    let mut codex = ready();
    let sent = written(&codex.prompt("hello"));
    assert_eq!(sent[0]["params"], json!({"threadId": "t1", "input": [{"type": "text", "text": "hello"}]}));
    say(&mut codex, json!({"id": sent[0]["id"], "result": {"turn": {"id": "u1", "status": "inProgress"}}}));
    codex
}

fn notice(method: &str, params: Value) -> Value {
    let mut params = params;
    params["threadId"] = json!("t1");
    json!({"method": method, "params": params})
}

#[test]
fn a_turn_from_its_first_word_to_its_usage() {
    let mut codex = in_turn();
    let steps = [
        (notice("turn/started", json!({"turn": {"id": "u1"}})), vec![]),
        (notice("item/started", json!({"item": {"type": "userMessage", "id": "i0"}})), vec![]),
        (
            notice("item/agentMessage/delta", json!({"itemId": "i1", "delta": "MOCK-"})),
            vec![event(Event::Delta { text: "MOCK-".into() })],
        ),
        (
            notice("item/completed", json!({"item": {"type": "agentMessage", "id": "i1", "text": "MOCK-REPLY"}})),
            vec![event(Event::Message { text: "MOCK-REPLY".into() })],
        ),
        (
            notice(
                "thread/tokenUsage/updated",
                json!({"tokenUsage": {"last": {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}}}),
            ),
            vec![],
        ),
        (
            notice("turn/completed", json!({"turn": {"id": "u1", "status": "completed"}})),
            vec![event(Event::Done {
                usage: Some(Usage { input_tokens: Some(3), output_tokens: Some(4), total_tokens: Some(7) }),
            })],
        ),
    ];
    for (message, expected) in steps {
        assert_eq!(told(&say(&mut codex, message.clone())), expected, "{message}");
    }
    assert!(!codex.is_in_turn());
}

#[test]
fn what_another_conversation_says_is_not_ours() {
    let mut codex = in_turn();
    for method in ["item/agentMessage/delta", "turn/completed", "error"] {
        let foreign = json!({"method": method, "params": {"threadId": "title", "delta": "x", "turn": {"id": "u9"}}});
        assert_eq!(told(&say(&mut codex, foreign)), []);
    }
    assert!(codex.is_in_turn());
}

#[test]
fn a_message_before_it_is_ready_waits_and_is_sent_once() {
    let (mut codex, _) = Codex::begin(setup(None));
    assert_eq!(codex.prompt("early"), Effects::default());
    say(&mut codex, json!({"id": 1, "result": {}}));
    let opened = say(&mut codex, json!({"id": 2, "result": {"thread": {"id": "t1"}}}));
    let sent = written(&opened);
    assert_eq!((sent.len(), &sent[0]["method"]), (1, &json!("turn/start")));
    let again = say(&mut codex, json!({"id": 2, "result": {"thread": {"id": "t1"}}}));
    assert_eq!(again, Effects::default());
}

#[test]
fn a_conversation_is_resumed_or_said_not_to_be() {
    let (mut codex, _) = Codex::begin(setup(Some("old")));
    let sent = written(&say(&mut codex, json!({"id": 1, "result": {}})));
    assert_eq!((&sent[1]["method"], &sent[1]["params"]["threadId"]), (&json!("thread/resume"), &json!("old")));
    let mut gone = codex.clone();
    let resumed = say(&mut codex, json!({"id": 2, "result": {"thread": {"id": "old"}}}));
    assert_eq!(told(&resumed), [Told::Ready { id: Some("old".into()), resumed: true }]);

    let refused = say(&mut gone, json!({"id": 2, "error": {"code": -32600, "message": "no rollout found"}}));
    assert_eq!(written(&refused)[0]["method"], "thread/start");
    let fresh = say(&mut gone, json!({"id": 3, "result": {"thread": {"id": "new"}}}));
    assert_eq!(told(&fresh), [Told::Ready { id: Some("new".into()), resumed: false }]);
}

#[test]
fn a_command_is_asked_about_and_told_of() {
    let mut codex = in_turn();
    let item = |status: &str| {
        json!({"type": "commandExecution", "id": "c1", "command": "touch x", "cwd": "/workspace",
        "status": status, "aggregatedOutput": "ok", "exitCode": 0})
    };
    let begun = told(&say(&mut codex, notice("item/started", json!({"item": item("inProgress")}))));
    let Told::Event(Event::Tool(tool)) = &begun[0] else { panic!("{begun:?}") };
    assert_eq!((tool.name.as_str(), tool.status, &tool.output), ("shell", ToolStatus::Running, &None));
    let ask = json!({"id": 77, "method": "item/commandExecution/requestApproval",
        "params": {"threadId": "t1", "itemId": "c1", "command": "touch x", "reason": "needs it"}});
    let asked = told(&say(&mut codex, ask));
    let Told::Event(Event::Permission(permission)) = &asked[0] else { panic!("{asked:?}") };
    assert_eq!((permission.id.as_str(), permission.kind.as_str()), ("77", "execute"));
    assert_eq!(permission.title, "needs it: touch x");
    let answer = codex.answer("77", Some("accept"));
    assert_eq!(written(&answer), [json!({"id": 77, "result": {"decision": "accept"}})]);
    assert_eq!(codex.answer("77", Some("accept")), Effects::default(), "once");
    let ended = told(&say(&mut codex, notice("item/completed", json!({"item": item("completed")}))));
    let Told::Event(Event::Tool(tool)) = &ended[0] else { panic!("{ended:?}") };
    assert_eq!(tool.output, Some(json!({"output": "ok", "exit_code": 0})));
    let declined = told(&say(&mut codex, notice("item/completed", json!({"item": item("declined")}))));
    let Told::Event(Event::Tool(tool)) = &declined[0] else { panic!("{declined:?}") };
    assert_eq!(tool.status, ToolStatus::Failed);
}

#[test]
fn an_interruption_waits_for_the_name_of_the_turn() {
    let mut codex = ready();
    let sent = written(&codex.prompt("hello"));
    assert_eq!(codex.interrupt().write, b"");
    let named = say(&mut codex, json!({"id": sent[0]["id"], "result": {"turn": {"id": "u1"}}}));
    let sent = written(&named);
    assert_eq!(sent[0]["params"], json!({"threadId": "t1", "turnId": "u1"}));
    let ended = say(&mut codex, notice("turn/completed", json!({"turn": {"id": "u1", "status": "interrupted"}})));
    assert_eq!(told(&ended), [event(Event::Aborted {})]);
}

#[test]
fn an_interruption_answers_what_was_asked() {
    let mut codex = in_turn();
    say(&mut codex, json!({"id": "q", "method": "item/fileChange/requestApproval", "params": {"threadId": "t1"}}));
    assert_eq!(codex.questions()[0].title, "change files");
    let sent = written(&codex.interrupt());
    assert_eq!(sent[0], json!({"id": "q", "result": {"decision": "cancel"}}));
    assert_eq!(sent[1]["method"], "turn/interrupt");
    assert!(codex.questions().is_empty());
}

#[test]
fn failures_say_why() {
    let mut codex = in_turn();
    let retry = say(&mut codex, notice("error", json!({"error": {"message": "Reconnecting..."}, "willRetry": true})));
    assert_eq!(told(&retry), [event(Event::status("Reconnecting..."))]);
    say(&mut codex, notice("error", json!({"error": {"message": "quota"}, "willRetry": false})));
    let failed = say(&mut codex, notice("turn/completed", json!({"turn": {"id": "u1", "status": "failed"}})));
    assert_eq!(told(&failed), [event(Event::error("agent_error", "quota"))]);

    let mut codex = ready();
    let sent = written(&codex.prompt("hello"));
    let refused = say(&mut codex, json!({"id": sent[0]["id"], "error": {"code": -32001, "message": "overloaded"}}));
    let Told::Event(Event::Error { error }) = &refused.told[0] else { panic!() };
    assert!(error.retryable);

    let (mut codex, _) = Codex::begin(setup(None));
    codex.prompt("early");
    let failed = say(&mut codex, json!({"id": 1, "error": {"message": "no"}}));
    assert!(matches!(&failed.told[0], Told::Event(Event::Error { .. })));
    assert!(codex.has_failed(), "another process has to be started");
    assert!(matches!(&codex.prompt("x").told[0], Told::Event(Event::Error { .. })));
}

#[test]
fn what_nobody_here_answers_is_refused_not_left_waiting() {
    let mut codex = in_turn();
    let refused = written(&say(&mut codex, json!({"id": 9, "method": "item/tool/requestUserInput", "params": {}})));
    assert_eq!((&refused[0]["id"], &refused[0]["error"]["code"]), (&json!(9), &json!(-32601)));
}

proptest! {
    #[test]
    fn garbage_changes_nothing(lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..20)) {
        let mut codex = in_turn();
        for line in &lines {
            prop_assert_eq!(codex.line(line), Effects::default());
        }
        prop_assert!(codex.is_in_turn());
    }

    #[test]
    fn messages_of_any_shape_end_a_turn_at_most_once(
        lines in proptest::collection::vec((
            prop_oneof![Just("turn/completed"), Just("item/completed"), Just("error"), Just("item/started"), Just("x")],
            proptest::option::of(0u64..20), any::<bool>(), "[a-z]{0,4}"), 0..30)
    ) {
        let mut codex = in_turn();
        let mut ends = 0;
        for (method, id, named, word) in lines {
            let mut message = json!({"params": {"item": {"type": word, "text": word}, "turn": {"status": word}, "error": word}});
            if named { message["method"] = json!(method); }
            if let Some(id) = id { message["id"] = json!(id); }
            let effects = codex.line(message.to_string().as_bytes());
            ends += effects.told.iter().filter(|told| matches!(told, Told::Event(event) if event.is_last())).count();
        }
        prop_assert!(ends <= 1);
    }
}
