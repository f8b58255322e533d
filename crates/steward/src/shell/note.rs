//! Output gets its place in the command's sequence: what lies in the files counts as far as records say so.
//!
//! ```text
//! file:  noted: chunk | chunk | .. | held: the beginning of a character | not noted yet: a steward died, or the disk is full
//! ```

use super::Shell;
use super::pair::stream_index;
use crate::host::{Host, now};
use crate::journal::{JournalError, Need};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use stead_model::frame::Stream;
use stead_model::proto::Stdin;
use stead_model::record::{ChunkRecord, Record};
use stead_model::utf8::{MOST_UNFINISHED, unfinished};

/// How often, in bytes of one stream, it is checked whether older output has to go.
const ROOM_CHECK: u64 = 1 << 20;

/// Output that a steward moved to disk and didn't live to note gets its record now, in pieces of this size.
const PIECE: u64 = 1 << 20;

impl Shell {
    /// A piece of output gets its place in the command's sequence. Whoever reads, reads after this.
    pub(super) fn note_chunk(
        &mut self,
        host: &mut Host,
        number: u64,
        stream: Stream,
        offset: u64,
        length: u64,
    ) -> Result<(), JournalError> {
        let Some(entry) = self.commands.get_mut(&number).filter(|_| length > 0) else { return Ok(()) };
        let seq = entry.last_seq + 1;
        let late = entry.ended.is_some();
        let record = Record::Chunk(ChunkRecord { number, seq, stream, offset, length, at: now(), late });
        // The bytes are on disk: their record may use the reserve, or they would be there without a place.
        self.journal.append(&[&record], Need::Last)?;
        entry.last_seq = seq;
        host.news.insert(self.key);
        // A command that goes on writing takes the room of those before it.
        if offset / ROOM_CHECK != (offset + length) / ROOM_CHECK {
            host.chores.insert(self.key);
        }
        Ok(())
    }

    /// Nothing more comes: the beginning of a character is noted without its rest.
    pub(super) fn note_held(&mut self, host: &mut Host, number: u64) -> Result<(), JournalError> {
        if self.commands.get(&number).is_none_or(|entry| entry.held == [0, 0]) {
            return Ok(());
        }
        self.note_unnoted(host)?;
        if self.unnoted {
            return Err(JournalError::NoSpace);
        }
        for stream in Stream::BOTH {
            let at = stream_index(stream);
            let Some(entry) = self.commands.get(&number) else { return Ok(()) };
            let (offset, held) = (entry.bytes.get(at).copied(), entry.held.get(at).copied());
            let (offset, held) = (offset.unwrap_or(0), held.unwrap_or(0));
            let on_screen = entry.exec.as_ref().is_some_and(|exec| exec.stdin == Stdin::Terminal);
            self.note_chunk(host, number, stream, offset, held)?;
            self.stream_bytes += held;
            if let Some(entry) = self.commands.get_mut(&number) {
                entry.bytes.get_mut(at).into_iter().for_each(|bytes| *bytes += held);
                entry.held.get_mut(at).into_iter().for_each(|held| *held = 0);
            }
            if on_screen && stream == Stream::Stdout {
                self.show_noted(host, number, offset, held);
            }
        }
        Ok(())
    }

    /// The bytes are on disk, but nothing says so: they don't count until it does.
    pub(super) fn take_back(&mut self, number: u64, at: usize, bytes: u64) {
        self.unnoted = true;
        self.stream_bytes -= bytes;
        if let Some(length) = self.commands.get_mut(&number).and_then(|entry| entry.bytes.get_mut(at)) {
            *length -= bytes;
        }
    }

    /// Bytes are moved to disk before their record is written; between the two a steward can die, or the disk be full.
    /// On a disk that is still full this is tried again before anything else is moved.
    pub(super) fn note_unnoted(&mut self, host: &mut Host) -> Result<(), JournalError> {
        if !self.unnoted {
            return Ok(());
        }
        match self.note_what_is_on_disk(host) {
            Ok(()) => self.unnoted = false,
            Err(JournalError::NoSpace) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    pub(super) fn note_what_is_on_disk(&mut self, host: &mut Host) -> Result<(), JournalError> {
        let open: Vec<_> =
            self.commands.iter().filter(|(_, entry)| !entry.drained).map(|(number, _)| *number).collect();
        for number in open {
            for stream in Stream::BOTH {
                let Ok(file) = fs::File::open(self.journal.stream_path(number, stream)) else { continue };
                let on_disk = file.metadata().map_or(0, |meta| meta.len());
                let at = stream_index(stream);
                while let Some(noted) = self.commands.get(&number).and_then(|entry| entry.bytes.get(at).copied()) {
                    let there = on_disk.saturating_sub(noted).min(PIECE);
                    let length = there - unfinished_at(&file, noted, there);
                    if length == 0 {
                        break;
                    }
                    self.note_chunk(host, number, stream, noted, length)?;
                    self.stream_bytes += length;
                    if let Some(bytes) = self.commands.get_mut(&number).and_then(|entry| entry.bytes.get_mut(at)) {
                        *bytes += length;
                    }
                }
                if let Some(entry) = self.commands.get_mut(&number)
                    && let (Some(bytes), Some(held)) = (entry.bytes.get(at), entry.held.get_mut(at))
                {
                    *held = on_disk.saturating_sub(*bytes);
                }
            }
        }
        Ok(())
    }
}

/// How much at the end of what has come to a file is the beginning of a character. One look: what lies there came out of a
/// pipe a moment ago.
pub(super) fn unfinished_at(file: &File, offset: u64, length: u64) -> u64 {
    let mut end = [0; MOST_UNFINISHED];
    let near = usize::try_from(length).unwrap_or(usize::MAX).min(end.len());
    let end = end.get_mut(..near).unwrap_or_default();
    match file.read_exact_at(end, offset + length - near as u64) {
        Ok(()) => unfinished(end) as u64,
        Err(_) => 0,
    }
}
