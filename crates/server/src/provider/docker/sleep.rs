//! Pausing and going on, by the engine's freezer.

use super::super::{Handle, ProviderError};
use super::engine;
use super::look::State;
use super::{Docker, recipe};

impl Docker {
    pub(super) async fn put_to_sleep(&self, handle: &Handle) -> Result<(), ProviderError> {
        const WHAT: &str = "pause";
        if self.require(handle, WHAT).await?.state == State::Paused {
            return Ok(());
        }
        let docker = self.engine.docker(WHAT).await?;
        let paused = docker.pause_container(&recipe::container_name(&handle.instance)).await;
        self.settle(handle, WHAT, State::Paused, paused).await
    }

    pub(super) async fn wake(&self, handle: &Handle) -> Result<(), ProviderError> {
        const WHAT: &str = "resume";
        if self.require(handle, WHAT).await?.state == State::Running {
            return Ok(());
        }
        let docker = self.engine.docker(WHAT).await?;
        let woken = docker.unpause_container(&recipe::container_name(&handle.instance)).await;
        self.settle(handle, WHAT, State::Running, woken).await
    }

    /// Somebody else may have done it meanwhile, which an engine calls a conflict, or Podman an error of its own: what
    /// counts is how it is.
    async fn settle(
        &self,
        handle: &Handle,
        what: &'static str,
        wanted: State,
        answer: Result<(), bollard::errors::Error>,
    ) -> Result<(), ProviderError> {
        match answer {
            Ok(()) => Ok(()),
            Err(error) if engine::is_so_already(&error) => Ok(()),
            Err(error) => match self.require(handle, what).await {
                Ok(container) if container.state == wanted => Ok(()),
                Ok(_) => Err(self.engine.failed(what)(error)),
                Err(gone) => Err(gone),
            },
        }
    }
}
