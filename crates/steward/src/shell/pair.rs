//! The two output FIFOs of a command, and moving their bytes into the journal.
//!
//! A pair whose writers are all gone serves the next command too, so a quiet command costs no system call for it. A
//! pair that a background child still holds stays with its command, as the source of late output, and the next command
//! gets another: output can't bleed from one command into the next.

use super::Shell;
use super::note::unfinished_at;
use crate::host::{Host, Source, What};
use crate::journal::{JournalError, Need};
use crate::left_output;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use stead_model::frame::Stream;
use stead_model::record::Record;
use stead_term::fifo::{self, Condition, Moved};
use stead_term::poll::Interest;

/// In the place of a pair: the command has the terminal for its streams.
pub(super) const NO_PAIR: u64 = 0;

/// What one turn of the loop moves from one stream; the others get their turn after it.
const SLICE: u64 = 1 << 20;

/// A command that has written this much may write much more: its pipe is made wide, so that it and we have to wake each
/// other less often.
const HEAVY: u64 = 256 << 10;
const WIDE: usize = 1 << 20;

/// How long a full disk is left alone.
const RETRY: Duration = Duration::from_millis(100);

/// How long a pipe or file that can't be used is left alone; each try is a line in the log.
const FAILED: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Pair {
    pub(super) owner: Option<u64>,
    ends: [End; 2],
    pace: Pace,
}

/// A command that writes line by line would have us note each line. After a few in quick succession its output is looked
/// at once a millisecond: nobody sees the difference, and both have more time for their work.
#[derive(Debug, Default)]
struct Pace {
    last: Option<Instant>,
    quick: u32,
    resting: bool,
    looking_since: Option<Instant>,
}

impl Pace {
    /// So much was moved. Returns whether to let more gather for a while.
    fn moved(&mut self, bytes: u64, now: Instant) -> bool {
        let soon = self.last.is_some_and(|last| now.duration_since(last) < GATHER * 2);
        self.quick = if soon && bytes < LITTLE { self.quick + 1 } else { 0 };
        self.last = Some(now);
        self.resting = self.quick >= QUICK;
        self.resting
    }
}

const GATHER: Duration = Duration::from_millis(1);
const QUICK: u32 = 16;
const LITTLE: u64 = 4 << 10;
const GULP: u64 = 256 << 10;
const LOOK_ON: Duration = Duration::from_micros(100);

#[derive(Debug)]
struct End {
    fifo: OwnedFd,
    basin: Option<Basin>,
    /// Opened with the first byte: most commands are silent on one stream at least.
    file: Option<File>,
}

/// Moving bytes from a pipe to a file locks the pipe for as long as copying them takes, and its writer waits. So what a
/// heavy writer wrote is first moved, without copying, to a pipe that nobody else uses.
#[derive(Debug)]
pub(super) struct Basin {
    out: OwnedFd,
    /// Absent in one that a steward before us left: it is emptied, and not filled again.
    into: Option<OwnedFd>,
}

impl End {
    /// Bytes that are on their way, and come before those in the FIFO.
    fn on_the_way(&self) -> io::Result<u64> {
        self.basin.as_ref().map_or(Ok(0), |basin| fifo::pending(&basin.out))
    }

    fn make_basin(&mut self, host: &Host, name: &str) -> io::Result<()> {
        // A predecessor's, once it is empty, makes way.
        if self.basin.as_ref().is_some_and(|basin| basin.into.is_some()) || self.on_the_way()? > 0 {
            return Ok(());
        }
        fifo::widen(&self.fifo, WIDE);
        let (out, into) = fifo::basin(WIDE)?;
        host.link.park(name, &out)?;
        host.heir.give(name, &out);
        self.basin = Some(Basin { out, into: Some(into) });
        Ok(())
    }

