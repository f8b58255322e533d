//! A root directory, the namespaces in which it is the whole world, and a steward inside.

use crate::rig::wait_for;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use stead_steward::client::{Client, ClientError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contents {
    Busybox,
    /// The same, and bash with the libraries it needs.
    Bash,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Devices {
    /// Nothing but `/dev/null`.
    Null,
    /// Pseudo-terminals too, as every container has them.
    Terminals,
}

pub(crate) struct Root {
    dir: tempfile::TempDir,
    /// `unshare`; the first process inside is its child and ends with it, and everything inside with that.
    outside: Child,
}

/// The static steward: `STEAD_STATIC_STEWARD`, or what cargo makes. (It has little to do if it has made it before.)
pub(crate) fn program() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
        if let Some(path) = std::env::var_os("STEAD_STATIC_STEWARD") {
            return PathBuf::from(path);
        }
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
        let triple = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--profile", "dist", "--target", &triple, "-p", "stead-steward"]).current_dir(&workspace);
        assert!(
            cargo.status().unwrap().success(),
            "the static steward can't be built; `rustup target add {triple}` may be missing"
        );
        target.join(triple).join("dist/steward")
    });
    &PROGRAM
}

impl Root {
    pub(crate) fn new(contents: Contents, devices: Devices) -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test makes namespaces and a device: run it as root");
        let dir = tempfile::Builder::new().prefix("root-").tempdir().unwrap();
        let root = dir.path();
        for sub in ["bin", "dev", "dev/pts", "proc", "tmp"] {
            std::fs::create_dir(root.join(sub)).unwrap();
        }
        ran(Command::new("mknod").arg("-m").arg("666").arg(root.join("dev/null")).args(["c", "1", "3"]));
        let busybox = found("busybox").expect("this test needs `busybox`: install the Debian package `busybox-static`");
        std::fs::copy(busybox, root.join("bin/busybox")).unwrap();
        for applet in ["ash", "sh", "cat", "kill", "ls", "seq", "sleep"] {
            symlink("busybox", root.join("bin").join(applet)).unwrap();
        }
        std::fs::copy(program(), root.join("bin/steward")).unwrap();
        if contents == Contents::Bash {
            add_bash(root);
        }
        Self { outside: enter(root, devices), dir }
    }

    pub(crate) fn try_client(&self) -> Result<Client, ClientError> {
        // Only the socket is needed to get in, so the bridge needs the root and none of the namespaces.
        let mut bridge = Command::new("chroot");
        bridge.arg(self.dir.path()).args(["/bin/steward", "connect", "--dir", "/tmp/steward"]).env_clear();
        bridge.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let mut bridge = bridge.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (stdout, stdin) = (bridge.stdout.take().unwrap(), bridge.stdin.take().unwrap());
        // It ends with the connection, which outlives this function.
        std::thread::spawn(move || bridge.wait());
        Client::over(Box::new(stdout), Box::new(stdin), "test")
    }

    pub(crate) fn client(&self) -> Client {
        self.try_client().unwrap_or_else(|error| panic!("{error}: {error:?}\n{}", self.log()))
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("tmp/steward/log")).unwrap_or_default()
    }

    /// Bytes in memory of the keeper and of the steward, as the machine outside sees them.
    pub(crate) fn resident(&self) -> Vec<(String, u64)> {
        let mut found = Vec::new();
        for pid in descendants(i32::try_from(self.outside.id()).unwrap()) {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let role = line
                .split(|byte| *byte == 0)
                .nth(1)
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .unwrap_or_default();
            if ["keep", "run"].contains(&role.as_str()) {
                let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
                let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
                found.push((role, kilobytes.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10));
            }
        }
        found.sort();
        assert_eq!(found.iter().map(|(role, _)| role.as_str()).collect::<Vec<_>>(), ["keep", "run"]);
        found
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the steward's log:\n{}", self.log());
        }
        // The mounts are in a namespace that goes with its last process, so there is nothing to unmount here;
        // the directory can be removed when all of them are gone.
        let inside = descendants(i32::try_from(self.outside.id()).unwrap());
        let _ = self.outside.kill();
        let _ = self.outside.wait();
        wait_for("everything inside to be gone", || inside.iter().all(|pid| !crate::rig::is_alive(*pid)).then_some(()));
    }
}

/// Starts a steward inside, and comes back when it is there.
fn enter(root: &Path, devices: Devices) -> Child {
    let inside = "/bin/steward start --dir /tmp/steward && echo ready && exec /bin/sleep 100000";
    let terminals = match devices {
        Devices::Null => "true",
        Devices::Terminals => {
            "mount -t devpts -o newinstance,ptmxmode=0666 devpts \"$1/dev/pts\" && ln -s pts/ptmx \"$1/dev/ptmx\""
        }
    };
    let script = format!("mount -t proc proc \"$1/proc\" && {terminals} && exec chroot \"$1\" /bin/sh -c '{inside}'");
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", &script, "sh"]).arg(root);
    unshare.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let mut outside = unshare.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 14];
    let mut stdout = outside.stdout.take().unwrap();
    let read = stdout.read_exact(&mut said);
    if read.is_err() || &said != b"started\nready\n" {
        let _ = outside.kill();
        let _ = outside.wait();
        let log = std::fs::read_to_string(root.join("tmp/steward/log")).unwrap_or_default();
        panic!("the steward doesn't start inside; it said {:?}\n{log}", said.escape_ascii().to_string());
    }
    outside
}

fn add_bash(root: &Path) {
    let bash = found("bash").expect("this test needs `bash`");
    let listed = Command::new("ldd").arg(&bash).output().unwrap();
    assert!(listed.status.success(), "ldd can't tell the libraries of {}", bash.display());
    let text = String::from_utf8(listed.stdout).unwrap();
    // `libc.so.6 => /lib/x/libc.so.6 (0x..)` and `/lib64/ld-linux.so.2 (0x..)`.
    let libraries = text.split_whitespace().filter(|word| word.starts_with('/'));
    for library in libraries {
        let place = root.join(library.trim_start_matches('/'));
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(library, place).unwrap();
    }
    std::fs::copy(bash, root.join("bin/bash")).unwrap();
}

fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.is_file())
}

fn descendants(pid: i32) -> Vec<i32> {
    let children = stead_term::proc::children(pid);
    let below: Vec<i32> = children.iter().flat_map(|child| descendants(*child)).collect();
    [children, below].concat()
}

#[track_caller]
fn ran(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}
