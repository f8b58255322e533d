//! The server's end of a steward's protocol: one connection, any number of requests at once.
//!
//! ```text
//! request ──► write half (one writer at a time) ──► steward
//! waiting  ◄── by request number ◄── reader task ◄──┘
//! ```
//!
//! What the steward says is another party's word: numbers we never used, frames that make no sense and a flood beyond
//! the credit given end the connection, nothing else.

use crate::provider::Channel;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stead_model::frame::{self, Chunk, Decoder, Frame, Kind};
use stead_model::ids::ShellId;
use stead_model::proto::{
    Attach, CommandInfo, Credit, Detached, Event, Fault, FaultCode, Hello, Reply, Request, Resize, Size, Type,
    VERSIONS, Welcome,
};
use stead_model::state::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

#[derive(Debug, Clone, thiserror::Error)]
pub enum StewardError {
    #[error("the connection to the steward broke: {0}")]
    Broken(String),
    #[error("the steward says what is not the protocol: {0}")]
    Protocol(String),
    #[error("the steward did not answer in time")]
    Silent,
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl StewardError {
    pub fn fault(&self) -> Option<FaultCode> {
        if let Self::Fault(fault) = self { Some(fault.code) } else { None }
    }
}

pub use stead_steward::client::Told;

enum Answer {
    Told(Told),
    Reply(Box<Reply>),
    Failed(StewardError),
}

/// How long a steward may take to greet, and to answer what it can answer at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// Credit for output in flight: what a slow reader may cost us in memory.
const CREDIT: u64 = 256 << 10;

/// The same where the steward says where output lies instead of sending it. What is held is then a place for each piece,
/// and each takes its share of the credit, however short.
const INDEX_CREDIT: u64 = 2 << 20;

/// How many events may wait to be heard: a command has two, and a few more where a disk is full.
const EVENTS: u32 = 1024;

/// What is written without a look at the clock.
const PIECE: usize = 64 << 10;

/// Who waits for answers.
struct Caller {
    answers: mpsc::UnboundedSender<Answer>,
    /// Output and events that it has not taken yet; absent where it asked for neither.
    unheard: Option<Unheard>,
}

#[derive(Debug, Clone, Copy)]
struct Unheard {
    bytes: u64,
    events: u32,
    /// How many bytes there may be.
    credit: u64,
}

impl Unheard {
    fn within(credit: u64) -> Self {
        Self { bytes: 0, events: 0, credit }
    }
}

type Waiting = Arc<Mutex<Result<HashMap<u32, Caller>, StewardError>>>;

/// Absent when the connection is over.
type Writing = Arc<tokio::sync::Mutex<Option<WriteHalf<Box<dyn Channel>>>>>;

/// One connection. Dropping it ends the connection; what was asked for goes on over there.
pub struct Steward {
    write: Writing,
    waiting: Waiting,
    /// The number of the next request.
    next: Arc<AtomicU32>,
    reader: AbortHandle,
    welcome: Welcome,
}

impl std::fmt::Debug for Steward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steward").field("welcome", &self.welcome).finish_non_exhaustive()
    }
}

impl Drop for Steward {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Steward {
    pub async fn greet(channel: Box<dyn Channel>) -> Result<Self, StewardError> {
        let (read, write) = tokio::io::split(channel);
        let waiting: Waiting = Arc::new(Mutex::new(Ok(HashMap::new())));
        let write: Writing = Arc::new(tokio::sync::Mutex::new(Some(write)));
        let next = Arc::new(AtomicU32::new(1));
        let ears = Ears { waiting: Arc::clone(&waiting), next: Arc::clone(&next) };
        let reader = tokio::spawn(listen(read, ears, Arc::clone(&write))).abort_handle();
        let welcome = Welcome { version: 0, build: String::new(), epoch: 0, pid: 0, keeper_pid: 0 };
        let mut steward = Self { write, waiting, next, reader, welcome };
        let hello = Hello { oldest: *VERSIONS.start(), newest: *VERSIONS.end(), client: "stead server".to_owned() };
        let reply = steward.request(&Request::Hello(hello)).await?;
        let Reply::Welcome(welcome) = reply else { return Err(unexpected(&reply)) };
        if !VERSIONS.contains(&welcome.version) {
            return Err(StewardError::Protocol(format!("it speaks version {}", welcome.version)));
        }
        steward.welcome = welcome;
        Ok(steward)
    }

    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Whether it is known to have broken.
    pub fn is_broken(&self) -> bool {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_err()
    }

