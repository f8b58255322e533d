//! Hot memory on a disk that is full, and has room again.

use super::{fs, project};
use crate::faults::Small;
use crate::rig::{Rig, wait_for};
use serde_json::Value;
use std::collections::BTreeMap;

#[test]
fn on_a_full_disk_a_write_is_refused_by_name_what_was_acknowledged_stays_and_it_goes_on_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let Some(small) = Small::mount(&data) else {
        println!("SKIPPED: no file system can be mounted here (it needs root)");
        return;
    };
    let config = "[memory]\nsnapshot_interval_s = 1\n";
    let mut rig = Rig::with_all(config, &["--data", data.to_str().unwrap()], &[("STEAD_DATA", data.to_str().unwrap())]);
    let id = project(&rig);
    let status = |rig: &Rig| rig.get(&format!("/api/projects/{id}/memory")).is(200);
    // What is acknowledged, by its path.
    let mut known = BTreeMap::new();
    let put = |rig: &Rig, known: &mut BTreeMap<String, Vec<u8>>, name: &str, value: Vec<u8>| {
        let answer = rig.call("PUT", &fs(&id, &format!("memories/hot/{name}")), &[], &value);
        if matches!(answer.status, 201 | 204) {
            known.insert(name.to_owned(), value);
            return true;
        }
        assert_eq!(answer.fails(507, "no_space")["retryable"], true);
        false
    };
    for number in 0..50 {
        assert!(put(&rig, &mut known, &format!("before/{number}"), vec![b'b'; 1000 + number]));
    }
    small.fill();
    let mut refused = 0;
    for number in 0..50 {
        // Some over what is there, some new; large enough for more than what is left of a page.
        let name = if number % 2 == 0 { format!("before/{number}") } else { format!("full/{number}") };
        refused += u32::from(!put(&rig, &mut known, &name, vec![b'f'; 9000]));
    }
    assert!(refused > 40, "{refused} of 50 were refused: the disk was not full");
    let all_there = |rig: &Rig, known: &BTreeMap<String, Vec<u8>>| {
        for (name, value) in known {
            assert!(rig.get(&fs(&id, &format!("memories/hot/{name}"))).body == *value, "{name} differs");
        }
        let files = rig.post(&fs(&id, "glob"), &serde_json::json!({ "pattern": "memories/hot/*/*", "limit": 1000 }));
        assert_eq!(files.is(200)["items"].as_array().unwrap().len(), known.len(), "and nothing else");
    };
    all_there(&rig, &known);
    small.make_room();
    // At once, without a new start.
    let mut after = 0;
    wait_for("room", || put(&rig, &mut known, "after/0", vec![b'a'; 9000]).then_some(()));
    while after < 50 {
        after += 1;
        assert!(put(&rig, &mut known, &format!("after/{after}"), vec![b'a'; 9000]));
    }
    all_there(&rig, &known);
    // A snapshot that failed is told until one succeeds.
    wait_for("a snapshot", || {
        let status = status(&rig);
        (status["snapshot_at"].is_string() && status["warnings"] == Value::Array(vec![])).then_some(())
    });
    rig.kill();
    rig.start();
    all_there(&rig, &known);
    assert_eq!(status(&rig)["warnings"], Value::Array(vec![]));
}
