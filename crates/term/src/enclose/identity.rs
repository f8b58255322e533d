//! Who one is inside, and who that is for the host.
//!
//! A user namespace gives every user inside a counterpart outside. If an ordinary user starts us there is no choice: it
//! is that user. If root does, then root without any right is still the owner of most of a system's files, so a user
//! that owns nothing is better; the workspace, and what else is to be written, is then shown with its owner exchanged.

use super::mount::{self, From};
use super::{Failed, fork_with, tell};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use stead_model::enclosure::{Enclosure, Owner};

/// A user of the host who owns nothing: in the range that nobody hands out (systemd's "Users, Groups, UIDs and GIDs").
const NOBODY_AT_ALL: u32 = 1_900_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    Same { uid: u32, gid: u32 },
    Apart { uid: u32, gid: u32 },
}

impl Identity {
    /// Decides, and takes hold of what is to be shown.
    pub(super) fn choose(spec: &Enclosure, paths: &[&Path]) -> (Self, Vec<From>) {
        let (uid, gid) = (spec.user.uid, spec.user.gid);
        if spec.owner == Owner::Apart && rustix::process::geteuid().is_root() {
            let trees: io::Result<Vec<_>> = paths.iter().map(|path| mapped_tree(path).map(From::Tree)).collect();
            match trees {
                Ok(trees) => return (Self::Apart { uid, gid }, trees),
                Err(error) => {
                    tell(&format!("the user inside is root outside; files can't be shown to another: {error}"));
                }
            }
        }
        (Self::Same { uid, gid }, paths.iter().map(|path| From::Host((*path).to_owned())).collect())
    }

    /// Whether for the host it is the one whom the kernel exempts from some limits.
    pub(super) fn is_root(self) -> bool {
        matches!(self, Self::Same { .. }) && rustix::process::geteuid().is_root()
    }

    /// Tells the kernel, for a process that has just got its user namespace.
    pub(super) fn map(self, pid: i32) -> Result<(), Failed> {
        let (uid, gid, (user, group)) = match self {
            Self::Same { uid, gid } => {
                (uid, gid, (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()))
            }
            Self::Apart { uid, gid } => (uid, gid, (NOBODY_AT_ALL, NOBODY_AT_ALL)),
        };
        write_map(pid, &format!("{uid} {user} 1"), &format!("{gid} {group} 1"))
    }

    /// Becomes the user inside.
    pub(super) fn assume(self) -> Result<(), Failed> {
        let (Self::Same { uid, gid } | Self::Apart { uid, gid }) = self;
        let gid = rustix::fs::Gid::from_raw(gid);
        let uid = rustix::fs::Uid::from_raw(uid);
        rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(Failed::at("become the group inside"))?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(Failed::at("become the user inside"))
    }
}

fn write_map(pid: i32, users: &str, groups: &str) -> Result<(), Failed> {
    for (file, text) in [("setgroups", "deny"), ("uid_map", users), ("gid_map", groups)] {
        let path = format!("/proc/{pid}/{file}");
        fs::write(&path, text).map_err(Failed::at(format!("write `{text}` to `{path}`")))?;
    }
    Ok(())
}

/// Directories of the system in which nothing belongs to root: for root as the user inside, who would own most of it
/// and so could read what is private there. One that can't be shown so is left out.
pub(super) fn disowned(paths: &[&str]) -> Vec<(PathBuf, OwnedFd)> {
    let mut trees = Vec::new();
    for path in paths.iter().map(Path::new).filter(|path| path.is_dir() && !path.is_symlink()) {
        match mapped_tree(path) {
            Ok(tree) => trees.push((path.to_owned(), tree)),
            Err(error) => tell(&format!("what only root may read below `{}` can be read: {error}", path.display())),
        }
    }
    trees
}

/// A copy of a tree in which whatever belongs to the owner of its top belongs to the user apart.
fn mapped_tree(path: &Path) -> io::Result<OwnedFd> {
    let owner = fs::metadata(path)?;
    let failed = |failed: Failed| failed.source;
    let tree = mount::tree(path).map_err(failed)?;
    let users = exchange(owner.uid(), owner.gid())?;
    mount::map_users(&tree, users.as_fd())?;
    Ok(tree)
}

/// A user namespace that says: this owner, there, is that one, here. It needs a process only until somebody holds it.
fn exchange(uid: u32, gid: u32) -> io::Result<OwnedFd> {
    let (mut ended, hold) = io::pipe()?;
    let Some(pid) = fork_with(libc::CLONE_NEWUSER)? else {
        drop(hold);
        let _ = ended.read(&mut [0]);
        // SAFETY: ends this process, which is a copy that has nothing to put in order.
        unsafe { libc::_exit(0) }
    };
    drop(ended);
    let apart = NOBODY_AT_ALL;
    let mapped =
        write_map(pid, &format!("{uid} {apart} 1"), &format!("{gid} {apart} 1")).map_err(|failed| failed.source);
    let users = mapped.and_then(|()| File::open(format!("/proc/{pid}/ns/user")));
    drop(hold);
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
    }
    Ok(OwnedFd::from(users?))
}
