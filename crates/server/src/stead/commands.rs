//! Commands by their id, whoever asked for them: what became of one, its input, its end. Nothing here wakes anything.

use super::execute::with_info;
use super::{Inner, Stead};
use crate::error::Error;
use crate::lease::LeaseError;
use crate::provider::{Access, in_time};
use crate::runtime::RuntimeError;
use crate::steward::{Steward, StewardError};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use stead_model::command::Command;
use stead_model::frame::Stream;
use stead_model::ids::{CommandId, LeaseId};
use stead_model::lease::{Lease, Observed};
use stead_model::proto::{
    Cancel, CommandInfo, Ending, Fault, FaultCode, FirstSignal, Read, ReadBytes, Reply, Request, StdinBytes,
};
use stead_model::state::Bytes;

/// How long a cancellation is waited for: from the first signal to KILL it takes five seconds.
const CANCELLED_WITHIN: Duration = Duration::from_secs(10);

impl Stead {
    /// A command's record, as it is now.
    pub async fn command(&self, id: &CommandId) -> Result<Command, Error> {
        let row = row(&self.inner, id).await?;
        Ok(self.inner.newest_of(row).await)
    }

    /// Ends a command early, and waits for that. One that has ended stays as it ended.
    pub async fn cancel(&self, id: &CommandId, first: FirstSignal) -> Result<Command, Error> {
        let row = row(&self.inner, id).await?;
        if row.status.is_final() {
            return Ok(row);
        }
        // Followed from before the signal, so that its end can't be missed.
        let mut follow = self.follow(id, u64::MAX - 1, false).await?;
        let cancel = Request::Cancel(Cancel { command: id.clone(), first });
        match self.inner.ask_of(&row, &cancel).await? {
            Some(_) => {}
            None => match self.inner.seat(&row.terminal) {
                Some(seat) if !seat.runtime.remembers() => {
                    seat.runtime.cancel(id, first).await?;
                }
                _ => return Err(LeaseError::Paused(row.lease).into()),
            },
        }
        let ended = async { while let Some(Ok(_)) = follow.next().await {} };
        let _ = tokio::time::timeout(CANCELLED_WITHIN, ended).await;
        self.command(id).await
    }

    /// Writes to the standard input of a command that was started with an open one.
    pub async fn send_stdin(&self, id: &CommandId, bytes: Vec<u8>, eof: bool) -> Result<(), Error> {
        let row = row(&self.inner, id).await?;
        if row.status.is_final() {
            return Err(Error::Conflict(format!("`{id}` has ended and reads nothing any more")));
        }
        let stdin = Request::Stdin(StdinBytes { command: id.clone(), bytes: Bytes(bytes), eof, offset: None });
        match self.inner.ask_of(&row, &stdin).await? {
            Some(_) => Ok(()),
            None => Err(LeaseError::Paused(row.lease).into()),
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

/// The row of a command; those of a moment ago are still on their way to the store.
pub(super) async fn row(inner: &Inner, id: &CommandId) -> Result<Command, Error> {
    let store = &inner.core.store;
    match store.command(id).await? {
        Some(row) if row.status.is_final() => Ok(row),
        _ => {
            inner.ledger.flush().await;
            let row = store.command(id).await?;
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
        if !row.status.is_final() {
            return known;
        }
        let Some(ending) = row.ending.clone() else { return row };
        // It stays as it ended; only its output has grown.
        let streams_open = known.ending.as_ref().is_some_and(|ending| ending.streams_open);
        let (stdout_bytes, stderr_bytes) = (known.stdout_bytes, known.stderr_bytes);
        let grown = Command { ending: Some(Ending { streams_open, ..ending }), stdout_bytes, stderr_bytes, ..row };
        if !streams_open {
            // Nothing more can come: nobody needs to ask for it again.
            self.ledger.note(grown.clone()).await;
        }
        grown
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
