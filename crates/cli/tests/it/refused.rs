//! What `stead` can't do, and what it says then.

use crate::rig::{Rig, said};
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_name_that_no_shell_can_have_is_refused() {
    let rig = Rig::new();
    let message = "error: invalid value 'a b' for '--name <NAME>': `a b` is not a valid shell id: 1-128 of \
                   `A-Z a-z 0-9 . _ : -`, starting with a letter or digit\n\nFor more information, try '--help'.\n";
    assert_eq!(rig.shell(&["--name", "a b", "-c", "true"]), said(125, "", message));
}

#[test]
fn a_time_that_is_none_is_refused_with_what_to_write() {
    let rig = Rig::new();
    let message = |text: &str, why: &str| {
        format!("error: invalid value '{text}' for '--timeout <TIME>': {why}\n\nFor more information, try '--help'.\n")
    };
    let unit = message("5x", "`x` is not a unit of time; use `ms`, `s`, `m` or `h`");
    assert_eq!(rig.shell(&["--timeout", "5x", "-c", "true"]), said(125, "", &unit));
    let number = message("soon", "`soon` is not a time; write `500ms`, `30s`, `5m` or `1h`");
    assert_eq!(rig.shell(&["--timeout", "soon", "-c", "true"]), said(125, "", &number));
}

#[test]
fn an_unknown_option_is_refused_with_the_usage() {
    let rig = Rig::new();
    let message = "error: unexpected argument '--bogus' found\n\nUsage: stead shell [OPTIONS]\n\n\
                   For more information, try '--help'.\n";
    assert_eq!(rig.shell(&["--bogus"]), said(125, "", message));
}

#[test]
fn a_directory_that_others_can_look_into_is_refused() {
    let rig = Rig::new();
    std::fs::create_dir(rig.path()).unwrap();
    std::fs::set_permissions(rig.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let message = format!(
        "stead: `{}` is open to other users; make it private (chmod 700) or choose another directory\n",
        rig.path().canonicalize().unwrap().display()
    );
    assert_eq!(rig.shell(&["-c", "true"]), said(125, "", &message));
    assert!(!rig.path().join("sock").exists(), "nothing was made in it");
}

#[test]
fn a_directory_that_cant_be_made_is_said_with_its_name() {
    let rig = Rig::new();
    let file = rig.scratch().join("file");
    std::fs::write(&file, "").unwrap();
    let dir = file.join("dir");
    let got = rig.shell(&["--dir", dir.to_str().unwrap(), "-c", "true"]);
    let message = format!("stead: can't use `{}`: Not a directory (os error 20)\n", dir.display());
    assert_eq!(got, said(125, "", &message));
}

#[test]
fn without_a_home_there_is_no_default_directory() {
    let rig = Rig::new();
    let mut command = rig.stead(["shell", "-c", "true"]);
    command.env_remove("HOME").env_remove("STEAD_SHELL_DIR");
    let message = "stead: no place for the steward: neither HOME nor XDG_DATA_HOME is set; give one with `--dir`\n";
    assert_eq!(rig.run(command), said(125, "", message));
}

#[test]
fn a_shell_program_that_is_not_there_is_said_with_where_it_was_looked_for() {
    let rig = Rig::new();
    let mut command = rig.stead(["shell", "--shell", "dash", "-c", "true"]);
    command.env("PATH", rig.scratch());
    let message = format!("stead: no dash in PATH ({})\n", rig.scratch().display());
    assert_eq!(rig.run(command), said(125, "", &message));
}

#[test]
fn a_command_with_too_much_text_is_refused_and_the_shell_goes_on() {
    let rig = Rig::new();
    let script = rig.scratch().join("script");
    std::fs::write(&script, vec![b'#'; (4 << 20) + 1]).unwrap();
    let mut command = rig.stead(["shell"]);
    command.stdin(std::fs::File::open(&script).unwrap());
    let message = "stead: the command has 4194305 bytes; at most 4194304 are taken\n";
    assert_eq!(rig.run(command), said(125, "", message));
    assert_eq!(rig.shell(&["-c", "echo on"]), said(0, "on\n", ""));
}
