//! Engines for the tests of containers: Docker and Podman, installed where we may, started for the tests and stopped after
//! them. What can't be had is said; its tests then say that they were skipped.

use super::tools::{find, provide_one};
use crate::cargo::Workspace;
use crate::failed::{Failed, Result, While};
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
        engines.add("docker", DOCKER, |engines| engines.docker(&logs));
        engines.add("podman", "STEAD_TEST_PODMAN", |engines| engines.podman(&logs));
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
        let engines = Self { dir, running: Vec::new(), variables: Vec::new(), said: Vec::new() };
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
        let mut command = Command::new("dockerd");
        command
            .arg("--data-root")
            .arg(at("docker"))
            .arg("--exec-root")
            .arg(at("docker-run"))
            .arg("--pidfile")
            .arg(at("docker.pid"))
            .arg(format!("--host=unix://{}", socket.display()))
            // What they would change of the machine's network is of no use here, and not ours to change.
            .args(["--iptables=false", "--bridge=none"]);
        self.run("docker", command, &logs.join("docker.log"), &socket)?;
        Ok(socket)
    }

    fn podman(&mut self, logs: &Path) -> Result<PathBuf> {
        provide_one("podman", "podman")?;
        let socket = self.dir.join("podman.sock");
        let mut command = Command::new("podman");
        command.arg("--root").arg(self.dir.join("podman")).arg("--runroot").arg(self.dir.join("podman-run"));
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
        self.run("podman", command, &logs.join("podman.log"), &socket)?;
        Ok(socket)
    }

    fn run(&mut self, name: &'static str, mut command: Command, log: &Path, socket: &Path) -> Result {
        if !rustix::process::geteuid().is_root() {
            return Err(Failed::new("only root can start one"));
        }
        let out = File::create(log).or_failed(format!("can't write `{}`", log.display()))?;
        let err = out.try_clone().or_failed("no descriptor is left")?;
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
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            println!("   `{}` is left: {error}", self.dir.display());
        }
    }
}
