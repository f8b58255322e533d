//! Sessions on a project: opened by a call or a WebSocket, closed by a call or when the last connection goes.
//!
//! ```text
//! connect ─► recreate_on_reconnect: an instance that was left is destroyed ─► session on an instance
//! last connection gone, nothing runs ─┐
//! disconnect: what runs is cancelled ─┴► session closed (memory kept, log) ─► stop_on_disconnect: instance stopped
//! ```
//!
//! Stopped is destroyed where whoever comes back gets a fresh one anyway, else paused. Files and terminal state are the
//! same in either case. Nobody is connected to a server that has just started: sessions it finds expire as all do.

use super::{log, used};
use crate::error::Error;
use crate::lease::{Force, LeaseError};
use crate::stead::{Inner, NewThread, Stead, Where};
use crate::store::StoreError;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stead_model::ids::{ProjectId, SessionId, ThreadId, TokenId};
use stead_model::session::{CloseReason, Session};
use stead_model::thread::Thread;

/// How often somebody who waits for a command to end looks.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long commands that are cancelled may take to end.
const WITHIN: Duration = Duration::from_secs(10);

/// How many are connected to each thread.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<HashMap<ThreadId, usize>>);

impl Connections {
    fn count(&self, thread: &ThreadId) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(thread).copied().unwrap_or_default()
    }
}

/// Somebody who is connected to a thread of a project. When the last one goes, its session ends.
#[derive(Debug)]
pub struct Connection {
    inner: Arc<Inner>,
    thread: ThreadId,
}

impl Connection {
    fn new(inner: &Arc<Inner>, thread: &ThreadId) -> Self {
        let mut all = inner.projects.connections.0.lock().unwrap_or_else(PoisonError::into_inner);
        *all.entry(thread.clone()).or_default() += 1;
        Self { inner: Arc::clone(inner), thread: thread.clone() }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut all = self.inner.projects.connections.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = all.get_mut(&self.thread).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if left > 0 {
            return;
        }
        all.remove(&self.thread);
        drop(all);
        // A server that ends leaves its sessions to the next one.
        if !self.inner.core.hang_up.is_cancelled() {
            let (inner, thread) = (Arc::clone(&self.inner), self.thread.clone());
            self.inner.core.tasks.spawn(async move { left_alone(inner, thread).await });
        }
    }
}

impl Stead {
    /// Opens a session on a thread of a project, which is made if it isn't there; without a name, a new one.
    pub async fn connect(&self, id: &ProjectId, thread: Option<ThreadId>, by: TokenId) -> Result<Session, Error> {
        let (stead, id) = (self.clone(), id.clone());
        let work = async move {
            let thread = enter(&stead, &id, thread).await?;
            open(&stead, &thread, by).await
        };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }

    /// The same for as long as the connection is kept.
    pub async fn hold(
        &self,
        id: &ProjectId,
        thread: Option<ThreadId>,
        by: TokenId,
    ) -> Result<(Connection, Session), Error> {
        let (stead, id) = (self.clone(), id.clone());
        let work = async move {
            let thread = enter(&stead, &id, thread).await?;
            let connection = Connection::new(&stead.inner, &thread.id);
            let session = open(&stead, &thread, by).await?;
            Ok((connection, session))
        };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }

    /// Has a thread be there, in a project: made if it isn't, refused if it is somewhere else.
    pub async fn ensure_thread_of(&self, id: &ProjectId, thread: &ThreadId) -> Result<(), Error> {
        let (stead, id, thread) = (self.clone(), id.clone(), thread.clone());
        let work = async move { thread_in(&stead, &id, Some(thread)).await.map(drop) };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }

    /// Ends a session of a project: what runs in it is cancelled. One that has ended already stays as it ended.
    pub async fn disconnect(&self, id: &ProjectId, session: &SessionId) -> Result<(), Error> {
        let found = self.inner.core.store.session(session).await?.filter(|found| found.project.as_ref() == Some(id));
        let found = found.ok_or_else(|| Error::NotFound { kind: "session", id: session.to_string() })?;
        let inner = Arc::clone(&self.inner);
        let work = async move {
            let door = inner.door(&found.thread);
            let _inside = door.lock().await;
            crate::stead::close::cancel_all(&inner, &found.terminal).await;
            end(&inner, &found.id).await
        };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }
}

async fn enter(stead: &Stead, id: &ProjectId, thread: Option<ThreadId>) -> Result<Thread, Error> {
    used(&stead.inner, id).await?;
    // Whoever comes back has it in RAM; one that can't be read is told to whoever asks for it.
    if let Err(error) = stead.open_memory(id).await {
        tracing::warn!(%error, project = %id, "hot memory can't be read");
    }
    thread_in(stead, id, thread).await
}

async fn open(stead: &Stead, thread: &Thread, by: TokenId) -> Result<Session, Error> {
    refresh(&stead.inner, thread).await?;
    let at = Where { create: false, by: Some(by), ..Where::thread(thread.id.clone()) };
    stead.get_sandbox(at).await?.session().await
}

