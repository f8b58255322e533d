//! Which hierarchy serves which need. Pure: the text of the kernel goes in, and a closure that really tries.
//!
//! In each hierarchy we may put our groups below any ancestor of our own cgroup that is mounted. The topmost that
//! serves best is taken: a place that stays the same when the server is started again from elsewhere, and that the
//! server's own service manager doesn't sweep when it stops the server.
//!
//! Version 2 goes first. A process is in one cgroup of each hierarchy, so all needs that one hierarchy serves are served
//! by the same place in it.

use super::{Cgroups, Home, Need, Version};
use std::path::{Component, Path, PathBuf};

/// The controllers of version 1 that we have a use for.
const CONTROLLERS: [&str; 5] = ["memory", "pids", "cpu", "freezer", "cpuacct"];

/// One hierarchy, and where in it our groups could be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hierarchy {
    pub(super) version: Version,
    /// Of version 1 those we use; of version 2 none, because they differ from place to place.
    pub(super) controllers: Vec<String>,
    /// Topmost first.
    pub(super) parents: Vec<PathBuf>,
}

/// What one place can do for us; every need it could have served is in it, with the reason where it can't.
pub(super) type Report = Vec<(Need, Result<(), String>)>;

/// Reads `/proc/self/mountinfo` and `/proc/self/cgroup`.
pub(super) fn hierarchies(mountinfo: &str, own: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for (mut hierarchy, root) in mountinfo.lines().filter_map(mounted) {
        let point = hierarchy.parents.remove(0);
        let parents = parents(&point, &root, own_path(own, &hierarchy));
        // The same hierarchy may be mounted more than once.
        let same =
            |other: &&mut Hierarchy| other.version == hierarchy.version && other.controllers == hierarchy.controllers;
        match found.iter_mut().find(same) {
            Some(known) => known.parents.extend(parents),
            None => found.push(Hierarchy { parents, ..hierarchy }),
        }
    }
    // Any hierarchy can list the processes to kill, but only a freezer keeps them from forking meanwhile.
    found.sort_by_key(|hierarchy| match hierarchy.version {
        Version::V2 => 0,
        Version::V1 if hierarchy.controllers.iter().any(|name| name == "freezer") => 1,
        Version::V1 => 2,
    });
    found
}

/// Tries every hierarchy, and gives each need to the first that serves it.
pub(super) fn choose(hierarchies: &[Hierarchy], mut probe: impl FnMut(&Hierarchy, &Path) -> Report) -> Cgroups {
    let mut homes: Vec<Home> = Vec::new();
    let mut reasons: Vec<(Need, String)> = Vec::new();
    for hierarchy in hierarchies {
        let Some((parent, report)) = best(hierarchy, &mut probe) else { continue };
        let mut needs = Vec::new();
        for (need, served) in report {
            match served {
                Ok(()) if homes.iter().all(|home: &Home| !home.needs.contains(&need)) => needs.push(need),
                Ok(()) => {}
                Err(reason) => reasons.push((need, reason)),
            }
        }
        if !needs.is_empty() {
            homes.push(Home { version: hierarchy.version, parent, needs });
        }
    }
    let missing = Need::ALL.into_iter().filter(|need| homes.iter().all(|home| !home.needs.contains(need)));
    let why = |need: Need| {
        // Any hierarchy of version 1 could serve to kill; two reasons are enough.
        let why = reasons.iter().filter(|(of, _)| *of == need).map(|(_, why)| why.as_str());
        let why: Vec<&str> = why.take(2).collect();
        if why.is_empty() { "no cgroup hierarchy that could do it is mounted".to_owned() } else { why.join("; ") }
    };
    let missing = missing.map(|need| (need, why(need))).collect();
    Cgroups { homes, missing }
}

/// The topmost place that serves the most needs.
fn best(hierarchy: &Hierarchy, probe: &mut impl FnMut(&Hierarchy, &Path) -> Report) -> Option<(PathBuf, Report)> {
    let served = |report: &Report| report.iter().filter(|(_, served)| served.is_ok()).count();
    let mut best: Option<(PathBuf, Report)> = None;
    for parent in &hierarchy.parents {
        let report = probe(hierarchy, parent);
        let perfect = served(&report) == report.len();
        // Of places that serve nothing the lowest explains best: it is our own.
        let better = best.as_ref().is_none_or(|(_, known)| served(&report) > served(known) || served(known) == 0);
        if better {
            best = Some((parent.clone(), report));
        }
        if perfect {
            break;
        }
    }
    best
}

