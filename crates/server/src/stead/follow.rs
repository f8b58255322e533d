//! The events of a command, from any place in its sequence to its end: from its steward where that is awake, else from
//! the journal it left. Both number the events alike, so a reader goes from one to the other without noticing.
//!
//! ```text
//! awake ──► follow the steward ──ended──► over          breaks ─┐
//!   ▲                                                           ▼
//!   └──────── wakes ◄── asleep: what the journal has, then wait ◄── look at the lease
//!                        gone: what the journal has, then how it ended
//! ```

mod disk;

use super::commands::{gone, row, unreadable, without_output};
use super::{Inner, Stead};
use crate::error::Error;
use crate::lease::LeaseError;
use crate::provider::Trouble;
use crate::runtime::RuntimeError;
use crate::steward::{Next, Steward, Told};
use std::sync::Arc;
use std::time::Duration;
use stead_model::command::Command;
use stead_model::frame::{Chunk, Stream};
use stead_model::ids::{CommandId, ShellId};
use stead_model::lease::Observed;
use stead_model::proto::{self, At, CommandInfo, Event, FaultCode, ReadBytes, Reply, Request, Status};
use stead_model::state::Bytes;
use stead_steward::past::{self, PastCommand, PastEvent};
use tokio::sync::{mpsc, oneshot};

/// Events between the journal and a reader. Whoever is slower than that is waited for, and costs no more than this.
const AHEAD: usize = 4;

/// Breaks of the way to a steward that is alive, one after another.
const MOST_BREAKS: u32 = 100;

/// Whoever has been told nothing yet is told soon that it can't be followed.
const MOST_BREAKS_BEFORE: u32 = 10;

/// How long after a break it is tried again: longer each time, up to the second of these.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandEvent {
    Queued { seq: u64, at: u64 },
    Started { seq: u64, at: u64 },
    Output(Chunk),
    Ended { seq: u64, command: Box<Command> },
}

impl CommandEvent {
    /// As whoever runs the command hears it.
    pub(super) fn told(self) -> Told {
        match self {
            Self::Queued { seq, at } => Told::Event(Event::Queued(At { seq, at })),
            Self::Started { seq, at } => Told::Event(Event::Started(At { seq, at })),
            Self::Output(chunk) => Told::Output(chunk),
            Self::Ended { seq, command } => {
                let at = command.ended_at.map_or(0, |at| at.0.saturating_mul(1000));
                Told::Event(Event::Ended(At { seq, at }))
            }
        }
    }
}

/// What is told of a command whose output is no longer kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evicted {
    /// That it is gone, and nothing else.
    Refused,
    /// How it began and ended, and that its output is gone.
    LeftOut,
}

/// A command being followed. Dropping it stops nothing but the following.
#[derive(Debug)]
pub struct Follow {
    /// As it was when the following began.
    pub command: Command,
    events: mpsc::Receiver<Result<CommandEvent, Error>>,
}

impl Follow {
    /// The next event; none when there will be no more.
    pub async fn next(&mut self) -> Option<Result<CommandEvent, Error>> {
        self.events.recv().await
    }

    /// The next event if there is one now.
    pub(crate) fn try_next(&mut self) -> Option<Result<CommandEvent, Error>> {
        self.events.try_recv().ok()
    }
}

impl Stead {
    /// Follows a command from behind a place in its sequence; with `late` past its end, as long as something may still
    /// write.
    pub async fn follow(&self, id: &CommandId, after: u64, late: bool) -> Result<Follow, Error> {
        self.begin(id, after, late, false, Evicted::Refused).await
    }

    /// Follows a command that was asked for, perhaps not for the first time, from its beginning. If it ended long ago, and
    /// its output is no longer kept, its end is told without it.
    pub async fn follow_asked(&self, id: &CommandId) -> Result<Follow, Error> {
        self.begin(id, 0, false, false, Evicted::LeftOut).await
    }

    /// The same, but only what has happened so far.
    pub async fn replay(&self, id: &CommandId, after: u64, late: bool) -> Result<Follow, Error> {
        self.begin(id, after, late, true, Evicted::Refused).await
    }

