//! How long things are kept, the trash, and snapshots: on a clock that the tests set.

pub(crate) mod clock;
mod https;
mod kills;
mod line;
mod snapshots;
mod steps;
mod trash;
mod webhook;

use crate::rig::Rig;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Rounds come when a test asks for one.
const ON_REQUEST: &str = "[projects]\ncleanup_check_interval_s = 315360000\n";

impl Rig {
    #[track_caller]
    fn project(&self, prefix: &str) -> String {
        let made = self.post("/api/projects", &json!({ "prefix": prefix })).is(201);
        made["id"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    fn show(&self, project: &str) -> Value {
        self.get(&format!("/api/projects/{project}")).is(200)
    }

    /// Where it stands, and what was said last.
    #[track_caller]
    fn standing(&self, project: &str) -> (String, Option<String>) {
        let shown = self.show(project);
        let level = shown["warning_level"].as_str().map(str::to_owned);
        (shown["status"].as_str().unwrap().to_owned(), level)
    }

    #[track_caller]
    fn clean(&self) -> Value {
        self.post("/api/projects/cleanup", &json!({})).is(200)
    }

    /// A thread in a project, in which a command ran.
    #[track_caller]
    fn work_in(&self, project: &str, thread: &str, command: &str) -> Value {
        self.post("/api/threads", &json!({ "id": thread, "project_id": project })).is(201);
        self.exec(thread, command)
    }

    /// What was said of a project, as `type`s.
    #[track_caller]
    fn said(&self, project: &str) -> Vec<String> {
        let events = self.get(&format!("/api/projects/{project}/events?limit=1000")).is(200);
        events["items"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    }

    fn in_trash(&self, project: &str) -> PathBuf {
        self.data().join("trash").join(project)
    }

    fn place(&self, project: &str) -> PathBuf {
        self.data().join("projects").join(project)
    }
}

fn ids(value: &Value) -> Vec<&str> {
    value.as_array().unwrap_or_else(|| panic!("{value}")).iter().map(|id| id.as_str().unwrap()).collect()
}

#[test]
fn bad_requests_change_nothing() {
    let rig = Rig::with_config(ON_REQUEST, &[]);
    let project = rig.project("bad");
    let before = rig.show(&project);
    for body in [
        json!({}),
        json!({"days": 0}),
        json!({"days": -1}),
        json!({"days": 40_000}),
        json!({"days": "7"}),
        json!({"days": 1, "x": 1}),
    ] {
        rig.post(&format!("/api/projects/{project}/extend"), &body).fails(400, "invalid_request");
    }
    rig.post("/api/projects/cleanup", &json!({ "dry_run": "yes" })).fails(400, "invalid_request");
    for path in ["extend", "pin", "unpin", "restore", "snapshots"] {
        let body = if path == "extend" { json!({ "days": 1 }) } else { json!({}) };
        rig.post(&format!("/api/projects/none-00000000/{path}"), &body).fails(404, "not_found");
    }
    for body in [json!({"ttl_s": 0}), json!({"ttl_s": "1"}), json!({"description": "\u{1b}[2J"}), json!({"x": 1})] {
        rig.post(&format!("/api/projects/{project}/snapshots"), &body).fails(400, "invalid_request");
    }
    rig.post(&format!("/api/projects/{project}/snapshots/snap-none/restore"), &json!({})).fails(404, "not_found");
    rig.delete(&format!("/api/projects/{project}/snapshots/snap-none")).fails(404, "not_found");
    let from = json!({ "prefix": "x", "from_snapshot": "snap-none" });
    rig.post("/api/projects", &from).fails(404, "not_found");
    assert_eq!(rig.show(&project), before);
    assert_eq!(rig.said(&project), [""; 0]);
    assert_eq!(rig.get("/api/projects").is(200)["items"].as_array().unwrap().len(), 1);
}

#[test]
fn settings_have_the_names_of_old_and_wrong_ones_are_named() {
    let variables = [
        ("PROJECT_CLEANUP_AFTER_DAYS", "7"),
        ("PROJECT_CLEANUP_WARNING_DAYS", "2"),
        ("PROJECT_CLEANUP_CHECK_INTERVAL", "3600"),
        ("PROJECT_CLEANUP_ENABLED", "False"),
    ];
    let rig = Rig::with_all("", &[], &variables);
    let shown = rig.show(&rig.project("a"));
    let moment = |key: &str| shown[key].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let kept = moment("expires_at").as_second() - moment("created_at").as_second();
    assert_eq!(kept, 7 * 86_400);
    let mut wrong = rig.stead();
    let secret = "hunter2-hunter2";
    wrong.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(rig.dir.path().join("other"));
    wrong.env("STEAD_PROJECTS_WEBHOOK_URL", "https://h.example/").env("STEAD_PROJECTS_WEBHOOK_SECRET", secret);
    wrong.env("PROJECT_CLEANUP_AFTER_DAYS", "0");
    let output = wrong.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("cleanup_after_days"), "{said}");
    assert!(!said.contains(secret), "{said}");
}
