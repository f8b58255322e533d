//! Snapshots over HTTP.

use super::clock::Clock;
use super::{ON_REQUEST, ids};
use crate::rig::{Rig, keys, rounds, wait_for};
use serde_json::json;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_snapshot_brings_back_the_files_and_leaves_the_terminal() {
    let rig = Rig::with_config(ON_REQUEST, &[]);
    let project = rig.project("app");
    rig.work_in(&project, "t", "mkdir src; echo one > src/a; echo home > ~/rc; ln -s src/a link; chmod 700 src/a; X=1");
    std::fs::write(rig.place(&project).join(".memories/persistent/note"), "remember").unwrap();
    let at = format!("/api/projects/{project}/snapshots");
    let first = rig.post(&at, &json!({ "description": "before" })).is(201);
    assert_eq!(
        keys(&first),
        ["bytes", "created_at", "description", "digest", "expires_at", "files", "id", "project_id", "tree_bytes"]
    );
    assert_eq!((&first["description"], &first["expires_at"]), (&json!("before"), &json!(null)));
    let same = rig.post(&at, &json!({})).is(201);
    assert_eq!(first["digest"], same["digest"]);
    assert_eq!(std::fs::read_dir(rig.data().join("snapshots")).unwrap().count(), 1, "the same files are stored once");
    rig.exec("t", "echo two > src/a; echo new > new; rm link ~/rc; X=2; cd src");
    std::fs::write(rig.place(&project).join(".memories/persistent/note"), "changed").unwrap();
    let id = first["id"].as_str().unwrap();
    let restored = rig.post(&format!("{at}/{id}/restore"), &json!({})).is(200);
    assert_eq!(restored["id"], json!(project));
    let answer = rig.exec("t", "pwd; echo $X; cat a; cat ../link ~/rc; ls /workspace; stat -c %a a");
    assert_eq!(answer["stdout"], "/workspace/src\n2\none\none\nhome\nlink\nsrc\n700\n", "{answer}");
    let note = std::fs::read_to_string(rig.place(&project).join(".memories/persistent/note")).unwrap();
    assert_eq!(note, "remember");
    let listed = rig.get(&at).is(200);
    assert_eq!(listed["items"], json!([same, first]), "newest first");
    rig.delete(&format!("{at}/{id}")).is(204);
    rig.delete(&format!("{at}/{id}")).fails(404, "not_found");
    // The other one still has the archive.
    rig.post(&format!("{at}/{}/restore", same["id"].as_str().unwrap()), &json!({})).is(200);
    rig.delete(&format!("{at}/{}", same["id"].as_str().unwrap())).is(204);
    assert_eq!(std::fs::read_dir(rig.data().join("snapshots")).unwrap().count(), 0);
}

#[test]
fn a_project_begins_with_a_snapshot_of_another() {
    let rig = Rig::with_config(ON_REQUEST, &[]);
    let source = rig.project("source");
    rig.work_in(&source, "t", "echo one > a");
    let snapshot = rig.post(&format!("/api/projects/{source}/snapshots"), &json!({})).is(201)["id"].clone();
    let made = rig.post("/api/projects", &json!({ "prefix": "copy", "from_snapshot": snapshot })).is(201);
    assert_eq!(made["status"], "active");
    let copy = made["id"].as_str().unwrap();
    assert_eq!(rig.work_in(copy, "u", "cat a; echo two > a")["stdout"], "one\n");
    assert_eq!(rig.exec("t", "cat a")["stdout"], "one\n", "they share nothing");
    let both = json!({ "prefix": "x", "from_snapshot": snapshot, "config": { "repo_url": "https://h/r.git" } });
    rig.post("/api/projects", &both).fails(400, "invalid_request");
    let other = rig.post(&format!("/api/projects/{copy}/snapshots/{}/restore", snapshot.as_str().unwrap()), &json!({}));
    other.fails(404, "not_found");
    // One whose archive is damaged makes no project.
    let archive = std::fs::read_dir(rig.data().join("snapshots")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&archive, "damaged").unwrap();
    rig.post("/api/projects", &json!({ "prefix": "none", "from_snapshot": snapshot })).fails(500, "damaged");
    assert_eq!(rig.get("/api/projects?prefix=none").is(200)["items"], json!([]));
    assert_eq!(rig.get("/api/projects?prefix=none&status=trashed").is(200)["items"], json!([]));
    rig.post(&format!("/api/projects/{source}/snapshots/{}/restore", snapshot.as_str().unwrap()), &json!({}))
        .fails(500, "damaged");
    assert_eq!(rig.exec("t", "cat a")["stdout"], "one\n");
}