    /// Moves the next bytes to the file.
    fn advance(&self, file: &File, offset: u64, most: u64) -> io::Result<Moved> {
        let Some(basin) = &self.basin else { return fifo::splice(&self.fifo, file, offset, most) };
        let filled = fifo::pending(&basin.out)?;
        if filled > 0 {
            return fifo::splice(&basin.out, file, offset, filled.min(most));
        }
        match &basin.into {
            Some(into) if offset >= HEAVY => match fifo::pour(&self.fifo, into, most)? {
                Moved::Bytes(bytes) => fifo::splice(&basin.out, file, offset, bytes),
                end @ (Moved::Empty | Moved::Closed | Moved::NoSpace) => Ok(end),
            },
            _ => fifo::splice(&self.fifo, file, offset, most),
        }
    }
}

impl Pair {
    /// What keeper and heir are to have of it.
    pub(super) fn pipes(&self) -> impl Iterator<Item = (Kind, Stream, BorrowedFd<'_>)> {
        let basins = self
            .ends
            .iter()
            .zip(Stream::BOTH)
            .filter_map(|(end, stream)| end.basin.as_ref().map(|basin| (Kind::Basin, stream, basin.out.as_fd())));
        self.fifos().map(|(stream, fifo)| (Kind::Fifo, stream, fifo)).chain(basins)
    }

    pub(super) fn fifos(&self) -> impl Iterator<Item = (Stream, BorrowedFd<'_>)> {
        Stream::BOTH.into_iter().zip(self.ends.iter().map(|end| end.fifo.as_fd()))
    }
}

/// The two pipes that a stream may be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Fifo,
    Basin,
}

/// How far a pair could be emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Emptied {
    /// Nobody can write any more.
    Closed,
    /// Empty, but held by somebody.
    Open,
    /// There is more.
    More,
    /// The disk is full.
    Stalled,
}

impl Shell {
    /// A pair that nobody uses: the spare one, or a new one.
    pub(super) fn take_pair(&mut self, host: &mut Host) -> io::Result<u64> {
        match self.spare.take() {
            Some(pair) => Ok(pair),
            None => self.make_pair(host),
        }
    }

    /// Makes a pair and gives its reading ends to the keeper and the heir, before any byte can be in it.
    pub(super) fn make_pair(&mut self, host: &mut Host) -> io::Result<u64> {
        if !host.heir.is_there() {
            let Host { heir, dir, poller, link, open_files, .. } = host;
            heir.start(dir, poller, link, *open_files, &[])?;
        }
        let id = self.next_pair;
        self.next_pair += 1;
        let open = |stream: Stream| {
            let path = self.pair_path(id, stream);
            fifo::make(&path)?;
            let fifo = fifo::open_reader(&path)?;
            let name = self.parked_end(id, Kind::Fifo, stream);
            host.link.park(&name, &fifo)?;
            host.heir.give(&name, &fifo);
            Ok::<_, io::Error>(fifo)
        };
        let fifos = [open(Stream::Stdout)?, open(Stream::Stderr)?];
        self.adopt_pair(host, id, fifos.map(|fifo| (fifo, None)))?;
        Ok(id)
    }

    pub(super) fn adopt_pair(
        &mut self,
        host: &mut Host,
        id: u64,
        pipes: [(OwnedFd, Option<OwnedFd>); 2],
    ) -> io::Result<()> {
        for (fifo, _) in &pipes {
            host.poller.add(fifo, Source::Output(self.key, id).token(), Interest::ReadEdge)?;
        }
        let ends =
            pipes.map(|(fifo, basin)| End { fifo, basin: basin.map(|out| Basin { out, into: None }), file: None });
        self.pairs.insert(id, Pair { owner: None, ends, pace: Pace::default() });
        self.next_pair = self.next_pair.max(id + 1);
        Ok(())
    }

    pub(super) fn drop_pair(&mut self, host: &mut Host, id: u64) {
        let Some(pair) = self.pairs.remove(&id) else { return };
        for (end, stream) in pair.ends.iter().zip(Stream::BOTH) {
            let _ = host.poller.remove(&end.fifo);
            for kind in [Some(Kind::Fifo), end.basin.as_ref().map(|_| Kind::Basin)].into_iter().flatten() {
                let name = self.parked_end(id, kind, stream);
                host.link.unpark(&name);
                host.heir.take_back(&name);
            }
            super::spawn::remove(&self.pair_path(id, stream));
        }
    }

