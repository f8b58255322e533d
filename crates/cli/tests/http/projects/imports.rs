//! A project directory that comes from elsewhere.

use super::{make, show, thread};
use crate::rig::Rig;
use serde_json::{Value, json};
use std::path::Path;

fn copy(from: &Path, to: &Path) {
    assert!(std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn edit(dir: &Path, change: impl FnOnce(&mut Value)) {
    let path = dir.join(".project_metadata.json");
    let mut metadata: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut metadata);
    std::fs::write(path, metadata.to_string()).unwrap();
}

#[test]
fn a_directory_of_another_server_becomes_the_same_project() {
    let there = Rig::new();
    let (id, made) = make(
        &there,
        &json!({ "prefix": "app", "description": "moved", "tags": ["a"], "config": { "agent": "codex" } }),
    );
    thread(&there, "t", &id);
    there.exec("t", "echo work > f; echo home > ~/h; ln -s /etc/passwd link");
    there.exec("t", "echo hot > $STEAD_MEMORIES_HOT/m 2>/dev/null || echo hot > /memories/hot/m");
    let here = Rig::new();
    let from = there.data().join("projects").join(&id);
    let import = |path: &Path| here.post("/api/projects/import", &json!({ "path": path }));
    let imported = import(&from).is(201);
    for field in ["id", "prefix", "description", "tags", "config"] {
        assert_eq!(imported[field], made[field], "{field}");
    }
    assert!(from.join("repo/f").exists(), "it is copied");
    thread(&here, "t", &id);
    assert_eq!(here.exec("t", "cat f ~/h; readlink link")["stdout"], "work\nhome\n/etc/passwd\n");
    assert_eq!(here.get(&format!("/api/projects/{id}/fs/memories/hot/m")).body, b"hot\n", "its hot memory came along");
    import(&from).fails(409, "already_exists");
    // Put among the projects by hand, it is taken where it is.
    let second = id.replace(&id[id.len() - 8..], "00000abc");
    let place = here.data().join("projects").join(&second);
    copy(&from, &place);
    edit(&place, |metadata| metadata["id"] = json!(second));
    assert_eq!(import(&place).is(201)["id"], json!(second));
    assert_eq!(show(&here, &second)["description"], "moved");
    assert_eq!(here.get(&format!("/api/projects/{second}/fs/memories/hot/m")).body, b"hot\n");
}

/// Files of routes that a project has of its own, and of `tmp` if one leads there.
#[test]
fn what_routes_keep_in_directories_of_their_own_comes_along() {
    let there = Rig::new();
    let routes = json!({ "/workspace": "filesystem", "/notes": "filesystem",
        "/named": { "type": "filesystem", "root": "routes/n" }, "/tmp": { "type": "filesystem", "root": "tmp" } });
    let (id, _) = make(&there, &json!({ "prefix": "app", "config": { "routes": routes } }));
    let fs = |path: &str| format!("/api/projects/{id}/fs/{path}");
    for path in ["notes/a", "named/d/b", "tmp/c"] {
        there.call("PUT", &fs(path), &[], path.as_bytes()).is(201);
    }
    let from = there.data().join("projects").join(&id);
    // Somebody else's directory, by a link.
    std::os::unix::fs::symlink("/etc", from.join("routes/link")).unwrap();
    let here = Rig::new();
    here.post("/api/projects/import", &json!({ "path": from })).is(201);
    for path in ["notes/a", "named/d/b", "tmp/c"] {
        assert_eq!(here.get(&fs(path)).body, path.as_bytes(), "{path}");
    }
    assert!(here.data().join("projects").join(&id).join("routes/link").symlink_metadata().is_err());
    // Where no route leads to it, `tmp` is the server's own.
    let (plain, _) = make(&there, &json!({ "prefix": "app" }));
    let from = there.data().join("projects").join(&plain);
    std::fs::write(from.join("tmp/left"), "x").unwrap();
    here.post("/api/projects/import", &json!({ "path": from })).is(201);
    assert!(!here.data().join("projects").join(&plain).join("tmp/left").exists());
}

#[test]
fn an_import_that_is_refused_or_cut_short_can_be_tried_again() {
    let there = Rig::new();
    let (id, _) = make(&there, &json!({ "prefix": "app" }));
    there.call("PUT", &format!("/api/projects/{id}/fs/workspace/f"), &[], b"work").is(201);
    let from = there.data().join("projects").join(&id);
    let mut here = Rig::with_config("[projects]\nmax_projects = 1\n", &[]);
    let (first, _) = make(&here, &json!({ "prefix": "first" }));
    let import = |rig: &Rig| rig.post("/api/projects/import", &json!({ "path": from }));
    let names = |rig: &Rig| -> Vec<String> {
        let entries = std::fs::read_dir(rig.data().join("projects")).unwrap().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    };
    import(&here).fails(429, "limit_reached");
    assert_eq!(names(&here), [first.as_str()], "nothing is left of it");
    here.delete(&format!("/api/projects/{first}")).is(204);
    import(&here).is(201);
    // A server that died when there was a row, and the copy had not got its name.
    here.kill();
    let place = here.data().join("projects").join(&id);
    let part = here.data().join("projects").join(format!(".import-{id}"));
    std::fs::rename(&place, &part).unwrap();
    here.start();
    assert_eq!(here.get(&format!("/api/projects/{id}/fs/workspace/f")).body, b"work");
    // One that died before that: there is no row, and the copy may be half of one.
    here.kill();
    copy(&place, &here.data().join("projects/.import-app-00000abc"));
    here.start();
    assert_eq!(names(&here), [id.as_str()]);
}

#[test]
fn a_directory_that_is_none_of_ours_is_refused_and_nothing_is_made() {
    let rig = Rig::new();
    let (id, _) = make(&rig, &json!({ "prefix": "app" }));
    let good = rig.data().join("projects").join(&id);
    let dir = rig.dir.path().join("in");
    let import = |path: &Path| rig.post("/api/projects/import", &json!({ "path": path }));
    import(Path::new("relative")).fails(400, "invalid_path");
    import(&dir).fails(400, "invalid_path");
    std::fs::create_dir(&dir).unwrap();
    import(&dir).fails(400, "invalid_path");
    for (field, value) in [
        ("id", json!("../../etc")),
        ("id", json!("app-0000000G")),
        ("prefix", json!("other")),
        ("tags", json!(["a b"])),
        ("config", json!({ "colour": 1 })),
        ("config", json!({ "network": "bridge" })),
        ("config", json!({ "provider": "nobody" })),
    ] {
        std::fs::remove_dir_all(&dir).unwrap();
        copy(&good, &dir);
        edit(&dir, |metadata| {
            metadata["id"] = json!("app-00000abc");
            metadata[field] = value.clone();
        });
        import(&dir).fails(400, "invalid_request");
    }
    assert_eq!(rig.get("/api/projects").is(200)["items"].as_array().unwrap().len(), 1);
    let names: Vec<_> =
        std::fs::read_dir(rig.data().join("projects")).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(names, [std::ffi::OsString::from(&id)]);
}
