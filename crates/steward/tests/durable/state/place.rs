//! The directory: as the shell names it, and where it is no more.

use super::{codes_but_restarts, is_still, kill_shell, rehydrated};
use crate::rig::{Rig, TestShell, seen};
use std::os::unix::fs::symlink;
use std::path::Path;

#[track_caller]
fn is_in(shell: &mut TestShell, dir: &Path) {
    assert_eq!(shell.out("pwd"), format!("{}\n", dir.display()));
    assert_eq!(shell.info().cwd.0, dir.as_os_str().as_encoded_bytes());
}

#[test]
fn a_change_of_directory_survives_the_shell() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.out("cd /usr");
    kill_shell(&mut shell);
    is_in(&mut shell, Path::new("/usr"));
    assert_eq!(
        shell.out("cd - && cd /usr/bin"),
        format!("{}\n", rig.scratch().display()),
        "the directory before it survives too"
    );
    kill_shell(&mut shell);
    is_in(&mut shell, Path::new("/usr/bin"));
}

#[test]
fn a_directory_entered_through_a_link_keeps_the_name_it_was_entered_by() {
    let rig = Rig::new();
    let scratch = rig.scratch();
    std::fs::create_dir_all(scratch.join("real/below")).unwrap();
    symlink(scratch.join("real"), scratch.join("link")).unwrap();
    let mut shell = rig.shell();
    shell.out("cd link");
    is_in(&mut shell, &scratch.join("link"));
    kill_shell(&mut shell);
    is_in(&mut shell, &scratch.join("link"));
    shell.out("cd below");
    kill_shell(&mut shell);
    is_in(&mut shell, &scratch.join("link/below"));
    assert_eq!(shell.out("cd ..; pwd; pwd -P"), format!("{0}/link\n{0}/real\n", scratch.display()));
    // And with a state that was dumped whole.
    shell.out("x=1");
    let before = shell.state();
    kill_shell(&mut shell);
    is_still(&mut shell, &before);
    is_in(&mut shell, &scratch.join("link"));
}

#[test]
fn strange_names_of_directories_survive() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    for name in ["-", "-P", "~", "new\nline", "trailing ", "quo'te\"$HOME`", "x (deleted)", "*"] {
        let dir = rig.scratch().join(name);
        std::fs::create_dir(&dir).unwrap();
        let quoted = stead_model::word::quote(dir.as_os_str().as_encoded_bytes());
        shell.run([b"cd -- ".as_slice(), &quoted].concat());
        is_in(&mut shell, &dir);
        kill_shell(&mut shell);
        is_in(&mut shell, &dir);
    }
}

#[test]
fn a_directory_that_is_gone_becomes_the_nearest_parent_and_the_next_result_says_so() {
    let rig = Rig::new();
    let scratch = rig.scratch();
    std::fs::create_dir_all(scratch.join("a/b/c")).unwrap();
    let mut shell = rig.shell();
    shell.run("cd a/b/c; x=kept");
    let stored = shell.stored();
    std::fs::remove_dir_all(scratch.join("a/b")).unwrap();
    kill_shell(&mut shell);
    let mut other = rehydrated(&rig, "other", &stored);
    for shell in [&mut shell, &mut other] {
        let outcome = shell.run("pwd; echo $x");
        assert_eq!(seen(&outcome), (Some(0), format!("{}/a\nkept\n", scratch.display()), String::new()));
        let warnings = outcome.info.ending.unwrap().warnings;
        assert_eq!(codes_but_restarts(&warnings), ["cwd_missing"]);
        let told = warnings.iter().find(|warning| warning.code == "cwd_missing").unwrap();
        assert!(told.message.contains(&format!("{}/a/b/c", scratch.display())), "{}", told.message);
        // It is said once.
        assert_eq!(shell.run("true").info.ending.unwrap().warnings, Vec::new());
        is_in(shell, &scratch.join("a"));
    }
}

#[test]
fn where_no_parent_is_left_the_root_is() {
    let rig = Rig::new();
    let top = tempfile::tempdir_in("/").unwrap();
    let mut shell = rig.shell();
    shell.run(format!("cd {}", top.path().display()));
    drop(top);
    kill_shell(&mut shell);
    let outcome = shell.run("pwd");
    assert_eq!(seen(&outcome), (Some(0), "/\n".to_owned(), String::new()));
    assert_eq!(codes_but_restarts(&outcome.info.ending.unwrap().warnings), ["cwd_missing"]);
}
