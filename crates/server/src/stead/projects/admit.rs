//! Who may open a terminal in a project: nobody while its repository is on its way, its files are being exchanged or it is
//! in the trash, and no more instances than it may have.

use crate::error::Error;
use crate::stead::Inner;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use stead_model::ids::{LeaseId, ProjectId};
use stead_model::thread::Thread;
use tokio::sync::OwnedMutexGuard;

/// One at a time is counted and let in, for each project that has a limit.
#[derive(Debug, Default)]
pub(crate) struct Gates(Mutex<HashMap<ProjectId, Arc<tokio::sync::Mutex<()>>>>);

impl Gates {
    fn of(&self, id: &ProjectId) -> Arc<tokio::sync::Mutex<()>> {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gates.retain(|_, gate| Arc::strong_count(gate) > 1);
        Arc::clone(gates.entry(id.clone()).or_default())
    }
}

/// Projects whose files are being exchanged for those of a snapshot. An instance that was made meanwhile would see the old
/// files, which are removed afterwards.
#[derive(Debug, Default)]
pub(crate) struct Exchanges(Mutex<HashSet<ProjectId>>);

impl Exchanges {
    fn are_of(&self, id: &ProjectId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(id)
    }
}

/// While this is held nobody opens a terminal in the project. Only who holds the project's yard may begin one.
#[derive(Debug)]
pub(crate) struct Exchange {
    inner: Arc<Inner>,
    id: ProjectId,
}

impl Exchange {
    pub(crate) fn begin(inner: &Arc<Inner>, id: &ProjectId) -> Self {
        inner.projects.exchanges.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        Self { inner: Arc::clone(inner), id: id.clone() }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.inner.projects.exchanges.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// Held until the instance runs.
#[derive(Debug)]
pub(crate) struct Admitted {
    _gate: Option<OwnedMutexGuard<()>>,
}

/// Lets a thread of a project open a terminal on a lease.
pub(crate) async fn admit(inner: &Arc<Inner>, thread: &Thread, lease: &LeaseId) -> Result<Admitted, Error> {
    let Some(id) = &thread.project else { return Ok(Admitted { _gate: None }) };
    super::repository::arrived(inner, id).await?;
    if inner.projects.exchanges.are_of(id) {
        return Err(Error::Moving);
    }
    let project = super::open(inner, id).await?;
    inner.see(&project).await?;
    let Some(most) = project.config.limits.instances else { return Ok(Admitted { _gate: None }) };
    let gate = inner.projects.gates.of(id).lock_owned().await;
    let live = live(inner, id).await?;
    if !live.contains(lease) && live.len() >= most as usize {
        let error = format!("project `{id}` has {} live instances, and may have {most}", live.len());
        inner.core.store.project_failed(id, inner.core.now(), &error).await?;
        return Err(Error::Limit(error));
    }
    Ok(Admitted { _gate: Some(gate) })
}

/// The leases of a project that have an instance.
async fn live(inner: &Inner, id: &ProjectId) -> Result<BTreeSet<LeaseId>, Error> {
    let store = &inner.core.store;
    let threads = store.threads(Some(id), &crate::store::Page::all()).await?;
    let own: BTreeSet<_> = threads.into_iter().map(|thread| thread.lease).collect();
    let live = store.live_instances().await?.into_iter().map(|instance| instance.lease);
    Ok(live.filter(|lease| own.contains(lease)).collect())
}