    async fn begin(
        &self,
        id: &CommandId,
        after: u64,
        late: bool,
        only_past: bool,
        evicted: Evicted,
    ) -> Result<Follow, Error> {
        let command = row(&self.inner, id).await?;
        let (events, inbox) = mpsc::channel(AHEAD);
        let (opened, open) = oneshot::channel();
        let tail = Tail {
            inner: Arc::clone(&self.inner),
            row: command.clone(),
            seen: after,
            late,
            only_past,
            evicted,
            told_end: false,
            events,
            opened: Some(opened),
        };
        self.inner.core.tasks.spawn(tail.run());
        open.await.unwrap_or(Err(Error::Stopping))?;
        Ok(Follow { command, events: inbox })
    }
}

/// The task behind a [`Follow`].
struct Tail {
    inner: Arc<Inner>,
    row: Command,
    /// The last place that the reader has.
    seen: u64,
    late: bool,
    /// Nothing that comes later is waited for.
    only_past: bool,
    evicted: Evicted,
    told_end: bool,
    events: mpsc::Sender<Result<CommandEvent, Error>>,
    /// Told once: whether there is something to follow.
    opened: Option<oneshot::Sender<Result<(), Error>>>,
}

enum Step {
    Over,
    /// Look again what is there.
    Again,
}

/// The reader has left.
struct Left;

impl Tail {
    async fn run(mut self) {
        let stop = self.inner.core.hang_up.clone();
        let events = self.events.clone();
        tokio::select! {
            biased;
            () = events.closed() => {}
            () = stop.cancelled() => {}
            () = self.tell_all() => {}
        }
    }

    async fn tell_all(&mut self) {
        let (mut breaks, mut in_vain) = (0, 0);
        loop {
            let before = self.seen;
            let outcome = self.step().await;
            let most = if self.opened.is_some() { MOST_BREAKS_BEFORE } else { MOST_BREAKS };
            if self.seen > before {
                breaks = 0;
            }
            match outcome {
                // Who looks again and again in vain leaves time for what is waited for.
                Ok(Ok(Step::Again)) if self.seen == before => {
                    let [shortest, longest] = PAUSES;
                    tokio::time::sleep((shortest * in_vain).min(longest)).await;
                    in_vain += 1;
                }
                Ok(Ok(Step::Again)) => in_vain = 0,
                Ok(Ok(Step::Over)) | Err(Left) => return,
                // Its steward is being replaced, or its instance is.
                Ok(Err(error)) if breaks < most && is_break(&error) => {
                    breaks += 1;
                    let [shortest, longest] = PAUSES;
                    tokio::time::sleep((shortest * breaks).min(longest)).await;
                }
                Ok(Err(error)) => {
                    if let Some(opened) = self.opened.take() {
                        let _ = opened.send(Err(error));
                    } else {
                        let _ = self.events.send(Err(error)).await;
                    }
                    return;
                }
            }
        }
    }

    /// Tells what the source that is there has. The outer error is the reader's leaving.
    async fn step(&mut self) -> Result<Result<Step, Error>, Left> {
        if self.only_past {
            return self.so_far().await;
        }
        match self.inner.reader(&self.row.lease).await {
            Ok(Some(steward)) => match self.live(&steward).await? {
                // It was never there, or it was another steward's.
                Err(Error::Refused(fault)) if fault.code == FaultCode::NotFound => self.past(true).await,
                told => Ok(told),
            },
            Ok(None) => self.past(false).await,
            Err(error) => Ok(Err(error)),
        }
    }

