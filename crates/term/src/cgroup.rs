//! Limits, pause and metrics for a tree of processes, by cgroups of either version.
//!
//! What a machine offers differs: one hierarchy of version 2, several of version 1, both (version 2 without
//! controllers), or nothing that is ours to write to. [`Cgroups::detect`] tries what works and names for each [`Need`]
//! the hierarchy that serves it; a [`Group`] is one directory in each of those. Nothing is remembered outside the
//! kernel: a server that starts again finds its groups by name.
//!
//! A limit that can't be enforced is a [`Warning`], never silence. Whoever is root inside a group and sees the cgroup
//! files can lift its limits; hiding them is the sandbox's business. Where no cgroup serves, [`crate::tree`] can pause
//! and kill, less strictly.

mod detect;
mod files;
mod group;
mod probe;
#[cfg(test)]
mod tests;
mod v1;
mod v2;

pub(crate) use files::value_of;
pub use group::{Group, Usage};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// All our groups are in this directory of each hierarchy. It is made with the first and removed with the last.
const DIRECTORY: &str = "stead";

/// The cgroups of this machine, as far as they are of use to us.
#[derive(Debug, Clone, Default)]
pub struct Cgroups {
    homes: Vec<Home>,
    /// Needs that nothing serves, and why.
    missing: BTreeMap<Need, String>,
}

/// Something that a hierarchy can do for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Limit and count memory.
    Memory,
    /// Limit and count processes.
    Processes,
    /// Limit processor time.
    Cpu,
    Freeze,
    Kill,
    /// Count processor time.
    CpuTime,
}

/// What a group may use; `None` is no limit of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Bytes of memory and swap together. Who needs more is killed.
    pub memory: Option<u64>,
    /// Processes, and the threads in them. A fork beyond is refused.
    pub processes: Option<u64>,
    /// Thousandths of one processor.
    pub cpu_millis: Option<u32>,
}

/// A limit that is not enforced as asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// `memory-not-limited`, `swap-not-limited`, `processes-not-limited` or `cpu-not-limited`.
    pub code: &'static str,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// A hierarchy that we use, and what for.
#[derive(Debug, Clone)]
struct Home {
    version: Version,
    /// Has our [`DIRECTORY`].
    parent: PathBuf,
    needs: Vec<Need>,
}

impl Cgroups {
    /// Finds out what works here by trying it.
    pub fn detect() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let hierarchies = detect::hierarchies(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"));
        detect::choose(&hierarchies, probe::probe)
    }

    /// One line for each need: what serves it, or why nothing does.
    pub fn describe(&self) -> Vec<String> {
        let line = |need: Need| match self.homes.iter().find(|home| home.needs.contains(&need)) {
            Some(home) => format!("{need}: cgroup {} at {}", home.version, home.parent.display()),
            None => format!("{need}: none: {}", self.why_not(need)),
        };
        Need::ALL.into_iter().map(line).collect()
    }

    pub fn can(&self, need: Need) -> bool {
        self.homes.iter().any(|home| home.needs.contains(&need))
    }

    /// Makes a group, or takes the one that has this name, and sets all its limits.
    pub fn create(&self, name: &str, limits: &Limits) -> io::Result<(Group, Vec<Warning>)> {
        check_name(name)?;
        check_limits(limits)?;
        let group = Group::new(name, &self.homes);
        group.make()?;
        let warnings = group.limit(limits, |need| self.why_not(need));
        Ok((group, warnings))
    }

    /// The group of this name, if there is one in any hierarchy.
    pub fn find(&self, name: &str) -> Option<Group> {
        check_name(name).ok()?;
        Group::existing(name, &self.homes)
    }

    /// Every group whose name starts with this, by name.
    pub fn list(&self, prefix: &str) -> Vec<Group> {
        let entries =
            self.homes.iter().flat_map(|home| fs::read_dir(home.parent.join(DIRECTORY)).into_iter().flatten());
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let names: BTreeSet<String> = names.filter(|name| name.starts_with(prefix)).collect();
        names.iter().filter_map(|name| self.find(name)).collect()
    }

