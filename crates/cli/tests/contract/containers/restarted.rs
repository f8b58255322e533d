//! An engine that dies under us and comes back, with its containers or without them.

use crate::bench::{Bench, Wish, containers_at, until};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use stead_model::lease::Seen;
use stead_server::provider::{Availability, Effect, Provider, Trouble};
use stead_term::cgroup::Limits;

/// An engine of this test's own.
pub(super) struct Engine {
    dir: PathBuf,
    process: Child,
}

impl Engine {
    /// Whether one can be had here; else a word about it.
    pub(super) fn can_start() -> bool {
        let is_there = Command::new("dockerd").arg("--version").stdout(Stdio::null()).status().is_ok();
        let can = is_there && rustix::process::geteuid().is_root() && std::env::var_os("STEAD_TEST_DOCKER").is_some();
        if !can {
            println!("SKIPPED: no engine can be started here");
        }
        can
    }

    fn start(dir: &Path, more: &[&str]) -> Self {
        Self { dir: dir.to_owned(), process: Self::spawn(Command::new("dockerd"), dir, more) }
    }

    fn again(&mut self, more: &[&str]) {
        self.process = Self::spawn(Command::new("dockerd"), &self.dir, more);
    }

    /// One that keeps its things in memory, of which there is as much as the options say; nobody but it sees that mount.
    pub(super) fn start_on_tmpfs(dir: &Path, options: &str) -> Self {
        let script = format!("mount -t tmpfs -o {options} tmpfs {}/root && exec dockerd \"$@\"", dir.display());
        let mut apart = Command::new("unshare");
        apart.args(["--mount", "sh", "-c", &script, "sh"]);
        Self { dir: dir.to_owned(), process: Self::spawn(apart, dir, &[]) }
    }

    /// A directory of this engine, as it sees it itself.
    pub(super) fn seen(&self, name: &str) -> PathBuf {
        let path = self.dir.join(name);
        PathBuf::from(format!("/proc/{}/root", self.process.id())).join(path.strip_prefix("/").unwrap())
    }

    fn spawn(mut command: Command, dir: &Path, more: &[&str]) -> Child {
        let log = std::fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
        let at = |flag: &str, name: &str| format!("{flag}={}", dir.join(name).display());
        command
            .args([at("--data-root", "root"), at("--exec-root", "exec"), at("--pidfile", "pid")])
            .args([format!("--host=unix://{}", dir.join("sock").display()), "--iptables=false".to_owned()])
            .args(["--bridge=none"].iter().chain(more))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    pub(super) async fn answers(&self) {
        let socket = self.dir.join("sock");
        let ping =
            || super::engine::send(&socket, "GET /_ping", &[]).is_ok_and(|said| said.starts_with("HTTP/1.1 200"));
        until("the engine to answer", ping).await;
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        // What it started for itself dies with it, and is taken for alive where nobody reaps it.
        for name in ["pid", "exec/containerd/containerd.pid"] {
            let _ = std::fs::remove_file(self.dir.join(name));
        }
    }
}

impl Drop for Engine {
    /// What it started ends with it; what an engine that was killed left is ended by its pid file.
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.process.wait();
        let containerd = std::fs::read_to_string(self.dir.join("exec/containerd/containerd.pid")).unwrap_or_default();
        if let Some(pid) = containerd.trim().parse().ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        // One that was killed left its directory mounted on itself, and so whoever made it could not remove it.
        let unmount = || Command::new("umount").arg(self.dir.join("root")).stderr(Stdio::null()).status();
        while unmount().is_ok_and(|status| status.success()) {}
        let _ = std::fs::remove_dir_all(&self.dir);
        let _ = self.dir.parent().map(std::fs::remove_dir);
    }
}

fn beside(wish: Wish) -> Arc<dyn Provider> {
    let socket = wish.data.parent().unwrap().join("engine/sock");
    containers_at(wish, socket, |_| {})
}

#[tokio::test]
async fn an_engine_that_dies_and_comes_back_is_told_truly() {
    if !Engine::can_start() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("engine");
    std::fs::create_dir(&home).unwrap();
    let mut engine = Engine::start(&home, &["--live-restore"]);
    engine.answers().await;
    let bench = Bench::within(dir, beside, Limits::default()).await.unwrap();
    let blueprint = bench.blueprint("restarted");
    let handle = bench.create(&blueprint).await;
    let shell = bench.shell(&handle, "main").await;
    let pid = shell.out("cd /usr; V=1; echo $$").await;

    engine.kill();
    let error = bench.provider.status(&handle).await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::Unavailable, Effect::None), "{error}");
    assert!(matches!(bench.provider.availability().await, Availability::Missing { .. }));
    assert_eq!(bench.provider.create(&blueprint).await.unwrap_err().effect, Effect::None);
    assert_eq!(shell.out("echo $$").await, pid, "what runs needs no engine");

    engine.again(&["--live-restore"]);
    engine.answers().await;
    assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Running));
    assert_eq!(bench.shell(&handle, "main").await.out("echo $$ $V").await, format!("{} 1\n", pid.trim()));

    // One that doesn't keep its containers over its own death ends them when it comes back.
    engine.kill();
    engine.again(&[]);
    engine.answers().await;
    let seen = bench.provider.status(&handle).await.unwrap();
    if seen == Seen::Running {
        assert_eq!(bench.shell(&handle, "main").await.out("echo $$ $V").await, format!("{} 1\n", pid.trim()));
    } else {
        assert_eq!(seen, Seen::Gone);
    }
    let again = bench.create(&bench.next(&blueprint)).await;
    assert_eq!(bench.shell(&again, "main").await.out("echo $V $PWD").await, "1 /usr\n");
    bench.provider.destroy(&again).await.unwrap();
    assert_eq!(bench.provider.list().await, Ok(Vec::new()));
}