    /// Asks something that is answered at once.
    pub async fn request(&self, request: &Request) -> Result<Reply, StewardError> {
        let mut following = self.send(request, None).await?;
        match tokio::time::timeout(PATIENCE, following.answers.recv()).await {
            Err(_) => Err(StewardError::Silent),
            Ok(Some(Answer::Reply(reply))) => Ok(*reply),
            Ok(Some(Answer::Failed(error))) => Err(error),
            Ok(Some(Answer::Told(_)) | None) => Err(self.why_broken()),
        }
    }

    /// Asks for a command's events; `request` is an `Exec` or a `Follow` with [`Self::credit`].
    pub async fn follow(&self, request: &Request) -> Result<Following<'_>, StewardError> {
        let index = matches!(request, Request::Follow(follow) if follow.index == Some(true));
        let credit = if index { INDEX_CREDIT } else { CREDIT };
        self.send(request, Some(Unheard::within(credit))).await
    }

    pub fn credit() -> u64 {
        CREDIT
    }

    /// The same for a `Follow` of the index.
    pub fn index_credit() -> u64 {
        INDEX_CREDIT
    }

    /// Looks at a shell's terminal, with [`Self::credit`] to begin with.
    pub async fn attend(self: &Arc<Self>, shell: ShellId, size: Size) -> Result<Attending, StewardError> {
        let (id, answers) = self.expect(Some(Unheard::within(CREDIT)))?;
        let attending = Attending { steward: Arc::clone(self), id, answers: tokio::sync::Mutex::new(answers) };
        self.write(id, &Request::Attach(Attach { shell, size, credit: CREDIT })).await?;
        Ok(attending)
    }

    /// A number for a request, and where its answers will come.
    fn expect(&self, unheard: Option<Unheard>) -> Result<(u32, mpsc::UnboundedReceiver<Answer>), StewardError> {
        let id = self.next.fetch_add(1, Ordering::SeqCst);
        let (answers, heard) = mpsc::unbounded_channel();
        match &mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) {
            Ok(waiting) => waiting.insert(id, Caller { answers, unheard }),
            Err(error) => return Err(error.clone()),
        };
        Ok((id, heard))
    }

    /// Gives credit back to a request. Credit has no answer: it goes under a number of its own, for which nobody waits.
    async fn give_credit(&self, request: u32, bytes: u64) -> Result<(), StewardError> {
        let id = self.next.fetch_add(1, Ordering::SeqCst);
        self.write(id, &Request::Credit(Credit { request, bytes })).await
    }

    /// What a caller has taken no longer counts as unheard.
    fn heard(&self, id: u32, told: &Told) {
        let (bytes, events) = cost(told);
        if let Ok(waiting) = &mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
            && let Some(unheard) = waiting.get_mut(&id).and_then(|caller| caller.unheard.as_mut())
        {
            unheard.bytes = unheard.bytes.saturating_sub(bytes);
            unheard.events = unheard.events.saturating_sub(events);
        }
    }

    async fn send(&self, request: &Request, unheard: Option<Unheard>) -> Result<Following<'_>, StewardError> {
        let credit = unheard.map_or(CREDIT, |unheard| unheard.credit);
        let (id, heard) = self.expect(unheard)?;
        let following = Following { steward: self, id, answers: heard, taken: 0, credit };
        self.write(id, request).await?;
        Ok(following)
    }

    async fn write(&self, id: u32, request: &Request) -> Result<(), StewardError> {
        let mut out = Vec::new();
        frame::write(&mut out, Kind::Request, id, &minicbor::to_vec(request).unwrap_or_default());
        let mut words = Words { steward: self, write: self.write.lock().await, whole: false };
        let Some(write) = words.write.as_mut() else { return Err(self.why_broken()) };
        for piece in out.chunks(PIECE) {
            let written = async {
                write.write_all(piece).await?;
                write.flush().await
            };
            match tokio::time::timeout(PATIENCE, written).await {
                Err(_) => return Err(StewardError::Silent),
                Ok(Err(error)) => return Err(StewardError::Broken(error.to_string())),
                Ok(Ok(())) => {}
            }
        }
        words.whole = true;
        Ok(())
    }

    fn why_broken(&self) -> StewardError {
        match &*self.waiting.lock().unwrap_or_else(PoisonError::into_inner) {
            Err(error) => error.clone(),
            Ok(_) => StewardError::Broken("it closed the connection".to_owned()),
        }
    }
}

