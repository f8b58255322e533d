//! Really trying a place: makes a group there, sets its files, and removes it.

use super::detect::{Hierarchy, Report};
use super::{DIRECTORY, Need, Version, files};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

static PROBES: AtomicU32 = AtomicU32::new(0);

/// What our groups could do if they were below `parent`. Leaves no group behind; controllers that it had to enable for
/// children of `parent` stay enabled, because another server may rely on them by now.
pub(super) fn probe(hierarchy: &Hierarchy, parent: &Path) -> Report {
    let could = match hierarchy.version {
        Version::V2 => Need::ALL.to_vec(),
        Version::V1 => served_by_v1(&hierarchy.controllers),
    };
    // No name of a group has a dot, so nobody takes this for one.
    let name = format!("probe.{}.{}", std::process::id(), PROBES.fetch_add(1, Ordering::Relaxed));
    let child = parent.join(DIRECTORY).join(name);
    let made = files::make_group(&child);
    let verdict = |need: Need| {
        let tried = match (&made, hierarchy.version) {
            (Err(error), _) => return (need, Err(error.to_string())),
            (Ok(_), Version::V2) => try_v2(parent, &child, need),
            (Ok(_), Version::V1) => try_v1(&child, need),
        };
        (need, tried.map_err(|error| error.to_string()))
    };
    let report = could.into_iter().map(verdict).collect();
    let _ = fs::remove_dir(&child);
    let _ = fs::remove_dir(parent.join(DIRECTORY));
    report
}

pub(super) fn served_by_v1(controllers: &[String]) -> Vec<Need> {
    let needs = controllers.iter().filter_map(|name| match name.as_str() {
        "memory" => Some(Need::Memory),
        "pids" => Some(Need::Processes),
        "cpu" => Some(Need::Cpu),
        "freezer" => Some(Need::Freeze),
        "cpuacct" => Some(Need::CpuTime),
        _ => None,
    });
    needs.chain([Need::Kill]).collect()
}

fn try_v2(parent: &Path, child: &Path, need: Need) -> io::Result<()> {
    // The kernel moves a process only for somebody who may write to the common ancestor of both its cgroups.
    joinable(parent)?;
    joinable(child)?;
    let kind = files::read(&child.join("cgroup.type"))?;
    if kind.trim() != "domain" {
        return Err(io::Error::other(format!("a group below {} is `{}`", parent.display(), kind.trim())));
    }
    if let Some(controller) = need.controller() {
        files::enable(parent, controller)?;
    }
    match need {
        Need::Memory => files::write(&child.join("memory.max"), "max"),
        Need::Processes => files::write(&child.join("pids.max"), "max"),
        Need::Cpu => files::write(&child.join("cpu.max"), "max 100000"),
        // Kernels before 5.14 have no `cgroup.kill`; there it is done by signals to what is frozen.
        Need::Kill if child.join("cgroup.kill").exists() => files::write(&child.join("cgroup.kill"), "1"),
        Need::Freeze | Need::Kill => files::write(&child.join("cgroup.freeze"), "0"),
        Need::CpuTime => files::read(&child.join("cpu.stat")).map(drop),
    }
}

fn try_v1(child: &Path, need: Need) -> io::Result<()> {
    joinable(child)?;
    match need {
        Need::Memory => files::write(&child.join("memory.limit_in_bytes"), "-1"),
        Need::Processes => files::write(&child.join("pids.max"), "max"),
        Need::Cpu => files::write(&child.join("cpu.cfs_quota_us"), "-1"),
        Need::Freeze => files::write(&child.join("freezer.state"), "THAWED"),
        Need::Kill => files::read(&child.join("cgroup.procs")).map(drop),
        Need::CpuTime => files::read(&child.join("cpuacct.usage")).map(drop),
    }
}

/// Whether we may move processes there: the kernel asks for nothing but write access when the file is opened.
fn joinable(group: &Path) -> io::Result<()> {
    let path = group.join("cgroup.procs");
    File::options().write(true).open(&path).map(drop).map_err(|error| files::at(&path, &error))
}
