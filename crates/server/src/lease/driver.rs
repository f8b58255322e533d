//! Brings what is seen of a lease to what is wanted of it, one step at a time. The model says which step; here it is
//! done, and what came of it is written with its event before the next one.

use super::{Arrivals, Ask, AutoResume, Force, LeaseError, Ready, Source, Wish};
use crate::core::Core;
use crate::provider::{Blueprint, Created, Effect, Handle, Provider, ProviderError, Trouble, in_time};
use crate::store::{InstanceChange, LeaseEvent, StoreError};
use std::sync::Arc;
use stead_model::ids::{EventId, InstanceId, LeaseId};
use stead_model::lease::{Desired, Input, Lease, Observed, Seen, Step};
use stead_model::project::Demands;
use stead_model::session::Session;
use stead_model::thread::Instance;

/// Steps towards one wish. A dead instance takes three (look, make, done); a provider that keeps saying something else
/// is not chased for ever.
const MOST_STEPS: u32 = 8;

/// Which sessions a lease may have when a pause or a destruction is written.
enum Users {
    Any,
    /// These, unchanged: they were checked, and none of them forbids it.
    Only(Vec<Session>),
}

#[derive(Debug)]
pub(super) struct Driver {
    core: Arc<Core>,
    id: LeaseId,
    /// As of the last read or write; what was merely seen again is only here.
    lease: Option<Lease>,
    instance: Option<Instance>,
    arrivals: Arrivals,
}

impl Driver {
    pub(super) fn new(core: Arc<Core>, id: LeaseId, arrivals: Arrivals) -> Self {
        Self { core, id, lease: None, instance: None, arrivals }
    }

    pub(super) fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// The next load reads the row again: another server may have written it.
    fn forget(&mut self) {
        self.lease = None;
    }

    pub(super) async fn grant(&mut self, ask: &Ask) -> Result<Ready, LeaseError> {
        let mut tries = 0;
        loop {
            match self.try_grant(ask).await {
                // Somebody else wrote it: begin again with what is there now.
                Err(LeaseError::Store(error)) if tries < 3 && matches!(*error, StoreError::Conflict { .. }) => {
                    tries += 1;
                    self.forget();
                }
                answer => return answer,
            }
        }
    }

    async fn try_grant(&mut self, ask: &Ask) -> Result<Ready, LeaseError> {
        if ask.suspect.is_some() {
            self.forget();
        }
        let mut lease = self.load().await?;
        if ask.suspect.is_some() && ask.suspect == lease.instance && !lease.needs_refresh {
            lease.needs_refresh = true;
        }
        match ask.wish {
            Wish::Look => {
                let looked = self.look(lease, ask.source).await?;
                return Ok(self.ready(looked));
            }
            Wish::Running(resume) => {
                lease = self.finish_destroying(lease, ask.source).await?;
                if lease.desired == Desired::Paused || lease.observed == Observed::Paused {
                    // What was paused from outside may run again by now; look before refusing.
                    lease = self.look(lease, ask.source).await?;
                    let asleep = lease.desired == Desired::Paused || lease.observed == Observed::Paused;
                    if asleep && resume == AutoResume::No {
                        return Err(LeaseError::Paused(self.id.clone()));
                    }
                }
                if lease.desired == Desired::Destroyed && lease.observed != Observed::None {
                    // A destruction that was cut short is finished first; what runs after it is new.
                    lease = self.drive(lease, ask.source).await?;
                }
                lease = self.want(lease, Desired::Running, &Input::WantRunning, &Users::Any, ask.source).await?;
            }
            Wish::StillRunning => match lease.desired {
                Desired::Running => {}
                Desired::Paused => return Err(LeaseError::Paused(self.id.clone())),
                Desired::Destroyed => return Err(LeaseError::Destroyed(self.id.clone())),
            },
            Wish::Paused(force) => {
                let users = self.refuse_if_used(&lease, force, ask).await?;
                lease = self.finish_destroying(lease, ask.source).await?;
                if lease.observed == Observed::None {
                    // There is nothing to put to sleep, and nothing is made for it.
                    return Ok(self.ready(lease));
                }
                lease = self.want(lease, Desired::Paused, &Input::WantPaused, &users, ask.source).await?;
            }
            Wish::Destroyed(force) => {
                let users = self.refuse_if_used(&lease, force, ask).await?;
                lease = self.want(lease, Desired::Destroyed, &Input::WantDestroyed, &users, ask.source).await?;
            }
        }
        let reached = self.drive(lease, ask.source).await?;
        Ok(self.ready(reached))
    }

