//! Standard input of a command: nothing, bytes given beforehand (a file), or a pipe that is written to as it runs.

use super::{Running, Shell};
use crate::host::{Host, Source, What};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;
use stead_model::proto::{Fault, FaultCode, Reply, Stdin};
use stead_term::fifo;
use stead_term::poll::Interest;

#[derive(Debug)]
pub(super) struct Input {
    path: PathBuf,
    /// Our end of the pipe; `None` for a file, or after it was closed.
    pipe: Option<File>,
    waiting: VecDeque<Waiting>,
    watched: bool,
}

/// Bytes that a client sent and the pipe has not yet taken. The client is answered when it has: an acknowledged byte is
/// in the kernel, and the keeper holds the pipe.
#[derive(Debug)]
struct Waiting {
    connection: u32,
    request: u32,
    bytes: Vec<u8>,
    written: usize,
    eof: bool,
}

/// How much one client may have waiting at a pipe that nobody reads.
const MOST_WAITING: usize = 16;

impl Input {
    pub(super) fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }
}

impl Shell {
    pub(super) fn make_input(&mut self, host: &mut Host, number: u64, stdin: &Stdin) -> io::Result<Option<Input>> {
        let path = self.place(&format!("i.{number}"));
        let pipe = match stdin {
            Stdin::Empty | Stdin::Terminal => return Ok(None),
            Stdin::Bytes(bytes) => {
                super::spawn::write_private(&path, bytes)?;
                None
            }
            Stdin::Open => {
                fifo::make(&path)?;
                // Both ends, so that the shell's opening of it waits for nobody.
                let pipe = fifo::open_both(&path)?;
                host.link.park(&self.parked(&format!("i:{number}")), &pipe)?;
                Some(File::from(pipe))
            }
        };
        Ok(Some(Input { path, pipe, waiting: VecDeque::new(), watched: false }))
    }

    /// The input of a command that a new steward found running.
    pub(super) fn adopt_input(&self, number: u64, stdin: &Stdin, pipe: Option<OwnedFd>) -> Option<Input> {
        if matches!(stdin, Stdin::Empty | Stdin::Terminal) {
            return None;
        }
        let path = self.place(&format!("i.{number}"));
        Some(Input { path, pipe: pipe.map(File::from), waiting: VecDeque::new(), watched: false })
    }

    /// Bytes for the running command. `Ok` means: answered later, through the outbox.
    pub(crate) fn write_input(
        &mut self,
        host: &mut Host,
        number: u64,
        from: (u32, u32),
        bytes: Vec<u8>,
        eof: bool,
    ) -> Result<(), Fault> {
        let refused = |message: &str| Err(Fault::new(FaultCode::Conflict, message));
        let Some(running) = self.running.as_mut().filter(|running| running.number == number) else {
            return refused("the command is not running");
        };
        let Some(input) = running.input.as_mut().filter(|input| input.pipe.is_some()) else {
            return refused("the command's standard input is not open");
        };
        if input.waiting.len() >= MOST_WAITING {
            return Err(Fault::new(FaultCode::LimitReached, "the command does not read its standard input"));
        }
        input.waiting.push_back(Waiting { connection: from.0, request: from.1, bytes, written: 0, eof });
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
        while let (Some(waiting), Some(pipe)) = (input.waiting.front_mut(), &mut input.pipe) {
            let rest = waiting.bytes.get(waiting.written..).unwrap_or_default();
            if !rest.is_empty() {
                match pipe.write(rest) {
                    Ok(written) => waiting.written += written,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        if !input.watched {
                            input.watched =
                                host.poller.add(&*pipe, Source::Input(key).token(), Interest::ReadWrite).is_ok();
                        }
                        return;
                    }
                    Err(error) => {
                        let fault = super::io_fault("can't write to standard input", &error);
                        self.outbox.push((waiting.connection, waiting.request, Err(fault)));
                        input.waiting.pop_front();
                        host.news.insert(key);
                    }
                }
                continue;
            }
            if waiting.eof && !begun {
                // A FIFO that nobody holds would lose its bytes, and the shell would wait for ever to open it. There is
                // no event for its opening; it happens within a millisecond or the shell is busy with something else.
                host.after(Duration::from_millis(1), key, What::Input);
                return;
            }
            self.outbox.push((waiting.connection, waiting.request, Ok(Reply::Done)));
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
        super::spawn::remove(&input.path);
        for waiting in input.waiting {
            let fault = Fault::new(FaultCode::Conflict, "the command ended before it had read this");
            let answer = if waiting.written == waiting.bytes.len() { Ok(Reply::Done) } else { Err(fault) };
            self.outbox.push((waiting.connection, waiting.request, answer));
        }
    }
}
