//! A thread moves to another provider: its terminals with their states, its files; not its processes.
//!
//! ```text
//! a lease there that nobody is on ─► states in the store ─► files there, if they are elsewhere ─► an instance there,
//! if there is one here ─► thread and terminals on the new lease, in one transaction ─► the old instance destroyed
//! ```
//!
//! Before the transaction everything is here and the next start removes what was begun there; after it everything is
//! there and the next start removes what is left here. The old lease stays, without an instance, as long as the thread:
//! its journal has what earlier commands wrote.

use super::fork::{copy_files, pairs};
use super::known::{elsewhere, newest};
use super::threads::{is_own, own_workspace};
use super::{Inner, Stead};
use crate::copy::OnProgress;
use crate::error::Error;
use crate::lease::{AutoResume, Force, LeaseError, Ready};
use crate::provider::{Availability, Effect, Lasting, Provider, ProviderError, Trouble};
use crate::store::StoreError;
use std::sync::Arc;
use stead_model::ids::{LeaseId, ProviderName, ThreadId};
use stead_model::lease::{Lease, Observed};
use stead_model::session::CloseReason;
use stead_model::terminal::Terminal;
use stead_model::thread::Thread;

/// How often rows may change under the transaction before it is given up.
const MOST_TRIES: u32 = 5;

impl Stead {
    /// Moves a thread to another provider, and gives its lease there. Refused while a command runs, and while other
    /// threads share its lease. What runs in the background ends. Moving to where it is does nothing.
    pub async fn move_thread(
        &self,
        thread: &ThreadId,
        provider: &ProviderName,
        progress: OnProgress,
    ) -> Result<Ready, Error> {
        let (inner, thread, provider) = (Arc::clone(&self.inner), thread.clone(), provider.clone());
        let work = async move {
            let door = inner.door(&thread);
            let _inside = door.lock().await;
            relocate(&inner, &thread, &provider, progress).await
        };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }
}

/// Where the files of a thread are to be.
enum Files {
    /// Where they are: both providers see the same directories.
    Stay,
    Copy {
        from: Lasting,
        to: Lasting,
    },
}

async fn relocate(inner: &Arc<Inner>, id: &ThreadId, to: &ProviderName, progress: OnProgress) -> Result<Ready, Error> {
    let core = &inner.core;
    let thread = core.store.thread(id).await?;
    let thread = thread.ok_or_else(|| Error::NotFound { kind: "thread", id: id.to_string() })?;
    let (here, there) = (Arc::clone(core.provider(&thread.provider)?), Arc::clone(core.provider(to)?));
    if thread.provider == *to {
        return Ok(inner.leases.look(&thread.lease, "read.status").await?);
    }
    refuse_if_shared(inner, &thread).await?;
    let lease_id = LeaseId::made_of(core.entropy());
    let (files, workspace) = plan_files(&thread, here.as_ref(), there.as_ref(), &lease_id)?;
    let missing = match there.availability().await {
        Availability::Works(_) => None,
        Availability::Missing { why, .. } => Some((Trouble::Unavailable, why)),
        Availability::NotNow { why } => Some((Trouble::UsedUp, why)),
    };
    if let Some((trouble, why)) = missing {
        return Err(ProviderError::new(to, "take a thread", trouble, Effect::None, why).into());
    }
    refuse_if_busy(inner, &thread).await?;
    let lease = Lease::new(lease_id.clone(), to.clone(), workspace.clone(), core.now());
    core.store.put_lease(&lease).await?;
    let before = inner.leases.look(&thread.lease, "move").await?;
    let runs = before.lease.observed == Observed::Running;
    let moved = async {
        let ready = prepare(inner, &thread, &lease, runs, files, progress).await?;
        let after = Thread { provider: to.clone(), lease: lease_id.clone(), workspace, ..thread.clone() };
        publish(inner, &thread, &after, here.as_ref(), there.as_ref()).await?;
        Ok(ready)
    };
    let ready = match moved.await {
        Ok(ready) => ready,
        Err(error) => {
            undo(inner, &thread, &lease_id, runs).await;
            return Err(error);
        }
    };
    // From here on it has moved, whatever becomes of what it leaves behind.
    if let Err(error) = leave(inner, &thread).await {
        tracing::warn!(%error, lease = %thread.lease, "what a moved thread left behind can't be removed yet");
    }
    Ok(ready)
}

/// Everything is as it was, but for what can't be removed now: that is tried again later.
async fn undo(inner: &Arc<Inner>, thread: &Thread, begun: &LeaseId, runs: bool) {
    if runs && let Err(error) = inner.leases.ensure_running(&thread.lease, AutoResume::Yes, "move").await {
        tracing::warn!(%error, lease = %thread.lease, "does not run on after a move that failed");
    }
    if let Err(error) = super::threads::remove_lease(inner, begun, "move").await {
        tracing::warn!(%error, lease = %begun, "what was begun of a move is left for later");
    }
}

