//! Into the trash, out of it, and out of the world.

use super::clock::Clock;
use super::{ON_REQUEST, ids};
use crate::rig::Rig;
use serde_json::json;

#[test]
fn what_was_deleted_is_refused_with_the_way_back_and_comes_back_whole() {
    let rig = Rig::with_config(ON_REQUEST, &[]);
    let project = rig.project("app");
    rig.work_in(&project, "t", "echo kept > file; cd /tmp; X=5");
    let refused = rig.delete(&format!("/api/projects/{project}")).fails(409, "conflict");
    assert!(refused["message"].as_str().unwrap().contains("session"), "{refused}");
    assert_eq!(rig.standing(&project).0, "active");
    rig.delete(&format!("/api/projects/{project}?force=true")).is(204);
    rig.delete(&format!("/api/projects/{project}?force=true")).is(204);
    assert_eq!(rig.standing(&project).0, "trashed");
    assert!(!rig.place(&project).exists() && rig.in_trash(&project).join("repo/file").exists());
    assert_eq!(rig.get("/api/threads/t/lease").is(200)["instance"], json!(null), "its instance is gone");
    let listed = rig.get("/api/projects").is(200);
    assert_eq!(listed["items"], json!([]));
    assert_eq!(rig.get("/api/projects?status=trashed").is(200)["items"][0]["id"], json!(project));
    for refused in [
        rig.post("/api/threads/t/exec", &json!({ "command": "true" })),
        rig.post("/api/threads", &json!({ "project_id": project })),
        rig.post(&format!("/api/projects/{project}/extend"), &json!({ "days": 1 })),
        rig.post(&format!("/api/projects/{project}/pin"), &json!({})),
        rig.post(&format!("/api/projects/{project}/snapshots"), &json!({})),
        rig.call("PUT", "/api/threads/t/files?path=x", &[], b"x"),
        rig.get("/api/threads/t/files?path=file"),
    ] {
        let error = refused.fails(409, "conflict");
        assert!(error["hint"].as_str().unwrap().contains(&format!("stead project restore {project}")), "{error}");
    }
    let back = rig.post(&format!("/api/projects/{project}/restore"), &json!({})).is(200);
    assert_eq!((&back["status"], &back["trashed_at"]), (&json!("active"), &json!(null)));
    rig.post(&format!("/api/projects/{project}/restore"), &json!({})).is(200);
    let answer = rig.exec("t", "pwd; echo $X; cat /workspace/file");
    assert_eq!(answer["stdout"], "/tmp\n5\nkept\n", "{answer}");
    assert_eq!(rig.said(&project), ["project.trashed", "project.restored"]);
}

#[test]
fn a_day_later_it_is_gone_for_good_with_its_threads_and_snapshots() {
    let Some(clock) = Clock::new() else { return };
    let mut rig = clock.rig(ON_REQUEST);
    let (project, other) = (rig.project("gone"), rig.project("stays"));
    rig.work_in(&project, "t", "echo x > file");
    rig.work_in(&other, "u", "echo y > file");
    for id in [&project, &other] {
        rig.post(&format!("/api/projects/{id}/snapshots"), &json!({})).is(201);
    }
    rig.delete(&format!("/api/projects/{project}?force=true")).is(204);
    clock.restart(&mut rig, "+23h");
    assert_eq!(rig.clean()["purged"], json!([]));
    clock.restart(&mut rig, "+25h");
    assert_eq!(ids(&rig.clean()["purged"]), [project.as_str()]);
    rig.get(&format!("/api/projects/{project}")).fails(404, "not_found");
    rig.get("/api/threads/t").fails(404, "not_found");
    rig.post(&format!("/api/projects/{project}/restore"), &json!({})).fails(404, "not_found");
    assert_eq!(std::fs::read_dir(rig.data().join("trash")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(rig.data().join("snapshots")).unwrap().count(), 1);
    assert_eq!(rig.exec("u", "cat /workspace/file")["stdout"], "y\n");
}

#[test]
fn a_project_comes_back_only_if_there_is_room() {
    let rig = Rig::with_config("[projects]\nmax_projects = 2\n", &[]);
    let (one, _two) = (rig.project("one"), rig.project("two"));
    rig.delete(&format!("/api/projects/{one}")).is(204);
    let three = rig.project("three");
    rig.post(&format!("/api/projects/{one}/restore"), &json!({})).fails(429, "limit_reached");
    assert_eq!(rig.standing(&one).0, "trashed");
    assert!(rig.in_trash(&one).exists() && !rig.place(&one).exists());
    rig.delete(&format!("/api/projects/{three}")).is(204);
    rig.post(&format!("/api/projects/{one}/restore"), &json!({})).is(200);
    assert!(rig.place(&one).join("repo").is_dir());
}
