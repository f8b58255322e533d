//! A place that was found, and the few ways in which it is opened.

use super::failure::Failure;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

/// A name in a directory that we hold, or that directory itself.
#[derive(Debug)]
pub(super) struct Spot {
    pub(super) dir: OwnedFd,
    pub(super) name: Option<OsString>,
    /// Directories on the way are missing; `dir` is the last that is there.
    pub(super) cut: bool,
    /// A slash at its end said that it is a directory.
    pub(super) as_dir: bool,
    pub(super) root: Root,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Root {
    pub(super) outside: PathBuf,
    pub(super) is_scratch: bool,
}

impl Spot {
    /// An entry of a directory that was found.
    pub(super) fn new(dir: OwnedFd, name: OsString) -> Self {
        let root = Root { outside: PathBuf::new(), is_scratch: false };
        Self { dir, name: Some(name), cut: false, as_dir: false, root }
    }

    /// Opens what is there, if it isn't a link.
    pub(super) fn open(&self, flags: OFlags) -> Result<OwnedFd, Failure> {
        let name = self.name.as_deref().unwrap_or(OsStr::new("."));
        if self.cut {
            return Err(Errno::NOENT.into());
        }
        Ok(beneath(&self.dir, name, flags | OFlags::NOFOLLOW)?)
    }

    pub(super) fn open_dir(&self) -> Result<OwnedFd, Failure> {
        self.open(OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Opens a plain file to be read; whatever else there is, is only looked at. Opening a pipe would wait, and a device
    /// might do anything.
    pub(super) fn open_file(&self) -> Result<(File, Stat), Failure> {
        let seen = self.open(OFlags::PATH)?;
        let stat = rustix::fs::fstat(&seen)?;
        if !is_file(&stat) {
            return Err(Failure::Path(if is_dir(&stat) { "it is a directory" } else { "it is not a plain file" }));
        }
        if self.as_dir {
            return Err(Errno::NOTDIR.into());
        }
        Ok((File::open(format!("/proc/self/fd/{}", seen.as_raw_fd()))?, stat))
    }

    pub(super) fn stat(&self) -> Result<Option<Stat>, Failure> {
        match self.open(OFlags::PATH) {
            Ok(fd) => Ok(Some(rustix::fs::fstat(fd)?)),
            Err(failure) if failure.is(Errno::NOENT) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// The entry's name, where there has to be one.
    pub(super) fn entry(&self) -> Result<&OsStr, Failure> {
        self.name.as_deref().ok_or(Failure::Path("it is the root of a tree, or has no name of its own"))
    }
}

pub(super) fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_file()
}

pub(super) fn is_dir(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_dir()
}

/// One step down, through no link.
pub(super) fn step(dir: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    beneath(dir, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW)
}

pub(super) fn beneath(dir: impl AsFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    loop {
        match rustix::fs::openat2(&dir, name, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            // Somebody renamed a directory while the kernel looked.
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
}

/// Where a link leads, if it is one.
pub(super) fn link_at(dir: &OwnedFd, name: &OsStr) -> Result<Option<Vec<u8>>, Errno> {
    match rustix::fs::readlinkat(dir, name, Vec::new()) {
        Ok(target) => Ok(Some(target.into_bytes())),
        Err(Errno::INVAL | Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) type Id = (u64, u64);

pub(super) fn id(stat: &Stat) -> Id {
    (stat.st_dev, stat.st_ino)
}
