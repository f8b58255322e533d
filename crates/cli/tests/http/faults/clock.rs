//! A wall clock that is set under a running server.

use crate::retention::clock::Clock;
use crate::rig::{Rig, wait_for};
use serde_json::{Value, json};

#[test]
fn a_clock_that_is_set_back_closes_nothing_and_changes_no_order() {
    let Some(clock) = Clock::new() else { return };
    let mut rig = clock.rig("");
    let first = rig.exec("t", "N=1");
    clock.set("-2h");
    let created = rig.post("/api/threads", &json!({ "id": "later" })).is(201)["created_at"].clone();
    assert!(created.as_str() > first["created_at"].as_str(), "{created}");
    let mut ids = vec![first["id"].clone()];
    for number in 2..5 {
        let answer = rig.exec("t", &format!("N={number}; echo $N"));
        assert_eq!((&answer["stdout"], &answer["session_id"]), (&json!(format!("{number}\n")), &first["session_id"]));
        assert!(answer["duration_ms"].as_u64().is_some_and(|span| span < 60_000), "{answer}");
        ids.push(answer["id"].clone());
    }
    let session = rig.get("/api/threads/t/session").is(200);
    assert_eq!((&session["status"], &session["close_reason"]), (&json!("active"), &Value::Null), "{session}");
    let listed = rig.get("/api/threads/t/commands").is(200);
    let listed: Vec<Value> =
        listed["items"].as_array().unwrap().iter().rev().map(|record| record["id"].clone()).collect();
    assert_eq!(listed, ids, "newest first, whatever the clock says");
    let versions: Vec<u64> = ids
        .iter()
        .map(|id| {
            rig.get(&format!("/api/commands/{}", id.as_str().unwrap())).is(200)["state_version"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(versions, [1, 2, 3, 4]);
    // Its next life begins at the earlier hour.
    rig.kill();
    rig.start();
    let log = rig.log();
    let moments: Vec<&str> = log.lines().filter(|line| line.contains(": started ")).map(|line| &line[..16]).collect();
    assert!(moments.len() == 2 && moments[1] < moments[0], "the clock was never set back: {moments:?}");
    let answer = rig.exec("t", "echo $N");
    assert_eq!((&answer["stdout"], &answer["session_id"]), (&json!("4\n"), &first["session_id"]));
    clock.set("+0");
    assert_eq!(rig.exec("t", "echo $N")["stdout"], "4\n");
}

#[test]
fn a_clock_that_is_set_forward_is_followed_and_closes_nothing() {
    let Some(clock) = Clock::new() else { return };
    let mut rig = clock.rig("");
    let day = |shown: &Value| shown.as_str().unwrap()[..10].to_owned();
    let first = rig.exec("t", "N=1");
    clock.set("+3d");
    let created = rig.post("/api/threads", &json!({ "id": "later" })).is(201)["created_at"].clone();
    assert!(day(&created) > day(&first["created_at"]), "the clock is not followed: {created}");
    // Neither its hour without a command nor its day is over.
    let session = rig.get("/api/threads/t/session").is(200);
    assert_eq!((&session["session_id"], &session["close_reason"]), (&first["session_id"], &Value::Null), "{session}");
    assert!(session["expires_at"].as_str() > created.as_str(), "{session}");
    let answer = rig.exec("t", "N=2");
    assert_eq!(answer["session_id"], first["session_id"]);
    // Put right again: it was used three days ahead by then, also for the next server.
    clock.set("+0");
    assert_eq!(rig.exec("t", "echo $N")["session_id"], first["session_id"]);
    rig.kill();
    rig.start();
    let now = rig.post("/api/threads", &json!({ "id": "latest" })).is(201)["created_at"].clone();
    assert_eq!(day(&now), day(&first["created_at"]), "the clock was not put right");
    let session = rig.get("/api/threads/t/session").is(200);
    assert_eq!((&session["session_id"], &session["close_reason"]), (&first["session_id"], &Value::Null), "{session}");
    assert!(session["last_active_at"].as_str() <= now.as_str(), "{session}");
}

#[test]
fn a_session_that_was_used_while_the_clock_was_wrong_ends_in_its_time() {
    let Some(clock) = Clock::new() else { return };
    let mut rig = clock.rig("");
    let policy = json!({ "idle_timeout_s": 3, "max_duration_s": 86400 });
    for thread in ["now", "next"] {
        rig.post("/api/threads", &json!({ "id": thread, "policy": policy })).is(201);
    }
    let ends = |rig: &Rig, thread: &str| {
        let path = format!("/api/threads/{thread}/session");
        wait_for("end", || (rig.get(&path).is(200)["close_reason"] == "idle_timeout").then_some(()));
    };
    clock.set("+3d");
    rig.exec("now", "true");
    clock.set("+0");
    ends(&rig, "now");
    rig.exec("next", "true");
    rig.kill();
    rig.start();
    ends(&rig, "next");
}
