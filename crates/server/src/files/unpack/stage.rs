//! Where an archive is unpacked before it is anybody's.

use super::super::change::remove_below_while;
use super::super::failure::Failure;
use super::super::spot::{Root, beneath, step};
use super::notes::{BLOCK, Notes, above, checked, is_file, malformed, parts, refused, unwanted};
use super::sparse::Content;
use super::stream::Stream;
use super::sweep::{not_yet_locked, sweep_dir};
use super::{Bounds, Unpacked};
use crate::clock::fresh_digits;
use crate::error::Error;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};
use tar::Header;
use tokio_util::sync::CancellationToken;

pub(in super::super) const STAGE_PREFIX: &str = ".unpack-";
/// How long a stopping server goes on removing a tree; the next one removes the rest.
const LAST_REMOVAL: Duration = Duration::from_secs(1);

pub(super) struct Stage {
    above: OwnedFd,
    name: String,
    pub(super) dir: OwnedFd,
    stop: CancellationToken,
}

impl Stage {
    /// Beside the tree, on its file system. In `/tmp` there is no beside.
    pub(super) fn new(root: &Root, stop: CancellationToken) -> Result<Self, Failure> {
        let beside = if root.is_scratch { &root.outside } else { root.outside.parent().unwrap_or(&root.outside) };
        Self::within(beside, stop)
    }

    pub(super) fn within(above: &Path, stop: CancellationToken) -> Result<Self, Failure> {
        let above = rustix::fs::open(above, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        sweep_dir(&above, &stop)?;
        let name = format!("{STAGE_PREFIX}{}", fresh_digits());
        let unlocked = not_yet_locked();
        rustix::fs::mkdirat(&above, &name, Mode::from_raw_mode(0o700))?;
        let dir = beneath(&above, OsStr::new(&name), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
        // Locked as long as somebody works in it.
        rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
        drop(unlocked);
        Ok(Self { above, name, dir, stop })
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
        // Set at the end: each entry that is put into a directory changes the directory's time.
        let mut directory_times: Vec<(Vec<OsString>, Timestamps)> = Vec::new();
        loop {
            let mut block = [0; BLOCK];
            stream.fill(&mut block)?;
            if block.iter().all(|byte| *byte == 0) {
                for (parts, times) in &directory_times {
                    self.set_times(parts, times)?;
                }
                return Ok(done);
            }
            let header = Header::from_byte_slice(&block);
            let size = checked(header, &block)?;
            let kind = header.entry_type();
            if notes.take(kind, size, stream)? {
                continue;
            }
            entries += 1;
            let Notes { path, target, size: told_size } = std::mem::take(&mut notes);
            let size = told_size.unwrap_or(size);
            let path = path.unwrap_or_else(|| header.path_bytes().into_owned());
            let content = Content::of(header, size, stream)?;
            done.bytes = done.bytes.saturating_add(if is_file(kind) { content.size() } else { 0 });
            if entries > bounds.entries || done.bytes > bounds.bytes {
                let Bounds { bytes, entries } = bounds;
                let message = format!("an archive may have {entries} entries and {bytes} bytes");
                return Err(Error::TooLarge(message).into());
            }
            let refused = |message: &str| refused(&path, message);
            let parts = parts(&path, stream.longest_path()).map_err(refused)?;
            if let Some(why) = unwanted(kind) {
                return Err(refused(why));
            }
            if size > 0 && !is_file(kind) {
                return Err(malformed());
            }
            let mode = header.mode().map_err(|_| malformed())? & 0o777;
            let times = times(header);
            let target = target.or_else(|| header.link_name_bytes().map(Cow::into_owned)).unwrap_or_default();
            let placed = if kind.is_dir() {
                done.dirs += 1;
                // Its owner can always go on in it.
                self.dir(&parts, mode | 0o700).map(|_| directory_times.push((parts, times)))
            } else if kind.is_symlink() {
                done.links += 1;
                if target.is_empty() || target.contains(&0) {
                    return Err(refused("it is a link to nothing"));
                }
                if !leads_inside(&above(&parts), &target) {
                    return Err(refused("it is a link that leads out of the sandbox"));
                }
                self.symlink(&target, &parts).and_then(|()| self.set_times(&parts, &times))
            } else if kind.is_hard_link() {
                done.files += 1;
                let first = self::parts(&target, stream.longest_path())
                    .map_err(|_| refused("it is a second name of something outside"))?;
                self.link(&first, &parts)
            } else {
                done.files += 1;
                let place = self.place(&parts);
                place.and_then(|(dir, name)| write(&dir, name, stream, &content, mode, &times))
            };
            placed.map_err(|failure| Failure::Is(failure.at(&path)))?;
        }
    }

    fn symlink(&self, target: &[u8], parts: &[OsString]) -> Result<(), Failure> {
        let (dir, name) = self.place(parts)?;
        Ok(rustix::fs::symlinkat(OsStr::from_bytes(target), &dir, name)?)
    }

    /// Of a directory or a symbolic link that is there.
    fn set_times(&self, parts: &[OsString], times: &Timestamps) -> Result<(), Failure> {
        // The root of an archive is not ours to date: it is a directory that was there before.
        let Some((name, above)) = parts.split_last() else { return Ok(()) };
        let dir = self.dir(above, 0o755)?;
        Ok(rustix::fs::utimensat(&dir, name, times, AtFlags::SYMLINK_NOFOLLOW)?)
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
                // What the server's umask took away is given back.
                Ok(()) => rustix::fs::chmodat(&dir, part, Mode::from_raw_mode(mode), AtFlags::empty())?,
                Err(Errno::EXIST) => {}
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
        let begun = Instant::now();
        let go_on = || !self.stop.is_cancelled() || begun.elapsed() < LAST_REMOVAL;
        if let Err(failure) = remove_below_while(&self.above, OsStr::new(&self.name), &go_on) {
            tracing::warn!(?failure, name = self.name, "what was unpacked can't be removed; the next start will try");
        }
    }
}

fn write(
    dir: &OwnedFd,
    name: &OsStr,
    stream: &mut Stream,
    content: &Content,
    mode: u32,
    times: &Timestamps,
) -> Result<(), Failure> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(dir, Path::new(name), flags, Mode::from_raw_mode(0o600))?);
    content.write(stream, &file)?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    Ok(rustix::fs::futimens(&file, times)?)
}

/// When an entry was last changed, as its header says.
fn times(header: &Header) -> Timestamps {
    let seconds = header.mtime().ok().and_then(|mtime| i64::try_from(mtime).ok()).unwrap_or(0);
    let moment = Timespec { tv_sec: seconds, tv_nsec: 0 };
    Timestamps { last_access: moment, last_modification: moment }
}
