//! `stead doctor`, as a person and as a script calls it.

use crate::rig::Rig;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
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

/// What is said of containers, and the advice below it.
fn of_containers(rig: &Rig, socket: &Path, variables: &[(&str, &str)]) -> String {
    let config = format!("[provider.box]\nkind = 'docker'\nsocket = '{}'\n", socket.display());
    std::fs::write(rig.scratch().join("stead.toml"), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_stead"));
    command.arg("doctor").env_clear().env("PATH", "/usr/bin:/bin").current_dir(rig.scratch());
    command.env("HOME", rig.scratch());
    if let Some(steward) = std::env::var_os("STEAD_STATIC_STEWARD") {
        command.env("STEAD_STATIC_STEWARD", steward);
    }
    let said = text(&command.envs(variables.iter().copied()).output().unwrap().stdout);
    said.split("\n\n").find(|part| part.starts_with("box (docker)")).unwrap_or_else(|| panic!("{said}")).to_owned()
}

fn has_steward() -> bool {
    let has = std::env::var_os("STEAD_STATIC_STEWARD").is_some_and(|path| Path::new(&path).is_file());
    if !has {
        println!("SKIPPED: no STEAD_STATIC_STEWARD");
    }
    has
}

#[test]
fn an_engine_that_is_missing_silent_or_not_ours_is_told_with_what_to_do() {
    if !has_steward() {
        return;
    }
    let rig = Rig::new();
    let absent = rig.scratch().join("absent");
    let said = of_containers(&rig, &absent, &[]);
    assert!(said.starts_with(&format!("box (docker): does not work: no engine's socket is at `{}`", absent.display())));
    assert!(said.contains("\n  start it (`systemctl start docker`"), "{said}");

    let silent = rig.scratch().join("silent");
    drop(UnixListener::bind(&silent).unwrap());
    let said = of_containers(&rig, &silent, &[]);
    assert!(said.contains("does not work: the engine does not answer (Connection refused"), "{said}");
    assert!(said.contains("\n  start it (`systemctl start docker`"), "{said}");

    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can ask as somebody else");
        return;
    }
    // In a directory that anybody may enter: a socket of root's, and one below a directory of root's.
    let open = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(open.path(), Permissions::from_mode(0o777)).unwrap();
    let program = open.path().join("stead");
    std::fs::copy(env!("CARGO_BIN_EXE_stead"), &program).unwrap();
    std::fs::copy(std::env::var_os("STEAD_STATIC_STEWARD").unwrap(), open.path().join("steward")).unwrap();
    std::fs::create_dir(open.path().join("closed")).unwrap();
    std::fs::set_permissions(open.path().join("closed"), Permissions::from_mode(0o700)).unwrap();
    for name in ["sock", "closed/sock"] {
        let socket = open.path().join(name);
        let _listens = UnixListener::bind(&socket).unwrap();
        std::fs::set_permissions(&socket, Permissions::from_mode(0o600)).unwrap();
        let config = format!("[provider.box]\nkind = 'docker'\nsocket = '{}'\n", socket.display());
        std::fs::write(open.path().join("stead.toml"), config).unwrap();
        let mut command = Command::new(&program);
        command.args(["doctor", "--data"]).arg(open.path().join("data")).current_dir(open.path()).env_clear();
        let output = command.env("HOME", open.path()).uid(4321).gid(4321).output().unwrap();
        let said = text(&output.stdout);
        let why = format!("box (docker): does not work: the engine at `{}` may not be used by us", socket.display());
        assert!(said.contains(&why) && said.contains("group"), "{name}: {said}");
    }
}

#[test]
fn containers_without_a_steward_or_an_image_are_told_with_what_to_do() {
    let Some(engine) = std::env::var_os("STEAD_TEST_DOCKER").filter(|_| has_steward()) else {
        println!("SKIPPED: no engine in STEAD_TEST_DOCKER");
        return;
    };
    let rig = Rig::new();
    let engine = Path::new(&engine);
    let said = of_containers(&rig, engine, &[("STEAD_STATIC_STEWARD", "/nothing")]);
    assert!(said.contains("does not work: no static steward is at") && said.contains("cargo xtask steward"), "{said}");
    let said = of_containers(&rig, engine, &[("STEAD_PROVIDER_BOX_IMAGE", "stead/nowhere")]);
    assert!(said.starts_with("box (docker): works, isolated"), "{said}");
    assert!(said.contains("image `stead/nowhere` is not there: `docker pull stead/nowhere` fetches it"), "{said}");
    assert!(said.contains("stead image build --name stead/nowhere"), "{said}");
}
