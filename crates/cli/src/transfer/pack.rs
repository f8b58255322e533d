//! A directory as a stream of an archive.

use super::{PIECE, Progress};
use bytes::Bytes;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header, HeaderMode};
use tokio::sync::mpsc;

/// Sends what is in `dir` as an archive, with names relative to it. Gives what couldn't be taken along: sockets, devices.
pub(super) fn pack(
    dir: &Path,
    send: &mpsc::Sender<io::Result<Bytes>>,
    progress: &Progress,
) -> io::Result<Vec<PathBuf>> {
    let out = Pieces { send, buffer: Vec::with_capacity(PIECE), progress };
    let result = whole(dir, out);
    if let Err(error) = &result {
        // The body must break off, or the server would take the part for the whole.
        let _ = send.blocking_send(Err(io::Error::new(error.kind(), error.to_string())));
    }
    result
}

fn whole(dir: &Path, out: impl Write) -> io::Result<Vec<PathBuf>> {
    let mut archive = Builder::new(out);
    let mut left_out = Vec::new();
    // Directories still to be read, by their names in the archive.
    let mut waiting = vec![PathBuf::new()];
    while let Some(inside) = waiting.pop() {
        let mut entries: Vec<_> = fs::read_dir(dir.join(&inside))?.collect::<io::Result<_>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = inside.join(entry.file_name());
            let path = entry.path();
            let meta = fs::symlink_metadata(&path)?;
            if meta.is_dir() {
                append(&mut archive, header(&meta, EntryType::Directory), &name, None, io::empty())?;
                waiting.push(name);
            } else if meta.is_symlink() {
                let target = fs::read_link(&path)?;
                append(&mut archive, header(&meta, EntryType::Symlink), &name, Some(&target), io::empty())?;
            } else if meta.is_file() {
                let file = File::open(&path)?;
                let meta = file.metadata()?;
                let exact = Exact { file, left: meta.len() };
                append(&mut archive, header(&meta, EntryType::Regular), &name, None, exact)?;
            } else {
                left_out.push(path);
            }
        }
    }
    archive.into_inner()?.flush()?;
    Ok(left_out)
}

/// Adds an entry. Names are bytes to us: the library's own way to write long ones takes text only.
fn append(
    archive: &mut Builder<impl Write>,
    mut header: Header,
    name: &Path,
    link: Option<&Path>,
    data: impl Read,
) -> io::Result<()> {
    let name = name.as_os_str().as_bytes();
    let link = link.map(|link| link.as_os_str().as_bytes()).unwrap_or_default();
    long(archive, EntryType::GNULongName, name, header.as_old().name.len())?;
    long(archive, EntryType::GNULongLink, link, header.as_old().linkname.len())?;
    let old = header.as_old_mut();
    fill(&mut old.name, name);
    fill(&mut old.linkname, link);
    header.set_cksum();
    archive.append(&header, data)
}

/// A name that doesn't fit its field goes before the entry, as one of its own.
fn long(archive: &mut Builder<impl Write>, kind: EntryType, name: &[u8], room: usize) -> io::Result<()> {
    if name.len() <= room {
        return Ok(());
    }
    let mut header = Header::new_gnu();
    fill(&mut header.as_old_mut().name, b"././@LongLink");
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(name.len() as u64 + 1);
    header.set_cksum();
    archive.append(&header, name.chain(&b"\0"[..]))
}

fn fill(field: &mut [u8], bytes: &[u8]) {
    field.fill(0);
    for (to, from) in field.iter_mut().zip(bytes) {
        *to = *from;
    }
}

fn header(meta: &Metadata, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_metadata_in_mode(meta, HeaderMode::Complete);
    header.set_entry_type(kind);
    if kind != EntryType::Regular {
        header.set_size(0);
    }
    // Who owns it here says nothing there.
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// As many bytes as the header promised: one that grows meanwhile is cut, one that shrinks is an error.
struct Exact {
    file: File,
    left: u64,
}

impl Read for Exact {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Ok(0);
        }
        let read = (&self.file).take(self.left).read(buffer)?;
        if read == 0 {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "a file became shorter while it was read"));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

struct Pieces<'a> {
    send: &'a mpsc::Sender<io::Result<Bytes>>,
    buffer: Vec<u8>,
    progress: &'a Progress,
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = Bytes::from(std::mem::take(&mut self.buffer));
        self.progress.add(piece.len());
        self.send.blocking_send(Ok(piece)).map_err(|_| ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
pub(super) fn packed(dir: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    whole(dir, &mut bytes).unwrap();
    bytes
}
