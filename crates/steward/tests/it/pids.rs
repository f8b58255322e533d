//! Process ids are given again: what was said of an earlier process must not be taken for the shell's.

use crate::rig::{PATIENCE, TestShell, binary, code, open_shell, seen, wait_for};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use stead_model::proto::Program;
use stead_steward::client::Client;

/// A steward in a namespace of process ids of its own, where nobody else takes one, and root may say which is the next.
struct Namespace {
    dir: tempfile::TempDir,
    first: Child,
}

impl Namespace {
    fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("steward-").tempdir().unwrap();
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]);
        // The steward leaves whoever starts it; the namespace ends with its first process, so that one stays.
        command.arg("\"$0\" start --dir \"$1\" && exec sleep 1000").arg(binary()).arg(dir.path().join("steward"));
        let first = command.stdin(Stdio::null()).spawn().unwrap();
        Self { dir, first }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("steward")
    }

    fn shell(&self) -> TestShell {
        let client = wait_for("the steward", || Client::connect(&self.path(), "test").ok());
        TestShell::open(client, open_shell("main", Program::Bash, self.dir.path()))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.first.kill().unwrap();
        self.first.wait().unwrap();
    }
}

fn can_choose_pids() -> bool {
    let script = "echo 300 >/proc/sys/kernel/ns_last_pid";
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "sh", "-c", script]).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[test]
fn a_shell_that_has_the_pid_of_an_earlier_process_is_not_given_its_exit_status() {
    if !can_choose_pids() {
        println!("SKIPPED: no namespace of process ids can be made here, or none can be chosen in it");
        return;
    }
    let namespace = Namespace::start();
    let mut shell = namespace.shell();
    // An orphan, which the keeper reaps. Its status is nobody's business, and stays with the steward unclaimed. A process
    // is known by its pid and the hundredth of a second in which it began; no kernel gives a pid again in the same one, so
    // we don't either.
    let orphan = "echo 20000 >/proc/sys/kernel/ns_last_pid; (sh -c 'echo $$ >pid; exit 9' &) ; \
                  until [ -s pid ]; do :; done; while kill -0 \"$(cat pid)\" 2>/dev/null; do :; done; \
                  u=$(cut -d' ' -f1 /proc/uptime); while [ \"$(cut -d' ' -f1 /proc/uptime)\" = \"$u\" ]; do :; done; cat pid";
    let pid: i32 = shell.out(orphan).trim().parse().unwrap();
    let begun = std::time::Instant::now();
    // Whoever else forks meanwhile takes a number, so a few tries may be needed.
    for before in (2..=5).cycle() {
        assert!(begun.elapsed() < PATIENCE, "no shell got the pid {pid}");
        let left = shell.run(format!("echo {} >/proc/sys/kernel/ns_last_pid; exit 3", pid - before));
        assert_eq!(code(&left), Some(3));
        if shell.out("echo $$").trim().parse() == Ok(pid) {
            break;
        }
    }
    let left = shell.run("echo goodbye; exit 5");
    assert_eq!(seen(&left), (Some(5), "goodbye\n".to_owned(), String::new()));
}