/// One line of `mountinfo`: the hierarchy, its mount point in place of its parents, and the root of the mount.
fn mounted(line: &str) -> Option<(Hierarchy, PathBuf)> {
    let (mount, system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, point) = (unescape(mount.next()?), unescape(mount.next()?));
    let mut system = system.split(' ');
    let (kind, options) = (system.next()?, system.nth(1)?);
    let (version, controllers) = match kind {
        "cgroup2" => (Version::V2, Vec::new()),
        "cgroup" => {
            let ours = options.split(',').filter(|option| CONTROLLERS.contains(option));
            (Version::V1, ours.map(str::to_owned).collect::<Vec<_>>())
        }
        _ => return None,
    };
    if version == Version::V1 && controllers.is_empty() {
        return None;
    }
    Some((Hierarchy { version, controllers, parents: vec![point.into()] }, root.into()))
}

/// The path of our own cgroup in a hierarchy, from `/proc/self/cgroup`.
fn own_path<'a>(own: &'a str, hierarchy: &Hierarchy) -> Option<&'a Path> {
    own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let is_it = match hierarchy.version {
            Version::V2 => controllers.is_empty(),
            Version::V1 => controllers.split(',').any(|name| hierarchy.controllers.iter().any(|own| own == name)),
        };
        is_it.then(|| Path::new(path))
    })
}

/// Every mounted ancestor of our own cgroup, topmost first, and our own. Where we aren't below the mount (a namespace
/// or a bind mount hides us) only the mount point itself.
fn parents(point: &Path, root: &Path, own: Option<&Path>) -> Vec<PathBuf> {
    let mut parents = vec![point.to_owned()];
    let below = own.and_then(|own| own.strip_prefix(root).ok()).unwrap_or(Path::new(""));
    if below.components().all(|component| matches!(component, Component::Normal(_))) {
        let mut place = point.to_owned();
        for component in below.components() {
            place.push(component);
            parents.push(place.clone());
        }
    }
    parents
}

