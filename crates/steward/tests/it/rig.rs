//! What the tests stand on: a steward over a directory that goes with the test.

#![allow(dead_code, reason = "shared by two test programs, neither of which needs all of it")]

use rustix::process::{Resource, Rlimit};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stead_model::env::Secret;
use stead_model::frame::Stream;
use stead_model::ids::{CommandId, ShellId};
use stead_model::proto::{
    CommandInfo, Ending, Exec, ListCommands, OpenShell, Program, Reply, Request, SetEnv, SetSecret, ShellInfo,
    StoredState,
};
use stead_model::state::{Bytes, ShellState};
use stead_steward::client::{Client, ClientError, Outcome, Told};
use stead_steward::dir::Dir;

/// How long anything may take before a test calls it hung. Generous: the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The program under test.
pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_steward"))
}

pub(crate) struct Rig {
    dir: tempfile::TempDir,
    flags: Vec<String>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with_flags(&[])
    }

    pub(crate) fn with_flags(flags: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("steward-").tempdir().unwrap();
        Self::at(dir, flags)
    }

    /// Over a directory of the caller's making (a small disk, say).
    pub(crate) fn at(dir: tempfile::TempDir, flags: &[&str]) -> Self {
        let rig = Self { dir, flags: flags.iter().map(|flag| (*flag).to_owned()).collect() };
        rig.start();
        rig
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("steward")
    }

    /// A directory beside the steward's, for what commands make.
    pub(crate) fn scratch(&self) -> PathBuf {
        let path = self.dir.path().join("scratch");
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    pub(crate) fn start(&self) {
        let mut command = Command::new(binary());
        command.arg("start").arg("--dir").arg(self.path()).args(&self.flags);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stderr), self.log());
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }

    /// A connection; one that breaks because the steward is just being killed is made again.
    pub(crate) fn client(&self) -> Client {
        loop {
            match self.patient_client() {
                Err(ClientError::Broken(error)) if error.kind() != std::io::ErrorKind::WouldBlock => {}
                client => return client.unwrap(),
            }
        }
    }

    /// On this one an answer that doesn't come fails the test instead of hanging it.
    fn patient_client(&self) -> Result<Client, ClientError> {
        let refused = |error| ClientError::Connect(self.path(), error);
        let stream = Dir::open(&self.path())?.connect().map_err(refused)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(refused)?;
        let read = stream.try_clone().map_err(refused)?;
        Client::over(Box::new(read), Box::new(stream), "test")
    }

    pub(crate) fn try_client(&self) -> Result<Client, ClientError> {
        Client::connect(&self.path(), "test")
    }

    pub(crate) fn shell(&self) -> TestShell {
        self.shell_named("main")
    }

    pub(crate) fn shell_named(&self, name: &str) -> TestShell {
        self.open(name, Program::Bash)
    }

    pub(crate) fn open(&self, name: &str, program: Program) -> TestShell {
        TestShell::open(self.client(), open_shell(name, program, &self.scratch()))
    }

    pub(crate) fn steward_pid(&self) -> i32 {
        i32::try_from(self.client().welcome().pid).unwrap()
    }

    pub(crate) fn keeper_pid(&self) -> i32 {
        i32::try_from(self.client().welcome().keeper_pid).unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // A steward that is just being killed is asked again; where all is dead there is nothing to stop.
        while let Err(ClientError::Broken(_)) =
            self.try_client().and_then(|mut client| client.request(&Request::Shutdown))
        {}
        if std::thread::panicking() {
            eprintln!("--- the steward's log:\n{}", self.log());
        }
    }
}

pub(crate) fn open_shell(name: &str, program: Program, cwd: &Path) -> OpenShell {
    let env = [
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("HOME", "/root"),
        ("LANG", "C.UTF-8"),
        ("TERM", "xterm"),
    ];
    OpenShell {
        shell: ShellId::parse(name).unwrap(),
        program,
        env: env.iter().map(|(name, value)| (Bytes::from(name), Bytes::from(value))).collect(),
        cwd: Bytes::from(cwd.as_os_str().as_encoded_bytes()),
        state: None,
        version: None,
    }
}

/// Kills the steward and its keeper at once, and starts another pair.
pub(crate) fn kill_both(rig: &Rig) {
    kill_these(rig, [rig.keeper_pid(), rig.steward_pid()]);
}

/// The same where they may not answer any more.
pub(crate) fn kill_these(rig: &Rig, both: [i32; 2]) {
    // Stopped first, so that neither can replace the other.
    for pid in both {
        stead_term::proc::signal(pid, rustix::process::Signal::STOP);
    }
    both.into_iter().for_each(kill);
    rig.start();
}

/// Stops a process, and returns when each of its threads stands still: until then it may still do something.
pub(crate) fn stop(pid: i32) {
    stead_term::proc::signal(pid, rustix::process::Signal::STOP);
    wait_for("a process to stand still", || {
        let mut tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let stands = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
        let all = tasks.all(|task| {
            let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
            stat.is_ok_and(stands)
        });
        all.then_some(())
    });
}

