//! A sandbox: a root directory of its own over this machine's programs, and a process namespace in it. Needs root, as the
//! clouds' own machines do.
//!
//! ```text
//! ROOT/usr ROOT/etc ROOT/dev ..   this machine's, bound
//! ROOT/home/user ROOT/tmp ..      its own: what is written there is here, for whoever serves files
//! init                            unshare --mount --pid; everything that runs there ends with it
//! ```

use rustix::process::Signal;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Directories of this machine that are seen inside.
const SHARED: [&str; 8] = ["usr", "bin", "sbin", "lib", "lib64", "etc", "dev", "sys"];

/// What is its own, made empty.
const OWN: [&str; 8] = ["proc", "tmp", "home/user", "root", "var/tmp", "run", "opt", "workspace"];

/// How long what is to stand still may take to do so.
const STILL_WITHIN: Duration = Duration::from_secs(20);

/// Between two looks at processes, which tell nobody when they change.
const LOOK: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub struct Machine {
    root: Root,
    init: Mutex<Child>,
    /// The first process inside, as this machine numbers it.
    pid: i32,
    /// The namespace of its processes, as the kernel names it: nobody else is in it.
    world: PathBuf,
    /// While it sleeps, those that stood still before: they do so when it wakes.
    stopped: Mutex<Option<Vec<i32>>>,
}

/// A directory that ends with the machine, or one that stays: the disk of a sandbox that is stopped and started.
#[derive(Debug)]
enum Root {
    Own(tempfile::TempDir),
    Kept(PathBuf),
}

impl Machine {
    /// None where this machine can't: not root, or no namespaces.
    pub fn is_possible() -> bool {
        rustix::process::geteuid().is_root()
            && Command::new("unshare").args(["--mount", "--pid", "--fork", "true"]).status().is_ok_and(|s| s.success())
    }

    pub fn start() -> io::Result<Self> {
        let root = tempfile::Builder::new().prefix("testcloud-").tempdir()?;
        Self::over(Root::Own(root))
    }

    /// Over a directory that is there and stays there, with what an earlier machine left in it.
    pub fn start_at(root: &Path) -> io::Result<Self> {
        Self::over(Root::Kept(root.to_owned()))
    }