    /// What is being destroyed can't be wanted back: that would be another. So it is destroyed first.
    async fn finish_destroying(&mut self, lease: Lease, source: Source) -> Result<Lease, LeaseError> {
        if lease.desired == Desired::Destroyed && lease.observed != Observed::None {
            return self.drive(lease, source).await;
        }
        Ok(lease)
    }

    fn ready(&self, lease: Lease) -> Ready {
        let instance = self.instance.clone().filter(|instance| lease.instance.as_ref() == Some(&instance.id));
        Ready { lease, instance }
    }

    async fn load(&mut self) -> Result<Lease, LeaseError> {
        if let Some(lease) = &self.lease {
            return Ok(lease.clone());
        }
        let lease = self.core.store.lease(&self.id).await?.ok_or_else(|| LeaseError::NotFound(self.id.clone()))?;
        self.instance = match &lease.instance {
            Some(id) => self.core.store.instance(id).await?,
            None => None,
        };
        self.lease = Some(lease.clone());
        Ok(lease)
    }

    async fn want(
        &mut self,
        lease: Lease,
        desired: Desired,
        input: &Input,
        users: &Users,
        source: Source,
    ) -> Result<Lease, LeaseError> {
        if lease.desired == desired {
            return Ok(lease);
        }
        let Users::Only(sessions) = users else {
            return self.record(&lease, input, source, InstanceChange::Nothing).await;
        };
        let (after, event) = self.change(&lease, input, source)?;
        self.core.store.replace_lease_if_sessions_unchanged(sessions, &lease, &after, &event).await?;
        self.lease = Some(after.clone());
        Ok(after)
    }

    /// Refuses to pause or destroy an instance that others use. Gives the sessions that were checked: they must be unchanged
    /// when the pause or the destruction is written.
    async fn refuse_if_used(&self, lease: &Lease, force: Force, ask: &Ask) -> Result<Users, LeaseError> {
        if force == Force::Yes || lease.observed == Observed::None {
            return Ok(Users::Any);
        }
        let in_use = |by: String| LeaseError::InUse { lease: self.id.clone(), by };
        if self.arrivals.are_at(&self.id) {
            return Err(in_use("a terminal that is being opened".to_owned()));
        }
        let now = self.core.present();
        let sessions = self.core.store.live_sessions_of_lease(&self.id).await?;
        for session in &sessions {
            if !ask.own.contains(&session.id) && session.expiry(now.clone()).is_none() {
                return Err(in_use(format!("session `{}` of thread `{}`", session.id, session.thread)));
            }
        }
        for command in self.core.store.open_commands().await? {
            // Who destroys ends what runs in it as well.
            let ended = matches!(ask.wish, Wish::Destroyed(_))
                && command.session.as_ref().is_some_and(|session| ask.own.contains(session));
            if command.lease == self.id && !ended {
                return Err(in_use(format!("command `{}`", command.id)));
            }
        }
        Ok(Users::Only(sessions))
    }

    async fn drive(&mut self, mut lease: Lease, source: Source) -> Result<Lease, LeaseError> {
        for _ in 0..MOST_STEPS {
            lease = match lease.step(self.core.now()) {
                Step::Rest => return Ok(lease),
                Step::Probe => {
                    let looked = self.probe(lease, source).await?;
                    if looked.observed == Observed::Unknown {
                        return Err(LeaseError::Unclear(self.id.clone()));
                    }
                    looked
                }
                Step::Create => self.create(lease, source).await?,
                Step::Pause => self.act(lease, Input::Paused, Seen::Paused, source).await?,
                Step::Resume => self.act(lease, Input::Resumed, Seen::Running, source).await?,
                Step::Destroy => self.destroy(lease, source).await?,
            };
        }
        Err(LeaseError::Unclear(self.id.clone()))
    }