/// Blanks and the like are written as `\040`.
fn unescape(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let (Some(code), Some(rest)) = (code, part.get(3..)) {
            plain.push(char::from(code));
            plain.push_str(rest);
        } else {
            plain.push('\\');
            plain.push_str(part);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
    const HYBRID_OWN: &str = "8:pids:/\n6:freezer:/\n4:memory:/service/a\n1:cpu,cpuacct:/\n0::/";
    const V2: &str = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
    const V2_USER: &str = "0::/user.slice/user-7.slice/user@7.service/app.slice/stead.service";

    fn v1_only() -> String {
        HYBRID.lines().filter(|line| !line.contains("cgroup2")).collect::<Vec<_>>().join("\n")
    }

    /// A kernel for tests: controllers that version 2 offers, and the places we may write to.
    fn check(mountinfo: &str, own: &str, v2: &[Need], writable: impl Fn(&Path) -> bool, expected: &[&str]) {
        let cgroups = choose(&hierarchies(mountinfo, own), |hierarchy, parent| {
            let could: Vec<Need> = match hierarchy.version {
                Version::V2 => Need::ALL.to_vec(),
                Version::V1 => crate::cgroup::probe::served_by_v1(&hierarchy.controllers),
            };
            let verdict = |need: Need| match hierarchy.version {
                _ if !writable(parent) => Err(format!("{} is not ours", parent.display())),
                Version::V2 if need.controller().is_some() && !v2.contains(&need) => {
                    Err("version 2 lacks it".to_owned())
                }
                Version::V1 | Version::V2 => Ok(()),
            };
            could.into_iter().map(|need| (need, verdict(need))).collect()
        });
        assert_eq!(cgroups.describe(), expected);
    }

    const CONTROLLED: [Need; 3] = [Need::Memory, Need::Processes, Need::Cpu];

    #[test]
    fn version_2_alone_serves_everything_from_its_root() {
        check(
            V2,
            "0::/system.slice/stead.service",
            &CONTROLLED,
            |_| true,
            &[
                "memory: cgroup v2 at /sys/fs/cgroup",
                "pids: cgroup v2 at /sys/fs/cgroup",
                "cpu: cgroup v2 at /sys/fs/cgroup",
                "freezer: cgroup v2 at /sys/fs/cgroup",
                "kill: cgroup v2 at /sys/fs/cgroup",
                "cputime: cgroup v2 at /sys/fs/cgroup",
            ],
        );
    }

    #[test]
    fn a_user_gets_the_topmost_place_that_was_delegated() {
        let delegated = "/sys/fs/cgroup/user.slice/user-7.slice/user@7.service";
        check(
            V2,
            V2_USER,
            &[Need::Memory, Need::Processes],
            |place| place.starts_with(delegated),
            &[
                &format!("memory: cgroup v2 at {delegated}"),
                &format!("pids: cgroup v2 at {delegated}"),
                "cpu: none: version 2 lacks it",
                &format!("freezer: cgroup v2 at {delegated}"),
                &format!("kill: cgroup v2 at {delegated}"),
                &format!("cputime: cgroup v2 at {delegated}"),
            ],
        );
    }

    #[test]
    fn a_user_without_delegation_gets_nothing_and_is_told_of_its_own_place() {
        let reason = format!("none: /sys/fs/cgroup{} is not ours", V2_USER.trim_start_matches("0::"));
        let expected: Vec<String> =
            ["memory", "pids", "cpu", "freezer", "kill", "cputime"].map(|need| format!("{need}: {reason}")).into();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check(V2, V2_USER, &CONTROLLED, |_| false, &expected);
    }

    #[test]
    fn version_1_alone_serves_each_need_from_its_controller() {
        check(
            &v1_only(),
            HYBRID_OWN,
            &[],
            |_| true,
            &[
                "memory: cgroup v1 at /sys/fs/cgroup/memory",
                "pids: cgroup v1 at /sys/fs/cgroup/pids",
                "cpu: cgroup v1 at /sys/fs/cgroup/cpu,cpuacct",
                "freezer: cgroup v1 at /sys/fs/cgroup/freezer",
                "kill: cgroup v1 at /sys/fs/cgroup/freezer",
                "cputime: cgroup v1 at /sys/fs/cgroup/cpu,cpuacct",
            ],
        );
    }

    #[test]
    fn a_hybrid_freezes_with_version_2_and_limits_with_version_1() {
        check(
            HYBRID,
            HYBRID_OWN,
            &[],
            |_| true,
            &[
                "memory: cgroup v1 at /sys/fs/cgroup/memory",
                "pids: cgroup v1 at /sys/fs/cgroup/pids",
                "cpu: cgroup v1 at /sys/fs/cgroup/cpu,cpuacct",
                "freezer: cgroup v2 at /sys/fs/cgroup/unified",
                "kill: cgroup v2 at /sys/fs/cgroup/unified",
                "cputime: cgroup v2 at /sys/fs/cgroup/unified",
            ],
        );
    }

    #[test]
    fn a_hybrid_without_write_access_says_why_for_each_hierarchy() {
        check(
            HYBRID,
            HYBRID_OWN,
            &[],
            |place| place.ends_with("pids"),
            &[
                "memory: none: /sys/fs/cgroup/unified is not ours; /sys/fs/cgroup/memory/service/a is not ours",
                "pids: cgroup v1 at /sys/fs/cgroup/pids",
                "cpu: none: /sys/fs/cgroup/unified is not ours; /sys/fs/cgroup/cpu,cpuacct is not ours",
                "freezer: none: /sys/fs/cgroup/unified is not ours; /sys/fs/cgroup/freezer is not ours",
                "kill: cgroup v1 at /sys/fs/cgroup/pids",
                "cputime: none: /sys/fs/cgroup/unified is not ours; /sys/fs/cgroup/cpu,cpuacct is not ours",
            ],
        );
    }

    #[test]
    fn without_any_hierarchy_every_need_says_so() {
        let nothing = "no cgroup hierarchy that could do it is mounted";
        let expected: Vec<String> = ["memory", "pids", "cpu", "freezer", "kill", "cputime"]
            .map(|need| format!("{need}: none: {nothing}"))
            .into();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check("22 1 0:20 / /proc rw - proc proc rw", "", &[], |_| true, &expected);
    }

    #[test]
    fn mounts_with_a_root_of_their_own_and_odd_names_are_understood() {
        let places = |mountinfo: &str, own: &str| hierarchies(mountinfo, own).remove(0).parents;
        let bound = "1 1 0:1 /docker/x /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids";
        assert_eq!(places(bound, "1:pids:/docker/x"), [PathBuf::from("/sys/fs/cgroup/pids")]);
        assert_eq!(
            places(bound, "1:pids:/docker/x/y"),
            [PathBuf::from("/sys/fs/cgroup/pids"), PathBuf::from("/sys/fs/cgroup/pids/y")]
        );
        assert_eq!(places(bound, "1:pids:/elsewhere"), [PathBuf::from("/sys/fs/cgroup/pids")]);
        assert_eq!(places(bound, ""), [PathBuf::from("/sys/fs/cgroup/pids")]);
        assert_eq!(places(V2, "0::/../outside"), [PathBuf::from("/sys/fs/cgroup")]);
        let spaced = "1 1 0:1 / /mnt/a\\040b\\134 rw - cgroup2 none rw";
        assert_eq!(places(spaced, "0::/"), [PathBuf::from("/mnt/a b\\")]);
        let twice = format!("{V2}\n1 1 0:1 / /mnt rw - cgroup2 none rw");
        assert_eq!(places(&twice, "0::/"), [PathBuf::from("/sys/fs/cgroup"), PathBuf::from("/mnt")]);
    }
}
