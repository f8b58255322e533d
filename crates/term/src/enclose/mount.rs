//! Mounts: copies of trees that exist, with fewer rights, and small file systems in memory.

use super::Failed;
use rustix::fs::CWD;
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where the host's root directory is while ours is built, and where ours is.
pub(super) const OLD: &str = "/old";
pub(super) const NEW: &str = "/new";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    ReadOnly,
    ReadWrite,
    /// Read-only for what has a name, but devices work.
    Device,
}

/// Something of the host that is to be seen inside.
#[derive(Debug)]
pub(super) struct Bind {
    pub(super) from: From,
    /// As seen inside.
    pub(super) to: PathBuf,
    access: Access,
}

#[derive(Debug)]
pub(super) enum From {
    /// A path of the host.
    Host(PathBuf),
    /// A copy that was made already.
    Tree(OwnedFd),
}

impl Bind {
    pub(super) fn new(from: From, to: &Path, access: Access) -> Self {
        Self { from, to: to.to_owned(), access }
    }

    /// Makes the place for it and puts it there.
    pub(super) fn put(self) -> Result<(), Failed> {
        let tree = match self.from {
            From::Tree(tree) => tree,
            From::Host(path) => tree(&under(OLD, &path))?,
        };
        let to = under(NEW, &self.to);
        place_for(&tree, &to)?;
        restrict(&tree, self.access).map_err(Failed::at(format!("restrict `{}`", self.to.display())))?;
        attach(&tree, &to)
    }
}

/// An absolute path, below another root.
pub(super) fn under(root: &str, path: &Path) -> PathBuf {
    Path::new(root).join(path.strip_prefix("/").unwrap_or(path))
}

/// A copy of what is at a path, with everything mounted below it, that is nowhere yet.
pub(super) fn tree(path: &Path) -> Result<OwnedFd, Failed> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let shown = Path::new("/").join(path.strip_prefix(OLD).unwrap_or(path));
    rustix::mount::open_tree(CWD, path, flags).map_err(Failed::at(format!("take `{}`", shown.display())))
}

pub(super) fn attach(tree: &OwnedFd, to: &Path) -> Result<(), Failed> {
    let shown = Path::new("/").join(to.strip_prefix(NEW).unwrap_or(to));
    rustix::mount::move_mount(tree, "", CWD, to, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(Failed::at(format!("mount `{}`", shown.display())))
}

/// A file or directory to mount on, as `tree` is one.
fn place_for(tree: &OwnedFd, to: &Path) -> Result<(), Failed> {
    let shown = Path::new("/").join(to.strip_prefix(NEW).unwrap_or(to));
    let failed = || format!("make a place for `{}`", shown.display());
    if has_link(to) {
        return Err(Failed::at(failed())(io::Error::other("a symbolic link is in the way")));
    }
    let stat = rustix::fs::fstat(tree).map_err(Failed::at(failed()))?;
    if rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory {
        return make_dir(to).map_err(Failed::at(failed()));
    }
    if let Some(parent) = to.parent() {
        make_dir(parent).map_err(Failed::at(failed()))?;
    }
    if to.exists() {
        return Ok(());
    }
    File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o644)
        .open(to)
        .map(drop)
        .map_err(Failed::at(failed()))
}

/// Whether a link is on the way to a place in the new root. Whoever was inside before may have left one in its home
/// directory, and it would lead us through the host's files.
fn has_link(to: &Path) -> bool {
    let inside = to.ancestors().take_while(|path| *path != Path::new(NEW));
    inside.into_iter().any(|path| fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink()))
}

pub(super) fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// Struct `mount_attr` of `mount_setattr(2)`.
#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    users: u64,
}

const READ_ONLY: u64 = 0x1;
const NO_SUID: u64 = 0x2;
const NO_DEVICES: u64 = 0x4;
const NO_EXEC: u64 = 0x8;
const MAPPED_USERS: u64 = 0x0010_0000;

/// Takes rights from a tree and everything mounted below it, and cuts it off from what the host mounts there later.
pub(super) fn restrict(tree: &OwnedFd, access: Access) -> io::Result<()> {
    let set = match access {
        Access::ReadOnly => READ_ONLY | NO_SUID | NO_DEVICES,
        Access::ReadWrite => NO_SUID | NO_DEVICES,
        Access::Device => READ_ONLY | NO_SUID | NO_EXEC,
    };
    set_attributes(
        tree.as_fd(),
        libc::AT_RECURSIVE,
        &Attributes { set, clear: 0, propagation: libc::MS_PRIVATE, users: 0 },
    )
}

/// Makes what is mounted at a path read-only, and nothing that is mounted below it.
pub(super) fn freeze(path: &Path) -> Result<(), Failed> {
    let shown = Path::new("/").join(path.strip_prefix(NEW).unwrap_or(path));
    let failed = || format!("make `{}` read-only", shown.display());
    let at = rustix::fs::open(path, rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())
        .map_err(Failed::at(failed()))?;
    let attributes = Attributes { set: READ_ONLY, clear: 0, propagation: 0, users: 0 };
    set_attributes(at.as_fd(), 0, &attributes).map_err(Failed::at(failed()))
}

/// Shows the files of a tree as if they belonged to others, as the user namespace maps them.
pub(super) fn map_users(tree: &OwnedFd, users: BorrowedFd<'_>) -> io::Result<()> {
    let users = u64::try_from(users.as_raw_fd()).map_err(io::Error::other)?;
    let attributes = Attributes { set: MAPPED_USERS, clear: 0, propagation: 0, users };
    set_attributes(tree.as_fd(), libc::AT_RECURSIVE, &attributes)
}

fn set_attributes(at: BorrowedFd<'_>, flags: libc::c_int, attributes: &Attributes) -> io::Result<()> {
    // SAFETY: the path is a string that ends in NUL, and the kernel reads the one struct of the size that is given.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            at.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            std::ptr::from_ref(attributes),
            size_of::<Attributes>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A file system in memory. `options` as in tmpfs(5).
pub(super) fn memory(at: &Path, options: &str) -> Result<(), Failed> {
    fresh("tmpfs", at, MountFlags::NOSUID | MountFlags::NODEV, options)
}

/// A new file system of a kind.
pub(super) fn fresh(kind: &str, at: &Path, flags: MountFlags, options: &str) -> Result<(), Failed> {
    let shown = Path::new("/").join(at.strip_prefix(NEW).unwrap_or(at));
    let failed = || format!("mount `{}`", shown.display());
    let options = std::ffi::CString::new(options).map_err(io::Error::other).map_err(Failed::at(failed()))?;
    make_dir(at).map_err(Failed::at(failed()))?;
    rustix::mount::mount(kind, at, kind, flags, options.as_c_str()).map_err(Failed::at(failed()))
}

/// A small text file of ours.
pub(super) fn write(path: &Path, mode: u32, text: &str) -> Result<(), Failed> {
    let written = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(path)
        .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(Failed::at(format!("write `{}`", path.display())))
}

pub(super) fn link(to: &str, at: &Path) -> Result<(), Failed> {
    let made = fs::symlink_metadata(at).map(drop).or_else(|_| std::os::unix::fs::symlink(to, at));
    made.map_err(Failed::at(format!("make the link `{}`", at.display())))
}