async fn refuse_if_shared(inner: &Inner, thread: &Thread) -> Result<(), Error> {
    let on = inner.core.store.terminals_of_lease(&thread.lease).await?;
    match on.iter().find(|terminal| terminal.thread != thread.id) {
        Some(other) => Err(Error::Conflict(format!(
            "thread `{}` shares its lease with thread `{}`; a shared one can't move",
            thread.id, other.thread
        ))),
        None => Ok(()),
    }
}

/// Nobody sits there any more when this is done, and whoever wants to waits at the door.
async fn refuse_if_busy(inner: &Inner, thread: &Thread) -> Result<(), Error> {
    super::reap::write_down_all(inner, |seat| seat.lease == thread.lease).await?;
    inner.ledger.flush().await;
    let open = inner.core.store.open_commands().await?;
    if let Some(command) = open.into_iter().find(|command| command.lease == thread.lease) {
        let by = format!("command `{}`", command.id);
        return Err(LeaseError::InUse { lease: thread.lease.clone(), by }.into());
    }
    for seat in inner.clear_seats(&thread.lease, Force::No)? {
        // What is acknowledged is in the store before the one who could tell it is left.
        super::known::settle(inner, &seat).await?;
        seat.retire();
        super::reap::write_down_seat(inner, &seat).await?;
    }
    Ok(())
}

fn plan_files(
    thread: &Thread,
    here: &dyn Provider,
    there: &dyn Provider,
    lease: &LeaseId,
) -> Result<(Files, String), Error> {
    let unsupported = |provider: &dyn Provider| ProviderError::unsupported(provider.name(), "move files");
    let from = here.lasting(&thread.workspace).ok_or_else(|| unsupported(here))?;
    let same = there.lasting(&thread.workspace).ok_or_else(|| unsupported(there))?;
    if from == same {
        return Ok((Files::Stay, thread.workspace.clone()));
    }
    if !is_own(&thread.workspace) {
        // Other threads of its project are there, and stay.
        return Err(unsupported(there).into());
    }
    let workspace = own_workspace(lease);
    let to = there.lasting(&workspace).ok_or_else(|| unsupported(there))?;
    if from.home.is_some() && to.home.is_none() {
        // It would come without what is at home.
        return Err(unsupported(there).into());
    }
    Ok((Files::Copy { from, to }, workspace))
}

/// Has everything there that is to be there.
async fn prepare(
    inner: &Arc<Inner>,
    thread: &Thread,
    lease: &Lease,
    runs: bool,
    files: Files,
    progress: OnProgress,
) -> Result<Ready, Error> {
    let core = &inner.core;
    for terminal in core.store.terminals_of_thread(&thread.id).await? {
        let known = newest(inner, &terminal).await?;
        if known != terminal {
            core.store.replace_terminal(&terminal, &known).await?;
        }
    }
    super::afar::fetch(inner, &thread.lease).await?;
    if let Files::Copy { from, to } = files {
        if runs && core.provider(&thread.provider)?.capabilities().pause {
            // What jobs in the background write is there before they stop, or never: not in between.
            inner.leases.pause(&thread.lease, Force::Yes, Vec::new(), "move").await?;
        }
        copy_files(inner, pairs(from, to), progress).await?;
    }
    if runs {
        return Ok(inner.leases.ensure_running(&lease.id, AutoResume::Yes, "move").await?);
    }
    Ok(Ready { lease: lease.clone(), instance: None })
}

/// Puts thread and terminals on the new lease. What else belongs to a terminal stays with its id.
async fn publish(
    inner: &Inner,
    before: &Thread,
    after: &Thread,
    here: &dyn Provider,
    there: &dyn Provider,
) -> Result<(), Error> {
    let store = &inner.core.store;
    let (here, there) = (here.surroundings(&before.workspace), there.surroundings(&after.workspace));
    let mut tries = 0;
    loop {
        let terminals = store.terminals_of_thread(&before.id).await?.into_iter().map(|was| {
            let state = elsewhere(&was.state, &here, &there);
            let changed = if state == was.state { was.clone() } else { was.restore(state, inner.core.now()) };
            // Whoever is late with a state from the old place is refused.
            let becomes = Terminal { lease: after.lease.clone(), ..changed.open(inner.core.now()) };
            (was, becomes)
        });
        let terminals: Vec<_> = terminals.collect();
        match store.move_thread(before, after, &terminals).await {
            Err(StoreError::Conflict { kind: "terminal", .. }) if tries < MOST_TRIES => tries += 1,
            Err(StoreError::Conflict { .. }) => {
                let message = format!("thread `{}` was changed while it moved; nothing has moved", before.id);
                return Err(Error::Conflict(message));
            }
            moved => return Ok(moved?),
        }
    }
}

/// Ends what is left in the old place.
async fn leave(inner: &Arc<Inner>, before: &Thread) -> Result<(), Error> {
    for session in inner.core.store.live_sessions_of_lease(&before.lease).await? {
        super::close::session(inner, session, CloseReason::Destroyed).await?;
    }
    super::threads::remove_lease(inner, &before.lease, "move").await
}
