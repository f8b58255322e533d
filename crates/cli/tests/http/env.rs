//! Variables and secrets from outside.

use crate::rig::{Rig, wait_for};
use serde_json::{Value, json};

const SECRET: &str = "s3cr3t-that-nobody-sees";

fn set(rig: &Rig, thread: &str, body: &Value) -> crate::rig::Answer {
    rig.put(&format!("/api/threads/{thread}/env"), body)
}

#[test]
fn variables_are_set_and_unset_before_the_next_command() {
    let rig = Rig::new();
    rig.exec("t", "export OLD=1 KEPT=1");
    let terminal = set(&rig, "t", &json!({ "vars": { "NEW": "a 'b' \"c\"\n", "OLD": null, "NEVER": null } })).is(200);
    assert_eq!(terminal["env_delta"]["NEW"], "a 'b' \"c\"\n");
    let said = rig.exec("t", "printf '[%s][%s][%s]' \"$NEW\" \"${OLD-unset}\" \"$KEPT\"; env | grep -c ^NEW=");
    assert_eq!(said["stdout"], "[a 'b' \"c\"\n][unset][1]1\n");
    for round in 0..5 {
        set(&rig, "t", &json!({ "vars": { "NEW": round.to_string() } })).is(200);
    }
    assert_eq!(rig.exec("t", "echo $NEW")["stdout"], "4\n");
}

#[test]
fn all_of_a_change_is_taken_or_none_of_it() {
    let rig = Rig::new();
    rig.exec("t", "export A=old");
    for (bad, code) in
        [("1B", "invalid_env_name"), ("B C", "invalid_env_name"), ("", "invalid_env_name"), ("é", "invalid_env_name")]
    {
        set(&rig, "t", &json!({ "vars": { "A": "new", bad: "x" } })).fails(400, code);
        set(&rig, "t", &json!({ "vars": { "A": "new" }, "secrets": { bad: "x" } })).fails(400, code);
    }
    set(&rig, "t", &json!({ "vars": { "A": "new", "B": "x\0" } })).fails(400, "invalid_request");
    set(&rig, "t", &json!({ "vars": { "A": "new" }, "secrets": { "A": "new" } })).fails(400, "invalid_request");
    set(&rig, "t", &json!({ "vars": { "A": 1 } })).fails(400, "invalid_request");
    set(&rig, "t", &json!({ "variables": {} })).fails(400, "invalid_request");
    set(&rig, "t", &json!({ "vars": { "A": "new" }, "terminal": "nobody" })).fails(404, "not_found");
    set(&rig, "nobody", &json!({ "vars": { "A": "new" } })).fails(404, "not_found");
    assert_eq!(rig.exec("t", "echo $A")["stdout"], "old\n");
    assert_eq!(rig.get("/api/threads/nobody").status, 404);
}

#[test]
fn a_busy_shell_has_it_for_the_next_command() {
    let rig = Rig::new();
    let exec = json!({ "command": "read x; echo ${A-unset}", "stdin_open": true, "background": true, "id": "c" });
    rig.post("/api/threads/t/exec", &exec).is(202);
    wait_for("a running command", || (rig.get("/api/commands/c").is(200)["status"] == "running").then_some(()));
    set(&rig, "t", &json!({ "vars": { "A": "1" } })).is(200);
    rig.call("POST", "/api/commands/c/stdin?eof=true", &[], b"\n").is(204);
    assert_eq!(rig.exec("t", "echo $A")["stdout"], "1\n");
    assert_eq!(rig.get("/api/commands/c/output/stdout").body, b"unset\n");
}

#[test]
fn a_shell_that_is_dead_or_has_never_lived_has_it_when_it_begins() {
    let mut rig = Rig::new();
    rig.post("/api/threads", &json!({ "id": "t" })).is(201);
    set(&rig, "t", &json!({ "vars": { "A": "1" }, "secrets": { "S": SECRET } })).is(200);
    assert_eq!(rig.get("/api/threads/t/lease").is(200)["observed_state"], "none", "it was woken for it");
    assert_eq!(rig.exec("t", "echo $A ${#S}; exit 3")["stdout"], format!("1 {}\n", SECRET.len()));
    set(&rig, "t", &json!({ "vars": { "A": "2" } })).is(200);
    assert_eq!(rig.exec("t", "echo $A ${#S}")["stdout"], format!("2 {}\n", SECRET.len()));
    rig.kill();
    rig.start();
    set(&rig, "t", &json!({ "vars": { "A": "3" } })).is(200);
    assert_eq!(rig.exec("t", "echo $A ${#S}")["stdout"], format!("3 {}\n", SECRET.len()));
}

