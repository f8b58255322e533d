//! Lists: pages that fit together while things come and go.

use crate::rig::Rig;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn ids(page: &Value, field: &str) -> Vec<String> {
    page["items"].as_array().unwrap().iter().map(|item| item[field].as_str().unwrap().to_owned()).collect()
}

/// Every page of a list, with `between` called behind each.
fn walk(rig: &Rig, path: &str, field: &str, limit: usize, mut between: impl FnMut(usize)) -> Vec<String> {
    let joint = if path.contains('?') { '&' } else { '?' };
    let (mut found, mut cursor, mut number) = (Vec::new(), String::new(), 0);
    loop {
        let page = rig.get(&format!("{path}{joint}limit={limit}{cursor}")).is(200);
        let items = ids(&page, field);
        assert!(items.len() <= limit);
        found.extend(items.iter().cloned());
        let Some(next) = page["next_cursor"].as_str() else { return found };
        assert_eq!(items.len(), limit, "a page that is not the last is full");
        cursor = format!("&cursor={next}");
        between(number);
        number += 1;
    }
}

#[test]
fn the_pages_of_every_list_are_the_list() {
    let rig = Rig::new();
    for number in 0..7 {
        rig.post("/api/threads", &json!({ "id": format!("t{number}") })).is(201);
    }
    for number in 0..3 {
        rig.exec(&format!("t{}", number + 1), "true");
        rig.exec("t0", &format!("export N{number}=1"));
        rig.post("/api/threads/t0/terminals", &json!({ "name": format!("n{number}") })).is(201);
        rig.post("/api/tokens", &json!({ "name": format!("k{number}") })).is(201);
    }
    let terminal = rig.get("/api/threads/t0/terminal").is(200)["terminal_id"].as_str().unwrap().to_owned();
    let lists = [
        ("/api/threads".to_owned(), "id", 7),
        ("/api/terminals".to_owned(), "terminal_id", 10),
        ("/api/sessions".to_owned(), "session_id", 4),
        ("/api/leases".to_owned(), "lease_id", 7),
        ("/api/tokens".to_owned(), "id", 3),
        ("/api/threads/t0/commands".to_owned(), "id", 3),
        ("/api/threads/t0/terminals".to_owned(), "terminal_id", 4),
        (format!("/api/terminals/{terminal}/states"), "created_at", 4),
    ];
    for (path, field, count) in lists {
        let whole = rig.get(&path).is(200);
        assert_eq!((ids(&whole, field).len(), &whole["next_cursor"]), (count, &Value::Null), "{path}");
        for limit in [1, 2, 3, count, 1000] {
            assert_eq!(walk(&rig, &path, field, limit, |_| ()), ids(&whole, field), "{path} by {limit}");
        }
    }
    // Newest first.
    let threads = ids(&rig.get("/api/threads").is(200), "id");
    assert_eq!(threads, ["t6", "t5", "t4", "t3", "t2", "t1", "t0"]);
}

#[test]
fn what_stays_is_listed_once_while_others_come_and_go() {
    let rig = Rig::new();
    for number in 0..20 {
        rig.post("/api/threads", &json!({ "id": format!("stays{number}") })).is(201);
        rig.post("/api/threads", &json!({ "id": format!("goes{number}") })).is(201);
    }
    let found = walk(&rig, "/api/threads", "id", 3, |number| {
        rig.post("/api/threads", &json!({ "id": format!("comes{number}") })).is(201);
        rig.delete(&format!("/api/threads/goes{number}")).is(204);
        rig.delete(&format!("/api/threads/goes{}", 19 - number)).is(204);
    });
    let unique: BTreeSet<&String> = found.iter().collect();
    assert_eq!(unique.len(), found.len(), "one was listed twice: {found:?}");
    let stayed: Vec<&String> = found.iter().filter(|id| id.starts_with("stays")).collect();
    let want: Vec<String> = (0..20).rev().map(|number| format!("stays{number}")).collect();
    assert_eq!(stayed, want.iter().collect::<Vec<_>>());
}

#[test]
fn a_page_goes_on_where_the_last_one_ended_even_if_that_is_gone() {
    let rig = Rig::new();
    for id in ["a", "b", "c", "d"] {
        rig.post("/api/threads", &json!({ "id": id })).is(201);
    }
    let page = rig.get("/api/threads?limit=2").is(200);
    assert_eq!(ids(&page, "id"), ["d", "c"]);
    rig.delete("/api/threads/c").is(204);
    let next = format!("/api/threads?limit=2&cursor={}", page["next_cursor"].as_str().unwrap());
    assert_eq!(ids(&rig.get(&next).is(200), "id"), ["b", "a"]);
}

#[test]
fn a_limit_or_a_cursor_that_can_not_be_is_refused() {
    let rig = Rig::new();
    rig.post("/api/threads", &json!({ "id": "a" })).is(201);
    rig.post("/api/threads", &json!({ "id": "b" })).is(201);
    let lists =
        ["/api/threads", "/api/terminals", "/api/sessions", "/api/leases", "/api/tokens", "/api/threads/a/commands"];
    for list in lists {
        for query in ["limit=0", "limit=1001", "limit=-1", "limit=x", "limit=", "cursor=x", "cursor=", "offset=1"] {
            let answer = rig.get(&format!("{list}?{query}"));
            assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{list}?{query}");
        }
        assert_eq!(rig.get(&format!("{list}?limit=1000")).status, 200);
    }
    let cursor = rig.get("/api/threads?limit=1").is(200)["next_cursor"].as_str().unwrap().to_owned();
    rig.get(&format!("/api/terminals?cursor={cursor}")).fails(400, "invalid_request");
    rig.get("/api/leases?provider=no%2Fname").fails(400, "invalid_request");
    rig.get("/api/threads?project_id=no%2Fname").fails(400, "invalid_request");
}
