//! What engines leave when they are told to end: processes that only wait, mounts that nobody looks into.

use crate::cargo::run;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Kills every process of which this is so; it is asked of the process's directory in `/proc`.
pub(super) fn kill(is_it: impl Fn(&Path) -> bool) {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten().filter(|entry| is_it(&entry.path()));
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for pid in pids.filter_map(rustix::process::Pid::from_raw).filter(|pid| *pid != rustix::process::getpid()) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// Whether a process was started with a path below a directory.
pub(super) fn mentions(process: &Path, dir: &Path) -> bool {
    let (words, path) = (fs::read(process.join("cmdline")).unwrap_or_default(), format!("{}/", dir.display()));
    words.windows(path.len()).any(|window| window == path.as_bytes())
}

/// Takes away what is mounted below a directory, the innermost first.
pub(super) fn unmount(dir: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let below = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
    for path in below.filter(|path| path.starts_with(dir)).collect::<Vec<_>>().into_iter().rev() {
        if let Err(error) = run(Command::new("umount").arg("--lazy").arg(&path)) {
            println!("   `{}` stays mounted: {error}", path.display());
        }
    }
}
