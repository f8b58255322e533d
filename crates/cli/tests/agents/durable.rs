//! What outlives what: the server, the agent, whoever listens.

use crate::rig::wait_for;
use crate::scene::{Scene, Told, last, marked, resumed, said, with_each_agent};
use serde_json::{Value, json};

with_each_agent![
    a_turn_goes_on_when_the_server_is_killed,
    after_the_agent_died_the_next_message_says_whether_it_resumes,
    an_unused_agent_loses_its_process_and_nothing_else,
    a_client_that_leaves_stops_nothing,
    a_session_that_is_deleted_leaves_nothing_behind,
];

fn a_turn_goes_on_when_the_server_is_killed(package: &str) {
    let mut scene = Scene::new(package);
    last(&scene.say("hello one"), "done");
    let stream = scene.chat(json!({"message": "GATE two"}));
    let before = stream.until("delta");
    let run = stream.run();
    scene.rig.kill();
    // The model answers while there is no server.
    scene.model.release();
    scene.rig.start();
    let all = scene.replay(&run, 0).rest();
    last(&all, "done");
    assert_eq!(all[..before.len()], before[..], "what was told is told again as it was");
    assert!(said(&all).contains("turn=2") && said(&all).ends_with("GATE two'"), "{}", said(&all));
    let half = before.last().unwrap().seq;
    assert_eq!(scene.replay(&run, half).rest(), all[usize::try_from(half).unwrap()..], "from any place on");
    // One message, given once: the model has heard two.
    let next = scene.say("hello three");
    assert!(said(&next).contains("turn=3"), "{}", said(&next));
}

fn after_the_agent_died_the_next_message_says_whether_it_resumes(package: &str) {
    let scene = Scene::new(package);
    last(&scene.say("hello one"), "done");
    let stream = scene.chat(json!({"message": "GATE two"}));
    let mut events = stream.until("delta");
    for pid in scene.processes() {
        stead_term::proc::signal(pid, rustix::process::Signal::KILL);
    }
    events.extend(stream.rest());
    assert_eq!(last(&events, "error")["error"]["code"], "agent_died");
    scene.model.release();
    let next = scene.say("hello three");
    last(&next, "done");
    let resumes = !package.starts_with("gemini");
    assert_eq!(resumed(&next), resumes);
    assert_eq!(said(&next).contains("turn=1"), !resumes, "{}", said(&next));
}

fn an_unused_agent_loses_its_process_and_nothing_else(package: &str) {
    let scene = Scene::with(package, "[agents]\nidle_timeout_s = 3\n");
    last(&scene.say("hello one"), "done");
    let id = scene.sessions()[0]["id"].as_str().unwrap().to_owned();
    let stream = scene.chat(json!({"message": "GATE two"}));
    let mut events = stream.until("delta");
    // Another, used later than this one was: by the time it rests, this one has been in use for longer than that.
    scene.thread("u");
    last(&scene.chat(json!({"thread_id": "u", "message": "hello"})).rest(), "done");
    let by_id = |own: bool| {
        let sessions = scene.sessions();
        sessions.into_iter().find(|session| (session["id"] == json!(id)) == own).unwrap()
    };
    assert_eq!(by_id(false)["running"], json!(true), "used just now");
    wait_for("the other to rest", || (by_id(false)["running"] == json!(false)).then_some(()));
    let busy = by_id(true);
    assert_eq!((&busy["running"], &busy["in_use"]), (&json!(true), &json!(true)), "{busy:#}");
    scene.model.release();
    events.extend(stream.rest());
    last(&events, "done");
    wait_for("it to rest", || (by_id(true)["running"] == json!(false)).then_some(()));
    wait_for("its processes to end", || (scene.processes().is_empty()).then_some(()));
    let session = by_id(true);
    let messages = scene.rig.get(&format!("/api/chat/sessions/{}/messages", session["id"].as_str().unwrap())).is(200);
    assert_eq!(messages["items"].as_array().unwrap().len(), 4, "{messages:#}");
    let resumes = !package.starts_with("gemini");
    assert_eq!(session["resumable"], json!(resumes), "{session:#}");
    let next = scene.say("hello three");
    assert_eq!((resumed(&next), said(&next).contains("turn=3")), (resumes, resumes), "{}", said(&next));
}

/// Whoever hangs up stops nothing; whoever comes back hears all of it.
fn a_client_that_leaves_stops_nothing(package: &str) {
    let scene = Scene::new(package);
    let stream = scene.chat(json!({"message": "GATE alone", "id": "run-mine"}));
    let before = stream.until("delta");
    drop(stream);
    scene.model.release();
    let all = scene.replay("run-mine", 0).rest();
    last(&all, "done");
    assert_eq!(all[..before.len()], before[..]);
    // The same id again is the same run, and nothing is said twice.
    let again: Vec<Told> = scene.chat(json!({"message": "GATE alone", "id": "run-mine"})).rest();
    assert_eq!(again, all);
    let other = scene.chat(json!({"message": "another", "id": "run-mine"}));
    assert_eq!((other.status, &other.error["error"]["code"]), (409, &json!("conflict")));
}

/// Killed again and again, at any moment: no message is given twice, none is lost, and each event is told once.
#[test]
#[ignore = "needs the agents: `cargo xtask test --agents`"]
fn a_server_that_dies_at_any_moment_neither_loses_nor_doubles_a_message() {
    let mut scene = Scene::new(crate::scene::CODEX);
    last(&scene.say("hello"), "done");
    for number in 2..8_u64 {
        let id = format!("run-{number}");
        let stream = scene.chat(json!({"message": format!("number {number}"), "id": id}));
        let mut seen = Vec::new();
        // Sooner with each: after so many events.
        for _ in 0..(8 - number) {
            seen.push(stream.next());
        }
        scene.rig.kill();
        scene.rig.start();
        let all = scene.replay(&id, 0).rest();
        last(&all, "done");
        assert_eq!(all[..seen.len()], seen[..]);
        assert!(said(&all).contains(&format!("turn={number} last='number {number}'")), "{}", said(&all));
    }
}

fn a_session_that_is_deleted_leaves_nothing_behind(package: &str) {
    let scene = Scene::new(package);
    last(&scene.say("hello"), "done");
    let session = scene.sessions()[0].clone();
    let (id, key) = (session["id"].as_str().unwrap().to_owned(), session["key"].as_str().unwrap().to_owned());
    assert!(!marked(std::slice::from_ref(&id)).is_empty());
    let by_key = key.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02x}"));
    assert_eq!(scene.rig.get(&format!("/api/chat/sessions/{by_key}")).is(200)["id"], json!(id));
    assert_eq!(scene.rig.call("DELETE", &format!("/api/chat/sessions/{id}"), &[], b"").status, 204);
    assert!(marked(std::slice::from_ref(&id)).is_empty());
    assert_eq!(scene.sessions(), Vec::<Value>::new());
    scene.rig.get(&format!("/api/chat/sessions/{id}")).fails(404, "not_found");
}
