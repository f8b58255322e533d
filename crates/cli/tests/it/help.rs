//! What `stead` says of itself, word for word. `UPDATE=1 cargo test -p stead` writes the files anew; read the difference.

use crate::rig::Rig;
use std::path::Path;

#[test]
fn the_help_of_stead_is_as_committed() {
    check("stead.txt", &["--help"]);
}

/// Every verb but the steward's, which has a help of its own; a page each.
const VERBS: [&str; 58] = [
    "agents",
    "attach",
    "cancel",
    "chat",
    "completions",
    "doctor",
    "env",
    "exec",
    "fork",
    "fsck",
    "history",
    "image",
    "image build",
    "leases",
    "logs",
    "ls",
    "man",
    "memory",
    "memory get",
    "memory ls",
    "memory put",
    "memory rm",
    "move",
    "orphans",
    "orphans adopt",
    "orphans remove",
    "pause",
    "project",
    "project clean",
    "project create",
    "project extend",
    "project import",
    "project ls",
    "project pin",
    "project restore",
    "project rm",
    "project show",
    "project snapshot",
    "project snapshot create",
    "project snapshot ls",
    "project snapshot restore",
    "project snapshot rm",
    "project unpin",
    "providers",
    "pull",
    "push",
    "resume",
    "rm",
    "serve",
    "sessions",
    "settings",
    "shell",
    "show",
    "token",
    "token create",
    "token ls",
    "token revoke",
    "version",
];

#[test]
fn the_help_of_every_verb_is_as_committed_and_has_examples() {
    for verb in VERBS {
        let words: Vec<&str> = verb.split(' ').chain(["--help"]).collect();
        let page = check(&format!("{}.txt", verb.replace(' ', "-")), &words);
        assert!(page.contains("\nExamples:\n"), "`{verb}` shows no example:\n{page}");
    }
}

#[test]
fn no_verb_is_without_its_page() {
    let rig = Rig::new();
    let help = rig.run(rig.stead(["--help"])).stdout;
    let verbs = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // Lines that are further in continue the text of the one before.
    let names = verbs.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    let missing: Vec<&str> =
        names.filter(|name| !VERBS.contains(name) && !["help", "steward"].contains(name)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn the_manual_page_is_as_committed() {
    let rig = Rig::new();
    let got = rig.run(rig.stead(["man"]));
    assert_eq!((got.code, got.stderr.as_str()), (Some(0), ""));
    compare(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/stead.1"), &got.stdout);
}

#[test]
fn the_examples_of_settings_are_as_committed() {
    let rig = Rig::new();
    for (words, file) in [(&["settings"][..], "stead.example.toml"), (&["settings", "--env"], ".env.example")] {
        let got = rig.run(rig.stead(words));
        assert_eq!((got.code, got.stderr.as_str()), (Some(0), ""));
        compare(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file), &got.stdout);
    }
}

#[test]
fn completions_are_scripts_that_their_shell_can_read() {
    let rig = Rig::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let got = rig.run(rig.stead(["completions", shell]));
        assert_eq!((got.code, got.stderr.as_str()), (Some(0), ""), "{shell}");
        assert!(got.stdout.contains("history"), "{shell}");
        if shell == "bash" {
            let script = rig.scratch().join("completions");
            std::fs::write(&script, &got.stdout).unwrap();
            assert!(std::process::Command::new("bash").arg("-n").arg(&script).status().unwrap().success());
        }
    }
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
fn check(file: &str, arguments: &[&str]) -> String {
    let rig = Rig::new();
    let mut command = rig.stead(arguments);
    // Help is wrapped to the width of the terminal, of which there is none.
    command.env_remove("STEAD_SHELL_DIR").env("COLUMNS", "100");
    let got = rig.run(command);
    assert_eq!((got.code, got.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    compare(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots").join(file), &got.stdout);
    got.stdout
}

#[track_caller]
pub(crate) fn compare(path: &Path, got: &str) {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, got).unwrap();
    }
    let want = std::fs::read_to_string(path).unwrap_or_default();
    assert!(got == want, "`{}` differs; this is what was printed:\n{got}", path.display());
}
