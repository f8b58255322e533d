//! Tokens: what each may do, and its end.

use crate::rig::{Answer, Rig, is_time, keys};
use serde_json::{Value, json};
use sqlx::Connection;

fn call(rig: &Rig, token: &str, method: &str, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {token}");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    rig.call_as(method, path, &[("authorization", &bearer), ("content-type", "application/json")], body.as_bytes())
}

fn make(rig: &Rig, body: &Value) -> (String, String) {
    let made = rig.post("/api/tokens", body).is(201);
    (made["id"].as_str().unwrap().to_owned(), made["token"].as_str().unwrap().to_owned())
}

/// Two projects, with a thread in each, put where the server keeps them.
fn with_projects() -> Rig {
    let mut rig = Rig::new();
    rig.terminate();
    let path = rig.data().join("stead.db");
    // Whoever changes it by hand gives up what the server knows of its pages.
    std::fs::remove_file(rig.data().join("stead.db-sums")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut database = sqlx::SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
        for id in ["one-00000001", "two-00000002"] {
            let insert = "INSERT INTO projects (id, prefix, description, tags, config, last_accessed_at, expires_at,
                            keep_days, pinned, version, created_at)
                          VALUES (?, ?, '', '[]', '{}', 1, 9999999999999, 30, 0, 0, 1)";
            let prefix = id.split('-').next().unwrap();
            sqlx::query(insert).bind(id).bind(prefix).execute(&mut database).await.unwrap();
        }
        database.close().await.unwrap();
    });
    rig.start();
    rig.post("/api/threads", &json!({ "id": "in-one", "project_id": "one-00000001" })).is(201);
    rig.post("/api/threads", &json!({ "id": "in-two", "project_id": "two-00000002" })).is(201);
    rig.post("/api/threads", &json!({ "id": "alone" })).is(201);
    for (thread, id) in [("in-one", "c1"), ("in-two", "c2"), ("alone", "c0")] {
        rig.post(&format!("/api/threads/{thread}/exec"), &json!({ "command": "echo x", "id": id })).is(200);
    }
    rig
}

#[test]
fn a_token_is_shown_once_and_listed_without_its_secret() {
    let rig = Rig::new();
    let made = rig.post("/api/tokens", &json!({ "name": "ci", "expires_in_s": 3600 })).is(201);
    let fields = [
        "created_at",
        "expires_at",
        "id",
        "last_used_at",
        "may_write",
        "name",
        "projects",
        "revoked_at",
        "scope",
        "token",
    ];
    assert_eq!(keys(&made), fields);
    assert_eq!((&made["name"], &made["scope"], &made["may_write"]), (&json!("ci"), &json!("admin"), &json!(true)));
    is_time(&made["expires_at"]);
    let secret = made["token"].as_str().unwrap();
    assert_eq!(call(&rig, secret, "GET", "/api/version", &Value::Null).status, 200);
    let list = rig.get("/api/tokens").is(200);
    assert!(list["items"].as_array().unwrap().len() == 1 && !list.to_string().contains(secret), "{list}");
    let mut shown = made.clone();
    shown.as_object_mut().unwrap().remove("token");
    shown["last_used_at"] = list["items"][0]["last_used_at"].clone();
    assert_eq!(list["items"][0], shown);
    is_time(&list["items"][0]["last_used_at"]);
}

#[test]
fn tokens_that_can_not_be_are_refused() {
    let rig = Rig::new();
    let long = "x".repeat(101);
    let bad = [
        json!({}),
        json!({ "name": "" }),
        json!({ "name": "  " }),
        json!({ "name": "a\nb" }),
        json!({ "name": long }),
        json!({ "name": "a", "scope": "root" }),
        json!({ "name": "a", "expires_in_s": 0 }),
        json!({ "name": "a", "expires_in_s": -1 }),
        json!({ "name": "a", "expires_in_s": u64::MAX }),
        json!({ "name": "a", "projects": [] }),
        json!({ "name": "a", "projects": ["/"] }),
        json!({ "name": "a", "for": "b" }),
    ];
    for body in bad {
        let answer = rig.post("/api/tokens", &body);
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{body}");
    }
    rig.post("/api/tokens", &json!({ "name": "a", "projects": ["app-01234567"] })).fails(404, "not_found");
    assert_eq!(rig.get("/api/tokens").is(200)["items"], json!([]));
    rig.post("/api/tokens", &json!({ "name": "a", "expires_in_s": 3_153_600_000_u64 })).is(201);
}

