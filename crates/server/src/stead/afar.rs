//! What is kept on somebody else's machine, brought here or taken there while its instance runs. On this machine there is
//! nothing to bring, and nothing is asked.

use super::Inner;
use crate::error::Error;
use crate::provider::{Handle, Provider, ProviderError, in_time};
use std::path::PathBuf;
use std::sync::Arc;
use stead_model::ids::LeaseId;
use stead_model::lease::Observed;

/// Where the journal of a lease can be read on this machine: the steward's own, or the mirror of it.
pub(super) fn journal(provider: &dyn Provider, lease: &LeaseId) -> Option<PathBuf> {
    provider.journal(lease).or_else(|| provider.mirror(lease))
}

/// Has all that was journalled of a lease here.
pub(super) async fn catch_up(inner: &Inner, lease: &LeaseId) -> Result<(), Error> {
    let Some((provider, handle)) = running(inner, lease).await? else { return Ok(()) };
    let done = in_time(provider.name(), "bring a journal here", provider.catch_up(&handle)).await;
    unless_gone(inner, lease, done).await
}

/// Has the files of a lease here as its instance has them.
pub(crate) async fn fetch(inner: &Inner, lease: &LeaseId) -> Result<(), Error> {
    let Some((provider, handle)) = running(inner, lease).await? else { return Ok(()) };
    let done = in_time(provider.name(), "bring files here", provider.fetch(&handle)).await;
    unless_gone(inner, lease, done).await
}

/// Has the files of a lease there as they are here.
pub(crate) async fn deliver(inner: &Inner, lease: &LeaseId) -> Result<(), Error> {
    let Some((provider, handle)) = running(inner, lease).await? else { return Ok(()) };
    let done = in_time(provider.name(), "take files there", provider.deliver(&handle)).await;
    unless_gone(inner, lease, done).await
}

/// The instance of a lease, if it runs and is somewhere else.
async fn running(inner: &Inner, lease: &LeaseId) -> Result<Option<(Arc<dyn Provider>, Handle)>, Error> {
    let Some(row) = inner.core.store.lease(lease).await? else { return Ok(None) };
    let provider = inner.core.provider(&row.provider)?;
    if provider.mirror(lease).is_none() {
        return Ok(None);
    }
    let ready = inner.leases.look(lease, "read.status").await?;
    let runs = ready.lease.observed == Observed::Running;
    Ok(ready.handle().filter(|_| runs).map(|handle| (Arc::clone(provider), handle)))
}

/// An instance that has gone since it was looked at has nothing more to tell; what is here is all there is.
async fn unless_gone(inner: &Inner, lease: &LeaseId, done: Result<(), ProviderError>) -> Result<(), Error> {
    let Err(error) = done else { return Ok(()) };
    let Some(row) = inner.core.store.lease(lease).await? else { return Ok(()) };
    let ready = inner.leases.look_anew(&row, "read.status").await?;
    if ready.lease.observed == Observed::Running { Err(error.into()) } else { Ok(()) }
}
