//! Closing sessions whose time is over.
//!
//! 1. What is used is not idle: a command that runs or waits, a file operation, a touch.
//! 2. The shell rests, with its state in the store; then the instance is put to sleep, unless another live session uses
//!    it; only then is the session closed. If the instance can't be put to sleep, the session stays for the next round.
//! 3. It is told why: `idle_timeout` or `expired`.

use super::{Closed, Inner, Stead};
use crate::error::Error;
use crate::lease::{Force, LeaseError};
use crate::seat::Seat;
use crate::store::StoreError;
use std::sync::{Arc, PoisonError};
use stead_model::ids::ThreadId;
use stead_model::lease::Observed;
use stead_model::session::{CloseReason, IDLE_AFTER, Input, Session, Status};

/// What one round did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reaped {
    pub closed: Vec<Closed>,
    /// Sessions that should have been closed and could not be, with the reason.
    pub kept: Vec<(stead_model::ids::SessionId, String)>,
}

impl Stead {
    /// Does one round now.
    pub async fn reap(&self) -> Result<Reaped, Error> {
        let inner = Arc::clone(&self.inner);
        let work = async move { round(&inner).await };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }

    /// Does with a thread's sessions now what their idle time-out would do later. One that is busy stays.
    pub(crate) async fn put_to_rest(&self, thread: &ThreadId) -> Result<(), Error> {
        let (inner, thread) = (Arc::clone(&self.inner), thread.clone());
        let work = async move {
            let door = inner.door(&thread);
            let _inside = door.lock().await;
            for terminal in inner.core.store.terminals_of_thread(&thread).await? {
                if let Some(session) = inner.core.store.live_session(&terminal.id).await?
                    && let Some(session) = write_down(&inner, session).await?
                {
                    put_to_rest(&inner, session, CloseReason::IdleTimeout).await?;
                }
            }
            Ok(())
        };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }
}

/// Rounds for as long as the server lives.
pub(super) async fn every(inner: Arc<Inner>) {
    loop {
        tokio::select! {
            biased;
            () = inner.core.stop.cancelled() => return,
            () = tokio::time::sleep(inner.settings.reap_every) => {}
        }
        match round(&inner).await {
            Ok(reaped) => {
                for closed in &reaped.closed {
                    tracing::info!(session = %closed.session, reason = closed.reason.as_str(), "session closed");
                }
                for (session, why) in &reaped.kept {
                    tracing::warn!(%session, why, "session kept");
                }
            }
            Err(error) => tracing::error!(%error, "expired sessions could not be looked for"),
        }
        if let Err(error) = super::room::make(&inner, inner.journal_limit).await {
            tracing::error!(%error, "no room could be made for output");
        }
        if let Err(error) = inner.core.store.forget_spent_commands(inner.core.now()).await {
            tracing::error!(%error, "ids of deleted commands could not be freed");
        }
    }
}

async fn round(inner: &Arc<Inner>) -> Result<Reaped, Error> {
    let mut reaped = Reaped::default();
    // All of them before any is judged: whether a lease is in use is read from the rows.
    write_down_all(inner, |_| true).await?;
    for session in inner.core.store.live_sessions().await? {
        let id = session.id.clone();
        match look_at(inner, session).await {
            Ok(Some(closed)) => reaped.closed.push(closed),
            Ok(None) => {}
            // One that can't be closed must not keep the others.
            Err(error) => reaped.kept.push((id, error.to_string())),
        }
    }
    super::watch::look(inner).await;
    let unfinished = inner.unfinished.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for lease in unfinished {
        if let Err(error) = super::threads::remove_lease(inner, &lease, "idle_reaper").await {
            tracing::warn!(%error, %lease, "can't be removed yet");
        }
    }
    Ok(reaped)
}

async fn look_at(inner: &Arc<Inner>, session: Session) -> Result<Option<Closed>, Error> {
    let door = inner.door(&session.thread);
    let _inside = door.lock().await;
    // As it is now: somebody may have used it while we waited for the door.
    let session = inner.core.store.session(&session.id).await?.filter(|session| session.status.is_live());
    let Some(session) = session else { return Ok(None) };
    if inner.core.store.terminal(&session.terminal).await?.is_none() {
        // Opened by a server that didn't know of the deletion.
        return super::close::session(inner, session, CloseReason::Destroyed).await.map(Some);
    }
    let Some(session) = write_down(inner, session).await? else { return Ok(None) };
    let now = inner.core.present();
    let Some(reason) = session.expiry(now.clone()) else {
        let idle = session.status == Status::Active && now.since(session.last_active_at) > IDLE_AFTER;
        if idle && !is_busy(inner, &session).await? {
            change(inner, &session, Input::FellIdle).await?;
        }
        return Ok(None);
    };
    put_to_rest(inner, session, reason).await
}

