//! Finding an instance at its cloud by what we called it, and whether it lives. What a cloud says is a claim.

use super::Far;
use crate::provider::{Effect, Handle, ProviderError, Trouble};
use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;
use stead_clouds::Condition;
use stead_model::ids::{InstanceId, LeaseId};
use stead_model::lease::Seen;

/// How often a sandbox that is said to run is asked for a sign of life before it is taken for gone.
const SIGNS: u32 = 3;
const SIGN_WITHIN: Duration = Duration::from_secs(20);
const SIGN_APART: Duration = Duration::from_secs(1);

impl Far {
    pub(super) fn labels(&self, handle: Option<(&InstanceId, &LeaseId, &str)>) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([
            ("stead".to_owned(), self.config.stead.clone()),
            ("stead-provider".to_owned(), self.config.name.to_string()),
        ]);
        if let Some((instance, lease, workspace)) = handle {
            labels.insert("stead-instance".to_owned(), instance.to_string());
            labels.insert("stead-lease".to_owned(), lease.to_string());
            labels.insert("stead-workspace".to_owned(), workspace.to_owned());
        }
        labels
    }

    /// What the cloud calls it; none if it has no such thing.
    pub(super) async fn id(&self, handle: &Handle, what: &'static str) -> Result<Option<String>, ProviderError> {
        if !handle.reference.is_empty() {
            // Of another instance of the same lease it would be the wrong one.
            let named = handle.reference.split_once('@').filter(|(instance, _)| *instance == handle.instance.as_str());
            return Ok(named.map(|(_, id)| id.to_owned()));
        }
        let mut labels = self.labels(None);
        labels.insert("stead-instance".to_owned(), handle.instance.to_string());
        let found = self.config.cloud.list(&labels).await.map_err(self.failed(what))?;
        Ok(found.into_iter().find(|listed| listed.condition != Condition::Gone).map(|listed| listed.id))
    }

    pub(super) async fn require(&self, handle: &Handle, what: &'static str) -> Result<String, ProviderError> {
        let id = self.id(handle, what).await?;
        id.ok_or_else(|| self.error(what, Trouble::NotFound, Effect::None, "there is no such instance"))
    }

    pub(super) async fn look(&self, id: &str, what: &'static str) -> Result<Condition, ProviderError> {
        match self.config.cloud.look(id).await {
            Err(error) if error.trouble == Trouble::NotFound => Ok(Condition::Gone),
            // It has failed, or the cloud makes no sense: the sandbox itself must know, and whoever wants to end it may.
            Err(error) if error.trouble == Trouble::Broken => {
                tracing::warn!(%error, sandbox = id, "a cloud does not say how a sandbox is");
                Ok(Condition::Unclear)
            }
            looked => looked.map_err(self.failed(what)),
        }
    }

    /// Whether a sandbox that is said to run really does: clouds have been known to say so of what was gone.
    pub(super) async fn listen_to(&self, handle: &Handle, id: &str) -> Result<Seen, ProviderError> {
        const WHAT: &str = "look at an instance";
        let porter = self.porters.lock().unwrap_or_else(PoisonError::into_inner).get(&handle.lease).cloned();
        if porter.is_some_and(|(instance, orders)| instance == handle.instance && orders.is_heard()) {
            return Ok(Seen::Running);
        }
        for _ in 0..SIGNS {
            match self.config.cloud.run(id, "true", SIGN_WITHIN).await {
                Ok(_) => return Ok(Seen::Running),
                Err(error) if error.trouble == Trouble::NotFound => return Ok(Seen::Gone),
                Err(error) if error.trouble == Trouble::Conflict => return Ok(seen(self.look(id, WHAT).await?)),
                Err(error) if error.trouble == Trouble::Unavailable => {
                    tracing::debug!(%error, instance = %handle.instance, "no sign of life");
                    tokio::time::sleep(SIGN_APART).await;
                }
                Err(_) => return Ok(Seen::Unclear),
            }
        }
        // Whoever makes the next one ends this one first, and brings its files here if it can be reached after all.
        tracing::warn!(instance = %handle.instance, "it is said to run and gives no sign of life");
        Ok(Seen::Gone)
    }
}

/// What the cloud calls it, and whose it is.
pub(super) fn reference(instance: &InstanceId, id: &str) -> String {
    format!("{instance}@{id}")
}

pub(super) fn seen(condition: Condition) -> Seen {
    match condition {
        Condition::Running => Seen::Running,
        Condition::Paused => Seen::Paused,
        Condition::Gone => Seen::Gone,
        Condition::Unclear => Seen::Unclear,
    }
}
