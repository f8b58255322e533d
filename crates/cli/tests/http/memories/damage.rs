//! Files of hot memory that a disk has damaged: what can be read is kept, and what can't is told, without being asked.

use super::{fs, journal, project};
use crate::rig::{Rig, wait_for};
use serde_json::Value;
use std::path::Path;

fn flip(path: &Path, at: impl Fn(&[u8]) -> usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = at(&bytes);
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn find(bytes: &[u8], text: &str) -> usize {
    bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap()
}

fn warnings(rig: &Rig, id: &str) -> Vec<String> {
    let status = rig.get(&format!("/api/projects/{id}/memory")).is(200);
    status["warnings"].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_damaged_journal_loses_one_change_at_most_and_is_told_at_the_start() {
    // The head of the file, and the second value in it.
    for (at, lost) in [("", None), ("value two", Some("two"))] {
        let mut rig = Rig::new();
        let id = project(&rig);
        for name in ["one", "two", "three"] {
            rig.call("PUT", &fs(&id, &format!("memories/hot/{name}")), &[], format!("value {name}").as_bytes()).is(201);
        }
        rig.kill();
        let path = journal(&rig, &id).join("journal-0000000001");
        flip(&path, |bytes| if at.is_empty() { 1 } else { find(bytes, at) });
        let found = std::fs::read(&path).unwrap();
        rig.start();
        // Nobody has asked for it.
        wait_for("a word of it", || rig.log().contains("journal 1 of hot memory is damaged").then_some(()));
        assert_eq!(std::fs::read(path.with_extension("damaged")).unwrap(), found, "the file as it was");
        for name in ["one", "two", "three"] {
            let answer = rig.get(&fs(&id, &format!("memories/hot/{name}")));
            if lost == Some(name) {
                answer.fails(404, "not_found");
            } else {
                assert_eq!(answer.body, format!("value {name}").into_bytes(), "{name}");
            }
        }
        let told = warnings(&rig, &id);
        let what = if lost.is_some() { "1 change lost" } else { "nothing of it is lost" };
        assert!(told.iter().any(|text| text.contains(what)), "{told:?}");
        // It can be written again, and the next server has all of it and still tells.
        rig.call("PUT", &fs(&id, "memories/hot/four"), &[], b"value four").is(201);
        rig.kill();
        rig.start();
        for name in ["three", "four"] {
            assert_eq!(rig.get(&fs(&id, &format!("memories/hot/{name}"))).status, 200, "{name}");
        }
        let told = warnings(&rig, &id);
        assert!(told.iter().any(|text| text.contains("journal-0000000001.damaged")), "{told:?}");
    }
}

#[test]
fn a_server_that_starts_has_hot_memory_in_ram_without_being_asked() {
    let mut rig = Rig::new();
    let id = project(&rig);
    rig.call("PUT", &fs(&id, "memories/hot/x"), &[], b"1").is(201);
    rig.kill();
    // What was written in the directory that its sandboxes see, while no server was there, is taken in.
    let seen = rig.data().join("projects").join(&id).join(".memories/shown/y");
    std::fs::write(&seen, "2").unwrap();
    let before = std::fs::read(journal(&rig, &id).join("journal-0000000001")).unwrap().len();
    rig.start();
    wait_for("the journal to grow", || {
        (std::fs::read(journal(&rig, &id).join("journal-0000000001")).ok()?.len() > before).then_some(())
    });
    assert_eq!(rig.get(&format!("/api/projects/{id}/memory")).is(200)["entries"], Value::from(2));
}
