//! A directory as a tar stream. It is made while it is read, so it is as large as it likes; what fails on the way breaks
//! the stream off, before the blocks that say that an archive is complete.

mod data;
mod tar_writer;

use super::Files;
use super::entry::{Kind, kind, size};
use super::failure::Failure;
use super::ground::{Ground, Last, Way};
use super::spot::{Id, id, is_dir};
use super::traverse::{Denied, Next, Traverse};
use super::unpack::Unpacked;
use crate::error::Error;
use crate::stoppable;
use bytes::Bytes;
use data::{DataReader, Extents};
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tar_writer::TarWriter;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

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
    File(Vec<u8>, File, Stat),
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
        let mut writer = TarWriter::new(&mut *pipe);
        match self {
            Self::Nothing => {}
            Self::Dir(dir) => drop(add_tree(&mut writer, dir, private, "", add_present)?),
            Self::File(name, file, stat) => add_present(&mut writer, &name, &file, &stat)?,
        }
        writer.finish()?;
        Ok(())
    }
}

/// All below a directory, in one order: the same tree is the same bytes. Left out are what is private, and what at its top
/// has a name that begins so.
fn add_tree<W: Write>(
    writer: &mut TarWriter<W>,
    dir: OwnedFd,
    private: Vec<Id>,
    passing: &str,
    add_file: impl Fn(&mut TarWriter<W>, &[u8], &File, &Stat) -> io::Result<()>,
) -> Result<Unpacked, Failure> {
    let mut packed = Unpacked::default();
    // The path under which a file that has several names is in the archive.
    let mut first_names: HashMap<Id, Vec<u8>> = HashMap::new();
    let all = Traverse { deadline: None, denied: Denied::Fail, ..Traverse::new(usize::MAX, None, private) };
    let all = Traverse { passing: passing.as_bytes().to_vec(), ..all };
    all.run(dir, |visit| {
        match kind(visit.stat) {
            Kind::Dir => {
                packed.dirs += 1;
                writer.add_dir(visit.path, visit.stat)?;
            }
            Kind::Symlink => {
                let Some(target) = visit.target() else { return Ok(Next::On) };
                packed.links += 1;
                writer.add_symlink(visit.path, &target, visit.stat)?;
            }
            Kind::File => match visit.spot()?.open_file() {
                // Gone since it was seen.
                Err(failure) if failure.is(rustix::io::Errno::NOENT) => {}
                opened => {
                    let (file, stat) = opened?;
                    packed.files += 1;
                    if let Some(first) = first_names.get(&id(&stat)) {
                        writer.add_hard_link(visit.path, first, &stat)?;
                        return Ok(Next::On);
                    }
                    packed.bytes += size(&stat);
                    add_file(writer, visit.path, &file, &stat)?;
                    if stat.st_nlink > 1 {
                        first_names.insert(id(&stat), visit.path.to_vec());
                    }
                }
            },
            Kind::Other => {}
        }
        Ok(Next::On)
    })?;
    Ok(packed)
}

/// The tree at a directory of the server's own, as an archive from which it can be made again: holes are holes in it.
/// Without what is called so at its top, nor what is just being unpacked there.
pub(crate) fn pack_dir(
    dir: &Path,
    without: &[&str],
    into: impl Write,
    stop: &CancellationToken,
) -> Result<Unpacked, Error> {
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
        let mut writer = TarWriter::new(into);
        let add_file = |writer: &mut TarWriter<_>, path: &[u8], file: &File, stat: &Stat| {
            stoppable::check(stop)?;
            add_at_one_moment(writer, path, file, stat, stop)
        };
        let packed = add_tree(&mut writer, dir, left_out, super::unpack::STAGE_PREFIX, add_file)?;
        writer.finish()?;
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

/// A file as it is while it is read, with its holes as zeros: not everybody who reads archives knows holes.
fn add_present<W: Write>(writer: &mut TarWriter<W>, path: &[u8], file: &File, stat: &Stat) -> io::Result<()> {
    writer.add_file(path, stat, size(stat), &mut Exactly::new(file.try_clone()?, size(stat)))
}

/// A file with bytes that it had at one moment, and its holes. If it may have changed while it was read it is read again:
/// what is the same twice was so between the two.
fn add_at_one_moment<W: Write>(
    writer: &mut TarWriter<W>,
    path: &[u8],
    file: &File,
    stat: &Stat,
    stop: &CancellationToken,
) -> io::Result<()> {
    let began = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let extents = Extents::find(file, size(stat))?;
    let mut first = Summed { inner: DataReader::new(file, &extents, stop), sum: Sha256::new() };
    if extents.has_holes() {
        writer.add_sparse_file(path, stat, &extents, &mut first)?;
    } else {
        writer.add_file(path, stat, size(stat), &mut first)?;
    }
    let after = rustix::fs::fstat(file)?;
    let written = |stat: &Stat| (stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec);
    // A file system's clock goes in steps: a change right after another may leave no trace.
    let is_old = stat.st_ctime < began.tv_sec - 1;
    if is_old && written(stat) == written(&after) {
        return Ok(());
    }
    let mut second = Summed { inner: DataReader::new(file, &extents, stop), sum: Sha256::new() };
    io::copy(&mut second, &mut io::sink())?;
    let is_same =
        first.sum.finalize() == second.sum.finalize() && Extents::find(file, size(stat))?.lie_within(&extents);
    if !is_same {
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

/// As many bytes as the header says: no more if the file grows, and an error if it shrinks.
pub(crate) struct Exactly {
    file: File,
    left: u64,
}

impl Exactly {
    pub(crate) fn new(file: File, length: u64) -> Self {
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
