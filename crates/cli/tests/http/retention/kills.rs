//! `kill -9` in the middle of each thing that moves or removes files. The moment is one that is seen on the disk, not one
//! that is waited for.

use super::clock::Clock;
use super::{ON_REQUEST, ids};
use crate::rig::{Rig, rounds, wait_for};
use serde_json::json;
use std::path::Path;
use std::thread::JoinHandle;

const FILES: usize = 1500;

/// A tree that takes a while to be packed or removed; every file says which tree it is of.
fn fill(rig: &Rig, project: &str, tree: &str) {
    for number in 0..FILES {
        let dir = rig.place(project).join(format!("repo/{}", number / 100));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(format!("{number}")), format!("{tree} {number}")).unwrap();
    }
}

/// Which tree it is; it is one, whole.
#[track_caller]
fn tree_of(dir: &Path) -> String {
    let read = |number: usize| std::fs::read_to_string(dir.join(format!("repo/{}/{number}", number / 100))).unwrap();
    let tree = read(0).split(' ').next().unwrap().to_owned();
    for number in 0..FILES {
        assert_eq!(read(number), format!("{tree} {number}"));
    }
    tree
}

/// Asks, and doesn't care for the answer.
fn ask(rig: &Rig, method: &str, path: &str, body: &str) -> JoinHandle<()> {
    let request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", rig.url));
    let request = request.header("authorization", format!("Bearer {}", rig.token));
    let request = request.header("content-type", "application/json").body(body.to_owned()).unwrap();
    std::thread::spawn(move || drop(ureq::Agent::new_with_defaults().run(request)))
}

/// Asks for what it is answered with; nothing if the connection breaks.
fn ask_for_status(rig: &Rig, path: &str) -> JoinHandle<Option<u16>> {
    let request = ureq::http::Request::builder().method("POST").uri(format!("{}{path}", rig.url));
    let request = request.header("authorization", format!("Bearer {}", rig.token));
    let request = request.header("content-type", "application/json").body("{}".to_owned()).unwrap();
    std::thread::spawn(move || {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        agent.run(request).ok().map(|answer| answer.status().as_u16())
    })
}

/// Looks, without a pause, until it is so or whoever was asked has answered.
fn watch(asked: &JoinHandle<()>, is_so: impl Fn() -> bool) {
    while !is_so() && !asked.is_finished() {}
}

fn has(dir: &Path, prefix: &str) -> bool {
    let names = std::fs::read_dir(dir).into_iter().flatten().flatten();
    names.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
}

#[test]
fn in_the_middle_of_the_way_into_the_trash_and_out_of_it() {
    let mut rig = Rig::with_config(ON_REQUEST, &[]);
    let project = rig.project("moved");
    rig.work_in(&project, "t", "echo kept > file");
    for round in 0..rounds(6) {
        let delete = ask(&rig, "DELETE", &format!("/api/projects/{project}?force=true"), "");
        if round % 2 == 0 {
            watch(&delete, || rig.standing(&project).0 == "trashed");
        } else {
            watch(&delete, || rig.in_trash(&project).exists());
        }
        rig.kill();
        delete.join().unwrap();
        rig.start();
        if rig.standing(&project).0 == "trashed" {
            assert!(!rig.place(&project).exists() && rig.in_trash(&project).join("repo/file").exists());
            rig.post("/api/threads/t/exec", &json!({ "command": "true" })).fails(409, "conflict");
        } else {
            rig.delete(&format!("/api/projects/{project}?force=true")).is(204);
        }
        let restore = ask(&rig, "POST", &format!("/api/projects/{project}/restore"), "{}");
        if round % 3 == 0 {
            watch(&restore, || rig.place(&project).exists());
        }
        rig.kill();
        restore.join().unwrap();
        rig.start();
        rig.post(&format!("/api/projects/{project}/restore"), &json!({})).is(200);
        assert!(!rig.in_trash(&project).exists());
        assert_eq!(rig.exec("t", "cat file")["stdout"], "kept\n", "round {round}");
    }
}

