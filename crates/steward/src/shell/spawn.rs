//! Starting a shell and bringing its state back.

use super::trigger::{self, TriggerFile};
use super::{Live, Shell, io_fault};
use crate::host::{Host, Source, What};
use crate::journal::{JournalError, Need};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use stead_model::proto::{Fault, FaultCode, OpenShell, Program};
use stead_model::record::Record;
use stead_model::shell::{Baseline, Dialect, Lines, Reports};
use stead_model::state::restore::{self, Extent};
use stead_term::poll::Interest;
use stead_term::{fifo, oom, proc, pty, scarce, spawn};

/// Shells in a row that may die before they are ready, until queued commands are told that none can be had.
const MOST_STILLBORN: u32 = 3;

/// Times in a row that none can be started at all, until queued commands are told: within a second and a half.
const MOST_UNSTARTED: u32 = 8;

impl Shell {
    /// Starts a new process for this shell, on fresh FIFOs: one that a killed steward left half-started has the old
    /// ones, hears end-of-file on them, and ends.
    pub(super) fn spawn(&mut self, host: &mut Host) -> Result<(), Fault> {
        self.require_state()?;
        self.end_unended(host);
        if !self.unended.is_empty() {
            // The record of a new process says that what is still open was never read.
            return Err(super::journal_fault(&JournalError::NoSpace));
        }
        self.incarnation += 1;
        self.mark.forget_process();
        let record = Record::Spawning(self.incarnation);
        self.journal.append(&[&record], Need::Last).map_err(|error| super::journal_fault(&error))?;
        match self.start_process(host) {
            Ok(live) => {
                self.live = Some(live);
                self.env_of_new_process();
                Ok(())
            }
            Err(error) => {
                // Who tries again makes others; these would stay with the keeper for good.
                self.unpark_process(host);
                Err(start_fault(&self.program, &error))
            }
        }
    }

    fn unpark_process(&self, host: &Host) {
        for what in ["ctl", "rep", "pty", trigger::PARKED] {
            host.link.unpark(&self.parked(what));
        }
    }

