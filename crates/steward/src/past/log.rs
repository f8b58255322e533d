//! One command as the journal on disk tells it. Whether a steward lives over it doesn't matter: the log only grows, and
//! a record that is being written ends it for whoever reads at that moment.

use super::{Past, Place, is_log};
use crate::sum;
use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use stead_model::frame::Stream;
use stead_model::ids::{CommandId, ShellId};
use stead_model::proto::CommandInfo;
use stead_model::record::{ChunkRecord, Found, MAGIC, Record, Salvage};

/// What happened to a command, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PastEvent {
    Queued { seq: u64, at: u64 },
    Started { seq: u64, at: u64 },
    Output(ChunkRecord),
    Ended { seq: u64, at: u64 },
}

impl PastEvent {
    pub fn seq(&self) -> u64 {
        match self {
            Self::Queued { seq, .. } | Self::Started { seq, .. } | Self::Ended { seq, .. } => *seq,
            Self::Output(chunk) => chunk.seq,
        }
    }
}

#[derive(Debug)]
pub struct PastCommand {
    pub info: CommandInfo,
    pub events: Vec<PastEvent>,
    /// No more output can come.
    pub drained: bool,
    /// Records of it are lost: what is here is not all there was.
    pub damaged: bool,
    place: Place,
    dir: String,
}

/// One stream of a command whose place is known, to be read anywhere.
pub fn stream(dir: &Path, key: u32, number: u64, stream: Stream) -> io::Result<File> {
    plain(&Place::open(dir)?, &stream_path(&format!("journal/{key}"), number, stream))
}

pub(super) fn stream_path(dir: &str, number: u64, stream: Stream) -> String {
    let end = match stream {
        Stream::Stdout => "out",
        Stream::Stderr => "err",
    };
    format!("{dir}/{number}.{end}")
}

pub(super) fn plain(place: &Place, path: &str) -> io::Result<File> {
    let file = File::from(place.at(path, OFlags::RDONLY)?);
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::other("the output is no plain file"))
}

/// Finds a command of a shell below a steward's directory.
pub fn command(dir: &Path, shell: &ShellId, id: &CommandId) -> io::Result<Option<PastCommand>> {
    let place = match Place::open(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        place => place?,
    };
    let mut lost = None;
    for key in place.names("journal")?.into_iter().filter(|name| name.parse::<u32>().is_ok()) {
        let dir = format!("journal/{key}");
        let mut names = place.names(&dir)?;
        names.retain(|name| is_log(name));
        names.sort();
        let Some(first) = names.first() else { continue };
        if head_of(&place, &format!("{dir}/{first}"))?.as_ref() != Some(shell) {
            continue;
        }
        // Where a shell lived on several instances, each has left a journal of it.
        match read(&place, dir, &names, id) {
            Ok(Some(Read { info, events, drained, damaged, dir })) => {
                return Ok(Some(PastCommand { info, events, drained, damaged, place, dir }));
            }
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => lost = Some(error),
            Err(error) => return Err(error),
        }
    }
    lost.map_or(Ok(None), Err)
}

/// The records of a log file, past damage in it. Nothing of one that was never begun.
pub(super) fn salvage(bytes: &[u8]) -> impl Iterator<Item = (Found, usize)> {
    let (body, is_ours) = match bytes.strip_prefix(MAGIC.as_slice()) {
        Some(body) => (body, true),
        None => (bytes.get(MAGIC.len()..).unwrap_or_default(), false),
    };
    let head = (!is_ours && !body.is_empty()).then_some((Found::Damage, 0));
    head.into_iter().chain(Salvage::new(body))
}

/// The shell that a log belongs to.
fn head_of(place: &Place, path: &str) -> io::Result<Option<ShellId>> {
    let bytes = place.read(path)?;
    // Where the head is damaged, what was asked of the shell names it.
    Ok(salvage(&bytes).find_map(|(found, _)| match found {
        Found::Record(Record::Head(head)) => Some(head.shell),
        Found::Record(Record::Accepted(accepted)) => Some(accepted.exec.shell),
        Found::Record(_) | Found::Damage => None,
    }))
}

struct Read {
    info: CommandInfo,
    events: Vec<PastEvent>,
    drained: bool,
    damaged: bool,
    dir: String,
}