    pub(super) fn pair_path(&self, id: u64, stream: Stream) -> PathBuf {
        left_output::fifo_path(&self.run, id, stream)
    }

    pub(super) fn parked_end(&self, id: u64, kind: Kind, stream: Stream) -> String {
        let name = match (kind, stream) {
            (Kind::Fifo, Stream::Stdout) => "o",
            (Kind::Fifo, Stream::Stderr) => "e",
            (Kind::Basin, Stream::Stdout) => "bo",
            (Kind::Basin, Stream::Stderr) => "be",
        };
        self.parked(&format!("{name}:{id}"))
    }

    /// Gives a heavy stream a basin. Nothing is lost if there can be none.
    fn make_basin(&mut self, host: &Host, id: u64, stream: Stream) {
        let name = self.parked_end(id, Kind::Basin, stream);
        let end = self.pairs.get_mut(&id).and_then(|pair| pair.ends.get_mut(stream_index(stream)));
        if let Some(Err(error)) = end.map(|end| end.make_basin(host, &name)) {
            note!("steward: shell {}: can't make a wide pipe: {error}", self.open.shell);
        }
    }

    pub(super) fn own_pair(&mut self, id: u64, number: u64) {
        if let Some(pair) = self.pairs.get_mut(&id) {
            pair.owner = Some(number);
            pair.pace = Pace::default();
            for end in &mut pair.ends {
                end.file = None;
            }
        }
    }

    /// Whether the shell has opened the command's streams: it has begun.
    pub(super) fn has_begun(&self, host: &Host, id: u64) -> bool {
        let owner = self.pairs.get(&id).and_then(|pair| pair.owner);
        let written = owner.and_then(|number| self.commands.get(&number)).is_some_and(super::Entry::has_written);
        written || self.is_held(host, id) || self.has_read_trigger()
    }

    /// Whether the shell has read the whole line of a command that holds no pipe of its own.
    fn has_read_trigger(&self) -> bool {
        let read = |live: &super::Live| matches!(fifo::pending(&live.control), Ok(0));
        self.has_no_output_of_its_own() && self.live.as_ref().is_some_and(read)
    }

    /// Whether anybody has the streams open at this moment.
    pub(super) fn is_held(&self, host: &Host, id: u64) -> bool {
        if id == NO_PAIR {
            return self.has_terminal();
        }
        let held = |end: &End| !matches!(host.probe.look(&end.fifo), Ok(Condition::Closed));
        self.pairs.get(&id).is_some_and(|pair| pair.ends.iter().any(held))
    }

    /// Enough has had time to gather.
    pub(crate) fn output_gathered(&mut self, host: &mut Host, id: u64) {
        if let Some(pair) = self.pairs.get_mut(&id) {
            pair.pace.resting = false;
            self.output_ready(host, id);
        }
    }

    /// Something is in a pair: move one slice of it.
    pub(crate) fn output_ready(&mut self, host: &mut Host, id: u64) {
        if self.pairs.get(&id).is_none_or(|pair| pair.pace.resting) {
            return;
        }
        if self.may_gather(id) {
            rustix::thread::sched_yield();
            host.unread.insert((self.key, id));
            return;
        }
        let before = self.stream_bytes;
        let emptied = self.empty_pair(host, id, Upto::Slice);
        let moved = self.stream_bytes.saturating_sub(before);
        if let Some(pair) = self.pairs.get_mut(&id).filter(|_| moved > 0)
            && pair.pace.moved(moved, Instant::now())
        {
            host.after(GATHER, self.key, What::Gathered(id));
        }
        match emptied {
            Ok(Emptied::More) => {
                host.unread.insert((self.key, id));
            }
            Ok(Emptied::Closed) => self.pair_closed(host, id),
            Ok(Emptied::Open) => {}
            Ok(Emptied::Stalled) => host.after(RETRY, self.key, What::Retry),
            // Nobody tells us again of bytes that are there already: look once more.
            Err(error) => {
                note!("steward: shell {}: output: {error}", self.open.shell);
                host.after(FAILED, self.key, What::Retry);
            }
        }
    }

