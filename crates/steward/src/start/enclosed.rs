//! A steward in namespaces of its own: how it is started, and how its end is awaited or forced.

use super::{Settings, StartError, Started, arguments, start_prepared};
use crate::dir::{Dir, NOT_ELSEWHERE, write_atomically};
use crate::keeper::Role;
use rustix::event::{PollFd, PollFlags};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use stead_model::enclosure::Enclosure;
use stead_term::{proc, scarce};

/// How long the end of an enclosure may take: the kernel ends all its processes, of which some may be writing.
const PATIENCE: Duration = Duration::from_secs(10);

/// Larger than any enclosure that was written by us.
const LARGEST_SPEC: u64 = 1 << 20;

/// Makes sure that a steward runs over `dir`, enclosed as `enclosure` says; its `place` is set to `dir`. `call` is how
/// the enclosure's program is called as a steward: nothing for `steward`, the word `steward` for `stead`. Returns when
/// clients can connect.
pub fn start_enclosed(
    dir: &Path,
    enclosure: &Enclosure,
    call: &[&str],
    settings: &Settings,
) -> Result<Started, StartError> {
    let call: Vec<_> = call.iter().map(|word| (*word).to_owned()).collect();
    start_prepared(dir, &enclosure.cgroup_procs, &|dir| {
        // The lock is free a moment before everybody inside is dead, and whoever still is there could write what we are
        // about to write.
        if !await_end(dir) {
            return Err(io::Error::other("what was enclosed here before does not end"));
        }
        let enclosure = Enclosure { place: dir.root().to_owned(), ..enclosure.clone() };
        write_atomically(&dir.spec(), &minicbor::to_vec(&enclosure).map_err(io::Error::other)?)?;
        let mut arguments = arguments(&call, "enclose", dir.root(), settings);
        arguments.extend(["--spec".to_owned(), dir.spec().to_string_lossy().into_owned()]);
        Ok(Role { program: enclosure.program, arguments })
    })
}

pub(crate) fn read_spec(path: &Path) -> io::Result<Enclosure> {
    let file = File::options().read(true).custom_flags(NOT_ELSEWHERE).open(path)?;
    let mut bytes = Vec::new();
    file.take(LARGEST_SPEC).read_to_end(&mut bytes)?;
    minicbor::decode(&bytes).map_err(io::Error::other)
}

/// The first process of an enclosure, as the host knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enclosed {
    pub pid: i32,
    /// With the pid it names one process as long as the machine isn't started again.
    pub start_time: u64,
}

impl Enclosed {
    /// The one that runs over a directory, if one does. One of another boot is dead, whoever has its numbers now.
    pub fn of(dir: &Dir) -> Option<Self> {
        Self::find(dir).ok().flatten()
    }

    /// The same for whoever must not take it for dead because there was no descriptor to look at it: that is an error.
    pub fn find(dir: &Dir) -> io::Result<Option<Self>> {
        let Some(noted) = Self::noted(dir)? else { return Ok(None) };
        Ok(noted.hold()?.map(|_| noted))
    }

    /// As it was written down in this boot.
    fn noted(dir: &Dir) -> io::Result<Option<Self>> {
        let file = File::options().read(true).custom_flags(NOT_ELSEWHERE).open(dir.enclosed());
        let mut text = String::new();
        match file.and_then(|file| file.take(128).read_to_string(&mut text)) {
            Err(error) if scarce::is_passing(&error) => return Err(error),
            Ok(_) | Err(_) => {}
        }
        let mut words = text.trim_end_matches('\n').split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let enclosed = number().zip(number()).and_then(|(pid, start_time)| {
            let pid = i32::try_from(pid).ok()?;
            Some(Self { pid, start_time })
        });
        Ok(enclosed.filter(|_| words.next() == Some(proc::boot_id())))
    }

    /// A descriptor of the process, if it is still that one and lives. What `/proc` says of its state is no help there: the
    /// first thread may be dead and others not, and as long as one lives so does everybody inside.
    fn hold(self) -> io::Result<Option<OwnedFd>> {
        let held = match proc::pidfd(self.pid) {
            Err(error) if scarce::is_passing(&error) => return Err(error),
            held => held.ok().flatten(),
        };
        let is_it = proc::look(self.pid)?.is_some_and(|stat| stat.start_time == self.start_time);
        Ok(held.filter(|held| is_it && !has_ended(held, Duration::ZERO)))
    }

    /// A descriptor of the one that runs over a directory.
    fn held(dir: &Dir) -> io::Result<Option<OwnedFd>> {
        match Self::noted(dir)? {
            Some(noted) => noted.hold(),
            None => Ok(None),
        }
    }
}

/// Waits until nobody is left of what is enclosed in a directory, if anything is. `false`: somebody still is.
pub fn await_end(dir: &Dir) -> bool {
    Enclosed::held(dir).is_ok_and(|held| held.is_none_or(|held| has_ended(&held, PATIENCE)))
}

/// Ends at once whatever is enclosed in a directory, and waits until nobody is left. Nothing is asked: what a running
/// command has written is in the journal but for what was on its way.
pub fn end_enclosure(dir: &Path) -> Result<(), StartError> {
    let dir = Dir::open(dir)?;
    let failed = |source: io::Error| StartError::Io { dir: dir.root().to_owned(), source };
    let Some(held) = Enclosed::held(&dir).map_err(failed)? else { return Ok(()) };
    match rustix::process::pidfd_send_signal(&held, rustix::process::Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => return Err(failed(error.into())),
    }
    if has_ended(&held, PATIENCE) { Ok(()) } else { Err(failed(io::ErrorKind::TimedOut.into())) }
}

fn has_ended(process: &OwnedFd, within: Duration) -> bool {
    let until = Instant::now() + within;
    loop {
        let mut ended = [PollFd::new(process, PollFlags::IN)];
        let left = until.saturating_duration_since(Instant::now());
        match rustix::event::poll(&mut ended, rustix::time::Timespec::try_from(left).ok().as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            polled => return polled.is_ok_and(|ready| ready > 0),
        }
    }
}
