//! The bytes of a file: shared if they can be, else copied, holes as holes.

use super::Copier;
use crate::extents::next_data;
use rustix::fs::Stat;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

/// What is copied in one call, and between two looks at whether to go on.
const AT_ONCE: u64 = 8 << 20;

pub(super) enum DataError {
    Io(io::Error),
    Stopped,
}

impl<E: Into<io::Error>> From<E> for DataError {
    fn from(error: E) -> Self {
        Self::Io(error.into())
    }
}

pub(super) fn copy(copier: &Copier, source: &File, target: &File, stat: &Stat) -> Result<(), DataError> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if size == 0 {
        return Ok(());
    }
    if copier.can_clone.load(Ordering::Relaxed) {
        match rustix::fs::ioctl_ficlone(target, source) {
            Ok(()) => {
                copier.count(0, size);
                return Ok(());
            }
            // Not this file system, or not between these two.
            Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::PERM) => {
                copier.can_clone.store(false, Ordering::Relaxed);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    let mut place = 0;
    while let Some((from, to)) = next_data(source, place, size)? {
        place = copy_range(copier, source, target, from, to)?;
        if place < to {
            // It has become shorter.
            break;
        }
    }
    // A hole at its end is part of it; what was cut off meanwhile is not.
    let now = u64::try_from(rustix::fs::fstat(source)?.st_size).unwrap_or(0);
    target.set_len(size.min(now).max(place.min(size)))?;
    Ok(())
}

/// Copies a stretch; how far it came, which is less if the file has become shorter.
fn copy_range(copier: &Copier, source: &File, target: &File, from: u64, to: u64) -> Result<u64, DataError> {
    let mut place = from;
    while place < to {
        if copier.go_on().is_err() {
            return Err(DataError::Stopped);
        }
        let wanted = usize::try_from((to - place).min(AT_ONCE)).unwrap_or(usize::MAX);
        let done = if copier.can_range.load(Ordering::Relaxed) {
            let (mut read_at, mut write_at) = (place, place);
            match rustix::fs::copy_file_range(source, Some(&mut read_at), target, Some(&mut write_at), wanted) {
                Ok(done) => done,
                Err(Errno::INTR) => continue,
                Err(Errno::XDEV | Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP | Errno::BADF) => {
                    copier.can_range.store(false, Ordering::Relaxed);
                    continue;
                }
                Err(errno) => return Err(errno.into()),
            }
        } else {
            by_hand(source, target, place, wanted)?
        };
        if done == 0 {
            return Ok(place);
        }
        place += done as u64;
        copier.count(0, done as u64);
    }
    Ok(place)
}

fn by_hand(source: &File, target: &File, place: u64, wanted: usize) -> io::Result<usize> {
    let mut bytes = vec![0; wanted.min(1 << 18)];
    let read = loop {
        match source.read_at(&mut bytes, place) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read?,
        }
    };
    target.write_all_at(bytes.get(..read).unwrap_or_default(), place)?;
    Ok(read)
}
