//! Writing a file, whole or not at all.
//!
//! The bytes go into a file without a name, on the file system where they belong; when all are there it gets its name.
//! Whoever dies before that leaves nothing behind. Where a file is replaced, the new bytes are on the disk before they
//! have its name: after a power cut there is the old or the new. A new file isn't waited for, as nowhere else.

use super::Files;
use super::entry::{Entry, etag};
use super::failure::Failure;
use super::ground::{Ground, Last, Way};
use super::spot::{Spot, is_dir, is_file};
use crate::clock::fresh_digits;
use crate::error::Error;
use bytes::Bytes;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::AsyncWriteExt;

/// What must be so for a change to happen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Condition {
    #[default]
    Any,
    /// There is none of that name.
    Absent,
    /// There is one, whichever.
    Present,
    /// It is one of these.
    Is(Vec<String>),
    /// It is none of these.
    IsNot(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub created: bool,
    pub entry: Entry,
}

/// A file that is being written. Dropped, it was never there.
#[derive(Debug)]
pub struct Writing {
    files: Files,
    path: Vec<u8>,
    condition: Condition,
    file: tokio::fs::File,
    draft: Draft,
}

impl Files {
    /// Begins; the condition is looked at now, so that nobody sends what will be refused, and again at the end.
    pub async fn begin(&self, path: impl AsRef<[u8]>, condition: Condition) -> Result<Writing, Error> {
        let wanted = condition.clone();
        let draft = self.at(path.as_ref(), move |ground, path| {
            let spot = ground.find(path, Last::Follow, Way::AsFarAsItGoes)?;
            wanted.check(replaceable(&spot)?.as_ref())?;
            Ok(Draft::new(spot.dir)?)
        });
        let (file, draft) = draft.await?;
        let (files, path) = (self.clone(), path.as_ref().to_vec());
        Ok(Writing { files, path, condition, file: tokio::fs::File::from_std(file), draft })
    }

    /// Writes a small file; makes the directories above it.
    pub async fn write(&self, path: impl AsRef<[u8]>, bytes: Vec<u8>) -> Result<Written, Error> {
        self.at(path.as_ref(), move |ground, path| put(ground, path, &bytes, &Condition::Any)).await
    }

    /// Writes a small file that nobody may read but whom this mode lets, whatever was there.
    pub async fn write_as(&self, path: impl AsRef<[u8]>, bytes: Vec<u8>, mode: u32) -> Result<Written, Error> {
        let mode = Access::Only(Mode::from_raw_mode(mode & 0o777));
        let write = move |ground: &Ground, path: &[u8]| {
            let spot = ground.find(path, Last::Follow, Way::AsFarAsItGoes)?;
            replaceable(&spot)?;
            let (mut file, draft) = Draft::new(spot.dir)?;
            file.write_all(&bytes)?;
            name(ground, path, &file, draft, &Condition::Any, mode)
        };
        self.change(path.as_ref(), write).await
    }
}

impl Writing {
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        let written = self.file.write_all(&bytes).await;
        written.map_err(|error| Failure::from(error).at(&self.path))
    }

    /// Gives it its name.
    pub async fn commit(mut self) -> Result<Written, Error> {
        self.file.flush().await.map_err(|error| Failure::from(error).at(&self.path))?;
        let file = self.file.into_std().await;
        let (draft, condition) = (self.draft, self.condition);
        self.files
            .change(&self.path, move |ground, path| name(ground, path, &file, draft, &condition, Access::AsItWas))
            .await
    }
}

/// Writes and names in one go.
pub(super) fn put(ground: &Ground, path: &[u8], bytes: &[u8], condition: &Condition) -> Result<Written, Failure> {
    let spot = ground.find(path, Last::Follow, Way::AsFarAsItGoes)?;
    condition.check(replaceable(&spot)?.as_ref())?;
    let (mut file, draft) = Draft::new(spot.dir)?;
    file.write_all(bytes)?;
    name(ground, path, &file, draft, condition, Access::AsItWas)
}

/// Writes what another file has in it, with its mode.
pub(super) fn copy(
    ground: &Ground,
    path: &[u8],
    from: &mut File,
    stat: &Stat,
    condition: &Condition,
) -> Result<Written, Failure> {
    let spot = ground.find(path, Last::Keep, Way::AsFarAsItGoes)?;
    condition.check(replaceable(&spot)?.as_ref())?;
    let (mut file, draft) = Draft::new(spot.dir)?;
    std::io::copy(from, &mut file)?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(stat.st_mode & 0o777))?;
    name(ground, path, &file, draft, condition, Access::AsItWas)
}

/// Two that look and then change must not do so at the same time; what runs in the sandbox can't be kept from it.
static TURN: Mutex<()> = Mutex::new(());

/// So long nobody gives a file its name: a tree can be exchanged for another, and nothing lands in the old one unseen.
pub(super) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who may do what with a file that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// As with the one that it replaces; a new one as any other.
    AsItWas,
    Only(Mode),
}

