//! One group: a directory in each hierarchy that serves a need.

use super::files::{self, Made, at, gone};
use super::{DIRECTORY, Home, Interface, Limits, Memory, Need, Swap, Version, Warning};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Debug, Clone)]
pub struct Group {
    name: String,
    seats: Vec<Seat>,
}

/// The group in one hierarchy.
#[derive(Debug, Clone)]
struct Seat {
    version: Version,
    parent: PathBuf,
    directory: PathBuf,
    needs: Vec<Need>,
}

/// What a group uses now, and what it may; `None` where nothing here counts it, or there is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Since the group was made, of processes that have ended too.
    pub cpu_micros: Option<u64>,
    pub cpu_limit_millis: Option<u32>,
    /// With the files it has in the page cache.
    pub memory_bytes: Option<u64>,
    pub memory_limit: Option<u64>,
    /// Processes that were killed because the group had no more memory.
    pub oom_kills: Option<u64>,
    pub processes: Option<u64>,
    /// Processes with their threads, which is what the limit is about.
    pub tasks: Option<u64>,
    pub tasks_limit: Option<u64>,
}

impl Group {
    pub(super) fn new(name: &str, homes: &[Home]) -> Self {
        let seat = |home: &Home| Seat {
            version: home.version,
            parent: home.parent.clone(),
            directory: home.parent.join(DIRECTORY).join(name),
            needs: home.needs.clone(),
        };
        Self { name: name.to_owned(), seats: homes.iter().map(seat).collect() }
    }

    pub(super) fn existing(name: &str, homes: &[Home]) -> Option<Self> {
        let mut group = Self::new(name, homes);
        group.seats.retain(|seat| seat.directory.is_dir());
        (!group.seats.is_empty()).then_some(group)
    }

