//! What there is to a file besides its bytes.

use rustix::fs::{AtFlags, CWD, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// The kernel gives no more names, or a longer value, than this.
const MOST: usize = 1 << 16;

/// Owner, mode and times, in this order: giving a file away takes bits of its mode.
pub(super) fn keep(target: &File, stat: &Stat) -> io::Result<()> {
    let now = rustix::fs::fstat(target)?;
    if (now.st_uid, now.st_gid) != (stat.st_uid, stat.st_gid) {
        match rustix::fs::fchown(target, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid))) {
            // Only root gives files away; what nobody else could have made here is ours.
            Ok(()) | Err(Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    rustix::fs::fchmod(target, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    Ok(rustix::fs::futimens(target, &times(stat))?)
}

pub(super) fn keep_of_symlink(path: &Path, stat: &Stat) -> io::Result<()> {
    let owner = (Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)));
    match rustix::fs::chownat(CWD, path, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(()) | Err(Errno::PERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok(rustix::fs::utimensat(CWD, path, &times(stat), AtFlags::SYMLINK_NOFOLLOW)?)
}

#[allow(clippy::cast_possible_wrap, clippy::unnecessary_cast, reason = "the kernel's own types differ in sign")]
fn times(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: stat.st_atime as i64, tv_nsec: stat.st_atime_nsec as i64 },
        last_modification: Timespec { tv_sec: stat.st_mtime as i64, tv_nsec: stat.st_mtime_nsec as i64 },
    }
}

/// Extended attributes, access lists among them. What the target's file system has no place for, or only root may set,
/// is left.
pub(super) fn copy_attributes(source: impl AsFd, target: &File) -> io::Result<()> {
    let mut names = vec![0; MOST];
    let length = match rustix::fs::flistxattr(&source, &mut names[..]) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(()),
        length => length?,
    };
    let mut value = vec![0; MOST];
    for name in names.get(..length).unwrap_or_default().split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let length = match rustix::fs::fgetxattr(&source, name, &mut value[..]) {
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => continue,
            length => length?,
        };
        let value = value.get(..length).unwrap_or_default();
        match rustix::fs::fsetxattr(target, name, value, XattrFlags::empty()) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS | Errno::INVAL) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
