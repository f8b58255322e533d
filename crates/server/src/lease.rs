//! Leases: one task owns each that is in use, and is the only one to change it. Everybody else asks it and waits; who
//! stops waiting stops nothing.
//!
//! ```text
//! ask ──► owner ──► driver: what is wanted, what is seen, the next step (model) ──► provider ──► row + event (store)
//!                     └──────────────────── until they meet ◄────────────────────────────────────┘
//! ```

mod driver;

use crate::core::{Core, UnknownProvider};
use crate::provider::{Handle, ProviderError};
use crate::store::StoreError;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stead_model::ids::{InstanceId, LeaseId};
use stead_model::lease::{Desired, IllegalTransition, Lease};
use stead_model::thread::Instance;
use tokio::sync::{mpsc, oneshot, watch};

/// An owner that nobody has asked anything for this long ends, unless it has something to say (see [`forbids_use`]); the
/// next question starts another.
const UNUSED: Duration = Duration::from_mins(1);

/// A lease without an owner, or that another server looks after, is looked at again after this.
const UNTOLD: Duration = Duration::from_secs(2);

/// Questions that may wait for an owner; more wait to be let in.
const MAILBOX: usize = 64;

#[derive(Debug, Clone, thiserror::Error)]
pub enum LeaseError {
    #[error("no lease `{0}`")]
    NotFound(LeaseId),
    #[error("lease `{0}` is paused; resume it first")]
    Paused(LeaseId),
    #[error("the instance of lease `{0}` was destroyed; the next command gets another")]
    Destroyed(LeaseId),
    #[error("lease `{lease}` is in use by {by}")]
    InUse { lease: LeaseId, by: String },
    #[error(transparent)]
    Illegal(#[from] IllegalTransition),
    #[error(transparent)]
    Provider(#[from] ProviderError),
    #[error("what has become of lease `{0}`'s instance can't be told; its provider gives no clear answer")]
    Unclear(LeaseId),
    #[error(transparent)]
    UnknownProvider(Arc<UnknownProvider>),
    #[error(transparent)]
    Store(Arc<StoreError>),
    #[error("the server is stopping")]
    Stopping,
}

impl From<StoreError> for LeaseError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

impl From<UnknownProvider> for LeaseError {
    fn from(error: UnknownProvider) -> Self {
        Self::UnknownProvider(Arc::new(error))
    }
}

/// Whether a paused lease may be woken on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AutoResume {
    Yes,
    No,
}

/// Whether others' use of the lease counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    Yes,
    No,
}

/// Who is asking, for the event log: `api`, `auto_resume`, `idle_reaper`, `recovery`...
pub type Source = &'static str;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Wish {
    Running(AutoResume),
    /// An instance that failed is replaced if one is still wanted: what was paused is not woken, and nothing is made in the
    /// place of what was destroyed.
    StillRunning,
    Paused(Force),
    Destroyed(Force),
    /// What is it like now? Wakes nothing.
    Look,
}

pub(crate) struct Ask {
    pub(crate) wish: Wish,
    pub(crate) source: Source,
    /// Whoever saw this instance fail: what was seen before doesn't count.
    pub(crate) suspect: Option<InstanceId>,
    /// A session that doesn't count as another's use: the asker's own.
    pub(crate) own: Vec<stead_model::ids::SessionId>,
    pub(crate) reply: oneshot::Sender<Result<Ready, LeaseError>>,
}

/// A lease as it is now, with the instance it has.
#[derive(Debug, Clone)]
pub struct Ready {
    pub lease: Lease,
    pub instance: Option<Instance>,
}

impl Ready {
    /// How the provider knows the instance.
    pub fn handle(&self) -> Option<Handle> {
        let instance = self.instance.as_ref()?;
        Some(Handle {
            instance: instance.id.clone(),
            lease: self.lease.id.clone(),
            workspace: self.lease.workspace.clone(),
            reference: instance.reference.clone(),
        })
    }
}

/// What an event of a lease tells of it, as JSON.
pub(crate) fn payload(after: &Lease) -> String {
    let told = serde_json::json!({
        "desired": after.desired.as_str(),
        "observed": after.observed.as_str(),
        "instance": after.instance.as_ref().map(InstanceId::as_str),
    });
    told.to_string()
}

#[derive(Debug)]
struct Owner {
    asks: mpsc::Sender<Ask>,
    seen: watch::Receiver<Option<Lease>>,
}