    /// Looks, if there is something to look at and what was seen isn't fresh. What was seen to be gone stays so: its
    /// instance has ended, and one that comes back after all is an orphan.
    async fn look(&mut self, lease: Lease, source: Source) -> Result<Lease, LeaseError> {
        let gone = matches!(lease.observed, Observed::None | Observed::Stopped);
        if gone || lease.is_fresh(self.core.now()) {
            return Ok(lease);
        }
        self.probe(lease, source).await
    }

    async fn probe(&mut self, lease: Lease, source: Source) -> Result<Lease, LeaseError> {
        let Some(handle) = self.handle(&lease) else {
            return self.record(&lease, &Input::Destroyed, source, InstanceChange::Nothing).await;
        };
        match self.call(&lease, "look", |provider| async move { provider.status(&handle).await }).await {
            Ok(seen) => self.saw(lease, seen, source).await,
            Err(error) => self.raise(&lease, error, source).await,
        }
    }

    async fn saw(&mut self, mut lease: Lease, seen: Seen, source: Source) -> Result<Lease, LeaseError> {
        let same = matches!(
            (seen, lease.observed),
            (Seen::Running, Observed::Running) | (Seen::Paused, Observed::Paused) | (Seen::Gone, Observed::Stopped)
        );
        if same && lease.last_error.is_none() {
            // Nothing happened: no event, no write. Only we know that it was seen again.
            lease.observed_at = Some(self.core.now());
            lease.needs_refresh = false;
            self.lease = Some(lease.clone());
            return Ok(lease);
        }
        let change = match (seen, &lease.instance) {
            (Seen::Gone, Some(instance)) => InstanceChange::Ended(instance.clone()),
            (Seen::Running | Seen::Paused, Some(instance)) => InstanceChange::Seen(instance.clone()),
            (Seen::Unclear, _) | (_, None) => InstanceChange::Nothing,
        };
        self.record(&lease, &Input::Saw(seen), source, change).await
    }

    async fn create(&mut self, lease: Lease, source: Source) -> Result<Lease, LeaseError> {
        let demands = self.demands(&lease).await?;
        let id = InstanceId::made_of(self.core.entropy());
        let now = self.core.now();
        let mut instance = Instance {
            id: id.clone(),
            lease: self.id.clone(),
            provider: lease.provider.clone(),
            reference: String::new(),
            started_at: now,
            last_seen_at: now,
            ended_at: None,
            metadata: Vec::new(),
        };
        // Noted before it is made: whoever comes after us knows the name to look for.
        let change = InstanceChange::Started(Box::new(instance.clone()));
        let lease = self.record(&lease, &Input::Begin(id.clone()), source, change).await?;
        self.instance = Some(instance.clone());
        let (name, workspace) = (self.id.clone(), lease.workspace.clone());
        let generation = lease.version;
        let blueprint = Blueprint { instance: id.clone(), lease: name, generation, workspace, demands };
        let called = self.call(&lease, "create", |provider| async move { provider.create(&blueprint).await }).await;
        self.core.measure.created(&lease.provider, called.is_ok());
        match called {
            Ok(created) => {
                let Created { reference, metadata, caveats } = created;
                (instance.reference, instance.metadata) = (reference, metadata);
                self.instance = Some(instance.clone());
                let known = InstanceChange::Known(Box::new(instance));
                let recorded = self.record(&lease, &Input::Created(caveats), source, known).await;
                if let Err(LeaseError::Store(error)) = &recorded
                    && matches!(**error, StoreError::Conflict { .. } | StoreError::NotFound { .. })
                {
                    self.destroy_if_abandoned(&lease).await?;
                }
                recorded
            }
            Err(LeaseError::Provider(error)) if error.effect == Effect::None => {
                let input = Input::NotCreated { error: error.to_string() };
                self.record(&lease, &input, source, InstanceChange::Ended(id)).await?;
                Err(error.into())
            }
            Err(error) => {
                // It may be there all the same: look before saying that it isn't.
                let failed = self.note_failure(&lease, &error, source).await?;
                let looked = self.probe(failed, source).await?;
                if looked.observed == Observed::Running { Ok(looked) } else { Err(error) }
            }
        }
    }

