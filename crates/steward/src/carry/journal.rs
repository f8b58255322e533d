//! What is new in the journals, in the order in which it may be believed: bytes and states before the log that tells of
//! them. Only whole records are told.

use crate::dir::Dir;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use stead_model::carry::{HEAD, Log, Mark, Output, PIECE, Said, State, head_sum};
use stead_model::frame::Stream;
use stead_model::record::{ChunkRecord, MAGIC, Record, Records, StateMark};
use stead_model::state::Bytes;

/// Of a log that is read at once; a record may be larger, and is read whole then.
const READ: u64 = 1 << 20;
const LARGEST: u64 = 32 << 20;

/// Tells all that is behind the marks. Whether there was anything.
pub(super) fn tell(dir: &Dir, marks: &[Mark], mut say: impl FnMut(&Said) -> io::Result<()>) -> io::Result<bool> {
    let mut told = false;
    for key in dir.journals()? {
        let place = dir.journal(key);
        let known = marks.iter().find(|mark| mark.key == key).copied();
        let mark = known.filter(|mark| is_same(&place, mark));
        let mut another = known.is_some() && mark.is_none();
        for segment in segments(&place)? {
            let offset = match mark {
                Some(mark) if segment < mark.segment => continue,
                Some(mark) if segment == mark.segment => mark.offset,
                Some(_) | None => 0,
            };
            told |= tell_segment(&place, Mark { key, segment, offset, head: 0 }, &mut another, &mut say)?;
        }
    }
    Ok(told)
}

/// Whether the log goes on where the mark is. One that has been removed since was the same.
fn is_same(place: &Path, mark: &Mark) -> bool {
    let Ok(file) = File::open(place.join(format!("{:06}.log", mark.segment))) else {
        return segments(place).is_ok_and(|segments| segments.iter().all(|segment| *segment > mark.segment));
    };
    let mut head = vec![0; usize::try_from(mark.offset).unwrap_or(HEAD).min(HEAD)];
    file.read_exact_at(&mut head, 0).is_ok() && head_sum(&head) == mark.head
}

fn segments(place: &Path) -> io::Result<Vec<u32>> {
    let entries = match std::fs::read_dir(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let number = |name: &std::ffi::OsStr| name.to_str()?.strip_suffix(".log")?.parse::<u32>().ok();
    let mut numbers: Vec<_> = entries.filter_map(|entry| number(&entry.ok()?.file_name())).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn tell_segment(
    place: &Path,
    mut at: Mark,
    another: &mut bool,
    say: &mut impl FnMut(&Said) -> io::Result<()>,
) -> io::Result<bool> {
    let file = match File::open(place.join(format!("{:06}.log", at.segment))) {
        // Removed since: it told of commands that are forgotten.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    let mut told = false;
    loop {
        let bytes = whole_records(&file, at.offset)?;
        if bytes.is_empty() {
            return Ok(told);
        }
        let records = bytes.strip_prefix(MAGIC.as_slice()).unwrap_or(&bytes);
        if std::mem::take(another) {
            // First of all, so that nothing is taken for the other's.
            say(&Said::Log(Box::new(Log { at, bytes: Bytes::default(), another: true })))?;
        }
        for (record, _) in Records::new(records) {
            tell_with(place, at.key, &record, say)?;
        }
        let length = bytes.len() as u64;
        say(&Said::Log(Box::new(Log { at, bytes: Bytes(bytes), another: false })))?;
        (at.offset, told) = (at.offset + length, true);
    }
}

/// What is behind an offset up to the end of a record; nothing if none is whole.
fn whole_records(file: &File, offset: u64) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    let mut most = READ;
    loop {
        let size = length.saturating_sub(offset).min(most);
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        file.read_exact_at(&mut bytes, offset)?;
        let magic = if offset == 0 && bytes.starts_with(MAGIC) { MAGIC.len() } else { 0 };
        let records = Records::new(bytes.get(magic..).unwrap_or_default());
        let whole: usize = records.map(|(_, size)| size).sum();
        if whole == 0 && size == most && most < LARGEST {
            most *= 8;
            continue;
        }
        bytes.truncate(if whole == 0 { 0 } else { magic + whole });
        return Ok(bytes);
    }
}

/// Tells what a record needs to be true.
fn tell_with(place: &Path, key: u32, record: &Record, say: &mut impl FnMut(&Said) -> io::Result<()>) -> io::Result<()> {
    match record {
        Record::Chunk(chunk) => tell_output(place, key, chunk, say),
        Record::Head(head) => tell_state(place, key, &head.state, say),
        Record::Ended(ended) => tell_state(place, key, &ended.state, say),
        Record::Env(env) => tell_state(place, key, &env.state, say),
        Record::Spawning(_)
        | Record::Spawned(_)
        | Record::Accepted(_)
        | Record::Started(_)
        | Record::Cancelling(_)
        | Record::Drained(_)
        | Record::Evicted(_)
        | Record::EnvApplied(_)
        | Record::Sums(_) => Ok(()),
    }
}

fn tell_output(
    place: &Path,
    key: u32,
    chunk: &ChunkRecord,
    say: &mut impl FnMut(&Said) -> io::Result<()>,
) -> io::Result<()> {
    let end = match chunk.stream {
        Stream::Stdout => "out",
        Stream::Stderr => "err",
    };
    let file = match File::open(place.join(format!("{}.{end}", chunk.number))) {
        // Made room for others; a later record says so.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let (mut offset, last) = (chunk.offset, chunk.offset + chunk.length);
    while offset < last {
        let size = usize::try_from(last - offset).unwrap_or(PIECE).min(PIECE);
        let mut bytes = vec![0; size];
        file.read_exact_at(&mut bytes, offset)?;
        let output = Output { key, number: chunk.number, stream: chunk.stream, offset, bytes: Bytes(bytes) };
        say(&Said::Output(Box::new(output)))?;
        offset += size as u64;
    }
    Ok(())
}

/// Only the newest is still there; the log before it names others that nobody needs any more.
fn tell_state(
    place: &Path,
    key: u32,
    mark: &StateMark,
    say: &mut impl FnMut(&Said) -> io::Result<()>,
) -> io::Result<()> {
    if mark.stored == 0 {
        return Ok(());
    }
    match std::fs::read(place.join(format!("{}.state", mark.stored))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        bytes => say(&Said::State(Box::new(State { key, version: mark.stored, bytes: Bytes(bytes?) }))),
    }
}
