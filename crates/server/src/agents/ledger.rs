//! From what a machine says to rows: the events of a run, and the place from which to go on, in one transaction.

use super::driver::Driver;
use super::owner::Owner;
use crate::error::Error;
use crate::store::{AgentChange, AgentEvent, AgentRun, AgentSession, Ending, RunLease, RunStatus, StoreError, Worth};
use std::time::Duration;
use stead_agent::event::Rule;
use stead_agent::{Decision, Effects, Event, Policy, Told};
use stead_model::clock::Timestamp;
use stead_model::frame::Chunk;
use stead_model::plain::plain;
use tokio::time::Instant;

/// A database that fails is tried again for so long, and so often.
const TRIES: u32 = 20;
const TRY_AGAIN: Duration = Duration::from_millis(250);

/// What is to be written together.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) session: AgentSession,
    pub(super) events: Vec<Event>,
    pub(super) cannot_resume: bool,
    pub(super) worth: Worth,
}

impl Step {
    pub(super) fn new(session: &AgentSession) -> Self {
        Self { session: session.clone(), events: Vec::new(), cannot_resume: false, worth: Worth::Repeatable }
    }

    /// Of what somebody is told that it is so.
    pub(super) fn promised(session: &AgentSession) -> Self {
        Self { worth: Worth::Promised, ..Self::new(session) }
    }

    /// Whether the turn has had its last event.
    pub(super) fn is_over(&self) -> bool {
        self.events.last().is_some_and(Event::is_last)
    }
}

impl Owner {
    /// What a machine says, on its way to rows. Questions that the run's policy has an answer for are answered here.
    pub(super) fn take(&mut self, effects: Effects, step: &mut Step) {
        if let Some(process) = &mut step.session.process {
            process.unsent.push_str(&String::from_utf8_lossy(&effects.write));
        }
        for told in effects.told {
            match told {
                Told::Event(Event::Permission(permission)) => {
                    let rule = self.run.as_ref().map_or(Rule::Deny, |run| self.policy_of(run).rule(&permission.kind));
                    let decision = match rule {
                        Rule::Ask => {
                            if !step.is_over() {
                                step.events.push(Event::Permission(permission));
                            }
                            continue;
                        }
                        Rule::Allow => Decision::Allow,
                        Rule::Deny => Decision::Deny,
                    };
                    if decision == Decision::Deny && !step.is_over() {
                        step.events.push(Event::status(format!("not allowed: {}", permission.title)));
                    }
                    let option = permission.option_for(decision).map(|option| option.id.clone());
                    let screen = self.spec().and_then(|spec| spec.screen);
                    let answered = self
                        .driver
                        .as_mut()
                        .map(|driver| driver.answer(screen.as_ref(), &permission.id, option.as_deref()));
                    if let Some(Ok(more)) = answered {
                        self.take(more, step);
                    }
                }
                Told::Event(event) => {
                    if self.run.is_some() && !step.is_over() {
                        step.events.push(event);
                    }
                }
                Told::Ready { id, resumed } => {
                    // A conversation that could not be gone on with is no longer one to go on with.
                    step.session.resume = id;
                    if let Some(process) = &mut step.session.process {
                        process.resumed = Some(resumed);
                    }
                    self.tell_start(resumed, step);
                }
                Told::Named(id) => step.session.resume = Some(id),
                Told::CannotResume => step.cannot_resume = true,
            }
        }
    }

    /// What a run says itself counts more than what its session says.
    pub(super) fn policy_of<'a>(&'a self, run: &'a AgentRun) -> &'a Policy {
        run.policy.as_ref().unwrap_or(&self.session.policy)
    }

    /// The first event of a run that its agent is about to get.
    pub(super) fn tell_start(&mut self, resumed: bool, step: &mut Step) {
        let Some(run) = &self.run else { return };
        if !begins(run, &step.events) {
            step.events.push(self.start_of(run, resumed));
        }
    }

    fn start_of(&self, run: &AgentRun, resumed: bool) -> Event {
        Event::Start {
            run_id: run.id.to_string(),
            session_id: self.session.id.to_string(),
            key: self.session.key.to_string(),
            resumed,
        }
    }

    /// Puts the start of a run before everything else that is told of it. What is only said to people waits for it; of a
    /// run that ends, or asks, before its agent is ready, it is known that nothing was resumed.
    fn in_order(&mut self, events: &mut Vec<Event>) {
        let Some(run) = &self.run else { return };
        if run.last_seq > 0 || events.is_empty() {
            return;
        }
        if events.iter().all(|event| matches!(event, Event::Status { .. })) {
            self.before_start.append(events);
            return;
        }
        let at = events.iter().position(|event| matches!(event, Event::Start { .. }));
        let start = at.map_or_else(|| self.start_of(run, false), |at| events.remove(at));
        let rest = std::mem::take(events);
        events.push(start);
        events.append(&mut self.before_start);
        events.extend(rest);
    }

    /// A piece of what the agent writes, in lines.
    pub(super) fn read(&mut self, chunk: &Chunk, step: &mut Step) {
        let Some(process) = &step.session.process else { return };
        let position = process.read + self.lines.waiting() as u64;
        let end = chunk.offset + chunk.bytes.len() as u64;
        if end <= position {
            return;
        }
        let known = usize::try_from(position.saturating_sub(chunk.offset)).unwrap_or(usize::MAX);
        let new = chunk.bytes.get(known..).unwrap_or_default();
        let mut whole = Vec::new();
        self.lines.feed(new, |line| whole.push(line.to_vec()));
        for line in &whole {
            let Some(Driver::Lines(machine)) = &mut self.driver else { return };
            let effects = machine.line(line);
            let only_status = !effects.told.is_empty()
                && effects.told.iter().all(|told| matches!(told, Told::Event(Event::Status { .. })));
            // One that says again and again that it can't go on does nothing.
            if !only_status {
                self.active = Instant::now();
            }
            self.take(effects, step);
        }
        if let Some(process) = &mut step.session.process {
            process.read = end - self.lines.waiting() as u64;
            if self.lines.waiting() == 0 {
                process.seen = chunk.seq;
            } else if !whole.is_empty() {
                process.seen = chunk.seq - 1;
            }
        }
    }

