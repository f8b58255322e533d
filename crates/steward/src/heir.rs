//! The heir: a process that has a copy of every pipe a command writes to, and does nothing, until steward and keeper are
//! both dead. Without it the kernel would throw away what lies in those pipes as soon as their writers have ended too.
//! The heir moves it to files beside the FIFOs and ends; the next steward adds them to the journal.
//!
//! ```text
//! holding ── last copy of the link closed (both are dead) ──► emptying ── every writer gone, or rung ──► ended
//! ```
//!
//! Its link is held by the steward and parked with the keeper, so it breaks only when both are gone.
//!
//! There is none where the keeper is the first process of a namespace: the kernel kills a heir in the same moment as all
//! others, so that it would save a part of the bytes, and that after somebody has counted them.

use crate::dir::Dir;
use crate::host::Source;
use crate::keeper::Role;
use crate::link::{Link, Store};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use stead_term::fifo::{self, Moved};
use stead_term::packet::{self, Wait};
use stead_term::poll::{Interest, Poller};
use stead_term::spawn::{self, OpenFiles};

/// The name of its link in the keeper, and of its bell in the directory.
const NAME: &str = "heir";

/// How long a full disk is left alone.
const RETRY: Duration = Duration::from_millis(100);

/// A heir that was rung and has not ended by then has a full disk.
const PATIENCE: Duration = Duration::from_secs(10);

/// The steward's end.
#[derive(Debug)]
pub(crate) struct Heir {
    /// `None`: there is to be none.
    role: Option<Role>,
    link: Option<OwnedFd>,
    /// If this steward started it: a child to reap.
    child: Option<Child>,
}

impl Heir {
    /// Finds the one of the steward before us. There is none before the first shell.
    pub(crate) fn adopt(role: Option<Role>, poller: &Poller, store: &mut Store) -> io::Result<Self> {
        let link = store.remove(NAME);
        if let Some(link) = &link {
            poller.add(link, Source::Heir.token(), Interest::Read)?;
        }
        Ok(Self { role, link, child: None })
    }

    pub(crate) fn is_there(&self) -> bool {
        self.link.is_some()
    }

    pub(crate) fn link(&self) -> Option<(String, BorrowedFd<'_>)> {
        self.link.as_ref().map(|link| (NAME.to_owned(), link.as_fd()))
    }

