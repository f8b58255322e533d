//! The steward's end of its link to the keeper.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use stead_term::packet::{self, Wait};

/// Descriptors by name, as the keeper has them.
pub(crate) type Store = BTreeMap<String, OwnedFd>;

#[derive(Debug)]
pub(crate) struct Link {
    socket: OwnedFd,
    /// Exit statuses that nobody has asked for yet, by pid and start time: a pid is given again, and most of these are of
    /// orphans that nobody will ever ask for.
    reaped: HashMap<(i32, u64), i32>,
    /// The same in the order in which they came, and some that have been asked for since.
    oldest: VecDeque<(i32, u64)>,
    /// How many of those that ended had been sent SIGKILL.
    killed: u64,
}

/// More unclaimed statuses than this are orphans of orphans: the oldest are forgotten. Not all, for one of a shell may
/// just have come.
const UNCLAIMED: usize = 4096;

/// The start time of a process that a keeper of an earlier version told of: it says none.
const UNKNOWN: u64 = 0;

/// Which process has ended, by pid and start time, and its status.
fn read_reaped(numbers: &[u8]) -> Option<((i32, u64), i32)> {
    let pid = i32::from_be_bytes(*numbers.first_chunk()?);
    let status = i32::from_be_bytes(*numbers.last_chunk()?);
    let start_time = match numbers.len() {
        8 => UNKNOWN,
        _ => u64::from_be_bytes(*numbers.get(4..)?.first_chunk()?),
    };
    Some(((pid, start_time), status))
}

/// What is said of a socket whose other end is gone.
fn is_dead(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected)
}

impl Link {
    /// Takes everything back that the keeper has kept.
    pub(crate) fn receive(socket: OwnedFd) -> io::Result<(Self, Store)> {
        let mut link = Self { socket, reaped: HashMap::new(), oldest: VecDeque::new(), killed: 0 };
        let mut store = Store::new();
        loop {
            let Some((bytes, fd)) = packet::receive(&link.socket, Wait::Block)? else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            match (bytes.split_first(), fd) {
                (Some((b'F', name)), Some(fd)) => {
                    store.insert(String::from_utf8_lossy(name).into_owned(), fd);
                }
                (Some((b'Z', _)), _) => return Ok((link, store)),
                _ => link.note(&bytes),
            }
        }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn note(&mut self, bytes: &[u8]) {
        let Some((b'R', numbers)) = bytes.split_first() else { return };
        if let Some((process, status)) = read_reaped(numbers) {
            self.killed += u64::from(ExitStatus::from_raw(status).signal() == Some(9));
            self.reaped.insert(process, status);
            self.oldest.push_back(process);
            while self.oldest.len() > UNCLAIMED {
                if let Some(process) = self.oldest.pop_front() {
                    self.reaped.remove(&process);
                }
            }
        }
    }

    /// Reads what has come. `false`: the keeper is dead.
    pub(crate) fn poll(&mut self) -> bool {
        loop {
            match packet::receive(&self.socket, Wait::Never) {
                Ok(Some((bytes, _))) => self.note(&bytes),
                Ok(None) => return false,
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    /// How many that the keeper has reaped were killed: shells, and what has outlived whoever started it.
    pub(crate) fn killed(&self) -> u64 {
        self.killed
    }

    /// The wait status of a process that has ended, once.
    pub(crate) fn take_status(&mut self, pid: i32, start_time: u64) -> Option<i32> {
        let known = |reaped: &Self| match start_time {
            // It was gone before anybody could look.
            UNKNOWN => reaped.reaped.keys().filter(|(ended, _)| *ended == pid).max().copied(),
            _ => [(pid, start_time), (pid, UNKNOWN)].into_iter().find(|process| reaped.reaped.contains_key(process)),
        };
        let process = known(self)?;
        self.reaped.remove(&process)
    }

    /// Once this returns the descriptor outlives us: it is in the socket, which the keeper empties before it starts
    /// another steward. With a keeper that is dead it is not, and that is no error: [`Self::poll`] notices it, and the
    /// next keeper gets everything that we have.
    pub(crate) fn park(&self, name: &str, fd: impl AsFd) -> io::Result<()> {
        match packet::send(&self.socket, format!("S{name}").as_bytes(), Some(fd.as_fd()), Wait::Block) {
            Err(error) if is_dead(&error) => Ok(()),
            sent => sent,
        }
    }

    pub(crate) fn unpark(&self, name: &str) {
        // If the keeper is dead there is nothing to drop.
        let _ = packet::send(&self.socket, format!("D{name}").as_bytes(), None, Wait::Block);
    }

    /// We serve: if we die now it is not because we can't.
    pub(crate) fn serving(&self) {
        let _ = packet::send(&self.socket, b"U", None, Wait::Block);
    }

    /// The keeper is to end when we do.
    pub(crate) fn stop(&self) {
        let _ = packet::send(&self.socket, b"Q", None, Wait::Block);
    }
}
