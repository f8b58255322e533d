//! What the tests stand on: `stead` over a directory that goes with the test, and ways to wait for it.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stead_model::proto::{Reply, Request, Stats};
use stead_steward::client::{Client, ClientError};

/// How long anything may take before a test calls it hung. Generous: the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Rig {
    dir: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let rig = Self { dir: tempfile::Builder::new().prefix("stead-").tempdir().unwrap() };
        std::fs::create_dir(rig.scratch()).unwrap();
        rig
    }

    /// The steward's directory, which `stead` makes.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("steward")
    }

    /// Where `stead` is called, and a place for what commands make.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.dir.path().join("scratch")
    }

    /// `stead` in an environment that doesn't depend on who runs the tests.
    pub(crate) fn stead<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stead"));
        command.args(arguments).current_dir(self.scratch()).stdin(Stdio::null()).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", self.scratch()).env("LANG", "C.UTF-8");
        command.env("STEAD_SHELL_DIR", self.path());
        command
    }

    /// `stead shell` with these arguments, from start to end.
    #[track_caller]
    pub(crate) fn shell(&self, arguments: &[&str]) -> Said {
        self.start_shell(arguments).end()
    }

    /// The same, not waited for.
    pub(crate) fn start_shell(&self, arguments: &[&str]) -> Run {
        Run::start(self.stead(["shell"].iter().chain(arguments)), &self.dir)
    }

    #[track_caller]
    pub(crate) fn run(&self, command: Command) -> Said {
        self.start(command).end()
    }

    /// Any command, not waited for.
    pub(crate) fn start(&self, command: Command) -> Run {
        Run::start(command, &self.dir)
    }

    /// `stead steward ROLE` over this rig's directory.
    #[track_caller]
    pub(crate) fn steward(&self, role: &str) -> Said {
        let mut command = self.stead(["steward", role, "--dir"]);
        command.arg(self.path());
        self.run(command)
    }

    /// Asked until it is told: a steward that is just being killed breaks off in the middle.
    #[track_caller]
    pub(crate) fn pids(&self) -> Pids {
        wait_for("the status of the steward", || {
            let said = self.steward("status");
            let numbers = said.stdout.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
            // After the three of the version.
            let numbers: Vec<i32> = numbers.skip(3).collect();
            let [steward, keeper, ..] = numbers.as_slice() else { return None };
            Some(Pids { steward: *steward, keeper: *keeper })
        })
    }

    /// A connection as any client has it.
    pub(crate) fn client(&self) -> Client {
        loop {
            match Client::connect(&self.path(), "test") {
                Err(ClientError::Broken(_)) => {}
                client => return client.unwrap(),
            }
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let Reply::Stats(stats) = self.client().request(&Request::Stats).unwrap() else { panic!("no stats") };
        stats
    }

    /// A FIFO that holds commands back until the test lets them go.
    pub(crate) fn gate(&self, name: &str) -> Gate {
        let path = self.scratch().join(name);
        stead_term::fifo::make(&path).unwrap();
        let both = File::options().read(true).write(true).open(&path).unwrap();
        Gate { path, both }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Where all is dead, or was never started, there is nothing to stop.
        let mut command = self.stead(["steward", "stop", "--dir"]);
        let _ = command.arg(self.path()).output();
        if std::thread::panicking() {
            eprintln!("--- the steward's log:\n{}", text_of(&self.path().join("log")));
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Pids {
    pub(crate) steward: i32,
    pub(crate) keeper: i32,
}

/// A running `stead`. What it prints goes to files, so that it never waits for the test to read.
pub(crate) struct Run {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// What a finished `stead` printed, and its exit code; `None` if a signal ended it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    fn start(mut command: Command, dir: &tempfile::TempDir) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let [stdout, stderr] = ["out", "err"].map(|name| dir.path().join(format!("{name}.{number}")));
        command.stdout(File::create(&stdout).unwrap()).stderr(File::create(&stderr).unwrap());
        Self { child: command.spawn().unwrap(), stdout, stderr }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    #[track_caller]
    pub(crate) fn wait_for_stdout(&self, text: &str) {
        wait_for(&format!("`{text}` on standard output"), || text_of(&self.stdout).contains(text).then_some(()));
    }

    #[track_caller]
    pub(crate) fn wait_for_stderr(&self, text: &str) {
        wait_for(&format!("`{text}` on standard error"), || text_of(&self.stderr).contains(text).then_some(()));
    }

    #[track_caller]
    pub(crate) fn end(mut self) -> Said {
        let status = wait(&mut self.child);
        Said { code: status.code(), stdout: text_of(&self.stdout), stderr: text_of(&self.stderr) }
    }

    /// The bytes as they are.
    #[track_caller]
    pub(crate) fn end_bytes(mut self) -> (Option<i32>, Vec<u8>, Vec<u8>) {
        let status = wait(&mut self.child);
        (status.code(), std::fs::read(&self.stdout).unwrap(), std::fs::read(&self.stderr).unwrap())
    }

    /// Ends it with a signal that it can't refuse.
    pub(crate) fn kill(mut self) {
        signal(self.pid(), Signal::KILL);
        assert_eq!(wait(&mut self.child).signal(), Some(9));
    }
}

/// Waits for the end of a child, and ends it if that doesn't come.
#[track_caller]
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let patience = Timespec { tv_sec: i64::try_from(PATIENCE.as_secs()).unwrap(), tv_nsec: 0 };
    if poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&patience)).unwrap() == 0 {
        child.kill().unwrap();
        child.wait().unwrap();
        panic!("waited too long for `stead` to end");
    }
    child.wait().unwrap()
}

pub(crate) fn said(code: i32, stdout: &str, stderr: &str) -> Said {
    Said { code: Some(code), stdout: stdout.to_owned(), stderr: stderr.to_owned() }
}

pub(crate) struct Gate {
    path: PathBuf,
    /// Both ends, so that neither a command nor the test ever waits for the other to open it.
    both: File,
}

impl Gate {
    /// Text of a command that waits for one [`Self::release`].
    pub(crate) fn wait(&self) -> String {
        format!("read -r _ <'{}'", self.path.display())
    }

    pub(crate) fn release(&mut self) {
        self.both.write_all(b"\n").unwrap();
    }
}

#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < until, "waited too long for {what}");
        std::thread::yield_now();
    }
}

pub(crate) fn text_of(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// One that nobody has reaped yet is dead all the same.
pub(crate) fn is_alive(pid: i32) -> bool {
    stead_term::proc::stat(pid).is_some_and(|stat| stat.state != b'Z')
}
