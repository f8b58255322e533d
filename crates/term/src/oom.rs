//! When memory runs out: who is to be killed first, and how many were.
//!
//! The kernel kills the process with the highest score: its size, and a share of the limit for each point that was added.
//! A process may add points to itself and to others of its user without any right, so those that can be spared add some:
//!
//! ```text
//! keeper, steward    what they were started with        last
//! shells             [`SHELL`]                          so that they outlive what they run, and go before the steward
//! what these run     [`COMMAND`], once it has run for a moment (before that as the shell, and the larger one goes)
//! ```

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Points of a shell: half of what all may use, which no steward takes.
pub const SHELL: i32 = 500;

/// Points of what a shell runs: the most there are.
pub const COMMAND: i32 = 1000;

/// The points of a process; `None` if it is gone.
pub fn points(pid: i32) -> Option<i32> {
    fs::read_to_string(setting(pid)).ok()?.trim().parse().ok()
}

/// Adds points to whatever a process has started, down to the last child. Who has more already keeps them, and who
/// belongs to somebody else can't be changed and is left.
pub fn expose_children(of: i32) {
    let mut ahead = crate::proc::children(of);
    while let Some(pid) = ahead.pop() {
        // What it starts from now on has them too: only what it has started before is to be looked at.
        if points(pid).is_some_and(|points| points < COMMAND) {
            let _ = fs::write(setting(pid), COMMAND.to_string());
            ahead.extend(crate::proc::children(pid));
        }
    }
}

fn setting(pid: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/oom_score_adj"))
}

/// Where each version of cgroups counts those that were killed.
const COUNTERS: [&str; 2] = ["memory.events", "memory.oom_control"];

/// The file that counts, of the groups that have these `cgroup.procs`. Open it stays readable also for whoever can't see
/// the groups.
pub fn counter_of(procs: &[PathBuf]) -> Option<File> {
    let places = procs.iter().filter_map(|file| file.parent());
    places.flat_map(|place| COUNTERS.map(|name| place.join(name))).find_map(|path| open_counter(&path))
}

/// The same for the group of the container that this process is the first of.
pub fn counter_of_container() -> Option<File> {
    let places = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"].map(Path::new);
    places.into_iter().flat_map(|place| COUNTERS.map(|name| place.join(name))).find_map(|path| open_counter(&path))
}

/// Only if it can be read and counts: an older version 1 doesn't.
fn open_counter(path: &Path) -> Option<File> {
    let file = File::open(path).ok()?;
    killed(&file).map(|_| file)
}

/// How many processes were killed because their group, or the machine, had no more memory.
pub fn killed(counter: &File) -> Option<u64> {
    let mut text = [0; 512];
    let length = counter.read_at(&mut text, 0).ok()?;
    crate::cgroup::value_of(std::str::from_utf8(text.get(..length)?).ok()?, "oom_kill")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn both_kinds_of_counters_are_found_and_read() {
        let dir = tempfile::tempdir().unwrap();
        let group = |name: &str| {
            let group = dir.path().join(name);
            fs::create_dir(&group).unwrap();
            group.join("cgroup.procs")
        };
        let (pids, v1, v2) = (group("pids"), group("v1"), group("v2"));
        assert!(counter_of(std::slice::from_ref(&pids)).is_none());
        // The older one knows no number.
        fs::write(v1.with_file_name("memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\n").unwrap();
        assert!(counter_of(&[pids.clone(), v1.clone()]).is_none());
        fs::write(v1.with_file_name("memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n").unwrap();
        fs::write(v2.with_file_name("memory.events"), "low 0\noom 9\noom_kill 4\noom_group_kill 1\n").unwrap();
        assert_eq!(killed(&counter_of(&[pids.clone(), v1.clone()]).unwrap()), Some(3));
        let counter = counter_of(&[pids, v2.clone()]).unwrap();
        assert_eq!(killed(&counter), Some(4));
        let mut file = File::options().write(true).open(v2.with_file_name("memory.events")).unwrap();
        file.write_all(b"low 0\noom 9\noom_kill 5").unwrap();
        assert_eq!(killed(&counter), Some(5));
    }

    #[test]
    fn what_a_process_has_started_is_exposed_and_it_itself_is_not() {
        let mut shell = std::process::Command::new("sh").args(["-c", "sleep 1000 & wait"]).spawn().unwrap();
        let pid = i32::try_from(shell.id()).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
        assert!(crate::poll::until(deadline, || Ok(crate::proc::children(pid).len() == 1)).unwrap());
        let (before, child) = (points(pid), crate::proc::children(pid)[0]);
        expose_children(pid);
        assert_eq!((points(pid), points(child)), (before, Some(COMMAND)));
        crate::proc::signal(child, rustix::process::Signal::KILL);
        shell.wait().unwrap();
        assert_eq!(points(pid), None);
    }
}