    fn why_not(&self, need: Need) -> &str {
        self.missing.get(&need).map_or("unknown", String::as_str)
    }
}

impl Need {
    const ALL: [Self; 6] = [Self::Memory, Self::Processes, Self::Cpu, Self::Freeze, Self::Kill, Self::CpuTime];

    /// The controller of version 2 that it takes; the others take none.
    fn controller(self) -> Option<&'static str> {
        match self {
            Self::Memory => Some("memory"),
            Self::Processes => Some("pids"),
            Self::Cpu => Some("cpu"),
            Self::Freeze | Self::Kill | Self::CpuTime => None,
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Processes => "pids",
            Self::Cpu => "cpu",
            Self::Freeze => "freezer",
            Self::Kill => "kill",
            Self::CpuTime => "cputime",
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        })
    }
}

impl Version {
    fn interface(self) -> &'static dyn Interface {
        match self {
            Self::V1 => &v1::V1,
            Self::V2 => &v2::V2,
        }
    }
}

/// What the two versions do each in their own way. Those that wait say whether it came to be before the deadline.
trait Interface {
    fn limit_memory(&self, group: &Path, bytes: Option<u64>) -> io::Result<Swap>;
    fn limit_cpu(&self, group: &Path, millis: Option<u32>) -> io::Result<()>;
    fn freeze(&self, group: &Path, deadline: Instant) -> io::Result<bool>;
    fn thaw(&self, group: &Path, deadline: Instant) -> io::Result<bool>;
    fn is_frozen(&self, group: &Path) -> io::Result<bool>;
    fn kill(&self, group: &Path, deadline: Instant) -> io::Result<bool>;
    fn wait_empty(&self, group: &Path, deadline: Instant) -> io::Result<bool>;
    fn memory(&self, group: &Path) -> Memory;
    fn cpu_micros(&self, group: &Path) -> Option<u64>;
    fn cpu_limit(&self, group: &Path) -> Option<u32>;
}

/// Whether the memory limit holds for swap too.
#[derive(Debug)]
enum Swap {
    Bound,
    Free(String),
}

#[derive(Debug, Default)]
struct Memory {
    bytes: Option<u64>,
    limit: Option<u64>,
    oom_kills: Option<u64>,
}

/// Freezes, so that nothing forks, sends SIGKILL to all, and thaws, because what version 1 has frozen dies only then;
/// until none is left.
fn kill_by_signals(interface: &dyn Interface, group: &Path, deadline: Instant) -> io::Result<bool> {
    // A process that can't be frozen must not keep the others alive.
    const ROUND: Duration = Duration::from_millis(200);
    loop {
        let soon = deadline.min(Instant::now() + ROUND);
        let _ = interface.freeze(group, soon);
        let sent = files::signal_all(group, rustix::process::Signal::KILL);
        let _ = interface.thaw(group, Instant::now());
        sent?;
        let soon = deadline.min(Instant::now() + ROUND);
        if interface.wait_empty(group, soon)? {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
    }
}

/// Microseconds of processor time, and of how many.
fn quota(millis: u32) -> (u64, u64) {
    // The kernel's own period; but it takes no quota below a millisecond.
    let period: u64 = if millis < 10 { 1_000_000 } else { 100_000 };
    (u64::from(millis) * period / 1000, period)
}

fn millis(quota: u64, period: u64) -> Option<u32> {
    u32::try_from(quota.checked_mul(1000)?.checked_div(period)?).ok()
}

fn check_name(name: &str) -> io::Result<()> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !name.is_empty() && name.bytes().all(fits) {
        return Ok(());
    }
    let text = format!("`{name}` can't name a group: it takes a-z, 0-9 and -");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

fn check_limits(limits: &Limits) -> io::Result<()> {
    if limits.memory != Some(0) && limits.processes != Some(0) && limits.cpu_millis != Some(0) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "a limit of 0 would let nothing run"))
}