fn read(place: &Place, dir: String, names: &[String], id: &CommandId) -> io::Result<Option<Read>> {
    let key = dir.rsplit('/').next().and_then(|key| key.parse().ok()).unwrap_or(0);
    let mut past = Past { key, ..Past::default() };
    let (mut number, mut events, mut drained) = (None, Vec::<PastEvent>::new(), false);
    let mut damage = false;
    for name in names {
        // One that was removed since the directory was read told of older commands.
        let bytes = match place.read(&format!("{dir}/{name}")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            bytes => bytes?,
        };
        for (found, _) in salvage(&bytes) {
            let record = match found {
                Found::Record(record) => record,
                Found::Damage => {
                    damage = true;
                    continue;
                }
            };
            if let Record::Accepted(accepted) = &record
                && accepted.exec.command == *id
            {
                number = Some(accepted.number);
            }
            let ours = number.is_some() && record.number() == number;
            if ours {
                match &record {
                    Record::Accepted(accepted) => {
                        let (seq, at) = (accepted.seq(), accepted.at);
                        events.extend((seq > 0).then_some(PastEvent::Queued { seq, at }));
                    }
                    // One that the shell never read is started again, and that is no second event.
                    Record::Started(_) if events.iter().any(|event| matches!(event, PastEvent::Started { .. })) => {}
                    Record::Started(started) => {
                        let seq = events.last().map_or(0, PastEvent::seq) + 1;
                        events.push(PastEvent::Started { seq, at: started.at });
                    }
                    Record::Chunk(chunk) => events.push(PastEvent::Output(chunk.clone())),
                    Record::Ended(ended) => {
                        drained = !ended.ending.streams_open;
                        events.push(PastEvent::Ended { seq: ended.seq, at: ended.at });
                    }
                    Record::Drained(_) => drained = true,
                    Record::Head(_)
                    | Record::Spawning(_)
                    | Record::Spawned(_)
                    | Record::Cancelling(_)
                    | Record::Evicted(_)
                    | Record::Env(_)
                    | Record::EnvApplied(_)
                    | Record::Sums(_) => {}
                }
            }
            if ours || matches!(record, Record::Head(_)) {
                past.see(record);
            }
        }
    }
    let Some(info) = number.and_then(|number| past.commands.remove(&number)) else {
        let lost =
            || io::Error::new(io::ErrorKind::InvalidData, "the journal is damaged, and has no record of the command");
        return if damage { Err(lost()) } else { Ok(None) };
    };
    let damaged = damage && (has_hole(&events) || !info.status.is_final());
    Ok(Some(Read { info, events, drained, damaged, dir }))
}

/// Whether numbers or bytes are missing between the first and the last event.
fn has_hole(events: &[PastEvent]) -> bool {
    let (mut seq, mut ends) = (0, [0, 0]);
    events.iter().any(|event| {
        let is_next = event.seq() == seq + 1;
        seq = event.seq();
        let joins = match event {
            PastEvent::Output(chunk) => {
                let [stdout, stderr] = &mut ends;
                let end = if chunk.stream == Stream::Stdout { stdout } else { stderr };
                let joins = chunk.offset == *end;
                *end = chunk.offset + chunk.length;
                joins
            }
            PastEvent::Queued { .. } | PastEvent::Started { .. } | PastEvent::Ended { .. } => true,
        };
        !is_next || !joins
    })
}

impl PastCommand {
    /// Its output that lies on the disk behind what the log tells of: a steward was killed between the two. Only for a
    /// command whose steward is gone for good.
    pub fn add_what_was_left(&mut self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let there = self.place.length(&self.path(stream));
            let noted = match stream {
                Stream::Stdout => &mut self.info.stdout_bytes,
                Stream::Stderr => &mut self.info.stderr_bytes,
            };
            if there > *noted {
                let seq = self.info.last_seq + 1;
                let (offset, length) = (*noted, there - *noted);
                let (number, at) = (self.info.number, self.info.started_at.unwrap_or(self.info.accepted_at));
                *noted = there;
                self.info.last_seq = seq;
                let chunk = ChunkRecord { number, seq, stream, offset, length, at, late: false };
                self.events.push(PastEvent::Output(chunk));
            }
        }
    }

    fn path(&self, stream: Stream) -> String {
        stream_path(&self.dir, self.info.number, stream)
    }

    /// Whether its records are all there, and what it wrote is as it was. The error is [`io::ErrorKind::InvalidData`] where
    /// it isn't.
    pub fn verify(&self) -> io::Result<()> {
        let damaged = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()));
        if self.damaged {
            return damaged("the journal is damaged, and records of the command are lost");
        }
        let Some(summed) = &self.info.sums else { return Ok(()) };
        for stream in Stream::BOTH {
            let Some(sum) = summed.sums.of(stream) else { continue };
            match self.open(stream).and_then(|file| sum::is_whole(&file, &sum)) {
                Ok(true) => {}
                Err(error) if !matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound) => {
                    return Err(error);
                }
                Ok(false) | Err(_) => {
                    return damaged(&format!("the {} of the command is damaged on the disk", sum::name(stream)));
                }
            }
        }
        Ok(())
    }

    /// One of its streams, to be read at any place.
    pub fn open(&self, stream: Stream) -> io::Result<File> {
        plain(&self.place, &self.path(stream))
    }

    /// The bytes of a chunk.
    pub fn bytes(file: &File, chunk: &ChunkRecord) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(chunk.length).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, chunk.offset)?;
        Ok(bytes)
    }
}