/// The owners of leases, started when they are asked for.
#[derive(Debug, Clone)]
pub(crate) struct Leases {
    core: Arc<Core>,
    owners: Arc<Mutex<HashMap<LeaseId, Owner>>>,
    arrivals: Arrivals,
}

/// Who is about to use which lease, and has no session in the store yet that says so.
#[derive(Debug, Clone, Default)]
struct Arrivals(Arc<Mutex<HashMap<LeaseId, usize>>>);

impl Arrivals {
    fn are_at(&self, lease: &LeaseId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(lease)
    }
}

/// Held by who is about to use a lease: meanwhile it is neither paused nor destroyed, unless that is forced.
#[derive(Debug)]
pub(crate) struct Arriving {
    arrivals: Arrivals,
    lease: LeaseId,
}

impl Drop for Arriving {
    fn drop(&mut self) {
        let mut arrivals = self.arrivals.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = arrivals.get_mut(&self.lease) {
            *count -= 1;
            if *count == 0 {
                arrivals.remove(&self.lease);
            }
        }
    }
}

impl Leases {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, owners: Arc::default(), arrivals: Arrivals::default() }
    }

    /// To be held from before [`Self::ensure_running`] until the session is in the store.
    pub(crate) fn arrive(&self, lease: &LeaseId) -> Arriving {
        let mut arrivals = self.arrivals.0.lock().unwrap_or_else(PoisonError::into_inner);
        *arrivals.entry(lease.clone()).or_default() += 1;
        Arriving { arrivals: self.arrivals.clone(), lease: lease.clone() }
    }

    /// Has an instance run, whatever that takes: make one, wake it, replace a dead one.
    pub(crate) async fn ensure_running(
        &self,
        lease: &LeaseId,
        resume: AutoResume,
        source: Source,
    ) -> Result<Ready, LeaseError> {
        self.ask(lease, Wish::Running(resume), source, None, Vec::new()).await
    }

    /// The same after an instance was seen to fail.
    pub(crate) async fn ensure_running_beyond(
        &self,
        lease: &LeaseId,
        suspect: InstanceId,
        source: Source,
    ) -> Result<Ready, LeaseError> {
        self.ask(lease, Wish::Running(AutoResume::Yes), source, Some(suspect), Vec::new()).await
    }

    /// The same for somebody who follows what the instance ran. Whoever pauses or destroys an instance breaks the connections
    /// to it, so a break alone is no reason to wake it or to make another.
    pub(crate) async fn keep_running_beyond(
        &self,
        lease: &LeaseId,
        suspect: InstanceId,
        source: Source,
    ) -> Result<Ready, LeaseError> {
        self.ask(lease, Wish::StillRunning, source, Some(suspect), Vec::new()).await
    }

    pub(crate) async fn pause(
        &self,
        lease: &LeaseId,
        force: Force,
        own: Vec<stead_model::ids::SessionId>,
        source: Source,
    ) -> Result<Ready, LeaseError> {
        self.ask(lease, Wish::Paused(force), source, None, own).await
    }

    pub(crate) async fn destroy(
        &self,
        lease: &LeaseId,
        force: Force,
        own: Vec<stead_model::ids::SessionId>,
        source: Source,
    ) -> Result<Ready, LeaseError> {
        self.ask(lease, Wish::Destroyed(force), source, None, own).await
    }

    pub(crate) async fn look(&self, lease: &LeaseId, source: Source) -> Result<Ready, LeaseError> {
        self.ask(lease, Wish::Look, source, None, Vec::new()).await
    }

    /// The same, whatever was seen before: by a server that is gone, and who knows what has gone with it.
    pub(crate) async fn look_anew(&self, lease: &Lease, source: Source) -> Result<Ready, LeaseError> {
        self.ask(&lease.id, Wish::Look, source, lease.instance.clone(), Vec::new()).await
    }

    /// The same by who saw an instance fail.
    pub(crate) async fn look_beyond(
        &self,
        lease: &LeaseId,
        suspect: InstanceId,
        source: Source,
    ) -> Result<Ready, LeaseError> {
        self.ask(lease, Wish::Look, source, Some(suspect), Vec::new()).await
    }

    /// Whether something holds of what its owner last knew; true if it has none, for then nothing has happened to it.
    pub(crate) fn last_seen(&self, lease: &LeaseId, holds: impl Fn(&Lease) -> bool) -> bool {
        let owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.get(lease).is_none_or(|owner| owner.seen.borrow().as_ref().is_none_or(holds))
    }

    /// Whether somebody has asked for something lately, and may be waiting for it.
    pub(crate) fn has_owner(&self, lease: &LeaseId) -> bool {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner).contains_key(lease)
    }

    /// Waits until something has happened to a lease, or for as long as nobody would be told of it.
    pub(crate) async fn change(&self, lease: &LeaseId) {
        let seen = {
            let owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
            owners.get(lease).map(|owner| owner.seen.clone())
        };
        let told = async {
            match seen {
                Some(mut seen) => drop(seen.changed().await),
                None => std::future::pending().await,
            }
        };
        let _ = tokio::time::timeout(UNTOLD, told).await;
    }

    /// Waits until a lease is no longer wanted paused, as far as is known here, or for a moment: another server may have
    /// resumed it.
    pub(crate) async fn unpaused(&self, lease: &LeaseId) {
        let seen = {
            let owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
            owners.get(lease).map(|owner| owner.seen.clone())
        };
        let is_paused = |lease: &Option<Lease>| lease.as_ref().is_some_and(|lease| lease.desired == Desired::Paused);
        let told = async {
            match seen.filter(|seen| is_paused(&seen.borrow())) {
                Some(mut seen) => drop(seen.wait_for(|lease| !is_paused(lease)).await),
                // Its owner hasn't told yet that it is paused, or another server has paused it: whoever went by what the
                // owner told before would ask without a rest.
                None => std::future::pending().await,
            }
        };
        let _ = tokio::time::timeout(UNTOLD, told).await;
    }

    async fn ask(
        &self,
        lease: &LeaseId,
        wish: Wish,
        source: Source,
        suspect: Option<InstanceId>,
        own: Vec<stead_model::ids::SessionId>,
    ) -> Result<Ready, LeaseError> {
        let (reply, answer) = oneshot::channel();
        let mut ask = Ask { wish, source, suspect, own, reply };
        loop {
            let owner = self.owner(lease);
            match owner.send(ask).await {
                Ok(()) => return answer.await.map_err(|_| LeaseError::Stopping)?,
                // It ended between the two; ask the next one.
                Err(mpsc::error::SendError(back)) => ask = back,
            }
            if self.core.stop.is_cancelled() {
                return Err(LeaseError::Stopping);
            }
        }
    }

    fn owner(&self, lease: &LeaseId) -> mpsc::Sender<Ask> {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(owner) = owners.get(lease).filter(|owner| !owner.asks.is_closed()) {
            return owner.asks.clone();
        }
        let (asks, inbox) = mpsc::channel(MAILBOX);
        let (publish, seen) = watch::channel(None);
        let own = Own { leases: self.clone(), lease: lease.clone(), inbox, publish };
        self.core.tasks.spawn(own.run());
        owners.insert(lease.clone(), Owner { asks: asks.clone(), seen });
        asks
    }
}

