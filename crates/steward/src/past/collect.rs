//! Collects output that a dead steward left in pipes, into the journal.

use super::{PastError, Place, is_log, keys, log};
use crate::dir::Dir;
use crate::{heir, left_output};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use stead_model::frame::Stream;
use stead_model::record::{Found, Record};

/// Appends output that is in pipes to the journal, so that the record of a lost command counts all of its bytes. Refused
/// while a steward lives there. Only for a directory that nobody else could write to: its contents are trusted.
pub fn collect_output(dir: &Path) -> Result<(), PastError> {
    let Some(_lock) = super::lock_for_changes(dir)? else { return Ok(()) };
    let place = Place::open(dir)?;
    let dir = Dir::open(dir).map_err(io::Error::other)?;
    // Held until all is moved: what is written meanwhile must stay somewhere.
    let _readers = heir::settle(&dir)?;
    for key in keys(&place)? {
        for (number, pair) in undrained(&place, key)? {
            for stream in Stream::BOTH {
                let path = dir.root().join(log::stream_path(&format!("journal/{key}"), number, stream));
                let mut options = File::options();
                let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
                let length = file.metadata()?.len();
                left_output::append(&dir.run(key), pair, stream, &file, length)?;
            }
        }
    }
    Ok(())
}

/// Commands that a shell was given and whose streams may still have something in them, with their pairs of FIFOs.
fn undrained(place: &Place, key: u32) -> io::Result<BTreeMap<u64, u64>> {
    let dir = format!("journal/{key}");
    let mut segments: Vec<String> = place.names(&dir)?.into_iter().filter(|name| is_log(name)).collect();
    segments.sort();
    let mut pairs = BTreeMap::new();
    for name in segments {
        let bytes = place.read(&format!("{dir}/{name}"))?;
        for (found, _) in log::salvage(&bytes) {
            match found {
                Found::Record(Record::Started(started)) => {
                    pairs.insert(started.number, started.pair);
                }
                Found::Record(Record::Ended(ended)) if !ended.ending.streams_open => {
                    pairs.remove(&ended.number);
                }
                Found::Record(Record::Drained(number)) => {
                    pairs.remove(&number);
                }
                Found::Record(_) | Found::Damage => {}
            }
        }
    }
    Ok(pairs)
}
