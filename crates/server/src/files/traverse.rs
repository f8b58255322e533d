//! Going through a directory and what is below it, in one order: names by their bytes, a directory before what is in it.
//! A walk can go on after any entry, also if that is gone. However large a directory, few of its names are held at once.

use super::entry::{Kind, below, kind};
use super::failure::Failure;
use super::ground::MAX_DEPTH;
use super::spot::{Id, Spot, beneath, id};
use crate::error::Error;
use rustix::fs::{AtFlags, Dir, OFlags, Stat};
use rustix::io::Errno;
use std::collections::BinaryHeap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::{Duration, Instant};

/// How many names of a directory are held.
const NAMES: usize = 10_000;
/// How long one request may look around; then it says how far it came.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Visit<'a> {
    /// From where the walk began.
    pub(super) path: &'a [u8],
    pub(super) dir: &'a OwnedFd,
    pub(super) name: &'a OsStr,
    pub(super) stat: &'a Stat,
}

impl Visit<'_> {
    pub(super) fn spot(&self) -> Result<Spot, Failure> {
        let dir = beneath(self.dir, OsStr::new("."), OFlags::PATH | OFlags::DIRECTORY)?;
        Ok(Spot::new(dir, self.name.to_owned()))
    }

    pub(super) fn target(&self) -> Option<Vec<u8>> {
        (kind(self.stat) == Kind::Symlink).then(|| super::spot::link_at(self.dir, self.name).ok().flatten()).flatten()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    On,
    Stop,
}

pub(super) struct Traverse {
    /// How many levels down; 1 is the directory itself.
    pub(super) depth: usize,
    /// The last entry of an earlier walk.
    pub(super) after: Option<Vec<u8>>,
    pub(super) private: Vec<Id>,
    /// What at the top has a name that begins so is passed over; nothing if it is empty.
    pub(super) passing: Vec<u8>,
    pub(super) deadline: Option<Instant>,
    pub(super) denied: Denied,
}

/// What happens with a directory that may not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denied {
    Pass,
    Fail,
}

struct Level {
    dir: OwnedFd,
    path: Vec<u8>,
    names: std::vec::IntoIter<OsString>,
    /// The last name that was taken, where there may be more than are held.
    more_after: Option<OsString>,
}

impl Traverse {
    pub(super) fn new(depth: usize, after: Option<Vec<u8>>, private: Vec<Id>) -> Self {
        Self {
            depth,
            after,
            private,
            passing: Vec::new(),
            deadline: Some(Instant::now() + PATIENCE),
            denied: Denied::Pass,
        }
    }

    /// Shows every entry, until told to stop or out of time. The last one shown if it isn't through.
    pub(super) fn run(
        self,
        base: OwnedFd,
        mut show: impl FnMut(&Visit<'_>) -> Result<Next, Failure>,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let mut levels = self.resume(base)?;
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.next() else {
                match level.more_after.take() {
                    Some(last) => (level.names, level.more_after) = names(&level.dir, Some(&last))?,
                    None => drop(levels.pop()),
                }
                continue;
            };
            // One that goes while we look isn't there.
            let stat = match rustix::fs::statat(&level.dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                stat => stat?,
            };
            let is_passing =
                level.path.is_empty() && !self.passing.is_empty() && name.as_bytes().starts_with(&self.passing);
            if is_passing || self.private.contains(&id(&stat)) {
                continue;
            }
            let path = below(&level.path, &name);
            let next = show(&Visit { path: &path, dir: &level.dir, name: &name, stat: &stat })?;
            if next == Next::Stop || self.deadline.is_some_and(|deadline| Instant::now() > deadline) {
                return Ok(Some(path));
            }
            if kind(&stat) == Kind::Dir && levels.len() < self.depth {
                match descend(&mut levels, &name, path, None) {
                    Err(failure) if self.denied == Denied::Pass && failure.is(Errno::ACCESS) => {}
                    done => done?,
                }
            }
        }
        Ok(None)
    }

    fn resume(&self, base: OwnedFd) -> Result<Vec<Level>, Failure> {
        let after = self.after.as_deref().unwrap_or_default();
        let mut parts = after.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).map(OsStr::from_bytes);
        let first = parts.next();
        let (names, more_after) = names(&base, first)?;
        let mut levels = vec![Level { dir: base, path: Vec::new(), names, more_after }];
        let mut at = first;
        while let Some(name) = at {
            let Some(level) = levels.last().filter(|_| levels.len() < self.depth) else { break };
            let path = below(&level.path, name);
            at = parts.next();
            match descend(&mut levels, name, path, at) {
                Err(failure) if failure.is(Errno::NOENT) || failure.is(Errno::NOTDIR) => break,
                done => done?,
            }
        }
        Ok(levels)
    }
}

fn descend(levels: &mut Vec<Level>, name: &OsStr, path: Vec<u8>, after: Option<&OsStr>) -> Result<(), Failure> {
    if levels.len() >= MAX_DEPTH {
        let message = format!("`{}` is more than {MAX_DEPTH} directories deep", String::from_utf8_lossy(&path));
        return Err(Error::TooLarge(message).into());
    }
    let Some(level) = levels.last() else { return Ok(()) };
    let dir = match beneath(&level.dir, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW) {
        // Gone, or something else, since it was shown.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        opened => opened?,
    };
    let (names, more_after) = names(&dir, after)?;
    levels.push(Level { dir, path, names, more_after });
    Ok(())
}

pub(super) type Names = (std::vec::IntoIter<OsString>, Option<OsString>);

/// The first names of a directory after one, in order; and the last of them, if there are more.
pub(super) fn names(dir: &OwnedFd, after: Option<&OsStr>) -> Result<Names, Failure> {
    let mut first = BinaryHeap::new();
    let mut more = false;
    for entry in Dir::read_from(dir)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if matches!(name.as_slice(), b"." | b"..") || after.is_some_and(|after| name.as_slice() <= after.as_bytes()) {
            continue;
        }
        first.push(name);
        if first.len() > NAMES {
            first.pop();
            more = true;
        }
    }
    let first: Vec<_> = first.into_sorted_vec().into_iter().map(OsString::from_vec).collect();
    let last = first.last().filter(|_| more).cloned();
    Ok((first.into_iter(), last))
}
