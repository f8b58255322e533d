//! The root directory inside: built piece by piece from a list of what may be seen, never by taking things away from
//! the host's.
//!
//! ```text
//! /usr /bin /lib .. /etc /opt    the host's, read-only            /proc /dev   new
//! /tmp /var /run /dev/shm        new, in memory, one limit        /run/stead   the program and its directory
//! /workspace /home/agent         the host's, to be written        the rest     not there
//! ```

use super::mount::{self, Access, Bind, From, NEW, OLD, under};
use super::{Failed, NameServers, Outside, device, hide};
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use stead_model::enclosure::{Enclosure, PLACE, User};

/// What of the host's system is seen inside, if it is there. Links among them stay links.
pub(super) const SYSTEM: [&str; 10] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store"];

/// Directories that any system has, to mount on for a moment: nothing is hidden by that for longer.
const FOOTHOLDS: [&str; 3] = ["/tmp", "/usr", "/proc"];

/// What is written at run time, all in one file system so that one limit holds for all: its place inside and its mode.
const LOOSE: [(&str, u32); 5] =
    [("/tmp", 0o1777), ("/run", 0o755), ("/var", 0o755), ("/var/tmp", 0o1777), ("/dev/shm", 0o1777)];

/// Builds the root directory and moves into it; the host's is gone then.
pub(super) fn build(spec: &Enclosure, outside: Outside) -> Result<(), Failed> {
    step_aside()?;
    mount::memory(Path::new(NEW), "mode=755,size=4m,nr_inodes=4096")?;
    system(outside.system)?;
    prepare_covers(spec)?;
    cover("/passwd", "/etc/passwd")?;
    cover("/group", "/etc/group")?;
    cover("/hostname", "/etc/hostname")?;
    hide::private_files(&under(NEW, Path::new("/etc")))?;
    device::processes()?;
    device::devices()?;
    loose(spec.tmp_bytes)?;
    if let Some(servers) = outside.name_servers {
        name_servers(&servers)?;
    }
    mount::memory(&under(NEW, Path::new("/run/stead")), "mode=755,size=64k,nr_inodes=16")?;
    for bind in outside.binds {
        bind.put()?;
    }
    guard_place()?;
    for frozen in ["/run/stead", "/dev", "/"] {
        mount::freeze(&under(NEW, Path::new(frozen)))?;
    }
    leave_the_host()
}

/// Moves to a scratch root directory, from which the host's is seen at [`OLD`].
fn step_aside() -> Result<(), Failed> {
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", flags).map_err(Failed::at("keep mounts to ourselves"))?;
    let foothold = FOOTHOLDS.into_iter().find(|path| Path::new(path).is_dir()).unwrap_or("/");
    mount::memory(Path::new(foothold), "mode=755,size=4m,nr_inodes=1024")?;
    let old = under(foothold, Path::new(OLD));
    mount::make_dir(&old).map_err(Failed::at("make a place for the host's root"))?;
    rustix::process::pivot_root(foothold, &old).map_err(Failed::at("change the root directory"))?;
    rustix::process::chdir("/").map_err(Failed::at("enter the new root directory"))
}

fn leave_the_host() -> Result<(), Failed> {
    rustix::mount::unmount(OLD, UnmountFlags::DETACH).map_err(Failed::at("let go of the host's root"))?;
    rustix::process::chdir(NEW).map_err(Failed::at("enter the new root directory"))?;
    // The scratch root ends up on top of ours, and goes.
    rustix::process::pivot_root(".", ".").map_err(Failed::at("change the root directory"))?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).map_err(Failed::at("let go of the scratch root"))?;
    rustix::process::chdir("/").map_err(Failed::at("enter the new root directory"))
}

fn system(mut trees: Vec<(PathBuf, OwnedFd)>) -> Result<(), Failed> {
    for path in SYSTEM.map(Path::new) {
        let from = under(OLD, path);
        let Ok(meta) = fs::symlink_metadata(&from) else { continue };
        if meta.is_symlink() {
            let failed = || format!("read the link `{}`", path.display());
            let to = fs::read_link(&from).map_err(Failed::at(failed()))?;
            mount::link(&to.to_string_lossy(), &under(NEW, path))?;
        } else if meta.is_dir() {
            let made = trees.iter().position(|(of, _)| of == path).map(|at| From::Tree(trees.swap_remove(at).1));
            Bind::new(made.unwrap_or_else(|| From::Host(path.to_owned())), path, Access::ReadOnly).put()?;
        }
    }
    Ok(())
}

