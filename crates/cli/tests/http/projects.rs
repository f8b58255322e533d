//! Projects: workspaces that threads share.

mod clones;
mod crash;
mod flood;
mod imports;
mod sessions;
mod work;

use crate::rig::{Answer, Rig, is_time, keys, wait_for};
use serde_json::{Value, json};

/// A project, and its id.
#[track_caller]
pub(crate) fn make(rig: &Rig, body: &Value) -> (String, Value) {
    let made = rig.post("/api/projects", body).is(201);
    (made["id"].as_str().unwrap().to_owned(), made)
}

#[track_caller]
pub(crate) fn show(rig: &Rig, id: &str) -> Value {
    rig.get(&format!("/api/projects/{id}")).is(200)
}

pub(crate) fn patch(rig: &Rig, path: &str, body: &Value) -> Answer {
    rig.call("PATCH", path, &[("content-type", "application/json")], body.to_string().as_bytes())
}

fn thread(rig: &Rig, id: &str, project: &str) -> Value {
    rig.post("/api/threads", &json!({ "id": id, "project_id": project })).is(201)
}

#[test]
fn a_project_is_made_shown_changed_and_put_away() {
    let rig = Rig::new();
    let config =
        json!({ "env": { "A": "1" }, "agent": "codex", "cleanup_after_days": 7, "limits": { "disk": "1GiB" } });
    let body = json!({ "prefix": "web-app", "description": "the shop", "tags": ["b", "a"], "config": config });
    let (id, made) = make(&rig, &body);
    assert!(id.starts_with("web-app-") && id.len() == 16, "{id}");
    let fields = [
        "clone",
        "config",
        "created_at",
        "description",
        "expires_at",
        "id",
        "last_accessed_at",
        "pinned",
        "prefix",
        "sessions",
        "statistics",
        "status",
        "tags",
        "trashed_at",
        "warning_level",
    ];
    assert_eq!(keys(&made), fields);
    assert_eq!(
        (&made["tags"], &made["status"], &made["pinned"]),
        (&json!(["a", "b"]), &json!("active"), &json!(false))
    );
    assert_eq!((&made["config"]["limits"]["disk"], &made["config"]["agent"]), (&json!(1 << 30), &json!("codex")));
    assert_eq!((&made["clone"], &made["sessions"]), (&Value::Null, &json!([])));
    for time in ["created_at", "expires_at", "last_accessed_at"] {
        is_time(&made[time]);
    }
    wait_for("its size in the list, though nobody has asked for it alone", || {
        rig.get("/api/projects").is(200)["items"][0]["statistics"]["disk_bytes"].as_u64()
    });
    let place = rig.data().join("projects").join(&id);
    for dir in ["repo", "home", ".memories/hot", ".memories/persistent", ".logs", "tmp"] {
        assert!(place.join(dir).is_dir(), "{dir}");
    }
    let path = format!("/api/projects/{id}");
    let change = json!({ "description": "new", "config": { "agent": null, "agent_model": "o5" } });
    let changed = patch(&rig, &path, &change).is(200);
    assert_eq!((&changed["description"], &changed["tags"]), (&json!("new"), &json!(["a", "b"])));
    let config = &changed["config"];
    assert_eq!(
        (&config["agent"], &config["agent_model"], &config["env"]),
        (&Value::Null, &json!("o5"), &json!({"A": "1"}))
    );
    let mirror: Value = serde_json::from_slice(&std::fs::read(place.join(".project_metadata.json")).unwrap()).unwrap();
    assert_eq!((&mirror["id"], &mirror["description"]), (&json!(id), &json!("new")));
    rig.delete(&path).is(204);
    assert_eq!(show(&rig, &id)["status"], "trashed");
    assert_eq!(rig.get("/api/projects").is(200)["items"], json!([]));
    assert_eq!(rig.get("/api/projects?status=trashed").is(200)["items"][0]["id"], json!(id));
    rig.post("/api/threads", &json!({ "project_id": id })).fails(409, "conflict");
}

