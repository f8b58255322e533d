//! What we are compared with: programs that start something walled off, or nothing but a shell.

use crate::table::absent;
use crate::{Failed, Result};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) name: String,
    words: Vec<&'static str>,
}

const BASH: [&str; 3] = ["bash", "-c", "true"];
const BWRAP: [&str; 12] =
    ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--unshare-all", "true"];

/// Small, and there on most machines that have an engine.
const IMAGE: &str = "docker.io/library/busybox";

/// Those that work here; the others are named.
pub(crate) fn all() -> Vec<Peer> {
    let bash = Peer { name: "`bash -c true`".to_owned(), words: BASH.to_vec() };
    let bwrap = Peer { name: "`bwrap .. true`".to_owned(), words: BWRAP.to_vec() };
    let engine = |engine: &'static str| Peer {
        name: format!("`{engine} run --rm busybox true`"),
        words: vec![engine, "run", "--rm", "--network=none", IMAGE, "true"],
    };
    let peers = [bash, bwrap, engine("podman"), engine("docker")];
    peers.into_iter().filter(Peer::works).collect()
}

impl Peer {
    fn command(&self) -> Option<Command> {
        let (program, arguments) = self.words.split_first()?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        Some(command)
    }

    fn works(&self) -> bool {
        let why = match self.command().map(|mut command| command.output()) {
            Some(Ok(output)) if output.status.success() => return true,
            Some(Ok(output)) => String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned(),
            Some(Err(error)) => error.to_string(),
            None => "no such program".to_owned(),
        };
        absent(&self.name, &why);
        false
    }

    /// From starting it to its end.
    pub(crate) fn once(&self) -> Result<Duration> {
        let mut command = self.command().ok_or("no program")?;
        let begun = Instant::now();
        let status = command.status()?;
        let taken = begun.elapsed();
        if status.success() { Ok(taken) } else { Err(Failed::from(format!("{} failed ({status})", self.name))) }
    }
}
