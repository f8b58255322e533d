//! What of ours a command could see, and what we leave behind. The allow lists here are the promise.

use crate::rig::{Gate, Rig, TestShell, is_alive, seen, wait_for};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use stead_model::proto::{Reply, Request};

/// Variables that differ between any two shells, or between commands in a file and commands on standard input.
const VOLATILE: [&str; 13] = [
    "BASHPID",
    "BASH_ARGC",
    "BASH_ARGV",
    "BASH_LINENO",
    "BASH_SOURCE",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "LINENO",
    "PPID",
    "RANDOM",
    "SECONDS",
    "SRANDOM",
    "_",
];

/// What of ours is in a shell and can't be helped: no prompts, no history, the size of the terminal, and a list that
/// bash fills in when it is first looked at.
const OURS: [&str; 10] =
    ["COLUMNS", "DIRSTACK", "HISTCMD", "HISTFILE", "HISTFILESIZE", "HISTSIZE", "LINES", "PS1", "PS2", "SHELLOPTS"];

fn variables(listing: &str) -> BTreeMap<String, String> {
    let volatile = VOLATILE.iter().copied().collect::<BTreeSet<_>>();
    let pairs = listing.lines().filter_map(|line| line.split_once('='));
    pairs
        .filter(|(name, _)| !volatile.contains(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// What an interactive bash that nobody drives says in the same environment.
fn plain_bash(rig: &Rig, text: &str) -> String {
    let script = rig.scratch().join("script");
    std::fs::write(&script, text).unwrap();
    let mut bash = Command::new("setsid");
    bash.args(["bash", "--norc", "--noprofile", "--noediting", "-i"]).env_clear().current_dir(rig.scratch());
    bash.envs([
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("HOME", "/root"),
        ("LANG", "C.UTF-8"),
        ("TERM", "xterm"),
    ]);
    let output = bash.stdin(std::fs::File::open(&script).unwrap()).stderr(Stdio::null()).output().unwrap();
    std::fs::remove_file(script).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_variables_are_those_of_a_plain_bash() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    // POSIX mode keeps functions out of `set`; in a subshell, so that the shell stays as it is.
    let text = "(set -o posix; set)";
    let theirs = variables(&plain_bash(&rig, text));
    let ours = variables(&shell.out(text));
    let names: BTreeSet<&String> =
        theirs.keys().chain(ours.keys()).filter(|name| !OURS.contains(&name.as_str())).collect();
    let unexpected: Vec<_> = names
        .into_iter()
        .map(|name| (name, theirs.get(name), ours.get(name)))
        .filter(|(_, theirs, ours)| theirs != ours)
        .collect();
    assert_eq!(unexpected, Vec::new());
    assert_eq!((ours["PS1"].as_str(), ours["PS2"].as_str()), ("", ""));
}

#[test]
fn functions_aliases_jobs_and_history_are_empty() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    for text in
        ["declare -F", "alias", "jobs -l", "history", "complete -p | head -0", "dirs -v | sed 1d", "echo -n \"$*\""]
    {
        assert_eq!(shell.out(text), "", "{text}");
    }
    // And after commands that made us capture its state.
    shell.run("v=1");
    shell.run("exit 1");
    for text in ["declare -F", "alias", "jobs -l", "history"] {
        assert_eq!(shell.out(text), "", "{text}");
    }
}

#[test]
fn the_only_trap_is_the_one_on_exit() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let expected = format!("trap -- '\\builtin . '\\''{}/x'\\''' EXIT\n", run_dir(&rig).display());
    assert_eq!(shell.out("trap -p"), expected);
}

#[test]
fn the_options_are_those_of_an_interactive_bash_without_history() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let theirs = plain_bash(&rig, "set +o history +H; set -m; shopt -p; set +o");
    assert_eq!(shell.out("shopt -p; set +o"), theirs);
}

#[test]
fn the_environment_is_what_was_asked_for_and_what_bash_adds() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let listing = shell.out("env");
    let expected = [
        "HOME=/root".to_owned(),
        "LANG=C.UTF-8".to_owned(),
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        format!("PWD={}", rig.scratch().display()),
        "SHLVL=1".to_owned(),
        "TERM=xterm".to_owned(),
        "_=/usr/bin/env".to_owned(),
    ];
    assert_eq!(sorted(&listing), expected);
    shell.run("v=1; exit 1");
    assert_eq!(sorted(&shell.out("env")), expected);
}