#[test]
fn a_secret_is_in_the_shell_and_shown_nowhere() {
    let mut rig = Rig::with_all("", &[], &[("STEAD_SERVER_LOG", "trace")]);
    rig.exec("t", "true");
    let shown = set(&rig, "t", &json!({ "secrets": { "S": SECRET } })).is(200);
    assert_eq!(shown["env_delta"]["S"], "***");
    assert_eq!(
        rig.exec("t", "echo ${#S} > /dev/null; [ \"$S\" = s3cr3t-that-nobody-sees ] && echo same")["stdout"],
        "same\n"
    );
    let name = shown["terminal_id"].as_str().unwrap();
    let pages = [
        "/api/threads/t/terminal".to_owned(),
        "/api/threads/t/terminals".to_owned(),
        "/api/terminals".to_owned(),
        format!("/api/terminals/{name}/states"),
        "/api/threads/t/lease".to_owned(),
    ];
    for path in pages {
        let text = String::from_utf8(rig.get(&path).body).unwrap();
        assert!(!text.contains(SECRET), "{path}: {text}");
        assert_eq!(
            text.contains("\"S\":\"***\""),
            path.ends_with("/terminal") || path.ends_with("/terminals"),
            "{path}: {text}"
        );
    }
    // Where a command itself writes it, its history doesn't.
    rig.post("/api/threads/t/exec", &json!({ "command": format!("export COPY={SECRET}; true"), "id": "c" })).is(200);
    for path in ["/api/threads/t/commands", "/api/commands/c"] {
        let text = String::from_utf8(rig.get(path).body).unwrap();
        assert!(!text.contains(SECRET) && text.contains("***"), "{path}: {text}");
    }
    rig.kill();
    assert!(!rig.log().contains(SECRET), "it is in the log");
    for file in ["stead.db", "stead.db-wal"] {
        let bytes = std::fs::read(rig.data().join(file)).unwrap_or_default();
        assert!(!bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()), "it is in {file}");
    }
    rig.start();
    assert_eq!(rig.exec("t", "echo ${#S}")["stdout"], format!("{}\n", SECRET.len()));
    set(&rig, "t", &json!({ "secrets": { "S": null } })).is(200);
    assert_eq!(rig.exec("t", "echo ${S-unset}")["stdout"], "unset\n");
}

#[test]
fn a_named_terminal_has_variables_of_its_own() {
    let rig = Rig::new();
    rig.exec("t", "true");
    rig.post("/api/threads/t/terminals", &json!({ "name": "two" })).is(201);
    set(&rig, "t", &json!({ "vars": { "A": "1" }, "terminal": "two" })).is(200);
    let exec = json!({ "command": "echo $A", "terminal": "two" });
    assert_eq!(rig.post("/api/threads/t/exec", &exec).is(200)["stdout"], "1\n");
    assert_eq!(rig.exec("t", "echo ${A-unset}")["stdout"], "unset\n");
}

#[test]
fn a_secret_in_the_name_of_a_directory_is_not_shown() {
    let mut rig = Rig::new();
    rig.exec("t", "true");
    set(&rig, "t", &json!({ "secrets": { "TOKEN": SECRET } })).is(200);
    rig.exec("t", "mkdir /workspace/$TOKEN && cd /workspace/$TOKEN");
    let terminal = rig.get("/api/threads/t/terminal").is(200);
    assert_eq!(terminal["cwd"], "/workspace/***");
    let id = terminal["terminal_id"].as_str().unwrap().to_owned();
    let paths = [
        "/api/threads/t/terminal".to_owned(),
        "/api/threads/t/terminals".to_owned(),
        "/api/terminals".to_owned(),
        format!("/api/terminals/{id}/states"),
        "/api/threads/t/commands".to_owned(),
    ];
    let nowhere = |rig: &Rig| {
        for path in &paths {
            let text = rig.get(path).is(200).to_string();
            assert!(!text.contains(SECRET), "{path}: {text}");
        }
    };
    nowhere(&rig);
    // The shell is there all the same, also the next one.
    rig.kill();
    rig.start();
    nowhere(&rig);
    assert_eq!(rig.exec("t", "exit 0")["cwd"], "/workspace/***");
    assert_eq!(rig.exec("t", "[ $PWD = /workspace/$TOKEN ] || [ ${PWD##*/} = $TOKEN ]")["exit_code"], 0);
}

#[test]
fn of_functions_only_the_one_with_a_secret_dies_with_its_shell() {
    let rig = Rig::new();
    rig.exec("t", "true");
    set(&rig, "t", &json!({ "secrets": { "TOKEN": SECRET } })).is(200);
    let told = rig.exec("t", "kept() { echo kept; }; eval \"auth() { echo $TOKEN; }\"");
    let warnings = told["warnings"].to_string();
    assert!(warnings.contains("secret_not_kept") && warnings.contains("auth"), "{warnings}");
    assert_eq!(rig.get("/api/threads/t/terminal").is(200)["functions"], json!(["kept"]));
    rig.exec("t", "exit 0");
    assert_eq!(rig.exec("t", "kept; type -t auth")["stdout"], "kept\n");
}