/// What is laid over files of the host: in the scratch root, so that nobody inside has another way to it.
fn prepare_covers(spec: &Enclosure) -> Result<(), Failed> {
    let User { uid, gid, name } = &spec.user;
    let home = spec.home_path.display();
    let root = if *uid == 0 { "" } else { "root:x:0:0:root:/:/usr/sbin/nologin\n" };
    let nobody = "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n";
    let passwd = format!("{root}{name}:x:{uid}:{gid}::{home}:/bin/bash\n{nobody}");
    let root = if *gid == 0 { "" } else { "root:x:0:\n" };
    let group = format!("{root}tty:x:5:\n{name}:x:{gid}:\nnogroup:x:65534:\n");
    mount::write(Path::new("/passwd"), 0o644, &passwd)?;
    mount::write(Path::new("/group"), 0o644, &group)?;
    mount::write(Path::new("/hostname"), 0o644, &format!("{}\n", spec.hostname))?;
    hide::prepare()
}

/// Lays a file of ours over one of the host's, if that is there.
fn cover(ours: &str, theirs: &str) -> Result<(), Failed> {
    let at = under(NEW, Path::new(theirs));
    if fs::symlink_metadata(&at).is_ok_and(|meta| meta.is_file()) {
        hide::lay_over(Path::new(ours), &at)?;
    }
    Ok(())
}

fn loose(bytes: u64) -> Result<(), Failed> {
    // A file takes a page at least; small limits must still allow for the many small files that tools make.
    let files = (bytes / 4096).max(1 << 16);
    mount::memory(Path::new("/loose"), &format!("mode=755,size={bytes},nr_inodes={files}"))?;
    for (path, mode) in LOOSE {
        let failed = || format!("make `{path}`");
        let from = Path::new("/loose").join(path.replace('/', ""));
        mount::make_dir(&from).map_err(Failed::at(failed()))?;
        fs::set_permissions(&from, fs::Permissions::from_mode(mode)).map_err(Failed::at(failed()))?;
        let tree = mount::tree(&from)?;
        mount::restrict(&tree, Access::ReadWrite).map_err(Failed::at(failed()))?;
        let to = under(NEW, Path::new(path));
        mount::make_dir(&to).map_err(Failed::at(failed()))?;
        mount::attach(&tree, &to)?;
    }
    for path in ["/var/cache", "/var/lib", "/var/log", "/run/lock"] {
        mount::make_dir(&under(NEW, Path::new(path))).map_err(Failed::at(format!("make `{path}`")))?;
    }
    mount::link("/run", &under(NEW, Path::new("/var/run")))?;
    mount::link("/run/lock", &under(NEW, Path::new("/var/lock")))
}

/// Puts the list of name servers where the link of the host's `/etc` leads.
fn name_servers(servers: &NameServers) -> Result<(), Failed> {
    let is_there = |path: &Path| SYSTEM.iter().any(|system| path.starts_with(system));
    for path in servers.paths.iter().filter(|path| !is_there(path)) {
        let at = under(NEW, path);
        let made = at.parent().map_or(Ok(()), mount::make_dir).and_then(|()| fs::write(&at, &servers.text));
        made.map_err(Failed::at(format!("write `{}`", path.display())))?;
    }
    Ok(())
}

/// What the host writes in the steward's directory is not for the inside: the list of what is mounted, which names the
/// host's paths, and the note of who is inside, by which the next start knows that nobody is any more.
fn guard_place() -> Result<(), Failed> {
    for name in ["spec", "enclosed"] {
        let at = under(NEW, Path::new(PLACE)).join(name);
        if fs::symlink_metadata(&at).is_ok_and(|meta| meta.is_file()) {
            hide::cover_file(&at)?;
        }
    }
    Ok(())
}