    fn over(root: Root) -> io::Result<Self> {
        let (init, pid) = boot(root.path())?;
        let world = namespace(pid).ok_or_else(|| io::Error::other("the sandbox ended as soon as it was up"))?;
        Ok(Self { root, init: Mutex::new(init), pid, world, stopped: Mutex::default() })
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// A path inside as this machine has it. Links inside are followed as they would be inside.
    pub fn outside(&self, path: &str) -> PathBuf {
        outside(self.root(), path)
    }

    /// A program inside, not started yet: with this environment and nothing else, in its own session.
    pub fn command(&self, program: &str, arguments: &[String], env: &BTreeMap<String, String>, cwd: &str) -> Command {
        let mut command = Command::new("nsenter");
        let target = self.pid.to_string();
        command.args(["--target", &target, "--mount", "--pid", "--root", "--wd", "--", "/usr/bin/env", "-i"]);
        command.arg(format!("--chdir={}", if cwd.is_empty() { "/" } else { cwd }));
        command.args(env.iter().map(|(name, value)| OsString::from(format!("{name}={value}"))));
        command.arg(program).args(arguments);
        command.process_group(0);
        command
    }

    /// Whether it is still there: everything in it ends with its first process.
    pub fn is_alive(&self) -> bool {
        // Another may have its number by now.
        state(self.pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
            && namespace(self.pid).is_none_or(|world| world == self.world)
    }

    /// Every process inside, as this machine numbers them.
    pub fn pids(&self) -> Vec<i32> {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| namespace(*pid).as_ref() == Some(&self.world)).collect()
    }

    /// Stops or continues everything, as a machine that sleeps. What stood still before does so after it.
    pub fn set_frozen(&self, frozen: bool) {
        let mut stopped = self.stopped.lock().unwrap();
        if frozen {
            let still = || self.pids().into_iter().filter(|pid| state(*pid) == Some('T')).collect();
            stopped.get_or_insert_with(still);
            self.stop_all();
        } else {
            let before = stopped.take().unwrap_or_default();
            self.pids().into_iter().filter(|pid| !before.contains(pid)).for_each(|pid| send(pid, Signal::CONT));
            self.doors().into_iter().for_each(|(door, _)| send(door, Signal::CONT));
            self.continue_doors();
        }
    }

    /// Who was just started is seen when all others stand still: then nobody is left who could start another.
    fn stop_all(&self) {
        let (deadline, mut quiet) = (Instant::now() + STILL_WITHIN, 0);
        while quiet < 2 && Instant::now() < deadline {
            let is_told = |pid: &i32| state(*pid).is_some_and(|state| !matches!(state, 'T' | 'Z' | 'X'));
            // Who waits in the kernel stops when it comes back; that may be never, as of one whose `vfork` has stopped.
            let moves = |pid: &i32| is_told(pid) && state(*pid) != Some('D');
            let inside: Vec<_> = self.pids().into_iter().filter(is_told).collect();
            for pid in &inside {
                send(*pid, Signal::STOP);
            }
            // `nsenter` stops itself when what it started is stopped. It is waited for, or it would do so after it was
            // continued, and never tell how its program ended.
            let lags = |(door, program): &(i32, i32)| state(*program) == Some('T') && moves(door);
            if inside.iter().any(moves) || self.doors().iter().any(lags) {
                quiet = 0;
                std::thread::sleep(LOOK);
            } else {
                quiet += 1;
            }
        }
    }

    /// Ends everything in it, whoever else has it still; nothing is left when this returns.
    pub fn end(&self) {
        let mut init = self.init.lock().unwrap();
        // `unshare` ends with its child, which it has reaped then; and that ends when all inside are reaped.
        while let Ok(None) = init.try_wait() {
            if namespace(self.pid).as_ref() == Some(&self.world) {
                send(self.pid, Signal::KILL);
            }
            self.continue_doors();
            std::thread::sleep(LOOK);
        }
    }

    /// What waits outside for something inside, and for what: `nsenter`, each for its program.
    fn doors(&self) -> Vec<(i32, i32)> {
        let inside = self.pids();
        let pairs = inside.iter().filter_map(|pid| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse::<i32>().ok()?;
            Some((parent, *pid))
        });
        let starter = i32::try_from(self.init.lock().unwrap().id()).ok();
        pairs.filter(|(parent, _)| *parent > 0 && !inside.contains(parent) && Some(*parent) != starter).collect()
    }

    /// Whoever waits outside for something that was stopped inside has stopped itself (as `nsenter` does), and would never
    /// reap it.
    fn continue_doors(&self) {
        let target = format!("nsenter\0--target\0{}\0", self.pid);
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if words.starts_with(target.as_bytes()) {
                send(pid, Signal::CONT);
            }
        }
    }

    /// A process inside by the number that it has there.
    pub fn host_pid(&self, inside: i32) -> Option<i32> {
        self.pids().into_iter().find(|pid| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            numbers.and_then(|numbers| numbers.split_whitespace().last()?.parse::<i32>().ok()) == Some(inside)
        })
    }
}

/// A path below a root, as this machine has it, whether or not a machine runs over it.
pub fn outside(root: &Path, path: &str) -> PathBuf {
    let mut at = root.to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => {
                at.push(name);
                if let Ok(target) = std::fs::read_link(&at) {
                    at.pop();
                    let here = Path::new("/").join(at.strip_prefix(root).unwrap_or(Path::new("")));
                    let next = if target.is_absolute() { target } else { here.join(target) };
                    at = outside(root, next.to_str().unwrap_or("/"));
                }
            }
            Component::ParentDir if at != root => {
                at.pop();
            }
            Component::ParentDir | Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    at
}

