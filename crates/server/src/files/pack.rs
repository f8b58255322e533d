//! A directory as a tar stream. It is made while it is read, so it is as large as it likes; what fails on the way breaks
//! the stream off, before the blocks that say that an archive is complete.

use super::Files;
use super::entry::{Kind, kind, size};
use super::failure::Failure;
use super::ground::{Ground, Last, Way};
use super::spot::{Id, id, is_dir};
use super::traverse::{Denied, Next, Traverse};
use super::unpack::Unpacked;
use crate::error::Error;
use bytes::Bytes;
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tar::{Builder, EntryType, Header};
use tokio::sync::mpsc;

/// As much as is sent at once.
const PIECE: usize = 64 * 1024;
/// How many pieces wait for a slow reader; then the disk waits, too.
const AHEAD: usize = 4;

/// The pieces of an archive. Dropped, it is made no further.
#[derive(Debug)]
pub struct Packed {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
}

impl Packed {
    /// Absent when all were given.
    pub async fn next(&mut self) -> Option<io::Result<Bytes>> {
        self.pieces.recv().await
    }
}

impl Files {
    /// Files, directories and links below a directory, or one file; pipes, sockets and devices have no bytes to give.
    pub async fn pack(&self, path: impl AsRef<[u8]>) -> Result<Packed, Error> {
        let (base, private) = self
            .at(path.as_ref(), |ground, path| {
                // Looked at here, where a refusal can still be said.
                Ok((Base::open(ground, path)?, ground.private_ids()))
            })
            .await?;
        let (sender, pieces) = mpsc::channel(AHEAD);
        let pack = move || {
            let mut pipe = Pipe { sender, waiting: Vec::with_capacity(PIECE) };
            if let Err(failure) = base.pack(&mut pipe, private) {
                let error = match failure {
                    Failure::Os(error) => error,
                    failure @ (Failure::Is(_) | Failure::Path(_)) => io::Error::other(failure.at(b"").to_string()),
                };
                let _ = pipe.sender.blocking_send(Err(error));
            }
        };
        self.tasks.spawn_blocking(pack);
        Ok(Packed { pieces })
    }
}

enum Base {
    Nothing,
    Dir(OwnedFd),
    File(Vec<u8>, std::fs::File, Stat),
}

impl Base {
    fn open(ground: &Ground, path: &[u8]) -> Result<Self, Failure> {
        let spot = match ground.find(path, Last::Follow, Way::MustBe) {
            Err(failure) if failure.is(rustix::io::Errno::NOENT) && ground.is_root(path) => return Ok(Self::Nothing),
            found => found?,
        };
        match spot.stat()? {
            None => Err(rustix::io::Errno::NOENT.into()),
            Some(stat) if is_dir(&stat) => Ok(Self::Dir(spot.open_dir()?)),
            Some(_) => {
                let (file, stat) = spot.open_file()?;
                Ok(Self::File(spot.entry()?.as_bytes().to_vec(), file, stat))
            }
        }
    }

    fn pack(self, pipe: &mut Pipe, private: Vec<Id>) -> Result<(), Failure> {
        let mut builder = Builder::new(&mut *pipe);
        match self {
            Self::Nothing => {}
            Self::Dir(dir) => drop(tree(&mut builder, dir, private, append)?),
            Self::File(name, file, stat) => append(&mut builder, &name, file, &stat)?,
        }
        builder.into_inner()?;
        Ok(pipe.flush()?)
    }
}

/// All below a directory, in one order: the same tree is the same bytes.
fn tree<W: Write>(
    builder: &mut Builder<W>,
    dir: OwnedFd,
    private: Vec<Id>,
    append: impl Fn(&mut Builder<W>, &[u8], std::fs::File, &Stat) -> io::Result<()>,
) -> Result<Unpacked, Failure> {
    let mut packed = Unpacked::default();
    let all = Traverse { deadline: None, denied: Denied::Fail, ..Traverse::new(usize::MAX, None, private) };
    all.run(dir, |visit| {
        match kind(visit.stat) {
            Kind::Dir => {
                packed.dirs += 1;
                let mut header = header(visit.stat, EntryType::Directory);
                let path = [visit.path, b"/"].concat();
                builder.append_data(&mut header, Path::new(OsStr::from_bytes(&path)), io::empty())?;
            }
            Kind::Symlink => {
                let Some(target) = visit.target() else { return Ok(Next::On) };
                packed.links += 1;
                let mut header = header(visit.stat, EntryType::Symlink);
                let path = Path::new(OsStr::from_bytes(visit.path));
                builder.append_link(&mut header, path, Path::new(OsStr::from_bytes(&target)))?;
            }
            Kind::File => match visit.spot()?.open_file() {
                // Gone since it was seen.
                Err(failure) if failure.is(rustix::io::Errno::NOENT) => {}
                opened => {
                    let (file, stat) = opened?;
                    packed.files += 1;
                    packed.bytes += size(&stat);
                    append(builder, visit.path, file, &stat)?;
                }
            },
            Kind::Other => {}
        }
        Ok(Next::On)
    })?;
    Ok(packed)
}

