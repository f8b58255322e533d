//! A tree of processes without cgroups: found by looking, stopped and killed by signals.
//!
//! Members are the root, what descends from it, and whoever is in its pid namespace if that isn't ours. A member that we
//! have seen once stays one when its parent ends and it falls to init; one that was orphaned before we looked is found
//! by its namespace or not at all.
//!
//! No signal meets a stranger: a process is named by its pid and start time, and signalled by a descriptor that was
//! opened before they were compared.

use crate::{poll, proc};
use rustix::fd::OwnedFd;
use rustix::process::Signal;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct Tree {
    /// Every member that we know of; the root is the first.
    known: Vec<Id>,
    namespace: Option<Namespace>,
    stopped: Vec<Id>,
}

/// One process, for ever (of this boot).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Id {
    pub pid: i32,
    /// As in [`proc::Stat`].
    pub start_time: u64,
}

/// What the tree uses now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Of the members and of children they have waited for; who ended as an orphan is missing.
    pub cpu_micros: u64,
    /// Resident memory; what members share is counted for each.
    pub memory_bytes: u64,
    pub processes: u64,
}

/// A pid namespace that isn't ours.
#[derive(Debug)]
struct Namespace {
    /// Keeps its number from being given to another.
    _held: File,
    number: (u64, u64),
}

/// A level of the tree is given this long to stop before its children are: on a busy machine it takes its turn.
const LEVEL: Duration = Duration::from_millis(100);

impl Tree {
    /// The tree below a process that started at this time.
    pub fn of(root_pid: i32, start_time: u64) -> Self {
        let namespace = Namespace::of(root_pid);
        let root = Id { pid: root_pid, start_time };
        // Looked at again after the namespace was opened: it may have been that of a successor.
        let namespace = namespace.filter(|_| root.stat().is_some());
        Self { known: vec![root], namespace, stopped: Vec::new() }
    }

    /// Who is in the tree now, parents before their children; zombies too.
    pub fn members(&mut self) -> Vec<Id> {
        let levels = self.levels();
        levels.into_iter().flatten().map(Id::from).collect()
    }

    /// Stops every member, and returns when none runs any more. Who doesn't stop in time lets all go on that we
    /// stopped, and is an error.
    pub fn stop(&mut self, within: Duration) -> io::Result<()> {
        let deadline = Instant::now() + within;
        let halted = self.halt(deadline);
        if !matches!(halted, Ok(true)) {
            self.resume();
        }
        if halted? {
            return Ok(());
        }
        let text = format!("the tree of process {} did not stop within {within:?}", self.root().pid);
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    }

    /// Lets those go on that [`Tree::stop`] stopped; who was stopped before stays so.
    pub fn resume(&mut self) {
        // Children first: a shell that goes on while its child is still stopped would take it for a suspended job.
        for id in std::mem::take(&mut self.stopped).iter().rev() {
            id.signal(Signal::CONT);
        }
    }

    /// Whom we have stopped; to be kept by whoever wants to resume in another process.
    pub fn stopped(&self) -> &[Id] {
        &self.stopped
    }

    /// Takes over what another process has stopped, in its order.
    pub fn take_stopped(&mut self, stopped: Vec<Id>) {
        self.known.extend(stopped.iter().copied());
        self.stopped = stopped;
    }

    /// Whether no member runs. Zombies don't; a tree that is gone doesn't either.
    pub fn is_stopped(&mut self) -> bool {
        self.levels().iter().flatten().all(is_halted)
    }

