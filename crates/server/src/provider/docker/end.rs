//! Ending containers, and removing what was kept for them.

use super::super::place::remove_tree;
use super::super::{Effect, Handle, ProviderError, Trouble};
use super::engine;
use super::look::{Looked, State};
use super::{Docker, recipe};
use crate::steward::Steward;
use bollard::query_parameters::RemoveContainerOptionsBuilder;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use stead_model::ids::{InstanceId, LeaseId};
use stead_model::lease::Seen;
use stead_model::proto::Request;
use stead_steward::past::{self, PastError, PastShell};

/// How long a steward may take to end its shells by itself before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// How long the engine may take to remove what it says it is removing already.
const WITHIN: Duration = Duration::from_secs(30);

/// How often it is asked meanwhile.
const AGAIN: Duration = Duration::from_millis(20);

impl Docker {
    pub(super) async fn end(&self, handle: &Handle) -> Result<(), ProviderError> {
        const WHAT: &str = "destroy";
        let _turn = self.turn(&handle.lease, WHAT).await?;
        self.end_processes(handle, WHAT).await
    }

    /// Ends an instance and removes its container. Its journal stays.
    pub(super) async fn end_processes(&self, handle: &Handle, what: &'static str) -> Result<(), ProviderError> {
        let looked = self.look(&handle.instance, what).await?;
        if let Looked::There(container) = &looked
            && matches!(container.state, State::Running | State::Paused)
        {
            self.ask_to_stop(handle, container.state).await;
        }
        if looked != Looked::Absent {
            self.discard(&handle.instance, what).await?;
        }
        self.readings.forget(&handle.instance);
        if self.is_place_of(handle) {
            let lease = self.places.lease(&handle.lease);
            let cleared = self.blocking(what, move || {
                ["instance", "place/sock"].iter().try_for_each(|name| remove_file(&lease.join(name)))
            });
            cleared.await.map_err(|error| ProviderError { effect: Effect::Unknown, ..error })?;
        }
        Ok(())
    }

    /// So that what runs is ended in the journal, too. One that doesn't listen is killed; it must not hold us up.
    async fn ask_to_stop(&self, handle: &Handle, state: State) {
        if state == State::Paused && self.wake(handle).await.is_err() {
            return;
        }
        let place = self.places.steward(&handle.lease);
        let asking = async {
            let channel = self.open(&handle.instance, &place, Duration::ZERO, "destroy").await.ok()?;
            Steward::greet(channel).await.ok()?.request(&Request::Shutdown).await.ok()
        };
        let _ = tokio::time::timeout(GRACE, asking).await;
    }

    /// Removes a container in whatever state; what isn't there is removed already.
    pub(super) async fn discard(&self, instance: &InstanceId, what: &'static str) -> Result<(), ProviderError> {
        let docker = self.engine.docker(what).await?;
        let name = recipe::container_name(instance);
        let until = Instant::now() + WITHIN;
        loop {
            let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
            match docker.remove_container(&name, Some(options)).await {
                Ok(()) => return Ok(()),
                Err(error) if engine::is_absent(&error) => return Ok(()),
                // Somebody else is at it, or it died this very moment.
                Err(error) if (engine::is_conflict(&error) || engine::is_passing(&error)) && Instant::now() < until => {
                    tokio::time::sleep(AGAIN).await;
                }
                Err(error) => return Err(self.engine.failed(what)(error)),
            }
        }
    }

    pub(super) async fn read_journal(&self, handle: &Handle) -> Result<Vec<PastShell>, ProviderError> {
        const WHAT: &str = "read a journal";
        if self.look(&handle.instance, WHAT).await?.seen() != Seen::Gone {
            return Err(self.engine.error(WHAT, Trouble::Conflict, Effect::None, "its steward lives: ask it"));
        }
        let place = self.places.steward(&handle.lease);
        let until = Instant::now() + WITHIN;
        loop {
            let told = {
                let place = place.clone();
                self.blocking(WHAT, move || Ok(past::read(&place))).await?
            };
            match told {
                Ok(shells) => return Ok(shells),
                // The last of its processes may still be on its way out, with the lock in its hands.
                Err(PastError::Alive) if Instant::now() < until => tokio::time::sleep(AGAIN).await,
                Err(error) => {
                    let message = super::super::local::chain(&error);
                    return Err(self.engine.error(WHAT, Trouble::Unavailable, Effect::None, message));
                }
            }
        }
    }

    pub(super) async fn remove(&self, lease: &LeaseId, workspace: Option<&str>) -> Result<(), ProviderError> {
        const WHAT: &str = "remove files";
        let _turn = self.turn(lease, WHAT).await?;
        let containers = self.containers(Some(lease), WHAT).await?;
        for handle in &containers {
            if self.look(&handle.instance, WHAT).await?.seen() != Seen::Gone {
                return Err(self.engine.error(WHAT, Trouble::Conflict, Effect::None, "the instance still runs"));
            }
        }
        for handle in &containers {
            self.discard(&handle.instance, WHAT).await?;
        }
        let (kept, files) = (self.places.lease(lease), workspace.map(|workspace| self.places.workspace(workspace)));
        let removed = self.blocking(WHAT, move || {
            remove_tree(&kept)?;
            files.map_or(Ok(()), |files| remove_tree(&files))
        });
        removed.await.map_err(|error| ProviderError { effect: Effect::Unknown, ..error })
    }
}

fn remove_file(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
