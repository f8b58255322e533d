//! The bytes of a file without its holes.

use crate::extents::next_data;
use crate::stoppable;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use tokio_util::sync::CancellationToken;

/// Where data lies in a file. Each stretch begins and ends on a block of an archive, except at the end of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Extents {
    pub(super) size: u64,
    /// Where each begins and ends, in order; no two of them touch.
    pub(super) data: Vec<(u64, u64)>,
}

const BLOCK: u64 = 512;

impl Extents {
    pub(super) fn find(file: &File, size: u64) -> io::Result<Self> {
        let mut data: Vec<(u64, u64)> = Vec::new();
        let mut place = 0;
        while let Some((from, to)) = next_data(file, place, size)? {
            let (from, end) = (from - from % BLOCK, to.next_multiple_of(BLOCK).min(size));
            match data.last_mut() {
                Some(last) if from <= last.1 => last.1 = end,
                _ => data.push((from, end)),
            }
            place = to;
        }
        Ok(Self { size, data })
    }

    pub(super) fn has_holes(&self) -> bool {
        self.data_size() < self.size
    }

    pub(super) fn data_size(&self) -> u64 {
        self.data.iter().map(|(from, to)| to - from).sum()
    }

    /// Whether there is no data outside of another file's.
    pub(super) fn lie_within(&self, other: &Self) -> bool {
        let within = |(from, to): &(u64, u64)| {
            let begun_before = other.data.partition_point(|outer| outer.0 <= *from);
            begun_before.checked_sub(1).and_then(|last| other.data.get(last)).is_some_and(|outer| *to <= outer.1)
        };
        self.size == other.size && self.data.iter().all(within)
    }
}

/// Reads the data of a file, and nothing of its holes. An error if the file has become shorter.
pub(super) struct DataReader<'a> {
    file: &'a File,
    left: std::slice::Iter<'a, (u64, u64)>,
    at: u64,
    end: u64,
    stop: &'a CancellationToken,
}

impl<'a> DataReader<'a> {
    pub(super) fn new(file: &'a File, extents: &'a Extents, stop: &'a CancellationToken) -> Self {
        Self { file, left: extents.data.iter(), at: 0, end: 0, stop }
    }
}

impl Read for DataReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        stoppable::check(self.stop)?;
        while self.at == self.end {
            let Some((from, to)) = self.left.next() else { return Ok(0) };
            (self.at, self.end) = (*from, *to);
        }
        let wanted = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.file.read_at(buffer.get_mut(..wanted).unwrap_or_default(), self.at)?;
        if read == 0 && wanted > 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file was cut short while it was packed"));
        }
        self.at += read as u64;
        Ok(read)
    }
}