    async fn live(&mut self, steward: &Arc<Steward>) -> Result<Result<Step, Error>, Left> {
        let known = match steward.request(&Request::Command(self.row.id.clone())).await {
            Ok(Reply::Command(info)) => info,
            Ok(_) => return Ok(Err(Error::Broken("it answered another question".to_owned()))),
            Err(error) => return Ok(Err(RuntimeError::from(error).into())),
        };
        if known.evicted {
            return self.without_output(Some(&known), None).await;
        }
        let mut disk = match disk::Disk::of(&self.inner, &self.row).await {
            Ok(disk) => disk,
            Err(error) => return Ok(Err(error)),
        };
        if let (Some(disk), Some(summed)) = (&disk, known.sums)
            && let Err(error) = disk.verify(&summed).await
        {
            return Ok(Err(error));
        }
        self.open();
        let follow = proto::Follow {
            command: self.row.id.clone(),
            after: self.seen,
            credit: if disk.is_some() { Steward::index_credit() } else { Steward::credit() },
            late: self.late,
            state: None,
            index: disk.is_some().then_some(true),
        };
        let mut following = match steward.follow(&Request::Follow(follow)).await {
            Ok(following) => following,
            Err(error) => return Ok(Err(RuntimeError::from(error).into())),
        };
        loop {
            match following.next().await {
                Ok(Next::Told(Told::Event(Event::Queued(at)))) => {
                    self.tell(CommandEvent::Queued { seq: at.seq, at: at.at }).await?;
                }
                Ok(Next::Told(Told::Event(Event::Started(at)))) => {
                    self.tell(CommandEvent::Started { seq: at.seq, at: at.at }).await?;
                }
                Ok(Next::Told(Told::Output(chunk))) => self.tell(CommandEvent::Output(chunk)).await?,
                Ok(Next::Told(Told::Event(Event::Piece(piece)))) => {
                    let Some(disk) = &mut disk else {
                        return Ok(Err(Error::Broken("it was asked for bytes and said where they are".to_owned())));
                    };
                    match disk.read(&piece).await {
                        Ok(chunk) => self.tell(CommandEvent::Output(chunk)).await?,
                        Err(error) => return Ok(Err(error)),
                    }
                }
                Ok(Next::Told(Told::Event(Event::Ended(at)))) => {
                    if let Err(error) = self.end_live(steward, at.seq).await? {
                        return Ok(Err(error));
                    }
                }
                Ok(Next::Told(Told::Event(_))) => {}
                Ok(Next::Ended(_)) => return Ok(Ok(Step::Over)),
                Err(error) => return Ok(Err(RuntimeError::from(error).into())),
            }
        }
    }

    async fn end_live(&mut self, steward: &Steward, seq: u64) -> Result<Result<(), Error>, Left> {
        let info = match steward.request(&Request::Command(self.row.id.clone())).await {
            Ok(Reply::Command(info)) => *info,
            Ok(_) => return Ok(Err(Error::Broken("it answered another question".to_owned()))),
            Err(error) => return Ok(Err(RuntimeError::from(error).into())),
        };
        match self.inner.settled(&self.row, &info).await {
            Ok(command) => {
                self.tell(CommandEvent::Ended { seq, command: Box::new(command) }).await?;
                Ok(Ok(()))
            }
            Err(error) => Ok(Err(error)),
        }
    }

    /// A command whose output was removed, or never was where it could be kept.
    async fn without_output(
        &mut self,
        info: Option<&CommandInfo>,
        past: Option<&PastCommand>,
    ) -> Result<Result<Step, Error>, Left> {
        if self.evicted == Evicted::Refused {
            return Ok(Err(gone()));
        }
        let command = match info {
            Some(info) => self.inner.settled(&self.row, info).await,
            None => Ok(self.row.clone()),
        };
        let command = match command {
            Ok(command) => command,
            Err(error) => return Ok(Err(error)),
        };
        let read = if past.is_none() { read(&self.inner, &self.row).await.ok().flatten() } else { None };
        let events = past.or(read.as_ref()).map_or(&[][..], |past| &past.events);
        self.open();
        for event in events {
            match event {
                PastEvent::Queued { seq, at } => self.tell(CommandEvent::Queued { seq: *seq, at: *at }).await?,
                PastEvent::Started { seq, at } => self.tell(CommandEvent::Started { seq: *seq, at: *at }).await?,
                PastEvent::Output(_) | PastEvent::Ended { .. } => {}
            }
        }
        let end = events.iter().rev().find(|event| matches!(event, PastEvent::Ended { .. })).map(PastEvent::seq);
        let seq = end.or(info.map(|info| info.last_seq)).unwrap_or(0).max(self.seen + 1);
        self.tell(CommandEvent::Ended { seq, command: Box::new(without_output(command)) }).await?;
        Ok(Ok(Step::Over))
    }