    /// Kills every member and returns when they have ended.
    pub fn kill(&mut self, within: Duration) -> io::Result<()> {
        let deadline = Instant::now() + within;
        loop {
            // Stopped first: what forks while its parent is killed would be an orphan that nobody finds.
            self.halt(deadline.min(Instant::now() + within / 2))?;
            let members: Vec<proc::Stat> = self.levels().into_iter().flatten().collect();
            let living: Vec<OwnedFd> = members.iter().filter_map(|stat| Id::from(*stat).signal(Signal::KILL)).collect();
            for fd in &living {
                poll::readable(fd, deadline.saturating_duration_since(Instant::now()))?;
            }
            if self.levels().iter().flatten().all(is_dead) {
                self.stopped.clear();
                return Ok(());
            }
            if Instant::now() >= deadline {
                let text = format!("the tree of process {} did not end within {within:?}", self.root().pid);
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
        }
    }

    pub fn usage(&mut self) -> Usage {
        let page = rustix::param::page_size() as u64;
        let second = rustix::param::clock_ticks_per_second().max(1);
        let mut usage = Usage::default();
        for stat in self.levels().iter().flatten() {
            usage.cpu_micros += stat.cpu_ticks * 1_000_000 / second;
            usage.memory_bytes += resident_pages(stat.pid) * page;
            usage.processes += u64::from(!is_dead(stat));
        }
        usage
    }

    fn root(&self) -> Id {
        self.known.first().copied().unwrap_or(Id { pid: 0, start_time: 0 })
    }

    /// SIGSTOP until a look finds nobody running; whether that was before the deadline.
    fn halt(&mut self, deadline: Instant) -> io::Result<bool> {
        poll::until(deadline, || {
            let levels = self.levels();
            let mut all = true;
            for level in &levels {
                let running: Vec<Id> =
                    level.iter().filter(|stat| !is_halted(stat)).map(|stat| Id::from(*stat)).collect();
                for id in &running {
                    id.signal(Signal::STOP);
                    if !self.stopped.contains(id) {
                        self.stopped.push(*id);
                    }
                }
                all &= running.is_empty();
                // Parents before children: a shell that still runs would see its child stop.
                let soon = deadline.min(Instant::now() + LEVEL);
                poll::until(soon, || Ok(running.iter().all(|id| id.stat().is_none_or(|stat| is_halted(&stat)))))?;
            }
            Ok(all)
        })
    }

    /// All members by their distance from the top; remembers them.
    fn levels(&mut self) -> Vec<Vec<proc::Stat>> {
        let us = i32::try_from(std::process::id()).unwrap_or(0);
        let mut all: HashMap<i32, proc::Stat> =
            proc::all().filter(|stat| stat.pid != us && stat.pid != 1).map(|stat| (stat.pid, stat)).collect();
        let lives = |id: &&Id| all.get(&id.pid).is_some_and(|stat| **id == Id::from(*stat));
        let mut tops: HashSet<i32> = self.known.iter().filter(lives).map(|id| id.pid).collect();
        if let Some(namespace) = &self.namespace {
            tops.extend(all.keys().filter(|pid| namespace.has(**pid)));
        }
        // Below another member somebody is no top but has its place under it.
        let is_top = |pid: &i32| all.get(pid).is_some_and(|stat| !tops.contains(&stat.parent));
        let mut level: Vec<i32> = tops.iter().copied().filter(is_top).collect();
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for stat in all.values() {
            children.entry(stat.parent).or_default().push(stat.pid);
        }
        let mut levels = Vec::new();
        while !level.is_empty() {
            // Taken out, so that nobody is in twice whatever the looks at a moving tree say.
            let found: Vec<proc::Stat> = level.iter().filter_map(|pid| all.remove(pid)).collect();
            level = found.iter().filter_map(|stat| children.get(&stat.pid)).flatten().copied().collect();
            levels.push(found);
        }
        // The root stays the first, even when it is gone.
        let root = self.root();
        let others = levels.iter().flatten().map(|stat| Id::from(*stat)).filter(|id| *id != root);
        self.known = std::iter::once(root).chain(others).collect();
        levels
    }
}

impl From<proc::Stat> for Id {
    fn from(stat: proc::Stat) -> Self {
        Self { pid: stat.pid, start_time: stat.start_time }
    }
}

impl Id {
    /// What the kernel says of it, unless it is gone.
    fn stat(self) -> Option<proc::Stat> {
        proc::stat(self.pid).filter(|stat| stat.start_time == self.start_time)
    }