fn name(
    ground: &Ground,
    path: &[u8],
    file: &File,
    mut draft: Draft,
    condition: &Condition,
    access: Access,
) -> Result<Written, Failure> {
    if let Access::Only(mode) = access {
        rustix::fs::fchmod(file, mode)?;
    }
    // Synced before the turn, so that nobody waits for somebody else's disk.
    let before = ground.find(path, Last::Follow, Way::AsFarAsItGoes)?;
    if replaceable(&before)?.is_some() {
        file.sync_data()?;
    }
    let _turn = turn();
    loop {
        let spot = ground.find(path, Last::Follow, Way::AsFarAsItGoes)?;
        let there = replaceable(&spot)?;
        condition.check(there.as_ref())?;
        // Only now: what is refused makes no directory.
        let spot = if spot.cut { ground.find(path, Last::Follow, Way::Make)? } else { spot };
        let entry = spot.entry()?;
        let placed = match &there {
            None => draft.create(file, &spot.dir, entry),
            Some(stat) => {
                if access == Access::AsItWas {
                    rustix::fs::fchmod(file, Mode::from_raw_mode(stat.st_mode & 0o777))?;
                }
                draft.replace(file, &spot.dir, entry)
            }
        };
        match placed {
            // Somebody was quicker; look again.
            Err(Errno::EXIST) if there.is_none() => {}
            placed => {
                placed?;
                let entry = Entry::new(Ground::absolute(path), &rustix::fs::fstat(file)?, None);
                return Ok(Written { created: there.is_none(), entry });
            }
        }
    }
}

/// What would be replaced; only plain files are.
fn replaceable(spot: &Spot) -> Result<Option<Stat>, Failure> {
    if spot.as_dir {
        return Err(Failure::Path("a slash at its end says that it is a directory"));
    }
    spot.entry()?;
    match spot.stat() {
        Ok(Some(stat)) if is_dir(&stat) => Err(Failure::Path("it is a directory")),
        Ok(Some(stat)) if !is_file(&stat) => Err(Failure::Path("it is not a plain file")),
        stat => stat,
    }
}

impl Condition {
    pub(super) fn check(&self, there: Option<&Stat>) -> Result<(), Error> {
        self.check_tag(there.map(etag).as_deref())
    }

    /// By the tag of what is there.
    pub(crate) fn check_tag(&self, tag: Option<&str>) -> Result<(), Error> {
        let holds = match self {
            Self::Any => true,
            Self::Absent => tag.is_none(),
            Self::Present => tag.is_some(),
            Self::Is(tags) => tag.is_some_and(|tag| tags.iter().any(|other| other == tag)),
            Self::IsNot(tags) => tag.is_none_or(|tag| !tags.iter().any(|other| other == tag)),
        };
        if holds {
            return Ok(());
        }
        Err(Error::PreconditionFailed(match self {
            Self::Absent => "there is such a file already".to_owned(),
            Self::Any | Self::Present => "there is no such file".to_owned(),
            Self::Is(_) => "the file is not the one that was named: it was changed, or is gone".to_owned(),
            Self::IsNot(_) => "the file is one of those that were named".to_owned(),
        }))
    }
}

/// A file before it has its name.
#[derive(Debug)]
enum Draft {
    Nameless,
    /// Where a file system knows no files without a name.
    Named {
        dir: Arc<OwnedFd>,
        name: String,
    },
    Placed,
}

impl Draft {
    fn new(dir: OwnedFd) -> Result<(File, Self), Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        match rustix::fs::openat(&dir, ".", flags | OFlags::TMPFILE, mode) {
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {}
            opened => return Ok((File::from(opened?), Self::Nameless)),
        }
        let name = format!(".stead-{}", fresh_digits());
        let file = rustix::fs::openat(&dir, &name, flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, mode)?;
        Ok((File::from(file), Self::Named { dir: Arc::new(dir), name }))
    }

    fn create(&mut self, file: &File, dir: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        match self {
            Self::Nameless | Self::Placed => link(file, dir, name)?,
            Self::Named { dir: from, name: draft } => {
                rustix::fs::renameat_with(&**from, &*draft, dir, name, RenameFlags::NOREPLACE)?;
            }
        }
        *self = Self::Placed;
        Ok(())
    }

    fn replace(&mut self, file: &File, dir: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        match self {
            Self::Nameless | Self::Placed => {
                let draft = format!(".stead-{}", fresh_digits());
                link(file, dir, OsStr::new(&draft))?;
                if let Err(error) = rustix::fs::renameat(dir, &draft, dir, name) {
                    let _ = rustix::fs::unlinkat(dir, &draft, AtFlags::empty());
                    return Err(error);
                }
            }
            Self::Named { dir: from, name: draft } => rustix::fs::renameat(&**from, &*draft, dir, name)?,
        }
        *self = Self::Placed;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Self::Named { dir, name } = self {
            let _ = rustix::fs::unlinkat(&**dir, &*name, AtFlags::empty());
        }
    }
}

fn link(file: &File, dir: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(rustix::fs::CWD, path, dir, name, AtFlags::SYMLINK_FOLLOW)
}
