//! Making room in the journals of a steward that is gone.

use super::{Past, PastError};
use crate::journal::{Journal, Need};
use rustix::fs::OFlags;
use std::io;
use std::path::Path;
use stead_model::record::Record;

/// Removes the output of commands that were accepted before a moment and have ended, and notes that it did. Refused while
/// a steward lives there, whose journal it is; one that is started meanwhile waits.
pub fn make_room(dir: &Path, before: u64) -> Result<(), PastError> {
    let Some(_lock) = super::lock_for_changes(dir)? else { return Ok(()) };
    let place = super::Place::open(dir)?;
    for key in place.names("journal")?.into_iter().filter(|name| name.parse::<u32>().is_ok()) {
        // What was inside may have put links there: a journal that isn't plain is left alone.
        if place.at(&format!("journal/{key}"), OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW).is_err() {
            continue;
        }
        make_room_in(&dir.join("journal").join(&key), before)?;
    }
    Ok(())
}

fn make_room_in(dir: &Path, before: u64) -> Result<(), PastError> {
    let failed = |error: crate::journal::JournalError| PastError::Io(io::Error::other(error));
    let mut past = Past::default();
    let mut journal = Journal::open(dir, |record, _| past.see(record)).map_err(failed)?;
    let has_output = |bytes: (u64, u64)| bytes != (0, 0);
    for (number, info) in past.commands {
        let old = info.accepted_at < before && info.status.is_final() && !info.evicted;
        if old && has_output((info.stdout_bytes, info.stderr_bytes)) {
            journal.append(&[&Record::Evicted(number)], Need::Last).map_err(failed)?;
            journal.remove_streams(number).map_err(failed)?;
        }
    }
    Ok(())
}
