//! The repository that a project begins with.

use super::{make, show, thread};
use crate::rig::{Rig, wait_for};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

pub(super) const FILES: &str = "[projects]\nclone_from_files = true\n";

/// A repository with a commit in it.
pub(super) fn repository(dir: &Path, files: usize) -> String {
    std::fs::create_dir_all(dir).unwrap();
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args(arguments).current_dir(dir).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        for who in ["GIT_AUTHOR", "GIT_COMMITTER"] {
            git.env(format!("{who}_NAME"), "a").env(format!("{who}_EMAIL"), "a@b");
        }
        assert!(git.output().unwrap().status.success(), "{arguments:?}");
    };
    git(&["init", "-q", "-b", "main"]);
    for n in 0..files {
        std::fs::write(dir.join(format!("f{n}")), format!("{n}\n")).unwrap();
    }
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "first"]);
    format!("file://{}", dir.display())
}

#[track_caller]
pub(super) fn cloned(rig: &Rig, id: &str) -> Value {
    wait_for("end of the clone", || Some(show(rig, id)["clone"].clone()).filter(|clone| clone["state"] != "running"))
}

#[test]
fn a_repository_is_in_the_workspace_before_anything_runs_there() {
    let rig = Rig::with_config(FILES, &[]);
    let url = repository(&rig.dir.path().join("r"), 300);
    let (id, made) = make(&rig, &json!({ "prefix": "app", "config": { "repo_url": url } }));
    assert!(["running", "done"].contains(&made["clone"]["state"].as_str().unwrap()), "{made}");
    thread(&rig, "t", &id);
    // Whoever opens a terminal waits for it.
    let seen = rig.exec("t", "ls | wc -l; cat f7; git log --format=%s; git config remote.origin.url");
    assert_eq!(seen["stdout"], format!("300\n7\nfirst\n{url}\n"), "{seen}");
    let clone = cloned(&rig, &id);
    assert_eq!((&clone["state"], &clone["error"]), (&json!("done"), &Value::Null));
    let tmp = rig.data().join("projects").join(&id).join("tmp");
    assert_eq!(std::fs::read_dir(tmp).unwrap().count(), 0);
}

#[test]
fn a_clone_that_fails_is_told_and_its_credentials_are_nowhere() {
    let rig = Rig::with_config(FILES, &[]);
    let (id, _) = make(&rig, &json!({ "prefix": "app", "config": { "repo_url": "file:///nonexistent/r.git" } }));
    let clone = cloned(&rig, &id);
    assert_eq!(clone["state"], "failed");
    assert!(clone["error"].as_str().unwrap().contains("does not appear to be a git repository"), "{clone}");
    assert!(show(&rig, &id)["statistics"]["last_error"]["message"].as_str().unwrap().contains("cloned"));
    thread(&rig, "t", &id);
    rig.exec("t", "true");
    // Nobody listens there.
    let url = "https://somebody:hunter2-secret@127.0.0.1:9/r.git";
    let (id, made) = make(&rig, &json!({ "prefix": "app", "config": { "repo_url": url } }));
    assert_eq!(made["config"]["repo_url"], "https://127.0.0.1:9/r.git");
    assert_eq!(cloned(&rig, &id)["state"], "failed");
    let shown = show(&rig, &id).to_string();
    assert!(!shown.contains("hunter2") && !shown.contains("somebody"), "{shown}");
    assert!(!rig.log().contains("hunter2"));
    let mut dirs = vec![rig.data()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                dirs.push(entry.path());
            } else if kind.is_file()
                && let Ok(bytes) = std::fs::read(entry.path())
            {
                assert!(!String::from_utf8_lossy(&bytes).contains("hunter2"), "{}", entry.path().display());
            }
        }
    }
}

/// Processes that have this in what they were started with.
fn processes(word: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).filter(|line| line.contains(word)).collect()
}

#[test]
fn a_clone_ends_with_its_project_and_leaves_nothing_behind() {
    // Takes connections, and says nothing: git waits.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let rig = Rig::with_config(FILES, &[]);
    let url = format!("https://somebody:hunter2@{address}/r.git");
    let (id, _) = make(&rig, &json!({ "prefix": "app", "config": { "repo_url": url } }));
    let (_held, _) = listener.accept().unwrap();
    assert!(!processes(&address).is_empty());
    let refused = rig.delete(&format!("/api/projects/{id}")).fails(409, "conflict");
    assert!(refused["message"].as_str().unwrap().contains("git"), "{refused}");
    assert!(!processes(&address).is_empty(), "it goes on");
    rig.delete(&format!("/api/projects/{id}?force=true")).is(204);
    wait_for("the end of git", || processes(&address).is_empty().then_some(()));
    assert!(!rig.data().join("projects").join(&id).exists());
    // Whoever wants it back has it cloned, too.
    rig.post(&format!("/api/projects/{id}/restore"), &json!({})).is(200);
    let (_again, _) = listener.accept().unwrap();
    assert_eq!(show(&rig, &id)["clone"]["state"], "running");
    rig.delete(&format!("/api/projects/{id}?force=true")).is(204);
    wait_for("the end of git", || processes(&address).is_empty().then_some(()));
    let trash = rig.data().join("trash").join(&id);
    let left = |dir: &str| std::fs::read_dir(trash.join(dir)).unwrap().flatten().map(|entry| entry.path()).collect();
    let left: [Vec<std::path::PathBuf>; 2] = ["tmp", "repo"].map(left);
    assert_eq!(left.concat(), Vec::<std::path::PathBuf>::new());
    assert!(!rig.log().contains("hunter2"));
}
