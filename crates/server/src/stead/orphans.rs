//! Instances that a provider has and no lease knows. They are never removed by themselves: somebody may want what is in
//! them.

use super::Stead;
use crate::error::Error;
use crate::lease::payload;
use crate::provider::{Found, Handle, in_time};
use crate::store::{InstanceChange, LeaseEvent};
use stead_model::ids::{EventId, InstanceId, LeaseId, ProviderName};
use stead_model::lease::{Input, Lease, Seen};
use stead_model::thread::Instance;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    pub provider: ProviderName,
    pub handle: Handle,
    pub seen: Seen,
}

impl Stead {
    /// Asks every provider; one that doesn't answer is an error, for a list that hides things is none.
    pub async fn orphans(&self) -> Result<Vec<Orphan>, Error> {
        let core = &self.inner.core;
        let mut orphans = Vec::new();
        for provider in core.providers.iter() {
            for Found { handle, seen } in in_time(provider.name(), "list instances", provider.list()).await? {
                let known = core.store.lease_of_instance(&handle.instance).await?;
                if known.is_none_or(|lease| lease.instance.as_ref() != Some(&handle.instance)) {
                    orphans.push(Orphan { provider: provider.name().clone(), handle, seen });
                }
            }
        }
        Ok(orphans)
    }

    /// Puts a lease around an orphan.
    pub async fn adopt(&self, instance: &InstanceId) -> Result<Lease, Error> {
        let core = &self.inner.core;
        let orphan = self.orphan(instance).await?;
        let now = core.now();
        let id = orphan.handle.lease.clone();
        if core.store.lease(&id).await?.is_some() {
            return Err(Error::Conflict(format!("lease `{id}` has another instance by now; remove this one")));
        }
        let lease = Lease::new(id.clone(), orphan.provider.clone(), orphan.handle.workspace.clone(), now);
        core.store.put_lease(&lease).await?;
        let input = Input::Begin(instance.clone());
        let noted = self.note(&lease, &input, |lease| {
            InstanceChange::Started(Box::new(Instance {
                id: instance.clone(),
                lease: lease.id.clone(),
                provider: lease.provider.clone(),
                reference: orphan.handle.reference.clone(),
                started_at: now,
                last_seen_at: now,
                ended_at: None,
                metadata: vec![("adopted".to_owned(), "true".to_owned())],
            }))
        });
        let began = noted.await?;
        self.note(&began, &Input::Saw(orphan.seen), |_| InstanceChange::Seen(instance.clone())).await
    }

    /// Destroys an orphan.
    pub async fn remove_orphan(&self, instance: &InstanceId) -> Result<(), Error> {
        let orphan = self.orphan(instance).await?;
        let provider = self.inner.core.provider(&orphan.provider)?;
        Ok(in_time(&orphan.provider, "destroy", provider.destroy(&orphan.handle)).await?)
    }

    async fn orphan(&self, instance: &InstanceId) -> Result<Orphan, Error> {
        let found = self.orphans().await?.into_iter().find(|orphan| orphan.handle.instance == *instance);
        found.ok_or_else(|| Error::NotFound { kind: "orphan", id: instance.to_string() })
    }

    async fn note(
        &self,
        before: &Lease,
        input: &Input,
        change: impl Fn(&Lease) -> InstanceChange,
    ) -> Result<Lease, Error> {
        let core = &self.inner.core;
        let after = before.apply(input, core.now()).map_err(|error| Error::Conflict(error.to_string()))?;
        let event = LeaseEvent {
            id: EventId::made_of(core.entropy()),
            lease: LeaseId::clone(&after.id),
            version: after.version,
            kind: input.kind().to_owned(),
            source: "adopt".to_owned(),
            payload: payload(&after),
            error: None,
            at: core.now(),
        };
        core.store.replace_lease(before, &after, &event, &change(&after)).await?;
        Ok(after)
    }
}
