//! A wall clock that is set back under a running server.

use crate::rig::Rig;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn library() -> Option<PathBuf> {
    let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/lib64"];
    places.iter().map(|place| Path::new(place).join("faketime/libfaketime.so.1")).find(|file| file.is_file())
}

#[test]
fn a_clock_that_is_set_back_closes_nothing_and_changes_no_order() {
    let Some(library) = library() else {
        println!("SKIPPED: `apt-get install faketime` gives what it needs");
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let clock = place.path().join("clock");
    let set = |offset: &str| {
        std::fs::write(clock.with_extension("new"), offset).unwrap();
        std::fs::rename(clock.with_extension("new"), &clock).unwrap();
    };
    set("+0");
    let variables = [
        ("LD_PRELOAD", library.to_str().unwrap()),
        ("FAKETIME_TIMESTAMP_FILE", clock.to_str().unwrap()),
        ("FAKETIME_NO_CACHE", "1"),
        ("DONT_FAKE_MONOTONIC", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ];
    let mut rig = Rig::with_all("", &[], &variables);
    let first = rig.exec("t", "N=1");
    set("-2h");
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
    let moments: Vec<&str> = log.lines().filter(|line| line.contains("started")).map(|line| &line[..16]).collect();
    assert!(moments.len() == 2 && moments[1] < moments[0], "the clock was never set back: {moments:?}");
    let answer = rig.exec("t", "echo $N");
    assert_eq!((&answer["stdout"], &answer["session_id"]), (&json!("4\n"), &first["session_id"]));
    set("+0");
    assert_eq!(rig.exec("t", "echo $N")["stdout"], "4\n");
}