#[test]
fn a_restore_waits_for_nobody_and_ends_nothing_unless_forced() {
    let rig = Rig::with_config(ON_REQUEST, &[]);
    let project = rig.project("busy");
    rig.work_in(&project, "t", "echo one > a");
    let at = format!("/api/projects/{project}/snapshots");
    let id = rig.post(&at, &json!({})).is(201)["id"].as_str().unwrap().to_owned();
    let command = json!({ "command": "echo two > a; sleep 1000", "background": true, "id": "long" });
    rig.post("/api/threads/t/exec", &command).is(202);
    wait_for("the command", || {
        (std::fs::read_to_string(rig.place(&project).join("repo/a")).ok()? == "two\n").then_some(())
    });
    let refused = rig.post(&format!("{at}/{id}/restore"), &json!({})).fails(409, "conflict");
    assert!(refused["message"].as_str().unwrap().contains("`long`"), "{refused}");
    assert_eq!(rig.get("/api/commands/long").is(200)["status"], "running");
    rig.post(&format!("{at}/{id}/restore?force=true"), &json!({})).is(200);
    let ended = rig.get("/api/commands/long").is(200)["status"].clone();
    assert!(ended == "cancelled" || ended == "lost", "{ended}");
    assert_eq!(rig.exec("t", "cat a")["stdout"], "one\n");
}

#[test]
fn after_a_forced_restore_under_load_commands_work_in_the_restored_workspace() {
    let rig = Rig::with_config(ON_REQUEST, &[]);
    let project = rig.project("load");
    // Enough files that unpacking them takes a while.
    let fill = "mkdir many; for i in $(seq 2000); do echo $i > many/$i; done";
    rig.work_in(&project, "busy", fill);
    rig.post("/api/threads", &json!({ "id": "other", "project_id": project })).is(201);
    let at = format!("/api/projects/{project}/snapshots");
    let id = rig.post(&at, &json!({})).is(201)["id"].as_str().unwrap().to_owned();
    for round in 0..rounds(6) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looping = scope.spawn(|| {
                let body = json!({ "command": "echo begun > begun; while :; do :; done" });
                rig.post("/api/threads/busy/exec", &body)
            });
            wait_for("the loop", || rig.place(&project).join("repo/begun").exists().then_some(()));
            let others = ["other", "busy"].map(|thread| {
                let (rig, over) = (&rig, &over);
                scope.spawn(move || {
                    while !over.load(Ordering::SeqCst) {
                        // Behind the loop it would wait for ever where the loop is not ended.
                        let body = json!({ "command": "echo late > late", "if_busy": "reject" });
                        let answer = rig.post(&format!("/api/threads/{thread}/exec"), &body);
                        let told = answer.json();
                        let fits = match answer.status {
                            200 => true,
                            409 => answer.code() == "terminal_busy",
                            503 => told["error"]["retryable"] == true,
                            _ => false,
                        };
                        assert!(fits, "{} {told}", answer.status);
                    }
                })
            });
            rig.post(&format!("{at}/{id}/restore?force=true"), &json!({})).is(200);
            over.store(true, Ordering::SeqCst);
            let ended = looping.join().unwrap().is(200);
            assert!(ended["status"] == "cancelled" || ended["status"] == "lost", "{ended}");
            for other in others {
                other.join().unwrap();
            }
        });
        for thread in ["busy", "other"] {
            let name = format!("after-{round}-{thread}");
            let ran = rig.exec(thread, &format!("echo {name} > {name}; ls many | wc -l; [ ! -e begun ]"));
            assert_eq!((&ran["stdout"], &ran["exit_code"]), (&json!("2000\n"), &json!(0)), "round {round}: {ran}");
            let text = format!("{name}\n").into_bytes();
            let read = rig.get(&format!("/api/threads/{thread}/files?path={name}"));
            assert_eq!(read.body, text, "round {round}: the file is not in the workspace");
            assert_eq!(rig.get(&format!("/api/projects/{project}/fs/workspace/{name}")).body, text, "round {round}");
        }
        assert_eq!(rig.get("/api/orphans").is(200)["items"], json!([]), "round {round}");
    }
}

