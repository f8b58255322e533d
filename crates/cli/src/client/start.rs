//! Starting a server when there is none, as tmux does: in the background, once, however many ask at the same time.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How long a server may take until it listens. It may have much to recover.
const READY_WITHIN: Timespec = Timespec { tv_sec: 120, tv_nsec: 0 };

/// How long one that failed may take to end.
const LAST_WORDS_WITHIN: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// How much of a log is shown when it didn't get that far.
const LINES_SHOWN: usize = 10;

/// How a server of this machine is started.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) program: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) config: Option<PathBuf>,
    pub(crate) env_file: Option<PathBuf>,
    pub(crate) socket: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("can't use `{path}`")]
    Place { path: PathBuf, source: io::Error },
    #[error("can't start a server")]
    Spawn(#[source] io::Error),
    #[error("the server that was started did not come up{}", shown(.last_words))]
    Failed { log: PathBuf, last_words: String },
    #[error("the server that was started is not ready after {}s", READY_WITHIN.tv_sec)]
    Slow { log: PathBuf },
}

impl StartError {
    pub(crate) fn advice(&self) -> String {
        match self {
            Self::Place { .. } => "name another directory with `--data` or STEAD_DATA".to_owned(),
            Self::Spawn(_) => "`stead serve` starts one in the foreground".to_owned(),
            Self::Failed { log, .. } | Self::Slow { log } => {
                format!("its log is `{}`; `stead serve` starts one in the foreground", log.display())
            }
        }
    }
}

/// What the log said, indented below the message.
fn shown(last_words: &str) -> String {
    if last_words.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = last_words.lines().map(|line| format!("\n  | {line}")).collect();
    format!("; the last it said:{}", lines.concat())
}

/// Whether a failure to connect means that there is no server.
pub(super) fn may_help(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}

impl Start {
    /// Returns when a server listens, ours or another's.
    pub(super) fn run(&self) -> Result<(), StartError> {
        let place = |path: &Path| {
            let path = path.to_owned();
            move |source| StartError::Place { path, source }
        };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.data).map_err(place(&self.data))?;
        let private = |name: &str| {
            let path = self.data.join(name);
            let file = File::options().create(true).read(true).append(true).mode(0o600).open(&path);
            file.map_err(place(&path)).map(|file| (file, path))
        };
        // Held until the server listens: whoever comes second waits here, and then finds it.
        let (lock, path) = private("start.lock")?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(io::Error::from).map_err(place(&path))?;
        if UnixStream::connect(&self.socket).is_ok() {
            return Ok(());
        }
        let (mut log, path) = private("server.log")?;
        let begin = log.seek(SeekFrom::End(0)).map_err(place(&path))?;
        let (ready, lives) = self.spawn(&log).map_err(StartError::Spawn)?;
        if !heard_of(&ready, &READY_WITHIN)? {
            return Err(StartError::Slow { log: path });
        }
        // One byte when it listens; nothing if it came to nothing.
        if (&ready).read(&mut [0]).map_err(StartError::Spawn)? == 1 {
            return Ok(());
        }
        // It may still be telling why.
        heard_of(&lives, &LAST_WORDS_WITHIN)?;
        Err(StartError::Failed { last_words: last_lines(&mut log, begin).unwrap_or_default(), log: path })
    }

    /// Starts the server. Gives the end of a pipe on which it says that it listens, and of one that is held as long as it
    /// lives.
    fn spawn(&self, log: &File) -> io::Result<(io::PipeReader, io::PipeReader)> {
        let (ready, told) = io::pipe()?;
        let (lives, held) = io::pipe()?;
        let mut command = Command::new(&self.program);
        command.arg("serve").arg("--data").arg(&self.data);
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
        if let Some(file) = &self.env_file {
            command.arg("--env-file").arg(file);
        }
        command.arg("--ready-fd").arg(told.as_raw_fd().to_string());
        // These say what the command line is to do, not the server.
        command.env_remove("STEAD_URL").env_remove("STEAD_TOKEN").env_remove("STEAD_THREAD");
        stead_term::spawn::own_session(command, &self.data, [told.into(), held.into()], log.try_clone()?.into())?;
        Ok((ready, lives))
    }
}

/// Waits until there is something to read, or the end; `false` if neither comes.
fn heard_of(pipe: &io::PipeReader, within: &Timespec) -> Result<bool, StartError> {
    loop {
        match poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(within)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(StartError::Spawn(error.into())),
        }
    }
}

/// What was added to a log from `begin` on, its last lines only.
fn last_lines(log: &mut File, begin: u64) -> io::Result<String> {
    const ENOUGH: u64 = 16 << 10;
    let end = log.seek(SeekFrom::End(0))?;
    log.seek(SeekFrom::Start(begin.max(end.saturating_sub(ENOUGH))))?;
    let mut bytes = Vec::new();
    log.take(ENOUGH).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines.get(lines.len().saturating_sub(LINES_SHOWN)..).unwrap_or_default().join("\n"))
}
