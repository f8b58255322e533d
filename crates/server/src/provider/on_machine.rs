//! A [`Machine`] as a provider: what waits for processes is done away from the tasks that must not wait.

use super::machine::Machine;
use super::{
    Access, Availability, Blueprint, Capabilities, Created, Found, Handle, Lasting, Metrics, Provider, ProviderError,
    Surroundings, Tree,
};
use async_trait::async_trait;
use std::path::PathBuf;
use std::sync::Arc;
use stead_model::enclosure::Network;
use stead_model::ids::{LeaseId, ProviderName};
use stead_model::lease::Seen;
use stead_model::project::Demands;
use stead_steward::past::PastShell;

/// `local` or `namespace`, by the walls of its machine.
#[derive(Debug)]
pub struct OnMachine {
    pub(super) machine: Arc<Machine>,
}

#[async_trait]
impl Provider for OnMachine {
    fn name(&self) -> &ProviderName {
        &self.machine.name
    }

    fn kind(&self) -> &'static str {
        self.machine.walls.kind()
    }

    fn capabilities(&self) -> Capabilities {
        let isolated = self.machine.walls.isolated();
        Capabilities { pause: true, live_pause: true, metrics: true, steward: true, durable_journal: true, isolated }
    }

    /// The host is the image; without walls its network is theirs.
    fn refuses(&self, demands: &Demands) -> Option<&'static str> {
        if demands.image.is_some() {
            return Some("image");
        }
        let open = !self.machine.walls.isolated() && demands.network == Some(Network::None);
        open.then_some("network")
    }

    async fn availability(&self) -> Availability {
        let machine = Arc::clone(&self.machine);
        match tokio::task::spawn_blocking(move || machine.probe()).await {
            Ok(availability) => availability,
            Err(error) => Availability::Missing { why: error.to_string(), hint: None },
        }
    }

    async fn create(&self, blueprint: &Blueprint) -> Result<Created, ProviderError> {
        let blueprint = blueprint.clone();
        self.machine.blocking("start a steward", move |machine| machine.create(&blueprint)).await
    }

    async fn status(&self, handle: &Handle) -> Result<Seen, ProviderError> {
        let handle = handle.clone();
        self.machine.blocking("look at an instance", move |machine| machine.status(&handle)).await
    }

    async fn pause(&self, handle: &Handle) -> Result<(), ProviderError> {
        let handle = handle.clone();
        self.machine.blocking("pause", move |machine| machine.pause(&handle)).await
    }

    async fn resume(&self, handle: &Handle) -> Result<(), ProviderError> {
        let handle = handle.clone();
        self.machine.blocking("resume", move |machine| machine.resume(&handle)).await
    }

    async fn destroy(&self, handle: &Handle) -> Result<(), ProviderError> {
        let handle = handle.clone();
        self.machine.blocking("destroy", move |machine| machine.destroy(&handle)).await
    }

    async fn access(&self, handle: &Handle) -> Result<Access, ProviderError> {
        self.machine.access(handle).await
    }

    async fn metrics(&self, handle: &Handle) -> Result<Metrics, ProviderError> {
        let handle = handle.clone();
        self.machine.blocking("measure", move |machine| machine.metrics(&handle)).await
    }

    async fn last_words(&self, handle: &Handle) -> Result<Vec<PastShell>, ProviderError> {
        let handle = handle.clone();
        self.machine.blocking("read a journal", move |machine| machine.last_words(&handle)).await
    }

    async fn list(&self) -> Result<Vec<Found>, ProviderError> {
        self.machine.blocking("list", Machine::list).await
    }

    fn surroundings(&self, workspace: &str) -> Surroundings {
        self.machine.walls.surroundings(&self.machine.places, workspace)
    }

    fn trees(&self, workspace: &str) -> Vec<Tree> {
        self.machine.walls.trees(&self.machine.places, workspace)
    }

    /// The data directory may lie in `/tmp`, which is a tree of `local`.
    fn private(&self) -> Vec<PathBuf> {
        self.machine.places.private()
    }

    fn journal(&self, lease: &LeaseId) -> Option<PathBuf> {
        Some(self.machine.journal(lease))
    }

    fn lasting(&self, workspace: &str) -> Option<Lasting> {
        Some(self.machine.places.lasting(workspace))
    }

    async fn forget(&self, lease: &LeaseId, workspace: Option<&str>) -> Result<(), ProviderError> {
        let (lease, workspace) = (lease.clone(), workspace.map(str::to_owned));
        self.machine.blocking("remove files", move |machine| machine.forget(&lease, workspace.as_deref())).await
    }
}
