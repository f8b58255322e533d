//! Writes the entries of a tar archive, as GNU tar does: names and link targets byte for byte and however long, files of
//! any size, holes as holes (`S`), the other names of a file as hard links.

use super::data::Extents;
use rustix::fs::Stat;
use std::io::{self, Read, Write};
use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

const BLOCK: usize = 512;
/// What has no room in a header stands in front of it, in an entry of this name.
const LONG: &[u8] = b"././@LongLink";
/// As much as is copied at once.
const PIECE: usize = 128 * 1024;

pub(super) struct TarWriter<W> {
    out: W,
}

impl<W: Write> TarWriter<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out }
    }

    pub(super) fn add_dir(&mut self, path: &[u8], stat: &Stat) -> io::Result<()> {
        self.add_header(header(stat, EntryType::Directory), &[path, b"/"].concat(), b"")
    }

    pub(super) fn add_symlink(&mut self, path: &[u8], target: &[u8], stat: &Stat) -> io::Result<()> {
        self.add_header(header(stat, EntryType::Symlink), path, target)
    }

    /// Another name of a file that is in the archive already.
    pub(super) fn add_hard_link(&mut self, path: &[u8], first: &[u8], stat: &Stat) -> io::Result<()> {
        self.add_header(header(stat, EntryType::Link), path, first)
    }

    pub(super) fn add_file(&mut self, path: &[u8], stat: &Stat, size: u64, data: &mut impl Read) -> io::Result<()> {
        let mut header = header(stat, EntryType::Regular);
        header.set_size(size);
        self.add_header(header, path, b"")?;
        self.add_data(size, data)
    }

    /// A file of which only the data is written, and where it lies.
    pub(super) fn add_sparse_file(
        &mut self,
        path: &[u8],
        stat: &Stat,
        extents: &Extents,
        data: &mut impl Read,
    ) -> io::Result<()> {
        let size = extents.data_size();
        let mut header = header(stat, EntryType::GNUSparse);
        header.set_size(size);
        let mut stretches = extents.data.clone();
        // A hole at the end is there because nothing is said to begin where the file ends.
        if stretches.last().is_none_or(|last| last.1 < extents.size) {
            stretches.push((extents.size, extents.size));
        }
        let mut stretches = stretches.as_slice();
        if let Some(header) = header.as_gnu_mut() {
            write_number(&mut header.realsize, extents.size);
            stretches = write_stretches(&mut header.sparse, stretches);
            header.isextended = [u8::from(!stretches.is_empty())];
        }
        self.add_header(header, path, b"")?;
        while !stretches.is_empty() {
            let mut more = GnuExtSparseHeader::new();
            stretches = write_stretches(&mut more.sparse, stretches);
            more.isextended = [u8::from(!stretches.is_empty())];
            self.out.write_all(more.as_bytes())?;
        }
        self.add_data(size, data)
    }

    /// Writes the blocks that say that the archive is complete.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn add_header(&mut self, mut header: Header, path: &[u8], link: &[u8]) -> io::Result<()> {
        for (text, kind) in [(link, EntryType::GNULongLink), (path, EntryType::GNULongName)] {
            if text.len() >= header.as_old().name.len() {
                let mut note = Header::new_gnu();
                note.set_entry_type(kind);
                note.set_mode(0o644);
                note.set_uid(0);
                note.set_gid(0);
                note.set_mtime(0);
                write_text(&mut note.as_old_mut().name, LONG);
                let text = [text, b"\0"].concat();
                note.set_size(text.len() as u64);
                note.set_cksum();
                self.out.write_all(note.as_bytes())?;
                self.add_data(text.len() as u64, &mut text.as_slice())?;
            }
        }
        write_text(&mut header.as_old_mut().name, path);
        write_text(&mut header.as_old_mut().linkname, link);
        header.set_cksum();
        self.out.write_all(header.as_bytes())
    }

    /// Bytes, filled up to a whole block.
    fn add_data(&mut self, size: u64, data: &mut impl Read) -> io::Result<()> {
        let mut left = size;
        let mut buffer = vec![0; PIECE.min(usize::try_from(size).unwrap_or(PIECE)).max(1)];
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let read = data.read(buffer.get_mut(..wanted).unwrap_or_default())?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.out.write_all(buffer.get(..read).unwrap_or_default())?;
            left -= read as u64;
        }
        let padding = usize::try_from(size.next_multiple_of(BLOCK as u64) - size).unwrap_or(0);
        self.out.write_all([0; BLOCK].get(..padding).unwrap_or_default())
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

/// Puts as much of a text into a field as fits.
fn write_text(field: &mut [u8], text: &[u8]) {
    for (place, byte) in field.iter_mut().zip(text) {
        *place = *byte;
    }
}

/// Puts as many stretches into a header as fit; the others.
fn write_stretches<'a>(fields: &mut [GnuSparseHeader], stretches: &'a [(u64, u64)]) -> &'a [(u64, u64)] {
    for (field, (from, to)) in fields.iter_mut().zip(stretches) {
        write_number(&mut field.offset, *from);
        write_number(&mut field.numbytes, to - from);
    }
    stretches.get(fields.len()..).unwrap_or_default()
}

/// In octal digits, or where those are too few in binary, behind a bit that says so.
fn write_number(field: &mut [u8; 12], value: u64) {
    if value < 1 << 33 {
        write_text(field, format!("{value:011o}\0").as_bytes());
    } else {
        write_text(field, &[0x80, 0, 0, 0]);
        write_text(field.get_mut(4..).unwrap_or_default(), &value.to_be_bytes());
    }
}