fn sorted(listing: &str) -> Vec<String> {
    let mut lines: Vec<_> = listing.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn a_child_has_three_descriptors() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("v=1");
    // `ls` itself opens the directory.
    assert_eq!(shell.out("ls /proc/self/fd"), "0\n1\n2\n3\n");
    let run = run_dir(&rig);
    let targets = shell.out("for fd in 0 1 2; do readlink /proc/self/fd/$fd; done | cat");
    let [stdin, stdout, stderr] = targets.lines().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(stdin, "/dev/null");
    // Of the `readlink`s, standard output is the pipe to `cat`.
    assert!(stdout.starts_with("pipe:"), "{stdout}");
    assert_eq!(Path::new(stderr).parent(), Some(run.as_path()));
    let stdout = shell.out("readlink /proc/self/fd/1");
    assert_eq!(Path::new(stdout.trim_end()).parent(), Some(run.as_path()));
}

#[test]
fn a_child_in_the_background_or_in_a_pipe_has_three_descriptors_too() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    // On standard error is what an interactive shell says of its jobs.
    assert_eq!(shell.run("ls /proc/self/fd & wait").stdout, b"0\n1\n2\n3\n");
    assert_eq!(shell.out("ls /proc/self/fd | cat"), "0\n1\n2\n3\n");
    assert_eq!(shell.out("echo $(ls /proc/self/fd)"), "0 1 2 3\n");
}

#[test]
fn the_terminal_is_not_among_the_streams() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    assert_eq!(seen(&shell.run("[ -t 0 ] || [ -t 1 ] || [ -t 2 ]")), (Some(1), String::new(), String::new()));
}

/// The run directory of a rig's only shell.
fn run_dir(rig: &Rig) -> PathBuf {
    only_entry(&rig.path().canonicalize().unwrap().join("run"))
}

fn only_entry(dir: &Path) -> PathBuf {
    let entries: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries.into_iter().next().unwrap()
}

/// Everything under a directory with its permissions, if they are not what they should be.
fn open_to_others(dir: &Path, wrong: &mut Vec<(PathBuf, u32)>, count: &mut usize) {
    let mode = dir.metadata().unwrap().permissions().mode() & 0o7777;
    if mode != 0o700 {
        wrong.push((dir.to_owned(), mode));
    }
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let Ok(meta) = path.symlink_metadata() else { continue };
        *count += 1;
        if meta.is_dir() {
            open_to_others(&path, wrong, count);
        } else if !meta.file_type().is_socket() && meta.permissions().mode() & 0o7777 != 0o600 {
            wrong.push((path, meta.permissions().mode() & 0o7777));
        }
    }
}

#[test]
fn everything_of_ours_is_private_whatever_the_mask_of_the_shell() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut gate = Gate::new(&rig, "gate");
    shell.run("umask 0; v=1");
    shell.run("v=2; exit 4");
    let mut exec = shell.exec(format!("v=3; echo x; echo y >&2; {}", gate.wait()));
    exec.stdin = stead_model::proto::Stdin::Open;
    let running = shell.submit(exec).command;
    wait_for("output", || {
        Some(shell.command(&running)).filter(|info| (info.stdout_bytes, info.stderr_bytes) == (2, 2))
    });
    let (mut wrong, mut count) = (Vec::new(), 0);
    open_to_others(&rig.path(), &mut wrong, &mut count);
    assert!(count > 10, "{count} files are too few to be ours");
    assert_eq!(wrong, Vec::new());
    gate.release();
    shell.end_of(&running);
}

#[test]
fn a_finished_command_leaves_no_file_in_the_run_directory() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let names = |rig: &Rig| -> BTreeSet<_> {
        std::fs::read_dir(run_dir(rig)).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    let mut exec = shell.exec("v=0; cat");
    exec.stdin = stead_model::proto::Stdin::Bytes((&b"input"[..]).into());
    shell.run_exec(exec);
    let after_one = wait_for("a spare pair", || Some(names(&rig)).filter(|names| names.len() > 3)).len();
    for n in 0..50 {
        let mut exec = shell.exec(format!("v={n}; cat"));
        exec.stdin = stead_model::proto::Stdin::Bytes((&b"input"[..]).into());
        exec.cwd = Some("/usr".into());
        shell.run_exec(exec);
    }
    // Two for the overlay's scripts, and a pair that may be in the making or not yet gone.
    wait_for("old files to go", || (names(&rig).len() <= after_one + 6).then_some(()));
}

