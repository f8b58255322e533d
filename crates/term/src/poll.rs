//! Waiting for many descriptors at once.

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// What a watcher wants to hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    Read,
    ReadWrite,
    /// Told once when it becomes readable or its last writer goes; the owner reads until there is nothing. A pipe
    /// without writers would be ready for ever otherwise.
    ReadEdge,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Self::Read => EventFlags::IN,
            Self::ReadWrite => EventFlags::IN | EventFlags::OUT,
            Self::ReadEdge => EventFlags::IN | EventFlags::ET,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    pub token: u64,
    pub readable: bool,
    pub writable: bool,
    /// The other side is gone.
    pub hung_up: bool,
}

pub struct Poller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poller").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

/// One wake-up never has more to say than this; the rest is told by the next.
const BATCH: usize = 64;

impl Poller {
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, events: Vec::with_capacity(BATCH) })
    }

    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token), interest.flags())?)
    }

    pub fn change(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, EventData::new_u64(token), interest.flags())?)
    }

    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits until something is ready or the time is over; an interrupted wait is an empty one.
    pub fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        self.events.clear();
        let timeout = timeout.map(timespec);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        ready.extend(self.events.iter().map(|event| {
            let flags = event.flags;
            Ready {
                token: event.data.u64(),
                readable: flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP),
                writable: flags.contains(EventFlags::OUT),
                hung_up: flags.intersects(EventFlags::HUP | EventFlags::ERR),
            }
        }));
        Ok(())
    }
}

/// As the kernel wants it.
pub fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(time.subsec_nanos()) }
}

/// Waits until one descriptor is readable or the time is over.
pub fn readable(fd: impl AsFd, time: Duration) -> io::Result<()> {
    one(&fd, PollFlags::IN, time)
}

/// Waits until the file of a kernel object (in `/sys` or a cgroup) has changed since it was last read, or the time is
/// over.
pub(crate) fn changed(fd: impl AsFd, time: Duration) -> io::Result<()> {
    one(&fd, PollFlags::PRI, time)
}

fn one(fd: &impl AsFd, flags: PollFlags, time: Duration) -> io::Result<()> {
    match rustix::event::poll(&mut [PollFd::new(fd, flags)], Some(&timespec(time))) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Lets time pass; only between two looks at something that the kernel tells by no event.
pub fn nap(time: Duration) {
    let _ = rustix::event::poll(&mut [], Some(&timespec(time)));
}

/// Looks until the answer is yes or the deadline has passed, ever less often. Whether it was yes.
pub(crate) fn until(deadline: Instant, mut look: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    let mut pause = Duration::from_micros(100);
    loop {
        if look()? {
            return Ok(true);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        nap(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}