#[test]
fn a_snapshot_goes_when_its_time_is_over() {
    let Some(clock) = Clock::new() else { return };
    let mut rig = clock.rig(&format!("{ON_REQUEST}snapshot_ttl_days = 10\n"));
    let project = rig.project("ttl");
    let at = format!("/api/projects/{project}/snapshots");
    let usual = rig.post(&at, &json!({})).is(201)["id"].clone();
    std::fs::write(rig.place(&project).join("repo/a"), "x").unwrap();
    let short = rig.post(&at, &json!({ "ttl_s": 3600 })).is(201)["id"].clone();
    assert_eq!(rig.clean()["snapshots"], json!([]));
    clock.restart(&mut rig, "+1d");
    let dry = rig.post("/api/projects/cleanup", &json!({ "dry_run": true })).is(200);
    assert_eq!(dry["snapshots"], json!([short]));
    assert_eq!(std::fs::read_dir(rig.data().join("snapshots")).unwrap().count(), 2);
    assert_eq!(ids(&rig.clean()["snapshots"]).len(), 1);
    assert_eq!(std::fs::read_dir(rig.data().join("snapshots")).unwrap().count(), 1);
    clock.restart(&mut rig, "+11d");
    assert_eq!(rig.clean()["snapshots"], json!([usual]));
    assert_eq!(std::fs::read_dir(rig.data().join("snapshots")).unwrap().count(), 0);
}

#[test]
fn hot_memory_is_in_a_snapshot_and_comes_back_with_it_and_from_the_trash() {
    let rig = Rig::with_config(ON_REQUEST, &[]);
    let project = rig.project("hot");
    let fs = format!("/api/projects/{project}/fs");
    let put = |name: &str, text: &str| {
        let answer = rig.call("PUT", &format!("{fs}/memories/hot/{name}"), &[], text.as_bytes());
        assert!(matches!(answer.status, 201 | 204), "{answer:?}");
    };
    let get = |name: &str| rig.get(&format!("{fs}/memories/hot/{name}"));
    put("a", "one");
    let at = format!("/api/projects/{project}/snapshots");
    let id = rig.post(&at, &json!({})).is(201)["id"].as_str().unwrap().to_owned();
    put("a", "two");
    put("b", "new");
    rig.post(&format!("{at}/{id}/restore"), &json!({})).is(200);
    assert_eq!((get("a").body, get("b").status), (b"one".to_vec(), 404));
    put("c", "after");
    rig.delete(&format!("/api/projects/{project}")).is(204);
    get("a").fails(409, "conflict");
    rig.post(&format!("/api/projects/{project}/restore"), &json!({})).is(200);
    assert_eq!((get("a").body, get("c").body), (b"one".to_vec(), b"after".to_vec()));
    let copy = rig.post("/api/projects", &json!({ "prefix": "copy", "from_snapshot": id })).is(201);
    let copied = rig.get(&format!("/api/projects/{}/fs/memories/hot/a", copy["id"].as_str().unwrap()));
    assert_eq!(copied.body, b"one");
}

#[test]
fn a_snapshot_whose_time_is_over_is_neither_listed_nor_restored_before_it_is_swept() {
    let rig = Rig::with_config(ON_REQUEST, &[]);
    let project = rig.project("app");
    rig.work_in(&project, "t", "echo one > a");
    let at = format!("/api/projects/{project}/snapshots");
    let kept = rig.post(&at, &json!({})).is(201);
    let short = rig.post(&at, &json!({ "ttl_s": 1 })).is(201)["id"].as_str().unwrap().to_owned();
    wait_for("its end", || (rig.get(&at).is(200)["items"] == json!([kept])).then_some(()));
    rig.exec("t", "echo two > a");
    rig.post(&format!("{at}/{short}/restore"), &json!({})).fails(410, "gone");
    rig.post("/api/projects", &json!({ "prefix": "copy", "from_snapshot": short })).fails(410, "gone");
    assert_eq!(rig.exec("t", "cat a")["stdout"], "two\n");
    assert_eq!(rig.clean()["snapshots"], json!([short]), "then its archive goes");
    rig.post(&format!("{at}/{short}/restore"), &json!({})).fails(404, "not_found");
}