fn close(shell: &mut TestShell) {
    let reply = shell.client.request(&Request::CloseShell(shell.id.clone())).unwrap();
    assert_eq!(reply, Reply::Done);
}

fn entries(dir: PathBuf) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}

#[test]
fn a_closed_shell_leaves_no_file_and_no_process() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("v=1; echo x");
    let pid = shell.pid();
    close(&mut shell);
    assert_eq!((entries(rig.path().join("run")), entries(rig.path().join("journal"))), (0, 0));
    wait_for("the shell to end", || (!is_alive(pid)).then_some(()));
}

#[test]
fn a_shell_closed_in_the_middle_of_a_command_leaves_no_file_and_no_process() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let pid = shell.pid();
    shell.run("sleep 1001 >/dev/null 2>&1 & disown");
    let exec =
        shell.exec("trap '' TERM INT HUP; nohup sleep 1002 & (trap '' TERM INT HUP; sleep 1003; echo) | sleep 1004");
    shell.submit(exec);
    wait_for("all the sleepers", || {
        let names = stead_term::proc::of_session(pid)
            .into_iter()
            .map(|stat| std::fs::read(format!("/proc/{}/comm", stat.pid)).unwrap_or_default());
        (names.filter(|name| name == b"sleep\n").count() == 4).then_some(())
    });
    close(&mut shell);
    assert_eq!((entries(rig.path().join("run")), entries(rig.path().join("journal"))), (0, 0));
    wait_for("its processes to end", || {
        stead_term::proc::of_session(pid).iter().all(|stat| !is_alive(stat.pid)).then_some(())
    });
}

#[test]
fn a_shell_closed_while_it_starts_processes_leaves_none() {
    let rig = Rig::new();
    let mut sessions = Vec::new();
    for _ in 0..20 {
        let mut shell = rig.shell();
        sessions.push(shell.pid());
        let exec = shell.exec("for _ in {1..20}; do sleep 100 & done; sleep 100");
        shell.submit(exec);
        close(&mut shell);
    }
    let alive = || {
        sessions
            .iter()
            .flat_map(|session| stead_term::proc::of_session(*session))
            .filter(|stat| is_alive(stat.pid))
            .count()
    };
    wait_for("all processes to end", || (alive() == 0).then_some(()));
}

#[test]
fn a_stopped_steward_leaves_no_process_however_many_there_were() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let pids = [shell.pid(), rig.steward_pid(), rig.keeper_pid()];
    // Their ends are told to the steward by its keeper just while it leaves.
    let exec = shell.exec("for _ in {1..40}; do sleep 1000 & done; echo up; wait");
    let command = shell.submit(exec).command;
    wait_for("all of them", || Some(shell.command(&command)).filter(|info| info.stdout_bytes == 3));
    assert_eq!(shell.client.request(&Request::Shutdown).unwrap(), Reply::Done);
    wait_for("everything to end", || pids.iter().all(|pid| !is_alive(*pid)).then_some(()));
    wait_for("its processes to end", || {
        stead_term::proc::of_session(pids[0]).iter().all(|stat| !is_alive(stat.pid)).then_some(())
    });
    assert_eq!(entries(rig.path().join("run")), 0);
}

#[test]
fn a_stopped_steward_takes_its_keeper_along_every_time() {
    let rig = Rig::new();
    // The end of the shell may reach the steward at any moment of its own.
    for round in 0..30 {
        let mut shell = rig.shell_named(&format!("round-{round}"));
        shell.run("v=1");
        let keeper = rig.keeper_pid();
        assert_eq!(shell.client.request(&Request::Shutdown).unwrap(), Reply::Done);
        wait_for("the keeper to end", || (!is_alive(keeper)).then_some(()));
        rig.start();
    }
}