#[test]
fn a_revoked_token_opens_nothing_from_that_moment() {
    let rig = Rig::new();
    let (id, secret) = make(&rig, &json!({ "name": "a" }));
    for _ in 0..3 {
        assert_eq!(call(&rig, &secret, "GET", "/api/threads", &Value::Null).status, 200);
    }
    rig.delete(&format!("/api/tokens/{id}")).is(204);
    for path in ["/api/threads", "/api/version", "/metrics", "/docs"] {
        call(&rig, &secret, "GET", path, &Value::Null).fails(401, "unauthorized");
    }
    rig.delete(&format!("/api/tokens/{id}")).is(204);
    rig.delete("/api/tokens/tok-0123456789ab").fails(404, "not_found");
    rig.delete("/api/tokens/no%2Fid").fails(400, "invalid_request");
    is_time(&rig.get("/api/tokens").is(200)["items"][0]["revoked_at"]);
}

#[test]
fn a_token_ends_when_it_was_told_to() {
    let rig = Rig::new();
    let (_, secret) = make(&rig, &json!({ "name": "a", "expires_in_s": 1 }));
    crate::rig::wait_for("its end", || {
        (call(&rig, &secret, "GET", "/api/version", &Value::Null).status == 401).then_some(())
    });
}

/// Everything that changes something, of a thread, its command and its terminal.
fn changes(thread: &str, command: &str, terminal: &str) -> Vec<(&'static str, String, Value)> {
    let of = |what: &str| format!("/api/threads/{thread}{what}");
    vec![
        ("POST", of("/exec"), json!({ "command": "true" })),
        ("POST", of("/pause"), json!({})),
        ("POST", of("/resume"), json!({})),
        ("POST", of("/fork"), json!({})),
        ("POST", of("/move"), json!({ "provider": "local" })),
        ("PUT", of("/env"), json!({ "vars": {} })),
        ("POST", of("/terminals"), json!({ "name": "n" })),
        ("PUT", of("/files?path=f"), Value::Null),
        ("DELETE", of("/files?path=f"), Value::Null),
        ("POST", of("/files/mkdir"), json!({ "path": "d" })),
        ("POST", format!("/api/commands/{command}/stdin"), Value::Null),
        ("POST", format!("/api/commands/{command}/cancel"), json!({})),
        ("POST", format!("/api/terminals/{terminal}/restore"), json!({ "version": 1 })),
        ("DELETE", format!("/api/terminals/{terminal}"), Value::Null),
        ("POST", "/api/threads".to_owned(), json!({ "share_with": thread })),
        ("DELETE", of(""), Value::Null),
    ]
}

fn looks(thread: &str, command: &str, terminal: &str) -> Vec<String> {
    let of = |what: &str| format!("/api/threads/{thread}{what}");
    let parts = ["", "/session", "/terminal", "/terminals", "/lease", "/metrics", "/commands", "/files/list"];
    let mut paths: Vec<String> = parts.iter().map(|part| of(part)).collect();
    paths.push(format!("/api/commands/{command}"));
    paths.push(format!("/api/commands/{command}/events"));
    paths.push(format!("/api/commands/{command}/output/stdout"));
    paths.push(format!("/api/terminals/{terminal}/states"));
    paths
}

const GENERAL: [&str; 6] = ["sessions", "terminals", "leases", "providers", "orphans", "tokens"];

