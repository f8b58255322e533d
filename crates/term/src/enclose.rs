//! Running a program inside namespaces of its own: with its own root directory, processes, users, host name, and, if
//! wanted, an empty network. No daemon, no image, no set-uid helper; works for root and for ordinary users.
//!
//! ```text
//! the one who starts                                 first process inside
//!   enter the cgroups
//!   take hold of files that only it can reach
//!   make the namespaces ──────────────────────────►  wait
//!   say which users are which, note the process id
//!   let it go on, end  ───────────────────────────►  build a root directory ([`root`]), move into it
//!                                                    give up all rights ([`confine`]), filter calls ([`filter`])
//!                                                    execute the program
//! ```
//!
//! Every step that fails says which one it was. Nothing is undone by hand: when the first process ends, so does
//! everything inside, and what was mounted for it goes with its last user.

#![expect(unsafe_code, reason = "namespaces, mount attributes and capabilities have no safe interface")]

mod confine;
mod device;
mod filter;
mod hide;
mod identity;
mod mount;
mod probe;
mod root;

pub use probe::{Reason, probe};

use crate::{proc, scarce};
use identity::Identity;
use mount::{Access, Bind, From};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use stead_model::enclosure::{Enclosure, Network, PLACE, PROGRAM};

/// A step that could not be done.
#[derive(Debug, thiserror::Error)]
#[error("can't {step}")]
pub struct Failed {
    step: String,
    source: io::Error,
}

impl Failed {
    fn at<E: Into<io::Error>>(step: impl Into<String>) -> impl FnOnce(E) -> Self {
        |source| Self { step: step.into(), source: source.into() }
    }
}

/// Who returns from [`enter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The caller; the inside is on its way.
    Outside,
    /// The first process inside, which the caller gave up on.
    Abandoned,
}

/// Puts this process, and what it will start, into the control group that has this `cgroup.procs`.
pub fn join_cgroup(procs: &Path) -> Result<(), Failed> {
    let joined = File::options().write(true).open(procs).and_then(|mut file| file.write_all(b"0"));
    joined.map_err(Failed::at(format!("enter the cgroup of `{}`", procs.display())))
}

/// Executes `arguments` of the enclosure's program as the first process of new namespaces, with descriptor 3 as it is,
/// and writes its process id, start time and boot to the file `enclosed`. Only for a process with one thread. The first
/// process inside returns from here only if it failed; it has the error to tell.
pub fn enter(spec: &Enclosure, enclosed: &Path, arguments: &[String]) -> Result<Side, Failed> {
    // Nobody inside is to have more than it is given, so this comes before anything that could be counted.
    for procs in &spec.cgroup_procs {
        join_cgroup(procs)?;
    }
    confine::be_no_favourite();
    let arguments = confine::c_strings(arguments)?;
    let outside = Outside::prepare(spec)?;
    if rustix::process::geteuid().is_root() {
        // Some groups of root's may open disks. An ordinary user can't give up its own.
        rustix::thread::set_thread_groups(&[]).map_err(Failed::at("leave all groups"))?;
    }
    let (mut released, release) = io::pipe().map_err(Failed::at("make a pipe"))?;
    match namespaces(spec.network).map_err(Failed::at("make namespaces"))? {
        None => {
            drop(release);
            let mut byte = [0];
            if released.read(&mut byte).map_err(Failed::at("wait for the one who starts us"))? == 0 {
                return Ok(Side::Abandoned);
            }
            inside(spec, outside, Some(&arguments))?;
            Ok(Side::Abandoned)
        }
        Some(pid) => {
            drop(released);
            outside.identity.map(pid)?;
            note_first(pid, enclosed)?;
            (&release).write_all(b"1").map_err(Failed::at("let the first process go on"))?;
            Ok(Side::Outside)
        }
    }
}

/// What the first process inside does before it executes the program; without one (for a probe) it ends there.
fn inside(spec: &Enclosure, outside: Outside, program: Option<&[CString]>) -> Result<(), Failed> {
    outside.identity.assume()?;
    rustix::system::sethostname(spec.hostname.as_bytes()).map_err(Failed::at("set the host name"))?;
    root::build(spec, outside)?;
    confine::limit(spec)?;
    confine::give_up_rights()?;
    confine::clean()?;
    filter::install()?;
    match program {
        Some(arguments) => confine::execute(Path::new(PROGRAM), arguments, &environment(spec)?),
        None => Ok(()),
    }
}

/// The whole environment inside: nothing of the host's.
fn environment(spec: &Enclosure) -> Result<Vec<CString>, Failed> {
    let home = spec.home_path.display();
    let name = &spec.user.name;
    confine::c_strings(&[
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        format!("HOME={home}"),
        format!("USER={name}"),
        format!("LOGNAME={name}"),
        "LANG=C.UTF-8".to_owned(),
        "TERM=xterm-256color".to_owned(),
    ])
}