    /// Starts one; `things` are what it is to hold from the beginning.
    pub(crate) fn start(
        &mut self,
        dir: &Dir,
        poller: &Poller,
        keeper: &Link,
        open_files: OpenFiles,
        things: &[(String, BorrowedFd<'_>)],
    ) -> io::Result<()> {
        let Some(role) = &self.role else { return Ok(()) };
        // One that ended by itself.
        if let Some(mut child) = self.child.take() {
            child.wait()?;
        }
        let bell = dir.root().join(NAME);
        match std::fs::remove_file(&bell) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fifo::make(&bell)?,
        }
        let (ours, theirs) = packet::pair()?;
        let log = dir.log_file().map_or_else(|_| Stdio::null(), Stdio::from);
        self.child = Some(spawn::successor(&role.program, &role.arguments, theirs, log, Some(open_files))?);
        // Sent, not opened over there: whoever rings finds it from this moment on.
        packet::send(&ours, format!("S{NAME}").as_bytes(), Some(fifo::open_both(&bell)?.as_fd()), Wait::Block)?;
        for (name, fd) in things {
            packet::send(&ours, format!("S{name}").as_bytes(), Some(*fd), Wait::Block)?;
        }
        keeper.park(NAME, &ours)?;
        poller.add(&ours, Source::Heir.token(), Interest::Read)?;
        self.link = Some(ours);
        Ok(())
    }

    /// Somebody killed it.
    pub(crate) fn is_dead(&mut self, poller: &Poller) {
        if let Some(link) = self.link.take() {
            let _ = poller.remove(&link);
        }
    }

    pub(crate) fn give(&self, name: &str, fd: impl AsFd) {
        // A dead one is noticed by its link, and the next one gets everything.
        if let Some(link) = &self.link {
            let _ = packet::send(link, format!("S{name}").as_bytes(), Some(fd.as_fd()), Wait::Block);
        }
    }

    pub(crate) fn take_back(&self, name: &str) {
        if let Some(link) = &self.link {
            let _ = packet::send(link, format!("D{name}").as_bytes(), None, Wait::Block);
        }
    }
}

/// The process.
pub(crate) fn run(dir: &Dir, link: &OwnedFd) -> io::Result<()> {
    rustix::process::setsid()?;
    spawn::raise_open_files()?;
    rustix::process::chdir("/")?;
    let mut held = BTreeMap::new();
    loop {
        let packet = packet::receive(link, Wait::Block);
        match packet.as_ref().map(|packet| packet.as_ref().and_then(|(bytes, _)| bytes.split_first())) {
            Ok(Some((b'D', name))) => {
                held.remove(&String::from_utf8_lossy(name).into_owned());
            }
            Ok(Some((_, name))) => {
                let name = String::from_utf8_lossy(name).into_owned();
                if let Ok(Some((_, Some(fd)))) = packet {
                    held.insert(name, fd);
                }
            }
            Ok(None) | Err(_) => break,
        }
    }
    let bell = held.remove(NAME);
    let names: Vec<_> = held.keys().filter(|name| !name.contains(":b")).cloned().collect();
    let wills = names.into_iter().filter_map(|name| {
        // Of one stream, what was on its way to the journal comes first.
        let basin = held.remove(&name.replacen(':', ":b", 1));
        Some(Will { to: left_file(dir, &name)?, fifo: held.remove(&name)?, basin, file: None })
    });
    let wills = wills.collect();
    empty(wills, bell.as_ref())
}

/// Something in a pipe, and where it goes.
struct Will {
    basin: Option<OwnedFd>,
    fifo: OwnedFd,
    to: PathBuf,
    /// Opened with the first byte.
    file: Option<(File, u64)>,
}

/// Where the rest of a stream goes whose FIFO the keeper knows as `K:o:N` or `K:e:N`.
fn left_file(dir: &Dir, name: &str) -> Option<PathBuf> {
    let mut parts = name.split(':');
    let key = parts.next()?.parse().ok()?;
    let (stream, pair) = (parts.next()?, parts.next()?.parse::<u64>().ok()?);
    Some(dir.run(key).join(format!("left-{stream}.{pair}")))
}

fn empty(mut wills: Vec<Will>, bell: Option<&OwnedFd>) -> io::Result<()> {
    let mut rung = false;
    loop {
        let mut full = false;
        let mut failed = None;
        wills.retain_mut(|will| match will.execute() {
            Ok(Moved::Closed) => false,
            Ok(moved) => {
                full |= matches!(moved, Moved::NoSpace);
                true
            }
            // The others must not suffer for it.
            Err(error) => {
                failed = Some(error);
                false
            }
        });
        if let Some(error) = failed {
            note!("heir: {error}");
        }
        if wills.is_empty() || (rung && !full) {
            return Ok(());
        }
        let mut ready: Vec<_> = bell.map(|bell| PollFd::new(bell, PollFlags::IN)).into_iter().collect();
        if !full {
            ready.extend(wills.iter().map(|will| PollFd::new(&will.fifo, PollFlags::IN)));
        }
        let wait = rustix::time::Timespec::try_from(RETRY).ok().filter(|_| full);
        match rustix::event::poll(&mut ready, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // What is there now is moved once more before we go.
        rung |= bell.is_some() && ready.first().is_some_and(|bell| !bell.revents().is_empty());
    }
}

impl Will {
    /// Moves all there is.
    fn execute(&mut self) -> io::Result<Moved> {
        loop {
            let pipe = self.basin.as_ref().unwrap_or(&self.fifo);
            if self.file.is_none() && fifo::pending(pipe)? > 0 {
                let opened = File::options().write(true).create(true).truncate(false).mode(0o600).open(&self.to)?;
                let length = opened.metadata()?.len();
                self.file = Some((opened, length));
            }
            let moved = match &mut self.file {
                Some((file, length)) => {
                    let moved = fifo::splice(pipe, file, *length, 1 << 20)?;
                    if let Moved::Bytes(bytes) = moved {
                        *length += bytes;
                    }
                    moved
                }
                None => match fifo::Probe::new()?.look(pipe)? {
                    fifo::Condition::Closed => Moved::Closed,
                    fifo::Condition::Empty => Moved::Empty,
                    // It came between the two looks.
                    fifo::Condition::HasBytes => continue,
                },
            };
            match moved {
                Moved::Bytes(_) => {}
                Moved::Closed if self.basin.is_some() => self.basin = None,
                end @ (Moved::Empty | Moved::Closed | Moved::NoSpace) => return Ok(end),
            }
        }
    }
}

/// Lets the heir of a steward and keeper that are both dead finish. What comes back keeps alive whatever is written
/// after it has gone, until it is dropped.
pub(crate) fn settle(dir: &Dir) -> io::Result<Vec<OwnedFd>> {
    let mut readers = Vec::new();
    for key in dir.journals()? {
        for entry in std::fs::read_dir(dir.run(key)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with("o.") || name.starts_with("e.")) {
                readers.extend(fifo::open_reader(&entry.path()));
            }
        }
    }
    let bell = match fifo::open_writer(&dir.root().join(NAME)) {
        // Nobody has it open: there is none.
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NXIO | Errno::NOENT)) => return Ok(readers),
        opened => opened?,
    };
    rustix::io::write(&bell, b"1")?;
    let until = Instant::now() + PATIENCE;
    let mut gone = [PollFd::new(&bell, PollFlags::empty())];
    while gone.iter().all(|bell| bell.revents().is_empty()) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            note!("steward: the heir can't finish; is the disk full?");
            break;
        }
        let _ = rustix::event::poll(&mut gone, rustix::time::Timespec::try_from(left).ok().as_ref());
    }
    Ok(readers)
}
