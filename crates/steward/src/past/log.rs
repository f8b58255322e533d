//! One command as the journal on disk tells it. Whether a steward lives over it doesn't matter: the log only grows, and
//! a record that is being written ends it for whoever reads at that moment.

use super::{Past, Place, is_log};
use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use stead_model::frame::Stream;
use stead_model::ids::{CommandId, ShellId};
use stead_model::proto::CommandInfo;
use stead_model::record::{ChunkRecord, MAGIC, Record, Records};

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
    place: Place,
    dir: String,
}

/// One stream of a command whose place is known, to be read anywhere.
pub fn stream(dir: &Path, key: u32, number: u64, stream: Stream) -> io::Result<File> {
    plain(&Place::open(dir)?, &stream_path(&format!("journal/{key}"), number, stream))
}

fn stream_path(dir: &str, number: u64, stream: Stream) -> String {
    let end = match stream {
        Stream::Stdout => "out",
        Stream::Stderr => "err",
    };
    format!("{dir}/{number}.{end}")
}

fn plain(place: &Place, path: &str) -> io::Result<File> {
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
        if let Some(found) = read(&place, dir, &names, id)? {
            let Found { info, events, drained, dir } = found;
            return Ok(Some(PastCommand { info, events, drained, place, dir }));
        }
    }
    Ok(None)
}

/// The shell that a log belongs to.
fn head_of(place: &Place, path: &str) -> io::Result<Option<ShellId>> {
    let bytes = place.read(path)?;
    let first = bytes.strip_prefix(MAGIC.as_slice()).and_then(|records| Records::new(records).next());
    Ok(match first {
        Some((Record::Head(head), _)) => Some(head.shell),
        Some(_) | None => None,
    })
}

struct Found {
    info: CommandInfo,
    events: Vec<PastEvent>,
    drained: bool,
    dir: String,
}

fn read(place: &Place, dir: String, names: &[String], id: &CommandId) -> io::Result<Option<Found>> {
    let mut past = Past::default();
    let (mut number, mut events, mut drained) = (None, Vec::<PastEvent>::new(), false);
    for name in names {
        // One that was removed since the directory was read told of older commands.
        let bytes = match place.read(&format!("{dir}/{name}")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            bytes => bytes?,
        };
        let Some(records) = bytes.strip_prefix(MAGIC.as_slice()) else { continue };
        for (record, _) in Records::new(records) {
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
                    | Record::EnvApplied(_) => {}
                }
            }
            if ours || matches!(record, Record::Head(_)) {
                past.see(record);
            }
        }
    }
    let info = number.and_then(|number| past.commands.remove(&number));
    Ok(info.map(|info| Found { info, events, drained, dir }))
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
