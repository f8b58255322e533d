//! Starting a steward over a directory, or finding the one that runs there.

mod enclosed;

pub use crate::host::Settings;
pub use enclosed::{Enclosed, await_end, end_enclosure, start_enclosed};

pub(crate) use enclosed::read_spec;

use crate::client::Client;
use crate::dir::{Dir, DirError, NOT_ELSEWHERE};
use crate::keeper::Role;
use crate::kills::COUNTER;
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};
use stead_term::oom;
use stead_term::packet::{self, Wait};
use stead_term::spawn::{self, OpenFiles};

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Dir(#[from] DirError),
    #[error("can't start a steward in `{dir}`")]
    Io { dir: PathBuf, source: io::Error },
    #[error("the steward in `{dir}` died while starting{}", after_colon(last_words))]
    Died {
        dir: PathBuf,
        /// The end of what this start added to the log there.
        last_words: String,
    },
    #[error("another steward in `{0}` holds the lock but does not answer")]
    Silent(PathBuf),
}

fn after_colon(last_words: &str) -> String {
    if last_words.is_empty() { "; its `log` there says nothing".to_owned() } else { format!(": {last_words}") }
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

/// Of what a steward says before it dies, as much as this is worth repeating.
const LAST_WORDS: u64 = 2048;

/// Makes sure that a steward runs over `dir`; `keeper` says how this program is called as one. Returns when clients
/// can connect.
pub fn start(dir: &Path, keeper_role: &dyn Fn(&Dir) -> Role) -> Result<Started, StartError> {
    start_within(dir, keeper_role, &[])
}

/// The same, where the keeper joins the control groups of these `cgroup.procs`: what the kernel kills there for want of
/// memory is counted by one of them.
pub fn start_within(
    dir: &Path,
    keeper_role: &dyn Fn(&Dir) -> Role,
    cgroup_procs: &[PathBuf],
) -> Result<Started, StartError> {
    start_prepared(dir, cgroup_procs, &|dir| Ok(keeper_role(dir)))
}

/// The same, with something to be done while nobody else can start one.
fn start_prepared(
    dir: &Path,
    cgroup_procs: &[PathBuf],
    prepare: &dyn Fn(&Dir) -> io::Result<Role>,
) -> Result<Started, StartError> {
    let dir = Dir::create(dir)?;
    let failed = |source| StartError::Io { dir: dir.root().to_owned(), source };
    let Some(lock) = take_lock(&dir, || answers(&dir))? else { return Ok(Started::Before) };
    let role = prepare(&dir).map_err(failed)?;
    let before = dir.log_file().and_then(|log| log.metadata()).map_or(0, |meta| meta.len());
    let died = || StartError::Died { dir: dir.root().to_owned(), last_words: last_words(&dir, before) };
    let (mut ready, theirs) = io::pipe().map_err(failed)?;
    let counter = oom::counter_of(cgroup_procs);
    let mut things = vec![("lock".into(), lock.as_fd()), ("ready".into(), theirs.as_fd())];
    things.extend(counter.as_ref().map(|counter| (COUNTER.to_owned(), counter.as_fd())));
    match keeper(&dir, &role, &things, None) {
        Ok(status) if status.success() => {}
        Ok(_) => return Err(died()),
        // It was gone before it had everything.
        Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
            return Err(died());
        }
        Err(error) => return Err(failed(error)),
    }
    drop((lock, theirs));
    let mut byte = [0];
    match ready.read(&mut byte).map_err(failed)? {
        0 => Err(died()),
        _ => Ok(Started::Now),
    }
}

/// Waits until the directory is ours alone. `None`: `is_served` said meanwhile that somebody serves there.
fn take_lock(dir: &Dir, is_served: impl Fn() -> bool) -> Result<Option<File>, StartError> {
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(NOT_ELSEWHERE);
    let failed = |source| StartError::Io { dir: dir.root().to_owned(), source };
    let lock = options.open(dir.lock()).map_err(failed)?;
    let until = Instant::now() + PATIENCE;
    while rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        if is_served() {
            return Ok(None);
        }
        if Instant::now() > until {
            return Err(StartError::Silent(dir.root().to_owned()));
        }
        // Somebody else is about to bind the socket, or about to die and let go of the lock. There is no event for
        // "either"; this happens once in the life of a directory.
        let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        let _ = rustix::event::poll(&mut [], Some(&pause));
    }
    Ok(Some(lock))
}

/// What a keeper has to begin with when nobody hands it anything, because it is the first process of a container: the
/// directory, its lock, and a link that brings that. Who lived there before may still be dying, so it is waited for.
pub(crate) fn alone(dir: &Path) -> Result<(Dir, OwnedFd), StartError> {
    let dir = Dir::create(dir)?;
    let failed = |source| StartError::Io { dir: dir.root().to_owned(), source };
    let lock = take_lock(&dir, || false)?.ok_or_else(|| StartError::Silent(dir.root().to_owned()))?;
    let (ours, theirs) = packet::pair().map_err(failed)?;
    packet::send(&ours, b"Slock", Some(lock.as_fd()), Wait::Block).map_err(failed)?;
    if let Some(counter) = oom::counter_of_container() {
        packet::send(&ours, format!("S{COUNTER}").as_bytes(), Some(counter.as_fd()), Wait::Block).map_err(failed)?;
    }
    packet::send(&ours, b"Z", None, Wait::Block).map_err(failed)?;
    Ok((dir, theirs))
}

/// What the log has got since it was `before` bytes long, or the end of that.
fn last_words(dir: &Dir, before: u64) -> String {
    let read = || {
        let mut log = File::options().read(true).custom_flags(NOT_ELSEWHERE).open(dir.log())?;
        let length = log.metadata()?.len();
        log.seek(SeekFrom::Start(before.max(length.saturating_sub(LAST_WORDS))))?;
        let mut bytes = Vec::new();
        log.take(LAST_WORDS).read_to_end(&mut bytes)?;
        io::Result::Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    read().unwrap_or_default()
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
) -> io::Result<ExitStatus> {
    let (ours, theirs) = packet::pair()?;
    let log = dir.log_file().map_or_else(|_| Stdio::null(), Stdio::from);
    let mut child = spawn::successor(&role.program, &role.arguments, theirs, log, open_files)?;
    let hand_over = || {
        for (name, fd) in things {
            packet::send(&ours, format!("S{name}").as_bytes(), Some(*fd), Wait::Block)?;
        }
        packet::send(&ours, b"Z", None, Wait::Block)
    };
    let handed_over = hand_over();
    // It has left for a process of its own; what we started ends at once.
    let status = child.wait()?;
    handed_over.map(|()| status)
}

/// How this program is called in a role over a directory.
pub(crate) fn arguments(call: &[String], role: &str, dir: &Path, settings: &Settings) -> Vec<String> {
    let mut arguments = call.to_vec();
    arguments.extend([role.to_owned(), "--dir".to_owned(), dir.to_string_lossy().into_owned()]);
    arguments.extend(["--journal-limit".to_owned(), settings.journal_limit.to_string()]);
    arguments.extend(["--command-limit".to_owned(), settings.command_limit.to_string()]);
    arguments.extend(["--shell-limit".to_owned(), settings.shell_limit.to_string()]);
    arguments
}
