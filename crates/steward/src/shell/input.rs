//! Standard input of a command: nothing, bytes given beforehand (a file), or a pipe that is written to as it runs.
//!
//! Who sends bytes with their place wants each of them to arrive once, whoever dies on the way. Such bytes lie in a file
//! in memory, which the keeper has, too. Its length is how much was accepted; its position is how much is in the pipe, and
//! moves with the bytes in one call of the kernel. It outlives the closing of the pipe, so that who repeats the last bytes
//! and the end of file is told that both have arrived.

use super::{Running, Shell};
use crate::host::{Host, Source, What};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;
use stead_model::proto::{Fault, FaultCode, Reply, Stdin, StdinBytes};
use stead_term::fifo::{self, Moved};
use stead_term::poll::Interest;

#[derive(Debug)]
pub(super) struct Input {
    path: PathBuf,
    /// Our end of the pipe; `None` for a file, or after it was closed.
    pipe: Option<File>,
    waiting: VecDeque<Waiting>,
    watched: bool,
    /// What was sent with its place.
    spool: Option<File>,
    /// Something was sent without.
    unplaced: bool,
}

/// Bytes that a client sent and the pipe has not yet taken. The client is answered when it has: an acknowledged byte is
/// in the kernel, and the keeper holds the pipe.
#[derive(Debug)]
struct Waiting {
    connection: u32,
    request: u32,
    bytes: Sent,
    eof: bool,
}

#[derive(Debug)]
enum Sent {
    Here {
        bytes: Vec<u8>,
        written: usize,
    },
    /// In the spool, up to there.
    Spooled(u64),
}

/// How much one client may have waiting at a pipe that nobody reads.
const MOST_WAITING: usize = 16;

impl Input {
    pub(super) fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn spool(&self) -> Option<BorrowedFd<'_>> {
        self.spool.as_ref().map(AsFd::as_fd)
    }

    fn new(path: PathBuf, pipe: Option<File>, spool: Option<File>) -> Self {
        Self { path, pipe, waiting: VecDeque::new(), watched: false, spool, unplaced: false }
    }

    /// Adds what is new of bytes that begin at a place; returns where they end.
    fn accept(&mut self, bytes: &[u8], offset: u64) -> Result<u64, Fault> {
        let Some(spool) = self.spool.as_ref().filter(|_| !self.unplaced) else {
            return Err(Fault::new(FaultCode::Conflict, "bytes were sent before without their place"));
        };
        let length = length(spool)?;
        let known = known_of(length, offset)?;
        let new = bytes.get(known..).unwrap_or_default();
        if !new.is_empty() && self.pipe.is_none() {
            return Err(Fault::new(FaultCode::Conflict, "the command's standard input is closed"));
        }
        spool.write_all_at(new, length).map_err(|error| super::io_fault("can't keep the input", &error))?;
        Ok(offset + bytes.len() as u64)
    }

    /// What is answered to somebody whose bytes have arrived.
    fn taken(&self, sent: &Sent) -> Reply {
        match (sent, &self.spool) {
            (Sent::Here { .. }, _) | (_, None) => Reply::Done,
            (Sent::Spooled(until), Some(spool)) => Reply::Taken(length(spool).unwrap_or(*until)),
        }
    }

    /// Moves on what is first in the line. `None`: the pipe is full.
    fn pass_on(&mut self) -> Option<io::Result<()>> {
        let (Some(waiting), Some(pipe)) = (self.waiting.front_mut(), &mut self.pipe) else { return Some(Ok(())) };
        let moved = match &mut waiting.bytes {
            Sent::Here { bytes, written } => pass_bytes(pipe, bytes, written),
            Sent::Spooled(until) => self.spool.as_mut().map_or(Ok(()), |spool| pass_spooled(pipe, spool, *until)),
        };
        match moved {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            moved => Some(moved),
        }
    }
}

