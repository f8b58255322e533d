//! Ends: of sessions, of instances, of the server.

use super::{Inner, OnExit, Stead};
use crate::error::Error;
use crate::lease::{AutoResume, Force, Ready};
use crate::runtime::RuntimeError;
use crate::store::{Page, StoreError};
use std::sync::Arc;
use stead_model::ids::{LeaseId, SessionId, TerminalId, ThreadId};
use stead_model::lease::{Desired, Observed};
use stead_model::proto::{FaultCode, FirstSignal};
use stead_model::session::{CloseReason, Input, Session, Status};
use stead_model::terminal::Terminal;
use stead_model::thread::Thread;

/// A session that was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    pub session: SessionId,
    pub reason: CloseReason,
}

/// Closes a session: its shell ends, with its state in the store; terminal and lease stay. A shell that can't be reached
/// any more ends by itself, or has.
pub(super) async fn session(inner: &Arc<Inner>, session: Session, reason: CloseReason) -> Result<Closed, Error> {
    let closed = Closed { session: session.id.clone(), reason };
    Ok(close(inner, session, reason, |_| true).await?.unwrap_or(closed))
}

/// The same for one whose time is over. `None`: somebody used it before that could be written, and it is not.
pub(super) async fn expired(
    inner: &Arc<Inner>,
    session: Session,
    reason: CloseReason,
) -> Result<Option<Closed>, Error> {
    let judged = session.last_active_at;
    let still = move |now: &Session| reason != CloseReason::IdleTimeout || now.last_active_at <= judged;
    close(inner, session, reason, still).await
}

/// `still`: whether the reason holds of what is in the store by now.
async fn close(
    inner: &Arc<Inner>,
    session: Session,
    reason: CloseReason,
    still: impl Fn(&Session) -> bool,
) -> Result<Option<Closed>, Error> {
    let id = session.id.clone();
    if let Some(seat) = inner.seat(&session.terminal).filter(|seat| seat.session().id == session.id) {
        // A state that can't be had now is in the steward, and comes with the next opening.
        if let Err(error) = seat.commit(&inner.core).await {
            tracing::debug!(%error, terminal = %seat.terminal, "closing without the last state");
        }
        match seat.runtime.rest().await {
            Err(RuntimeError::Refused(fault)) if fault.code == FaultCode::Busy && reason != CloseReason::Destroyed => {
                return Err(Error::TerminalBusy(seat.terminal.to_string()));
            }
            Ok(()) | Err(_) => {}
        }
        inner.take_seat(&session.terminal);
        seat.retire();
    }
    let mut before = session;
    loop {
        let closed =
            before.apply(Input::Close(reason), inner.core.now()).map_err(|error| Error::Conflict(error.to_string()))?;
        match inner.core.store.replace_session(&before, &closed).await {
            Ok(()) => {
                inner.core.measure.closed(&closed, reason, inner.core.now());
                super::projects::closed(inner, &closed).await;
                return Ok(Some(Closed { session: id, reason }));
            }
            Err(StoreError::Conflict { .. }) => match inner.core.store.session(&id).await? {
                Some(again) if again.status != Status::Closed => {
                    if !still(&again) {
                        return Ok(None);
                    }
                    before = again;
                }
                // Somebody else has closed it.
                _ => return Ok(Some(Closed { session: id, reason })),
            },
            Err(error) => return Err(error.into()),
        }
    }
}

/// Ends what runs in a terminal, as far as it can be reached.
pub(super) async fn cancel_all(inner: &Inner, terminal: &TerminalId) {
    let Some(seat) = inner.seat(terminal) else { return };
    inner.ledger.flush().await;
    let Ok(open) = inner.core.store.open_commands().await else { return };
    for command in open.into_iter().filter(|command| command.terminal == *terminal) {
        if let Err(error) = seat.runtime.cancel(&command.id, FirstSignal::Kill).await {
            tracing::debug!(%error, command = %command.id, "not cancelled");
        }
    }
}

/// Ends the shell of a terminal that is being deleted, on an instance that others go on using.
pub(super) async fn end_shell(inner: &Inner, terminal: &Terminal) -> Result<(), Error> {
    let ready = inner.leases.look(&terminal.lease, "api").await?;
    if ready.lease.observed == Observed::Running {
        super::sit::reach(inner, terminal, &ready).await?.end().await?;
    }
    Ok(())
}

