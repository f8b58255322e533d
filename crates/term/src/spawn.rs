//! Starting processes that aren't our children.
//!
//! A shell must be reaped, and its exit status remembered, by a process that outlives the steward. So it is forked
//! twice: the process in between ends at once, and the kernel gives the shell to the nearest subreaper, the keeper.

#![expect(unsafe_code, reason = "between fork and exec there is no safe interface")]

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// How many files a process may open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles {
    soft: libc::rlim_t,
    hard: libc::rlim_t,
}

/// Lets this process open as many files as the system allows, and returns what it was allowed before: what it starts is
/// to have that, or `ulimit -n` in a shell would show our needs instead of the user's setting.
pub fn raise_open_files() -> io::Result<OpenFiles> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the one struct that is written, and read by the second call.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == -1 {
            return Err(io::Error::last_os_error());
        }
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(OpenFiles { soft: limit.rlim_cur, hard: limit.rlim_max })
}

impl OpenFiles {
    /// What no process may go beyond.
    pub fn hard(self) -> u64 {
        self.hard
    }

    /// Async-signal-safe: for use between fork and exec.
    fn apply(self) -> io::Result<()> {
        let limit = libc::rlimit { rlim_cur: self.soft, rlim_max: self.hard };
        // SAFETY: reads one valid struct.
        let done = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
        if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[derive(Debug)]
pub struct Spawn<'a> {
    pub program: &'a Path,
    /// `argv[0]` too.
    pub arguments: &'a [&'a str],
    /// The whole environment.
    pub env: &'a [(&'a [u8], &'a [u8])],
    pub cwd: &'a Path,
    pub open_files: OpenFiles,
    /// How soon it is killed when memory runs out ([`crate::oom`]); never less than we ourselves.
    pub oom_points: i32,
    pub stdin: OwnedFd,
    /// Standard output. If a terminal: the controlling one of a session of its own.
    pub terminal: OwnedFd,
    pub stderr: OwnedFd,
}

