//! The clouds themselves, where there are keys for them. Each makes one sandbox and removes it.

use crate::rig::Rig;
use serde_json::json;

/// A server with one cloud, and a thread on it; none, with a word about it, without a key.
fn live(kind: &str, key: &str) -> Option<Rig> {
    let variables: Vec<(String, String)> = std::env::vars()
        .filter(|(name, _)| {
            ["E2B_", "DAYTONA_", "AGENTBAY_", "STEAD_STATIC_"].iter().any(|word| name.starts_with(word))
        })
        .collect();
    if !variables.iter().any(|(name, value)| name == key && !value.is_empty()) {
        println!("SKIPPED: no {key}");
        return None;
    }
    let variables: Vec<_> = variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let rig = Rig::with_all(&format!("[provider.live]\nkind = '{kind}'\non_exit = 'destroy'\n"), &[], &variables);
    rig.post("/api/threads", &json!({ "id": "t", "provider": "live" })).is(201);
    Some(rig)
}

fn out(rig: &Rig, command: &str) -> String {
    let ran = rig.exec("t", command);
    assert_eq!(ran["exit_code"], 0, "{ran}");
    ran["stdout"].as_str().unwrap().to_owned()
}

fn leave(rig: &Rig) {
    rig.delete("/api/threads/t").is(204);
}

fn basic_execution(rig: &Rig) {
    assert_eq!(out(rig, "echo hello"), "hello\n");
}

fn terminal_state_persistence(rig: &Rig) {
    out(rig, "cd /tmp");
    assert_eq!(out(rig, "pwd"), "/tmp\n");
    out(rig, "export X=kept");
    assert_eq!(out(rig, "echo $X"), "kept\n");
}

fn file_operations(rig: &Rig) {
    out(rig, "echo text > /workspace/x");
    assert_eq!(rig.get("/api/threads/t/files?path=x").body, b"text\n");
    let listed = rig.get("/api/threads/t/files/list?path=/workspace").is(200);
    assert!(listed["items"].as_array().unwrap().iter().any(|item| item["name"] == "x"), "{listed}");
}

fn pause_resume(rig: &Rig) {
    out(rig, "cd /tmp; export Y=kept");
    rig.post("/api/threads/t/pause", &json!({})).is(200);
    assert_eq!(out(rig, "pwd; echo $Y"), "/tmp\nkept\n");
}

macro_rules! live {
    ($($name:ident($kind:literal, $key:literal): $($check:ident)*;)*) => {$(
        #[test]
        fn $name() {
            if let Some(rig) = live($kind, $key) {
                $($check(&rig);)*
                leave(&rig);
            }
        }
    )*};
}

live! {
    e2b_basic_execution("e2b", "E2B_API_KEY"): basic_execution;
    e2b_terminal_state_persistence("e2b", "E2B_API_KEY"): terminal_state_persistence;
    e2b_file_operations("e2b", "E2B_API_KEY"): file_operations;
    e2b_pause_resume("e2b", "E2B_API_KEY"): pause_resume;
    daytona_basic_execution("daytona", "DAYTONA_API_KEY"): basic_execution;
    daytona_terminal_state_persistence("daytona", "DAYTONA_API_KEY"): terminal_state_persistence;
    agentbay_basic_execution("agentbay", "AGENTBAY_API_KEY"): basic_execution;
    agentbay_terminal_state_persistence("agentbay", "AGENTBAY_API_KEY"): terminal_state_persistence;
    agentbay_file_operations("agentbay", "AGENTBAY_API_KEY"): file_operations;
}
