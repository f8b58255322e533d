//! Looking at things. None of it makes, wakes or resumes anything.

use super::Stead;
use crate::error::Error;
use stead_model::clock::{Now, Timestamp};
use stead_model::ids::{LeaseId, TerminalId, ThreadId};
use stead_model::lease::Lease;
use stead_model::terminal::Terminal;
use stead_model::thread::Instance;

impl Stead {
    /// Oldest first.
    pub async fn terminals_of_lease(&self, lease: &LeaseId) -> Result<Vec<Terminal>, Error> {
        let mut terminals = self.inner.core.store.terminals_of_lease(lease).await?;
        terminals.reverse();
        Ok(terminals)
    }

    /// What time it is for everything here.
    pub fn now(&self) -> Timestamp {
        self.inner.core.now()
    }

    /// The same, to be asked how much time has passed since something.
    pub fn present_moment(&self) -> Now {
        self.inner.core.present()
    }

    pub async fn thread_of_terminal(&self, id: &TerminalId) -> Result<ThreadId, Error> {
        let terminal = self.inner.core.store.terminal(id).await?;
        let terminal = terminal.ok_or_else(|| Error::NotFound { kind: "terminal", id: id.to_string() })?;
        Ok(terminal.thread)
    }

    /// The row of the instance that a lease has.
    pub async fn instance_of(&self, lease: &Lease) -> Result<Option<Instance>, Error> {
        match &lease.instance {
            Some(instance) => Ok(self.inner.core.store.instance(instance).await?),
            None => Ok(None),
        }
    }
}