/// Closes a session whose shell does nothing; its instance sleeps, unless another uses it. `None`: it is busy after all.
async fn put_to_rest(inner: &Arc<Inner>, session: Session, reason: CloseReason) -> Result<Option<Closed>, Error> {
    if is_busy(inner, &session).await? {
        return Ok(None);
    }
    if let Some(seat) = inner.take_seat(&session.terminal) {
        if seat.is_in_use() {
            inner.put_seat(&seat);
            return Ok(None);
        }
        // Nobody can enter any more. A state that can't be had now is in the steward, and comes with the next opening.
        if let Err(error) = seat.commit(&inner.core).await {
            tracing::debug!(%error, terminal = %seat.terminal, "closing without the last state");
        }
        if let Err(error) = seat.runtime.rest().await {
            tracing::debug!(%error, terminal = %seat.terminal, "its shell does not rest");
        }
        seat.retire();
    }
    sleep(inner, &session).await?;
    super::close::expired(inner, session, reason).await
}

/// Uses that only some seats know go into the store.
pub(super) async fn write_down_all(inner: &Inner, which: impl Fn(&Seat) -> bool) -> Result<(), Error> {
    let seats: Vec<_> = inner.seats().iter().filter(|seat| which(seat)).cloned().collect();
    for seat in seats {
        write_down_seat(inner, &seat).await?;
    }
    Ok(())
}

/// The same for one, and for one that was taken away: until then somebody may have used it.
pub(super) async fn write_down_seat(inner: &Inner, seat: &Seat) -> Result<(), Error> {
    if let Some(session) = inner.core.store.session(&seat.session().id).await? {
        write_down_uses(inner, session, seat).await?;
    }
    Ok(())
}

/// Uses that only the seat knows go into the store. `None`: it was closed meanwhile.
async fn write_down(inner: &Inner, session: Session) -> Result<Option<Session>, Error> {
    match inner.seat(&session.terminal).filter(|seat| seat.session().id == session.id) {
        Some(seat) => write_down_uses(inner, session, &seat).await,
        None => Ok(Some(session)),
    }
}

async fn write_down_uses(inner: &Inner, session: Session, seat: &Seat) -> Result<Option<Session>, Error> {
    let known = seat.session();
    // One that is paused, and is used all the same, was paused with its lease and woken with it by somebody else.
    if known.last_active_at <= session.last_active_at || !session.status.is_live() {
        return Ok(Some(session));
    }
    let mut after = Session { last_active_at: known.last_active_at, ..session.clone() };
    after.version += 1;
    after.status = Status::Active;
    match inner.core.store.replace_session(&session, &after).await {
        Ok(()) => {
            seat.set_session(after.clone());
            match inner.core.store.touch_thread(&after.thread, after.last_active_at).await {
                Ok(()) | Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            Ok(Some(after))
        }
        Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn change(inner: &Inner, session: &Session, input: Input) -> Result<(), Error> {
    let Ok(after) = session.apply(input, inner.core.now()) else { return Ok(()) };
    match inner.core.store.replace_session(session, &after).await {
        Ok(()) => {
            if let Some(seat) = inner.seat(&session.terminal).filter(|seat| seat.session().id == session.id) {
                seat.set_session(after);
            }
            Ok(())
        }
        Err(StoreError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn is_busy(inner: &Inner, session: &Session) -> Result<bool, Error> {
    if let Some(seat) = inner.seat(&session.terminal) {
        if seat.is_in_use() {
            return Ok(true);
        }
        // A shell that can't be asked runs nothing that we could wait for.
        if seat.runtime.is_busy().await.unwrap_or(false) {
            return Ok(true);
        }
    }
    inner.ledger.flush().await;
    let open = inner.core.store.open_commands().await?;
    Ok(open.iter().any(|command| command.terminal == session.terminal))
}

/// Puts the instance to sleep, if it is this session's alone.
async fn sleep(inner: &Inner, session: &Session) -> Result<(), Error> {
    let Some(lease) = inner.core.store.lease(&session.lease).await? else { return Ok(()) };
    if matches!(lease.observed, Observed::None | Observed::Paused | Observed::Stopped) {
        return Ok(());
    }
    let provider = inner.core.provider(&lease.provider)?;
    write_down_all(inner, |seat| seat.lease == lease.id).await?;
    // Its own session is no exception: one that another server uses just now is in time again.
    let outcome = if provider.capabilities().pause {
        inner.leases.pause(&lease.id, Force::No, Vec::new(), "idle_reaper").await
    } else {
        inner.leases.destroy(&lease.id, Force::No, Vec::new(), "idle_reaper").await
    };
    match outcome {
        // Others use it.
        Ok(_) | Err(LeaseError::InUse { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
