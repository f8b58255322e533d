//! A directory and variables for one command only: in force while it runs, without a trace after it.

use crate::rig::{Rig, TestShell, fate, seen};
use std::path::Path;
use stead_model::proto::{Ending, Exec, FaultCode, Request, Status};
use stead_model::state::Bytes;
use stead_steward::client::Outcome;

fn with_env<V: AsRef<[u8]>>(shell: &TestShell, text: &str, env: &[(&str, V)]) -> Exec {
    let env = env.iter().map(|(name, value)| (Bytes::from(name), Bytes::from(value))).collect();
    Exec { env, ..shell.exec(text) }
}

fn with_cwd(shell: &TestShell, text: &str, cwd: impl AsRef<Path>) -> Exec {
    Exec { cwd: Some(Bytes::from(cwd.as_ref().as_os_str().as_encoded_bytes())), ..shell.exec(text) }
}

fn run_in(shell: &mut TestShell, text: &str, cwd: impl AsRef<Path>) -> Outcome {
    let exec = with_cwd(shell, text, cwd);
    shell.run_exec(exec)
}

fn run_with(shell: &mut TestShell, text: &str, env: &[(&str, &str)]) -> Outcome {
    let exec = with_env(shell, text, env);
    shell.run_exec(exec)
}

#[test]
fn a_directory_is_for_one_command() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("cd /var; cd /usr");
    let outcome = run_in(&mut shell, "pwd; readlink /proc/self/cwd", "/etc");
    assert_eq!(seen(&outcome), (Some(0), "/etc\n/etc\n".into(), String::new()));
    assert_eq!(outcome.info.cwd, Bytes::from("/usr"));
    assert_eq!(shell.out("pwd; echo $OLDPWD; cd - >/dev/null; pwd"), "/usr\n/var\n/var\n");
}

#[test]
fn a_relative_directory_begins_where_the_shell_is() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    std::fs::create_dir(rig.scratch().join("sub dir")).unwrap();
    shell.run("CDPATH=/; cd .");
    assert_eq!(
        run_in(&mut shell, "pwd", "sub dir").stdout,
        format!("{}/sub dir\n", rig.scratch().display()).into_bytes()
    );
    shell.run("cd /usr");
    assert_eq!(run_in(&mut shell, "pwd", "../etc").stdout, b"/etc\n");
    assert_eq!(shell.out("pwd"), "/usr\n");
}

#[test]
fn a_directory_with_an_awkward_name_is_entered() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    for name in ["-", "-P", "with 'quotes' and \"more\"", "$HOME", "new\nline", "back\\slash"] {
        std::fs::create_dir(rig.scratch().join(name)).unwrap();
        let outcome = run_in(&mut shell, "readlink /proc/self/cwd", rig.scratch().join(name));
        assert_eq!(seen(&outcome), (Some(0), format!("{}\n", rig.scratch().join(name).display()), String::new()));
    }
    assert_eq!(shell.out("pwd"), format!("{}\n", rig.scratch().display()));
}

#[test]
fn a_command_that_changes_directory_in_its_own_does_not_move_the_shell() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("cd /usr");
    let outcome = run_in(&mut shell, "cd /var; pwd; kept=1", "/etc");
    assert_eq!(seen(&outcome), (Some(0), "/var\n".into(), String::new()));
    assert_eq!(shell.out("pwd; echo $kept"), "/usr\n1\n");
}

#[test]
fn a_command_that_exits_in_its_own_directory_does_not_move_the_shell() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("cd /usr");
    let exec = Exec { env: vec![("V".into(), "overlay".into())], ..with_cwd(&shell, "kept=1; exit 4", "/etc") };
    let outcome = shell.run_exec(exec);
    assert_eq!(fate(&outcome), Ending { shell_exited: true, ..Ending::new(Status::Exited, Some(4)) });
    assert_eq!(shell.out("pwd; echo \"$kept V:${V-unset}\""), "/usr\n1 V:unset\n");
}