fn length(spool: &File) -> Result<u64, Fault> {
    Ok(spool.metadata().map_err(|error| super::io_fault("can't look at the input", &error))?.len())
}

/// How many of the bytes that begin at a place have arrived before, if there are so many. Bytes that would leave a gap are
/// refused.
fn known_of(length: u64, offset: u64) -> Result<usize, Fault> {
    let known = length.checked_sub(offset).map(|known| usize::try_from(known).unwrap_or(usize::MAX));
    known.ok_or_else(|| {
        let message = format!("the input has {length} bytes; those before {offset} are missing");
        Fault { expected: Some(length), ..Fault::new(FaultCode::Conflict, message) }
    })
}

fn pass_bytes(pipe: &mut File, bytes: &[u8], written: &mut usize) -> io::Result<()> {
    while let Some(rest) = bytes.get(*written..).filter(|rest| !rest.is_empty()) {
        *written += pipe.write(rest)?;
    }
    Ok(())
}

fn pass_spooled(pipe: &File, spool: &mut File, until: u64) -> io::Result<()> {
    loop {
        let position = spool.stream_position()?;
        if position >= until {
            // What was read out of the pipe is needed no more.
            fifo::forget_beginning(&*spool, position.saturating_sub(fifo::pending(pipe)?));
            return Ok(());
        }
        match fifo::push(&*spool, pipe, until - position)? {
            Moved::Bytes(_) => {}
            Moved::Empty | Moved::NoSpace => return Err(io::ErrorKind::WouldBlock.into()),
            Moved::Closed => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Shell {
    pub(super) fn make_input(&mut self, host: &mut Host, number: u64, stdin: &Stdin) -> io::Result<Option<Input>> {
        let path = self.place(&format!("i.{number}"));
        let (pipe, spool) = match stdin {
            Stdin::Empty | Stdin::Terminal => return Ok(None),
            Stdin::Bytes(bytes) => {
                super::spawn::write_private(&path, bytes)?;
                (None, None)
            }
            Stdin::Open => {
                fifo::make(&path)?;
                // Both ends, so that the shell's opening of it waits for nobody.
                let pipe = fifo::open_both(&path)?;
                host.link.park(&self.parked(&format!("i:{number}")), &pipe)?;
                let spool = fifo::unnamed("input")?;
                host.link.park(&self.parked(&format!("q:{number}")), &spool)?;
                (Some(File::from(pipe)), Some(File::from(spool)))
            }
        };
        Ok(Some(Input::new(path, pipe, spool)))
    }

    /// The input of a command that a new steward found running.
    pub(super) fn adopt_input(
        &self,
        number: u64,
        stdin: &Stdin,
        (pipe, spool): (Option<OwnedFd>, Option<OwnedFd>),
    ) -> Option<Input> {
        if matches!(stdin, Stdin::Empty | Stdin::Terminal) {
            return None;
        }
        let path = self.place(&format!("i.{number}"));
        Some(Input::new(path, pipe.map(File::from), spool.map(File::from)))
    }

    /// Bytes for the running command. `Ok` means: answered later, through the outbox.
    pub(crate) fn write_input(
        &mut self,
        host: &mut Host,
        number: u64,
        from: (u32, u32),
        stdin: StdinBytes,
    ) -> Result<(), Fault> {
        let refused = |message: &str| Err(Fault::new(FaultCode::Conflict, message));
        if self.queue.contains(&number) {
            let message = "the command waits for its turn; it can be written to when it runs";
            return Err(Fault::new(FaultCode::Busy, message));
        }
        let Some(running) = self.running.as_mut().filter(|running| running.number == number) else {
            return refused("the command has ended and reads nothing any more");
        };
        let placed = stdin.offset.is_some();
        let is_open = |input: &&mut Input| input.pipe.is_some() || (placed && input.spool.is_some());
        let Some(input) = running.input.as_mut().filter(is_open) else {
            return refused("the command's standard input is not open");
        };
        if input.waiting.len() >= MOST_WAITING {
            return Err(Fault::new(FaultCode::LimitReached, "the command does not read its standard input"));
        }
        let bytes = if let Some(offset) = stdin.offset {
            Sent::Spooled(input.accept(&stdin.bytes, offset)?)
        } else {
            input.unplaced = true;
            Sent::Here { bytes: stdin.bytes.0, written: 0 }
        };
        if input.pipe.is_none() {
            // All of it had arrived before the end.
            self.outbox.push((from.0, from.1, Ok(input.taken(&bytes))));
            host.news.insert(self.key);
            return Ok(());
        }
        input.waiting.push_back(Waiting { connection: from.0, request: from.1, bytes, eof: stdin.eof });
        self.input_ready(host);
        Ok(())
    }

    /// The pipe has room, or something new waits for it.
    pub(crate) fn input_ready(&mut self, host: &mut Host) {
        let key = self.key;
        let begun = self.running.as_ref().is_some_and(|running| self.has_begun(host, running.pair));
        let Some(running) = &mut self.running else { return };
        let Some(input) = &mut running.input else { return };
        let mut close = false;
        loop {
            let passed = input.pass_on();
            let (Some(waiting), Some(pipe)) = (input.waiting.front(), &input.pipe) else { break };
            match passed {
                None => {
                    if !input.watched {
                        input.watched = host.poller.add(pipe, Source::Input(key).token(), Interest::ReadWrite).is_ok();
                    }
                    return;
                }
                Some(Err(error)) => {
                    let fault = super::io_fault("can't write to standard input", &error);
                    self.outbox.push((waiting.connection, waiting.request, Err(fault)));
                    input.waiting.pop_front();
                    host.news.insert(key);
                    continue;
                }
                Some(Ok(())) => {}
            }
            if waiting.eof && !begun {
                // A FIFO that nobody holds would lose its bytes, and the shell would wait for ever to open it. There is
                // no event for its opening; it happens within a millisecond or the shell is busy with something else.
                host.after(Duration::from_millis(1), key, What::Input);
                return;
            }
            self.outbox.push((waiting.connection, waiting.request, Ok(input.taken(&waiting.bytes))));
            host.news.insert(key);
            close = waiting.eof;
            input.waiting.pop_front();
            if close {
                break;
            }
        }
        if let Some(pipe) = input.pipe.as_ref().filter(|_| input.watched) {
            let _ = host.poller.remove(pipe);
            input.watched = false;
        }
        if close {
            let number = running.number;
            input.pipe = None;
            host.link.unpark(&self.parked(&format!("i:{number}")));
        }
    }

    /// The command has ended: nobody is to read it any more.
    pub(super) fn close_input(&mut self, host: &mut Host, running: &mut Running) {
        let Some(input) = running.input.take() else { return };
        if let Some(pipe) = &input.pipe {
            if input.watched {
                let _ = host.poller.remove(pipe);
            }
            host.link.unpark(&self.parked(&format!("i:{}", running.number)));
        }
        if input.spool.is_some() {
            host.link.unpark(&self.parked(&format!("q:{}", running.number)));
        }
        super::spawn::remove(&input.path);
        let mut input = input;
        for waiting in std::mem::take(&mut input.waiting) {
            let fault = Fault::new(FaultCode::Conflict, "the command ended before it had read this");
            let is_in = match &waiting.bytes {
                Sent::Here { bytes, written } => *written == bytes.len(),
                Sent::Spooled(until) => {
                    let spool = input.spool.as_ref().map(|mut spool| spool.stream_position());
                    spool.is_some_and(|position| position.is_ok_and(|position| position >= *until))
                }
            };
            let answer = if is_in { Ok(input.taken(&waiting.bytes)) } else { Err(fault) };
            self.outbox.push((waiting.connection, waiting.request, answer));
        }
    }
}
