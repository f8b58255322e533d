//! The bytes of a file in an archive: all of them, or those between its holes with where they belong (GNU's `S`).

use super::super::failure::Failure;
use super::notes::{BLOCK, malformed, padding, skip};
use super::stream::{Stream, incomplete};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use tar::{GnuExtSparseHeader, GnuSparseHeader, Header};

const PIECE: usize = 128 * 1024;

pub(super) enum Content {
    Whole {
        size: u64,
    },
    /// How large the file is, and its data: where it begins and ends.
    Sparse {
        size: u64,
        data: Vec<(u64, u64)>,
    },
}

impl Content {
    /// Reads what follows a header of a file with holes; `stored` is how many bytes the archive has of it.
    pub(super) fn of(header: &Header, stored: u64, stream: &mut Stream) -> Result<Self, Failure> {
        if !header.entry_type().is_gnu_sparse() {
            return Ok(Self::Whole { size: stored });
        }
        let gnu = header.as_gnu().ok_or_else(malformed)?;
        let size = gnu.real_size().map_err(|_| malformed())?;
        let mut map = Map { size, stored, data: Vec::new(), counted: 0 };
        map.add(&gnu.sparse)?;
        let mut more = gnu.is_extended();
        while more {
            let mut block = GnuExtSparseHeader::new();
            stream.fill(block.as_mut_bytes())?;
            map.add(&block.sparse)?;
            more = block.is_extended();
        }
        if map.counted != stored {
            return Err(malformed());
        }
        Ok(Self::Sparse { size, data: map.data })
    }

    /// How large the file is.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Whole { size } | Self::Sparse { size, .. } => *size,
        }
    }

    /// Writes a file that is empty so far.
    pub(super) fn write(&self, stream: &mut Stream, file: &File) -> Result<(), Failure> {
        match self {
            Self::Whole { size } => write_stretch(stream, file, 0, *size),
            Self::Sparse { size, data } => {
                for (from, to) in data {
                    write_stretch(stream, file, *from, *to)?;
                }
                Ok(file.set_len(*size)?)
            }
        }
    }
}

/// A map that is being read. A stretch lies behind the one before it and fills whole blocks of the archive, except the
/// last; so there are never more of them than the archive has blocks.
struct Map {
    size: u64,
    stored: u64,
    data: Vec<(u64, u64)>,
    counted: u64,
}

impl Map {
    fn add(&mut self, fields: &[GnuSparseHeader]) -> Result<(), Failure> {
        for field in fields.iter().filter(|field| !field.is_empty()) {
            let from = field.offset().map_err(|_| malformed())?;
            let length = field.length().map_err(|_| malformed())?;
            let to = from.checked_add(length).filter(|to| *to <= self.size).ok_or_else(malformed)?;
            if length == 0 {
                continue;
            }
            let is_behind = self.data.last().is_none_or(|last| last.1 <= from);
            let is_aligned = self.counted.is_multiple_of(BLOCK as u64);
            self.counted = self.counted.saturating_add(length);
            if !is_behind || !is_aligned || self.counted > self.stored {
                return Err(malformed());
            }
            self.data.push((from, to));
        }
        Ok(())
    }
}

fn write_stretch(stream: &mut Stream, file: &File, from: u64, to: u64) -> Result<(), Failure> {
    let mut at = from;
    let mut buffer = vec![0; PIECE.min(usize::try_from(to - from).unwrap_or(PIECE))];
    while at < to {
        let wanted = usize::try_from(to - at).unwrap_or(usize::MAX).min(buffer.len());
        let read = stream.read(buffer.get_mut(..wanted).unwrap_or_default()).map_err(incomplete)?;
        if read == 0 {
            return Err(incomplete(std::io::ErrorKind::UnexpectedEof.into()));
        }
        file.write_all_at(buffer.get(..read).unwrap_or_default(), at)?;
        at += read as u64;
    }
    skip(stream, padding(to - from))
}
