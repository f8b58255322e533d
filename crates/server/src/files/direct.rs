//! The same operations, done at once by whoever may wait for a disk: for what is one of several places where files are
//! kept (see [`crate::space`]).

use super::change::{removable, remove_below};
use super::entry::{Entry, below, etag, kind};
use super::failure::Failure;
use super::ground::{Ground, Last, Way};
use super::list::open_base;
use super::traverse::names;
use super::write::{Condition, Written, put};
use super::{Files, Kind};
use crate::error::Error;
use crate::memory::Depth;
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

impl Files {
    fn now<T>(&self, path: &[u8], work: impl FnOnce(&Ground, &[u8]) -> Result<T, Failure>) -> Result<T, Error> {
        work(&self.ground, path).map_err(|failure| failure.at(path))
    }

    /// What is there, if anything; of a link, the link itself.
    pub(crate) fn stat_now(&self, path: &[u8]) -> Result<Entry, Error> {
        self.now(path, |ground, path| {
            let spot = match ground.find(path, Last::Keep, Way::MustBe) {
                Err(failure) if failure.is(Errno::NOENT) => return Err(failure),
                found => found?,
            };
            let seen = spot.open(OFlags::PATH)?;
            let stat = rustix::fs::fstat(&seen)?;
            if spot.as_dir && kind(&stat) != Kind::Dir {
                return Err(Errno::NOTDIR.into());
            }
            let link = kind(&stat) == Kind::Symlink;
            let target = link.then(|| rustix::fs::readlinkat(&seen, "", Vec::new())).transpose()?;
            Ok(Entry::new(Ground::absolute(path), &stat, target.map(std::ffi::CString::into_bytes)))
        })
    }

    /// A plain file, open, and what there is to say about it.
    pub(crate) fn open_now(&self, path: &[u8]) -> Result<(File, Entry), Error> {
        self.now(path, |ground, path| {
            let (file, stat) = ground.find(path, Last::Follow, Way::MustBe)?.open_file()?;
            Ok((file, Entry::new(Ground::absolute(path), &stat, None)))
        })
    }

    /// All of a file of at most so many bytes, and its tag.
    pub(crate) fn read_now(&self, path: &[u8], most: u64) -> Result<(Vec<u8>, Entry), Error> {
        self.now(path, |ground, path| {
            let (file, stat) = ground.find(path, Last::Follow, Way::MustBe)?.open_file()?;
            let mut bytes = Vec::with_capacity(usize::try_from(super::entry::size(&stat).min(most)).unwrap_or(0));
            file.take(most + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > most {
                let message = format!("`{}` has more than {most} bytes", String::from_utf8_lossy(path));
                return Err(Error::TooLarge(message).into());
            }
            let mut entry = Entry::new(Ground::absolute(path), &stat, None);
            entry.etag = Some(etag(&stat));
            Ok((bytes, entry))
        })
    }

    /// Writes a file; makes the directories above it.
    pub(crate) fn put_now(&self, path: &[u8], bytes: &[u8], condition: &Condition) -> Result<Written, Error> {
        self.now(path, |ground, path| put(ground, path, bytes, condition))
    }

    pub(crate) fn remove_now(&self, path: &[u8], depth: Depth, condition: &Condition) -> Result<(), Error> {
        self.now(path, |ground, path| {
            let spot = ground.find(path, Last::Keep, Way::MustBe)?;
            let name = removable(ground, &spot, condition)?;
            if depth == Depth::WithAllBelow {
                return remove_below(&spot.dir, name);
            }
            match rustix::fs::unlinkat(&spot.dir, name, AtFlags::empty()) {
                Err(Errno::ISDIR) => Ok(rustix::fs::unlinkat(&spot.dir, name, AtFlags::REMOVEDIR)?),
                removed => Ok(removed?),
            }
        })
    }

    /// The first entries of a directory, after a name, in the order of names; and whether there may be more.
    pub(crate) fn children_now(&self, path: &[u8], after: Option<&[u8]>) -> Result<(Vec<Entry>, bool), Error> {
        self.now(path, |ground, path| {
            let Some(dir) = open_base(ground, path)? else { return Ok((Vec::new(), false)) };
            let shown = Ground::absolute(path);
            let (names, more) = names(&dir, after.map(std::ffi::OsStr::from_bytes))?;
            let mut entries = Vec::new();
            for name in names {
                // One that goes while we look isn't there.
                let stat = match rustix::fs::statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => continue,
                    stat => stat?,
                };
                let link = kind(&stat) == Kind::Symlink;
                let target = link.then(|| super::spot::link_at(&dir, &name).ok().flatten()).flatten();
                entries.push(Entry::new(below(&shown, &name), &stat, target));
            }
            Ok((entries, more.is_some()))
        })
    }
}
