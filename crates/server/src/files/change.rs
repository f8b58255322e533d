//! Making directories, moving, removing. Links are moved and removed themselves; what they lead to is left alone.

use super::Files;
use super::entry::Entry;
use super::failure::Failure;
use super::ground::{Ground, Last, Way};
use super::spot::{Id, Spot, beneath, id, is_dir, is_file, step};
use super::write::Condition;
use crate::error::Error;
use crate::stoppable::Stopped;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// Whether what has the new name is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overwrite {
    #[default]
    No,
    Yes,
}

impl Files {
    /// Makes a directory and those above it. False if it was there.
    pub async fn make_dir(&self, path: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.change(path.as_ref(), |ground, path| {
            let spot = ground.find(path, Last::Follow, Way::Make)?;
            let Some(name) = &spot.name else { return Ok(false) };
            match rustix::fs::mkdirat(&spot.dir, name, Mode::from_raw_mode(0o755)) {
                Ok(()) => Ok(true),
                Err(Errno::EXIST) if spot.stat()?.is_some_and(|stat| is_dir(&stat)) => Ok(false),
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    /// Removes a file, a link, or a directory that is empty.
    pub async fn remove(&self, path: impl AsRef<[u8]>, condition: Condition) -> Result<(), Error> {
        self.change(path.as_ref(), move |ground, path| {
            let spot = ground.find(path, Last::Keep, Way::MustBe)?;
            let name = removable(ground, &spot, &condition)?;
            match rustix::fs::unlinkat(&spot.dir, name, AtFlags::empty()) {
                Err(Errno::ISDIR) => Ok(rustix::fs::unlinkat(&spot.dir, name, AtFlags::REMOVEDIR)?),
                removed => Ok(removed?),
            }
        })
        .await
    }

    /// Removes a directory with all that is in it; through no link.
    pub async fn remove_all(&self, path: impl AsRef<[u8]>, condition: Condition) -> Result<(), Error> {
        self.change(path.as_ref(), move |ground, path| {
            let spot = ground.find(path, Last::Keep, Way::MustBe)?;
            let name = removable(ground, &spot, &condition)?;
            remove_below(&spot.dir, name)
        })
        .await
    }

    /// Gives a file or a directory another name, in one step where both names are on one file system. A plain file is
    /// copied to another one and then removed.
    pub async fn rename(
        &self,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
        overwrite: Overwrite,
    ) -> Result<Entry, Error> {
        let to = to.as_ref().to_vec();
        self.change(from.as_ref(), move |ground, from| {
            let old = ground.find(from, Last::Keep, Way::MustBe)?;
            let old_name = removable(ground, &old, &Condition::Present)?;
            let done = move_to(ground, &old, old_name, &to, overwrite);
            done.map_err(|failure| Failure::Is(failure.at(&to)))
        })
        .await
    }
}

/// The name of what may be taken away: there, named, and not what holds the server's own.
pub(super) fn removable<'a>(ground: &Ground, spot: &'a Spot, condition: &Condition) -> Result<&'a OsStr, Failure> {
    let name = spot.entry()?;
    let stat = spot.stat()?.ok_or(Errno::NOENT)?;
    if spot.as_dir && !is_dir(&stat) {
        return Err(Errno::NOTDIR.into());
    }
    if is_dir(&stat) && ground.holds_private(&spot.dir, name) {
        return Err(Failure::Path("it holds what is not the sandbox's"));
    }
    condition.check(Some(&stat))?;
    Ok(name)
}

fn move_to(ground: &Ground, old: &Spot, name: &OsStr, to: &[u8], overwrite: Overwrite) -> Result<Entry, Failure> {
    // Looked at before a directory is made for it.
    let new = ground.find(to, Last::Keep, Way::AsFarAsItGoes)?;
    let stat = old.stat()?.ok_or(Errno::NOENT)?;
    if new.as_dir && !is_dir(&stat) {
        return Err(Failure::Path("a slash at its end says that it is a directory"));
    }
    if is_dir(&stat) && is_below(ground, id(&stat), to)? {
        return Err(Failure::Path("a directory can't be moved into itself"));
    }
    let new = if new.cut { ground.find(to, Last::Keep, Way::Make)? } else { new };
    let new_name = new.entry()?;
    if new.stat()?.is_some_and(|there| is_dir(&there)) && ground.holds_private(&new.dir, new_name) {
        return Err(Failure::Path("it holds what is not the sandbox's"));
    }
    let flags = if overwrite == Overwrite::Yes { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    match rustix::fs::renameat_with(&old.dir, name, &new.dir, new_name, flags) {
        Err(Errno::XDEV) if is_file(&stat) => {
            let (mut file, _) = old.open_file()?;
            let condition = if overwrite == Overwrite::Yes { Condition::Any } else { Condition::Absent };
            let copied = super::write::copy(ground, to, &mut file, &stat, &condition);
            copied.map_err(|failure| match failure {
                Failure::Is(Error::PreconditionFailed(_)) => Errno::EXIST.into(),
                failure @ (Failure::Is(_) | Failure::Os(_) | Failure::Path(_)) => failure,
            })?;
            rustix::fs::unlinkat(&old.dir, name, AtFlags::empty())?;
        }
        Err(Errno::XDEV) => {
            let message = "only plain files are moved to another file system; use an archive for directories";
            return Err(Error::Unsupported(message.to_owned()).into());
        }
        Err(Errno::INVAL) => return Err(Failure::Path("a directory can't be moved into itself")),
        Err(Errno::ISDIR | Errno::NOTDIR) => {
            let message = "a directory and something else can't replace each other";
            return Err(Error::Conflict(message.to_owned()).into());
        }
        moved => moved?,
    }
    let stat = new.stat()?.ok_or(Errno::NOENT)?;
    Ok(Entry::new(Ground::absolute(to), &stat, None))
}

/// Whether a path leads through a directory.
fn is_below(ground: &Ground, dir: Id, path: &[u8]) -> Result<bool, Failure> {
    let mut spot = ground.find(path, Last::Keep, Way::AsFarAsItGoes)?;
    // Up by the directories themselves: there is no name to be fooled by.
    for _ in 0..=super::ground::MAX_DEPTH {
        let here = rustix::fs::fstat(&spot.dir)?;
        if id(&here) == dir {
            return Ok(true);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = rustix::fs::openat(&spot.dir, "..", flags, Mode::empty())?;
        if id(&rustix::fs::fstat(&above)?) == id(&here) {
            return Ok(false);
        }
        spot.dir = above;
    }
    Ok(false)
}

/// Removes an entry with all below it, holding one directory at a time however deep it goes. The way back up is checked:
/// whoever moves a directory away meanwhile doesn't lead us elsewhere.
pub(super) fn remove_below(dir: &OwnedFd, name: &OsStr) -> Result<(), Failure> {
    remove_below_while(dir, name, &|| true)
}

/// The same, as long as there is time for it; what is left then is an error.
pub(super) fn remove_below_while(dir: &OwnedFd, name: &OsStr, go_on: &dyn Fn() -> bool) -> Result<(), Failure> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => {}
        removed => return Ok(removed?),
    }
    let mut above: Vec<(OsString, Id)> = Vec::new();
    let mut here = step(dir, name)?;
    loop {
        if let Some(inner) = empty_of_files(&here, go_on)? {
            let identity = id(&rustix::fs::fstat(&here)?);
            here = step(&here, &inner)?;
            above.push((inner, identity));
            continue;
        }
        let Some((inner, identity)) = above.pop() else { break };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let up = rustix::fs::openat(&here, "..", flags, Mode::empty())?;
        if id(&rustix::fs::fstat(&up)?) != identity {
            return Err(Error::Conflict("directories were moved while they were removed".to_owned()).into());
        }
        here = up;
        remove_dir(&here, &inner)?;
    }
    Ok(remove_dir(dir, name)?)
}

/// One that is gone is removed.
fn remove_dir(dir: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

/// Removes all entries but directories; the name of one of those, if there is one.
fn empty_of_files(dir: &OwnedFd, go_on: &dyn Fn() -> bool) -> Result<Option<OsString>, Failure> {
    let dir = beneath(dir, OsStr::new("."), OFlags::RDONLY | OFlags::DIRECTORY)?;
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        if !go_on() {
            return Err(io::Error::other(Stopped).into());
        }
        match rustix::fs::unlinkat(&dir, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => return Ok(Some(name.to_owned())),
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}