    fn start_process(&mut self, host: &mut Host) -> io::Result<Live> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.run)?;
        self.choose_privacy(host, self.has_secrets())?;
        let lines = self.lines();
        let cwd = nearest_directory(&self.mark.cwd);
        self.write_scripts(&lines, cwd.as_os_str().as_bytes())?;
        let control_path = self.run.join(format!("ctl.{}", self.incarnation));
        let reply_path = self.run.join(format!("rep.{}", self.incarnation));
        fifo::make(&control_path)?;
        fifo::make(&reply_path)?;
        let control = fifo::open_both(&control_path)?;
        let replies = fifo::open_both(&reply_path)?;
        let stdin = fifo::open_input(&control_path)?;
        let trigger = TriggerFile::create()?;
        let pty = pty::open(self.tty.size.columns, self.tty.size.rows).map_err(no_terminal)?;
        host.link.park(&self.parked("ctl"), &control)?;
        host.link.park(&self.parked("rep"), &replies)?;
        host.link.park(&self.parked(trigger::PARKED), &trigger)?;
        host.link.park(&self.parked("pty"), &pty.controller)?;
        let mut arguments = vec![self.program.file_name().and_then(|name| name.to_str()).unwrap_or("sh")];
        arguments.extend(self.applet);
        arguments.extend(self.dialect.arguments());
        let mut env: Vec<_> = self.open.env.iter().map(|(name, value)| (&*name.0, &*value.0)).collect();
        // By this the shell knows its directory by the name that leads through symbolic links.
        env.push((b"PWD", cwd.as_os_str().as_bytes()));
        let spawn = spawn::Spawn {
            program: &self.program,
            arguments: &arguments,
            env: &env,
            cwd: &cwd,
            open_files: host.open_files,
            oom_points: oom::SHELL,
            stdin,
            terminal: pty.user,
            // Where it would show its own prompts.
            stderr: OwnedFd::from(File::options().write(true).open("/dev/null")?),
        };
        let pid = spawn::detached(spawn)?;
        let start_time = proc::stat(pid).map_or(0, |stat| stat.start_time);
        let record = self.spawned_record(host, pid, start_time);
        self.journal.append(&[&record], Need::Last).map_err(io::Error::other)?;
        let mut live = self.live_on(host, pid, lines, [control, replies, pty.controller, trigger])?;
        live.start_time = start_time;
        let first = live.lines.start();
        live.control.write_all(first.as_bytes())?;
        live.said = first.len() as u64;
        Ok(live)
    }

    /// Takes hold of a process by its descriptors, just started or found again.
    pub(super) fn live_on(
        &self,
        host: &mut Host,
        pid: i32,
        lines: Lines,
        [control, replies, terminal, trigger]: [OwnedFd; 4],
    ) -> io::Result<Live> {
        let reply_log = open_kept(&self.run.join(format!("replies.{}", self.incarnation)))?;
        let text = open_kept(&self.place("c"))?;
        let process = proc::pidfd(pid)?;
        host.poller.add(&replies, Source::Replies(self.key).token(), Interest::Read)?;
        host.poller.add(&terminal, Source::Terminal(self.key).token(), Interest::Read)?;
        match &process {
            Some(process) => host.poller.add(process, Source::Process(self.key).token(), Interest::Read)?,
            // Killed and reaped before we could take hold of it: no event tells that it is gone.
            None => host.after(Duration::ZERO, self.key, What::Unreaped(self.incarnation)),
        }
        let gone = process.is_none();
        Ok(Live {
            pid,
            start_time: 0,
            process,
            lines,
            replies,
            terminal,
            control: File::from(control),
            trigger: TriggerFile::new(trigger),
            said: 0,
            reply_length: reply_log.metadata()?.len(),
            reply_log,
            reports: Reports::default(),
            dump: open_kept(&self.place("st"))?,
            text_length: text.metadata()?.len(),
            text,
            ready: false,
            exiting: None,
            gone,
            death: None,
            looks: 0,
            condemned: false,
        })
    }

    pub(super) fn lines(&self) -> Lines {
        let lines = Lines::new(self.dialect, &self.run.to_string_lossy(), self.incarnation);
        match self.private() {
            Some(private) => lines.hidden_in(&private.to_string_lossy()),
            None => lines,
        }
    }

    fn write_scripts(&self, lines: &Lines, start: &[u8]) -> io::Result<()> {
        let base = self.run.join("base");
        // Who comes after us reads it from there again.
        let known = self.baseline.is_some() && fs::metadata(&base).is_ok_and(|meta| meta.len() > 0);
        let baseline = if known { Baseline::Known } else { Baseline::Wanted };
        let extent = match self.stillborn {
            0 => Extent::All,
            1 => Extent::WithoutCode,
            _ => Extent::DirectoryOnly,
        };
        let restore = restore::script(self.dialect, &self.state, extent, start);
        write_private(&self.run.join("init"), &lines.init_script(baseline, &restore))?;
        write_private(&self.run.join("d"), lines.dump_script().as_bytes())?;
        if self.dialect == Dialect::Bash {
            // Whole or not at all: a shell may be reading it for a steward before us.
            crate::dir::write_atomically(&self.run.join("k"), lines.epilogue_script().as_bytes())?;
        }
        // The shell writes these under the user's umask; made by us they are private.
        for dump in ["st", "xt", "t"] {
            write_private(&self.place(dump), b"")?;
        }
        if !known {
            write_private(&base, b"")?;
        }
        write_private(&self.run.join("x"), lines.exit_script().as_bytes())
    }

    /// The name under which the keeper has one of this shell's descriptors.
    pub(super) fn parked(&self, what: &str) -> String {
        format!("{}:{what}", self.key)
    }

    /// Lets go of the process, or what is left of it.
    pub(super) fn release(&mut self, host: &mut Host) {
        let Some(live) = self.live.take() else { return };
        self.env.without_process();
        let _ = host.poller.remove(&live.replies);
        let _ = host.poller.remove(&live.terminal);
        if let Some(process) = live.process.as_ref().filter(|_| !live.gone) {
            let _ = host.poller.remove(process);
        }
        self.unpark_process(host);
        for name in ["ctl", "rep", "replies"] {
            remove(&self.run.join(format!("{name}.{}", self.incarnation)));
        }
    }

    /// Starts the next process after one has died. One that dies before it is ready is tried again without the code of
    /// its state; if that fails too, the commands that wait are told.
    pub(crate) fn respawn(&mut self, host: &mut Host) {
        if self.live.is_some() {
            return;
        }
        if self.stillborn >= MOST_STILLBORN {
            self.stillborn = 0;
            let fault = Fault::new(FaultCode::Unavailable, "the shell dies before it is ready");
            self.fail_queue(host, &fault);
            return;
        }
        if let Err(fault) = self.spawn(host) {
            note!("steward: shell {}: {fault}", self.open.shell);
            self.unstarted += 1;
            if self.queue.is_empty() {
                // Nobody waits for it: the next command will try again.
                self.unstarted = 0;
            } else if self.unstarted < MOST_UNSTARTED {
                host.after(Duration::from_millis(50) * self.unstarted, self.key, What::Respawn);
            } else {
                // Its state has no part in it, so none of that is left out the next time.
                self.unstarted = 0;
                self.fail_queue(host, &fault);
            }
            return;
        }
        self.unstarted = 0;
        self.start_next(host);
    }
}

