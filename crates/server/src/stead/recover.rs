//! Starting over what an earlier server left. Nothing is remembered but rows; everything else is asked of the providers
//! and their stewards.
//!
//! ```text
//! each lease with an instance ─► looked at
//! each command that only a journal has ─► gets its row (see `commands`)
//! each open command ─► found out about (see `watch`)
//! each live session ─► its instance lives ─► kept (bound again at its next use) : closed, `server_restart`
//! each lease without a terminal ─► a deletion, fork or move that was cut short ─► removed, or left to who moved away
//! ```

pub(crate) mod commands;

use super::ready::unless_full;
use super::{Inner, watch};
use crate::error::Error;
use crate::lease::Ready;
use crate::store::{Page, StoreError};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use stead_model::ids::{CommandId, LeaseId, SessionId};
use stead_model::lease::Observed;
use stead_model::session::{CloseReason, Session, Status as SessionStatus};

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Commands that still run, and are followed.
    pub running: Vec<CommandId>,
    /// Commands that ended while no server lived.
    pub ended: Vec<CommandId>,
    pub lost: Vec<CommandId>,
    pub kept_sessions: Vec<SessionId>,
    pub closed_sessions: Vec<SessionId>,
    /// Leases whose provider gave no clear answer.
    pub unclear: Vec<LeaseId>,
}

pub(super) async fn run(inner: &Arc<Inner>) -> Result<Recovered, Error> {
    let mut recovered = Recovered::default();
    finish_deletions(inner).await?;
    let mut seen = HashMap::new();
    let leases = inner.core.store.leases(None, &Page::all()).await?;
    for lease in &leases {
        if lease.observed == Observed::None {
            continue;
        }
        match inner.leases.look_anew(lease, "recovery").await {
            Ok(ready) => {
                seen.insert(lease.id.clone(), ready);
            }
            Err(error) => {
                tracing::warn!(%error, lease = %lease.id, "can't be looked at");
                recovered.unclear.push(lease.id.clone());
            }
        }
    }
    let mut added = Vec::new();
    for lease in &leases {
        match commands::add_missing(inner, lease).await {
            Ok(missing) => added.extend(missing),
            Err(error) => tracing::warn!(%error, lease = %lease.id, "can't be searched for commands without a row"),
        }
    }
    let mut open = inner.core.store.open_commands().await?;
    // On a full disk they have no row yet.
    added.retain(|added| !open.iter().any(|command| command.id == added.id));
    open.append(&mut added);
    let (unclear, open): (Vec<_>, Vec<_>) =
        open.into_iter().partition(|command| recovered.unclear.contains(&command.lease));
    // What can't be looked at is not said to have ended.
    watch::leave(inner, unclear);
    watch::find_out(inner, open, &seen, &mut recovered).await;
    sessions(inner, &seen, &mut recovered).await?;
    Ok(recovered)
}

/// A thread's row goes first when it is deleted, and comes last when it is copied or moved: a lease that is left without
/// one was being removed or made. What a moved thread left behind loses its instance and files only. One whose terminal's
/// row is lost is neither: its thread remembers it, and its files are wanted.
async fn finish_deletions(inner: &Arc<Inner>) -> Result<(), Error> {
    let threads = inner.core.store.threads(None, &Page::all()).await?;
    let remembered: HashSet<_> = threads.into_iter().map(|thread| thread.lease).collect();
    for lease in inner.core.store.leases(None, &Page::all()).await? {
        if remembered.contains(&lease.id) || !inner.core.store.terminals_of_lease(&lease.id).await?.is_empty() {
            continue;
        }
        // Adopted ones have no terminal yet either; they are meant to stay.
        let events = inner.core.store.lease_events(&lease.id, 0, 1).await?;
        if events.first().is_some_and(|event| event.source == "adopt") {
            continue;
        }
        if let Err(error) = super::threads::remove_lease(inner, &lease.id, "recovery").await {
            tracing::warn!(%error, lease = %lease.id, "can't be removed yet");
        }
    }
    Ok(())
}

async fn sessions(inner: &Arc<Inner>, seen: &HashMap<LeaseId, Ready>, recovered: &mut Recovered) -> Result<(), Error> {
    for session in inner.core.store.live_sessions().await? {
        let Some(session) = in_time(inner, session).await? else { continue };
        let observed = seen.get(&session.lease).map(|ready| ready.lease.observed);
        let alive = match observed {
            Some(Observed::Running) => true,
            Some(Observed::Paused) => session.status == SessionStatus::Paused,
            Some(Observed::None | Observed::Creating | Observed::Stopped | Observed::Unknown) | None => false,
        };
        let unclear = recovered.unclear.contains(&session.lease);
        // One whose terminal is gone was opened by a server that didn't know of the deletion.
        let has_terminal = inner.core.store.terminal(&session.terminal).await?.is_some();
        if has_terminal && (alive || unclear) {
            recovered.kept_sessions.push(session.id);
            continue;
        }
        let id = session.id.clone();
        // On a full disk it stays as it is, and is closed when somebody uses its terminal, or it expires.
        let closed = super::close::session(inner, session, CloseReason::ServerRestart).await.map(|_| true);
        if unless_full("the end of a session", closed)? {
            recovered.closed_sessions.push(id);
        }
    }
    Ok(())
}

/// A session whose moments are none of the future's. `None`: it was closed meanwhile, by a server that has not ended yet.
async fn in_time(inner: &Inner, mut session: Session) -> Result<Option<Session>, Error> {
    while let Some(found) = session.found(inner.core.now()) {
        match inner.core.store.replace_session(&session, &found).await {
            Ok(()) => return Ok(Some(found)),
            Err(StoreError::Conflict { .. }) => match inner.core.store.session(&session.id).await? {
                Some(again) if again.status.is_live() => session = again,
                _ => return Ok(None),
            },
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(session))
}
