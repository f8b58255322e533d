//! Where an archive is unpacked before it is anybody's.

use super::super::change::remove_below;
use super::super::failure::Failure;
use super::super::spot::{Root, beneath, step};
use super::notes::{BLOCK, Notes, above, checked, is_file, malformed, padding, parts, refused, skip, unwanted};
use super::stream::{Stream, incomplete};
use super::{Bounds, Unpacked};
use crate::clock::fresh_digits;
use crate::error::Error;
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tar::Header;

const PREFIX: &str = ".unpack-";

pub(super) struct Stage {
    above: OwnedFd,
    name: String,
    pub(super) dir: OwnedFd,
}

impl Stage {
    /// Beside the tree, on its file system. In `/tmp` there is no beside.
    pub(super) fn new(root: &Root) -> Result<Self, Failure> {
        Self::within(if root.is_scratch { &root.outside } else { root.outside.parent().unwrap_or(&root.outside) })
    }

    pub(super) fn within(above: &Path) -> Result<Self, Failure> {
        let above = rustix::fs::open(above, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        sweep(&above)?;
        let name = format!("{PREFIX}{}", fresh_digits());
        rustix::fs::mkdirat(&above, &name, Mode::from_raw_mode(0o700))?;
        let dir = beneath(&above, OsStr::new(&name), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
        // Locked as long as somebody works in it.
        rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { above, name, dir })
    }

    /// Puts it where something else is, and that in its place: at every instant there is one of the two.
    pub(super) fn exchange(&self, name: &OsStr) -> Result<(), Failure> {
        Ok(rustix::fs::renameat_with(&self.above, &self.name, &self.above, name, RenameFlags::EXCHANGE)?)
    }

    /// Reads entries up to the blocks that end an archive.
    pub(super) fn fill(
        &self,
        stream: &mut Stream,
        bounds: Bounds,
        leads_inside: impl Fn(&OsStr, &[u8]) -> bool,
    ) -> Result<Unpacked, Failure> {
        let (mut done, mut entries, mut notes) = (Unpacked::default(), 0, Notes::default());
        loop {
            let mut block = [0; BLOCK];
            stream.fill(&mut block)?;
            if block.iter().all(|byte| *byte == 0) {
                return Ok(done);
            }
            let header = Header::from_byte_slice(&block);
            let size = checked(header, &block)?;
            let kind = header.entry_type();
            if notes.take(kind, size, stream)? {
                continue;
            }
            entries += 1;
            let Notes { path, target } = std::mem::take(&mut notes);
            let path = path.unwrap_or_else(|| header.path_bytes().into_owned());
            done.bytes = done.bytes.saturating_add(if is_file(kind) { size } else { 0 });
            if entries > bounds.entries || done.bytes > bounds.bytes {
                let Bounds { bytes, entries } = bounds;
                let message = format!("an archive may have {entries} entries and {bytes} bytes");
                return Err(Error::TooLarge(message).into());
            }
            let refused = |message: &str| refused(&path, message);
            let parts = parts(&path).map_err(refused)?;
            if let Some(why) = unwanted(kind) {
                return Err(refused(why));
            }
            if size > 0 && !is_file(kind) {
                return Err(malformed());
            }
            let mode = header.mode().map_err(|_| malformed())? & 0o777;
            let target = target.or_else(|| header.link_name_bytes().map(Cow::into_owned)).unwrap_or_default();
            let placed = if kind.is_dir() {
                done.dirs += 1;
                // Its owner can always go on in it.
                self.dir(&parts, mode | 0o700).map(drop)
            } else if kind.is_symlink() {
                done.links += 1;
                if target.is_empty() || target.contains(&0) {
                    return Err(refused("it is a link to nothing"));
                }
                if !leads_inside(&above(&parts), &target) {
                    return Err(refused("it is a link that leads out of the sandbox"));
                }
                self.symlink(&target, &parts)
            } else if kind.is_hard_link() {
                done.files += 1;
                let first = self::parts(&target).map_err(|_| refused("it is a second name of something outside"))?;
                self.link(&first, &parts)
            } else {
                done.files += 1;
                let place = self.place(&parts);
                place.and_then(|(dir, name)| write(&dir, name, stream, size, mode, header.mtime().unwrap_or(0)))
            };
            placed.map_err(|failure| Failure::Is(failure.at(&path)))?;
        }
    }

    fn symlink(&self, target: &[u8], parts: &[OsString]) -> Result<(), Failure> {
        let (dir, name) = self.place(parts)?;
        Ok(rustix::fs::symlinkat(OsStr::from_bytes(target), &dir, name)?)
    }

    /// The directory of an entry, made if need be, and its name there, free.
    fn place<'a>(&self, parts: &'a [OsString]) -> Result<(OwnedFd, &'a OsStr), Failure> {
        let (name, above) = parts.split_last().ok_or(Failure::Path("it has no name"))?;
        let dir = self.dir(above, 0o755)?;
        // Of two entries of one name the later counts.
        match rustix::fs::unlinkat(&dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok((dir, name)),
            Err(error) => Err(error.into()),
        }
    }