/// Starts the first process over a directory: what holds it, and its number.
fn boot(at: &Path) -> io::Result<(Child, i32)> {
    // A mount of its own, to be the root of all others.
    let mut script = vec!["set -e".to_owned(), format!("mount --bind '{0}' '{0}'", at.display())];
    for name in SHARED {
        let (host, inside) = (Path::new("/").join(name), at.join(name));
        match std::fs::symlink_metadata(&host) {
            Ok(meta) if meta.is_symlink() => {
                // There already, if it is not its first start.
                if std::fs::symlink_metadata(&inside).is_err() {
                    std::os::unix::fs::symlink(std::fs::read_link(&host)?, inside)?;
                }
            }
            Ok(_) => {
                std::fs::create_dir_all(&inside)?;
                script.push(format!("mount --rbind /{name} '{}'", inside.display()));
            }
            Err(_) => {}
        }
    }
    for name in OWN {
        std::fs::create_dir_all(at.join(name))?;
    }
    for name in ["tmp", "var/tmp"] {
        std::fs::set_permissions(at.join(name), std::os::unix::fs::PermissionsExt::from_mode(0o1777))?;
    }
    script.push(format!("mount -t proc proc '{}/proc'", at.display()));
    // It reaps, as an init does: a shell that waits for its children does so, of adopted ones too. The one it waits for
    // reads what nobody writes, and is of no name that a test looks for.
    let init = "[ -p /run/nothing ] || mkfifo /run/nothing; echo up; \
        while :; do dd if=/run/nothing of=/dev/null 2>/dev/null & wait $!; done";
    script.push(format!(
        "cd '{}'; mkdir -p .before; pivot_root . .before; umount -l .before; rmdir .before",
        at.display()
    ));
    script.push(format!("exec /bin/sh -c '{init}'"));
    let mut init = Command::new("unshare")
        .args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--propagation",
            "private",
            "sh",
            "-c",
            &script.join("\n"),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let out = init.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
    io::BufRead::read_line(&mut io::BufReader::new(out), &mut line)?;
    if line != "up\n" {
        return Err(io::Error::other("the sandbox did not come up"));
    }
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", init.id()))?;
    let pid = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
    let pid = pid.ok_or_else(|| io::Error::other("the sandbox has no process"))?;
    Ok((init, pid))
}

/// Lets every `nsenter` that we started go on whose program has died. One that has stopped with it would never reap it, and
/// a machine that is killed ends when all in it are reaped.
pub fn release_doors() {
    let us = i32::try_from(std::process::id()).unwrap_or_default();
    let children = |pid: i32| -> Vec<i32> {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let lists = tasks.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
        lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
    };
    let has_stopped = |pid: &i32| {
        let is_door = std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "nsenter\n");
        is_door && state(*pid) == Some('T')
    };
    for door in children(us).into_iter().filter(has_stopped) {
        if children(door).into_iter().all(|program| state(program) == Some('Z')) {
            send(door, Signal::CONT);
        }
    }
}

