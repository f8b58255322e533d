//! One command as one process on this machine: the plainest provider of one-shot execution, and the one by which the
//! wrapped runtime is tested with a real shell.

use super::{Effect, OneShot, ProviderError, Shot, ShotOutcome, Trouble};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use stead_model::ids::ProviderName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

/// How long the pipes of a process that has ended are read on when somebody else still holds them.
const LINGER: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct ProcessShot {
    provider: ProviderName,
    cwd: PathBuf,
}

impl ProcessShot {
    pub fn new(provider: ProviderName, cwd: PathBuf) -> Self {
        Self { provider, cwd }
    }

    async fn run(&self, shot: &Shot, dir: &Path) -> io::Result<ShotOutcome> {
        for (name, bytes) in &shot.files {
            tokio::fs::write(dir.join(name), bytes).await?;
        }
        let mut command = tokio::process::Command::new("bash");
        command.args(["--norc", "--noprofile", "-c", &shot.script]).env_clear().current_dir(&self.cwd);
        for (name, value) in &shot.env {
            command.env(std::ffi::OsStr::from_bytes(name), std::ffi::OsStr::from_bytes(value));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own, so that a time-out ends all of it.
        command.process_group(0).kill_on_drop(true);
        let mut child = command.spawn()?;
        let mut group = Group(child.id().and_then(|id| i32::try_from(id).ok()));
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (mut stdin, Some(mut out), Some(mut err)) = pipes else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let (mut timed_out, mut cancelled) = (false, false);
        let status = {
            let talk =
                converse(&mut child, (&mut stdin, &shot.stdin), (&mut out, &mut stdout), (&mut err, &mut stderr));
            let timeout = async {
                match shot.timeout {
                    Some(timeout) => tokio::time::sleep(timeout).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                status = talk => Some(status?),
                () = timeout => { timed_out = true; None }
                () = shot.cancel.cancelled() => { cancelled = true; None }
            }
        };
        let status = if let Some(status) = status {
            status
        } else {
            group.kill();
            let status = child.wait().await?;
            // What it said before that is in the pipes.
            let rest = async { tokio::join!(out.read_to_end(&mut stdout), err.read_to_end(&mut stderr)) };
            let _ = tokio::time::timeout(LINGER, rest).await;
            status
        };
        // Children in the background are the instance's from here on.
        group.0 = None;
        let mut fetched = BTreeMap::new();
        for name in &shot.fetch {
            match tokio::fs::read(dir.join(name)).await {
                Ok(bytes) => {
                    fetched.insert((*name).to_owned(), bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let ours = timed_out || cancelled;
        let (exit_code, signal) = if ours { (None, None) } else { (status.code(), status.signal()) };
        Ok(ShotOutcome { stdout, stderr, exit_code, signal, timed_out, cancelled, fetched })
    }
}

/// The processes of a command, killed when nobody waits for it any more.
struct Group(Option<i32>);

impl Group {
    fn kill(&self) {
        if let Some(group) = self.0 {
            stead_term::proc::signal_group(group, rustix::process::Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The directory of a command, removed with it.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // What was killed a moment ago may still be making a file there.
        for _ in 0..3 {
            if std::fs::remove_dir_all(&self.0).is_ok() {
                return;
            }
        }
    }
}

/// Feeds a process and hears it out. The end is its end, not that of its pipes, which background children may hold.
async fn converse(
    child: &mut Child,
    (stdin, input): (&mut Option<ChildStdin>, &[u8]),
    (out, stdout): (&mut ChildStdout, &mut Vec<u8>),
    (err, stderr): (&mut ChildStderr, &mut Vec<u8>),
) -> io::Result<std::process::ExitStatus> {
    let write = async {
        if let Some(mut stdin) = stdin.take() {
            // Who doesn't read its input closes it; that is no failure of ours.
            let _ = stdin.write_all(input).await;
        }
        std::future::pending::<()>().await;
    };
    let read = async { tokio::join!(out.read_to_end(stdout), err.read_to_end(stderr)) };
    tokio::pin!(read, write);
    let mut whole = false;
    loop {
        tokio::select! {
            status = child.wait() => {
                if !whole {
                    // What is in the pipes now was written by then.
                    let _ = tokio::time::timeout(LINGER, &mut read).await;
                }
                return status;
            }
            _ = &mut read, if !whole => whole = true,
            () = &mut write => {}
        }
    }
}

#[async_trait]
impl OneShot for ProcessShot {
    async fn shoot(&self, shot: &Shot) -> Result<ShotOutcome, ProviderError> {
        let failed = |effect| {
            move |error: io::Error| {
                ProviderError::new(&self.provider, "run a command", Trouble::Unavailable, effect, error.to_string())
            }
        };
        let dir = PathBuf::from(&shot.dir);
        let mut builder = tokio::fs::DirBuilder::new();
        builder.mode(0o700).create(&dir).await.map_err(failed(Effect::None))?;
        let scratch = Scratch(dir);
        self.run(shot, &scratch.0).await.map_err(failed(Effect::Unknown))
    }
}