/// Starts a process in its own session, with `terminal` as its controlling terminal, as a child of the nearest
/// subreaper. Returns its process id once it has been executed.
pub fn detached(spawn: Spawn<'_>) -> io::Result<i32> {
    let (mut report, write) = io::pipe()?;
    let raw = write.as_raw_fd();
    let open_files = spawn.open_files;
    let own = i32::try_from(std::process::id()).ok().and_then(crate::oom::points).unwrap_or(0);
    let points = spawn.oom_points.max(own).to_string();
    let mut command = Command::new(spawn.program);
    if let Some((zero, rest)) = spawn.arguments.split_first() {
        command.arg0(zero).args(rest);
    }
    command
        .env_clear()
        .envs(spawn.env.iter().map(|(name, value)| (OsStr::from_bytes(name), OsStr::from_bytes(value))))
        .current_dir(spawn.cwd)
        .stdin(spawn.stdin)
        .stdout(spawn.terminal)
        .stderr(spawn.stderr);
    let between = move || {
        // SAFETY: runs in the child of a fork. `fork`, `_exit`, `setrlimit`, `setsid`, `getpid`, `open`, `write`, `close` and
        // `ioctl` are async-signal-safe, nothing is allocated, and `raw` is a pipe that this child inherited.
        unsafe {
            match libc::fork() {
                -1 => return Err(io::Error::last_os_error()),
                0 => {}
                _ => libc::_exit(0),
            }
            open_files.apply()?;
            if libc::setsid() == -1 || libc::ioctl(1, libc::TIOCSCTTY, 0) == -1 {
                return Err(io::Error::last_os_error());
            }
            // Where it can't be had all the same, size alone decides.
            let setting = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            if setting != -1 {
                libc::write(setting, points.as_ptr().cast(), points.len());
                libc::close(setting);
            }
            let pid = libc::getpid().to_ne_bytes();
            if libc::write(raw, pid.as_ptr().cast(), pid.len()) != 4 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the hook keeps to async-signal-safe calls, see above.
    unsafe { command.pre_exec(between) };
    // Returns when the grandchild has executed the program or told why it could not.
    let spawned = command.spawn();
    drop(command);
    drop(write);
    // The process in between has ended already.
    spawned?.wait()?;
    let mut pid = [0; 4];
    report.read_exact(&mut pid)?;
    Ok(i32::from_ne_bytes(pid))
}

/// Starts `arguments` of this very program as a child that knows one descriptor of ours as its number 3.
pub fn successor(
    program: &Path,
    arguments: &[String],
    link: OwnedFd,
    log: Stdio,
    open_files: Option<OpenFiles>,
) -> io::Result<Child> {
    let raw = link.as_raw_fd();
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // SAFETY: runs in the child of a fork; `dup2`, `fcntl` and `setrlimit` are async-signal-safe, and `raw` is a descriptor that
    // stays open until the child has been executed, because `link` is dropped only after `spawn`.
    unsafe {
        command.pre_exec(move || {
            if let Some(open_files) = open_files {
                open_files.apply()?;
            }
            // `dup2` onto itself would leave close-on-exec set.
            let copied = if raw == 3 { libc::fcntl(3, libc::F_SETFD, 0) } else { libc::dup2(raw, 3) };
            if copied == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
        });
    }
    let child = command.spawn()?;
    drop(link);
    Ok(child)
}

/// Starts a program that is to outlive us: in a session of its own, away from our terminal and its Ctrl-C, as nobody's
/// child of ours, with nothing of what we have open but its log and `links`, which keep their numbers.
pub fn own_session(mut command: Command, cwd: &Path, links: [OwnedFd; 2], log: OwnedFd) -> io::Result<()> {
    let raw = [links[0].as_raw_fd(), links[1].as_raw_fd()];
    command.current_dir(cwd).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    // SAFETY: runs in the child of a fork; `fork`, `_exit`, `setsid`, `fcntl` and `close_range` are
    // async-signal-safe, nothing is allocated, and `raw` stay open until the program has been executed, because `links` are
    // dropped only after `spawn`. Descriptors are marked, not closed: the standard library still needs one of its own.
    unsafe {
        command.pre_exec(move || {
            match libc::fork() {
                -1 => return Err(io::Error::last_os_error()),
                0 => {}
                _ => libc::_exit(0),
            }
            if libc::setsid() == -1 {
                return Err(io::Error::last_os_error());
            }
            if libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) == -1 {
                return Err(io::Error::last_os_error());
            }
            for number in raw {
                if libc::fcntl(number, libc::F_SETFD, 0) == -1 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    let spawned = command.spawn();
    drop(links);
    // The process in between has ended already.
    spawned?.wait()?;
    Ok(())
}

/// A child that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaped {
    pub pid: i32,
    /// Together with the pid it names one process for ever ([`crate::proc::Stat`]).
    pub start_time: u64,
    /// As `wait` gives it.
    pub status: i32,
}

/// Waits for any child to end, and reaps it. As soon as a child is reaped its pid may be given to another process, so its
/// start time is read before that.
pub fn reap_child() -> io::Result<Reaped> {
    // SAFETY: a struct of plain numbers, for which zeroes are valid.
    let mut ended: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `ended` is a valid place for the one struct that is written.
    if unsafe { libc::waitid(libc::P_ALL, 0, &raw mut ended, libc::WEXITED | libc::WNOWAIT) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `waitid` fills in the fields of a child's end, of which this is one.
    let pid = unsafe { ended.si_pid() };
    let start_time = crate::proc::stat(pid).map_or(0, |stat| stat.start_time);
    let mut status = 0;
    // SAFETY: `status` is a valid place for the one number that is written.
    if unsafe { libc::waitpid(pid, &raw mut status, 0) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(Reaped { pid, start_time, status })
}

/// Takes over the descriptor that [`successor`] left at number 3.
pub fn inherited_link() -> io::Result<OwnedFd> {
    // SAFETY: only borrowed, for a call that answers `BADF` if it isn't open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(3) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
    // SAFETY: it is open, and nothing else owns number 3 in a process that `successor` has just started.
    Ok(unsafe { OwnedFd::from_raw_fd(3) })
}

/// Leaves whoever started us: a new session in a new process, so that no terminal, group or parent can take us along.
/// Returns in the new process only; the old one waits for nobody and ends with `Left`.
pub fn leave() -> io::Result<Side> {
    // SAFETY: only called by a process that has one thread, so the child is a full copy of it.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            rustix::process::setsid()?;
            Ok(Side::Detached)
        }
        _ => Ok(Side::Left),
    }
}

/// Makes every descriptor from `first` on close at the next exec: what whoever started us had open is not ours to pass
/// on to a shell.
pub fn close_inherited_on_exec(first: u32) -> io::Result<()> {
    // SAFETY: sets flags on descriptors; touches no memory.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The process that was called.
    Left,
    /// The new one.
    Detached,
}
/// A descriptor that whoever started this process left open for it, by its number. To be called once for each, before
/// this process opens anything of its own that could have the number.
pub fn inherited(number: i32) -> Option<OwnedFd> {
    // The first three are everybody's.
    if number <= 2 {
        return None;
    }
    // SAFETY: borrowed only to ask whether it is open at all.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC).ok()?;
    // SAFETY: it is open, and by the caller's word nobody else's.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}