    /// A heavy writer fills its pipe in less time than it takes to put us to sleep and wake us: for a moment we only look
    /// on, and then move a lot at once.
    fn may_gather(&mut self, id: u64) -> bool {
        let Some(pair) = self.pairs.get_mut(&id) else { return false };
        let written = pair.owner.and_then(|number| self.commands.get(&number)).map_or([0, 0], |entry| entry.bytes);
        if written.iter().all(|bytes| *bytes < HEAVY) {
            return false;
        }
        let pending: u64 = pair.ends.iter().map(|end| fifo::pending(&end.fifo).unwrap_or(0)).sum();
        let begun = *pair.pace.looking_since.get_or_insert_with(Instant::now);
        let wait = pending > 0 && pending < GULP && begun.elapsed() < LOOK_ON;
        if !wait {
            pair.pace.looking_since = None;
        }
        wait
    }

    /// The disk may have room again.
    pub(crate) fn retry(&mut self, host: &mut Host) {
        for id in self.pairs.keys().copied().collect::<Vec<_>>() {
            self.output_ready(host, id);
        }
        self.retry_terminal(host);
        self.prompt_said(host);
        self.end_unended(host);
        self.finish_if_over(host);
        self.conclude_env(host);
        self.start_next(host);
    }

    /// Moves bytes from a pair into its command's files, and notes each piece in the journal.
    pub(super) fn empty_pair(&mut self, host: &mut Host, id: u64, upto: Upto) -> Result<Emptied, JournalError> {
        let Some(number) = self.pairs.get(&id).and_then(|pair| pair.owner) else { return Ok(Emptied::Open) };
        self.note_unnoted(host)?;
        if self.unnoted {
            self.set_stalled(host, number, true);
            return Ok(Emptied::Stalled);
        }
        let mut emptied = [Emptied::Open; 2];
        for stream in Stream::BOTH {
            let at = stream_index(stream);
            if let Some(slot) = emptied.get_mut(at) {
                *slot = self.empty_end(host, id, number, stream, upto)?;
            }
        }
        let stalled = emptied.contains(&Emptied::Stalled);
        self.set_stalled(host, number, stalled);
        Ok(match emptied {
            _ if stalled => Emptied::Stalled,
            _ if emptied.contains(&Emptied::More) => Emptied::More,
            [Emptied::Closed, Emptied::Closed] => Emptied::Closed,
            _ => Emptied::Open,
        })
    }

