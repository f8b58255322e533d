//! What a bench has on this machine: processes, whoever started them, control groups, mounts and sockets.

use super::{Bench, until};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use stead_model::ids::LeaseId;
use stead_term::proc::{self, Stat};

impl Bench {
    /// Every living process that has to do with this bench: started with a path of it, seeing one as a mount, or in a
    /// sandbox of one of its clouds.
    pub(crate) fn processes(&self) -> Vec<Stat> {
        let name = self.dir.path().file_name().unwrap().to_str().unwrap();
        let mark = name.as_bytes();
        let us = std::process::id().to_string();
        let own_mounts = fs::read_link("/proc/self/ns/mnt").unwrap();
        let has =
            |path: String| fs::read(path).is_ok_and(|bytes| bytes.windows(mark.len()).any(|window| window == mark));
        // What is mounted from here, not what is mounted here: that is in every world that is being made meanwhile.
        let sees = |pid: &String| {
            let text = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
            text.lines().any(|line| line.split(' ').nth(3).is_some_and(|root| root.contains(name)))
        };
        let ours = |pid: &String| {
            *pid != us
                && (has(format!("/proc/{pid}/cmdline"))
                    || has(format!("/proc/{pid}/environ"))
                    || (fs::read_link(format!("/proc/{pid}/ns/mnt")).is_ok_and(|mounts| mounts != own_mounts)
                        && sees(pid)))
        };
        let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let pids = pids.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).filter(ours);
        let mut pids: Vec<i32> = pids.filter_map(|pid| pid.parse().ok()).collect();
        // Who is just becoming another program shows nothing, but is where it was.
        let leases: Vec<_> = self.made.lock().unwrap().iter().map(|handle| handle.lease.to_string()).collect();
        for group in groups_named(&leases) {
            let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
        }
        pids.extend(crate::sky::pids(self.path()));
        pids.sort_unstable();
        pids.dedup();
        pids.into_iter().filter_map(proc::stat).filter(|stat| !b"ZX".contains(&stat.state)).collect()
    }

    /// Those that stay. Whoever looks in through an engine or a cloud is a process of its own for a while, which nobody in
    /// there started, or a ferry.
    pub(crate) fn residents(&self) -> Vec<Stat> {
        let all = self.processes();
        let is_first_or_free = |pid| numbers(pid).is_some_and(|numbers| matches!(numbers[..], [_] | [.., 1]));
        let looks_in = |pid| role(pid).is_some_and(|role| ["connect", "carry", "ferry"].contains(&role.as_str()));
        let stays = |stat: &&Stat| {
            let parent = |of: &&Stat| all.iter().find(|other| other.pid == of.parent);
            let above: Vec<_> = std::iter::successors(Some(*stat), parent).map(|stat| stat.pid).collect();
            above.last().is_some_and(|top| is_first_or_free(*top)) && !above.into_iter().any(looks_in)
        };
        all.iter().filter(stays).copied().collect()
    }

    /// Whether everything in an instance ends with its keeper, because that is the first process of its world.
    pub(crate) fn ends_with_its_keeper(&self) -> bool {
        self.playing("keep").iter().any(|pid| numbers(*pid).is_some_and(|numbers| matches!(numbers[..], [_, .., 1])))
    }

    /// The pids of those processes that have a role of the steward: `keep`, `run`...
    pub(crate) fn playing(&self, role: &str) -> Vec<i32> {
        let pids = self.processes().into_iter().map(|stat| stat.pid);
        pids.filter(|pid| self::role(*pid).is_some_and(|its| its == role)).collect()
    }

    /// Processes, control groups, mounts and sockets that are still there.
    pub(crate) fn leftovers(&self, lease: &LeaseId) -> Vec<String> {
        let mark = self.dir.path().file_name().unwrap().to_str().unwrap();
        let processes = self.processes().into_iter().map(|stat| {
            let words = fs::read(format!("/proc/{}/cmdline", stat.pid)).unwrap_or_default();
            format!("process {} {}", stat.pid, words.escape_ascii())
        });
        let groups = groups_named(&[lease.to_string()]).into_iter().map(|path| format!("group {}", path.display()));
        let mentions = |path: &str| {
            let text = fs::read_to_string(path).unwrap();
            text.lines().filter(|line| line.contains(mark)).map(|line| format!("{path}: {line}")).collect::<Vec<_>>()
        };
        let sockets = walk(self.dir.path(), &|kind| kind.is_socket());
        let sockets = sockets.into_iter().map(|path| format!("socket {}", path.display()));
        let mut found: Vec<_> = processes.chain(groups).chain(sockets).collect();
        found.extend(mentions("/proc/self/mountinfo"));
        found.extend(mentions("/proc/net/unix"));
        found
    }

    /// SIGKILL for everything, by somebody who isn't us.
    pub(crate) async fn massacre(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            self.kill_all(|| self.processes().iter().map(|stat| stat.pid).collect()).await;
            // A lock that was on its way from one to another is let go of a moment later.
            if self.provider.list().await.unwrap().iter().all(|found| found.seen == self.ended()) {
                return;
            }
            assert!(Instant::now() < deadline, "something lives that can't be found");
        }
    }

    /// Kills processes that start each other again: none is killed before all are stopped.
    pub(crate) async fn kill_all(&self, who: impl Fn() -> Vec<i32>) {
        let mut all = Vec::new();
        let state = |pid: i32| proc::stat(pid).map_or(b'X', |stat| stat.state);
        until("all processes to be stopped", || {
            let before = all.len();
            all.extend(who());
            all.sort_unstable();
            all.dedup();
            for pid in &all {
                proc::signal(*pid, Signal::STOP);
            }
            all.len() == before && all.iter().all(|pid| b"TZX".contains(&state(*pid)))
        })
        .await;
        for pid in &all {
            proc::signal(*pid, Signal::KILL);
        }
        until("all processes to be dead", || {
            stead_testclouds::machine::release_doors();
            all.iter().all(|pid| b"ZX".contains(&state(*pid)))
        })
        .await;
    }
}

/// What a process is of a steward: `keep`, `run`, `connect`...; none of anything else.
fn role(pid: i32) -> Option<String> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    // `stead steward ROLE`, or the static program, which is nothing but a steward.
    let mut words = words.split(|byte| *byte == 0).skip(1).skip_while(|word| *word == b"steward");
    let role = String::from_utf8(words.next()?.to_vec()).ok()?;
    (role == "ferry" || words.next() == Some(b"--dir")).then_some(role)
}

/// How a process is numbered, from our world inwards.
fn numbers(pid: i32) -> Option<Vec<i32>> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().map(|number| number.parse().ok()).collect()
}

pub(crate) fn groups_named(names: &[String]) -> Vec<PathBuf> {
    let is_it = |path: &PathBuf| path.file_name().is_some_and(|last| names.iter().any(|name| last == name.as_str()));
    walk(Path::new("/sys/fs/cgroup"), &|kind| kind.is_dir()).into_iter().filter(is_it).collect()
}

pub(crate) fn walk(top: &Path, is_it: &dyn Fn(&fs::FileType) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(top).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if is_it(&kind) {
            found.push(entry.path());
        }
        if kind.is_dir() {
            found.extend(walk(&entry.path(), is_it));
        }
    }
    found
}
