//! Engines for the tests of containers: Docker, Podman, and Podman without root, installed where we may, started for the
//! tests and stopped after them. What can't be had is said; its tests then say that they were skipped.
//!
//! Each has a network of its own: its bridge, its rules and whatever its containers send are in there and nowhere else.

mod leftover;
mod ordinary;

use super::tools::{find, provide_one};
use crate::cargo::Workspace;
use crate::failed::{Failed, Result, While};
use ordinary::OrdinaryUser;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long an engine may take until it answers.
const PATIENCE: Duration = Duration::from_mins(1);

/// Names the socket of a Docker that runs already.
const DOCKER: &str = "STEAD_TEST_DOCKER";

/// Engines that run for as long as this lives.
#[derive(Debug)]
pub(crate) struct Engines {
    dir: PathBuf,
    running: Vec<Engine>,
    /// Whom an engine without root runs as.
    user: Option<OrdinaryUser>,
    /// What the tests are told: a variable and the socket.
    pub(crate) variables: Vec<(&'static str, PathBuf)>,
    said: Vec<String>,
}

#[derive(Debug)]
struct Engine {
    name: &'static str,
    process: Child,
}

impl Engines {
    /// One that is named already is taken; others are started.
    pub(crate) fn start(workspace: &Workspace) -> Result<Self> {
        let (mut engines, logs) = Self::none(workspace)?;
        if let Err(error) = provide_one("debootstrap", "debootstrap") {
            println!("   WARNING: no debootstrap here, its test is SKIPPED: {error}");
        }
        engines.add("docker", DOCKER, |engines| engines.docker(&logs));
        engines.add("podman", "STEAD_TEST_PODMAN", |engines| engines.podman(&logs));
        engines.add("podman without root", "STEAD_TEST_ROOTLESS", |engines| engines.rootless(&logs));
        Ok(engines)
    }

    /// Docker alone, for who can do nothing without it; and where it listens.
    pub(crate) fn docker_alone(workspace: &Workspace) -> Result<(Self, PathBuf)> {
        let (mut engines, logs) = Self::none(workspace)?;
        let named = std::env::var_os(DOCKER).map(PathBuf::from);
        let socket = named.map_or_else(|| engines.docker(&logs), Ok).or_failed("there is no engine")?;
        Ok((engines, socket))
    }

    /// With where the logs of those go that are started.
    fn none(workspace: &Workspace) -> Result<(Self, PathBuf)> {
        // Short: the engines have sockets in there, whose paths may have 107 bytes.
        let dir = std::env::temp_dir().join(format!("stead-engines-{}", std::process::id()));
        fs::create_dir_all(&dir).or_failed(format!("can't make `{}`", dir.display()))?;
        let engines = Self { dir, running: Vec::new(), user: None, variables: Vec::new(), said: Vec::new() };
        let logs = workspace.target.join("engines");
        fs::create_dir_all(&logs).or_failed(format!("can't make `{}`", logs.display()))?;
        Ok((engines, logs))
    }

    pub(crate) fn describe(&self) -> String {
        self.said.join("; ")
    }

    fn add(&mut self, name: &'static str, variable: &'static str, start: impl FnOnce(&mut Self) -> Result<PathBuf>) {
        let named = std::env::var_os(variable).map(PathBuf::from);
        match named.map_or_else(|| start(self), Ok) {
            Ok(socket) => {
                self.said.push(format!("{name} at {}", socket.display()));
                self.variables.push((variable, socket));
            }
            Err(error) => {
                let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
                println!("   WARNING: no {name} here, its tests are SKIPPED: {error}{cause}");
                self.said.push(format!("no {name}"));
            }
        }
    }

    fn docker(&mut self, logs: &Path) -> Result<PathBuf> {
        provide_one("dockerd", "docker.io")?;
        let at = |name: &str| self.dir.join(name);
        let socket = at("docker.sock");
        let mut command = apart("exec dockerd \"$@\"");
        command
            .arg("--data-root")
            .arg(at("docker"))
            .arg("--exec-root")
            .arg(at("docker-run"))
            .arg("--pidfile")
            .arg(at("docker.pid"))
            .arg(format!("--host=unix://{}", socket.display()));
        self.run("docker", command, &logs.join("docker.log"), &socket)?;
        Ok(socket)
    }