impl Stead {
    /// Closes the live session of a thread's terminal, if there is one.
    pub async fn close_session(&self, thread: &ThreadId, reason: CloseReason) -> Result<Option<Closed>, Error> {
        let (inner, thread) = (Arc::clone(&self.inner), self.thread(thread).await?);
        let work = async move {
            let door = inner.door(&thread.id);
            let _inside = door.lock().await;
            match inner.core.store.live_session(&thread.default_terminal).await? {
                Some(live) => session(&inner, live, reason).await.map(Some),
                None => Ok(None),
            }
        };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }

    /// Freezes a thread's instance. Refused while a command runs or another live session uses it, unless forced: then
    /// the command goes on after it is resumed.
    pub async fn pause(&self, thread: &ThreadId, force: Force) -> Result<Ready, Error> {
        let (inner, thread) = (Arc::clone(&self.inner), self.thread(thread).await?);
        let work = async move {
            let door = inner.door(&thread.id);
            let _inside = door.lock().await;
            pause(&inner, &thread, force, "user_pause").await
        };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }

    pub async fn resume(&self, thread: &ThreadId) -> Result<Ready, Error> {
        let (inner, thread) = (Arc::clone(&self.inner), self.thread(thread).await?);
        let work = async move {
            let door = inner.door(&thread.id);
            let _inside = door.lock().await;
            let lease = inner.core.store.lease(&thread.lease).await?;
            let Some(lease) = lease else {
                return Err(Error::NotFound { kind: "lease", id: thread.lease.to_string() });
            };
            if lease.instance.is_none() {
                return Ok(Ready { lease, instance: None });
            }
            let ready = inner.leases.ensure_running(&thread.lease, AutoResume::Yes, "user_resume").await?;
            for session in inner.core.store.live_sessions_of_lease(&thread.lease).await? {
                // One whose time is over isn't given more by this.
                if session.expiry(inner.core.present()).is_none() {
                    turn(&inner, session, Input::Resumed).await?;
                }
            }
            super::env::woken(&inner, &thread.id).await?;
            super::watch::look(&inner).await;
            Ok(ready)
        };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }

    /// Ends a thread's instance and its sessions; the thread, its terminals and their states stay. Refused while another
    /// thread's live session uses the instance, unless forced. Doing it twice does it once.
    pub async fn destroy(&self, thread: &ThreadId, force: Force) -> Result<Ready, Error> {
        let (inner, thread) = (Arc::clone(&self.inner), self.thread(thread).await?);
        let work = async move {
            let door = inner.door(&thread.id);
            let _inside = door.lock().await;
            super::reap::write_down_all(&inner, |seat| seat.lease == thread.lease).await?;
            let own = own_sessions(&inner, &thread).await?;
            let mine = |session: &Session| own.iter().any(|own| own.id == session.id);
            let all = inner.core.store.live_sessions_of_lease(&thread.lease).await?;
            if force == Force::No
                && let Some(other) =
                    all.iter().find(|session| !mine(session) && session.expiry(inner.core.present()).is_none())
            {
                let by = format!("session `{}` of thread `{}`", other.id, other.thread);
                return Err(crate::lease::LeaseError::InUse { lease: thread.lease.clone(), by }.into());
            }
            let closed = all.iter().map(|session| session.id.clone()).collect();
            let (own, others): (Vec<_>, Vec<_>) = all.into_iter().partition(mine);
            for other in others {
                let by = format!("session `{}` of thread `{}`", other.id, other.thread);
                cancel_all(&inner, &other.terminal).await;
                // Its time was over. Somebody may use it since, and then it is not.
                let judged = other.last_active_at;
                let still = |now: &Session| force == Force::Yes || now.last_active_at <= judged;
                if close(&inner, other, CloseReason::Destroyed, still).await?.is_none() {
                    return Err(crate::lease::LeaseError::InUse { lease: thread.lease.clone(), by }.into());
                }
            }
            for live in own {
                cancel_all(&inner, &live.terminal).await;
                session(&inner, live, CloseReason::Destroyed).await?;
            }
            inner.ledger.flush().await;
            // Others may have come meanwhile: they are looked for once more.
            Ok(inner.leases.destroy(&thread.lease, force, closed, "api").await?)
        };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }
}