#[test]
fn a_change_of_one_limit_leaves_the_others_and_one_of_the_days_counts_at_once() {
    let rig = Rig::new();
    let config = json!({ "limits": { "disk": "1GiB", "instances": 2 }, "cleanup_after_days": 10 });
    let (id, made) = make(&rig, &json!({ "prefix": "a", "config": config }));
    let path = format!("/api/projects/{id}");
    let change = |config: Value| patch(&rig, &path, &json!({ "config": config })).is(200);
    let limits = change(json!({ "limits": { "disk": "2GiB", "processes": 50 } }))["config"]["limits"].clone();
    assert_eq!(
        (&limits["disk"], &limits["instances"], &limits["processes"]),
        (&json!(2_u64 << 30), &json!(2), &json!(50))
    );
    let limits = change(json!({ "limits": { "disk": null } }))["config"]["limits"].clone();
    assert_eq!((&limits["disk"], &limits["instances"]), (&Value::Null, &json!(2)));
    patch(&rig, &path, &json!({ "config": { "limits": { "colour": 1 } } })).fails(400, "invalid_request");
    let limits = change(json!({ "limits": null }))["config"]["limits"].clone();
    assert_eq!(limits["instances"], Value::Null);
    let days = |project: &Value| {
        let time = |field: &str| project[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        time("expires_at").duration_since(time("last_accessed_at")).as_hours() / 24
    };
    assert_eq!(days(&made), 10);
    for (asked, given) in [(json!(60), 60), (json!(5), 5), (Value::Null, 30)] {
        assert_eq!(days(&change(json!({ "cleanup_after_days": asked }))), given, "{asked}");
    }
}

#[test]
fn one_that_does_not_say_how_long_is_kept_as_the_server_is_configured_now() {
    let mut rig = Rig::new();
    let (usual, _) = make(&rig, &json!({ "prefix": "usual" }));
    let (own, _) = make(&rig, &json!({ "prefix": "own", "config": { "cleanup_after_days": 10 } }));
    let (longer, _) = make(&rig, &json!({ "prefix": "longer" }));
    let (deleted, _) = make(&rig, &json!({ "prefix": "deleted" }));
    rig.post(&format!("/api/projects/{longer}/extend"), &json!({ "days": 20 })).is(200);
    rig.delete(&format!("/api/projects/{deleted}")).is(204);
    let days = |rig: &Rig, id: &str| {
        let project = show(rig, id);
        let time = |field: &str| project[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        time("expires_at").duration_since(time("last_accessed_at")).as_hours() / 24
    };
    assert_eq!([&usual, &own, &longer].map(|id| days(&rig, id)), [30, 10, 50]);
    for (configured, kept) in [(40, [40, 10, 50]), (7, [7, 10, 50])] {
        rig.kill();
        std::fs::write(rig.dir.path().join("stead.toml"), format!("[projects]\ncleanup_after_days = {configured}\n"))
            .unwrap();
        rig.start();
        assert_eq!([&usual, &own, &longer].map(|id| days(&rig, id)), kept, "{configured}");
    }
    rig.post(&format!("/api/projects/{deleted}/restore"), &json!({})).is(200);
    assert_eq!(days(&rig, &deleted), 7);
}

#[test]
fn what_was_said_of_a_project_that_never_was_is_not_found() {
    let rig = Rig::new();
    let (id, _) = make(&rig, &json!({ "prefix": "a" }));
    assert_eq!(rig.get(&format!("/api/projects/{id}/events")).is(200)["items"], json!([]));
    rig.get("/api/projects/nope-00000000/events").fails(404, "not_found");
}

#[test]
fn what_is_wrong_is_named_and_nothing_is_made() {
    let rig = Rig::new();
    let bad_name = json!({ "prefix": "a", "config": { "env": { "A-B": "1" } } });
    rig.post("/api/projects", &bad_name).fails(400, "invalid_env_name");
    let cases = [
        (json!({}), "prefix"),
        (json!({ "prefix": "Web" }), "Web"),
        (json!({ "prefix": "../x" }), "prefix"),
        (json!({ "prefix": "a", "colour": 1 }), "colour"),
        (json!({ "prefix": "a", "tags": ["a b"] }), "a b"),
        (json!({ "prefix": "a", "config": [] }), "expected a map"),
        (json!({ "prefix": "a", "config": { "colour": 1 } }), "colour"),
        (json!({ "prefix": "a", "config": { "network": "bridge" } }), "config.network"),
        (json!({ "prefix": "a", "config": { "limits": { "disk": 1 } } }), "config.limits.disk"),
        (json!({ "prefix": "a", "config": { "cleanup_after_days": 0 } }), "config.cleanup_after_days"),
        (json!({ "prefix": "a", "config": { "provider": "nobody" } }), "nobody"),
        (json!({ "prefix": "a", "config": { "routes": { "/x/": { "type": "s3" } } } }), "config.routes"),
        (json!({ "prefix": "a", "config": { "repo_url": "--upload-pack=id" } }), "config.repo_url"),
        (json!({ "prefix": "a", "config": { "repo_url": "ext::sh -c id" } }), "config.repo_url"),
        (json!({ "prefix": "a", "config": { "repo_url": "file:///etc" } }), "projects.clone_from_files"),
    ];
    for (body, word) in cases {
        let error = rig.post("/api/projects", &body).fails(400, "invalid_request");
        assert!(error["message"].as_str().unwrap().contains(word), "{body}: {error}");
    }
    for (config, setting) in [
        (json!({ "provider": "local", "image": "debian" }), "config.image"),
        (json!({ "provider": "local", "network": "none" }), "config.network"),
    ] {
        let error = rig.post("/api/projects", &json!({ "prefix": "a", "config": config })).fails(501, "unsupported");
        assert!(error["message"].as_str().unwrap().contains(setting), "{error}");
    }
    assert_eq!(rig.get("/api/projects").is(200)["items"], json!([]));
    for path in ["/api/projects/none-00000000", "/api/projects/none"] {
        assert_eq!(rig.get(path).fails(404, "not_found")["details"]["kind"], "project");
        patch(&rig, path, &json!({ "description": "x" })).fails(404, "not_found");
    }
    rig.get("/api/projects/a%20b").fails(400, "invalid_request");
    for query in ["status=gone", "limit=0", "limit=x", "colour=1", "prefix=a&prefix=b", "cursor=zz"] {
        rig.get(&format!("/api/projects?{query}")).fails(400, "invalid_request");
    }
    let (id, _) = make(&rig, &json!({ "prefix": "a" }));
    let path = format!("/api/projects/{id}");
    patch(&rig, &path, &json!({ "prefix": "b" })).fails(400, "invalid_request");
    patch(&rig, &path, &json!({ "config": { "colour": 1 } })).fails(400, "invalid_request");
    patch(&rig, &path, &json!({ "config": { "repo_url": "https://h/r" } })).fails(400, "invalid_request");
}

#[test]
fn a_list_takes_prefix_and_tags_and_goes_on_where_it_stopped() {
    let rig = Rig::new();
    for (prefix, tags) in [("web", json!(["a"])), ("web-api", json!(["a", "b"])), ("api", json!(["b"]))] {
        make(&rig, &json!({ "prefix": prefix, "tags": tags }));
    }
    let prefixes = |query: &str| -> Vec<String> {
        let listed = rig.get(&format!("/api/projects?{query}")).is(200);
        listed["items"].as_array().unwrap().iter().map(|item| item["prefix"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(prefixes(""), ["api", "web-api", "web"]);
    assert_eq!(prefixes("prefix=web"), ["web-api", "web"]);
    assert_eq!(prefixes("tag=b"), ["api", "web-api"]);
    assert_eq!(prefixes("tag=a&tag=b"), ["web-api"]);
    assert_eq!(prefixes("tag=c"), [""; 0]);
    let first = rig.get("/api/projects?limit=2").is(200);
    let cursor = first["next_cursor"].as_str().unwrap();
    assert_eq!(prefixes(&format!("limit=2&cursor={cursor}")), ["web"]);
}

#[test]
fn of_many_who_make_projects_at_once_exactly_as_many_succeed_as_there_may_be() {
    let rig = Rig::with_all("", &[], &[("MAX_PROJECTS", "5")]);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..24)
            .map(|n| {
                let rig = &rig;
                scope.spawn(move || rig.post("/api/projects", &json!({ "prefix": format!("p{n}") })).status)
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 5, "{statuses:?}");
    assert!(statuses.iter().all(|status| [201, 429].contains(status)), "{statuses:?}");
    assert_eq!(rig.get("/api/projects").is(200)["items"].as_array().unwrap().len(), 5);
    let dirs = std::fs::read_dir(rig.data().join("projects")).unwrap().count();
    assert_eq!(dirs, 5, "whoever is refused leaves nothing");
    let error = rig.post("/api/projects", &json!({ "prefix": "more" }));
    assert!(error.header("retry-after").is_some());
    error.fails(429, "limit_reached");
}

#[test]
fn a_token_of_a_project_sees_and_works_in_it_and_in_nothing_else() {
    let rig = Rig::new();
    let (mine, _) = make(&rig, &json!({ "prefix": "mine" }));
    let (other, _) = make(&rig, &json!({ "prefix": "other" }));
    let token = |body: Value| rig.post("/api/tokens", &body).is(201)["token"].as_str().unwrap().to_owned();
    let write = token(json!({ "name": "w", "projects": [mine] }));
    let read = token(json!({ "name": "r", "projects": [mine], "scope": "read" }));
    let call = |token: &str, method: &str, path: &str, body: Value| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        rig.call_as(method, path, &headers, body.as_bytes())
    };
    for token in [&write, &read] {
        let listed = call(token, "GET", "/api/projects", Value::Null).is(200);
        assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
        call(token, "GET", &format!("/api/projects/{mine}"), Value::Null).is(200);
        call(token, "GET", &format!("/api/projects/{other}"), Value::Null).fails(403, "forbidden");
        call(token, "POST", "/api/projects", json!({ "prefix": "x" })).fails(403, "forbidden");
        call(token, "POST", "/api/projects/import", json!({ "path": "/" })).fails(403, "forbidden");
        call(token, "DELETE", &format!("/api/projects/{mine}"), Value::Null).fails(403, "forbidden");
        call(token, "POST", &format!("/api/projects/{other}/sessions"), json!({})).fails(403, "forbidden");
        call(token, "GET", &format!("/api/projects/{other}/ws"), Value::Null).fails(403, "forbidden");
    }
    let path = format!("/api/projects/{mine}");
    call(&read, "PATCH", &path, json!({ "description": "x" })).fails(403, "forbidden");
    call(&read, "POST", &format!("{path}/sessions"), json!({})).fails(403, "forbidden");
    call(&read, "GET", &format!("{path}/ws"), Value::Null).fails(403, "forbidden");
    call(&write, "PATCH", &path, json!({ "description": "x" })).is(200);
    call(&write, "PATCH", &path, json!({ "config": { "network": "host" } })).fails(403, "forbidden");
    call(&write, "POST", "/api/threads", json!({ "id": "t", "project_id": mine })).is(201);
    call(&write, "POST", "/api/threads", json!({ "project_id": other })).fails(403, "forbidden");
    call(&write, "POST", "/api/threads/t/exec", json!({ "command": "true" })).is(200);
    call(&read, "POST", "/api/threads/t/exec", json!({ "command": "true" })).fails(403, "forbidden");
}

#[test]
fn settings_that_several_change_at_once_are_all_changed() {
    let rig = Rig::new();
    for round in 0..5 {
        let (id, _) = make(&rig, &json!({ "prefix": "a" }));
        let path = format!("/api/projects/{id}");
        let settings = [
            ("agent", json!("codex")),
            ("agent_model", json!("m")),
            ("cleanup_after_days", json!(9)),
            ("network", json!("host")),
        ];
        std::thread::scope(|scope| {
            for (name, value) in &settings {
                let (rig, path) = (&rig, &path);
                scope.spawn(move || patch(rig, path, &json!({ "config": { *name: value } })).is(200));
            }
        });
        let config = show(&rig, &id)["config"].clone();
        for (name, value) in settings {
            assert_eq!(config[name], value, "round {round}: {config}");
        }
    }
}