#[test]
fn whatever_a_snapshot_took_comes_back_with_its_holes_and_hard_links() {
    let rig = Rig::with_config(ON_REQUEST, &[]);
    let project = rig.project("odd");
    let repo = rig.place(&project).join("repo");
    // More than an archive from outside may have, nearly all of it holes.
    let (size, places) = (17 << 30, [0, 5 << 30, (9 << 30) + 12_345, (17 << 30) - 3]);
    let image = std::fs::File::create(repo.join("disk.img")).unwrap();
    image.set_len(size).unwrap();
    for place in places {
        image.write_all_at(b"abc", place).unwrap();
    }
    // As many stretches as need more than one block to be told.
    let many = std::fs::File::create(repo.join("many")).unwrap();
    for number in 0..60u64 {
        many.write_all_at(&number.to_be_bytes(), number * 65_536).unwrap();
    }
    std::fs::File::create(repo.join("hole")).unwrap().set_len(2 << 30).unwrap();
    std::fs::write(repo.join("first"), "linked").unwrap();
    std::fs::create_dir(repo.join("dir")).unwrap();
    for name in ["dir/second", "third"] {
        std::fs::hard_link(repo.join("first"), repo.join(name)).unwrap();
    }
    for (name, target) in [("l1", "./first"), ("l2", "dir//../first"), ("l3", "dir/"), ("l4", &"x/".repeat(2000))] {
        std::os::unix::fs::symlink(target, repo.join(name)).unwrap();
    }
    // A path that is too long to be said to the kernel at once.
    let deep = "set -e; d=$(printf 'n%.0s' $(seq 200)); for i in $(seq 30); do mkdir $d; cd $d; done; echo deep > file";
    assert!(Command::new("bash").args(["-c", deep]).current_dir(&repo).status().unwrap().success());
    // Everything is old, so that a time that isn't brought back shows.
    let age = "find . -depth -execdir touch -h -d @1000000000 {} ';'";
    assert!(Command::new("bash").args(["-c", age]).current_dir(rig.place(&project)).status().unwrap().success());
    let at = format!("/api/projects/{project}/snapshots");
    let taken = rig.post(&at, &json!({})).is(201);
    assert!(taken["bytes"].as_u64().unwrap() < 1 << 20, "{taken}");
    assert!(Command::new("bash").args(["-c", "rm -rf *"]).current_dir(&repo).status().unwrap().success());
    rig.post(&format!("{at}/{}/restore", taken["id"].as_str().unwrap()), &json!({})).is(200);
    let image = std::fs::File::open(repo.join("disk.img")).unwrap();
    let meta = image.metadata().unwrap();
    assert_eq!(meta.len(), size);
    assert!(meta.blocks() * 512 < 1 << 20, "{} blocks", meta.blocks());
    for place in places {
        let mut read = [0; 3];
        image.read_exact_at(&mut read, place).unwrap();
        assert_eq!(&read, b"abc", "at {place}");
    }
    let many = std::fs::read(repo.join("many")).unwrap();
    assert_eq!(many.len(), 59 * 65_536 + 8);
    for number in 0..60 {
        assert_eq!(many[number * 65_536..][..8], (number as u64).to_be_bytes());
    }
    let hole = std::fs::metadata(repo.join("hole")).unwrap();
    assert_eq!((hole.len(), hole.blocks()), (2 << 30, 0));
    let inode = |name: &str| std::fs::metadata(repo.join(name)).map(|meta| (meta.ino(), meta.nlink())).unwrap();
    assert_eq!((inode("first"), inode("dir/second"), inode("first").1), (inode("third"), inode("third"), 3));
    let target = |name: &str| std::fs::read_link(repo.join(name)).unwrap().into_os_string().into_string().unwrap();
    assert_eq!(
        (target("l1").as_str(), target("l2").as_str(), target("l3").as_str()),
        ("./first", "dir//../first", "dir/")
    );
    assert_eq!(target("l4"), "x/".repeat(2000));
    let deep = "d=$(printf 'n%.0s' $(seq 200)); for i in $(seq 30); do cd $d || exit 1; done; cat file";
    let read = Command::new("bash").args(["-c", deep]).current_dir(&repo).output().unwrap();
    assert_eq!(read.stdout, b"deep\n");
    for name in ["dir", "first", "l1", "disk.img"] {
        assert_eq!(std::fs::symlink_metadata(repo.join(name)).unwrap().mtime(), 1_000_000_000, "{name}");
    }
    // The same tree is the same archive, also after it was made again.
    assert_eq!(rig.post(&at, &json!({})).is(201)["digest"], taken["digest"]);
}

#[test]
fn what_is_too_deep_to_be_restored_is_refused_when_it_is_taken() {
    let rig = Rig::with_config(ON_REQUEST, &[]);
    let project = rig.project("deep");
    let deep = "for i in $(seq 300); do mkdir d; cd d; done";
    let repo = rig.place(&project).join("repo");
    assert!(Command::new("bash").args(["-c", deep]).current_dir(&repo).status().unwrap().success());
    let at = format!("/api/projects/{project}/snapshots");
    let refused = rig.post(&at, &json!({})).fails(413, "too_large");
    assert!(refused["message"].as_str().unwrap().contains("more than 256 directories deep"), "{refused}");
    assert_eq!(rig.get(&at).is(200)["items"], json!([]));
    assert_eq!(std::fs::read_dir(rig.data().join("snapshots")).unwrap().count(), 0);
}
