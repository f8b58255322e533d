//! What the engine says of our containers.

use super::super::{Effect, Found, Handle, ProviderError, Trouble};
use super::{Docker, engine, recipe};
use bollard::models::ContainerStateStatusEnum as Status;
use bollard::query_parameters::ListContainersOptionsBuilder;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stead_model::ids::{InstanceId, LeaseId};
use stead_model::lease::Seen;
use stead_term::proc;

/// How long the engine may take to notice that a container's first process is dead.
const NOTICE: Duration = Duration::from_secs(2);

/// How often it is asked meanwhile.
const AGAIN: Duration = Duration::from_millis(10);

/// A container as the engine sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Looked {
    Absent,
    There(Container),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Container {
    pub(super) id: String,
    pub(super) state: State,
    pub(super) memory_limit: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Made, and never started.
    Unstarted,
    Running,
    Paused,
    Ended,
}

impl Looked {
    pub(super) fn seen(&self) -> Seen {
        match self {
            Self::There(Container { state: State::Running, .. }) => Seen::Running,
            Self::There(Container { state: State::Paused, .. }) => Seen::Paused,
            Self::There(Container { state: State::Unstarted | State::Ended, .. }) | Self::Absent => Seen::Gone,
        }
    }
}

/// Whether the engine's process ids are ours: not where it is a machine of its own, or we are in a container ourselves.
static PIDS_ARE_OURS: AtomicBool = AtomicBool::new(true);

impl Docker {
    /// The container of an instance.
    pub(super) async fn look(&self, instance: &InstanceId, what: &'static str) -> Result<Looked, ProviderError> {
        let until = Instant::now() + NOTICE;
        loop {
            let (looked, pid) = self.ask(instance, what).await?;
            if looked.seen() != Seen::Running || !PIDS_ARE_OURS.load(Ordering::Relaxed) || is_alive(pid) {
                return Ok(looked);
            }
            // The engine hears of a death a moment after the kernel knows it.
            if Instant::now() > until {
                PIDS_ARE_OURS.store(false, Ordering::Relaxed);
                return Ok(looked);
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn ask(&self, instance: &InstanceId, what: &'static str) -> Result<(Looked, i64), ProviderError> {
        let docker = self.engine.docker(what).await?;
        let looking = |error| ProviderError { effect: Effect::None, ..self.engine.failed(what)(error) };
        let until = Instant::now() + NOTICE;
        let said = loop {
            match docker.inspect_container(&recipe::container_name(instance), None).await {
                Err(error) if engine::is_absent(&error) => return Ok((Looked::Absent, 0)),
                Err(error) if engine::is_passing(&error) && Instant::now() < until => tokio::time::sleep(AGAIN).await,
                said => break said.map_err(looking)?,
            }
        };
        let labels = said.config.and_then(|config| config.labels).unwrap_or_default();
        if labels.get(recipe::OWNER) != Some(&self.owner) {
            let message = format!("the container `{}` is another's", recipe::container_name(instance));
            return Err(self.engine.error(what, Trouble::Conflict, Effect::None, message));
        }
        let state = said.state.unwrap_or_default();
        let pid = state.pid.unwrap_or(0);
        let limit = said.host_config.and_then(|config| config.memory).and_then(|bytes| u64::try_from(bytes).ok());
        let state = match state.status {
            Some(Status::RUNNING | Status::RESTARTING | Status::STOPPING) => State::Running,
            Some(Status::PAUSED) => State::Paused,
            Some(Status::CREATED) => State::Unstarted,
            Some(Status::EXITED | Status::DEAD | Status::REMOVING | Status::EMPTY) | None => State::Ended,
        };
        let id = said.id.unwrap_or_default();
        Ok((Looked::There(Container { id, state, memory_limit: limit.filter(|bytes| *bytes > 0) }), pid))
    }

    /// One that lives, whether it sleeps or not.
    pub(super) async fn require(&self, handle: &Handle, what: &'static str) -> Result<Container, ProviderError> {
        match self.look(&handle.instance, what).await? {
            Looked::There(container) if matches!(container.state, State::Running | State::Paused) => Ok(container),
            Looked::There(_) | Looked::Absent => {
                Err(self.engine.error(what, Trouble::NotFound, Effect::None, "there is no such instance"))
            }
        }
    }

    pub(super) async fn list_all(&self) -> Result<Vec<Found>, ProviderError> {
        const WHAT: &str = "list";
        let mut found = Vec::new();
        for handle in self.containers(None, WHAT).await? {
            let seen = self.look(&handle.instance, WHAT).await?.seen();
            if seen != Seen::Gone {
                found.push(Found { handle, seen });
            }
        }
        Ok(found)
    }

    /// Every container of ours, or of one lease, in whatever state: by what is written on it.
    pub(super) async fn containers(
        &self,
        lease: Option<&LeaseId>,
        what: &'static str,
    ) -> Result<Vec<Handle>, ProviderError> {
        let docker = self.engine.docker(what).await?;
        let mut labels = vec![format!("{}={}", recipe::OWNER, self.owner)];
        labels.extend(lease.map(|lease| format!("{}={lease}", recipe::LEASE)));
        let filters = HashMap::from([("label", labels)]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let looking = |error| ProviderError { effect: Effect::None, ..self.engine.failed(what)(error) };
        let until = Instant::now() + NOTICE;
        let listed = loop {
            match docker.list_containers(Some(options.clone())).await {
                Err(error) if engine::is_passing(&error) && Instant::now() < until => tokio::time::sleep(AGAIN).await,
                listed => break listed.map_err(looking)?,
            }
        };
        let handles = listed.into_iter().filter_map(|summary| recipe::handle_of(&summary.labels.unwrap_or_default()));
        Ok(handles.collect())
    }
}

/// Whether a process of this number runs; 0 is one that we can't know.
fn is_alive(pid: i64) -> bool {
    let Ok(pid) = i32::try_from(pid) else { return true };
    pid == 0 || proc::stat(pid).is_some_and(|stat| !b"ZX".contains(&stat.state))
}
