//! A tree written as a whole, while it is used. The journal turns to a new file first; then every key is visited in
//! order, a few at a time. What changes meanwhile is in the new file: told over whatever of it the snapshot has, it is as
//! it was. So nobody waits: readers not at all, the writer for the making of a file.

use super::journal::{failed, generations, journal_path, snapshot_path};
use super::kept::Kept;
use super::ram::Node;
use crate::error::Error;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use stead_model::clock::Timestamp;
use stead_model::memory::{Note, SNAPSHOT, What};

/// How many keys are looked up between two looks at the order.
const AT_ONCE: usize = 256;
/// How much is written at once.
const PIECE: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    pub generation: u64,
    pub entries: u64,
    pub bytes: u64,
    pub at: Timestamp,
}

/// Writes a snapshot; none if nothing has changed since the last one. One at a time: the caller sees to that.
pub(super) fn take(kept: &Kept, now: Timestamp) -> Result<Option<Snapshot>, Error> {
    let (dir, generation, number) = {
        let mut writer = kept.writer();
        let number = writer.number;
        if !writer.is_changed {
            return Ok(None);
        }
        let Some(journal) = &mut writer.journal else { return Ok(None) };
        let generation = journal.turn().map_err(|error| failed(&error))?;
        let dir = journal.dir().to_owned();
        writer.is_changed = false;
        (dir, generation, number)
    };
    let written = write(kept, &dir, generation, number, now);
    match written {
        Ok(snapshot) => {
            tidy(&dir, generation);
            Ok(Some(snapshot))
        }
        Err(error) => {
            // The journals still have everything; the next one tries again.
            kept.writer().is_changed = true;
            let _ = std::fs::remove_file(draft(&dir));
            Err(failed(&error))
        }
    }
}

fn draft(dir: &Path) -> std::path::PathBuf {
    dir.join("draft")
}

fn write(kept: &Kept, dir: &Path, generation: u64, number: u64, now: Timestamp) -> std::io::Result<Snapshot> {
    let draft = draft(dir);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    let mut buffer = SNAPSHOT.to_vec();
    let (mut entries, mut bytes, mut last) = (0_u64, 0_u64, None);
    loop {
        let keys = kept.ram.keys_below(b"", last.as_deref(), AT_ONCE);
        for key in &keys {
            // Gone since: the journal says so.
            let Some(held) = kept.ram.get(key) else { continue };
            let what = match &held.node {
                Node::File(value) => What::File(value),
                Node::Dir => What::Dir,
            };
            if !(Note { number: held.number, at: held.at, key, what }).encode(&mut buffer) {
                return Err(std::io::Error::other("a value is too large for a snapshot"));
            }
            entries += 1;
            if buffer.len() >= PIECE {
                file.write_all(&buffer)?;
                bytes += buffer.len() as u64;
                buffer.clear();
            }
        }
        match keys.last() {
            Some(key) => last = Some(key.to_vec()),
            None => break,
        }
    }
    let end = Note { number, at: now, key: b"", what: What::End(entries) };
    if !end.encode(&mut buffer) {
        return Err(std::io::Error::other("the end of a snapshot"));
    }
    file.write_all(&buffer)?;
    bytes += buffer.len() as u64;
    // Journals are removed because of it: it has to be on the disk, and then to have its name.
    file.sync_data()?;
    std::fs::rename(&draft, snapshot_path(dir, generation))?;
    Ok(Snapshot { generation, entries, bytes, at: now })
}

/// Removes what is older than the snapshot before this one. A failure leaves more than is needed, never less.
fn tidy(dir: &Path, generation: u64) {
    let Ok(snapshots) = generations(dir, "snapshot") else { return };
    let Some(previous) = snapshots.iter().rev().find(|other| **other < generation) else { return };
    for old in snapshots.iter().filter(|other| *other < previous) {
        let _ = std::fs::remove_file(snapshot_path(dir, *old));
    }
    for old in generations(dir, "journal").unwrap_or_default().iter().filter(|other| *other < previous) {
        let _ = std::fs::remove_file(journal_path(dir, *old));
    }
}
