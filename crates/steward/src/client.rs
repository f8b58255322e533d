//! A client that waits: for the command line, for tests and benchmarks, and as the example of how to speak the
//! protocol. [`Client`] is one connection; [`Client::run`] also survives the death of the steward, by connecting again
//! and going on from the last event it saw.

use crate::dir::{Dir, DirError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use stead_model::frame::{self, Chunk, Decoder, Frame, FrameError, Kind, Stream};
use stead_model::ids::{CommandId, ShellId};
use stead_model::proto::{
    Attach, CommandInfo, Credit, Detached, Event, Exec, Fault, FaultCode, Follow, Hello, Reply, Request, Resize, Size,
    Type, VERSIONS, Welcome,
};
use stead_model::state::Bytes;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Dir(#[from] DirError),
    #[error("no steward answers in `{dir}`; start one with `stead steward start --dir {dir}`", dir = .0.display())]
    Connect(PathBuf, #[source] io::Error),
    #[error("the connection to the steward broke")]
    Broken(#[source] io::Error),
    #[error("the steward says what is not the protocol")]
    Frame(#[from] FrameError),
    #[error("the steward says what is not the protocol")]
    Decode(#[from] minicbor::decode::Error),
    #[error("the steward answered another question")]
    Unexpected,
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl ClientError {
    pub fn fault(&self) -> Option<FaultCode> {
        if let Self::Fault(fault) = self { Some(fault.code) } else { None }
    }
}

/// What a followed command has to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Event(Event),
    Output(Chunk),
}

impl Told {
    /// Its place in the sequence, if it has one.
    pub fn seq(&self) -> Option<u64> {
        match self {
            Self::Event(Event::Queued(at) | Event::Started(at) | Event::Ended(at)) => Some(at.seq),
            Self::Event(Event::Piece(piece)) => Some(piece.seq),
            Self::Event(
                Event::Stalled(_) | Event::ShellEnded(_) | Event::Resized(_) | Event::Entered(_) | Event::Advanced(_),
            ) => None,
            Self::Output(chunk) => Some(chunk.seq),
        }
    }
}

/// A finished command with its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub info: CommandInfo,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

pub struct Client {
    read: Box<dyn Read + Send>,
    write: Box<dyn Write + Send>,
    decoder: Decoder,
    buffer: Vec<u8>,
    next_request: u32,
    welcome: Welcome,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("welcome", &self.welcome).finish_non_exhaustive()
    }
}

/// Stewards that may die in a row while they greet us.
const GREETINGS: u32 = 100;

/// Credit to begin with, and what it is topped up by: enough that the steward needn't wait for us.
const CREDIT: u64 = 4 << 20;
const TOP_UP: u64 = 1 << 20;

impl Client {
    pub fn connect(dir: &Path, name: &str) -> Result<Self, ClientError> {
        let refused = |error| ClientError::Connect(dir.to_owned(), error);
        let place = Dir::open(dir).map_err(|_| refused(io::ErrorKind::NotFound.into()))?;
        let mut tries = 0;
        loop {
            let stream = place.connect().map_err(refused)?;
            let read = stream.try_clone().map_err(refused)?;
            match Self::over(Box::new(read), Box::new(stream), name) {
                // It died while it greeted us; the keeper is starting the next one.
                Err(ClientError::Broken(_)) if tries < GREETINGS => tries += 1,
                client => return client,
            }
        }
    }

    /// Over any pair of byte streams, such as the standard streams of `steward connect`.
    pub fn over(read: Box<dyn Read + Send>, write: Box<dyn Write + Send>, name: &str) -> Result<Self, ClientError> {
        let welcome = Welcome { version: 0, build: String::new(), epoch: 0, pid: 0, keeper_pid: 0 };
        let mut client =
            Self { read, write, decoder: Decoder::default(), buffer: vec![0; 64 << 10], next_request: 1, welcome };
        let hello = Hello { oldest: *VERSIONS.start(), newest: *VERSIONS.end(), client: name.to_owned() };
        let Reply::Welcome(welcome) = client.request(&Request::Hello(hello))? else {
            return Err(ClientError::Unexpected);
        };
        client.welcome = welcome;
        Ok(client)
    }

    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Asks something that has one answer.
    pub fn request(&mut self, request: &Request) -> Result<Reply, ClientError> {
        let id = self.send(request)?;
        self.receive(id, &mut |_| {})
    }

    /// Asks for a command's events and gives each to `tell`; then what became of it.
    pub fn follow(&mut self, request: &Request, tell: &mut dyn FnMut(Told)) -> Result<CommandInfo, ClientError> {
        let id = self.send(request)?;
        let Reply::Command(info) = self.receive(id, tell)? else { return Err(ClientError::Unexpected) };
        Ok(*info)
    }

    /// Runs a command and waits for its end.
    pub fn exec(&mut self, exec: Exec) -> Result<Outcome, ClientError> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let exec = Exec { follow: Some(CREDIT), ..exec };
        let info = self.follow(&Request::Exec(Box::new(exec)), &mut |told| {
            if let Told::Output(chunk) = told {
                match chunk.stream {
                    Stream::Stdout => stdout.extend_from_slice(&chunk.bytes),
                    Stream::Stderr => stderr.extend_from_slice(&chunk.bytes),
                }
            }
        })?;
        Ok(Outcome { info, stdout, stderr })
    }

    /// Runs a command to its end through any number of lost connections: its id makes it run once, its sequence
    /// numbers make each event be told once. `connect` makes the next connection.
    pub fn run(
        exec: &Exec,
        connect: &mut dyn FnMut() -> Result<Self, ClientError>,
        tell: &mut dyn FnMut(Told),
    ) -> Result<CommandInfo, ClientError> {
        let mut seen = 0;
        loop {
            let mut client = match connect() {
                // It died while it greeted us. (A refusal is final: the keeper holds the socket, so a steward that
                // is being started again refuses nobody.)
                Err(ClientError::Broken(_)) => continue,
                client => client?,
            };
            let request = if seen == 0 {
                Request::Exec(Box::new(Exec { follow: Some(CREDIT), ..exec.clone() }))
            } else {
                let command = exec.command.clone();
                Request::Follow(Follow { command, after: seen, credit: CREDIT, late: false, state: None, index: None })
            };
            let mut told = |event: Told| {
                let fresh = event.seq().is_none_or(|seq| seq > seen);
                seen = event.seq().unwrap_or(seen).max(seen);
                if fresh {
                    tell(event);
                }
            };
            match client.follow(&request, &mut told) {
                Err(ClientError::Broken(_)) => {}
                result => return result,
            }
        }
    }

    /// The events of a command after a place in its sequence.
    pub fn follow_from(
        &mut self,
        command: &CommandId,
        after: u64,
        late: bool,
        tell: &mut dyn FnMut(Told),
    ) -> Result<CommandInfo, ClientError> {
        let follow = Follow { command: command.clone(), after, credit: CREDIT, late, state: None, index: None };
        self.follow(&Request::Follow(follow), tell)
    }

    pub fn send(&mut self, request: &Request) -> Result<u32, ClientError> {
        let id = self.next_request;
        self.next_request = self.next_request.wrapping_add(1);
        let mut out = Vec::new();
        frame::write(&mut out, Kind::Request, id, &minicbor::to_vec(request).unwrap_or_default());
        self.write.write_all(&out).and_then(|()| self.write.flush()).map_err(ClientError::Broken)?;
        Ok(id)
    }

    /// Waits for the answer to a request, handing on what comes before it. Answers to other requests are passed over.
    pub fn receive(&mut self, id: u32, tell: &mut dyn FnMut(Told)) -> Result<Reply, ClientError> {
        let mut taken = 0;
        loop {
            let frame = self.next_frame()?;
            if frame.request != id {
                continue;
            }
            match frame.kind {
                Kind::Reply => return Ok(minicbor::decode(&frame.payload)?),
                Kind::Fault => return Err(ClientError::Fault(minicbor::decode(&frame.payload)?)),
                Kind::Event => tell(Told::Event(minicbor::decode(&frame.payload)?)),
                Kind::Data => {
                    let chunk = Chunk::decode(&frame.payload)?;
                    taken += chunk.bytes.len() as u64;
                    tell(Told::Output(chunk));
                    if taken >= TOP_UP {
                        self.send(&Request::Credit(Credit { request: id, bytes: taken }))?;
                        taken = 0;
                    }
                }
                Kind::Request => return Err(ClientError::Unexpected),
            }
        }
    }

    /// Looks at a shell's terminal.
    pub fn attach(mut self, shell: &ShellId, size: Size) -> Result<Attachment, ClientError> {
        let attach = Attach { shell: shell.clone(), size, credit: CREDIT };
        let id = self.send(&Request::Attach(attach))?;
        Ok(Attachment { client: self, id, taken: 0 })
    }

    fn next_frame(&mut self) -> Result<Frame, ClientError> {
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return Ok(frame);
            }
            match self.read.read(&mut self.buffer) {
                Ok(0) => return Err(ClientError::Broken(io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => self.decoder.push(self.buffer.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ClientError::Broken(error)),
            }
        }
    }
}

/// A terminal that is looked at. Dropping it leaves the terminal as it is.
#[derive(Debug)]
pub struct Attachment {
    client: Client,
    id: u32,
    taken: u64,
}

/// What comes from a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Bytes(Vec<u8>),
    Event(Event),
    /// Keys or a size that were refused.
    Refused(Fault),
    /// Keys or a size that were taken.
    Taken(u32),
    Detached(Detached),
}

impl Attachment {
    /// Waits for the next thing to see.
    pub fn recv(&mut self) -> Result<Seen, ClientError> {
        let frame = self.client.next_frame()?;
        let ours = frame.request == self.id;
        match frame.kind {
            Kind::Data => {
                let bytes = Chunk::decode(&frame.payload)?.bytes;
                self.taken += bytes.len() as u64;
                if self.taken >= TOP_UP {
                    let bytes = std::mem::take(&mut self.taken);
                    self.client.send(&Request::Credit(Credit { request: self.id, bytes }))?;
                }
                Ok(Seen::Bytes(bytes))
            }
            Kind::Event => Ok(Seen::Event(minicbor::decode(&frame.payload)?)),
            Kind::Fault if ours => Err(ClientError::Fault(minicbor::decode(&frame.payload)?)),
            Kind::Fault => Ok(Seen::Refused(minicbor::decode(&frame.payload)?)),
            Kind::Reply if ours => {
                let Reply::Detached(why) = minicbor::decode(&frame.payload)? else {
                    return Err(ClientError::Unexpected);
                };
                Ok(Seen::Detached(why))
            }
            Kind::Reply => Ok(Seen::Taken(frame.request)),
            Kind::Request => Err(ClientError::Unexpected),
        }
    }

    /// Types; [`Seen::Taken`] says when the terminal has it.
    pub fn press(&mut self, keys: &[u8]) -> Result<u32, ClientError> {
        self.client.send(&Request::Type(Type { attachment: self.id, bytes: Bytes::from(keys) }))
    }

    pub fn resize(&mut self, size: Size) -> Result<u32, ClientError> {
        self.client.send(&Request::Resize(Resize { attachment: self.id, size }))
    }

    /// Leaves; [`Seen::Detached`] is the last thing to come.
    pub fn detach(&mut self) -> Result<u32, ClientError> {
        self.client.send(&Request::Detach(self.id))
    }
}