/// A message on its way. What is cut short, because it fails or because nobody waits for it any more, can't be continued
/// by another: that is the end of the connection.
struct Words<'a> {
    steward: &'a Steward,
    write: tokio::sync::MutexGuard<'a, Option<WriteHalf<Box<dyn Channel>>>>,
    whole: bool,
}

impl Drop for Words<'_> {
    fn drop(&mut self) {
        if !self.whole {
            *self.write = None;
            self.steward.reader.abort();
            fail_all(&self.steward.waiting, &StewardError::Broken("a message was cut short".to_owned()));
        }
    }
}

fn unexpected(reply: &Reply) -> StewardError {
    StewardError::Protocol(format!("it answered another question: {reply:?}").chars().take(200).collect())
}

/// A request whose answer comes after events. Dropping it forgets it; the command goes on.
#[derive(Debug)]
pub struct Following<'a> {
    steward: &'a Steward,
    id: u32,
    answers: mpsc::UnboundedReceiver<Answer>,
    /// Output handed on, not yet given back as credit.
    taken: u64,
    credit: u64,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Answer")
    }
}

/// The next thing of a followed command.
#[derive(Debug)]
pub enum Next {
    Told(Told),
    Ended(Box<CommandInfo>),
}

impl Following<'_> {
    pub async fn next(&mut self) -> Result<Next, StewardError> {
        if self.taken >= self.credit / 2 {
            let taken = std::mem::take(&mut self.taken);
            self.steward.give_credit(self.id, taken).await?;
        }
        match self.answers.recv().await {
            Some(Answer::Told(told)) => {
                self.taken += cost(&told).0;
                self.steward.heard(self.id, &told);
                Ok(Next::Told(told))
            }
            Some(Answer::Reply(reply)) => {
                if let Reply::Command(info) = *reply {
                    Ok(Next::Ended(info))
                } else {
                    Err(unexpected(&reply))
                }
            }
            Some(Answer::Failed(error)) => Err(error),
            None => Err(self.steward.why_broken()),
        }
    }
}

impl Drop for Following<'_> {
    fn drop(&mut self) {
        if let Ok(waiting) = &mut *self.steward.waiting.lock().unwrap_or_else(PoisonError::into_inner) {
            waiting.remove(&self.id);
        }
    }
}

/// A terminal that is looked at. Dropping it forgets it here; the steward goes on until it is told to stop, or the
/// connection ends.
#[derive(Debug)]
pub struct Attending {
    steward: Arc<Steward>,
    id: u32,
    answers: tokio::sync::Mutex<mpsc::UnboundedReceiver<Answer>>,
}

/// What comes from a terminal.
#[derive(Debug)]
pub enum Seen {
    Told(Told),
    Detached(Detached),
}

/// How long a terminal may not take what is typed before the keys are given up.
const DEAF: Duration = Duration::from_secs(30);

impl Attending {
    /// The next thing to see. Whoever stops waiting for it loses nothing.
    pub async fn next(&self) -> Result<Seen, StewardError> {
        match self.answers.lock().await.recv().await {
            Some(Answer::Told(told)) => {
                self.steward.heard(self.id, &told);
                Ok(Seen::Told(told))
            }
            Some(Answer::Reply(reply)) => {
                if let Reply::Detached(why) = *reply {
                    Ok(Seen::Detached(why))
                } else {
                    Err(unexpected(&reply))
                }
            }
            Some(Answer::Failed(error)) => Err(error),
            None => Err(self.steward.why_broken()),
        }
    }

    /// So many bytes have gone where they were to go.
    pub async fn taken(&self, bytes: u64) -> Result<(), StewardError> {
        self.steward.give_credit(self.id, bytes).await
    }

    /// Types; returns when the terminal has it.
    pub async fn press(&self, keys: &[u8]) -> Result<(), StewardError> {
        self.ask(&Request::Type(Type { attachment: self.id, bytes: Bytes::from(keys) })).await
    }

    pub async fn resize(&self, size: Size) -> Result<(), StewardError> {
        self.ask(&Request::Resize(Resize { attachment: self.id, size })).await
    }

    pub async fn leave(&self) -> Result<(), StewardError> {
        self.ask(&Request::Detach(self.id)).await
    }

    async fn ask(&self, request: &Request) -> Result<(), StewardError> {
        let mut following = self.steward.send(request, None).await?;
        match tokio::time::timeout(DEAF, following.answers.recv()).await {
            Err(_) => Err(StewardError::Silent),
            Ok(Some(Answer::Reply(_))) => Ok(()),
            Ok(Some(Answer::Failed(error))) => Err(error),
            Ok(Some(Answer::Told(_)) | None) => Err(self.steward.why_broken()),
        }
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        if let Ok(waiting) = &mut *self.steward.waiting.lock().unwrap_or_else(PoisonError::into_inner) {
            waiting.remove(&self.id);
        }
    }
}

