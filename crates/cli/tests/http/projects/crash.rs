//! `kill -9` at any instant, and a start.

use super::clones::{FILES, cloned, repository};
use super::sessions::Client;
use super::{make, show, thread};
use crate::rig::{Rig, rounds, wait_for};
use serde_json::{Value, json};

#[test]
fn a_project_that_was_being_made_is_whole_or_not_there() {
    let mut rig = Rig::new();
    for round in 0..rounds(8) {
        let (address, token) = (rig.url.clone(), rig.token.clone());
        let caller = std::thread::spawn(move || {
            let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
            // Until the server is gone.
            loop {
                let request =
                    agent.post(format!("{address}/api/projects")).header("authorization", format!("Bearer {token}"));
                if request.send(json!({ "prefix": "p" }).to_string()).is_err() {
                    return;
                }
            }
        });
        let wanted = round as usize + 1;
        wait_for("a few projects", || {
            (rig.get("/api/projects?limit=1000").is(200)["items"].as_array().unwrap().len() > wanted * 3).then_some(())
        });
        rig.kill();
        caller.join().unwrap();
        rig.start();
        let projects = rig.get("/api/projects?limit=1000").is(200)["items"].clone();
        for project in projects.as_array().unwrap() {
            let place = rig.data().join("projects").join(project["id"].as_str().unwrap());
            let mirror = std::fs::read(place.join(".project_metadata.json")).unwrap();
            let mirror: Value = serde_json::from_slice(&mirror).unwrap();
            assert_eq!(mirror["id"], project["id"]);
            for dir in ["repo", "home", ".memories/hot", ".memories/persistent", ".logs", "tmp"] {
                assert!(place.join(dir).is_dir(), "{dir}");
            }
        }
    }
}

#[test]
fn a_clone_that_was_cut_short_begins_again() {
    let mut rig = Rig::with_config(FILES, &[]);
    let url = repository(&rig.dir.path().join("r"), 2000);
    for _ in 0..rounds(3) {
        let (id, _) = make(&rig, &json!({ "prefix": "app", "config": { "repo_url": url } }));
        rig.kill();
        rig.start();
        assert_eq!(cloned(&rig, &id)["state"], "done");
        let place = rig.data().join("projects").join(&id);
        assert_eq!(std::fs::read_dir(place.join("repo")).unwrap().count(), 2001);
        assert_eq!(std::fs::read_dir(place.join("tmp")).unwrap().count(), 0);
        let status =
            std::process::Command::new("git").args(["status", "--porcelain"]).current_dir(place.join("repo")).output();
        let status = status.unwrap();
        assert!(status.status.success() && status.stdout.is_empty(), "{status:?}");
    }
}

#[test]
fn no_session_is_active_for_ever() {
    let mut rig = Rig::new();
    let (id, _) = make(&rig, &json!({ "prefix": "app" }));
    let policy = json!({ "idle_timeout_s": 1, "max_duration_s": 86400 });
    rig.post("/api/threads", &json!({ "id": "t", "project_id": id, "policy": policy })).is(201);
    let mut client = Client::new(&rig, &format!("/api/projects/{id}/ws?thread_id=t"));
    client.hear("session", "");
    client.say(&json!({ "op": "exec", "ref": "a", "command": "export A=1; echo work > f" }));
    client.hear("exit", "a");
    rig.kill();
    drop(client);
    rig.start();
    let record = wait_for("the end of the session", || {
        Some(show(&rig, &id)["sessions"][0].clone()).filter(|record| record["ended_at"].is_string())
    });
    assert_eq!(record["close_reason"], "idle_timeout");
    let mut client = Client::new(&rig, &format!("/api/projects/{id}/ws?thread_id=t"));
    client.say(&json!({ "op": "exec", "ref": "a", "command": "echo $A $(cat f)" }));
    assert_eq!(client.hear("stdout", "a")["data"]["data"], "1 work\n");
}

#[test]
fn what_was_counted_and_accessed_is_there_after_a_kill() {
    let mut rig = Rig::new();
    let (id, _) = make(&rig, &json!({ "prefix": "app" }));
    thread(&rig, "t", &id);
    rig.exec("t", "echo 1");
    wait_for("a counted command", || (show(&rig, &id)["statistics"]["commands"] == 1).then_some(()));
    let before = show(&rig, &id);
    rig.kill();
    rig.start();
    let after = show(&rig, &id);
    assert_eq!(after["statistics"]["commands"], 1);
    assert!(after["last_accessed_at"].as_str() >= Some(before["created_at"].as_str().unwrap()));
    rig.exec("t", "echo 2");
    wait_for("two counted commands", || (show(&rig, &id)["statistics"]["commands"] == 2).then_some(()));
}