    fn dir(&self, parts: &[OsString], mode: u32) -> Result<OwnedFd, Failure> {
        let mut dir = beneath(&self.dir, OsStr::new("."), OFlags::PATH | OFlags::DIRECTORY)?;
        for (index, part) in parts.iter().enumerate() {
            let mode = if index + 1 == parts.len() { mode } else { 0o755 };
            match rustix::fs::mkdirat(&dir, part, Mode::from_raw_mode(mode)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            dir = step(&dir, part).map_err(|error| match error {
                Errno::LOOP | Errno::NOTDIR => Failure::Path("it goes through something that is no directory"),
                error => error.into(),
            })?;
        }
        Ok(dir)
    }

    /// A second name for a file that came earlier.
    fn link(&self, target: &[OsString], parts: &[OsString]) -> Result<(), Failure> {
        let missing = || Failure::Path("it is a second name of something that is not in the archive");
        let (old_name, above) = target.split_last().ok_or_else(missing)?;
        let mut old = beneath(&self.dir, OsStr::new("."), OFlags::PATH | OFlags::DIRECTORY)?;
        for part in above {
            old = step(&old, part).map_err(|_| missing())?;
        }
        let stat = rustix::fs::statat(&old, old_name, AtFlags::SYMLINK_NOFOLLOW).map_err(|_| missing())?;
        if !super::super::spot::is_file(&stat) {
            return Err(Failure::Path("only files have second names"));
        }
        if target == parts {
            return Ok(());
        }
        let (dir, name) = self.place(parts)?;
        Ok(rustix::fs::linkat(&old, old_name, &dir, name, AtFlags::empty())?)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(failure) = remove_below(&self.above, OsStr::new(&self.name)) {
            tracing::warn!(?failure, name = self.name, "what was unpacked can't be removed; the next one will try");
        }
    }
}

/// Removes what is there from servers that died: nobody has it locked.
fn sweep(above: &OwnedFd) -> Result<(), Failure> {
    for entry in Dir::read_from(above)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if !name.as_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        let Ok(dir) = beneath(above, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW) else { continue };
        if rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = remove_below(above, name);
        }
    }
    Ok(())
}

fn write(dir: &OwnedFd, name: &OsStr, stream: &mut Stream, size: u64, mode: u32, mtime: u64) -> Result<(), Failure> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(dir, Path::new(name), flags, Mode::from_raw_mode(0o600))?);
    let mut left = size;
    let mut buffer = vec![0; 64 * 1024];
    while left > 0 {
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let read = stream.read(buffer.get_mut(..wanted).unwrap_or_default()).map_err(incomplete)?;
        if read == 0 {
            return Err(incomplete(std::io::ErrorKind::UnexpectedEof.into()));
        }
        std::io::Write::write_all(&mut file, buffer.get(..read).unwrap_or_default())?;
        left -= read as u64;
    }
    skip(stream, padding(size))?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    let moment = Timespec { tv_sec: i64::try_from(mtime).unwrap_or(0), tv_nsec: 0 };
    Ok(rustix::fs::futimens(&file, &Timestamps { last_access: moment, last_modification: moment })?)
}
