//! What is looked at rather than listed: providers, the lease of a thread, what its instance uses. None of it wakes or
//! makes anything.

use super::Stead;
use crate::error::Error;
use crate::lease::Ready;
use crate::provider::{Availability, Capabilities, Metrics, Provider, Trouble, in_time};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use stead_model::clock::Timestamp;
use stead_model::ids::{ProviderName, TerminalId, ThreadId};
use stead_model::lease::Observed;
use tokio::task::JoinSet;

/// Trying a provider starts processes: what was found is shown for this long.
const TRIED: Duration = Duration::from_secs(10);

/// What a provider may take to say whether it works.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderView {
    pub name: ProviderName,
    pub kind: &'static str,
    pub availability: Availability,
    pub capabilities: Capabilities,
    /// Whether threads that name no provider get this one.
    pub is_default: bool,
}

/// What was found when the providers were last tried.
pub(super) type Tried = (Timestamp, Vec<ProviderView>);

/// A lease with who is on it.
#[derive(Debug, Clone)]
pub struct LeaseView {
    pub ready: Ready,
    /// Oldest first.
    pub terminals: Vec<TerminalId>,
}

impl Stead {
    /// Every provider that is configured, by name, and whether it works, by trying.
    pub async fn providers(&self) -> Vec<ProviderView> {
        let core = &self.inner.core;
        let now = core.now();
        {
            let tried = self.inner.tried.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((at, views)) = tried.as_ref().filter(|(at, _)| now >= *at && now.since(*at) < TRIED) {
                tracing::trace!(%at, "providers were tried a moment ago");
                return views.clone();
            }
        }
        let mut tries = JoinSet::new();
        for provider in core.providers.iter() {
            let (provider, default) = (Arc::clone(provider), self.inner.settings.default_provider.clone());
            tries.spawn(async move { view(provider.as_ref(), &default).await });
        }
        let mut views: Vec<_> = tries.join_all().await;
        views.sort_by(|one, other| one.name.cmp(&other.name));
        *self.inner.tried.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, views.clone()));
        views
    }

    /// The lease of a thread, as it is, with the terminals on it.
    pub async fn lease_view(&self, thread: &ThreadId) -> Result<LeaseView, Error> {
        let thread = self.thread(thread).await?;
        let store = &self.inner.core.store;
        let ready = match self.inner.leases.look(&thread.lease, "read.status").await {
            Ok(ready) => ready,
            // It can't be looked at, and what is known of it says so.
            Err(error) => {
                let lease = store.lease(&thread.lease).await?.ok_or(error)?;
                let instance = match &lease.instance {
                    Some(instance) => store.instance(instance).await?,
                    None => None,
                };
                Ready { lease, instance }
            }
        };
        let terminals = self.terminals_of_lease(&ready.lease.id).await?;
        Ok(LeaseView { terminals: terminals.into_iter().map(|terminal| terminal.id).collect(), ready })
    }

    /// What a thread's instance uses. What isn't known is absent: all of it where there is no instance, or its provider
    /// measures nothing.
    pub async fn metrics(&self, thread: &ThreadId) -> Result<Metrics, Error> {
        let thread = self.thread(thread).await?;
        let ready = self.inner.leases.look(&thread.lease, "read.metrics").await?;
        let there = matches!(ready.lease.observed, Observed::Running | Observed::Paused);
        let Some(handle) = ready.handle().filter(|_| there) else { return Ok(Metrics::default()) };
        let provider = self.inner.core.provider(&ready.lease.provider)?;
        match in_time(provider.name(), "measure", provider.metrics(&handle)).await {
            // It went while we looked.
            Err(error) if matches!(error.trouble, Trouble::Unsupported | Trouble::NotFound) => Ok(Metrics::default()),
            measured => Ok(measured?),
        }
    }
}

async fn view(provider: &dyn Provider, default: &ProviderName) -> ProviderView {
    let availability = tokio::time::timeout(PATIENCE, provider.availability()).await;
    ProviderView {
        name: provider.name().clone(),
        kind: provider.kind(),
        availability: availability.unwrap_or_else(|_| Availability::Missing {
            why: format!("no answer in {} s", PATIENCE.as_secs()),
            hint: None,
        }),
        capabilities: provider.capabilities(),
        is_default: provider.name() == default,
    }
}