    /// Destroys a new instance that its lease does not name any more. Another server may have looked for the instance before
    /// the provider had made it, and recorded it as gone; nobody else would ever destroy it.
    async fn destroy_if_abandoned(&self, made: &Lease) -> Result<(), LeaseError> {
        let now = self.core.store.lease(&self.id).await?;
        if now.is_some_and(|now| now.instance == made.instance && now.observed != Observed::Stopped) {
            return Ok(());
        }
        let Some(handle) = self.handle(made) else { return Ok(()) };
        let destroyed = self.call(made, "destroy", |provider| async move { provider.destroy(&handle).await });
        if let Err(error) = destroyed.await {
            tracing::warn!(%error, lease = %self.id, instance = ?made.instance, "could not destroy an instance that no lease names");
        }
        Ok(())
    }

    /// What the project of its threads asks for. They were made where that can be had; a project that was configured
    /// otherwise since is told, not ignored.
    async fn demands(&self, lease: &Lease) -> Result<Demands, LeaseError> {
        let store = &self.core.store;
        let terminals = store.terminals_of_lease(&lease.id).await?;
        let Some(terminal) = terminals.first() else { return Ok(Demands::default()) };
        let thread = store.thread(&terminal.thread).await?;
        let Some(id) = thread.and_then(|thread| thread.project) else { return Ok(Demands::default()) };
        let project = store.project(&id).await?;
        let demands = project.map(|project| project.config.demands()).unwrap_or_default();
        match self.core.provider(&lease.provider)?.refuses(&demands) {
            None => Ok(demands),
            Some(setting) => {
                let message = format!("project `{id}` asks for `config.{setting}`, which it has not");
                let (trouble, effect) = (Trouble::Unsupported, Effect::None);
                Err(ProviderError::new(&lease.provider, "make an instance", trouble, effect, message).into())
            }
        }
    }

    /// Pauses or resumes.
    async fn act(&mut self, lease: Lease, done: Input, meant: Seen, source: Source) -> Result<Lease, LeaseError> {
        let Some(handle) = self.handle(&lease) else { return Err(LeaseError::Unclear(self.id.clone())) };
        let pausing = done == Input::Paused;
        let called = self.call(&lease, if pausing { "pause" } else { "resume" }, |provider| async move {
            if pausing { provider.pause(&handle).await } else { provider.resume(&handle).await }
        });
        match called.await {
            Ok(()) => {
                let change = lease.instance.clone().map_or(InstanceChange::Nothing, InstanceChange::Seen);
                self.record(&lease, &done, source, change).await
            }
            Err(error) => {
                let failed = self.note_failure(&lease, &error, source).await?;
                let looked = self.probe(failed, source).await?;
                let truth = match looked.observed {
                    Observed::Running => Seen::Running,
                    Observed::Paused => Seen::Paused,
                    Observed::Stopped | Observed::None => Seen::Gone,
                    Observed::Creating | Observed::Unknown => Seen::Unclear,
                };
                // It threw after it had done it; or there is nothing left to pause, and waking goes on by making another.
                let settled = truth == meant || (truth == Seen::Gone && !pausing);
                if settled {
                    return Ok(looked);
                }
                if pausing {
                    // It runs, and nobody may think that it is on its way to sleep.
                    self.record(&looked, &Input::WantRunning, source, InstanceChange::Nothing).await?;
                }
                Err(error)
            }
        }
    }