#[test]
fn in_the_middle_of_a_purge() {
    let Some(clock) = Clock::new() else { return };
    let mut rig = clock.rig(ON_REQUEST);
    let project = rig.project("purged");
    rig.work_in(&project, "t", "true");
    fill(&rig, &project, "x");
    rig.delete(&format!("/api/projects/{project}?force=true")).is(204);
    clock.restart(&mut rig, "+2d");
    let purge = ask(&rig, "POST", "/api/projects/cleanup", "{}");
    let half = rig.data().join("trash").join(format!("{project}.purge"));
    watch(&purge, || half.exists());
    rig.kill();
    purge.join().unwrap();
    rig.start();
    if half.exists() {
        // Nobody gets half of it back.
        rig.post(&format!("/api/projects/{project}/restore"), &json!({})).fails(410, "gone");
    }
    rig.clean();
    rig.get(&format!("/api/projects/{project}")).fails(404, "not_found");
    rig.get("/api/threads/t").fails(404, "not_found");
    assert_eq!(std::fs::read_dir(rig.data().join("trash")).unwrap().count(), 0);
    assert_eq!(rig.said(&project), ["project.trashed", "project.purged"]);
}

#[test]
fn in_the_middle_of_a_snapshot() {
    let mut rig = Rig::with_config(ON_REQUEST, &[]);
    let project = rig.project("saved");
    fill(&rig, &project, "one");
    let (at, store) = (format!("/api/projects/{project}/snapshots"), rig.data().join("snapshots"));
    let take = ask(&rig, "POST", &at, "{}");
    watch(&take, || has(&store, ".new-"));
    rig.kill();
    take.join().unwrap();
    rig.start();
    let known = rig.get(&at).is(200)["items"].as_array().unwrap().len();
    assert_eq!(std::fs::read_dir(&store).unwrap().count(), known, "what was half done is swept away");
    let id = rig.post(&at, &json!({})).is(201)["id"].as_str().unwrap().to_owned();
    fill(&rig, &project, "two");
    rig.post(&format!("{at}/{id}/restore"), &json!({})).is(200);
    assert_eq!(tree_of(&rig.place(&project)), "one");
}

#[test]
fn in_the_middle_of_restoring_one_there_is_one_tree_or_the_other() {
    let mut rig = Rig::with_config(ON_REQUEST, &[]);
    let project = rig.project("back");
    rig.work_in(&project, "t", "true");
    fill(&rig, &project, "old");
    std::fs::write(rig.place(&project).join(".logs/a.log"), "logged").unwrap();
    let at = format!("/api/projects/{project}/snapshots");
    let id = rig.post(&at, &json!({})).is(201)["id"].as_str().unwrap().to_owned();
    for round in 0..rounds(4) {
        fill(&rig, &project, "new");
        let back = ask(&rig, "POST", &format!("{at}/{id}/restore"), "{}");
        let first = rig.place(&project).join("repo/0/0");
        if round % 2 == 0 {
            watch(&back, || has(&rig.data().join("projects"), ".unpack-"));
        } else {
            watch(&back, || std::fs::read_to_string(&first).is_ok_and(|text| text.starts_with("old")));
        }
        rig.kill();
        back.join().unwrap();
        rig.start();
        // A start waits two seconds for it, and then goes on beside it.
        wait_for("the sweep of what was left lying", || (!has(&rig.data().join("projects"), ".unpack-")).then_some(()));
        let tree = tree_of(&rig.place(&project));
        assert!(tree == "old" || tree == "new", "round {round}: {tree}");
        assert_eq!(std::fs::read_to_string(rig.place(&project).join(".logs/a.log")).unwrap(), "logged");
        assert_eq!(rig.exec("t", "cat /workspace/0/0")["stdout"], format!("{tree} 0"));
    }
    rig.post(&format!("{at}/{id}/restore?force=true"), &json!({})).is(200);
    assert_eq!(tree_of(&rig.place(&project)), "old");
    assert!(!has(&rig.data().join("projects"), ".unpack-"), "what was there before is removed");
}

#[test]
fn in_the_middle_of_making_a_project_from_a_snapshot_there_is_all_of_it_or_nothing() {
    let mut rig = Rig::with_config(ON_REQUEST, &[]);
    let project = rig.project("source");
    fill(&rig, &project, "old");
    let taken = rig.post(&format!("/api/projects/{project}/snapshots"), &json!({})).is(201);
    let body = json!({ "prefix": "copy", "from_snapshot": taken["id"] }).to_string();
    for round in 0..rounds(4) {
        let projects = rig.data().join("projects");
        let make = ask(&rig, "POST", "/api/projects", &body);
        match round % 3 {
            0 => watch(&make, || has(&projects, ".making-")),
            1 => watch(&make, || has(&projects, ".unpack-")),
            _ => watch(&make, || has(&projects, "copy-")),
        }
        rig.kill();
        make.join().unwrap();
        rig.start();
        assert_eq!(rig.get("/api/projects?prefix=copy&status=trashed").is(200)["items"], json!([]), "round {round}");
        for project in rig.get("/api/projects?prefix=copy").is(200)["items"].as_array().unwrap() {
            let id = project["id"].as_str().unwrap();
            assert_eq!(tree_of(&rig.place(id)), "old");
        }
        assert!(!has(&projects, ".making-") && !has(&projects, ".unpack-"), "round {round}");
        let known = rig.get("/api/projects?prefix=copy").is(200)["items"].as_array().unwrap().len();
        let there = std::fs::read_dir(&projects).unwrap().flatten();
        let there = there.filter(|entry| entry.file_name().to_string_lossy().starts_with("copy-")).count();
        assert_eq!((there, has(&rig.data().join("trash"), "copy-")), (known, false), "round {round}");
    }
}