    /// Makes what isn't there yet; all of it or nothing.
    pub(super) fn make(&self) -> io::Result<()> {
        let mut made = Vec::new();
        for seat in &self.seats {
            match files::make_group(&seat.directory) {
                Ok(Made::New) => made.push(seat),
                Ok(Made::Reused) => {}
                Err(error) => {
                    for seat in made {
                        let _ = fs::remove_dir(&seat.directory);
                        let _ = fs::remove_dir(seat.parent.join(DIRECTORY));
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Sets every limit, also to none; tells which of those that were asked for don't hold.
    pub(super) fn limit<'a>(&self, limits: &Limits, why_not: impl Fn(Need) -> &'a str) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let mut warn = |code, what: &str, why: &str| {
            warnings.push(Warning { code, message: format!("{what} of `{}` is not limited: {why}", self.name) });
        };
        let mut set = |need, asked: bool, code, what, set: &dyn Fn(&Seat) -> io::Result<Swap>| {
            let Some(seat) = self.seat(need) else {
                if asked {
                    warn(code, what, why_not(need));
                }
                return;
            };
            let enabled = match (seat.version, need.controller()) {
                (Version::V2, Some(controller)) => files::enable(&seat.parent, controller),
                (Version::V1 | Version::V2, _) => Ok(()),
            };
            match enabled.and_then(|()| set(seat)) {
                Err(error) if asked => warn(code, what, &error.to_string()),
                Ok(Swap::Free(why)) if asked => warn("swap-not-limited", "swap", &why),
                Ok(_) | Err(_) => {}
            }
        };
        set(Need::Memory, limits.memory.is_some(), "memory-not-limited", "memory", &|seat| {
            seat.interface().limit_memory(&seat.directory, limits.memory)
        });
        set(Need::Processes, limits.processes.is_some(), "processes-not-limited", "the number of processes", &|seat| {
            let value = limits.processes.map_or("max".to_owned(), |most| most.to_string());
            files::write(&seat.directory.join("pids.max"), &value).map(|()| Swap::Bound)
        });
        set(Need::Cpu, limits.cpu_millis.is_some(), "cpu-not-limited", "processor time", &|seat| {
            seat.interface().limit_cpu(&seat.directory, limits.cpu_millis).map(|()| Swap::Bound)
        });
        warnings
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// A process joins by writing `0`, or is put in by writing its pid, to each of these.
    pub fn procs_files(&self) -> Vec<PathBuf> {
        self.seats.iter().map(|seat| seat.directory.join("cgroup.procs")).collect()
    }

    /// Puts a process in with all its threads. Its children from now on are born inside; those it has already stay
    /// where they are.
    pub fn add(&self, pid: i32) -> io::Result<()> {
        self.procs_files().iter().try_for_each(|file| files::write(file, &pid.to_string()))
    }

    /// Stops every process where it is, and returns when they are stopped. What doesn't stop in time lets all go on,
    /// and is an error.
    pub fn freeze(&self, within: Duration) -> io::Result<()> {
        let seat = self.seat_for(Need::Freeze)?;
        self.not_ourselves()?;
        let frozen = seat.interface().freeze(&seat.directory, Instant::now() + within);
        if !matches!(frozen, Ok(true)) {
            let _ = seat.interface().thaw(&seat.directory, Instant::now());
        }
        self.in_time(frozen?, within, "freeze")
    }

    /// Lets them go on.
    pub fn thaw(&self, within: Duration) -> io::Result<()> {
        let seat = self.seat_for(Need::Freeze)?;
        let thawed = seat.interface().thaw(&seat.directory, Instant::now() + within)?;
        self.in_time(thawed, within, "thaw")
    }

    pub fn is_frozen(&self) -> io::Result<bool> {
        let seat = self.seat_for(Need::Freeze)?;
        seat.interface().is_frozen(&seat.directory)
    }

    /// Kills every process, also what they fork meanwhile, and returns when none is left. A frozen group is thawed by
    /// it: whoever joins next is to run.
    ///
    /// Whoever makes or removes a group may be killed before the last directory of it. Processes join when all are
    /// there and directories go when no process is left, so such a half has nobody to kill.
    pub fn kill(&self, within: Duration) -> io::Result<()> {
        let seat = match self.seat_for(Need::Kill) {
            Err(_) if self.pids()?.is_empty() => return Ok(()),
            seat => seat?,
        };
        self.not_ourselves()?;
        let deadline = Instant::now() + within;
        let ended = seat.interface().kill(&seat.directory, deadline)?;
        if let Some(seat) = self.seat(Need::Freeze) {
            match seat.interface().thaw(&seat.directory, deadline) {
                Err(error) if !gone(&error) => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        self.in_time(ended, within, "kill")
    }

    /// The processes that are in it, with those of groups that were made below.
    pub fn pids(&self) -> io::Result<Vec<i32>> {
        let seat = self.seat(Need::Kill).or(self.seats.first());
        let mut pids = seat.map_or(Ok(Vec::new()), |seat| files::processes(&seat.directory))?;
        pids.retain(|&pid| pid != 0);
        Ok(pids)
    }

    pub fn usage(&self) -> Usage {
        let memory = self.seat(Need::Memory).map_or(Memory::default(), |seat| seat.interface().memory(&seat.directory));
        let cpu_time = self.seat(Need::CpuTime);
        let tasks = |file: &str| files::number(&self.seat(Need::Processes)?.directory.join(file));
        let processes = if self.seats.is_empty() { None } else { self.pids().ok() };
        Usage {
            cpu_micros: cpu_time.and_then(|seat| seat.interface().cpu_micros(&seat.directory)),
            cpu_limit_millis: self.seat(Need::Cpu).and_then(|seat| seat.interface().cpu_limit(&seat.directory)),
            memory_bytes: memory.bytes,
            memory_limit: memory.limit,
            oom_kills: memory.oom_kills,
            processes: processes.map(|pids| pids.len() as u64),
            tasks: tasks("pids.current"),
            tasks_limit: tasks("pids.max"),
        }
    }

    /// Removes the group, with groups that were made below. It must have no processes; those that are about to end are
    /// waited for.
    pub fn remove(&self, within: Duration) -> io::Result<()> {
        let deadline = Instant::now() + within;
        for seat in &self.seats {
            seat.remove(deadline)?;
            // Only the last one succeeds.
            let _ = fs::remove_dir(seat.parent.join(DIRECTORY));
        }
        Ok(())
    }

    fn seat(&self, need: Need) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.needs.contains(&need))
    }

    fn seat_for(&self, need: Need) -> io::Result<&Seat> {
        let text = || format!("no cgroup of `{}` serves as {need}", self.name);
        self.seat(need).ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, text()))
    }

    /// We could never thaw ourselves.
    fn not_ourselves(&self) -> io::Result<()> {
        let us = i32::try_from(std::process::id()).unwrap_or(0);
        if !self.pids()?.contains(&us) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("this process itself is in group `{}`", self.name)))
    }

    fn in_time(&self, done: bool, within: Duration, what: &str) -> io::Result<()> {
        if done {
            return Ok(());
        }
        let text = format!("group `{}` did not {what} within {within:?}", self.name);
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    }
}

impl Seat {
    fn interface(&self) -> &'static dyn Interface {
        self.version.interface()
    }

    fn remove(&self, deadline: Instant) -> io::Result<()> {
        let all = || files::subtree(&self.directory).iter().try_for_each(|group| remove_one(group));
        loop {
            match all() {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    if Instant::now() >= deadline {
                        return Err(error);
                    }
                    // The kernel may need a moment more after the last has ended.
                    if self.interface().wait_empty(&self.directory, deadline)? {
                        crate::poll::nap(Duration::from_millis(1));
                    }
                }
                other => return other,
            }
        }
    }
}

fn remove_one(group: &Path) -> io::Result<()> {
    match fs::remove_dir(group) {
        Err(error) if !gone(&error) => Err(at(group, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}
