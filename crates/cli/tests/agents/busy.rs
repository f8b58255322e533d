//! One message at a time, and whose session is whose.

use crate::scene::{CLAUDE, CODEX, Scene, last, marked, said, with_each_agent};
use serde_json::json;

with_each_agent![
    a_second_message_is_refused_or_waits_in_order,
    a_reset_is_all_or_nothing_and_touches_no_other_workspace,
    two_agents_in_one_workspace_have_a_session_each,
];

fn name_of(package: &str) -> &str {
    package.split('-').next().unwrap()
}

fn a_second_message_is_refused_or_waits_in_order(package: &str) {
    let scene = Scene::new(package);
    let first = scene.chat(json!({"message": "GATE one"}));
    let mut events = first.until("delta");
    let refused = scene.chat(json!({"message": "two"}));
    assert_eq!((refused.status, &refused.error["error"]["code"]), (409, &json!("session_in_use")));
    assert_eq!(refused.error["error"]["retryable"], json!(true));
    let queued: Vec<_> =
        (2..5).map(|number| scene.chat(json!({"message": format!("queued {number}"), "if_busy": "queue"}))).collect();
    let taken_back = scene.chat(json!({"message": "never said", "if_busy": "queue"}));
    let aborted = scene.rig.post("/api/chat/abort", &json!({"run_id": taken_back.run()})).is(200);
    assert_eq!(aborted["status"], json!("aborted"));
    last(&taken_back.rest(), "aborted");
    let session = scene.sessions()[0].clone();
    assert_eq!((&session["in_use"], &session["run_id"]), (&json!(true), &json!(first.run())));
    assert!(session["in_use_until"].is_string());
    scene.model.release();
    events.extend(first.rest());
    last(&events, "done");
    assert!(said(&events).contains("turn=1"));
    for (number, stream) in (2..).zip(queued) {
        let events = stream.rest();
        last(&events, "done");
        assert!(said(&events).contains(&format!("turn={number} last='queued {number}'")), "{}", said(&events));
    }
    assert_eq!(scene.sessions()[0]["in_use"], json!(false));
}

fn a_reset_is_all_or_nothing_and_touches_no_other_workspace(package: &str) {
    let model = if package.starts_with("opencode") { "mock/mock-model" } else { "mock-model" };
    let root = tempfile::tempdir().unwrap();
    let place = |name: &str| {
        let dir = root.path().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        dir.canonicalize().unwrap().display().to_string()
    };
    let (one, ten) = (place("p1"), place("p10"));
    let settings = format!("[agents]\nallowed_roots = ['{}']\n", root.path().display());
    let scene = Scene::with(package, &settings);
    let say = |workspace: &str, model: Option<&str>, message: &str| {
        let mut body = json!({"workspace": workspace, "message": message});
        if let Some(model) = model {
            body["model"] = json!(model);
        }
        scene.chat(body)
    };
    for (workspace, model) in [(&one, None), (&one, Some(model)), (&ten, None)] {
        last(&say(workspace, model, "hello").rest(), "done");
    }
    let busy = say(&one, Some(model), "GATE busy");
    let mut events = busy.until("delta");
    scene.rig.post("/api/chat/reset", &json!({"workspace": one})).fails(409, "session_in_use");
    let sessions: Vec<_> = scene.sessions().iter().map(|session| session["running"].clone()).collect();
    assert_eq!(sessions, [true, true, true], "nothing was touched");
    scene.model.release();
    events.extend(busy.rest());
    last(&events, "done");

    let agent = name_of(package);
    let reset = scene.rig.post("/api/chat/reset", &json!({"workspace": one})).is(200);
    assert_eq!(reset["reset"], json!([format!("{agent}:{one}:default"), format!("{agent}:{one}:{model}")]));
    let of_one: Vec<String> = scene
        .sessions()
        .iter()
        .filter(|session| session["workspace"] == json!(one))
        .map(|session| session["id"].as_str().unwrap().to_owned())
        .collect();
    assert!(marked(&of_one).is_empty(), "its processes have ended");
    let fresh = say(&one, None, "again").rest();
    assert!(said(&fresh).contains("turn=1"), "{}", said(&fresh));
    let other = say(&ten, None, "again").rest();
    assert!(said(&other).contains("turn=2"), "{}", said(&other));

    let nobody = scene.rig.post("/api/chat/reset", &json!({"workspace": ten, "provider": "goose"})).is(200);
    assert_eq!(nobody["reset"], json!([]));
    scene.rig.post("/api/chat/reset", &json!({"workspace": "/etc"})).fails(403, "forbidden");
}

fn two_agents_in_one_workspace_have_a_session_each(package: &str) {
    let other = if package == CODEX { CLAUDE } else { CODEX };
    let both = Scene::both(package, other);
    for (package, turn) in [(package, 1), (other, 1), (package, 2), (other, 2)] {
        let agent = name_of(package);
        let events = both.chat(json!({"provider": agent, "message": format!("{agent} {turn}")})).rest();
        last(&events, "done");
        assert!(said(&events).contains(&format!("turn={turn} last='{agent} {turn}'")), "{}", said(&events));
    }
    let mut keys: Vec<_> =
        both.sessions().iter().map(|session| session["provider"].as_str().unwrap().to_owned()).collect();
    keys.sort();
    let mut expected = [name_of(package), name_of(other)];
    expected.sort_unstable();
    assert_eq!(keys, expected);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let rig = crate::rig::Rig::new();
    let cases = [
        (json!({"provider": "codex", "message": "x"}), 400, "invalid_request"),
        (json!({"provider": "codex", "thread_id": "t", "workspace": "/w", "message": "x"}), 400, "invalid_request"),
        (json!({"provider": "codex", "thread_id": "t", "message": "x", "colour": 1}), 400, "invalid_request"),
        (json!({"provider": "nobody", "thread_id": "t", "message": "x"}), 404, "not_found"),
        (json!({"provider": "codex", "thread_id": "t", "message": "  "}), 400, "invalid_request"),
        (json!({"provider": "codex", "thread_id": "t", "message": "x", "model": "a b"}), 400, "invalid_request"),
        (
            json!({"provider": "codex", "thread_id": "t", "message": "x", "permissions": {"default": "maybe"}}),
            400,
            "invalid_request",
        ),
    ];
    for (body, status, code) in cases {
        rig.post("/api/chat", &body).fails(status, code);
    }
    rig.get("/api/chat/runs/run-none").fails(404, "not_found");
    rig.post("/api/chat/abort", &json!({"run_id": "run-none"})).fails(404, "not_found");
    rig.get("/api/chat/sessions/agent-none").fails(404, "not_found");
    assert_eq!(rig.get("/api/chat/sessions").is(200)["items"], json!([]));
    assert_eq!(rig.get("/api/threads").is(200)["items"], json!([]), "nothing was made");
}
