//! Commands by their id, whoever asked for them: what became of one, its input, its end. Nothing here wakes anything.

use super::execute::with_info;
use super::{Inner, Stead};
use crate::error::Error;
use crate::lease::LeaseError;
use crate::provider::{Access, in_time};
use crate::runtime::RuntimeError;
use crate::seat::Seat;
use crate::steward::{Steward, StewardError};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use stead_model::command::Command;
use stead_model::frame::Stream;
use stead_model::ids::{CommandId, LeaseId};
use stead_model::lease::{Lease, Observed};
use stead_model::proto::{
    Cancel, CommandInfo, Ending, Fault, FaultCode, FirstSignal, Read, ReadBytes, Reply, Request, Status, StdinBytes,
    Warning,
};
use stead_model::state::Bytes;

/// How long a cancellation is waited for: from the first signal to KILL it takes five seconds.
const CANCELLED_WITHIN: Duration = Duration::from_secs(10);

/// How long it is tried to reach what runs a command, and to find out what became of that.
const FOUND_WITHIN: Duration = Duration::from_secs(20);

/// Bytes for the standard input of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    pub bytes: Vec<u8>,
    /// Close it behind these bytes.
    pub eof: bool,
    /// Where in all that the command is ever sent they begin.
    pub offset: Option<u64>,
}

/// What came of asking for something of a command.
enum Reached {
    Ended(Command),
    Answered(Command, Reply),
    /// It runs where nothing is remembered.
    Unremembered(Command, Arc<Seat>),
}

impl Stead {
    /// A command's record, as it is now.
    pub async fn command(&self, id: &CommandId) -> Result<Command, Error> {
        let row = row(&self.inner, id).await?;
        Ok(self.inner.newest_of(row).await)
    }

    /// Ends a command early, and waits for that. One that has ended stays as it ended; one whose instance is gone is found
    /// to be lost.
    pub async fn cancel(&self, id: &CommandId, first: FirstSignal) -> Result<Command, Error> {
        let row = match self.reach(id, &Request::Cancel(Cancel { command: id.clone(), first })).await? {
            Reached::Ended(row) => return Ok(row),
            Reached::Answered(row, _) => row,
            Reached::Unremembered(row, seat) => {
                seat.runtime.cancel(id, first).await?;
                row
            }
        };
        // It may have ended by now; then the first thing that is heard is its end, or that nothing is kept of it.
        if let Ok(mut follow) = self.follow(&row.id, u64::MAX - 1, false).await {
            let ended = async { while let Some(Ok(_)) = follow.next().await {} };
            let _ = tokio::time::timeout(CANCELLED_WITHIN, ended).await;
        }
        self.command(id).await
    }

    /// Writes to the standard input of a command that was started with an open one. With an offset, which is the place of
    /// the first byte in all that it is ever sent, what has arrived before is passed over. Says how much has arrived then.
    pub async fn send_stdin(&self, id: &CommandId, input: Input) -> Result<Option<u64>, Error> {
        let Input { bytes, eof, offset } = input;
        let until = offset.map(|offset| offset.saturating_add(bytes.len() as u64));
        let stdin = Request::Stdin(StdinBytes { command: id.clone(), bytes: Bytes(bytes), eof, offset });
        match self.reach(id, &stdin).await? {
            Reached::Ended(_) => Err(Error::Conflict(format!("`{id}` has ended and reads nothing any more"))),
            Reached::Answered(_, Reply::Taken(taken)) => Ok(Some(taken)),
            // A steward from before there was such an answer.
            Reached::Answered(_, _) => Ok(until),
            Reached::Unremembered(..) => {
                Err(Error::Unsupported("commands on this provider can't be written to while they run".to_owned()))
            }
        }
    }

