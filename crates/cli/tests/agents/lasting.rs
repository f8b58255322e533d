//! What an agent's trouble must not cost: its conversation, what was promised, the truth about either.

use crate::polly::{Polly, write_program};
use crate::rig::wait_for;
use crate::scene::{Scene, Told, last, resumed, said};
use serde_json::{Value, json};

#[test]
fn an_agent_that_does_not_start_keeps_its_conversation() {
    let polly = Polly::new("", "");
    last(&polly.scene.say("hello"), "done");
    polly.kill_agent();
    polly.put("exit");
    let failed = polly.scene.say("anybody");
    assert_eq!(last(&failed, "error")["error"]["code"], "agent_died", "{failed:#?}");
    assert_eq!(polly.scene.sessions()[0]["resumable"], json!(true));
    polly.take("exit");
    let next = polly.scene.say("back again");
    assert_eq!((resumed(&next), said(&next).as_str()), (true, "turn=2"), "{next:#?}");
}

#[test]
fn an_agent_that_could_not_open_a_conversation_is_tried_again() {
    let polly = Polly::new("", "");
    polly.put("locked");
    for _ in 0..2 {
        let failed = polly.scene.say("hello");
        let error = &last(&failed, "error")["error"];
        assert_eq!(error["code"], "agent_failed");
        assert!(error["message"].as_str().unwrap().contains("Authentication required"), "{error}");
    }
    polly.take("locked");
    let next = polly.scene.say("hello");
    last(&next, "done");
    assert_eq!(said(&next), "turn=1");
}

#[test]
fn an_abort_that_was_acknowledged_outlives_the_server() {
    let mut polly = Polly::new("", "");
    let stream = polly.scene.chat(json!({"message": "DEAF", "id": "run-deaf"}));
    stream.until("delta");
    polly.scene.rig.post("/api/chat/abort", &json!({"run_id": "run-deaf"})).is(200);
    polly.scene.rig.kill();
    drop(stream);
    polly.scene.rig.start();
    let all = polly.scene.replay("run-deaf", 0).rest();
    last(&all, "aborted");
    assert_eq!(polly.scene.rig.get("/api/chat/runs/run-deaf").is(200)["status"], "aborted");
    let next = polly.scene.say("hello");
    last(&next, "done");
}

/// Speaks as Claude Code does, in whole messages; a conversation that it is to resume may be gone.
const WHOLE: &str = r#"#!/bin/bash
here=${0%/*}
resume=; [ "$1" = --resume ] && resume=$2
while IFS= read -r line; do
  case $line in
    *'"initialize"'*) echo '{"type":"control_response","response":{"subtype":"success","request_id":"stead-initialize","response":{}}}' ;;
    *'"user"'*)
      if [ -n "$resume" ] && [ -e "$here/gone" ]; then
        echo '{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["No conversation found with session ID: x"]}'
        continue
      fi
      echo '{"type":"system","subtype":"init","session_id":"'"${resume:-c1}"'"}'
      echo '{"type":"assistant","parent_tool_use_id":null,"message":{"content":[{"type":"text","text":"**whole** '"${resume:-fresh}"'"}]}}'
      echo '{"type":"result","subtype":"success","is_error":false,"result":"ok","usage":{"input_tokens":1,"output_tokens":1}}' ;;
  esac
done
"#;

pub(crate) fn whole() -> (tempfile::TempDir, Scene) {
    let dir = tempfile::tempdir().unwrap();
    let program = write_program(dir.path().join("whole"), WHOLE);
    let settings = format!(
        "[agent.whole]\ncommand = ['{}']\ntransport = 'jsonl'\ndialect = 'claude'\nresume_args = ['--resume', '{{id}}']\n",
        program.display()
    );
    (dir, Scene::plain("whole", &settings))
}

fn starts(events: &[Told]) -> Vec<Value> {
    events.iter().filter(|event| event.name == "start").map(|event| event.data["resumed"].clone()).collect()
}

#[test]
fn a_run_says_once_whether_it_resumes_and_says_it_truly() {
    let (dir, scene) = whole();
    let kill = || {
        let id = scene.sessions()[0]["id"].as_str().unwrap().to_owned();
        for pid in scene.processes() {
            stead_term::proc::signal(pid, rustix::process::Signal::KILL);
        }
        wait_for("its death to be noticed", || {
            let session = scene.rig.get(&format!("/api/chat/sessions/{id}")).is(200);
            (session["running"] == json!(false)).then_some(())
        });
    };
    let text = |events: &[Told]| {
        let message = events.iter().find(|event| event.name == "message");
        message.unwrap_or_else(|| panic!("{events:#?}")).data["text"].as_str().unwrap().to_owned()
    };
    let first = scene.say("one");
    assert_eq!((starts(&first), text(&first).as_str()), (vec![json!(false)], "**whole** fresh"));
    kill();
    let second = scene.say("two");
    assert_eq!((starts(&second), text(&second).as_str()), (vec![json!(true)], "**whole** c1"), "{second:#?}");
    kill();
    std::fs::write(dir.path().join("gone"), "").unwrap();
    let third = scene.say("three");
    last(&third, "done");
    assert_eq!((starts(&third), text(&third).as_str()), (vec![json!(false)], "**whole** fresh"), "{third:#?}");
}

#[test]
fn lists_are_told_a_page_at_a_time() {
    let polly = Polly::new("", "");
    for _ in 0..3 {
        last(&polly.scene.say("hello"), "done");
    }
    let id = polly.scene.sessions()[0]["id"].as_str().unwrap().to_owned();
    let all = |path: &str, limit: usize| {
        let (mut items, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = polly.scene.rig.get(&format!("{path}?limit={limit}{cursor}")).is(200);
            let some = page["items"].as_array().unwrap().clone();
            assert!(some.len() <= limit, "{page}");
            items.extend(some);
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return items,
            }
        }
    };
    for path in [format!("/api/chat/sessions/{id}/messages"), "/api/agents".to_owned()] {
        let whole = polly.scene.rig.get(&path).is(200)["items"].as_array().unwrap().clone();
        assert_eq!(all(&path, 1), whole);
        assert_eq!(all(&path, 4), whole);
        polly.scene.rig.get(&format!("{path}?limit=0")).fails(400, "invalid_request");
        polly.scene.rig.get(&format!("{path}?cursor=x")).fails(400, "invalid_request");
    }
    let texts: Vec<_> = all(&format!("/api/chat/sessions/{id}/messages"), 1);
    let texts: Vec<_> = texts.iter().map(|message| message["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["hello", "turn=1", "hello", "turn=2", "hello", "turn=3"]);
}