    /// Signals this process and no other that has its pid by now. Returns a descriptor that tells of its end, `None` if
    /// it has ended already.
    fn signal(self, signal: Signal) -> Option<OwnedFd> {
        let fd = proc::pidfd(self.pid).ok()??;
        // The descriptor is of whoever had the pid when it was opened; as it can't change any more, now it counts.
        self.stat()?;
        rustix::process::pidfd_send_signal(&fd, signal).ok()?;
        Some(fd)
    }
}

impl Namespace {
    /// That of a process if it isn't ours and we may know it.
    fn of(pid: i32) -> Option<Self> {
        let held = File::open(format!("/proc/{pid}/ns/pid")).ok()?;
        let number = held.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))?;
        (Some(number) != namespace_number("self")).then_some(Self { _held: held, number })
    }

    fn has(&self, pid: i32) -> bool {
        namespace_number(&pid.to_string()) == Some(self.number)
    }
}

fn namespace_number(pid: &str) -> Option<(u64, u64)> {
    let metadata = fs::metadata(format!("/proc/{pid}/ns/pid")).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Whether it runs no code of its own.
fn is_halted(stat: &proc::Stat) -> bool {
    match stat.state {
        b'T' | b't' => true,
        // Deep in the kernel, with a stop to come before it gets out: one that waits for its vforked child to execute
        // stays like this as long as the child is stopped.
        b'D' => stop_is_pending(stat.pid),
        b'Z' => threads(stat.pid).all(|thread| matches!(thread.state, b'T' | b't' | b'Z' | b'X')),
        _ => is_dead(stat),
    }
}

/// A process can outlive its first thread, which is a zombie then.
fn is_dead(stat: &proc::Stat) -> bool {
    match stat.state {
        b'X' | b'x' => true,
        b'Z' => threads(stat.pid).all(|thread| matches!(thread.state, b'Z' | b'X')),
        _ => false,
    }
}

fn threads(pid: i32) -> impl Iterator<Item = proc::Stat> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| proc::stat(entry.file_name().into_string().ok()?.parse().ok()?))
}

fn stop_is_pending(pid: i32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = text.lines().filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")));
    let bit = 1_u64 << (Signal::STOP.as_raw() - 1);
    pending.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok()).any(|mask| mask & bit != 0)
}

