//! The description of the interface: the one that is served, the one in the repository, and what is really there.

use crate::rig::Rig;
use serde_json::Value;

#[test]
fn the_description_in_the_repository_is_the_one_that_is_served() {
    let rig = Rig::new();
    let served = rig.get("/api/openapi.json");
    assert_eq!((served.status, served.header("content-type")), (200, Some("application/json")));
    let kept = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi.json")).unwrap_or_default();
    let same = kept.as_bytes() == served.body;
    assert!(same, "`openapi.json` is not what this server says; `cargo xtask openapi` writes it anew");
}

/// Every place of the contract, with its methods.
const PLACES: [(&str, &[&str]); 39] = [
    ("/api/threads", &["get", "post"]),
    ("/api/threads/{id}", &["get", "delete"]),
    ("/api/threads/{id}/session", &["get"]),
    ("/api/threads/{id}/terminal", &["get"]),
    ("/api/threads/{id}/terminals", &["get", "post"]),
    ("/api/terminals/{id}", &["delete"]),
    ("/api/terminals/{id}/states", &["get"]),
    ("/api/terminals/{id}/restore", &["post"]),
    ("/api/threads/{id}/lease", &["get"]),
    ("/api/threads/{id}/metrics", &["get"]),
    ("/api/threads/{id}/pause", &["post"]),
    ("/api/threads/{id}/resume", &["post"]),
    ("/api/threads/{id}/fork", &["post"]),
    ("/api/threads/{id}/move", &["post"]),
    ("/api/threads/{id}/env", &["put"]),
    ("/api/threads/{id}/exec", &["post"]),
    ("/api/threads/{id}/commands", &["get"]),
    ("/api/threads/{id}/pty", &["get"]),
    ("/api/threads/{id}/files", &["get", "put", "delete"]),
    ("/api/threads/{id}/files/list", &["get"]),
    ("/api/threads/{id}/files/stat", &["get"]),
    ("/api/threads/{id}/files/archive", &["get", "put"]),
    ("/api/commands/{id}", &["get"]),
    ("/api/commands/{id}/events", &["get"]),
    ("/api/commands/{id}/output/{stream}", &["get"]),
    ("/api/commands/{id}/stdin", &["post"]),
    ("/api/commands/{id}/cancel", &["post"]),
    ("/api/sessions", &["get"]),
    ("/api/terminals", &["get"]),
    ("/api/leases", &["get"]),
    ("/api/leases/{id}/events", &["get"]),
    ("/api/providers", &["get"]),
    ("/api/orphans", &["get"]),
    ("/api/orphans/{instance}/adopt", &["post"]),
    ("/api/orphans/{instance}/remove", &["post"]),
    ("/api/tokens", &["get", "post"]),
    ("/api/version", &["get"]),
    ("/metrics", &["get"]),
    ("/healthz", &["get"]),
];

#[test]
fn every_place_of_the_contract_is_described_with_its_errors() {
    let rig = Rig::new();
    let api: Value = rig.get("/api/openapi.json").is(200);
    for (path, methods) in PLACES {
        for method in methods {
            let described = &api["paths"][path][method];
            assert!(described.is_object(), "{method} {path} is not described");
            let bare = ["/api/version", "/healthz"].contains(&path);
            assert!(bare || described["responses"]["default"].is_object(), "{method} {path} has no errors");
        }
    }
    for (path, method) in [
        ("/api/threads/{id}/exec", "post"),
        ("/api/threads/{id}/fork", "post"),
        ("/api/threads/{id}/move", "post"),
        ("/api/commands/{id}/events", "get"),
        ("/api/commands/{id}/output/{stream}", "get"),
        ("/api/projects", "post"),
        ("/api/projects/{id}/snapshots/{sid}/restore", "post"),
    ] {
        let told = api["paths"][path][method]["responses"]["500"]["description"].as_str().unwrap_or_default();
        assert!(told.contains("`damaged`"), "{method} {path} doesn't say that something may be damaged: `{told}`");
    }
    let warnings = &api["components"]["schemas"]["CommandView"]["properties"]["warnings"]["description"];
    for code in ["stdout_redirected", "stderr_redirected", "state_lost", "state_restored", "output_evicted"] {
        assert!(warnings.as_str().is_some_and(|told| told.contains(code)), "{code}: {warnings}");
    }
    for way in ["bearer", "cookie"] {
        assert!(api["components"]["securitySchemes"][way].is_object(), "{way}");
    }
    assert_eq!(rig.get("/docs").status, 200);
}
