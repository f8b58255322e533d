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
use stead_term::proc;

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
        let file = File::options().read(true).custom_flags(NOT_ELSEWHERE).open(dir.enclosed()).ok()?;
        let mut text = String::new();
        file.take(128).read_to_string(&mut text).ok()?;
        let mut words = text.trim_end_matches('\n').split(' ');
        let enclosed = Self { pid: words.next()?.parse().ok()?, start_time: words.next()?.parse().ok()? };
        let is_of_this_boot = words.next()? == proc::boot_id();
        enclosed.hold().filter(|_| is_of_this_boot).map(|_| enclosed)
    }

    /// A descriptor of the process, if it is still that one and lives. What `/proc` says of its state is no help there: the
    /// first thread may be dead and others not, and as long as one lives so does everybody inside.
    fn hold(self) -> Option<OwnedFd> {
        let held = proc::pidfd(self.pid).ok()??;
        let is_it = proc::stat(self.pid).is_some_and(|stat| stat.start_time == self.start_time);
        (is_it && !has_ended(&held, Duration::ZERO)).then_some(held)
    }
}

/// Waits until nobody is left of what is enclosed in a directory, if anything is. `false`: somebody still is.
pub fn await_end(dir: &Dir) -> bool {
    Enclosed::of(dir).and_then(Enclosed::hold).is_none_or(|held| has_ended(&held, PATIENCE))
}

/// Ends at once whatever is enclosed in a directory, and waits until nobody is left. Nothing is asked: what a running
/// command has written is in the journal but for what was on its way.
pub fn end_enclosure(dir: &Path) -> Result<(), StartError> {
    let dir = Dir::open(dir)?;
    let Some(held) = Enclosed::of(&dir).and_then(Enclosed::hold) else { return Ok(()) };
    let failed = |source: io::Error| StartError::Io { dir: dir.root().to_owned(), source };
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
