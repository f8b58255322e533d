//! Named pipes, and moving what is in them to disk.

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::SpliceFlags;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Makes a FIFO that must not exist yet; only we may use it.
pub fn make(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?)
}

/// The reading end; never waits for a writer.
pub fn open_reader(path: &Path) -> io::Result<OwnedFd> {
    open(path, OFlags::RDONLY)
}

/// Both ends in one: keeps the FIFO from ever seeing end-of-file, and never waits for the other side.
pub fn open_both(path: &Path) -> io::Result<OwnedFd> {
    open(path, OFlags::RDWR)
}

/// The writing end; fails with `NXIO` when nobody reads.
pub fn open_writer(path: &Path) -> io::Result<OwnedFd> {
    open(path, OFlags::WRONLY)
}

fn open(path: &Path, access: OFlags) -> io::Result<OwnedFd> {
    let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// The reading end as a child wants it for its standard input: blocking.
pub fn open_input(path: &Path) -> io::Result<OwnedFd> {
    // Opened without waiting for a writer first, then set to block.
    let fd = open_reader(path)?;
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    rustix::fs::fcntl_setfl(&fd, flags - OFlags::NONBLOCK)?;
    Ok(fd)
}

/// Bytes that lie in a pipe.
pub fn pending(fd: impl AsFd) -> io::Result<u64> {
    Ok(rustix::io::ioctl_fionread(fd)?)
}

/// Gives a pipe more room, if the system allows it; it works without.
pub fn widen(fd: impl AsFd, bytes: usize) {
    let _ = rustix::pipe::fcntl_setpipe_size(fd, bytes);
}

/// What is the matter with a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    HasBytes,
    /// Nothing there now, but somebody can still write.
    Empty,
    /// Nothing there, and nobody has it open for writing.
    Closed,
}

/// Looks at pipes without taking anything out. `poll` can't: it says "hung up" only of a FIFO that had a writer since it
/// was opened.
#[derive(Debug)]
pub struct Probe {
    into: OwnedFd,
    out: OwnedFd,
}

impl Probe {
    pub fn new() -> io::Result<Self> {
        let (out, into) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK)?;
        Ok(Self { into, out })
    }

    pub fn look(&self, pipe: impl AsFd) -> io::Result<Condition> {
        loop {
            // Copies one byte, at most, into a pipe of our own; the original stays where it is.
            return match rustix::pipe::tee(&pipe, &self.into, 1, SpliceFlags::NONBLOCK) {
                Ok(0) => Ok(Condition::Closed),
                Ok(_) => {
                    rustix::io::read(&self.out, &mut [0_u8; 1])?;
                    Ok(Condition::HasBytes)
                }
                Err(Errno::AGAIN) => Ok(Condition::Empty),
                Err(Errno::INTR) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }
}

/// A pipe of our own that takes in others, as wide as the system allows up to `bytes`: reading end, writing end.
pub fn basin(bytes: usize) -> io::Result<(OwnedFd, OwnedFd)> {
    let (out, into) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK)?;
    widen(&out, bytes);
    Ok((out, into))
}

/// Moves pages from pipe to pipe; nothing is copied.
pub fn pour(pipe: impl AsFd, into: impl AsFd, most: u64) -> io::Result<Moved> {
    moved(|| rustix::pipe::splice(&pipe, None, &into, None, to_usize(most), SPLICE))
}

/// Moves what lies in a file behind its position into a pipe, and the position with it: who shares the open file sees how
/// far it got, whatever becomes of us in between.
pub fn push(file: impl AsFd, pipe: impl AsFd, most: u64) -> io::Result<Moved> {
    moved(|| rustix::pipe::splice(&file, None, &pipe, None, to_usize(most), SPLICE))
}

/// A file that has no name and lies in memory, and goes with the last who has it open.
pub fn unnamed(name: &str) -> io::Result<OwnedFd> {
    Ok(rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?)
}

/// Gives back the memory of the beginning of such a file; its length and position stay.
pub fn forget_beginning(file: impl AsFd, bytes: u64) {
    const PAGE: u64 = 4096;
    let whole = bytes / PAGE * PAGE;
    if whole > 0 {
        let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(file, flags, 0, whole);
    }
}

const SPLICE: SpliceFlags = SpliceFlags::NONBLOCK.union(SpliceFlags::MOVE);

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[derive(Debug)]
pub enum Moved {
    Bytes(u64),
    /// Nothing there now, but somebody can still write.
    Empty,
    /// Nothing there, and nobody has it open for writing.
    Closed,
    /// The disk is full; what is in the pipe stays there, and its writer waits.
    NoSpace,
}

/// Moves up to `most` bytes from a pipe to a place in a file, inside the kernel: a kill at any instant finds each byte
/// in the one or in the other, never in our memory.
pub fn splice(pipe: impl AsFd, file: &File, offset: u64, most: u64) -> io::Result<Moved> {
    let mut offset = offset;
    moved(|| rustix::pipe::splice(&pipe, None, file, Some(&mut offset), to_usize(most), SPLICE))
}

fn moved(mut splice: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<Moved> {
    loop {
        return match splice() {
            Ok(0) => Ok(Moved::Closed),
            Ok(bytes) => Ok(Moved::Bytes(bytes as u64)),
            Err(Errno::AGAIN) => Ok(Moved::Empty),
            Err(Errno::INTR) => continue,
            Err(Errno::NOSPC | Errno::DQUOT) => Ok(Moved::NoSpace),
            Err(error) => Err(error.into()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_pipe_tells_whether_more_can_come() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        make(&path).unwrap();
        let reader = open_reader(&path).unwrap();
        let probe = Probe::new().unwrap();
        assert_eq!(probe.look(&reader).unwrap(), Condition::Closed);
        let file = File::options().read(true).write(true).create_new(true).open(dir.path().join("out")).unwrap();
        assert!(matches!(splice(&reader, &file, 0, 10).unwrap(), Moved::Closed));
        let mut writer = File::options().write(true).open(&path).unwrap();
        assert!(matches!(splice(&reader, &file, 0, 10).unwrap(), Moved::Empty));
        assert_eq!(probe.look(&reader).unwrap(), Condition::Empty);
        writer.write_all(b"hello").unwrap();
        assert_eq!(probe.look(&reader).unwrap(), Condition::HasBytes);
        assert_eq!(pending(&reader).unwrap(), 5);
        assert!(matches!(splice(&reader, &file, 0, 2).unwrap(), Moved::Bytes(2)));
        assert!(matches!(splice(&reader, &file, 2, 10).unwrap(), Moved::Bytes(3)));
        drop(writer);
        assert!(matches!(splice(&reader, &file, 5, 10).unwrap(), Moved::Closed));
        let mut text = String::new();
        File::open(dir.path().join("out")).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }

    #[test]
    fn a_fifo_is_made_once_and_belongs_to_us_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        make(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(make(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}