/// Whether the lease has an instance that is to be paused or destroyed. The owner must stay then: terminals that are open on
/// the instance ask the owner whether they may use it, and without an owner they would.
fn forbids_use(lease: &Lease) -> bool {
    lease.instance.is_some() && lease.desired != Desired::Running
}

/// The task.
struct Own {
    leases: Leases,
    lease: LeaseId,
    inbox: mpsc::Receiver<Ask>,
    publish: watch::Sender<Option<Lease>>,
}

impl Own {
    async fn run(mut self) {
        let core = Arc::clone(&self.leases.core);
        let mut driver = driver::Driver::new(core, self.lease.clone(), self.leases.arrivals.clone());
        loop {
            let stop = self.leases.core.stop.clone();
            let must_stay = driver.lease().is_some_and(forbids_use);
            let ask = tokio::select! {
                // Even when stopping, what has been asked is answered.
                biased;
                ask = self.inbox.recv() => ask,
                () = tokio::time::sleep(UNUSED), if !must_stay => None,
                () = stop.cancelled() => None,
            };
            match ask {
                Some(ask) => {
                    let runs = matches!(ask.wish, Wish::Running(_) | Wish::StillRunning);
                    let answer = if runs && self.leases.core.closing.is_cancelled() {
                        Err(LeaseError::Stopping)
                    } else {
                        driver.grant(&ask).await
                    };
                    self.publish.send_replace(driver.lease().cloned());
                    let _ = ask.reply.send(answer);
                }
                None if self.leave() => return,
                None => {}
            }
        }
    }

    /// Ends, unless somebody has asked meanwhile.
    fn leave(&mut self) -> bool {
        let mut owners = self.leases.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.inbox.is_empty() {
            return false;
        }
        self.inbox.close();
        owners.remove(&self.lease);
        true
    }
}