async fn thread_in(stead: &Stead, id: &ProjectId, thread: Option<ThreadId>) -> Result<Thread, Error> {
    let Some(wanted) = thread else {
        return stead.create_thread(NewThread { project: Some(id.clone()), ..NewThread::default() }).await;
    };
    let find = || stead.inner.core.store.thread(&wanted);
    let found = if let Some(thread) = find().await? {
        thread
    } else {
        let new = NewThread { id: Some(wanted.clone()), project: Some(id.clone()), ..NewThread::default() };
        match stead.create_thread(new).await {
            // Of many callers that open the thread at once one creates it, and all of them use it.
            Err(Error::AlreadyExists { kind: "thread", .. }) => {
                find().await?.ok_or_else(|| Error::NotFound { kind: "thread", id: wanted.to_string() })?
            }
            created => return created,
        }
    };
    if found.project.as_ref() != Some(id) {
        return Err(Error::Conflict(format!("thread `{}` is not in project `{id}`", found.id)));
    }
    Ok(found)
}

/// Ends what an earlier session left running or asleep, so that the next one gets a fresh instance.
async fn refresh(inner: &Arc<Inner>, thread: &Thread) -> Result<(), Error> {
    if !inner.projects.settings.recreate_on_reconnect {
        return Ok(());
    }
    let door = inner.door(&thread.id);
    let _inside = door.lock().await;
    let store = &inner.core.store;
    if store.live_session(&thread.default_terminal).await?.is_some() {
        return Ok(());
    }
    match store.lease(&thread.lease).await? {
        Some(lease) if lease.instance.is_some() => {
            unless_in_use(inner.leases.destroy(&thread.lease, Force::No, Vec::new(), "reconnect").await)
        }
        Some(_) | None => Ok(()),
    }
}

fn unless_in_use<T>(outcome: Result<T, LeaseError>) -> Result<(), Error> {
    match outcome {
        // Others share it: it is theirs as well.
        Ok(_) | Err(LeaseError::InUse { .. } | LeaseError::NotFound(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The last connection is gone: when nothing runs any more, and nobody has come back, the session ends.
async fn left_alone(inner: Arc<Inner>, thread: ThreadId) {
    loop {
        if inner.core.stop.is_cancelled() || inner.projects.connections.count(&thread) > 0 {
            return;
        }
        match try_end(&inner, &thread).await {
            Ok(true) => return,
            // A command still runs: whoever asked for it may come back for it.
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, %thread, "its session stays open until it expires");
                return;
            }
        }
        tokio::select! {
            biased;
            () = inner.core.stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
    }
}

/// Whether there is nothing left to end.
async fn try_end(inner: &Arc<Inner>, thread: &ThreadId) -> Result<bool, Error> {
    let door = inner.door(thread);
    let _inside = door.lock().await;
    let store = &inner.core.store;
    let Some(thread) = store.thread(thread).await? else { return Ok(true) };
    let Some(session) = store.live_session(&thread.default_terminal).await? else { return Ok(true) };
    if inner.projects.connections.count(&thread.id) > 0 {
        return Ok(true);
    }
    if crate::stead::reap::is_busy(inner, &session).await? {
        return Ok(false);
    }
    match end(inner, &session.id).await {
        Err(Error::TerminalBusy(_)) => Ok(false),
        ended => ended.map(|()| true),
    }
}

/// Closes a session and stops its instance, as configured. Whoever calls has the door of its thread.
async fn end(inner: &Arc<Inner>, id: &SessionId) -> Result<(), Error> {
    let until = tokio::time::Instant::now() + WITHIN;
    let session = loop {
        let session = inner.core.store.session(id).await?.filter(|session| session.status.is_live());
        let Some(session) = session else { return Ok(()) };
        match crate::stead::close::session(inner, session.clone(), CloseReason::Closed).await {
            // What was cancelled is on its way out.
            Err(Error::TerminalBusy(_)) if tokio::time::Instant::now() < until => {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            closed => {
                closed?;
                break session;
            }
        }
    };
    let settings = &inner.projects.settings;
    if !settings.stop_on_disconnect {
        return Ok(());
    }
    let Some(lease) = inner.core.store.lease(&session.lease).await? else { return Ok(()) };
    if lease.instance.is_none() {
        return Ok(());
    }
    inner.ledger.flush().await;
    let can_pause = inner.core.provider(&lease.provider)?.capabilities().pause;
    let own = vec![session.id.clone()];
    unless_in_use(if settings.recreate_on_reconnect || !can_pause {
        inner.leases.destroy(&lease.id, Force::No, own, "disconnect").await
    } else {
        inner.leases.pause(&lease.id, Force::No, own, "disconnect").await
    })
}

/// What follows when a session of a project has ended, by whatever way.
pub(crate) async fn closed(inner: &Inner, session: &Session) {
    log::closed(inner, session).await;
    inner.memories.forget_session(&session.id);
    let Some(project) = &session.project else { return };
    inner.memories.sync(project).await;
    if let Err(error) = inner.memories.snapshot(project).await {
        tracing::warn!(%error, %project, "no snapshot of hot memory; its journal has everything");
    }
    match inner.core.store.project(project).await {
        Ok(Some(project)) => super::mirror(inner, &project).await,
        Ok(None) | Err(StoreError::NotFound { .. }) => {}
        Err(error) => tracing::warn!(%error, %project, "its mirror is not up to date"),
    }
}
