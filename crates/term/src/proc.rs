//! What the kernel tells about processes. Everything here may be gone by the time it is read; that is `None`, not an
//! error.

use crate::scarce;
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal};
use std::fs;
use std::io;
#[cfg(test)]
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// The fields of `/proc/PID/stat` that we use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub pid: i32,
    /// `R`, `S`, `T`, `Z`...
    pub state: u8,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// Clock ticks since boot at which it started; with the pid it names one process for ever.
    pub start_time: u64,
    /// Clock ticks it has computed for, with those of children it has waited for.
    pub cpu_ticks: u64,
    /// Page faults of children that it has waited for, and of theirs.
    pub child_faults: u64,
}

pub fn stat(pid: i32) -> Option<Stat> {
    look(pid).ok().flatten()
}

/// The same for whoever must not take a process for gone because there was no descriptor to look at it: that is an error.
pub fn look(pid: i32) -> io::Result<Option<Stat>> {
    match fs::read(format!("/proc/{pid}/stat")) {
        Ok(text) => Ok(parse(pid, &text)),
        Err(error) if scarce::is_passing(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

fn parse(pid: i32, text: &[u8]) -> Option<Stat> {
    // The name is in parentheses and may hold anything, parentheses too: fields count from the last one.
    let after = text.iter().rposition(|&byte| byte == b')')?;
    let fields = String::from_utf8_lossy(text.get(after + 2..)?).into_owned();
    let fields: Vec<&str> = fields.split(' ').collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<i32>().ok());
    Some(Stat {
        pid,
        state: *fields.first()?.as_bytes().first()?,
        parent: number(1)?,
        group: number(2)?,
        session: number(3)?,
        start_time: fields.get(19)?.parse().ok()?,
        child_faults: fields.get(8)?.parse().ok()?,
        cpu_ticks: fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum(),
    })
}

/// The working directory, or `None`. A directory that was removed ends in ` (deleted)`.
pub fn cwd(pid: i32) -> Option<Vec<u8>> {
    let link = rustix::fs::readlink(format!("/proc/{pid}/cwd"), Vec::new()).ok()?;
    Some(link.into_bytes())
}

/// Where a descriptor of a process leads, as the kernel calls it: a path, `pipe:[7]`... What was removed ends in
/// ` (deleted)`. `None` if it is not open.
pub fn descriptor(pid: i32, number: i32) -> Option<Vec<u8>> {
    let link = rustix::fs::readlink(format!("/proc/{pid}/fd/{number}"), Vec::new()).ok()?;
    Some(link.into_bytes())
}

/// Every process of a session, zombies too.
pub fn of_session(session: i32) -> Vec<Stat> {
    all().filter(|stat| stat.session == session).collect()
}

/// Processes that have one of these FIFOs open, other than `except`.
pub fn holders(paths: &[&Path], except: &[i32]) -> Vec<Stat> {
    let holds = |pid: i32| {
        let Ok(links) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        links.flatten().any(|link| fs::read_link(link.path()).is_ok_and(|to| paths.contains(&to.as_path())))
    };
    all().filter(|stat| !except.contains(&stat.pid) && holds(stat.pid)).collect()
}

pub(crate) fn all() -> impl Iterator<Item = Stat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()?.parse().ok()).filter_map(stat)
}

/// Processes that were started with a variable whose value is one of those wanted. Those of others can't be looked at.
pub fn with_variable(name: &str, wanted: &dyn Fn(&str) -> bool) -> Vec<i32> {
    let has = |pid: i32| {
        let Ok(variables) = fs::read(format!("/proc/{pid}/environ")) else { return false };
        let mut values = variables.split(|byte| *byte == 0).filter_map(|variable| {
            let value = variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            std::str::from_utf8(value).ok()
        });
        values.any(wanted)
    };
    all().filter(|stat| stat.state != b'Z' && has(stat.pid)).map(|stat| stat.pid).collect()
}

/// Children of a process, zombies too.
pub fn children(pid: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// How long the process itself has computed. `None` where the kernel doesn't count that.
pub fn time_on_processor(pid: i32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// Whether the process waits in `read` on its standard input. `false` also where the kernel won't tell.
pub fn reads_stdin(pid: i32) -> bool {
    const READ: &str = if cfg!(target_arch = "x86_64") { "0 0x0 " } else { "63 0x0 " };
    fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok_and(|line| line.starts_with(READ))
}

/// Whether two processes run the same program.
pub fn same_program(one: i32, other: i32) -> bool {
    let program = |pid: i32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    program(one).is_some() && program(one) == program(other)
}

/// Names this boot of the machine; process ids and start times mean nothing across two. Empty where the kernel doesn't say.
pub fn boot_id() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    if let Some(boot) = BOOT.get() {
        return boot;
    }
    match fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(text) => BOOT.get_or_init(|| text.trim().to_owned()),
        // It may be told the next time.
        Err(_) => "",
    }
}

/// A descriptor that becomes readable when the process has ended; `None` if it has already.
pub fn pidfd(pid: i32) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = Pid::from_raw(pid) else { return Ok(None) };
    match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => Ok(Some(fd)),
        Err(rustix::io::Errno::SRCH) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Signals one process. It may be gone: that is no error, it is what was wanted.
pub fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid).filter(|pid| !pid.is_init()) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Signals a process group.
pub fn signal_group(group: i32, signal: Signal) {
    if let Some(group) = Pid::from_raw(group).filter(|group| !group.is_init()) {
        let _ = rustix::process::kill_process_group(group, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_described_whatever_its_name() {
        let me = i32::try_from(std::process::id()).unwrap();
        let stat = stat(me).unwrap();
        assert_eq!((stat.pid, stat.state == b'Z'), (me, false));
        assert!(of_session(stat.session).iter().any(|other| other.pid == me));
        assert_eq!(cwd(me).unwrap(), std::env::current_dir().unwrap().into_os_string().into_vec());
        assert!(!boot_id().is_empty());
    }

    #[test]
    fn holders_of_a_fifo_are_found_by_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        crate::fifo::make(&path).unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        assert!(holders(&[&path], &[]).is_empty());
        let _held = crate::fifo::open_both(&path).unwrap();
        assert!(holders(&[&path], &[]).iter().any(|stat| stat.pid == me));
        assert!(holders(&[&path], &[me]).iter().all(|stat| stat.pid != me));
    }
}
