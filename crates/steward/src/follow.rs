//! Followers: clients that want to hear of a command as it goes. Each reads the journal at its own pace from its own
//! place; the log is the buffer, so one that is slow, or gone, costs nothing and loses nothing.

use crate::conn::Conn;
use crate::journal::LogPos;
use crate::shell::{Shell, journal_fault};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use stead_model::frame::{Chunk, Stream};
use stead_model::proto::{At, Event, Fault, FaultCode, Follow, Piece, Reply};
use stead_model::record::{ChunkRecord, Record};

#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) connection: u32,
    pub(crate) request: u32,
    pub(crate) number: u64,
    at: LogPos,
    after: u64,
    /// The last place in the sequence that a record was seen of.
    seen: u64,
    /// May go below zero by one chunk: chunks are never cut.
    pub(crate) credit: i64,
    late: bool,
    state: bool,
    index: bool,
    ended: bool,
    /// No late output can come any more.
    heard_all: bool,
    stalled: bool,
    files: [Option<File>; 2],
}

/// Log bytes to read at once: a caught-up follower finds a record or two.
const READ: u64 = 16 << 10;

/// What remains to be done for a follower.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// For news, or for credit.
    Waiting,
    /// For room in its connection.
    Held,
    Over,
}

impl Follower {
    pub(crate) fn new(shell: &Shell, number: u64, from: (u32, u32), follow: &Follow) -> Result<Self, Fault> {
        let entry = shell.commands.get(&number).ok_or_else(|| Fault::new(FaultCode::NotFound, "no such command"))?;
        if entry.evicted {
            return Err(shell.gone());
        }
        shell.verify(number)?;
        Ok(Self {
            connection: from.0,
            request: from.1,
            number,
            at: entry.first,
            after: follow.after,
            seen: 0,
            credit: i64::try_from(follow.credit).unwrap_or(i64::MAX),
            late: follow.late,
            state: follow.state == Some(true),
            index: follow.index == Some(true),
            ended: false,
            heard_all: false,
            stalled: false,
            files: [None, None],
        })
    }

    /// Sends what there is, as far as the client has given credit and its connection has room.
    fn pump(&mut self, shell: &Shell, conn: &mut Conn) -> Result<Progress, Fault> {
        if shell.commands.get(&self.number).is_none_or(|entry| entry.evicted) {
            return Err(shell.gone());
        }
        loop {
            if let Some(stopped) = self.stopped(conn) {
                return Ok(stopped);
            }
            let records = shell.journal.read(self.at, READ).map_err(|error| journal_fault(&error))?;
            if records.is_empty() {
                break;
            }
            for (record, next) in records {
                if let Some(stopped) = self.stopped(conn) {
                    return Ok(stopped);
                }
                self.tell(shell, conn, &record)?;
                self.at = next;
                if self.ended && (!self.late || self.heard_all) {
                    return Ok(Progress::Over);
                }
            }
        }
        // All has been read, and its end was not there.
        let ended = shell.commands.get(&self.number).and_then(|entry| entry.ended);
        if !self.ended && ended.is_some_and(|ended| ended < self.at) {
            return Err(lost_records());
        }
        let stalled = shell.is_stalled(self.number);
        if stalled != self.stalled {
            self.stalled = stalled;
            conn.event(self.request, &Event::Stalled(stalled));
        }
        Ok(Progress::Waiting)
    }

    fn stopped(&self, conn: &Conn) -> Option<Progress> {
        if conn.is_full() {
            return Some(Progress::Held);
        }
        (self.credit <= 0).then_some(Progress::Waiting)
    }