async fn own_sessions(inner: &Inner, thread: &Thread) -> Result<Vec<Session>, Error> {
    let live = inner.core.store.live_sessions_of_lease(&thread.lease).await?;
    Ok(live.into_iter().filter(|session| session.thread == thread.id).collect())
}

pub(super) async fn pause(
    inner: &Arc<Inner>,
    thread: &Thread,
    force: Force,
    source: &'static str,
) -> Result<Ready, Error> {
    super::reap::write_down_all(inner, |seat| seat.lease == thread.lease).await?;
    let before = inner.leases.look(&thread.lease, source).await?;
    if (before.lease.desired, before.lease.observed) == (Desired::Paused, Observed::Paused) {
        // It sleeps, with whatever was frozen in it; whoever was told so by a server that died is told again.
        turn_all(inner, &thread.lease).await?;
        return Ok(before);
    }
    let own = own_sessions(inner, thread).await?;
    let seats = inner.clear_seats(&thread.lease, force)?;
    inner.ledger.flush().await;
    for seat in &seats {
        // What is acknowledged is in the store before the one who could tell it sleeps.
        super::known::settle(inner, seat).await?;
        seat.retire();
        super::reap::write_down_seat(inner, seat).await?;
    }
    let ids = own.into_iter().map(|session| session.id).collect();
    let ready = inner.leases.pause(&thread.lease, force, ids, source).await?;
    if ready.lease.instance.is_some() {
        turn_all(inner, &thread.lease).await?;
    }
    Ok(ready)
}

/// The sessions of a lease that sleeps do, too.
async fn turn_all(inner: &Inner, lease: &LeaseId) -> Result<(), Error> {
    for session in inner.core.store.live_sessions_of_lease(lease).await? {
        turn(inner, session, Input::Paused).await?;
    }
    Ok(())
}

/// Turns a session to paused or back; one that is there already, or closed meanwhile, stays.
async fn turn(inner: &Inner, mut session: Session, input: Input) -> Result<(), Error> {
    loop {
        let Ok(turned) = session.apply(input, inner.core.now()) else { return Ok(()) };
        match inner.core.store.replace_session(&session, &turned).await {
            Err(StoreError::Conflict { .. }) => match inner.core.store.session(&session.id).await? {
                Some(again) => session = again,
                None => return Ok(()),
            },
            written => return Ok(written?),
        }
    }
}

/// Leaves, pauses or destroys every instance, as its provider is configured.
pub(super) async fn on_exit(inner: &Arc<Inner>) -> Vec<Error> {
    inner.core.closing.cancel();
    let mut failed = Vec::new();
    let leases = match inner.core.store.leases(None, &Page::all()).await {
        Ok(leases) => leases,
        Err(error) => return vec![error.into()],
    };
    for lease in leases {
        let on_exit = inner.treatment(&lease.provider).on_exit;
        // One that is being made has no instance in its row yet; its owner knows when it is asked.
        if lease.instance.is_none() && (on_exit == OnExit::Leave || !inner.leases.has_owner(&lease.id)) {
            continue;
        }
        let outcome = match on_exit {
            OnExit::Leave => continue,
            OnExit::Pause => pause_on_exit(inner, &lease.id).await,
            OnExit::Destroy => {
                inner.leases.destroy(&lease.id, Force::Yes, Vec::new(), "exit").await.map(drop).map_err(Error::from)
            }
        };
        if let Err(error) = outcome {
            tracing::error!(%error, lease = %lease.id, "could not be settled before the server ended");
            failed.push(error);
        }
    }
    failed
}

/// As somebody who forces it would: the next server finds the sessions asleep, and what was frozen goes on.
async fn pause_on_exit(inner: &Arc<Inner>, lease: &LeaseId) -> Result<(), Error> {
    super::reap::write_down_all(inner, |seat| seat.lease == *lease).await?;
    inner.ledger.flush().await;
    let seats: Vec<_> = inner.seats().iter().filter(|seat| seat.lease == *lease).cloned().collect();
    for seat in seats {
        super::known::settle(inner, &seat).await?;
    }
    if inner.leases.pause(lease, Force::Yes, Vec::new(), "exit").await?.lease.instance.is_some() {
        super::reap::write_down_all(inner, |seat| seat.lease == *lease).await?;
        turn_all(inner, lease).await?;
    }
    Ok(())
}