/// What is taken hold of while we still are who we were.
struct Outside {
    identity: Identity,
    /// Directories of the system that must be shown in another way than they are.
    system: Vec<(PathBuf, OwnedFd)>,
    binds: Vec<Bind>,
    name_servers: Option<NameServers>,
}

/// A list of name servers that is not itself in `/etc`.
struct NameServers {
    paths: [PathBuf; 2],
    text: Vec<u8>,
}

impl Outside {
    fn prepare(spec: &Enclosure) -> Result<Self, Failed> {
        // The order counts: the workspace may be in the home directory.
        let mut wanted: Vec<(&Path, &Path, Access)> = vec![
            (&spec.program, Path::new(PROGRAM), Access::ReadOnly),
            (&spec.place, Path::new(PLACE), Access::ReadWrite),
            (&spec.home, &spec.home_path, Access::ReadWrite),
            (&spec.workspace, &spec.mount_path, Access::ReadWrite),
        ];
        wanted.extend(spec.more.iter().map(|share| (&*share.host, &*share.inside, Access::ReadWrite)));
        for (path, _, _) in &wanted {
            fs::metadata(path).map_err(Failed::at(format!("find `{}`", path.display())))?;
        }
        let (identity, sources) = Identity::choose(spec, &wanted.iter().map(|(path, _, _)| *path).collect::<Vec<_>>());
        let binds = wanted.into_iter().zip(sources);
        let mut binds: Vec<_> = binds.map(|((_, to, access), from)| Bind::new(from, to, access)).collect();
        for path in &spec.read_only {
            let from = match identity {
                Identity::Apart { .. } => From::Tree(mount::tree(path)?),
                Identity::Same { .. } => From::Host(path.clone()),
            };
            binds.push(Bind::new(from, path, Access::ReadOnly));
        }
        if identity.is_root() && spec.max_processes.is_some() && spec.cgroup_procs.is_empty() {
            tell("the number of processes is not limited: the kernel exempts root, and no cgroup is given");
        }
        let name_servers = if spec.network == Network::Host { name_servers() } else { None };
        let system = if identity.is_root() { identity::disowned(&root::SYSTEM) } else { Vec::new() };
        Ok(Self { identity, system, binds, name_servers })
    }
}

/// `/etc/resolv.conf` often is a link into `/run`, which is empty inside, and sometimes by way of another one: the file is
/// needed where the first leads and where it really lies.
fn name_servers() -> Option<NameServers> {
    let link = fs::read_link("/etc/resolv.conf").ok()?;
    let text = fs::read("/etc/resolv.conf").ok()?;
    let mut first = PathBuf::new();
    for part in Path::new("/etc").join(link).components() {
        if part == Component::ParentDir {
            first.pop();
        } else {
            first.push(part);
        }
    }
    let real = fs::canonicalize("/etc/resolv.conf").ok()?;
    Some(NameServers { paths: [first, real], text })
}

/// Something the owner should know, for the log that is our standard error; nobody may be there to read it.
fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "enclosure: {text}");
}

/// Like fork, into new namespaces: `None` in the new process, which is the first of its namespace.
fn namespaces(network: Network) -> io::Result<Option<i32>> {
    let mut flags =
        libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    if network == Network::None {
        flags |= libc::CLONE_NEWNET;
    }
    let forked = match fork_with(flags | libc::CLONE_NEWCGROUP) {
        // A kernel that has no cgroups.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => fork_with(flags),
        forked => forked,
    };
    forked.map_err(scarce::of_namespaces)
}

/// Only for a process with one thread: the new one is a full copy of it.
fn fork_with(flags: libc::c_int) -> io::Result<Option<i32>> {
    let flags = libc::c_long::from(flags | libc::SIGCHLD);
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: without a stack of its own and without sharing memory this is a fork; no pointer is given to be written.
    match unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => i32::try_from(pid).map(Some).map_err(io::Error::other),
    }
}

/// The process id alone would name another process some day, and with its start time another one after a reboot.
fn note_first(pid: i32, path: &Path) -> Result<(), Failed> {
    let failed = || format!("write `{}`", path.display());
    let start_time = proc::stat(pid).map_or(0, |stat| stat.start_time);
    let new = path.with_extension("new");
    // What was inside before may have left anything there, a link to elsewhere too.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Failed::at(failed())(error)),
        _ => {}
    }
    let file = File::options().write(true).create_new(true).mode(0o600).open(&new);
    file.and_then(|mut file| file.write_all(format!("{pid} {start_time} {}\n", proc::boot_id()).as_bytes()))
        .and_then(|()| fs::rename(&new, path))
        .map_err(Failed::at(failed()))
}