#[test]
fn a_server_that_is_told_to_end_gives_up_what_it_packs_and_unpacks() {
    let mut rig = Rig::with_config(ON_REQUEST, &[]);
    let project = rig.project("large");
    fill(&rig, &project, "old");
    // A few seconds of work, and nothing that could be packed small.
    let noise = "head -c 40000000 /dev/urandom > noise";
    let repo = rig.place(&project).join("repo");
    assert!(std::process::Command::new("sh").args(["-c", noise]).current_dir(&repo).status().unwrap().success());
    let (at, store) = (format!("/api/projects/{project}/snapshots"), rig.data().join("snapshots"));
    let ended = |rig: &mut Rig, path: &str, begun: &dyn Fn() -> bool| {
        let asked = ask_for_status(rig, path);
        wait_for("the work", || (begun() || asked.is_finished()).then_some(()));
        let end = rig.terminate();
        (end.code(), asked.join().unwrap())
    };
    let taken = ended(&mut rig, &at, &|| has(&store, ".new-"));
    assert_eq!(taken, (Some(0), Some(503)));
    assert_eq!(std::fs::read_dir(&store).unwrap().count(), 0, "nothing is left of it");
    rig.start();
    assert_eq!(rig.get(&at).is(200)["items"], json!([]));
    let id = rig.post(&at, &json!({})).is(201)["id"].as_str().unwrap().to_owned();
    fill(&rig, &project, "new");
    let projects = rig.data().join("projects");
    let restored = ended(&mut rig, &format!("{at}/{id}/restore"), &|| has(&projects, ".unpack-"));
    assert_eq!(restored, (Some(0), Some(503)));
    rig.start();
    assert_eq!(tree_of(&rig.place(&project)), "new", "it never began");
    assert!(!has(&projects, ".unpack-"));
    rig.post(&format!("{at}/{id}/restore"), &json!({})).is(200);
    assert_eq!(tree_of(&rig.place(&project)), "old");
}

#[test]
fn in_the_middle_of_a_round_each_is_told_once() {
    let Some(clock) = Clock::new() else { return };
    let mut rig = clock.rig(ON_REQUEST);
    let projects: Vec<String> = (0..40).map(|number| rig.project(&format!("p{number}"))).collect();
    clock.restart(&mut rig, "+30d");
    for _ in 0..rounds(4) {
        let marked =
            |rig: &Rig| rig.get("/api/projects?status=marked&limit=1000").is(200)["items"].as_array().unwrap().len();
        let before = marked(&rig);
        let round = ask(&rig, "POST", "/api/projects/cleanup", "{}");
        watch(&round, || marked(&rig) > before);
        rig.kill();
        round.join().unwrap();
        rig.start();
    }
    rig.clean();
    for project in &projects {
        assert_eq!(rig.said(project), ["project.final", "project.marked"], "{project}");
    }
    clock.restart(&mut rig, "+31d");
    let round = ask(&rig, "POST", "/api/projects/cleanup", "{}");
    watch(&round, || has(&rig.data().join("trash"), "p"));
    rig.kill();
    round.join().unwrap();
    rig.start();
    let already = rig.get("/api/projects?status=trashed&limit=1000").is(200)["items"].as_array().unwrap().len();
    assert_eq!(ids(&rig.clean()["deleted"]).len() + already, projects.len());
    for project in &projects {
        assert_eq!(rig.said(project), ["project.final", "project.marked", "project.trashed"], "{project}");
        assert!(rig.in_trash(project).is_dir() && !rig.place(project).exists());
    }
    wait_for("a server that answers", || (rig.get("/readyz").status == 200).then_some(()));
}
