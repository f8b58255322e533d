//! What terminal agents need of the layers beyond what everybody has.

use super::{Inner, Stead};
use crate::clock::Steady;
use crate::error::Error;
use crate::lease::LeaseError;
use crate::provider::Surroundings;
use crate::store::Store;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stead_model::command::Command;
use stead_model::ids::{CommandId, Entropy, ProviderName};
use stead_model::proto::{Request, StdinBytes};
use stead_model::state::Bytes;
use stead_model::thread::Thread;
use tokio_util::sync::CancellationToken;

impl Stead {
    pub(crate) fn ground(&self) -> (Arc<dyn Store>, Arc<Steady>) {
        (Arc::clone(&self.inner.core.store), Arc::clone(&self.inner.core.clock))
    }

    /// Runs on as long as the server does.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.inner.core.tasks.spawn(task);
    }

    pub(crate) fn stopping(&self) -> CancellationToken {
        self.inner.core.stop.clone()
    }

    pub(crate) fn hanging_up(&self) -> CancellationToken {
        self.inner.core.hang_up.clone()
    }

    pub(crate) fn entropy(&self) -> Entropy {
        self.inner.core.entropy()
    }

    pub(crate) fn default_provider(&self) -> &ProviderName {
        &self.inner.settings.default_provider
    }

    /// The directory of this machine in which a workspace's files are, whether or not it has been made; `None` where
    /// they are elsewhere.
    pub(crate) fn workspace_dir(&self, provider: &ProviderName, workspace: &str) -> Result<Option<PathBuf>, Error> {
        let provider = self.inner.core.provider(provider)?;
        Ok(provider.lasting(workspace).map(|lasting| settled(&lasting.files)))
    }

    pub(crate) fn surroundings(&self, thread: &Thread) -> Result<Surroundings, Error> {
        Ok(self.inner.core.provider(&thread.provider)?.surroundings(&thread.workspace))
    }

    /// A command's row, if it was ever asked for.
    pub(crate) async fn known_command(&self, id: &CommandId) -> Result<Option<Command>, Error> {
        match super::commands::row(&self.inner, id).await {
            Ok(row) => Ok(Some(row)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes to a command's standard input at a place in it: each byte arrives once, however often it is sent.
    pub(crate) async fn send_stdin_at(
        &self,
        id: &CommandId,
        offset: u64,
        bytes: Vec<u8>,
        eof: bool,
    ) -> Result<(), Error> {
        let row = super::commands::row(&self.inner, id).await?;
        if row.status.is_final() {
            return Err(Error::Conflict(format!("`{id}` has ended and reads nothing any more")));
        }
        let stdin = StdinBytes { command: id.clone(), bytes: Bytes(bytes), eof, offset: Some(offset) };
        match Inner::ask_of(&self.inner, &row, &Request::Stdin(stdin)).await? {
            Some(_) => Ok(()),
            None => Err(LeaseError::Paused(row.lease).into()),
        }
    }
}

/// A path behind all links, as far as it is there.
pub(crate) fn settled(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (std::fs::canonicalize(above), path.strip_prefix(above)) {
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    path.to_owned()
}