    /// Writes down what has happened, then tells those who follow.
    pub(super) async fn commit(&mut self, mut step: Step) -> Result<(), Error> {
        let now = self.shared.clock.now();
        if let (Some(process), Some(driver)) = (&mut step.session.process, &self.driver) {
            process.machine = serde_json::to_value(driver).unwrap_or_default();
        }
        if let Some(process) = &mut step.session.process {
            // Whoever goes on from the row ends what is to be ended.
            process.ending =
                self.ending.map(|(cause, _)| cause).filter(|_| !step.events.last().is_some_and(Event::is_last));
        }
        let until = self.until(now);
        let mut events = Vec::new();
        let mut runs = Vec::new();
        self.in_order(&mut step.events);
        if let Some(run) = &mut self.run {
            for event in &mut step.events {
                self_made(event, self.ending.map(|(cause, _)| cause), self.shared.settings.activity_timeout);
                run.last_seq += 1;
                events.push(AgentEvent { run: run.id.clone(), seq: run.last_seq, at: now, event: event.clone() });
            }
            if let Some(last) = step.events.last().filter(|event| event.is_last()) {
                run.status = status_of(last);
                run.ended_at = Some(now);
            }
            runs.push(run.clone());
            step.session.last_used_at = now;
            step.session.run = (!run.status.is_final()).then(|| RunLease { run: run.id.clone(), until });
        }
        step.session.version = self.session.version + 1;
        let sessions = vec![(self.session.clone(), step.session.clone())];
        let change = AgentChange { sessions, runs, events, worth: step.worth };
        self.write(&change).await?;
        self.session = step.session;
        if self.run.as_ref().is_some_and(|run| run.status.is_final()) {
            (self.run, self.ending) = (None, None);
            self.before_start.clear();
            self.renewed = true;
        }
        let asks = self.run.is_some() && !self.questions().is_empty();
        self.asked = if asks { Some(self.asked.unwrap_or_else(Instant::now)) } else { None };
        self.shared.tell(&self.session.id);
        Ok(())
    }

    /// How long a run has its session if nothing more happens.
    fn until(&self, now: Timestamp) -> Timestamp {
        let within = self.shared.settings.activity_timeout.max(self.shared.settings.permission_timeout);
        let within = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        Timestamp(now.0.saturating_add(within))
    }

    /// A message that never came to its turn.
    pub(super) async fn end_queued(&mut self, mut run: AgentRun) -> Result<(), Error> {
        let now = self.shared.clock.now();
        let mut events = Vec::new();
        for event in [self.start_of(&run, false), Event::Aborted {}] {
            run.last_seq += 1;
            events.push(AgentEvent { run: run.id.clone(), seq: run.last_seq, at: now, event });
        }
        (run.status, run.ended_at) = (RunStatus::Aborted, Some(now));
        let worth = Worth::Promised;
        let change = AgentChange { runs: vec![run], events, worth, ..AgentChange::default() };
        self.write(&change).await?;
        self.shared.tell(&self.session.id);
        Ok(())
    }

    /// What was heard is in the journal and can be read again; but who can't write can't go on either.
    async fn write(&self, change: &AgentChange) -> Result<(), Error> {
        for _ in 0..TRIES {
            match self.shared.store.change_agents(change).await {
                Ok(()) => return Ok(()),
                Err(error @ (StoreError::NoSpace | StoreError::Database(_))) => {
                    tracing::warn!(%error, session = %self.session.id, "an agent's events can't be written now");
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.shared.store.change_agents(change).await?)
    }
}

/// Whether the start of a run has been told, or is about to be.
fn begins(run: &AgentRun, events: &[Event]) -> bool {
    run.last_seq > 0 || events.iter().any(|event| matches!(event, Event::Start { .. }))
}

/// A turn that we ended because nothing happened did not end by itself, whatever its agent makes of it. What an agent says
/// of its failure it may have written for a terminal.
fn self_made(event: &mut Event, cause: Option<Ending>, within: Duration) {
    match event {
        Event::Error { error } => error.message = plain(&error.message),
        Event::Status { text } => *text = plain(text),
        Event::Start { .. }
        | Event::Delta { .. }
        | Event::Tool(_)
        | Event::Permission(_)
        | Event::Message { .. }
        | Event::Done { .. }
        | Event::Aborted {} => {}
    }
    if event.is_last() && cause == Some(Ending::Silence) && !matches!(event, Event::Done { .. }) {
        let message = format!("nothing happened for {} s, so the turn was ended", within.as_secs());
        *event = Event::error("agent_timeout", message);
    } else if event.is_last() && cause == Some(Ending::Asked) {
        *event = Event::Aborted {};
    }
}

fn status_of(last: &Event) -> RunStatus {
    match last {
        Event::Done { .. } => RunStatus::Done,
        Event::Aborted {} => RunStatus::Aborted,
        Event::Error { .. }
        | Event::Start { .. }
        | Event::Status { .. }
        | Event::Delta { .. }
        | Event::Tool(_)
        | Event::Permission(_)
        | Event::Message { .. } => RunStatus::Failed,
    }
}
