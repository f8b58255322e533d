//! What an agent has of the machine: a sandbox as long as it needs one, programs that run it, and of the user's home what
//! its description lists.

use crate::polly::{Polly, program, write_program};
use crate::rig::{Rig, wait_for};
use crate::scene::{Scene, last, marked, resumed, said};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

fn thread_of(session: &Value) -> String {
    session["thread_id"].as_str().unwrap().to_owned()
}

fn project(rig: &Rig) -> String {
    rig.post("/api/projects", &json!({"prefix": "web"})).is(201)["id"].as_str().unwrap().to_owned()
}

fn wait_until_its_sandbox_is_left(scene: &Scene) {
    let thread = thread_of(&scene.sessions()[0]);
    wait_for("its sandbox to be left", || {
        let session = scene.rig.get(&format!("/api/threads/{thread}/session")).is(200);
        (session["status"] == "closed").then_some(())
    });
}

#[test]
fn an_agent_that_rests_leaves_its_sandbox() {
    let polly = Polly::new("[agents]\nidle_timeout_s = 1\n", "");
    let scene = &polly.scene;
    let project = project(&scene.rig);
    last(&scene.chat(json!({"project_id": project, "message": "hello"})).rest(), "done");
    wait_until_its_sandbox_is_left(scene);
    assert_eq!(scene.sessions()[0]["running"], json!(false));
    // It is still there, and can be gone on with.
    let next = scene.chat(json!({"project_id": project, "message": "again"})).rest();
    assert_eq!((resumed(&next), said(&next).as_str()), (true, "turn=2"));
    wait_until_its_sandbox_is_left(scene);
    let deleted = scene.rig.delete(&format!("/api/projects/{project}"));
    assert!((200..300).contains(&deleted.status), "{} {}", deleted.status, String::from_utf8_lossy(&deleted.body));
}

#[test]
fn a_reset_leaves_the_sandbox() {
    let polly = Polly::new("", "");
    let scene = &polly.scene;
    let project = project(&scene.rig);
    last(&scene.chat(json!({"project_id": project, "message": "hello"})).rest(), "done");
    scene.rig.post("/api/chat/reset", &json!({"project_id": project})).is(200);
    let thread = thread_of(&scene.sessions()[0]);
    assert_eq!(scene.rig.get(&format!("/api/threads/{thread}/session")).is(200)["status"], "closed");
}

#[test]
fn a_sandbox_that_a_dead_server_left_behind_is_left_by_the_next() {
    let mut polly = Polly::new("", "");
    last(&polly.scene.say("hello"), "done");
    polly.kill_agent();
    polly.scene.rig.kill();
    polly.scene.rig.start();
    wait_until_its_sandbox_is_left(&polly.scene);
}

#[test]
fn a_thread_takes_the_agents_along_that_only_it_could_reach() {
    let polly = Polly::new("", "");
    let scene = &polly.scene;
    last(&scene.say("hello"), "done");
    let busy = scene.chat(json!({"thread_id": "t", "model": "", "message": "WAIT"}));
    let mut events = busy.until("delta");
    let id = scene.sessions()[0]["id"].as_str().unwrap().to_owned();
    assert!(!marked(std::slice::from_ref(&id)).is_empty());
    assert_eq!(scene.rig.delete("/api/threads/t").status, 204);
    events.extend(busy.rest());
    assert_eq!(scene.sessions(), Vec::<Value>::new());
    assert!(marked(std::slice::from_ref(&id)).is_empty(), "its processes have ended");
    scene.rig.get(&format!("/api/threads/{id}")).fails(404, "not_found");
}

#[test]
fn one_of_two_threads_that_share_a_workspace_leaves_the_agent_to_the_other() {
    let polly = Polly::new("", "");
    let scene = &polly.scene;
    last(&scene.say("hello"), "done");
    scene.rig.post("/api/threads", &json!({"id": "u", "share_with": "t"})).is(201);
    assert_eq!(scene.rig.delete("/api/threads/t").status, 204);
    let next = scene.chat(json!({"thread_id": "u", "message": "again"})).rest();
    assert_eq!(said(&next), "turn=2", "{next:#?}");
}

#[test]
fn of_a_home_it_has_what_its_description_lists_and_nothing_else() {
    let polly =
        Polly::new("", "credential_files = ['.polly/token.json', '.polly/none.json']\nrenews = ['.polly/token.json']");
    let scene = &polly.scene;
    let home = scene.rig.dir.path();
    std::fs::create_dir_all(home.join(".polly")).unwrap();
    std::fs::write(home.join(".secret"), "x").unwrap();
    std::fs::write(home.join(".polly/other.json"), "{}").unwrap();
    let token = home.join(".polly/token.json");
    std::fs::write(&token, "{\"token\":\"old\"}").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(said(&scene.say("HOME")), ".polly turn=1");
    assert_eq!(said(&scene.say("MODE")), "600 turn=2", "as private as it was");
    // What it renews is the user's again, and no less private for it.
    last(&scene.say("RENEW"), "done");
    wait_for("the token to come back", || {
        (std::fs::read_to_string(&token).unwrap() == "{\"token\":\"new\"}").then_some(())
    });
    assert_eq!(std::fs::metadata(&token).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_it_writes_where_it_may_not_renew_stays_where_it_is() {
    let polly = Polly::new("", "credential_files = ['.polly/token.json']");
    let scene = &polly.scene;
    let token = scene.rig.dir.path().join(".polly/token.json");
    std::fs::create_dir_all(token.parent().unwrap()).unwrap();
    std::fs::write(&token, "{\"token\":\"old\"}").unwrap();
    last(&scene.say("RENEW"), "done");
    last(&scene.say("and on"), "done");
    assert_eq!(std::fs::read_to_string(&token).unwrap(), "{\"token\":\"old\"}");
}

/// As version managers of node lay things out: the program in `lib/node_modules`, what runs it in `bin`.
#[test]
fn an_agent_runs_where_a_version_manager_put_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    write_program(root.join("v20/bin/mynode"), "#!/bin/bash\nexec bash \"$@\"\n");
    let real = program(root.join("v20/lib/node_modules/polly/cli"));
    let text = std::fs::read_to_string(&real).unwrap();
    std::fs::write(&real, text.replacen("#!/bin/bash", "#!/usr/bin/env mynode", 1)).unwrap();
    std::os::unix::fs::symlink("../lib/node_modules/polly/cli", root.join("v20/bin/polly")).unwrap();
    let path = format!("{}:{}", root.join("v20/bin").display(), std::env::var("PATH").unwrap());
    let settings = "[agent.polly]\ncommand = ['polly']\ntransport = 'acp'\nversion_args = ['--version']\n";
    let scene = Scene::with_path("polly", settings, &path);
    let agents = scene.rig.get("/api/agents").is(200);
    let polly = agents["items"].as_array().unwrap().iter().find(|agent| agent["name"] == "polly").unwrap().clone();
    assert_eq!((&polly["available"], &polly["version"]), (&json!(true), &json!("3.1.4")), "it says so itself");
    let events = scene.say("hello");
    last(&events, "done");
    assert_eq!(said(&events), "turn=1");
}
