//! Looking at things. None of it makes, wakes or resumes anything.

use super::Stead;
use crate::error::Error;
use crate::provider::{Metrics, in_time};
use crate::store::Page;
use stead_model::ids::{LeaseId, ThreadId};
use stead_model::session::{IDLE_AFTER, Session, Status};
use stead_model::terminal::Terminal;

impl Stead {
    /// Whether the store answers.
    pub async fn check(&self) -> Result<(), Error> {
        self.inner.core.store.threads(None, &Page { limit: 1, after: None }).await?;
        Ok(())
    }

    /// The newest session of a thread, with what its seat knows of its use.
    pub async fn session(&self, thread: &ThreadId) -> Result<Session, Error> {
        let id = self.thread(thread).await?.id;
        let session = self.inner.core.store.newest_session(&id).await?;
        let session = session.ok_or_else(|| Error::NotFound { kind: "session", id: id.to_string() })?;
        Ok(self.inner.as_it_is(session))
    }

    pub async fn terminals_of_lease(&self, lease: &LeaseId) -> Result<Vec<Terminal>, Error> {
        Ok(self.inner.core.store.terminals_of_lease(lease).await?)
    }

    pub async fn terminals_of_thread(&self, thread: &ThreadId) -> Result<Vec<Terminal>, Error> {
        let thread = self.thread(thread).await?;
        Ok(self.inner.core.store.terminals_of_thread(&thread.id).await?)
    }

    /// What the instance of a thread uses; nothing is known where there is none.
    pub async fn metrics(&self, thread: &ThreadId) -> Result<Metrics, Error> {
        let thread = self.thread(thread).await?;
        let ready = self.inner.leases.look(&thread.lease, "read.metrics").await?;
        let Some(handle) = ready.handle() else { return Ok(Metrics::default()) };
        let provider = self.inner.core.provider(&ready.lease.provider)?;
        Ok(in_time(provider.name(), "measure", provider.metrics(&handle)).await?)
    }
}

impl super::Inner {
    /// A session with the uses that nobody has written down yet, and idle if nothing has run in it for a while.
    pub(super) fn as_it_is(&self, mut session: Session) -> Session {
        let seat = self.seat(&session.terminal).filter(|seat| seat.session().id == session.id);
        let mut in_use = false;
        if let Some(seat) = seat {
            session.last_active_at = session.last_active_at.max(seat.session().last_active_at);
            in_use = seat.is_in_use();
        }
        let quiet = self.core.now().since(session.last_active_at) > IDLE_AFTER;
        if session.status == Status::Active && quiet && !in_use {
            session.status = Status::Idle;
        }
        session
    }
}
