//! `stead serve` over a directory of its own, killed and started again.

use super::wire::Wire;
use crate::failed::{Result, While};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

#[derive(Debug)]
pub(super) struct Server {
    program: PathBuf,
    scratch: PathBuf,
    child: Option<Child>,
}

const SETTINGS: &str = "\
default_provider = \"local\"

[provider.local]
kind = \"local\"

[provider.namespace]
kind = \"namespace\"
";

impl Server {
    pub(super) fn start(program: &Path, scratch: &Path) -> Result<Self> {
        fs::write(scratch.join("stead.toml"), SETTINGS).or_failed("can't write the configuration")?;
        let mut server = Self { program: program.to_owned(), scratch: scratch.to_owned(), child: None };
        server.start_again()?;
        Ok(server)
    }

    pub(super) fn wire(&self) -> Wire {
        Wire { socket: self.data().join("stead.sock") }
    }

    pub(super) fn data(&self) -> PathBuf {
        self.scratch.join("data")
    }

    /// `kill -9`.
    pub(super) fn kill(&mut self) -> Result {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.kill().or_failed("can't kill the server")?;
        child.wait().map(drop).or_failed("can't wait for the server")
    }

    /// Starts one and waits until it says that it listens.
    pub(super) fn start_again(&mut self) -> Result {
        let log = fs::File::options().create(true).append(true).open(self.scratch.join("log"));
        let mut command = Command::new(&self.program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(self.data());
        command.arg("--config").arg(self.scratch.join("stead.toml"));
        command.current_dir(&self.scratch).env_clear().env("HOME", &self.scratch);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log.or_failed("can't make a log")?);
        let mut child = command.spawn().or_failed("can't start `stead serve`")?;
        let said = child.stdout.take().or_failed("the server has no output")?;
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line).or_failed("the server says nothing")?;
        self.child = Some(child);
        line.contains("http://").then_some(()).or_failed(format!("the server said `{}`, not where it is", line.trim()))
    }

    /// Asks it to end, and waits for that.
    pub(super) fn stop(&mut self) -> Result {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).or_failed("can't end the server")?;
        }
        child.wait().map(drop).or_failed("can't wait for the server")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}