    /// What the journal has now. Where this machine can't read it, the steward has to be followed, and that ends with
    /// the command.
    async fn so_far(&mut self) -> Result<Result<Step, Error>, Left> {
        match read(&self.inner, &self.row).await {
            Ok(Some(past)) if past.info.evicted => self.without_output(Some(&past.info), Some(&past)).await,
            Ok(Some(past)) => {
                let mut past = match verified(past).await {
                    Ok(past) => past,
                    Err(error) => return Ok(Err(error)),
                };
                let over = self.row.status.is_final();
                if over && !past.info.status.is_final() {
                    past.add_what_was_left();
                }
                self.open();
                let last = past.info.last_seq;
                if let Err(error) = self.replay(past).await? {
                    return Ok(Err(error));
                }
                if over && !self.told_end {
                    // Its journal doesn't tell its end, and never will.
                    self.tell(CommandEvent::Ended { seq: last + 1, command: Box::new(self.row.clone()) }).await?;
                }
                Ok(Ok(Step::Over))
            }
            Ok(None) => {
                self.only_past = false;
                Ok(Ok(Step::Again))
            }
            Err(error) => Ok(Err(error)),
        }
    }

    /// From the journal alone. `unknown`: the steward that is there has never heard of it.
    async fn past(&mut self, unknown: bool) -> Result<Result<Step, Error>, Left> {
        let over = match self.is_over(unknown).await {
            Ok(over) => over,
            Err(error) => return Ok(Err(error)),
        };
        let past = match read(&self.inner, &self.row).await {
            Ok(past) => past,
            Err(error) => return Ok(Err(error)),
        };
        let mut last = 0;
        if let Some(past) = past {
            if past.info.evicted {
                return self.without_output(Some(&past.info), Some(&past)).await;
            }
            let mut past = match verified(past).await {
                Ok(past) => past,
                Err(error) => return Ok(Err(error)),
            };
            if over && !past.info.status.is_final() {
                past.add_what_was_left();
            }
            self.open();
            last = past.info.last_seq;
            if let Err(error) = self.replay(past).await? {
                return Ok(Err(error));
            }
        } else if over && has_begun(&self.row) {
            // It ran where nothing was kept.
            return self.without_output(None, None).await;
        } else {
            self.open();
        }
        if !over {
            self.inner.leases.change(&self.row.lease).await;
            return Ok(Ok(Step::Again));
        }
        if !self.told_end {
            self.tell(CommandEvent::Ended { seq: last + 1, command: Box::new(self.row.clone()) }).await?;
        }
        Ok(Ok(Step::Over))
    }

    /// Whether nothing more can come: it has ended, or what ran it is gone. Brings the row up to date.
    async fn is_over(&mut self, unknown: bool) -> Result<bool, Error> {
        self.row = row(&self.inner, &self.row.id).await?;
        if self.row.status.is_final() {
            return Ok(true);
        }
        let asleep = match self.inner.leases.look(&self.row.lease, "read.status").await {
            Err(LeaseError::NotFound(_)) => false,
            looked => !matches!(looked?.lease.observed, Observed::None | Observed::Stopped),
        };
        if !asleep || unknown {
            // Whoever watches over it writes down what became of it.
            super::watch::look(&self.inner).await;
            self.row = row(&self.inner, &self.row.id).await?;
        }
        Ok(self.row.status.is_final())
    }

    async fn replay(&mut self, past: PastCommand) -> Result<Result<(), Error>, Left> {
        let past = Arc::new(past);
        let (mut ended, after) = (false, self.seen);
        for event in past.events.iter().filter(|event| event.seq() > after) {
            match event {
                PastEvent::Queued { seq, at } => {
                    self.tell(CommandEvent::Queued { seq: *seq, at: *at }).await?;
                }
                PastEvent::Started { seq, at } => {
                    self.tell(CommandEvent::Started { seq: *seq, at: *at }).await?;
                }
                PastEvent::Output(chunk) if ended && !self.late => {
                    debug_assert!(chunk.late, "output after the end is late");
                }
                PastEvent::Output(chunk) => {
                    let (from, of) = (Arc::clone(&past), chunk.clone());
                    let read = tokio::task::spawn_blocking(move || {
                        let file = from.open(of.stream)?;
                        PastCommand::bytes(&file, &of)
                    });
                    let bytes = match read.await.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
                        Ok(bytes) => bytes,
                        // It was removed while we read.
                        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Err(gone())),
                        Err(error) => return Ok(Err(unreadable("the output", &error))),
                    };
                    let (seq, stream, offset, at, late) = (chunk.seq, chunk.stream, chunk.offset, chunk.at, chunk.late);
                    self.tell(CommandEvent::Output(Chunk { seq, stream, late, offset, at, bytes })).await?;
                }
                PastEvent::Ended { seq, .. } => {
                    ended = true;
                    let command = match self.inner.settled(&self.row, &past.info).await {
                        Ok(command) => command,
                        Err(error) => return Ok(Err(error)),
                    };
                    self.tell(CommandEvent::Ended { seq: *seq, command: Box::new(command) }).await?;
                }
            }
        }
        // Whoever had seen the end before needs no second one.
        self.told_end |= past.events.iter().any(|event| matches!(event, PastEvent::Ended { .. }));
        Ok(Ok(()))
    }

    fn open(&mut self) {
        if let Some(opened) = self.opened.take() {
            let _ = opened.send(Ok(()));
        }
    }

    async fn tell(&mut self, event: CommandEvent) -> Result<(), Left> {
        let seq = match &event {
            CommandEvent::Queued { seq, .. } | CommandEvent::Started { seq, .. } | CommandEvent::Ended { seq, .. } => {
                *seq
            }
            CommandEvent::Output(chunk) => chunk.seq,
        };
        if seq <= self.seen {
            return Ok(());
        }
        self.seen = seq;
        self.told_end |= matches!(event, CommandEvent::Ended { .. });
        self.events.send(Ok(event)).await.map_err(|_| Left)
    }
}

