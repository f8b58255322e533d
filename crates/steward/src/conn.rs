//! One client's connection.

use crate::host::{Host, Source};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use stead_model::frame::{self, Chunk, Decoder, Frame, Kind};
use stead_model::proto::{Event, Fault, Reply};
use stead_term::poll::Interest;

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) id: u32,
    stream: UnixStream,
    decoder: Decoder,
    /// Answers that the client has not yet taken. Output stops going in at [`FULL`], and no further request is read at
    /// [`STUFFED`]; so it is bounded by that plus one answer.
    out: Vec<u8>,
    sent: usize,
    watching: Interest,
    pub(crate) greeted: bool,
    pub(crate) room: Room,
}

/// Whether there is a descriptor for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Free,
    /// For long enough to be told that there is none.
    Lent,
}

/// Enough to keep a socket busy until the next turn.
const FULL: usize = 256 << 10;
const STUFFED: usize = 4 << 20;

/// What a connection had to say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Frames(Vec<Frame>),
    /// It is gone, or said something that isn't our protocol.
    Over,
}

impl Conn {
    pub(crate) fn new(host: &Host, id: u32, stream: UnixStream, room: Room) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        host.poller.add(&stream, Source::Connection(id).token(), Interest::Read)?;
        Ok(Self {
            id,
            stream,
            decoder: Decoder::default(),
            out: Vec::new(),
            sent: 0,
            watching: Interest::Read,
            greeted: false,
            room,
        })
    }

    /// Reads what has come. One read is enough: if there is more, the poller says so again.
    pub(crate) fn receive(&mut self) -> Input {
        if self.out.len() - self.sent > STUFFED {
            return Input::Frames(Vec::new());
        }
        // On the stack: a connection that says nothing costs nothing.
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => return Input::Over,
            Ok(read) => self.decoder.push(buffer.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Input::Frames(Vec::new()),
            Err(_) => return Input::Over,
        }
        let mut frames = Vec::new();
        loop {
            match self.decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => return Input::Frames(frames),
                Err(error) => {
                    note!("steward: connection {}: {error}", self.id);
                    return Input::Over;
                }
            }
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.out.len() - self.sent > FULL
    }

    pub(crate) fn reply(&mut self, request: u32, reply: &Reply) {
        self.put(Kind::Reply, request, &minicbor::to_vec(reply).unwrap_or_default());
    }

    pub(crate) fn fault(&mut self, request: u32, fault: &Fault) {
        self.put(Kind::Fault, request, &minicbor::to_vec(fault).unwrap_or_default());
    }

    pub(crate) fn event(&mut self, request: u32, event: &Event) {
        self.put(Kind::Event, request, &minicbor::to_vec(event).unwrap_or_default());
    }

    pub(crate) fn data(&mut self, request: u32, chunk: &Chunk) {
        self.put(Kind::Data, request, &chunk.encode());
    }

    fn put(&mut self, kind: Kind, request: u32, payload: &[u8]) {
        frame::write(&mut self.out, kind, request, payload);
    }

    /// Sends as much as the socket takes, and watches for room if that isn't all. `false`: the client is gone.
    pub(crate) fn flush(&mut self, host: &Host) -> bool {
        while let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(0) => return false,
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // One that always lags a little behind would have us keep all that it ever took.
                    if self.sent > FULL {
                        self.out.drain(..self.sent);
                        self.sent = 0;
                    }
                    return self.watch(host, Interest::ReadWrite);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        self.out.clear();
        self.sent = 0;
        if self.out.capacity() > 1 << 20 {
            self.out = Vec::new();
        }
        self.watch(host, Interest::Read)
    }

    pub(crate) fn has_output(&self) -> bool {
        self.sent < self.out.len()
    }

    fn watch(&mut self, host: &Host, interest: Interest) -> bool {
        if self.watching == interest {
            return true;
        }
        self.watching = interest;
        host.poller.change(&self.stream, Source::Connection(self.id).token(), interest).is_ok()
    }

    pub(crate) fn close(self, host: &Host) {
        let _ = host.poller.remove(&self.stream);
    }
}
