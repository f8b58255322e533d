//! Tokens that are bound to a project stay within the walls that it has.

use crate::rig::{Answer, Rig};
use serde_json::{Value, json};

/// Two providers that keep nothing apart: the default one, which is everybody's, and another.
const PLAIN: &str = "default_provider = 'usual'\n[provider.usual]\nkind = 'local'\n[provider.open]\nkind = 'local'\n";

struct Bound {
    rig: Rig,
    project: String,
    token: String,
}

impl Bound {
    fn new() -> Self {
        let rig = Rig::with_config(PLAIN, &[]);
        let project = rig.post("/api/projects", &json!({ "prefix": "app" })).is(201)["id"].as_str().unwrap().to_owned();
        let made = rig.post("/api/tokens", &json!({ "name": "p", "projects": [project] })).is(201);
        Self { rig, project, token: made["token"].as_str().unwrap().to_owned() }
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {}", self.token);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        self.rig.call_as(method, path, &headers, body.as_bytes())
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path, body)
    }
}

#[test]
fn a_token_of_a_project_puts_no_thread_where_nothing_is_kept_apart() {
    let bound = Bound::new();
    bound.post("/api/threads", &json!({ "id": "t", "project_id": bound.project })).is(201);
    let refused = bound.post("/api/threads/t/move", &json!({ "provider": "open" })).fails(403, "forbidden");
    assert!(refused["hint"].as_str().unwrap().contains("config.provider"), "{refused}");
    let new = json!({ "id": "u", "project_id": bound.project, "provider": "open" });
    bound.post("/api/threads", &new).fails(403, "forbidden");
    assert_eq!(bound.rig.get("/api/threads/t").is(200)["provider"], "usual");
    assert_eq!(bound.rig.get("/api/threads/u").status, 404);
    // Everybody's is its own, too.
    assert_eq!(bound.post("/api/threads/t/exec", &json!({ "command": "echo on" })).is(200)["stdout"], "on\n");
    // Whoever may do everything may do that.
    bound.rig.post("/api/threads", &new).is(201);
}

#[test]
fn a_thread_that_somebody_else_put_there_is_not_the_tokens_to_work_in() {
    let bound = Bound::new();
    let new = json!({ "id": "t", "project_id": bound.project, "provider": "open" });
    bound.rig.post("/api/threads", &new).is(201);
    bound.rig.exec("t", "echo x > /workspace/x");
    let project = format!("/api/projects/{}", bound.project);
    let terminal = bound.rig.get("/api/threads/t/terminal").is(200)["terminal_id"].as_str().unwrap().to_owned();
    for (path, body) in [
        ("/api/threads/t/exec".to_owned(), json!({ "command": "true" })),
        ("/api/threads/t/fork".to_owned(), json!({ "id": "f" })),
        ("/api/threads/t/fork".to_owned(), json!({ "id": "f", "workspace": "share" })),
        ("/api/threads/t/terminals".to_owned(), json!({ "name": "n" })),
        ("/api/threads/t/resume".to_owned(), json!({})),
        ("/api/threads".to_owned(), json!({ "id": "s", "share_with": "t" })),
        ("/api/threads/t/files/grep".to_owned(), json!({ "pattern": "x" })),
        (format!("/api/terminals/{terminal}/restore"), json!({ "version": 0 })),
        (format!("{project}/sessions"), json!({ "thread_id": "t" })),
    ] {
        let answer = bound.post(&path, &body);
        assert_eq!((answer.status, answer.code().as_str()), (403, "forbidden"), "{path} {body}");
    }
    bound.call("PUT", "/api/threads/t/env", &json!({ "vars": { "A": "1" } })).fails(403, "forbidden");
    bound.call("GET", "/api/threads/t/files?path=x", &Value::Null).fails(403, "forbidden");
    // It may be looked at, and be rid of.
    assert_eq!(bound.call("GET", "/api/threads/t", &Value::Null).is(200)["provider"], "open");
    bound.call("DELETE", "/api/threads/t", &Value::Null).is(204);
}

#[test]
fn what_an_admin_configures_for_a_project_is_the_projects() {
    let bound = Bound::new();
    let config = json!({ "config": { "provider": "open" } });
    bound.call("PATCH", &format!("/api/projects/{}", bound.project), &config).fails(403, "forbidden");
    let patch = config.to_string();
    let headers = [("content-type", "application/json")];
    bound.rig.call("PATCH", &format!("/api/projects/{}", bound.project), &headers, patch.as_bytes()).is(200);
    let thread = bound.post("/api/threads", &json!({ "id": "t", "project_id": bound.project })).is(201);
    assert_eq!(thread["provider"], "open");
    assert_eq!(bound.post("/api/threads/t/exec", &json!({ "command": "echo on" })).is(200)["stdout"], "on\n");
    bound.post("/api/threads/t/move", &json!({ "provider": "usual" })).is(200);
    bound.post("/api/threads/t/move", &json!({ "provider": "open" })).is(200);
}

#[test]
fn a_provider_that_is_not_there_is_told_with_those_that_are() {
    let rig = Rig::with_config(PLAIN, &[]);
    let told = rig.post("/api/threads", &json!({ "provider": "nope" })).fails(400, "invalid_request");
    let hint = told["hint"].as_str().unwrap();
    assert!(hint.starts_with("configured: ") && hint.ends_with("`open`, `usual`"), "{hint}");
}
