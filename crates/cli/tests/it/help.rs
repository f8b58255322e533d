//! What `stead` says of itself, word for word. `UPDATE=1 cargo test -p stead` writes the files anew; read the difference.

use crate::rig::Rig;
use std::path::Path;

#[test]
fn the_help_of_stead_is_as_committed() {
    check("stead.txt", &["--help"]);
}

#[test]
fn the_help_of_the_shell_is_as_committed() {
    check("shell.txt", &["shell", "--help"]);
}

#[test]
fn the_help_of_the_doctor_is_as_committed() {
    check("doctor.txt", &["doctor", "--help"]);
}

#[test]
fn the_help_of_the_steward_is_as_committed() {
    check("steward.txt", &["steward", "help"]);
}

#[test]
fn every_way_to_ask_the_steward_for_help_gives_the_same() {
    for word in ["--help", "-h"] {
        check("steward.txt", &["steward", word]);
    }
    check("steward.txt", &["steward"]);
}

#[track_caller]
fn check(file: &str, arguments: &[&str]) {
    let rig = Rig::new();
    let mut command = rig.stead(arguments);
    // Help is wrapped to the width of the terminal, of which there is none.
    command.env_remove("STEAD_SHELL_DIR").env("COLUMNS", "100");
    let got = rig.run(command);
    assert_eq!((got.code, got.stderr.as_str()), (Some(0), ""));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots").join(file);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &got.stdout).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(got.stdout == want, "`{file}` differs; this is what was printed:\n{}", got.stdout);
}
