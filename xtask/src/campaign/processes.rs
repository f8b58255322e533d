//! The processes of an instance, found from outside by what the kernel says of them, and killed.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeMap;
use std::fs;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Keeper,
    Steward,
    Shell,
    Other,
}

#[derive(Debug, Clone)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) part: Part,
    pub(super) line: String,
    parent: i32,
    start_time: u64,
    cgroup: String,
}

/// Every process, by its id. Those that have ended and wait to be noticed are not among them.
fn all() -> BTreeMap<i32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, look_at(pid)?))).collect()
}

fn look_at(pid: i32) -> Option<Process> {
    let (state, parent, session, start_time) = stat(pid)?;
    if matches!(state, b'Z' | b'X') {
        return None;
    }
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let part = if line.contains(" steward keep ") {
        Part::Keeper
    } else if line.contains(" steward run ") {
        Part::Steward
    } else if line.contains("--noediting -i") && session == pid {
        Part::Shell
    } else {
        Part::Other
    };
    Some(Process { pid, part, line: line.trim().to_owned(), parent, start_time, cgroup })
}

/// State, parent, session and start time.
fn stat(pid: i32) -> Option<(u8, i32, i32, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before is in parentheses, and may hold anything.
    let fields: Vec<&str> = text.get(text.rfind(')')? + 2..)?.split(' ').collect();
    let number = |at: usize| fields.get(at)?.parse::<i32>().ok();
    Some((*fields.first()?.as_bytes().first()?, number(1)?, number(3)?, fields.get(19)?.parse().ok()?))
}

/// Those of a lease: in its control group, started over its directory, or a child of one of those.
pub(super) fn of_lease(lease: &str) -> Vec<Process> {
    let all = all();
    let mut ours: Vec<i32> = Vec::new();
    let named = all.values().filter(|process| process.cgroup.contains(lease) || process.line.contains(lease));
    ours.extend(named.map(|process| process.pid));
    let mut at = 0;
    while let Some(parent) = ours.get(at).copied() {
        let children = all.values().filter(|process| process.parent == parent).map(|process| process.pid);
        let new: Vec<i32> = children.filter(|child| !ours.contains(child)).collect();
        ours.extend(new);
        at += 1;
    }
    ours.iter().filter_map(|pid| all.get(pid).cloned()).collect()
}

impl Process {
    /// SIGKILL to this very process, not to one that has its number since. `false`: it was gone.
    pub(super) fn kill(&self) -> bool {
        let Some(pid) = Pid::from_raw(self.pid) else { return false };
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        let same = stat(self.pid).is_some_and(|(.., start_time)| start_time == self.start_time);
        same && pidfd_send_signal(held, Signal::KILL).is_ok()
    }
}

/// Control groups and mounts that name one of these.
pub(super) fn leftovers(names: &[String]) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let is_ours = |text: &str| names.iter().any(|name| text.contains(name.as_str()));
    let mut found: Vec<String> =
        mounts.lines().filter(|line| is_ours(line)).map(|line| format!("mount {line}")).collect();
    // Either version of control groups: one directory for each lease below `stead`.
    let mut roots = vec!["/sys/fs/cgroup".to_owned()];
    let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    roots.extend(hierarchies.map(|entry| entry.path().to_string_lossy().into_owned()));
    for root in roots {
        let groups = fs::read_dir(format!("{root}/stead")).into_iter().flatten().flatten();
        let groups = groups.map(|entry| entry.path().to_string_lossy().into_owned());
        found.extend(groups.filter(|group| is_ours(group)).map(|group| format!("control group {group}")));
    }
    found
}
