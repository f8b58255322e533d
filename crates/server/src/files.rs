//! Files of a sandbox, from outside it: there also while its instance sleeps or is gone, and nothing is woken for them.
//! `ground` finds the place of a path and sees to it that it is inside; every operation then works on directories that
//! it holds. `docs/files.md` says what callers may rely on.

mod change;
mod direct;
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
pub(crate) use edit::{MAX_EDITED, exchange};
pub use entry::{Entry, Kind};
pub(crate) use grep::{Cursor, Search, Searched, THROUGH, cursor, parse_cursor};
pub use grep::{Grep, Match, Matches, Skipped};
pub use link::{Link, LinkKey};
pub(crate) use list::matcher;
pub use list::{Listed, Page};
pub(crate) use pack::Exactly;
pub use pack::Packed;
pub(crate) use pack::pack_dir;
pub use read::Reading;
pub(crate) use traverse::{Next, PATIENCE};
pub use unpack::{Bounds, Unpacked, Unpacking};
pub(crate) use unpack::{Replacement, sweep_stages};
pub use write::{Condition, Writing, Written};

use crate::error::Error;
use crate::provider::Tree;
use crate::stead::Inner;
use failure::Failure;
use ground::Ground;
use std::sync::Arc;
use stead_model::ids::{LeaseId, TerminalId};
use tokio_util::task::TaskTracker;

#[derive(Debug, Clone)]
pub struct Files {
    ground: Arc<Ground>,
    tasks: TaskTracker,
    /// Whose they are, if a terminal's: using them is using that.
    of: Option<(Arc<Inner>, TerminalId, LeaseId)>,
}

impl Files {
    pub(crate) async fn of(inner: &Arc<Inner>, terminal: &TerminalId) -> Result<Self, Error> {
        let store = &inner.core.store;
        let row = store.terminal(terminal).await?;
        let row = row.ok_or_else(|| Error::NotFound { kind: "terminal", id: terminal.to_string() })?;
        let lease = store.lease(&row.lease).await?;
        let lease = lease.ok_or_else(|| Error::NotFound { kind: "lease", id: row.lease.to_string() })?;
        if let Some(thread) = store.thread(&row.thread).await? {
            crate::stead::refuse_if_trashed(inner, thread.project.as_ref()).await?;
        }
        let provider = inner.core.provider(&lease.provider)?;
        let ground = Ground::new(provider.trees(&lease.workspace), provider.private());
        if ground.is_empty() {
            let name = provider.name();
            return Err(Error::Unsupported(format!("provider `{name}` keeps no files that can be reached from here")));
        }
        crate::stead::afar::fetch(inner, &lease.id).await?;
        let of = Some((Arc::clone(inner), terminal.clone(), lease.id));
        Ok(Self { ground: Arc::new(ground), tasks: inner.core.tasks.clone(), of })
    }

    /// Directories of this machine that no terminal has, each under the path that it is known by.
    pub(crate) fn over(trees: Vec<Tree>, tasks: TaskTracker) -> Self {
        Self { ground: Arc::new(Ground::over(trees)), tasks, of: None }
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

    /// The same for what changes files: they are where the sandbox sees them before anybody is told.
    async fn change<T: Send + 'static>(
        &self,
        path: &[u8],
        work: impl FnOnce(&Ground, &[u8]) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Error> {
        let done = self.at(path, work).await?;
        self.deliver().await?;
        Ok(done)
    }

    async fn deliver(&self) -> Result<(), Error> {
        match &self.of {
            Some((inner, _, lease)) => crate::stead::afar::deliver(inner, lease).await,
            None => Ok(()),
        }
    }

    fn touch(&self) {
        if let Some((inner, terminal, _)) = &self.of
            && let Some(seat) = inner.seat(terminal)
        {
            seat.touch(&inner.core);
        }
    }
}