/// What is needed to tell an answer from anything else.
struct Ears {
    waiting: Waiting,
    next: Arc<AtomicU32>,
}

/// Reads until the connection ends, and gives each answer to whoever waits for it.
async fn listen(mut read: ReadHalf<Box<dyn Channel>>, ears: Ears, write: Writing) {
    let why = match receive(&mut read, &ears).await {
        Ok(()) => StewardError::Broken("it closed the connection".to_owned()),
        Err(error) => error,
    };
    fail_all(&ears.waiting, &why);
    // Both halves: who floods us is not to wait until somebody asks again.
    drop(read);
    write.lock().await.take();
}

/// Ends the waiting of all, and of whoever comes later. The first reason stays.
fn fail_all(waiting: &Waiting, why: &StewardError) {
    let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    if let Ok(callers) = &mut *waiting {
        for caller in std::mem::take(callers).into_values() {
            let _ = caller.answers.send(Answer::Failed(why.clone()));
        }
        *waiting = Err(why.clone());
    }
}

async fn receive(read: &mut ReadHalf<Box<dyn Channel>>, ears: &Ears) -> Result<(), StewardError> {
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let bytes = read.read(&mut buffer).await.map_err(|error| StewardError::Broken(error.to_string()))?;
        if bytes == 0 {
            return Ok(());
        }
        decoder.push(buffer.get(..bytes).unwrap_or_default());
        while let Some(frame) = decoder.next_frame().map_err(|error| StewardError::Protocol(error.to_string()))? {
            ears.hear(&frame)?;
        }
    }
}

impl Ears {
    fn hear(&self, frame: &Frame) -> Result<(), StewardError> {
        let protocol = |message: &str| Err(StewardError::Protocol(message.to_owned()));
        if frame.request == 0 || frame.request >= self.next.load(Ordering::SeqCst) {
            return protocol("it answers what was never asked");
        }
        let (answer, last) = answer(frame)?;
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(callers) = &mut *waiting else { return Ok(()) };
        // Nobody: whoever asked has gone.
        let Some(caller) = callers.get_mut(&frame.request) else { return Ok(()) };
        if let Answer::Told(told) = &answer {
            let Some(unheard) = &mut caller.unheard else {
                return protocol("it tells of a command to who asked something else");
            };
            // Chunks are never cut, so the last one may go beyond.
            if unheard.bytes >= unheard.credit || unheard.events >= EVENTS {
                return protocol("it says more than it has credit for");
            }
            let (bytes, events) = cost(told);
            (unheard.bytes, unheard.events) = (unheard.bytes.saturating_add(bytes), unheard.events + events);
        }
        let _ = caller.answers.send(answer);
        if last {
            callers.remove(&frame.request);
        }
        Ok(())
    }
}

/// Of what is waiting to be heard: bytes of output, and things without any.
fn cost(told: &Told) -> (u64, u32) {
    match told {
        Told::Output(chunk) if !chunk.bytes.is_empty() => (chunk.bytes.len() as u64, 0),
        Told::Event(Event::Piece(piece)) => (piece.cost(), 0),
        Told::Output(_) | Told::Event(_) => (0, 1),
    }
}

/// What a frame says, and whether it is the last one of its request.
fn answer(frame: &Frame) -> Result<(Answer, bool), StewardError> {
    let unreadable = |error: minicbor::decode::Error| StewardError::Protocol(error.to_string());
    Ok(match frame.kind {
        Kind::Reply => (Answer::Reply(minicbor::decode(&frame.payload).map_err(unreadable)?), true),
        Kind::Fault => {
            let fault: Fault = minicbor::decode(&frame.payload).map_err(unreadable)?;
            (Answer::Failed(StewardError::Fault(fault)), true)
        }
        Kind::Event => (Answer::Told(Told::Event(minicbor::decode(&frame.payload).map_err(unreadable)?)), false),
        Kind::Data => {
            let chunk = Chunk::decode(&frame.payload).map_err(|error| StewardError::Protocol(error.to_string()))?;
            (Answer::Told(Told::Output(chunk)), false)
        }
        Kind::Request => return Err(StewardError::Protocol("it asks instead of answering".to_owned())),
    })
}