/// A process's state as the kernel tells it; none when it isn't there.
fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn send(pid: i32, signal: Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Where the processes that a process sees are numbered.
fn namespace(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

impl Root {
    fn path(&self) -> &Path {
        match self {
            Self::Own(own) => own.path(),
            Self::Kept(path) => path,
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_kept_has_what_an_earlier_machine_left() {
        if !Machine::is_possible() {
            println!("SKIPPED: no namespaces here");
            return;
        }
        let disk = tempfile::tempdir().unwrap();
        let env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        let said = |script: &str| {
            let machine = Machine::start_at(disk.path()).unwrap();
            let words = ["-c".to_owned(), script.to_owned()];
            String::from_utf8(machine.command("/bin/sh", &words, &env, "/").output().unwrap().stdout).unwrap()
        };
        assert_eq!(said("echo kept > /home/user/file; ls /usr/bin/env"), "/usr/bin/env\n");
        assert_eq!(said("cat /home/user/file; ls /usr/bin/env"), "kept\n/usr/bin/env\n");
        assert_eq!(std::fs::read_to_string(disk.path().join("home/user/file")).unwrap(), "kept\n");
    }

    #[test]
    fn what_runs_inside_sees_its_own_files_and_ends_with_it() {
        if !Machine::is_possible() {
            println!("SKIPPED: no namespaces here");
            return;
        }
        let machine = Machine::start().unwrap();
        let env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned()), ("X".to_owned(), "1".to_owned())]);
        let words = ["-c".to_owned(), "pwd; echo $X > /tmp/x; ls /home; echo $$".to_owned()];
        let ran = machine.command("/bin/sh", &words, &env, "/home/user").output().unwrap();
        let said = String::from_utf8(ran.stdout).unwrap();
        assert!(said.starts_with("/home/user\nuser\n"), "{said}");
        assert_eq!(std::fs::read_to_string(machine.outside("/tmp/x")).unwrap(), "1\n");
        std::os::unix::fs::symlink("/etc", machine.root().join("tmp/link")).unwrap();
        assert_eq!(machine.outside("/tmp/link/../../tmp/x"), machine.root().join("tmp/x"));
        let pid = machine.pid;
        drop(machine);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn what_is_frozen_stands_still_and_tells_how_it_ended_after_it() {
        if !Machine::is_possible() {
            println!("SKIPPED: no namespaces here");
            return;
        }
        let machine = Machine::start().unwrap();
        let env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        let words = ["-c".to_owned(), "while ! test -e /tmp/stop; do echo x >> /tmp/x; done; exit 7".to_owned()];
        let mut child = machine.command("/bin/sh", &words, &env, "").spawn().unwrap();
        let length = || std::fs::metadata(machine.outside("/tmp/x")).map_or(0, |meta| meta.len());
        let begin = std::time::Instant::now();
        while length() == 0 && begin.elapsed() < std::time::Duration::from_secs(30) {
            std::thread::yield_now();
        }
        for _ in 0..3 {
            machine.set_frozen(true);
            let before = length();
            assert!(machine.pids().into_iter().all(|pid| state(pid) == Some('T')), "something runs");
            assert_eq!(length(), before);
            machine.set_frozen(false);
        }
        std::fs::write(machine.outside("/tmp/stop"), "").unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(7));
    }

    #[test]
    fn what_was_stopped_before_a_sleep_is_stopped_after_it_and_all_else_goes_on() {
        if !Machine::is_possible() {
            println!("SKIPPED: no namespaces here");
            return;
        }
        let machine = Machine::start().unwrap();
        let env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        // One that stands still, and one that starts others all the time.
        let script = "sleep 1000 & kill -STOP $!; echo $! > /tmp/stopped; while :; do /bin/true; echo >> /tmp/x; done";
        let mut child = machine.command("/bin/sh", &["-c".to_owned(), script.to_owned()], &env, "").spawn().unwrap();
        let until = |what: &str, is_so: &dyn Fn() -> bool| {
            let begin = Instant::now();
            while !is_so() {
                assert!(begin.elapsed() < Duration::from_secs(30), "waited too long for {what}");
                std::thread::yield_now();
            }
        };
        let length = || std::fs::metadata(machine.outside("/tmp/x")).map_or(0, |meta| meta.len());
        until("it to run", &|| length() > 0);
        let inside = std::fs::read_to_string(machine.outside("/tmp/stopped")).unwrap().trim().parse().unwrap();
        let stopped = machine.host_pid(inside).unwrap();
        until("the job to stop", &|| state(stopped) == Some('T'));
        for _ in 0..10 {
            machine.set_frozen(true);
            machine.set_frozen(true);
            let states: Vec<_> = machine.pids().into_iter().filter_map(state).collect();
            assert!(states.iter().all(|state| matches!(state, 'T' | 'Z' | 'D')), "something runs: {states:?}");
            let before = length();
            machine.set_frozen(false);
            until("it to go on", &|| length() > before);
            assert_eq!(state(stopped), Some('T'));
        }
        machine.end();
        assert!(!machine.is_alive() && machine.pids().is_empty());
        child.wait().unwrap();
    }

    /// Whoever looks for processes by what is mounted for them, as tests of other sandboxes do, is not to find these.
    #[test]
    fn what_is_mounted_elsewhere_is_not_in_its_world() {
        if !Machine::is_possible() {
            println!("SKIPPED: no namespaces here");
            return;
        }
        let elsewhere = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").arg("--bind").args([elsewhere.path(), elsewhere.path()]).status();
        assert!(mounted.unwrap().success());
        let machine = Machine::start().unwrap();
        // Its first process, and the one that holds it from outside.
        let holder = i32::try_from(machine.init.lock().unwrap().id()).unwrap();
        let mounts =
            [machine.pid, holder].map(|pid| std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap());
        let unmounted = Command::new("umount").arg(elsewhere.path()).status();
        assert!(unmounted.unwrap().success());
        let name = elsewhere.path().file_name().unwrap().to_str().unwrap();
        for mounts in mounts {
            assert!(!mounts.contains(name), "{mounts}");
            assert!(mounts.lines().any(|line| line.contains(" / /proc ")), "{mounts}");
        }
    }
}
