//! The files of a cgroup, as both versions have them.

use super::DIRECTORY;
use crate::{poll, proc};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often a look is repeated at what tells of no event.
const GLANCE: Duration = Duration::from_millis(100);

/// An error that names its file.
pub(super) fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

pub(super) fn read(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map_err(|error| at(path, &error))
}

/// One write: the kernel takes a value whole or refuses it.
pub(super) fn write(path: &Path, value: &str) -> io::Result<()> {
    let written = File::options().write(true).truncate(true).open(path);
    written.and_then(|mut file| file.write_all(value.as_bytes())).map_err(|error| at(path, &error))
}

/// A file that holds one number; `None` for `max` and where there is none.
pub(super) fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A number from a file of lines `key value`.
pub(super) fn keyed(path: &Path, key: &str) -> Option<u64> {
    value_of(&fs::read_to_string(path).ok()?, key)
}

pub(crate) fn value_of(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Whether a group was there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    New,
    Reused,
}

/// Makes a group and the directory of all groups above it.
pub(super) fn make_group(group: &Path) -> io::Result<Made> {
    // Whoever removes the last group removes the directory too; it may go between our two steps.
    for _ in 0..100 {
        if let Some(all) = group.parent() {
            match fs::create_dir(all) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(at(all, &error)),
                Ok(()) | Err(_) => {}
            }
        }
        match fs::create_dir(group) {
            Ok(()) => return Ok(Made::New),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // A name can be that of a file: `tasks`.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && group.is_dir() => return Ok(Made::Reused),
            Err(error) => return Err(at(group, &error)),
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, format!("{} keeps vanishing", group.display())))
}

/// Passes a controller of version 2 on to our groups below `parent`. To be called when there is one: it keeps the
/// directory from being removed meanwhile.
pub(super) fn enable(parent: &Path, controller: &str) -> io::Result<()> {
    let has = |text: &str| text.split_whitespace().any(|name| name == controller);
    if !has(&read(&parent.join("cgroup.controllers"))?) {
        let text = format!("cgroup v2 at {} has no {controller} controller to give", parent.display());
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    for place in [parent.to_owned(), parent.join(DIRECTORY)] {
        let control = place.join("cgroup.subtree_control");
        if has(&read(&control)?) {
            continue;
        }
        write(&control, &format!("+{controller}")).map_err(|error| {
            if error.kind() != io::ErrorKind::ResourceBusy {
                return error;
            }
            let why = format!("processes live in {} itself, so the kernel passes no controller on", place.display());
            io::Error::new(error.kind(), format!("{error}: {why}"))
        })?;
    }
    Ok(())
}

/// A group and all groups that were made below it, deepest first.
pub(super) fn subtree(group: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut ahead = vec![group.to_owned()];
    while let Some(place) = ahead.pop() {
        let entries = fs::read_dir(&place).into_iter().flatten().flatten();
        ahead.extend(entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path()));
        found.push(place);
    }
    found.reverse();
    found
}

/// Every process of a group, and of groups below it; one of another pid namespace that we can't name is 0.
pub(super) fn processes(group: &Path) -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for place in subtree(group) {
        match fs::read_to_string(place.join("cgroup.procs")) {
            Ok(text) => found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok())),
            // Gone, or a threaded one, whose processes are listed by the group above.
            Err(error) if place != group || gone(&error) => {}
            Err(error) => return Err(at(&place, &error)),
        }
    }
    Ok(found)
}

/// What a group that was removed answers with.
pub(super) fn gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

/// Signals every process of a group, and nobody else: a pid that went to another process in between isn't listed any
/// more once we hold its descriptor.
pub(super) fn signal_all(group: &Path, signal: Signal) -> io::Result<()> {
    // Not all at once: a descriptor each is held.
    for batch in processes(group)?.chunks(256) {
        let mut held = Vec::new();
        for &pid in batch {
            held.extend(proc::pidfd(pid)?.map(|fd| (pid, fd)));
        }
        let still = processes(group)?;
        for (_, fd) in held.iter().filter(|(pid, _)| still.contains(pid)) {
            let _ = rustix::process::pidfd_send_signal(fd, signal);
        }
    }
    Ok(())
}

/// Waits for a group to have no process; for where the kernel tells of no event but the end of each. Whether it has
/// none.
pub(super) fn wait_empty(group: &Path, deadline: Instant) -> io::Result<bool> {
    loop {
        let processes = processes(group)?;
        let Some(&first) = processes.first() else { return Ok(true) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        // All of them must end, so it doesn't matter which we wait for. It may also leave for another group.
        match proc::pidfd(first)? {
            Some(fd) => poll::readable(&fd, left.min(GLANCE))?,
            None => poll::nap(Duration::from_millis(1).min(left)),
        }
    }
}
