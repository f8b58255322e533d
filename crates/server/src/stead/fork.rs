//! A thread from another: the same terminals in the same state, on the same files or on a copy of them.
//!
//! ```text
//! states ─► a lease that nobody is on ─► files copied ─► thread and terminals, in one transaction
//!                    └── killed or failed before that: found at the next start, and removed with its files
//! ```
//!
//! The copy lies under a name that no thread has until it is whole. Where the file system can share blocks it costs next
//! to nothing; an overlay would save the rest, but it ties the copy to a source that goes on changing, which the kernel
//! leaves undefined, and it can't be mounted for `local` without privileges.

use super::known::{elsewhere, newest};
use super::threads::own_workspace;
use super::{Inner, Stead};
use crate::copy::{Copier, CopyError, OnProgress};
use crate::error::Error;
use crate::provider::{Lasting, ProviderError};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use stead_model::ids::{LeaseId, TerminalId, ThreadId};
use stead_model::lease::Lease;
use stead_model::proto::{Fault, FaultCode};
use stead_model::terminal::{DEFAULT_NAME, Terminal};
use stead_model::thread::Thread;

/// Which files a fork has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workspace {
    /// Its own, as they are now.
    Copy,
    /// The same ones, on the same lease.
    Share,
}

impl Stead {
    /// A new thread with the terminals of another, in the states that their last finished commands left. Nothing is woken
    /// or stopped for it; what runs in the source goes on, and a file that it writes while it is copied may be torn.
    pub async fn fork(
        &self,
        thread: &ThreadId,
        new_id: Option<ThreadId>,
        workspace: Workspace,
        progress: OnProgress,
    ) -> Result<Thread, Error> {
        let (inner, thread) = (Arc::clone(&self.inner), thread.clone());
        let work = async move {
            let id = new_id.unwrap_or_else(|| ThreadId::made_of(inner.core.entropy()));
            if inner.core.store.thread(&id).await?.is_some() {
                return Err(Error::AlreadyExists { kind: "thread", id: id.to_string() });
            }
            match workspace {
                Workspace::Share => share(&inner, &thread, id).await,
                Workspace::Copy => copy(&inner, &thread, id, progress).await,
            }
        };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }
}

async fn source(inner: &Inner, id: &ThreadId) -> Result<Thread, Error> {
    let thread = inner.core.store.thread(id).await?;
    thread.ok_or_else(|| Error::NotFound { kind: "thread", id: id.to_string() })
}

async fn share(inner: &Inner, of: &ThreadId, id: ThreadId) -> Result<Thread, Error> {
    // As long as we are inside nobody deletes it or moves it away.
    let door = inner.door(of);
    let _inside = door.lock().await;
    let source = source(inner, of).await?;
    let terminals = states(inner, &source).await?;
    let lease = (source.lease.clone(), source.workspace.clone());
    publish(inner, &source, id, lease, &terminals).await
}

async fn copy(inner: &Arc<Inner>, of: &ThreadId, id: ThreadId, progress: OnProgress) -> Result<Thread, Error> {
    let core = &inner.core;
    let source = source(inner, of).await?;
    let provider = core.provider(&source.provider)?;
    let lease_id = LeaseId::made_of(core.entropy());
    let workspace = own_workspace(&lease_id);
    let (Some(from), Some(to)) = (provider.lasting(&source.workspace), provider.lasting(&workspace)) else {
        return Err(ProviderError::unsupported(provider.name(), "copy files").into());
    };
    super::afar::fetch(inner, &source.lease).await?;
    let terminals = states(inner, &source).await?;
    let lease = Lease::new(lease_id.clone(), source.provider.clone(), workspace.clone(), core.now());
    core.store.put_lease(&lease).await?;
    let made = async {
        copy_files(inner, pairs(from, to), progress).await?;
        // Its files are removed only after its row is: what was copied while the row was there is whole.
        let still = core.store.thread(of).await?;
        let same = |now: &Thread| (&now.lease, &now.default_terminal) == (&source.lease, &source.default_terminal);
        if !still.as_ref().is_some_and(same) {
            return Err(Error::Conflict(format!("thread `{of}` was deleted or moved while it was copied")));
        }
        publish(inner, &source, id, (lease_id.clone(), workspace), &terminals).await
    };
    let made = made.await;
    if made.is_err()
        && let Err(error) = super::threads::remove_lease(inner, &lease_id, "fork").await
    {
        tracing::warn!(%error, lease = %lease_id, "what was begun of a copy is left for later");
    }
    made
}

