//! A steward of our own over a directory that goes with it, and shells in it.

use super::place::Place;
use crate::cargo;
use crate::failed::{Failed, Result, While};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use stead_model::ids::{CommandId, ShellId};
use stead_model::proto::{Exec, OpenShell, Program, Request};
use stead_model::state::Bytes;
use stead_steward::client::{Client, Outcome};
use tempfile::TempDir;

pub(super) struct Steward {
    directory: TempDir,
}

impl Steward {
    /// Starts it as a user would. Its keeper and shells inherit its place.
    pub(super) fn start(program: &Path, place: &Place, scratch: &Path) -> Result<Self> {
        let steward = Self::not_started(scratch)?;
        place.beside(|| cargo::output(&mut steward.command(program)))?;
        Ok(steward)
    }

    /// A directory for a steward that is not started yet.
    pub(super) fn not_started(scratch: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("steward-").tempdir_in(scratch);
        Ok(Self { directory: directory.or_failed("can't make a directory")? })
    }

    /// What starts it; ends when clients can connect.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.arg("start").arg("--dir").arg(self.path()).stdin(Stdio::null());
        command
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("steward")
    }

    pub(super) fn client(&self) -> Result<Client> {
        Client::connect(&self.path(), "bench").or_failed("can't connect to the steward")
    }

    pub(super) fn shell(&self, name: &str) -> Result<Shell> {
        Shell::open(self.client()?, name, self.directory.path())
    }
}

impl Drop for Steward {
    fn drop(&mut self) {
        if let Ok(mut client) = self.client() {
            let _ = client.request(&Request::Shutdown);
        }
    }
}

/// One shell and a connection for it alone.
pub(super) struct Shell {
    client: Client,
    id: ShellId,
    number: u64,
}

impl Shell {
    fn open(mut client: Client, name: &str, cwd: &Path) -> Result<Self> {
        let id = ShellId::parse(name).or_failed("not a name for a shell")?;
        let env = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/"), ("LANG", "C.UTF-8"), ("TERM", "xterm")];
        let open = OpenShell {
            shell: id.clone(),
            program: Program::Bash,
            env: env.iter().map(|(name, value)| (Bytes::from(name), Bytes::from(value))).collect(),
            cwd: Bytes::from(cwd.as_os_str().as_encoded_bytes()),
            state: None,
            version: None,
        };
        client.request(&Request::OpenShell(Box::new(open))).or_failed("can't open a shell")?;
        Ok(Self { client, id, number: 0 })
    }

    pub(super) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// A command that nobody has run yet.
    pub(super) fn command(&mut self, text: &str) -> Result<Exec> {
        self.number += 1;
        let id = CommandId::parse(&format!("{}-{}", self.id, self.number)).or_failed("not a name for a command")?;
        Ok(Exec::new(self.id.clone(), id, text))
    }

    /// Runs a command that must succeed, and waits for its end.
    pub(super) fn run(&mut self, text: &str) -> Result<Outcome> {
        let exec = self.command(text)?;
        let outcome = self.client.exec(exec).or_failed(format!("can't run `{text}`"))?;
        match &outcome.info.ending {
            Some(ending) if ending.exit_code == Some(0) => Ok(outcome),
            ending => Err(Failed::new(format!("`{text}` ended as {ending:?}"))),
        }
    }

    /// Ends the shell; its journal goes with it.
    pub(super) fn close(mut self) -> Result {
        self.client.request(&Request::CloseShell(self.id)).or_failed("can't close a shell").map(drop)
    }
}