/// The tree at a directory of the server's own, as an archive; without what is called so at its top.
pub(crate) fn pack_dir(dir: &Path, without: &[&str], into: impl Write) -> Result<Unpacked, Error> {
    let pack = || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let dir = rustix::fs::open(dir, flags, Mode::empty())?;
        let mut left_out = Vec::new();
        for name in without {
            match rustix::fs::statat(&dir, *name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => left_out.push(id(&stat)),
                Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut builder = Builder::new(into);
        let packed = tree(&mut builder, dir, left_out, append_whole)?;
        builder.into_inner()?.flush()?;
        Ok(packed)
    };
    pack().map_err(|failure: Failure| match failure {
        // Somebody writes while we read.
        Failure::Os(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ResourceBusy) => {
            Error::Conflict(format!("{error}; do it when nothing writes there"))
        }
        failure @ (Failure::Os(_) | Failure::Is(_) | Failure::Path(_)) => failure.at(dir.as_os_str().as_bytes()),
    })
}

fn append<W: Write>(builder: &mut Builder<W>, path: &[u8], file: std::fs::File, stat: &Stat) -> io::Result<()> {
    let mut header = header(stat, EntryType::Regular);
    header.set_size(size(stat));
    builder.append_data(&mut header, Path::new(OsStr::from_bytes(path)), Exactly::new(file, size(stat)))
}

/// The same, with bytes that the file had at one moment. If it may have changed while it was read it is read again: what
/// is the same twice was so between the two.
fn append_whole<W: Write>(builder: &mut Builder<W>, path: &[u8], file: std::fs::File, stat: &Stat) -> io::Result<()> {
    let mut header = header(stat, EntryType::Regular);
    header.set_size(size(stat));
    let began = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let mut first = Summed { inner: Exactly::new(file.try_clone()?, size(stat)), sum: Sha256::new() };
    builder.append_data(&mut header, Path::new(OsStr::from_bytes(path)), &mut first)?;
    let after = rustix::fs::fstat(&file)?;
    let written = |stat: &Stat| (stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec);
    // A file system's clock goes in steps: a change right after another may leave no trace.
    let is_old = stat.st_ctime < began.tv_sec - 1;
    if is_old && written(stat) == written(&after) {
        return Ok(());
    }
    (&file).rewind()?;
    let mut second = Summed { inner: Exactly::new(file, size(stat)), sum: Sha256::new() };
    io::copy(&mut second, &mut io::sink())?;
    if first.sum.finalize() != second.sum.finalize() {
        let message = format!("`{}` was changed while it was packed", String::from_utf8_lossy(path));
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
    }
    Ok(())
}

/// Sums up what passes.
struct Summed<T> {
    inner: T,
    sum: Sha256,
}

impl<T: Read> Read for Summed<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.sum.update(buffer.get(..read).unwrap_or_default());
        Ok(read)
    }
}

fn header(stat: &Stat, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(stat.st_mode & 0o7777);
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header
}

/// As many bytes as the header says: no more if the file grows, and an error if it shrinks.
pub(crate) struct Exactly {
    file: std::fs::File,
    left: u64,
}

impl Exactly {
    pub(crate) fn new(file: std::fs::File, length: u64) -> Self {
        Self { file, left: length }
    }
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = (&mut self.file).take(self.left).read(buffer)?;
        if read == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file was cut short while it was packed"));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

struct Pipe {
    sender: mpsc::Sender<io::Result<Bytes>>,
    waiting: Vec<u8>,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.waiting, Vec::with_capacity(PIECE));
        self.sender.blocking_send(Ok(piece.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