    fn podman(&mut self, logs: &Path) -> Result<PathBuf> {
        provide_one("podman", "podman")?;
        let socket = self.dir.join("podman.sock");
        let mut command = apart("exec podman \"$@\"");
        self.serve_podman(&mut command, "podman", &socket)?;
        self.run("podman", command, &logs.join("podman.log"), &socket)?;
        Ok(socket)
    }

    fn rootless(&mut self, logs: &Path) -> Result<PathBuf> {
        for (program, package) in [("podman", "podman"), ("newuidmap", "uidmap"), ("slirp4netns", "slirp4netns")] {
            provide_one(program, package)?;
        }
        // A directory that the user may go through, for one that is theirs.
        let place = self.dir.join("rootless");
        let user = OrdinaryUser::make(&place)?;
        let socket = place.join("podman.sock");
        let mut command = user.apart("podman")?;
        self.serve_podman(&mut command, "rootless", &socket)?;
        self.user = Some(user);
        self.run("podman without root", command, &logs.join("rootless.log"), &socket)?;
        Ok(socket)
    }

    /// What every Podman is told; `dir` is where it keeps its things.
    fn serve_podman(&self, command: &mut Command, dir: &str, socket: &Path) -> Result {
        let at = |name: &str| self.dir.join(dir).join(name);
        command.arg("--root").arg(at("store")).arg("--runroot").arg(at("run/containers"));
        // crun, the other one, refuses to run where both versions of control groups are mounted.
        if find("runc").is_some() {
            command.args(["--runtime", "runc"]);
        }
        let settings = self.dir.join("containers.conf");
        let text = "[containers]\ndefault_ulimits = [\"nofile=20000:20000\", \"nproc=20000:20000\"]\n\
                    [engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n";
        fs::write(&settings, text).or_failed(format!("can't write `{}`", settings.display()))?;
        command.env("CONTAINERS_CONF", settings);
        command.args(["system", "service", "--time", "0"]).arg(format!("unix://{}", socket.display()));
        Ok(())
    }

    fn run(&mut self, name: &'static str, mut command: Command, log: &Path, socket: &Path) -> Result {
        if !rustix::process::geteuid().is_root() {
            return Err(Failed::new("only root can start one"));
        }
        let out = File::create(log).or_failed(format!("can't write `{}`", log.display()))?;
        let err = out.try_clone().or_failed("no descriptor is left")?;
        // Podman's monitors leave notes where they are started.
        command.current_dir(&self.dir);
        let process =
            command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().or_failed(format!("can't run `{name}`"))?;
        self.running.push(Engine { name, process });
        let until = Instant::now() + PATIENCE;
        while !answers(socket) {
            let ended = self.running.last_mut().is_some_and(|engine| matches!(engine.process.try_wait(), Ok(Some(_))));
            if ended || Instant::now() > until {
                return Err(Failed::new(format!("it does not answer; `{}` says why", log.display())));
            }
            let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            let _ = rustix::event::poll(&mut [], Some(&pause));
        }
        Ok(())
    }
}

/// A command in a network of its own, with nothing in it but the loopback; what is added to it are the script's words.
fn apart(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", &format!("ip link set lo up && {script}"), "sh"]);
    command
}

fn answers(socket: &Path) -> bool {
    let ping = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(b"GET /_ping HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer.starts_with("HTTP/1.1 200"))
    };
    ping().unwrap_or(false)
}

impl Drop for Engines {
    /// Asks them to end, which ends what they run, and removes what they kept.
    fn drop(&mut self) {
        for engine in &mut self.running {
            let pid = rustix::process::Pid::from_child(&engine.process);
            if let Err(error) = rustix::process::kill_process(pid, rustix::process::Signal::TERM) {
                println!("   can't stop {}: {error}", engine.name);
                continue;
            }
            let _ = engine.process.wait();
        }
        drop(self.user.take());
        leftover::kill(|process| leftover::mentions(process, &self.dir));
        leftover::unmount(&self.dir);
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            println!("   `{}` is left: {error}", self.dir.display());
        }
    }
}
