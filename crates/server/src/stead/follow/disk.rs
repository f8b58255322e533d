//! Output read from where its steward wrote it, if that is on this machine. The steward says which piece is next; its bytes
//! don't pass through it a second time.

use super::super::Inner;
use super::super::commands::{gone, unreadable};
use crate::error::Error;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use stead_model::command::Command;
use stead_model::frame::{Chunk, Stream};
use stead_model::proto::{Piece, Summed};
use stead_steward::{past, sum};

/// No steward of ours writes more at once; whoever says so isn't one.
const MOST: u64 = 4 << 20;

/// The files of one command, each opened when it is first needed. One that is open can be read to its end, also when it
/// was removed to make room.
#[derive(Debug)]
pub(super) struct Disk {
    journal: PathBuf,
    files: [Option<Arc<File>>; 2],
}

impl Disk {
    /// None: the journal is somewhere else.
    pub(super) async fn of(inner: &Inner, row: &Command) -> Result<Option<Self>, Error> {
        let Some(lease) = inner.core.store.lease(&row.lease).await? else { return Ok(None) };
        let journal = inner.core.provider(&lease.provider)?.journal(&row.lease);
        Ok(journal.map(|journal| Self { journal, files: [None, None] }))
    }

    /// Whether the output of a finished command is as it was. Off the threads that others wait for: it may be large.
    pub(super) async fn verify(&self, summed: &Summed) -> Result<(), Error> {
        let (journal, summed) = (self.journal.clone(), *summed);
        let look = tokio::task::spawn_blocking(move || {
            for stream in Stream::BOTH {
                let Some(wanted) = summed.sums.of(stream) else { continue };
                let file = match past::stream(&journal, summed.key, summed.sums.number, stream) {
                    // Room may have been made of it this moment: its steward knows.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    file => file?,
                };
                if !sum::is_whole(&file, &wanted)? {
                    let what = format!("the {} of the command is damaged on the disk", sum::name(stream));
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
            }
            Ok(())
        });
        let look = look.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        look.map_err(|error| unreadable("the output", &error))
    }

    pub(super) async fn read(&mut self, piece: &Piece) -> Result<Chunk, Error> {
        let Piece { seq, stream, late, offset, length, at, .. } = *piece;
        if length > MOST {
            return Err(Error::Broken(format!("it says that {length} bytes were written at once")));
        }
        let (journal, piece) = (self.journal.clone(), *piece);
        let [stdout, stderr] = &mut self.files;
        let slot = match stream {
            Stream::Stdout => stdout,
            Stream::Stderr => stderr,
        };
        let known = slot.clone();
        let read = move || {
            let file = match known {
                Some(file) => file,
                None => Arc::new(past::stream(&journal, piece.key, piece.number, stream)?),
            };
            let bytes = read_at(&file, offset, length)?;
            Ok((file, bytes))
        };
        let read = tokio::task::spawn_blocking(read).await.unwrap_or_else(|error| Err(io::Error::other(error)));
        match read {
            Ok((file, bytes)) => {
                *slot = Some(file);
                Ok(Chunk { seq, stream, late, offset, at, bytes })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(gone()),
            Err(error) => Err(unreadable("the output", &error)),
        }
    }
}

/// Straight into fresh memory, which isn't cleared first.
fn read_at(file: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let whole = usize::try_from(length).unwrap_or(usize::MAX);
    let mut bytes = Vec::with_capacity(whole);
    while bytes.len() < whole {
        let from = offset + bytes.len() as u64;
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut bytes), from) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The memory may be larger than asked for, and what was read too much belongs to the next piece.
    bytes.truncate(whole);
    Ok(bytes)
}
