//! Tables of routes as the documentation has them, and what sandboxes see by each.

use super::{fs, inside, paths};
use crate::rig::Rig;
use serde_json::{Value, json};

fn providers(rig: &Rig) -> Vec<&'static str> {
    let works = rig.get("/api/providers").is(200);
    let is_missing = |name: &str| {
        let items = works["items"].as_array().unwrap();
        items.iter().any(|one| one["name"] == name && one["available"] == false)
    };
    let mut found = vec!["local", "namespace"];
    found.retain(|name| {
        if is_missing(name) {
            println!("SKIPPED: no {name} on this machine");
        }
        !is_missing(name)
    });
    found
}

fn project(rig: &Rig, routes: Option<&Value>) -> String {
    let config = routes.map_or_else(|| json!({}), |routes| json!({ "routes": routes }));
    let made = rig.post("/api/projects", &json!({ "prefix": "mem", "config": config })).is(201);
    made["id"].as_str().unwrap().to_owned()
}

#[test]
fn every_documented_table_shows_the_same_memories_in_sandboxes_and_outside() {
    let tables = [
        ("recommended", None),
        (
            "all on disk",
            Some(json!({
                "/workspace/": "filesystem", "/memories/": "filesystem", "/tmp/": { "type": "filesystem", "root": "tmp" }
            })),
        ),
        ("little disk", Some(json!({ "/workspace/": "filesystem", "/memories/": "store", "/": "state" }))),
    ];
    let mut rig = Rig::new();
    for provider in providers(&rig) {
        for (number, (name, table)) in tables.iter().enumerate() {
            let case = format!("{provider}, {name}");
            let id = project(&rig, table.as_ref());
            // Before there is a sandbox, and before its directories are there.
            for which in ["hot", "persistent"] {
                rig.call("PUT", &fs(&id, &format!("memories/{which}/d/api.md")), &[], b"from outside\n").is(201);
            }
            let thread = format!("{provider}-{number}");
            rig.post("/api/threads", &json!({ "id": thread, "project_id": id, "provider": provider })).is(201);
            for which in ["hot", "persistent"] {
                let place = inside(provider, which);
                let ran = rig.exec(&thread, &format!("cat {place}/d/api.md; echo inside > {place}/shell.md"));
                assert_eq!(ran["stdout"], "from outside\n", "{case}, {which}: {ran}");
                let at = fs(&id, &format!("memories/{which}/shell.md"));
                assert_eq!(rig.get(&at).body, b"inside\n", "{case}, {which}");
                rig.call("PUT", &at, &[], b"changed\n").is(204);
                assert_eq!(rig.exec(&thread, &format!("cat {place}/shell.md"))["stdout"], "changed\n", "{case}");
            }
            let lease = rig.get(&format!("/api/threads/{thread}/lease")).is(200);
            assert!(!lease["warnings"].to_string().contains("memories-not-shown"), "{case}: {lease}");
            // And by the next server.
            rig.kill();
            rig.start();
            let place = inside(provider, "hot");
            assert_eq!(rig.exec(&thread, &format!("cat {place}/shell.md"))["stdout"], "changed\n", "{case}");
            assert_eq!(rig.get(&fs(&id, "memories/hot/shell.md")).body, b"changed\n", "{case}");
        }
    }
}

#[test]
fn what_a_sandbox_can_not_see_of_memories_is_told_with_its_lease() {
    let rig = Rig::new();
    for provider in providers(&rig) {
        let routes = json!({ "/workspace": "filesystem", "/memories/hot": "store", "/memories/now": "state" });
        let id = project(&rig, Some(&routes));
        let thread = format!("t-{provider}");
        rig.post("/api/threads", &json!({ "id": thread, "project_id": id, "provider": provider })).is(201);
        rig.exec(&thread, "true");
        let lease = rig.get(&format!("/api/threads/{thread}/lease")).is(200);
        let warnings = lease["warnings"].as_array().unwrap();
        let told = warnings.iter().find(|warning| warning["code"] == "memories-not-shown").unwrap();
        assert!(told["message"].as_str().unwrap().contains("/memories/now"), "{told}");
    }
}

#[test]
fn a_table_that_is_changed_is_seen_by_the_next_instance() {
    let rig = Rig::new();
    let id = project(&rig, None);
    rig.post("/api/threads", &json!({ "id": "t", "project_id": id, "provider": "local" })).is(201);
    rig.exec("t", "echo old > $STEAD_MEMORIES_HOT/old");
    let routes = json!({ "/workspace": "filesystem", "/memories": "store" });
    let body = json!({ "config": { "routes": routes } }).to_string();
    let json = [("content-type", "application/json")];
    rig.call("PATCH", &format!("/api/projects/{id}"), &json, body.as_bytes()).is(200);
    rig.post("/api/threads", &json!({ "id": "u", "project_id": id, "provider": "local" })).is(201);
    let ran = rig.exec("u", "cat $STEAD_MEMORIES_HOT/old; echo new > $STEAD_MEMORIES/new");
    assert_eq!(ran["stdout"], "old\n", "{ran}");
    assert_eq!(rig.get(&fs(&id, "memories/new")).body, b"new\n");
    // The one that runs goes on as it began.
    rig.exec("t", "echo more > $STEAD_MEMORIES_HOT/more");
    assert_eq!(rig.get(&fs(&id, "memories/hot/more")).body, b"more\n");
    let listed = rig.post(&fs(&id, "ls"), &json!({ "path": "/memories", "depth": 9 })).is(200);
    assert_eq!(paths(&listed), ["/memories/hot", "/memories/hot/more", "/memories/hot/old", "/memories/new"]);
}