#[test]
fn a_directory_that_is_not_there_fails_the_command_before_it_runs() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("v=before");
    let outcome = run_in(&mut shell, "v=after; touch ran", rig.scratch().join("missing"));
    let ending = fate(&outcome);
    assert_eq!(
        (ending.status, ending.exit_code, ending.error.map(|fault| fault.code)),
        (Status::Failed, None, Some(FaultCode::NoDirectory))
    );
    assert_eq!((outcome.stdout, outcome.stderr), (Vec::new(), Vec::new()));
    assert_eq!(shell.out("echo $v; ls"), "before\n");
}

#[test]
fn a_file_or_a_closed_door_is_no_directory() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    std::fs::write(rig.scratch().join("file"), "").unwrap();
    for cwd in ["file", "file/below", "/proc/1/nonsense"] {
        let ending = fate(&run_in(&mut shell, "echo ran", cwd));
        assert_eq!(
            (ending.status, ending.error.map(|fault| fault.code)),
            (Status::Failed, Some(FaultCode::NoDirectory)),
            "{cwd}"
        );
    }
    assert_eq!(shell.out("echo alive"), "alive\n");
}

#[test]
fn an_empty_directory_name_is_refused() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let exec = with_cwd(&shell, "echo ran", "");
    assert_eq!(shell.client.exec(exec).unwrap_err().fault(), Some(FaultCode::Invalid));
}

#[test]
fn variables_are_for_one_command_and_its_children() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("export HAD=before; plain=mine");
    let env = [("HAD", "during"), ("NEW", "new"), ("plain", "lent")];
    let outcome = run_with(&mut shell, "echo $HAD $NEW $plain; printenv HAD NEW plain", &env);
    assert_eq!(seen(&outcome), (Some(0), "during new lent\nduring\nnew\nlent\n".into(), String::new()));
    assert_eq!(
        shell.out("echo $HAD ${NEW-unset} $plain; printenv HAD; printenv plain NEW || true"),
        "before unset mine\nbefore\n"
    );
}

#[test]
fn a_command_that_sets_a_lent_variable_sets_it_for_itself() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("V=before");
    assert_eq!(run_with(&mut shell, "V=changed; other=1; printenv V", &[("V", "during")]).stdout, b"changed\n");
    assert_eq!(shell.out("echo $V $other"), "before 1\n");
    assert_eq!(run_with(&mut shell, "unset V; echo ${V-unset}", &[("V", "during")]).stderr, b"");
    assert_eq!(shell.out("echo $V"), "before\n");
}

#[test]
fn variables_do_not_stick_in_posix_mode_either() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("set -o posix; V=before");
    assert_eq!(run_with(&mut shell, "echo $V $NEW", &[("V", "during"), ("NEW", "new")]).stdout, b"during new\n");
    assert_eq!(shell.out("echo $V ${NEW-unset}"), "before unset\n");
    assert_eq!(run_in(&mut shell, "pwd", "/etc").stdout, b"/etc\n");
    assert_eq!(shell.out("pwd"), format!("{}\n", rig.scratch().display()));
}

#[test]
fn everything_else_that_such_a_command_changes_lasts() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let exec = Exec {
        env: vec![("V".into(), "x".into())],
        ..with_cwd(&shell, "f() { echo f; }; export E=1; alias a='echo a'; umask 027; set -f; arr=(1 2)", "/etc")
    };
    assert_eq!(fate(&shell.run_exec(exec)), Ending::new(Status::Exited, Some(0)));
    assert_eq!(
        shell.out("f; printenv E; a; umask; echo $-${#arr[@]} | grep -o 'f.*2'").lines().take(4).collect::<Vec<_>>(),
        ["f", "1", "a", "0027"]
    );
}

