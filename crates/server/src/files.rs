//! Files of a sandbox, from outside it: there also while its instance sleeps or is gone, and nothing is woken for them.
//! `ground` finds the place of a path and sees to it that it is inside; every operation then works on directories that
//! it holds. `docs/files.md` says what callers may rely on.

mod change;
mod edit;
mod entry;
mod failure;
mod grep;
mod ground;
mod link;
mod list;
mod pack;
mod read;
mod spot;
mod traverse;
mod unpack;
mod write;

pub use change::Overwrite;
pub use edit::{Edit, Edited};
pub use entry::{Entry, Kind};
pub use grep::{Grep, Match, Matches, Skipped};
pub use link::{Link, LinkKey};
pub use list::{Listed, Page};
pub use pack::Packed;
pub use read::Reading;
pub use unpack::{Bounds, Unpacked, Unpacking};
pub use write::{Condition, Writing, Written};

use crate::error::Error;
use crate::stead::Inner;
use failure::Failure;
use ground::Ground;
use std::sync::Arc;
use stead_model::ids::TerminalId;

#[derive(Debug, Clone)]
pub struct Files {
    ground: Arc<Ground>,
    inner: Arc<Inner>,
    terminal: TerminalId,
}

impl Files {
    pub(crate) async fn of(inner: &Arc<Inner>, terminal: &TerminalId) -> Result<Self, Error> {
        let store = &inner.core.store;
        let row = store.terminal(terminal).await?;
        let row = row.ok_or_else(|| Error::NotFound { kind: "terminal", id: terminal.to_string() })?;
        let lease = store.lease(&row.lease).await?;
        let lease = lease.ok_or_else(|| Error::NotFound { kind: "lease", id: row.lease.to_string() })?;
        let provider = inner.core.provider(&lease.provider)?;
        let ground = Ground::new(provider.trees(&lease.workspace), provider.private());
        if ground.is_empty() {
            let name = provider.name();
            return Err(Error::Unsupported(format!("provider `{name}` keeps no files that can be reached from here")));
        }
        Ok(Self { ground: Arc::new(ground), inner: Arc::clone(inner), terminal: terminal.clone() })
    }

    /// Does what waits for a disk where waiting is allowed. File operations count as activity.
    async fn at<T: Send + 'static>(
        &self,
        path: &[u8],
        work: impl FnOnce(&Ground, &[u8]) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Error> {
        self.touch();
        let (ground, path) = (Arc::clone(&self.ground), path.to_vec());
        let done = tokio::task::spawn_blocking(move || work(&ground, &path).map_err(|failure| failure.at(&path))).await;
        done.unwrap_or_else(|error| Err(Error::Io(error.to_string())))
    }

    fn touch(&self) {
        if let Some(seat) = self.inner.seat(&self.terminal) {
            seat.touch(&self.inner.core);
        }
    }
}
