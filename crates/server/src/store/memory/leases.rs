//! Leases, their events, and the instances that they have had.

use super::{Tables, conflict, exists, missing, page};
use crate::store::{InstanceChange, LeaseEvent, Page, Result};
use stead_model::clock::Timestamp;
use stead_model::ids::{InstanceId, LeaseId, ProviderName};
use stead_model::lease::{Desired, Lease};
use stead_model::session::Session;
use stead_model::thread::Instance;

const LEASE: &str = "lease";
const INSTANCE: &str = "instance";

impl Tables {
    pub(super) fn put_lease(&mut self, lease: &Lease) -> Result<()> {
        if self.leases.contains_key(&lease.id) {
            return exists(LEASE, &lease.id);
        }
        self.leases.insert(lease.id.clone(), lease.clone());
        Ok(())
    }

    pub(super) fn leases_of(&self, provider: Option<&ProviderName>, at: &Page) -> Vec<Lease> {
        let of = |lease: &&Lease| provider.is_none_or(|provider| lease.provider == *provider);
        page(self.leases.values().filter(of), |lease| (lease.created_at, lease.id.as_str()), at)
    }

    pub(super) fn lease_of_instance(&self, instance: &InstanceId) -> Option<Lease> {
        self.leases.get(&self.instances.get(instance)?.lease).cloned()
    }

    pub(super) fn replace_lease(
        &mut self,
        before: &Lease,
        after: &Lease,
        event: &LeaseEvent,
        instance: &InstanceChange,
    ) -> Result<()> {
        let Some(stored) = self.leases.get(&before.id) else { return missing(LEASE, &before.id) };
        if stored.version != before.version {
            return conflict(LEASE, &before.id);
        }
        let created_at = stored.created_at;
        self.refuse_event(event)?;
        self.refuse_instance(&after.id, instance)?;
        self.leases.insert(before.id.clone(), Lease { created_at, ..after.clone() });
        self.event_ids.insert(event.id.clone(), event.lease.clone());
        let of_lease = |session: &Session| session.lease == event.lease && session.status.is_live();
        let users = self.sessions_where(of_lease, &Page::all());
        self.users.insert(event.id.clone(), users);
        self.events.entry(event.lease.clone()).or_default().insert(event.version, event.clone());
        self.change_instance(instance, event.at);
        Ok(())
    }

    pub(super) fn refuse_unless_running(&self, lease: &LeaseId, instance: &InstanceId) -> Result<()> {
        let runs = |lease: &Lease| lease.desired == Desired::Running && lease.instance.as_ref() == Some(instance);
        if self.leases.get(lease).is_some_and(runs) { Ok(()) } else { conflict(LEASE, lease) }
    }

    fn refuse_event(&self, event: &LeaseEvent) -> Result<()> {
        if self.event_ids.contains_key(&event.id) {
            return exists("event", &event.id);
        }
        // Another event has led to this version.
        if self.events.get(&event.lease).is_some_and(|events| events.contains_key(&event.version)) {
            return conflict(LEASE, &event.lease);
        }
        if !self.leases.contains_key(&event.lease) {
            return missing(LEASE, &event.lease);
        }
        Ok(())
    }

    fn refuse_instance(&self, lease: &LeaseId, change: &InstanceChange) -> Result<()> {
        let id = match change {
            InstanceChange::Nothing => return Ok(()),
            InstanceChange::Started(instance) => return self.refuse_new(instance),
            InstanceChange::Known(instance) => &instance.id,
            InstanceChange::Seen(id) | InstanceChange::Ended(id) => id,
        };
        match self.instances.get(id) {
            Some(instance) if instance.lease == *lease => Ok(()),
            Some(_) | None => missing(INSTANCE, id),
        }
    }

    fn refuse_new(&self, instance: &Instance) -> Result<()> {
        if self.instances.contains_key(&instance.id) {
            return exists(INSTANCE, &instance.id);
        }
        let rival = |other: &&Instance| other.lease == instance.lease && other.ended_at.is_none();
        match self.instances.values().find(rival) {
            Some(live) if instance.ended_at.is_none() => exists(INSTANCE, &live.id),
            Some(_) | None if !self.leases.contains_key(&instance.lease) => missing(LEASE, &instance.lease),
            Some(_) | None => Ok(()),
        }
    }

    fn change_instance(&mut self, change: &InstanceChange, at: Timestamp) {
        match change {
            InstanceChange::Nothing => {}
            InstanceChange::Started(instance) => {
                self.instances.insert(instance.id.clone(), Instance::clone(instance));
            }
            InstanceChange::Known(known) => {
                if let Some(instance) = self.instances.get_mut(&known.id) {
                    instance.reference.clone_from(&known.reference);
                    instance.metadata.clone_from(&known.metadata);
                    instance.last_seen_at = known.last_seen_at;
                }
            }
            InstanceChange::Seen(id) => {
                if let Some(instance) = self.instances.get_mut(id) {
                    instance.last_seen_at = instance.last_seen_at.max(at);
                }
            }
            // It ends once: what is said again later changes nothing.
            InstanceChange::Ended(id) => {
                if let Some(instance) = self.instances.get_mut(id) {
                    instance.ended_at = instance.ended_at.or(Some(at));
                }
            }
        }
    }

    pub(super) fn lease_events(&self, lease: &LeaseId, after_version: u64, limit: u32) -> Vec<LeaseEvent> {
        let events = self.events.get(lease).into_iter().flatten();
        events
            .map(|(_, event)| event)
            .filter(|event| event.version > after_version)
            .take(limit as usize)
            .cloned()
            .collect()
    }

    pub(super) fn delete_lease(&mut self, id: &LeaseId) -> Result<()> {
        if self.terminals.values().any(|terminal| terminal.lease == *id) {
            return conflict(LEASE, id);
        }
        self.leases.remove(id);
        self.past_leases.remove(id);
        self.events.remove(id);
        self.event_ids.retain(|_, lease| lease != id);
        self.instances.retain(|_, instance| instance.lease != *id);
        Ok(())
    }

    pub(super) fn live_instances(&self) -> Vec<Instance> {
        let live = self.instances.values().filter(|instance| instance.ended_at.is_none());
        page(live, |instance| (instance.started_at, instance.id.as_str()), &Page::all())
    }
}