/// Kills the steward and waits for the next.
pub(crate) fn kill_steward(rig: &Rig) {
    let steward = rig.steward_pid();
    kill(steward);
    wait_for("another steward", || (rig.steward_pid() != steward).then_some(()));
}

/// A command id that nobody has used.
pub(crate) fn fresh_id() -> CommandId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    CommandId::parse(&format!("cmd-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))).unwrap()
}

pub(crate) struct TestShell {
    pub(crate) client: Client,
    pub(crate) id: ShellId,
}

impl TestShell {
    pub(crate) fn open(mut client: Client, open: OpenShell) -> Self {
        let id = open.shell.clone();
        client.request(&Request::OpenShell(Box::new(open))).unwrap();
        Self { client, id }
    }

    pub(crate) fn exec(&self, text: impl Into<Vec<u8>>) -> Exec {
        Exec::new(self.id.clone(), fresh_id(), text)
    }

    #[track_caller]
    pub(crate) fn run(&mut self, text: impl Into<Vec<u8>>) -> Outcome {
        let exec = self.exec(text);
        self.run_exec(exec)
    }

    #[track_caller]
    pub(crate) fn run_exec(&mut self, exec: Exec) -> Outcome {
        self.client.exec(exec).unwrap()
    }

    /// Runs a command that must succeed in silence on standard error, and gives its output.
    #[track_caller]
    pub(crate) fn out(&mut self, text: &str) -> String {
        let outcome = self.run(text);
        let stderr = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert_eq!((code(&outcome), stderr.as_str()), (Some(0), ""), "{text}");
        String::from_utf8_lossy(&outcome.stdout).into_owned()
    }

    /// Hands a command in without waiting for it.
    #[track_caller]
    pub(crate) fn submit(&mut self, exec: Exec) -> CommandInfo {
        match self.client.request(&Request::Exec(Box::new(exec))).unwrap() {
            Reply::Command(info) => *info,
            other => panic!("{other:?}"),
        }
    }

    /// What the steward knows of a command by now.
    pub(crate) fn command(&mut self, command: &CommandId) -> CommandInfo {
        match self.client.request(&Request::Command(command.clone())).unwrap() {
            Reply::Command(info) => *info,
            other => panic!("{other:?}"),
        }
    }

    /// Everything up to the end of a command that was handed in.
    pub(crate) fn end_of(&mut self, command: &CommandId) -> Outcome {
        self.outcome_of(command, false)
    }

    /// The same, and what its background children wrote after it, until the last of them has let go.
    pub(crate) fn silence_of(&mut self, command: &CommandId) -> Outcome {
        self.outcome_of(command, true)
    }

    fn outcome_of(&mut self, command: &CommandId, late: bool) -> Outcome {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let info = self.client.follow_from(command, 0, late, &mut |told| {
            if let Told::Output(chunk) = told {
                let stream = if chunk.stream == Stream::Stdout { &mut stdout } else { &mut stderr };
                stream.extend_from_slice(&chunk.bytes);
            }
        });
        Outcome { info: info.unwrap(), stdout, stderr }
    }

    pub(crate) fn info(&mut self) -> ShellInfo {
        match self.client.request(&Request::Shell(self.id.clone())).unwrap() {
            Reply::Shell(info) => *info,
            other => panic!("{other:?}"),
        }
    }

    /// Its commands, newest first.
    pub(crate) fn commands(&mut self) -> Vec<CommandInfo> {
        let list = ListCommands { shell: self.id.clone(), limit: 100, before: None };
        match self.client.request(&Request::Commands(list)).unwrap() {
            Reply::Commands(list) => list,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn pid(&mut self) -> i32 {
        wait_for("a live shell", || self.info().pid)
    }

    /// Kills the shell's process and waits for the next.
    pub(crate) fn kill(&mut self) {
        let pid = self.pid();
        kill(pid);
        wait_for("another process", || self.info().pid.filter(|now| *now != pid));
    }

    /// Sets how many descriptors the steward may have, and says how many it might have had.
    pub(crate) fn limit_descriptors(&self, most: Option<u64>) -> Option<u64> {
        let pid = i32::try_from(self.client.welcome().pid).unwrap();
        let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit { current: most, maximum };
        rustix::process::prlimit(rustix::process::Pid::from_raw(pid), Resource::Nofile, limit).unwrap().current
    }

    pub(crate) fn stored(&mut self) -> StoredState {
        match self.client.request(&Request::State(self.id.clone())).unwrap() {
            Reply::State(state) => state,
            other => panic!("{other:?}"),
        }
    }

    /// Sets variables, or unsets them, under a number of their own.
    #[track_caller]
    pub(crate) fn set_env(&mut self, seq: u64, vars: &[(&str, Option<&str>)]) -> ShellState {
        let vars = vars.iter().map(|(name, value)| (Bytes::from(name), value.map(Bytes::from))).collect();
        self.put_env(SetEnv { shell: self.id.clone(), seq, vars, secrets: Vec::new() }).unwrap()
    }

    #[track_caller]
    pub(crate) fn set_secret(&mut self, name: &str, revision: u64, value: Option<&str>) -> ShellState {
        let secret = SetSecret { name: Bytes::from(name), revision, value: value.map(Secret::new) };
        let seq = self.info().env.unwrap().seq;
        self.put_env(SetEnv { shell: self.id.clone(), seq, vars: Vec::new(), secrets: vec![secret] }).unwrap()
    }

    pub(crate) fn put_env(&mut self, set: SetEnv) -> Result<ShellState, ClientError> {
        match self.client.request(&Request::SetEnv(Box::new(set)))? {
            Reply::State(stored) => Ok(minicbor::decode(&stored.state).unwrap()),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn state(&mut self) -> ShellState {
        minicbor::decode(&self.stored().state).unwrap()
    }
}

pub(crate) fn code(outcome: &Outcome) -> Option<i32> {
    outcome.info.ending.as_ref().and_then(|ending| ending.exit_code)
}

/// The exit status and the text of both streams, to be compared at once.
pub(crate) fn seen(outcome: &Outcome) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (code(outcome), text(&outcome.stdout), text(&outcome.stderr))
}

/// How a command ended, apart from what depends on the moment or is told elsewhere: whether someone still held its
/// streams, whether the state changed, and warnings.
pub(crate) fn fate(outcome: &Outcome) -> Ending {
    let ending = outcome.info.ending.clone().unwrap();
    Ending { streams_open: false, state_changed: false, warnings: Vec::new(), ..ending }
}

/// Holds commands back until the test lets them go.
pub(crate) struct Gate {
    path: PathBuf,
    /// Both ends, so that neither a command nor the test ever waits for the other to open it.
    both: std::fs::File,
}

impl Gate {
    pub(crate) fn new(rig: &Rig, name: &str) -> Self {
        let path = rig.scratch().join(name);
        stead_term::fifo::make(&path).unwrap();
        let both = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        Self { path, both }
    }

    /// Text of a command that waits for one [`Self::release`].
    pub(crate) fn wait(&self) -> String {
        format!("read -r _ <'{}'", self.path.display())
    }

    pub(crate) fn release(&mut self) {
        self.both.write_all(b"\n").unwrap();
    }
}

/// A file in which each command of a test notes that it runs.
pub(crate) struct Runs(PathBuf);

impl Runs {
    pub(crate) fn new(rig: &Rig) -> Self {
        Self(rig.scratch().join("runs"))
    }

    /// The command, with the note as the first that it does.
    pub(crate) fn counted(&self, text: &str) -> String {
        format!("echo run >>'{}'; {text}", self.0.display())
    }

    pub(crate) fn count(&self) -> usize {
        std::fs::read_to_string(&self.0).unwrap_or_default().lines().count()
    }

    /// Checks the count and begins anew; returns whether it ran.
    #[track_caller]
    pub(crate) fn at_most_once(&self, what: &str) -> bool {
        let count = self.count();
        assert!(count <= 1, "{what}: ran {count} times");
        let _ = std::fs::remove_file(&self.0);
        count == 1
    }
}

/// Waits until `check` has an answer.
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

pub(crate) fn kill(pid: i32) {
    stead_term::proc::signal(pid, rustix::process::Signal::KILL);
}

pub(crate) fn is_alive(pid: i32) -> bool {
    stead_term::proc::stat(pid).is_some_and(|stat| !matches!(stat.state, b'Z' | b'X'))
}

/// Random numbers that a seed repeats.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }
}

/// The seeds of a random test: fixed ones and a fresh one, or the one that `STEAD_SEED` names.
pub(crate) fn seeds() -> Vec<u64> {
    if let Some(seed) = std::env::var("STEAD_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return vec![seed];
    }
    let fresh = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
    let fresh = u64::from(fresh) << 16 | u64::from(std::process::id() & 0xffff);
    println!("the fresh seed is {fresh}");
    vec![1, 2, fresh]
}

/// How many rounds for each seed; fewer with `STEAD_STRESS=quick`, more with a factor there.
pub(crate) fn rounds(usual: u32) -> u32 {
    match std::env::var("STEAD_STRESS").as_deref() {
        Ok("quick") => usual.div_ceil(8),
        Ok(factor) => usual * factor.parse().unwrap_or(1),
        Err(_) => usual,
    }
}

/// The steward that a keeper has as its child, without asking it.
pub(crate) fn steward_of(keeper: i32) -> Option<i32> {
    let is_steward = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"run")
    };
    stead_term::proc::children(keeper).into_iter().find(is_steward)
}
