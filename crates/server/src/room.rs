//! Room on the disk of the data directory: how much there is, and a little of it that is kept for the server itself.
//!
//! The reserve is a file, `DATA/reserve`. On a disk that is full it is given up, so that a server can still be started over
//! it and things can still be removed: both have rows to write. It is made again when there is room for more than that.

use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// With less than this nothing should be begun: output waits in its pipes, and rows can't be written.
pub const ENOUGH: u64 = 16 << 20;

/// What is kept: the database's log with the rows of thousands of leases and sessions.
const RESERVE: u64 = 4 << 20;

/// What whoever runs this may still write to the disk of a directory.
pub fn left(dir: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(dir)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Whether there is so little that files which are needed to start should not be removed now, to be made again then.
pub fn is_scarce(dir: &Path) -> bool {
    left(dir).is_ok_and(|left| left < ENOUGH + RESERVE)
}

#[derive(Debug, Clone)]
pub struct Reserve {
    data: PathBuf,
}

impl Reserve {
    pub fn of(data: &Path) -> Self {
        Self { data: data.to_owned() }
    }

    fn path(&self) -> PathBuf {
        self.data.join("reserve")
    }

    /// Makes it where there is none and more room than it takes.
    pub fn keep(&self) -> io::Result<()> {
        let path = self.path();
        let is_there = std::fs::symlink_metadata(&path).is_ok_and(|meta| meta.len() >= RESERVE);
        if is_there || left(&self.data)? < ENOUGH + RESERVE {
            return Ok(());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?);
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, RESERVE) {
            Err(rustix::io::Errno::OPNOTSUPP) => (0..RESERVE >> 12).try_for_each(|_| file.write_all(&[b'x'; 1 << 12])),
            other => other.map_err(io::Error::from),
        }
    }

    /// Gives it up; whether there was any.
    pub fn give_up(&self) -> bool {
        std::fs::remove_file(self.path()).is_ok()
    }

    /// Gives it up if without it there is less room than it takes; says so.
    pub fn give_up_if_full(&self) {
        if left(&self.data).is_ok_and(|left| left < RESERVE) && self.give_up() {
            tracing::warn!(
                data = %self.data.display(),
                "the disk of the data directory is full; what was kept in reserve is given up: make room"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_takes_room_and_gives_it_back_once() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = Reserve::of(dir.path());
        if left(dir.path()).unwrap() < 2 * ENOUGH {
            println!("SKIPPED: the disk of this machine is full");
            return;
        }
        for _ in 0..2 {
            reserve.keep().unwrap();
            let kept = std::fs::metadata(dir.path().join("reserve")).unwrap();
            assert_eq!(kept.len(), RESERVE);
            assert!(std::os::unix::fs::MetadataExt::blocks(&kept) * 512 >= RESERVE);
        }
        // With room on the disk it stays.
        reserve.give_up_if_full();
        assert!(dir.path().join("reserve").exists());
        assert!(reserve.give_up());
        assert!(!reserve.give_up());
    }
}