    /// Asks the steward that runs a command for something, as long as it runs. A steward or an instance that is gone is
    /// waited for until it is known what became of the command.
    async fn reach(&self, id: &CommandId, request: &Request) -> Result<Reached, Error> {
        let until = tokio::time::Instant::now() + FOUND_WITHIN;
        let mut pause = Duration::from_millis(10);
        loop {
            let row = row(&self.inner, id).await?;
            if row.status.is_final() {
                return Ok(Reached::Ended(row));
            }
            let why = match self.inner.reader(&row.lease).await {
                Ok(Some(steward)) => match steward.request(request).await {
                    Ok(reply) => return Ok(Reached::Answered(row, reply)),
                    // It may be on its way there, or what was there has forgotten it.
                    Err(StewardError::Fault(fault)) if fault.code == FaultCode::NotFound => Error::Refused(fault),
                    Err(StewardError::Fault(fault)) => return Err(Error::Refused(fault)),
                    Err(error) if may_be_repeated(request) => RuntimeError::Broken(error).into(),
                    // Whether it arrived, nobody knows; a second time it might be too much.
                    Err(error) => {
                        return Err(Error::InputUnclear { command: id.to_string(), why: error.to_string() });
                    }
                },
                Ok(None) => match self.inner.seat(&row.terminal) {
                    Some(seat) if !seat.runtime.remembers() => return Ok(Reached::Unremembered(row, seat)),
                    _ if self.inner.is_paused(&row.lease).await => {
                        return Err(LeaseError::Paused(row.lease).into());
                    }
                    _ => Error::Broken("its instance is gone, or being replaced".to_owned()),
                },
                Err(error) if super::follow::is_break(&error) => error,
                Err(error) => return Err(error),
            };
            if tokio::time::Instant::now() >= until {
                let message = format!("`{id}` can't be reached just now: {why}");
                return Err(Error::Broken(message));
            }
            // Whoever watches over it writes down what became of it, if somebody can say.
            super::watch::look(&self.inner).await;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    /// A piece of one of its streams. Shorter than asked for where the stream ends, or there is no more of it yet.
    pub async fn read_output(
        &self,
        id: &CommandId,
        stream: Stream,
        offset: u64,
        length: u64,
    ) -> Result<ReadBytes, Error> {
        let row = row(&self.inner, id).await?;
        let read = Request::Read(Read { command: id.clone(), stream, offset, length });
        match self.inner.ask_of(&row, &read).await {
            Ok(Some(Reply::Bytes(read))) => return Ok(read),
            Ok(_) => {}
            // It ran on an instance before this one, and what that left is elsewhere.
            Err(Error::Refused(fault)) if fault.code == FaultCode::NotFound => {}
            Err(error) => return Err(error),
        }
        super::follow::read_past(&self.inner, &row, stream, offset, length).await
    }
}

/// Whether it does no harm to ask for something a second time, when the first was perhaps heard.
fn may_be_repeated(request: &Request) -> bool {
    !matches!(request, Request::Stdin(StdinBytes { offset: None, .. }))
}

/// The row of a command; those of a moment ago are still on their way to the store.
pub(super) async fn row(inner: &Inner, id: &CommandId) -> Result<Command, Error> {
    let store = &inner.core.store;
    match store.command(id).await? {
        Some(row) if row.status.is_final() => Ok(row),
        _ => {
            inner.ledger.flush().await;
            let row = match (store.command(id).await?, inner.ledger.unwritten(id)) {
                (Some(row), Some(unwritten)) => Some(row.joined(unwritten)),
                (row, unwritten) => row.or(unwritten),
            };
            row.ok_or_else(|| Error::NotFound { kind: "command", id: id.to_string() })
        }
    }
}

/// Whether something that it started may still have written when this was noted.
fn may_grow(row: &Command) -> bool {
    !row.status.is_final() || row.ending.as_ref().is_some_and(|ending| ending.streams_open)
}

impl Inner {
    /// A record brought up to what is known of it now: how far it has come, and what background children wrote after its
    /// end. What can't be asked is as it is written down.
    pub(super) async fn newest_of(&self, row: Command) -> Command {
        if !may_grow(&row) {
            return row;
        }
        let known = match self.ask_of(&row, &Request::Command(row.id.clone())).await {
            Ok(Some(Reply::Command(info))) => self.describe(&row, &info).await,
            // It sleeps or is gone; its journal doesn't and isn't.
            Ok(None) => match super::follow::read(self, &row).await {
                Ok(Some(past)) => {
                    let mut info = past.info.clone();
                    if let Some(ending) = &mut info.ending {
                        ending.streams_open = !past.drained && self.is_asleep(&row.lease).await;
                    }
                    self.describe(&row, &info).await
                }
                Ok(None) | Err(_) => Ok(row.clone()),
            },
            Ok(Some(_)) => Ok(row.clone()),
            Err(error) => Err(error),
        };
        let known = match known {
            Ok(known) => known,
            Err(error) => {
                tracing::debug!(%error, command = %row.id, "can't be asked about");
                return row;
            }
        };
        if !known.status.is_final() {
            let was_queued = row.status == Status::Queued;
            let newest = row.joined(known);
            // Whoever is told that it runs is not to hear later that it waits, when its steward can't be asked.
            if was_queued && newest.status == Status::Running {
                self.ledger.note(newest.clone()).await;
            }
            return newest;
        }
        // Whoever is told that it has ended must hear the same tomorrow.
        self.settle(known).await.unwrap_or(row)
    }

    /// The end of a command as it stands, when an end is learnt of: the first that anybody wrote down, with what has been
    /// printed since. Whoever tells an end tells this one.
    pub(super) async fn settle(&self, learnt: Command) -> Result<Command, Error> {
        if self.ledger.end_of(&learnt).is_none()
            && let Some(row) = self.core.store.command(&learnt.id).await?
            && row.status.is_final()
        {
            let stands = row.clone().joined(learnt);
            return Ok(if stands == row { row } else { self.ledger.note(stands).await });
        }
        Ok(self.ledger.note(learnt).await)
    }

    /// The same for what a steward, or the journal that it left, says.
    pub(super) async fn settled(&self, row: &Command, info: &CommandInfo) -> Result<Command, Error> {
        self.settle(self.describe(row, info).await?).await
    }

    /// Whether a lease sleeps, and what runs in it can't be asked for anything until somebody wakes it.
    async fn is_paused(&self, lease: &LeaseId) -> bool {
        let looked = self.leases.look(lease, "read.status").await;
        looked.is_ok_and(|ready| ready.lease.observed == Observed::Paused)
    }

    /// Whether what runs in a lease may go on some time.
    async fn is_asleep(&self, lease: &LeaseId) -> bool {
        let looked = self.leases.look(lease, "read.status").await;
        looked.is_ok_and(|ready| !matches!(ready.lease.observed, Observed::None | Observed::Stopped))
    }

    /// Asks the steward that runs a command. `None`: there is none awake.
    pub(super) async fn ask_of(&self, row: &Command, request: &Request) -> Result<Option<Reply>, Error> {
        let Some(steward) = self.reader(&row.lease).await? else { return Ok(None) };
        match steward.request(request).await {
            Ok(reply) => Ok(Some(reply)),
            Err(StewardError::Fault(fault)) => Err(Error::Refused(fault)),
            Err(error) => Err(RuntimeError::Broken(error).into()),
        }
    }

    /// A connection to a lease's steward for somebody who only wants to know. Wakes nothing.
    pub(super) async fn reader(&self, lease: &LeaseId) -> Result<Option<Arc<Steward>>, Error> {
        let known = {
            let readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
            readers.get(lease).and_then(std::sync::Weak::upgrade)
        };
        // One that sleeps doesn't answer: what its owner last saw counts, also for a connection that is open.
        let ready = match self.leases.look(lease, "read.status").await {
            Err(LeaseError::NotFound(_)) => return Ok(None),
            ready => ready?,
        };
        if ready.lease.observed != Observed::Running {
            return Ok(None);
        }
        if let Some(steward) = known.filter(|steward| !steward.is_broken()) {
            return Ok(Some(steward));
        }
        let Some(handle) = ready.handle() else { return Ok(None) };
        let provider = self.core.provider(&ready.lease.provider)?;
        let steward = match in_time(provider.name(), "connect", provider.access(&handle)).await {
            Ok(Access::Steward(channel)) => match Steward::greet(channel).await {
                Ok(steward) => Arc::new(steward),
                Err(error) => return self.unless_gone(&ready.lease, RuntimeError::from(error).into()).await,
            },
            Ok(Access::OneShot(_) | Access::Runtime(_)) => return Ok(None),
            Err(error) => return self.unless_gone(&ready.lease, error.into()).await,
        };
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|_, reader| reader.strong_count() > 0);
        readers.insert(lease.clone(), Arc::downgrade(&steward));
        Ok(Some(steward))
    }

    /// What can't be reached may have died since it was last seen: then there is none. Else it is an error.
    async fn unless_gone<T>(&self, lease: &Lease, error: Error) -> Result<Option<T>, Error> {
        match self.leases.look_anew(lease, "read.status").await {
            Ok(ready) if ready.lease.observed != Observed::Running => Ok(None),
            Ok(_) | Err(_) => Err(error),
        }
    }

    /// A record brought up to what its steward says, with paths as they are shown and without secrets.
    pub(super) async fn describe(&self, row: &Command, info: &CommandInfo) -> Result<Command, Error> {
        let mut told = with_info(row, info);
        if let Some(lease) = self.core.store.lease(&row.lease).await? {
            let provider = self.core.provider(&lease.provider)?;
            told.cwd = Bytes(provider.surroundings(&lease.workspace).stored(&told.cwd));
        }
        let veil = super::env::Veil::of(self, &row.terminal).await?;
        told.cwd = Bytes(veil.over(&told.cwd));
        super::execute::veil(&mut told, |text| veil.over_text(text));
        Ok(told)
    }
}

impl Inner {
    /// The same for whoever must write it down whatever happens: what can't be told for certain is left out.
    pub(super) async fn described(&self, row: &Command, info: &CommandInfo) -> Command {
        self.describe(row, info).await.unwrap_or_else(|error| {
            tracing::warn!(%error, command = %row.id, "written down without its directory");
            let mut told = Command { cwd: Bytes::default(), ..with_info(row, info) };
            super::execute::veil(&mut told, |_| String::new());
            told
        })
    }
}

/// Whether a command has printed so much to a stream, or may have, when nothing of it is kept any more.
pub(super) fn is_missing(command: &Command, bytes: u64) -> bool {
    bytes > 0 || command.status == Status::Lost
}

/// The record of a command as it is answered when its output would be, too, and is no longer kept. Only the answer says so:
/// the record itself has not changed.
pub(super) fn without_output(mut command: Command) -> Command {
    if is_missing(&command, command.stdout_bytes.max(command.stderr_bytes)) {
        let message = "the output of this command is no longer kept".to_owned();
        let ending = command.ending.get_or_insert_with(|| Ending::new(command.status, None));
        ending.warnings.push(Warning { code: "output_evicted".to_owned(), message });
    }
    command
}

/// The output of a command was removed, or never was where it could be kept.
pub(super) fn gone() -> Error {
    Error::Refused(Fault::new(FaultCode::Gone, "the output of this command is no longer kept"))
}

/// Why something of a command can't be read from its journal.
pub(super) fn unreadable(what: &str, error: &std::io::Error) -> Error {
    let damaged = |message: String| Error::Refused(Fault::new(FaultCode::Damaged, message));
    if error.kind() == std::io::ErrorKind::InvalidData {
        return damaged(error.to_string());
    }
    if error.kind() == std::io::ErrorKind::UnexpectedEof {
        return damaged(format!("{what} is damaged on the disk: it is cut short"));
    }
    Error::Io(format!("{what} can't be read: {error}"))
}
