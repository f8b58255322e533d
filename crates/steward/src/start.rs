//! Starting a steward over a directory, or finding the one that runs there.

use crate::client::Client;
use crate::dir::{Dir, DirError};
use crate::keeper::Role;
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use stead_term::packet::{self, Wait};
use stead_term::spawn::{self, OpenFiles};

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Dir(#[from] DirError),
    #[error("can't start a steward in `{dir}`")]
    Io { dir: PathBuf, source: io::Error },
    #[error("the steward in `{0}` died while starting; its `log` there says why")]
    Died(PathBuf),
    #[error("another steward in `{0}` holds the lock but does not answer")]
    Silent(PathBuf),
}

/// How long a steward that is being started again may take to greet.
const GREETING: Duration = Duration::from_secs(2);

/// Whether it was there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    Now,
    Before,
}

/// How long another process may take to get the steward going that it is starting at the same moment.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes sure that a steward runs over `dir`; `keeper` says how this program is called as one. Returns when clients
/// can connect.
pub fn start(dir: &Path, keeper_role: &dyn Fn(&Dir) -> Role) -> Result<Started, StartError> {
    let dir = Dir::create(dir)?;
    let failed = |source| StartError::Io { dir: dir.root().to_owned(), source };
    let lock = File::options().write(true).create(true).truncate(false).mode(0o600).open(dir.lock()).map_err(failed)?;
    let until = Instant::now() + PATIENCE;
    while rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        if answers(&dir) {
            return Ok(Started::Before);
        }
        if Instant::now() > until {
            return Err(StartError::Silent(dir.root().to_owned()));
        }
        // Somebody else is about to bind the socket, or about to die and let go of the lock. There is no event for
        // "either"; this happens once in the life of a directory.
        let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        let _ = rustix::event::poll(&mut [], Some(&pause));
    }
    let (mut ready, theirs) = io::pipe().map_err(failed)?;
    keeper(&dir, &keeper_role(&dir), &[("lock".into(), lock.as_fd()), ("ready".into(), theirs.as_fd())], None)
        .map_err(failed)?;
    drop((lock, theirs));
    let mut byte = [0];
    match ready.read(&mut byte).map_err(failed)? {
        0 => Err(StartError::Died(dir.root().to_owned())),
        _ => Ok(Started::Now),
    }
}

/// Whether somebody is there who speaks the protocol: a process that is just dying may still hold the socket.
fn answers(dir: &Dir) -> bool {
    let greet = || {
        let stream = dir.connect().ok()?;
        stream.set_read_timeout(Some(GREETING)).ok()?;
        let read = stream.try_clone().ok()?;
        Client::over(Box::new(read), Box::new(stream), "start").ok()
    };
    greet().is_some()
}

/// Starts a keeper and gives it its first things.
pub(crate) fn keeper(
    dir: &Dir,
    role: &Role,
    things: &[(String, BorrowedFd<'_>)],
    open_files: Option<OpenFiles>,
) -> io::Result<()> {
    let (ours, theirs) = packet::pair()?;
    let log = dir.log_file().map_or_else(|_| Stdio::null(), Stdio::from);
    let mut child = spawn::successor(&role.program, &role.arguments, theirs, log, open_files)?;
    for (name, fd) in things {
        packet::send(&ours, format!("S{name}").as_bytes(), Some(*fd), Wait::Block)?;
    }
    packet::send(&ours, b"Z", None, Wait::Block)?;
    // It has left for a process of its own; what we started ends at once.
    child.wait()?;
    Ok(())
}