/// Whether it is the way to the steward that failed, which may do better in a moment.
pub(super) fn is_break(error: &Error) -> bool {
    matches!(error, Error::Broken(_) | Error::Lease(LeaseError::Unclear(_)))
        || matches!(error, Error::Lease(LeaseError::Provider(error)) if error.trouble != Trouble::Unsupported)
}

pub(super) async fn read(inner: &Inner, row: &Command) -> Result<Option<PastCommand>, Error> {
    let Some(lease) = inner.core.store.lease(&row.lease).await? else { return Ok(None) };
    let provider = inner.core.provider(&lease.provider)?;
    let Some(dir) = super::afar::journal(&**provider, &row.lease) else { return Ok(None) };
    super::afar::catch_up(inner, &row.lease).await?;
    let shell = ShellId::parse(row.terminal.as_str()).map_err(|error| Error::Invalid(error.to_string()))?;
    let id = row.id.clone();
    let read = tokio::task::spawn_blocking(move || past::command(&dir, &shell, &id)).await;
    let read = read.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    read.map_err(|error| unreadable("the journal", &error))
}

/// Looked at as a whole before any of it is told: whoever reads is told of damage, and not first of what may be wrong.
async fn verified(past: PastCommand) -> Result<PastCommand, Error> {
    let look = tokio::task::spawn_blocking(move || past.verify().map(|()| past)).await;
    look.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(|error| unreadable("the output", &error))
}

/// Whether somebody saw a command begin, or something of what it wrote.
fn has_begun(row: &Command) -> bool {
    row.started_at.is_some() || row.stdout_bytes > 0 || row.stderr_bytes > 0
}

/// A piece of a stream, from the journal alone.
pub(super) async fn read_past(
    inner: &Inner,
    row: &Command,
    stream: Stream,
    offset: u64,
    length: u64,
) -> Result<ReadBytes, Error> {
    let Some(past) = read(inner, row).await? else {
        // One of which nothing was ever seen has printed nothing.
        let nothing = ReadBytes { bytes: Bytes::default(), total: 0 };
        return if has_begun(row) { Err(gone()) } else { Ok(nothing) };
    };
    if past.info.evicted {
        return Err(gone());
    }
    let mut past = verified(past).await?;
    if row.status == Status::Lost {
        past.add_what_was_left();
    }
    let CommandInfo { stdout_bytes, stderr_bytes, .. } = past.info;
    let total = if stream == Stream::Stdout { stdout_bytes } else { stderr_bytes };
    let length = total.saturating_sub(offset).min(length);
    let read = tokio::task::spawn_blocking(move || {
        if length == 0 {
            return Ok(Vec::new());
        }
        let file = past.open(stream)?;
        let chunk = stead_model::record::ChunkRecord { number: 0, seq: 0, stream, offset, length, at: 0, late: false };
        PastCommand::bytes(&file, &chunk)
    });
    let bytes = read.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    let bytes = bytes.map_err(|error| unreadable("the output", &error))?;
    Ok(ReadBytes { bytes: Bytes(bytes), total })
}