    fn empty_end(
        &mut self,
        host: &mut Host,
        id: u64,
        number: u64,
        stream: Stream,
        upto: Upto,
    ) -> Result<Emptied, JournalError> {
        let at = stream_index(stream);
        let held = self.commands.get(&number).and_then(|entry| entry.held.get(at).copied()).unwrap_or(0);
        let Some(pair) = self.pairs.get_mut(&id) else { return Ok(Emptied::Closed) };
        let Some(end) = pair.ends.get_mut(at) else { return Ok(Emptied::Closed) };
        let run = self.run.clone();
        let io_error = |source| JournalError::Io { path: run.clone(), source };
        let on_the_way = end.on_the_way().map_err(io_error)?;
        match host.probe.look(&end.fifo).map_err(io_error)? {
            Condition::Closed if on_the_way == 0 => return Ok(Emptied::Closed),
            Condition::Empty if on_the_way == 0 => return Ok(Emptied::Open),
            Condition::HasBytes | Condition::Closed | Condition::Empty => {}
        }
        let mut left = match upto {
            Upto::Slice => SLICE - held,
            Upto::Present => on_the_way + fifo::pending(&end.fifo).map_err(io_error)?,
        };
        loop {
            let Some(pair) = self.pairs.get_mut(&id) else { return Ok(Emptied::Closed) };
            let Some(end) = pair.ends.get_mut(at) else { return Ok(Emptied::Closed) };
            let Some(entry) = self.commands.get_mut(&number) else { return Ok(Emptied::Open) };
            let (Some(length), Some(held)) = (entry.bytes.get_mut(at), entry.held.get_mut(at)) else {
                return Ok(Emptied::Open);
            };
            if end.file.is_none() {
                end.file = match self.journal.open_stream(number, stream) {
                    Err(JournalError::NoSpace) => return Ok(Emptied::Stalled),
                    opened => Some(opened?.0),
                };
            }
            let Some(file) = &end.file else { return Ok(Emptied::Open) };
            // With what was held back it makes one chunk, and those have a limit.
            match end.advance(file, *length + *held, left.min(SLICE - *held)).map_err(io_error)? {
                Moved::Bytes(bytes) => {
                    let (offset, there) = (*length, *held + bytes);
                    *held = unfinished_at(file, offset, there);
                    let whole = there - *held;
                    *length += whole;
                    self.stream_bytes += whole;
                    left = left.saturating_sub(bytes);
                    if let Err(error) = self.note_chunk(host, number, stream, offset, whole) {
                        self.take_back(number, at, whole);
                        return if matches!(error, JournalError::NoSpace) { Ok(Emptied::Stalled) } else { Err(error) };
                    }
                    if offset + whole >= HEAVY {
                        self.make_basin(host, id, stream);
                    }
                    if left == 0 && upto == Upto::Slice {
                        return Ok(Emptied::More);
                    }
                    if left == 0 {
                        return self.after_present(host, id, stream);
                    }
                }
                Moved::Empty => return Ok(Emptied::Open),
                Moved::Closed => return Ok(Emptied::Closed),
                Moved::NoSpace => return Ok(Emptied::Stalled),
            }
        }
    }

    /// What was there has been moved; more may have come from background children, which is none of the command's end.
    fn after_present(&self, host: &Host, id: u64, stream: Stream) -> Result<Emptied, JournalError> {
        let end = self.pairs.get(&id).and_then(|pair| pair.ends.get(stream_index(stream)));
        let condition = end.map(|end| host.probe.look(&end.fifo)).transpose();
        let condition = condition.map_err(|source| JournalError::Io { path: self.run.clone(), source })?;
        Ok(if matches!(condition, Some(Condition::HasBytes | Condition::Empty)) {
            Emptied::Open
        } else {
            Emptied::Closed
        })
    }

    /// Nobody holds the pair any more. If its command has ended that was the last of it.
    fn pair_closed(&mut self, host: &mut Host, id: u64) {
        let Some(number) = self.pairs.get(&id).and_then(|pair| pair.owner) else { return };
        let ended = self.commands.get(&number).is_some_and(|entry| entry.ended.is_some());
        let noted = self.note_held(host, number);
        if noted.is_ok() && !ended {
            return;
        }
        let drained = noted.and_then(|()| self.journal.append(&[&Record::Drained(number)], Need::Last));
        if let Err(error) = drained {
            note!("steward: shell {}: {error}", self.open.shell);
            host.after(RETRY, self.key, What::Retry);
            return;
        }
        if let Some(entry) = self.commands.get_mut(&number) {
            entry.drained = true;
        }
        self.sum_later(host, number);
        host.news.insert(self.key);
        self.release_pair(host, id);
    }

    /// The pair is free: the spare one, if there is none.
    pub(super) fn release_pair(&mut self, host: &mut Host, id: u64) {
        if id == NO_PAIR {
            return;
        }
        if let Some(pair) = self.pairs.get_mut(&id) {
            pair.owner = None;
            for end in &mut pair.ends {
                end.file = None;
            }
        }
        if self.spare.is_none() { self.spare = Some(id) } else { self.drop_pair(host, id) }
    }

    fn set_stalled(&mut self, host: &mut Host, number: u64, stalled: bool) {
        if let Some(running) =
            self.running.as_mut().filter(|running| running.number == number && running.stalled != stalled)
        {
            running.stalled = stalled;
            host.news.insert(self.key);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Upto {
    /// A fair share.
    Slice,
    /// What is there at this moment: when a command has reported its end, all that it wrote is.
    Present,
}

pub(crate) fn stream_index(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}