/// The terminals of a thread as they are now.
async fn states(inner: &Inner, thread: &Thread) -> Result<Vec<Terminal>, Error> {
    let mut terminals = Vec::new();
    for terminal in inner.core.store.terminals_of_thread(&thread.id).await? {
        terminals.push(newest(inner, &terminal).await?);
    }
    Ok(terminals)
}

/// Makes the rows of the new thread, with what was asked of its terminals' environments.
async fn publish(
    inner: &Inner,
    source: &Thread,
    id: ThreadId,
    (lease, workspace): (LeaseId, String),
    terminals: &[Terminal],
) -> Result<Thread, Error> {
    let core = &inner.core;
    let now = core.now();
    let provider = core.provider(&source.provider)?;
    let (here, there) = (provider.surroundings(&source.workspace), provider.surroundings(&workspace));
    let thread = Thread {
        id: id.clone(),
        default_terminal: TerminalId::made_of(core.entropy()),
        lease: lease.clone(),
        workspace,
        created_at: now,
        last_active_at: now,
        ..source.clone()
    };
    let mut copies =
        vec![Terminal::new(thread.default_terminal.clone(), id.clone(), lease.clone(), DEFAULT_NAME.to_owned(), now)];
    let mut envs = Vec::new();
    for terminal in terminals {
        let state = elsewhere(&terminal.state, &here, &there);
        match copies.first_mut() {
            Some(default) if terminal.name == DEFAULT_NAME => default.state = state,
            _ => {
                let fresh = TerminalId::made_of(core.entropy());
                let copy = Terminal::new(fresh, id.clone(), lease.clone(), terminal.name.clone(), now);
                copies.push(Terminal { state, ..copy });
            }
        }
        let copy = copies.iter().find(|copy| copy.name == terminal.name);
        if let Some(copy) = copy
            && let Some(asked) = super::env::carried(inner, &terminal.id, &copy.id).await?
        {
            envs.push((copy.id.clone(), asked));
        }
    }
    core.store.fork_thread(&thread, &copies, &envs).await?;
    Ok(thread)
}

/// Which directory is copied to which.
pub(super) fn pairs(from: Lasting, to: Lasting) -> Vec<(PathBuf, PathBuf)> {
    let homes = from.home.zip(to.home);
    std::iter::once((from.files, to.files)).chain(homes).collect()
}

pub(super) async fn copy_files(
    inner: &Inner,
    pairs: Vec<(PathBuf, PathBuf)>,
    progress: OnProgress,
) -> Result<(), Error> {
    // More at once would only share the same disk.
    let _turn = inner.copies.acquire().await.map_err(|_| Error::Stopping)?;
    let copier = Copier::new(progress, inner.core.stop.clone());
    let work = tokio::task::spawn_blocking(move || pairs.iter().try_for_each(|(from, to)| copier.copy(from, to)));
    match work.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(CopyError::Stopped)) => Err(Error::Stopping),
        Ok(Err(CopyError::Io { path, error })) => {
            let message = format!("can't copy `{}`: {error}", path.display());
            let full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
            Err(if full { Fault::new(FaultCode::NoSpace, message).into() } else { Error::Io(message) })
        }
        Err(error) => Err(Error::Io(error.to_string())),
    }
}