    async fn destroy(&mut self, lease: Lease, source: Source) -> Result<Lease, LeaseError> {
        let ended = lease.instance.clone().map_or(InstanceChange::Nothing, InstanceChange::Ended);
        let Some(handle) = self.handle(&lease) else {
            return self.record(&lease, &Input::Destroyed, source, ended).await;
        };
        let call = |provider: Arc<dyn Provider>| async move { provider.destroy(&handle).await };
        match self.call(&lease, "destroy", call).await {
            Ok(()) => self.record(&lease, &Input::Destroyed, source, ended).await,
            Err(LeaseError::Provider(error)) if error.trouble == Trouble::NotFound => {
                self.record(&lease, &Input::Destroyed, source, ended).await
            }
            Err(error) => {
                let failed = self.note_failure(&lease, &error, source).await?;
                if failed.observed == Observed::Stopped {
                    return Err(error);
                }
                let looked = self.probe(failed, source).await?;
                if looked.observed == Observed::Stopped {
                    self.record(&looked, &Input::Destroyed, source, InstanceChange::Nothing).await
                } else {
                    Err(error)
                }
            }
        }
    }

    fn handle(&self, lease: &Lease) -> Option<Handle> {
        let id = lease.instance.clone()?;
        let known = self.instance.as_ref().filter(|instance| instance.id == id);
        Some(Handle {
            instance: id,
            lease: self.id.clone(),
            workspace: lease.workspace.clone(),
            reference: known.map(|instance| instance.reference.clone()).unwrap_or_default(),
        })
    }

    /// Calls the provider, not for ever.
    async fn call<T, F: Future<Output = Result<T, ProviderError>>>(
        &self,
        lease: &Lease,
        what: &'static str,
        call: impl FnOnce(Arc<dyn Provider>) -> F,
    ) -> Result<T, LeaseError> {
        let provider = Arc::clone(self.core.provider(&lease.provider)?);
        Ok(in_time(&lease.provider, what, call(provider)).await?)
    }

    async fn note_failure(&mut self, lease: &Lease, error: &LeaseError, source: Source) -> Result<Lease, LeaseError> {
        let input = Input::Failed { error: error.to_string() };
        self.record(lease, &input, source, InstanceChange::Nothing).await
    }

    /// A failure is written down and raised; it is never swallowed.
    async fn raise(&mut self, lease: &Lease, error: LeaseError, source: Source) -> Result<Lease, LeaseError> {
        self.note_failure(lease, &error, source).await?;
        Err(error)
    }

    /// Changes the lease: row, event and instance together.
    async fn record(
        &mut self,
        before: &Lease,
        input: &Input,
        source: Source,
        instance: InstanceChange,
    ) -> Result<Lease, LeaseError> {
        let (after, event) = self.change(before, input, source)?;
        self.core.store.replace_lease(before, &after, &event, &instance).await?;
        if let InstanceChange::Ended(id) = &instance
            && self.instance.as_ref().is_some_and(|known| known.id == *id)
        {
            self.instance = None;
        }
        self.lease = Some(after.clone());
        Ok(after)
    }

    /// A lease after something has happened to it, and the event that tells so.
    fn change(&self, before: &Lease, input: &Input, source: Source) -> Result<(Lease, LeaseEvent), LeaseError> {
        let now = self.core.now();
        let after = before.apply(input, now)?;
        let error = match input {
            Input::Failed { error } | Input::NotCreated { error } => Some(error.clone()),
            Input::WantRunning
            | Input::WantPaused
            | Input::WantDestroyed
            | Input::Begin(_)
            | Input::Created(_)
            | Input::Paused
            | Input::Resumed
            | Input::Destroyed
            | Input::Saw(_) => None,
        };
        let event = LeaseEvent {
            id: EventId::made_of(self.core.entropy()),
            lease: self.id.clone(),
            version: after.version,
            kind: input.kind().to_owned(),
            source: source.to_owned(),
            payload: super::payload(&after),
            error,
            at: now,
        };
        Ok((after, event))
    }
}