fn terminal_of(rig: &Rig, thread: &str) -> String {
    rig.get(&format!("/api/threads/{thread}")).is(200)["default_terminal_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_token_that_reads_sees_all_but_tokens_and_changes_nothing() {
    let rig = with_projects();
    let (_, secret) = make(&rig, &json!({ "name": "r", "scope": "read" }));
    for (thread, command) in [("alone", "c0"), ("in-one", "c1")] {
        let terminal = terminal_of(&rig, thread);
        for path in looks(thread, command, &terminal) {
            let answer = call(&rig, &secret, "GET", &path, &Value::Null);
            assert_eq!(answer.status, 200, "{path}");
        }
        for (method, path, body) in changes(thread, command, &terminal) {
            let answer = call(&rig, &secret, method, &path, &body);
            assert_eq!((answer.status, answer.code().as_str()), (403, "forbidden"), "{method} {path}");
        }
    }
    for list in GENERAL {
        let status = call(&rig, &secret, "GET", &format!("/api/{list}"), &Value::Null).status;
        assert_eq!(status, if list == "tokens" { 403 } else { 200 }, "{list}");
    }
    call(&rig, &secret, "POST", "/api/threads", &json!({ "id": "new" })).fails(403, "forbidden");
    call(&rig, &secret, "POST", "/api/threads/new/exec", &json!({ "command": "true" })).fails(403, "forbidden");
    call(&rig, &secret, "POST", "/api/tokens", &json!({ "name": "mine" })).fails(403, "forbidden");
    call(&rig, &secret, "DELETE", "/api/tokens/tok-0123456789ab", &Value::Null).fails(403, "forbidden");
    for what in ["adopt", "remove"] {
        call(&rig, &secret, "POST", &format!("/api/orphans/inst-0123456789ab/{what}"), &json!({}))
            .fails(403, "forbidden");
    }
    assert_eq!(rig.get("/api/threads").is(200)["items"].as_array().unwrap().len(), 3);
}

#[test]
fn a_token_of_a_project_sees_and_changes_that_project_alone() {
    let rig = with_projects();
    let (_, secret) = make(&rig, &json!({ "name": "p", "projects": ["one-00000001"] }));
    for (thread, command) in [("alone", "c0"), ("in-two", "c2")] {
        let terminal = terminal_of(&rig, thread);
        for path in looks(thread, command, &terminal) {
            let answer = call(&rig, &secret, "GET", &path, &Value::Null);
            assert!([403, 404].contains(&answer.status), "{path} {}", answer.status);
            answer.code();
        }
        for (method, path, body) in changes(thread, command, &terminal) {
            let answer = call(&rig, &secret, method, &path, &body);
            assert!([403, 404].contains(&answer.status), "{method} {path} {}", answer.status);
            answer.code();
        }
    }
    for list in GENERAL {
        call(&rig, &secret, "GET", &format!("/api/{list}"), &Value::Null).fails(403, "forbidden");
    }
    let terminal = terminal_of(&rig, "in-one");
    for path in looks("in-one", "c1", &terminal) {
        assert_eq!(call(&rig, &secret, "GET", &path, &Value::Null).status, 200, "{path}");
    }
    let list = call(&rig, &secret, "GET", "/api/threads", &Value::Null).is(200);
    assert_eq!((list["items"].as_array().unwrap().len(), &list["items"][0]["id"]), (1, &json!("in-one")));
    call(&rig, &secret, "GET", "/api/threads?project_id=two-00000002", &Value::Null).fails(403, "forbidden");
    call(&rig, &secret, "POST", "/api/threads", &json!({ "id": "new" })).fails(403, "forbidden");
    call(&rig, &secret, "POST", "/api/threads/new/exec", &json!({ "command": "true" })).fails(403, "forbidden");
    let new = json!({ "id": "new", "project_id": "one-00000001" });
    call(&rig, &secret, "POST", "/api/threads", &new).is(201);
    assert_eq!(call(&rig, &secret, "POST", "/api/threads/new/exec", &json!({ "command": "true" })).status, 200);
    // The way round: a thread of its own on the lease of another's.
    let across = json!({ "id": "across", "project_id": "one-00000001", "share_with": "in-two" });
    call(&rig, &secret, "POST", "/api/threads", &across).fails(403, "forbidden");
    // Nor does an id that another project's command has tell anything.
    let theirs = json!({ "command": "echo x", "id": "c2" });
    let answer = call(&rig, &secret, "POST", "/api/threads/in-one/exec", &theirs);
    assert!(answer.status == 409 && !String::from_utf8_lossy(&answer.body).contains("in-two"), "{:?}", answer.json());
    // A fork stays in the project.
    let fork = call(&rig, &secret, "POST", "/api/threads/in-one/fork", &json!({ "id": "fork" })).is(201);
    assert_eq!(fork["project_id"], "one-00000001");
    assert_eq!(rig.get("/api/threads/in-two").status, 200);
}

#[test]
fn a_token_that_reads_a_project_changes_nothing_in_it() {
    let rig = with_projects();
    let (_, secret) = make(&rig, &json!({ "name": "p", "scope": "read", "projects": ["one-00000001"] }));
    let terminal = terminal_of(&rig, "in-one");
    for path in looks("in-one", "c1", &terminal) {
        assert_eq!(call(&rig, &secret, "GET", &path, &Value::Null).status, 200, "{path}");
    }
    for (method, path, body) in changes("in-one", "c1", &terminal) {
        let answer = call(&rig, &secret, method, &path, &body);
        assert_eq!((answer.status, answer.code().as_str()), (403, "forbidden"), "{method} {path}");
    }
}

#[test]
fn threads_of_two_projects_never_share_a_lease() {
    let rig = with_projects();
    let across = json!({ "id": "across", "project_id": "one-00000001", "share_with": "in-two" });
    rig.post("/api/threads", &across).fails(409, "conflict");
    // Whoever shares is in the same project.
    let with = rig.post("/api/threads", &json!({ "share_with": "in-two" })).is(201);
    assert_eq!(with["project_id"], "two-00000002");
}