    fn tell(&mut self, shell: &Shell, conn: &mut Conn, record: &Record) -> Result<(), Fault> {
        if record.number() != Some(self.number) {
            return Ok(());
        }
        self.see(shell, record)?;
        match record {
            Record::Accepted(accepted) => {
                if accepted.seq() > self.after {
                    conn.event(self.request, &Event::Queued(At { seq: accepted.seq(), at: accepted.at }));
                    self.after = accepted.seq();
                }
            }
            Record::Started(started) => {
                let seq = shell.commands.get(&self.number).map_or(1, |entry| entry.start_seq);
                if seq > self.after {
                    conn.event(self.request, &Event::Started(At { seq, at: started.at }));
                    self.after = seq;
                }
            }
            Record::Chunk(chunk) => {
                if chunk.seq > self.after && (!chunk.late || self.late) && self.index {
                    let ChunkRecord { seq, stream, offset, length, at, late, number } = *chunk;
                    let piece = Piece { seq, stream, late, offset, length, at, key: shell.key, number };
                    self.credit = self.credit.saturating_sub_unsigned(piece.cost());
                    conn.event(self.request, &Event::Piece(piece));
                    self.after = seq;
                } else if chunk.seq > self.after && (!chunk.late || self.late) {
                    let bytes = self.read(shell, chunk)?;
                    self.credit -= i64::try_from(bytes.len()).unwrap_or(i64::MAX);
                    let ChunkRecord { seq, stream, offset, at, late, .. } = *chunk;
                    conn.data(self.request, &Chunk { seq, stream, late, offset, at, bytes });
                    self.after = seq;
                }
            }
            Record::Ended(ended) => {
                self.ended = true;
                self.heard_all = !ended.ending.streams_open;
                if ended.seq > self.after {
                    conn.event(self.request, &Event::Ended(At { seq: ended.seq, at: ended.at }));
                    self.after = ended.seq;
                }
            }
            Record::Drained(_) => self.heard_all = true,
            Record::Head(_)
            | Record::Spawning(_)
            | Record::Spawned(_)
            | Record::Cancelling(_)
            | Record::Evicted(_)
            | Record::Env(_)
            | Record::EnvApplied(_)
            | Record::Sums(_) => {}
        }
        Ok(())
    }

    /// A place in the sequence that is passed over was in a record that is damaged.
    fn see(&mut self, shell: &Shell, record: &Record) -> Result<(), Fault> {
        let seq = match record {
            Record::Accepted(accepted) => accepted.seq(),
            Record::Started(_) => shell.commands.get(&self.number).map_or(1, |entry| entry.start_seq),
            Record::Chunk(chunk) => chunk.seq,
            Record::Ended(ended) => ended.seq,
            Record::Head(_)
            | Record::Spawning(_)
            | Record::Spawned(_)
            | Record::Cancelling(_)
            | Record::Drained(_)
            | Record::Evicted(_)
            | Record::Env(_)
            | Record::EnvApplied(_)
            | Record::Sums(_) => return Ok(()),
        };
        if seq > self.seen + 1 {
            return Err(lost_records());
        }
        self.seen = self.seen.max(seq);
        Ok(())
    }

    fn read(&mut self, shell: &Shell, chunk: &ChunkRecord) -> Result<Vec<u8>, Fault> {
        let slot = match chunk.stream {
            Stream::Stdout => &mut self.files[0],
            Stream::Stderr => &mut self.files[1],
        };
        let damaged = |error: std::io::Error| crate::sum::fault(chunk.stream, &error);
        let file = match slot {
            Some(file) => file,
            None => slot.insert(File::open(shell.journal.stream_path(self.number, chunk.stream)).map_err(damaged)?),
        };
        let mut bytes = vec![0; usize::try_from(chunk.length).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, chunk.offset).map_err(damaged)?;
        Ok(bytes)
    }
}

fn lost_records() -> Fault {
    Fault::new(FaultCode::Damaged, "the journal is damaged, and records of the command are lost")
}

/// Tells a shell's followers what is new, and lets those go that have heard all. Returns the connections that had no
/// room for more.
pub(crate) fn pump(shell: &mut Shell, connections: &mut BTreeMap<u32, Conn>) -> Vec<u32> {
    let mut held = Vec::new();
    let mut followers = std::mem::take(&mut shell.followers);
    followers.retain_mut(|follower| {
        let Some(conn) = connections.get_mut(&follower.connection) else { return false };
        let progress = follower.pump(shell, conn);
        match progress {
            Ok(Progress::Waiting) => return true,
            Ok(Progress::Held) => {
                held.push(follower.connection);
                return true;
            }
            Ok(Progress::Over) => match shell.command_info(follower.number) {
                Ok(mut info) => {
                    if follower.state {
                        info.state = shell.state_left_by(&info);
                    }
                    conn.reply(follower.request, &Reply::Command(Box::new(info)));
                }
                Err(fault) => conn.fault(follower.request, &fault),
            },
            Err(fault) => conn.fault(follower.request, &fault),
        }
        false
    });
    shell.followers.append(&mut followers);
    for (connection, request, answer) in std::mem::take(&mut shell.outbox) {
        let Some(conn) = connections.get_mut(&connection) else { continue };
        match answer {
            Ok(reply) => conn.reply(request, &reply),
            Err(fault) => conn.fault(request, &fault),
        }
    }
    held
}