#[test]
fn the_status_of_such_a_command_is_its_own() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let both =
        |shell: &TestShell, text: &str| Exec { env: vec![("V".into(), "x".into())], ..with_cwd(shell, text, "/etc") };
    for (text, code) in [("(exit 3)", 3), ("return 7", 7), ("fi", 2), ("echo \"", 2), ("true", 0)] {
        let exec = both(&shell, text);
        assert_eq!(fate(&shell.run_exec(exec)), Ending::new(Status::Exited, Some(code)), "{text}");
        assert_eq!(shell.out("echo $?"), format!("{code}\n"), "{text}");
    }
}

#[test]
fn any_value_arrives_as_it_is() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let long = vec![b'l'; 100_000];
    let values: [&[u8]; 8] = [
        b"",
        b"it's \"quoted\"",
        b"two\nlines\n",
        b"$HOME `id` $(id) \\n \\",
        b"\xff\xfe\x01\x80",
        b"=a=b",
        b" * ? [a] ~ ! ",
        &long,
    ];
    for value in values {
        let exec = with_env(&shell, "printf %s \"$V\"; printenv V >printed", &[("V", value)]);
        let outcome = shell.run_exec(exec);
        assert_eq!(
            (outcome.stderr.as_slice(), outcome.stdout == value),
            (b"".as_slice(), true),
            "{}",
            value.escape_ascii()
        );
        assert_eq!(std::fs::read(rig.scratch().join("printed")).unwrap(), [value, b"\n"].concat());
    }
    assert_eq!(shell.out("echo ${V-unset}"), "unset\n");
}

#[test]
fn what_is_no_name_is_refused() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    for name in ["", "1a", "a b", "a=b", "a;touch ran", "BASH_FUNC_f%%", "a[0]", "é", "a-b", "$a"] {
        let exec = with_env(&shell, "touch ran", &[("GOOD", "x"), (name, "x")]);
        let command = exec.command.clone();
        assert_eq!(shell.client.exec(exec).unwrap_err().fault(), Some(FaultCode::Invalid), "{name:?}");
        assert_eq!(
            shell.client.request(&Request::Command(command)).unwrap_err().fault(),
            Some(FaultCode::NotFound),
            "{name:?}"
        );
    }
    let exec = with_env(&shell, "touch ran", &[("V", "a\0b")]);
    assert_eq!(shell.client.exec(exec).unwrap_err().fault(), Some(FaultCode::Invalid));
    assert_eq!(shell.out("ls"), "");
}

#[test]
fn a_readonly_name_keeps_its_value_and_the_shell_its_life() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("readonly R=mine");
    let pid = shell.pid();
    let outcome = run_with(&mut shell, "echo \"R=$R V=$V\"", &[("R", "lent"), ("V", "x")]);
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(!text.contains("lent") || text == "R=lent V=x\n", "{outcome:?}");
    assert_eq!(shell.out("echo $R ${V-unset} $$"), format!("mine unset {pid}\n"));
    for name in ["UID", "PPID", "BASHOPTS", "SHELLOPTS"] {
        run_with(&mut shell, "true", &[(name, "1")]);
        assert_eq!(shell.out("echo $$"), format!("{pid}\n"), "{name}");
    }
}

#[test]
fn names_that_the_shell_itself_listens_to_do_not_stick() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let before = shell.out("echo \"$PATH|$HOME|${IFS@Q}|$PWD|${PROMPT_COMMAND-unset}\"");
    let env = [
        ("PATH", "/nowhere"),
        ("HOME", "/nowhere"),
        ("IFS", "/"),
        ("PROMPT_COMMAND", "echo prompted"),
        ("PS1", "p"),
        ("PS4", "$(touch ran)"),
        ("BASH_ENV", "/nowhere"),
        ("LC_ALL", "C"),
    ];
    assert_eq!(run_with(&mut shell, "echo $PATH $HOME", &env).stdout, b" nowhere  nowhere\n");
    assert_eq!(shell.out("echo \"$PATH|$HOME|${IFS@Q}|$PWD|${PROMPT_COMMAND-unset}\""), before);
    assert_eq!(shell.out("ls"), "");
}