/// A kernel that has no more terminals to give says that there is no space, as a full disk does.
fn no_terminal(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::StorageFull {
        let message = "this machine has as many terminals as it may have (`kernel.pty.max`)";
        return io::Error::new(io::ErrorKind::ResourceBusy, message);
    }
    if scarce::is_passing(&error) {
        return error;
    }
    let message = format!("no terminal is to be had (is devpts mounted, and /dev/ptmx there?): {error}");
    io::Error::new(error.kind(), message)
}

/// What it means for whoever asked: what is used up now is free again some time, and only a program that isn't there, or may
/// not be run, never starts.
fn start_fault(program: &Path, error: &io::Error) -> Fault {
    let fault = io_fault(&format!("can't start `{}`", program.display()), error);
    if scarce::is_passing(error) {
        let advice = "the sandbox, or its machine, has as many processes or open files as it may have: end some, or raise \
                      the limit";
        return Fault::new(FaultCode::Unavailable, format!("{}; {advice}", fault.message));
    }
    let never = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
        || matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput)
        || error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error());
    if never { Fault { code: FaultCode::Unsupported, ..fault } } else { fault }
}

/// Which program to run, and how to speak to it.
pub(super) fn find_program(open: &OpenShell) -> Result<(PathBuf, Option<&'static str>, Dialect), Fault> {
    let path = open.env.iter().find(|(name, _)| name.0 == b"PATH").map(|(_, value)| value.0.clone());
    let path = path.unwrap_or_else(|| b"/usr/local/bin:/usr/bin:/bin".to_vec());
    let find = |name: &str| {
        path.split(|&byte| byte == b':').map(|dir| Path::new(std::ffi::OsStr::from_bytes(dir)).join(name)).find(
            |path| {
                path.is_absolute() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file()
            },
        )
    };
    let bash = || find("bash").map(|path| (path, None, Dialect::Bash));
    let dash = || find("dash").map(|path| (path, None, Dialect::Posix));
    let ash = || {
        let own = find("ash").map(|path| (path, None, Dialect::Posix));
        own.or_else(|| find("busybox").map(|path| (path, Some("ash"), Dialect::Posix)))
    };
    let (found, wanted) = match open.program {
        Program::Best => (bash().or_else(dash).or_else(ash), "bash, dash or ash"),
        Program::Bash => (bash(), "bash"),
        Program::Dash => (dash(), "dash"),
        Program::Ash => (ash(), "ash"),
    };
    found.ok_or_else(|| {
        let path = String::from_utf8_lossy(&path).into_owned();
        Fault::new(FaultCode::Unsupported, format!("no {wanted} in PATH ({path})"))
    })
}

/// A directory to be born in; the restore script goes on from there.
fn nearest_directory(wanted: &[u8]) -> PathBuf {
    let wanted = Path::new(std::ffi::OsStr::from_bytes(wanted));
    wanted.ancestors().find(|path| path.is_dir()).unwrap_or_else(|| Path::new("/")).to_owned()
}

pub(crate) fn open_kept(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

pub(super) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

/// Removes a file of ours that may be gone already (a command may have removed our directory).
pub(super) fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            note!("steward: can't remove `{}`: {error}", path.display());
        }
        _ => {}
    }
}
