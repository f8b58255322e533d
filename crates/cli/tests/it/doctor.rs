//! `stead doctor`, as a person and as a script calls it.

use crate::rig::Rig;
use std::process::{Command, Output};

fn doctor(rig: &Rig, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stead"));
    command.arg("doctor").args(arguments).env_clear().env("PATH", "/usr/bin:/bin").current_dir(rig.scratch());
    command.env("HOME", rig.scratch()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn every_provider_is_told_with_whether_it_works_and_the_default_is_named() {
    let rig = Rig::new();
    let output = doctor(&rig, &[]);
    let said = text(&output.stdout);
    assert!(said.starts_with("configuration: none"), "{said}");
    for name in ["\nlocal: works, not isolated\n", "\nnamespace: ", "\nthreads that name no provider get `"] {
        assert!(said.contains(name), "{name:?} is missing:\n{said}");
    }
    assert!(output.status.success());
    let isolated = said.contains("namespace: works, isolated");
    // Without walls only where there can be none, and then not silently.
    assert_eq!(said.contains("get `namespace`"), isolated, "{said}");
    assert_eq!(said.contains("warning: this machine can't isolate"), !isolated, "{said}");
}

#[test]
fn a_script_gets_one_document() {
    let rig = Rig::new();
    let output = doctor(&rig, &["--json"]);
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let local = said["providers"].as_array().unwrap().iter().find(|one| one["name"] == "local").unwrap();
    assert_eq!(
        (&local["kind"], &local["available"], &local["isolated"]),
        (&"local".into(), &true.into(), &false.into())
    );
    assert!(local["reason"].is_null() && said["default_provider"].is_string());
}

#[test]
fn a_configuration_is_found_checked_and_its_mistakes_named() {
    let rig = Rig::new();
    std::fs::write(rig.scratch().join("stead.toml"), "default_provider = 'box'\n[provider.box]\nkind = 'local'\n")
        .unwrap();
    let output = doctor(&rig, &[]);
    let said = text(&output.stdout);
    assert!(said.contains("configuration: stead.toml") && said.contains("\nbox (local): works"), "{said}");
    assert!(said.contains("get `box`"), "{said}");
    std::fs::write(rig.scratch().join("stead.toml"), "[provider.box]\nkind = 'local'\nnetwork = 'none'\n").unwrap();
    let output = doctor(&rig, &[]);
    assert_eq!(output.status.code(), Some(125));
    let complaint = text(&output.stderr);
    assert!(complaint.contains("stead.toml") && complaint.contains("provider.box.network"), "{complaint}");
    let output = doctor(&rig, &["--config", "nowhere.toml"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("nowhere.toml"));
}

#[test]
fn a_provider_that_can_not_work_says_why_and_the_exit_code_tells() {
    let rig = Rig::new();
    let file = rig.scratch().join("file");
    std::fs::write(&file, "").unwrap();
    let output = doctor(&rig, &["--data", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("local: does not work: can't use"), "{}", text(&output.stdout));
}

#[test]
fn a_line_of_a_file_of_variables_that_is_none_is_named_with_its_file_and_number() {
    let rig = Rig::new();
    for wrong in ["\"/memories/\" = \"filesystem\"", "STEAD_LOG", "2X=1", "A B=1", "=1"] {
        std::fs::write(rig.scratch().join("vars"), format!("# said\nexport OTHER=1\n{wrong}\n")).unwrap();
        let output = doctor(&rig, &["--env-file", "vars"]);
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{wrong}: {complaint}");
        assert!(complaint.contains("`vars`, line 3"), "{wrong}: {complaint}");
    }
    let tables = Command::new(env!("CARGO_BIN_EXE_stead")).args(["settings", "--env"]).output().unwrap();
    let tables = text(&tables.stdout);
    let tables: Vec<_> = tables.lines().filter_map(|line| line.strip_prefix("# STEAD_ROUTES=")).collect();
    assert_eq!(tables.len(), 3, "{tables:?}");
    for table in tables {
        std::fs::write(rig.scratch().join("vars"), format!("STEAD_ROUTES={table}\n")).unwrap();
        let output = doctor(&rig, &["--env-file", "vars"]);
        assert!(output.status.success(), "{table}: {}", text(&output.stderr));
    }
}
