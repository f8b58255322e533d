//! Ending an instance, with what it has to tell brought here first.

use super::Far;
use super::find::reference;
use super::porter::Errand;
use crate::provider::{Blueprint, Handle, ProviderError};
use std::sync::PoisonError;
use stead_clouds::Condition;
use stead_model::ids::InstanceId;
use stead_model::lease::Seen;

/// How often an instance whose files can't be brought here is not destroyed before it is destroyed without them.
const SPARED: u32 = 3;

impl Far {
    pub(super) async fn end(&self, handle: &Handle) -> Result<(), ProviderError> {
        const WHAT: &str = "destroy";
        let Some(id) = self.id(handle, WHAT).await? else { return Ok(()) };
        // Of one that sleeps all is here already; and of one that the cloud is not sure about all can be had, perhaps.
        let may_answer = match self.look(&id, WHAT).await? {
            Condition::Running | Condition::Unclear => true,
            Condition::Paused | Condition::Gone => false,
        };
        if may_answer && let Err(error) = self.send(handle, &id, WHAT, &[Errand::CatchUp, Errand::Fetch]).await {
            // It may have gone; else it is spared, but not for ever: nobody could get rid of it.
            self.dismiss(&handle.lease);
            if self.listen_to(handle, &id).await? != Seen::Gone && self.spare(&handle.instance) {
                return Err(error);
            }
            tracing::warn!(%error, instance = %handle.instance, "destroyed without what it had not yet told");
        }
        self.dismiss(&handle.lease);
        self.config.cloud.destroy(&id).await.map_err(self.failed(WHAT))?;
        self.spared.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle.instance);
        Ok(())
    }

    pub(super) async fn end_others(&self, blueprint: &Blueprint) -> Result<(), ProviderError> {
        const WHAT: &str = "make a sandbox";
        let mut labels = self.labels(None);
        labels.insert("stead-lease".to_owned(), blueprint.lease.to_string());
        let there = self.config.cloud.list(&labels).await.map_err(self.failed(WHAT))?;
        for other in there {
            let instance = other.labels.get("stead-instance").and_then(|id| InstanceId::parse(id).ok());
            if instance.as_ref() == Some(&blueprint.instance) || other.condition == Condition::Gone {
                continue;
            }
            let Some(instance) = instance else { continue };
            let handle = Handle {
                lease: blueprint.lease.clone(),
                workspace: blueprint.workspace.clone(),
                reference: reference(&instance, &other.id),
                instance,
            };
            self.end(&handle).await?;
        }
        Ok(())
    }

    /// Whether it may live a little longer.
    fn spare(&self, instance: &InstanceId) -> bool {
        let mut spared = self.spared.lock().unwrap_or_else(PoisonError::into_inner);
        let times = spared.entry(instance.clone()).or_default();
        *times += 1;
        *times < SPARED
    }
}
