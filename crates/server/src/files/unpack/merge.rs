//! From the stage into the tree: each file replaces one of its name in one step, directories are joined.

use super::super::failure::Failure;
use super::super::ground::MAX_DEPTH;
use super::super::spot::{beneath, is_dir};
use crate::error::Error;
use rustix::fs::{AtFlags, Dir, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// Whether everything can be moved, before anything is.
pub(super) fn check(from: &OwnedFd, to: &OwnedFd, depth: usize) -> Result<(), Failure> {
    for name in entries(from)? {
        if let Meets::Dirs(from, to) = meets(from, to, &name, depth)? {
            check(&from, &to, depth + 1)?;
        }
    }
    Ok(())
}

pub(super) fn merge(from: &OwnedFd, to: &OwnedFd, depth: usize) -> Result<(), Failure> {
    for name in entries(from)? {
        match meets(from, to, &name, depth)? {
            Meets::Dirs(from, to) => merge(&from, &to, depth + 1)?,
            Meets::Free => rustix::fs::renameat(from, &name, to, &name)?,
        }
    }
    Ok(())
}

enum Meets {
    Free,
    Dirs(OwnedFd, OwnedFd),
}

fn meets(from: &OwnedFd, to: &OwnedFd, name: &OsStr, depth: usize) -> Result<Meets, Failure> {
    let there = match rustix::fs::statat(to, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(Meets::Free),
        there => there?,
    };
    let new = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match (is_dir(&new), is_dir(&there)) {
        (true, true) if depth < MAX_DEPTH => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            Ok(Meets::Dirs(beneath(from, name, flags)?, beneath(to, name, flags)?))
        }
        (true, true) => Err(Failure::Path("it is too deep")),
        (false, false) => Ok(Meets::Free),
        (true, false) | (false, true) => {
            let name = name.to_string_lossy();
            Err(Error::Conflict(format!("`{name}` is a directory here and something else there")).into())
        }
    }
}

fn entries(dir: &OwnedFd) -> Result<Vec<OsString>, Failure> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}