fn resident_pages(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::{Child, Command, Stdio};

    const SOON: Duration = Duration::from_secs(20);

    /// Kills what a test leaves, also when it fails.
    struct Script(Child, Tree);

    impl Script {
        fn start(program: &str, arguments: &[&str], file: &Path) -> Self {
            let mut command = Command::new(program);
            let child = command.args(arguments).arg(file).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let pid = i32::try_from(child.id()).unwrap();
            Self(child, Tree::of(pid, proc::stat(pid).unwrap().start_time))
        }
    }

    impl Drop for Script {
        fn drop(&mut self) {
            let _ = self.1.kill(SOON);
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn length(file: &Path) -> u64 {
        fs::metadata(file).map_or(0, |metadata| metadata.len())
    }

    fn grows(file: &Path, within: Duration) -> bool {
        let before = length(file);
        poll::until(Instant::now() + within, || Ok(length(file) > before)).unwrap()
    }

    /// A shell that forks all the time, with a child that does too.
    const FORKING: &str = "(while :; do sh -c 'echo >> \"$0\"' \"$0\"; done) & while :; do (echo >> \"$0\"); done";

    #[test]
    fn a_forking_tree_stops_goes_on_and_ends() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("count");
        let mut script = Script::start("sh", &["-c", FORKING], &file);
        assert!(grows(&file, SOON));
        for _ in 0..5 {
            script.1.stop(SOON).unwrap();
            assert!(script.1.is_stopped());
            assert!(!grows(&file, Duration::from_millis(50)), "a stopped tree goes on");
            assert!(!script.1.stopped().is_empty());
            script.1.resume();
            assert!(grows(&file, SOON), "a resumed tree doesn't go on");
        }
        assert!(!script.1.is_stopped());
        let usage = script.1.usage();
        assert!(usage.cpu_micros > 0 && usage.memory_bytes > 0 && usage.processes >= 2, "{usage:?}");
        script.1.kill(SOON).unwrap();
        assert!(!grows(&file, Duration::from_millis(50)), "a killed tree goes on");
        // Orphans may wait as zombies until init gets to them.
        assert_eq!((script.1.usage().processes, script.1.usage().memory_bytes), (0, 0));
    }

    #[test]
    fn another_process_resumes_what_one_has_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("count");
        let mut script = Script::start("sh", &["-c", FORKING], &file);
        assert!(grows(&file, SOON));
        script.1.stop(SOON).unwrap();
        let root = script.1.root();
        let mut successor = Tree::of(root.pid, root.start_time);
        successor.take_stopped(script.1.stopped().to_vec());
        assert!(successor.is_stopped());
        successor.resume();
        assert!(grows(&file, SOON));
    }

    #[test]
    fn who_was_suspended_before_stays_so() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script = "sh -c 'echo $$ > \"$0.new\"; mv \"$0.new\" \"$0\"; kill -STOP $$; exec sleep 1000' \"$0\" & wait";
        let mut script = Script::start("sh", &["-c", script], &file);
        let state = |pid: i32| proc::stat(pid).map(|stat| stat.state);
        assert!(poll::until(Instant::now() + SOON, || Ok(file.exists())).unwrap());
        let suspended: i32 = fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        assert!(poll::until(Instant::now() + SOON, || Ok(state(suspended) == Some(b'T'))).unwrap());
        script.1.stop(SOON).unwrap();
        script.1.resume();
        let root = script.1.root().pid;
        assert!(poll::until(Instant::now() + SOON, || Ok(state(root) == Some(b'S'))).unwrap());
        assert_eq!(state(suspended), Some(b'T'));
    }

    #[test]
    fn a_job_shell_does_not_notice_that_it_was_stopped() {
        if Command::new("bash").arg("--version").stdout(Stdio::null()).status().is_err() {
            println!("SKIPPED: no bash here");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("count");
        // With job control a shell would leave the stopped loop behind as a suspended job, and say so.
        let script = "set -m; sh -c 'while :; do echo >> \"$0\"; done' \"$0\"; echo left > \"$0.left\"";
        let mut script = Script::start("bash", &["-c", script], &file);
        assert!(grows(&file, SOON));
        for _ in 0..20 {
            script.1.stop(SOON).unwrap();
            script.1.resume();
            assert!(grows(&file, SOON));
        }
        assert!(!dir.path().join("count.left").exists());
    }

    #[test]
    fn orphans_are_found_by_their_namespace() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("count");
        let made = Command::new("unshare").args(["-pf", "true"]).stderr(Stdio::null()).status();
        if !made.is_ok_and(|status| status.success()) {
            println!("SKIPPED: no right to make a pid namespace");
            return;
        }
        // The root of the tree is a process inside whose daemon has fallen to the init of the namespace.
        let inner = "(setsid sh -c 'while :; do echo >> \"$0\"; done' \"$0\" & ) ; sleep 1000 & wait";
        let mut script = Script::start("unshare", &["-pf", "sh", "-c", inner], &file);
        assert!(grows(&file, SOON));
        let pid_of = |name: &str, members: &[Id]| {
            let is_it =
                |id: &&Id| fs::read_to_string(format!("/proc/{}/comm", id.pid)).is_ok_and(|comm| comm.trim() == name);
            members.iter().find(is_it).copied()
        };
        let mut sleep = None;
        let found = poll::until(Instant::now() + SOON, || {
            sleep = pid_of("sleep", &script.1.members());
            Ok(sleep.is_some())
        });
        assert!(found.unwrap());
        let sleep = sleep.unwrap();
        let mut tree = Tree::of(sleep.pid, sleep.start_time);
        tree.stop(SOON).unwrap();
        assert!(!grows(&file, Duration::from_millis(50)), "the daemon goes on");
        tree.resume();
        assert!(grows(&file, SOON));
        tree.kill(SOON).unwrap();
        assert!(!grows(&file, Duration::from_millis(50)), "the daemon lives");
    }

    #[test]
    fn a_stranger_with_the_same_pid_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mut script = Script::start("sh", &["-c", "while :; do echo >> \"$0\"; done"], &dir.path().join("count"));
        let root = script.1.root();
        let mut stranger = Tree::of(root.pid, root.start_time + 1);
        stranger.stop(SOON).unwrap();
        stranger.kill(SOON).unwrap();
        assert_eq!(stranger.members(), Vec::new());
        assert!(grows(&dir.path().join("count"), SOON));
        assert_eq!(script.1.members(), [root]);
    }
}
