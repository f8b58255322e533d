//! What holds of the store and of the provider's truth after every step, whatever went wrong in it.

use crate::op::{Answer, Op};
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use stead_model::clock::Timestamp;
use stead_model::ids::{CommandId, LeaseId, SessionId, ThreadId};
use stead_model::lease::{Lease, Observed};
use stead_model::session::{CloseReason, Session};
use stead_model::thread::Instance;
use stead_server::lease::Force;
use stead_server::store::{LeaseEvent, Page, Store};

/// What is remembered from step to step.
#[derive(Debug, Default)]
pub(crate) struct Law {
    /// The version up to which a lease's events have been read.
    read: BTreeMap<LeaseId, u64>,
    live: BTreeSet<SessionId>,
    ended: BTreeSet<SessionId>,
    /// How commands ended, as whoever asked for them was told. Two servers at once may tell it differently: one runs it,
    /// and the other can't know that.
    ran: BTreeMap<CommandId, BTreeSet<Option<i32>>>,
    uses: BTreeMap<SessionId, Use>,
    /// Commands that went with their thread: who sends one again sends it to another terminal.
    excused: BTreeSet<CommandId>,
    overlapped: bool,
    ever_overlapped: bool,
    /// Sessions whose time was over when the step began.
    over: BTreeSet<SessionId>,
}

/// When a session was opened and used, by the time that has passed in the world, whatever its clock was set to.
#[derive(Debug, Clone, Copy)]
struct Use {
    /// Certainly opened and used after these, as far as a living server knows.
    opened_after: Option<Timestamp>,
    used_after: Option<Timestamp>,
    /// Certainly not opened or used after these.
    opened_by: Timestamp,
    used_by: Timestamp,
}

pub(crate) type Done = (Op, Answer);

impl Law {
    pub(crate) async fn begin(&mut self, world: &World) {
        let now = world.passed();
        self.over.clear();
        self.overlapped = false;
        for session in world.store.live_sessions().await.unwrap() {
            let Some(known) = self.uses.get(&session.id) else { continue };
            let moments = Session { started_at: known.opened_by, last_active_at: known.used_by, ..session.clone() };
            if moments.expiry(now).is_some() {
                self.over.insert(session.id);
            }
        }
    }

    /// A command that was said to have ended so has, whoever is asked later.
    pub(crate) async fn answered(&self, world: &World) -> Vec<String> {
        let mut wrong = Vec::new();
        for (id, codes) in self.ran.iter().filter(|(id, _)| !self.excused.contains(*id)) {
            let Some(row) = world.store.command(id).await.unwrap() else { continue };
            // One that a new server couldn't ask about is open: nothing wrong is said of it.
            let code = row.ending.as_ref().and_then(|ending| ending.exit_code);
            if row.status.is_final() && !codes.contains(&code) {
                wrong.push(format!("{id} was answered with {codes:?}, and is {:?} {:?}", row.status, row.ending));
            }
        }
        wrong
    }

    /// Two servers don't know of each other's uses: what one only noted doesn't count for the other.
    pub(crate) fn overlap(&mut self) {
        self.overlapped = true;
        self.ever_overlapped = true;
    }

    pub(crate) fn ever_overlapped(&self) -> bool {
        self.ever_overlapped
    }

    pub(crate) fn excuse(&mut self, commands: impl IntoIterator<Item = CommandId>) {
        self.excused.extend(commands);
    }

    /// A server died: what it had only noted is forgotten, and what passed between it and the next is what the clock
    /// says. One that was ever set back may say that nothing did.
    pub(crate) fn forget(&mut self, world: &World) {
        let now = world.passed();
        for known in self.uses.values_mut() {
            (known.opened_after, known.used_after) = (None, None);
            if world.clock.was_set_back() {
                (known.opened_by, known.used_by) = (now, now);
            }
        }
        if world.clock.was_set_back() {
            self.over.clear();
        }
    }

    pub(crate) async fn check(&mut self, world: &World, began: Timestamp, done: &[Done]) -> Vec<String> {
        let mut wrong = Vec::new();
        let leases = world.store.leases(None, &Page::all()).await.unwrap();
        let live = world.store.live_instances().await.unwrap();
        let sessions = self.sessions_of_now(world).await;
        for lease in &leases {
            let events = self.events(world, lease, &mut wrong).await;
            let live: Vec<_> = live.iter().filter(|instance| instance.lease == lease.id).collect();
            wrong.extend(one_lease(lease, &live));
            for event in &events {
                wrong.extend(one_event(event));
                wrong.extend(under_others(event, &world.store.sessions_at(&event.id), done));
            }
        }
        wrong.extend(self.sessions(world, &sessions, began, done));
        for (_, answer) in done {
            if let Answer::Ran(ran) = answer {
                let codes = self.ran.entry(ran.id.clone()).or_default();
                if !self.overlapped {
                    codes.clear();
                }
                codes.insert(ran.code);
            }
        }
        wrong.extend(truth(world, &leases));
        wrong.extend(executions(world, done, &self.excused));
        wrong
    }

    /// The events since the last step, without holes, the last of which tells what the row tells.
    async fn events(&mut self, world: &World, lease: &Lease, wrong: &mut Vec<String>) -> Vec<LeaseEvent> {
        let read = self.read.entry(lease.id.clone()).or_default();
        if lease.version < *read {
            // Deleted and made again.
            *read = 0;
        }
        let events = world.store.lease_events(&lease.id, *read, u32::MAX).await.unwrap();
        let versions: Vec<_> = events.iter().map(|event| event.version).collect();
        if versions != (*read + 1..=lease.version).collect::<Vec<_>>() {
            wrong.push(format!("{} is at version {}, with events {versions:?}", lease.id, lease.version));
        }
        *read = lease.version;
        if let Some(last) = events.last() {
            let (desired, observed) = (lease.desired.as_str(), lease.observed.as_str());
            let told = [format!("\"desired\":\"{desired}\""), format!("\"observed\":\"{observed}\"")];
            if !told.iter().all(|told| last.payload.contains(told)) {
                wrong.push(format!("{}: its last event tells {}, its row {lease:?}", lease.id, last.payload));
            }
        }
        events
    }

    /// Those that live, and those that have ended since the last step.
    async fn sessions_of_now(&mut self, world: &World) -> Vec<Session> {
        let mut sessions = world.store.live_sessions().await.unwrap();
        let live: BTreeSet<_> = sessions.iter().map(|session| session.id.clone()).collect();
        for gone in self.live.difference(&live) {
            sessions.extend(world.store.session(gone).await.unwrap());
        }
        self.live = live;
        sessions
    }

    fn sessions(&mut self, world: &World, sessions: &[Session], began: Timestamp, done: &[Done]) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut live: BTreeSet<_> = BTreeSet::new();
        let now = world.passed();
        for session in sessions {
            let fresh = Use { opened_after: Some(began), used_after: None, opened_by: now, used_by: now };
            self.uses.entry(session.id.clone()).or_insert(fresh);
        }
        for (op, answer) in done {
            // What is told again is told of the session that it ran in.
            let (Op::Run(..), Answer::Ran(ran)) = (op, answer) else { continue };
            let Some(id) = &ran.session else { continue };
            if self.over.contains(id) {
                wrong.push(format!("{} ran in {id}, whose time was over", ran.id));
            }
            if let Some(known) = self.uses.get_mut(id).filter(|_| !self.overlapped) {
                known.used_after = Some(began);
            }
        }
        for session in sessions {
            if session.status.is_live() == session.ended.is_some() {
                wrong.push(format!("{} is {} and ended {:?}", session.id, session.status, session.ended));
            }
            if session.status.is_live() {
                if self.ended.contains(&session.id) {
                    wrong.push(format!("{} had ended, and lives again", session.id));
                }
                if !live.insert(&session.terminal) {
                    wrong.push(format!("two live sessions on {}", session.terminal));
                }
                if let Some(known) = self.uses.get_mut(&session.id)
                    && done.iter().any(|(op, _)| touches(op, session))
                {
                    known.used_by = now;
                }
                continue;
            }
            self.ended.insert(session.id.clone());
            wrong.extend(ended(session, self.uses.get(&session.id), now, done));
        }
        wrong
    }
}

/// Anything that names its thread, and what wakes the lease that it shares.
fn touches(op: &Op, session: &Session) -> bool {
    op.thread() == Some(&session.thread) || matches!(op, Op::Resume(_))
}

fn one_lease(lease: &Lease, live: &[&Instance]) -> Vec<String> {
    let mut wrong = Vec::new();
    if lease.instance.is_some() == (lease.observed == Observed::None) {
        wrong.push(format!("{} is {} with instance {:?}", lease.id, lease.observed, lease.instance));
    }
    let live: Vec<_> = live.iter().map(|instance| &instance.id).collect();
    let expected = lease.instance.iter().filter(|_| lease.observed != Observed::Stopped);
    if live != expected.collect::<Vec<_>>() {
        wrong.push(format!("{} is {} with {:?}, and {live:?} live", lease.id, lease.observed, lease.instance));
    }
    wrong
}

/// Looking wakes nothing, pausing makes nothing.
fn one_event(event: &LeaseEvent) -> Option<String> {
    let only_looks = matches!(event.source.as_str(), "read.status" | "recovery");
    let only_ends = only_looks || matches!(event.source.as_str(), "user_pause" | "idle_reaper" | "exit");
    let makes = matches!(event.kind.as_str(), "instance.creating" | "instance.created" | "instance.resumed");
    let wants = matches!(event.kind.as_str(), "intent.ensure_running" | "intent.pause" | "instance.paused");
    let wrong = (only_ends && makes) || (only_looks && wants);
    wrong.then(|| format!("`{}` of {} came of `{}`", event.kind, event.lease, event.source))
}

fn forced(op: &Op) -> Option<&ThreadId> {
    match op {
        Op::Pause(thread, Force::Yes) | Op::Destroy(thread, Force::Yes) | Op::Delete(thread) => Some(thread),
        _ => None,
    }
}

fn asked(op: &Op) -> Option<&ThreadId> {
    match op {
        Op::Pause(thread, _) | Op::Destroy(thread, _) | Op::Delete(thread) => Some(thread),
        _ => None,
    }
}

/// Nobody who has a session on a lease when its end is written loses the instance to somebody else who didn't insist.
fn under_others(event: &LeaseEvent, users: &[Session], done: &[Done]) -> Option<String> {
    let ends = matches!(event.kind.as_str(), "intent.pause" | "intent.destroy");
    let polite = matches!(event.source.as_str(), "user_pause" | "idle_reaper" | "api");
    // Where there is no instance nobody loses one.
    let is_empty = event.payload.contains("\"instance\":null");
    if !ends || !polite || is_empty || done.iter().any(|(op, _)| forced(op).is_some()) {
        return None;
    }
    let theirs = |session: &&Session| {
        let own = event.source != "idle_reaper" && done.iter().any(|(op, _)| asked(op) == Some(&session.thread));
        session.expiry(event.at).is_none() && !own
    };
    let other = users.iter().find(theirs)?;
    Some(format!("`{}` by `{}` of {} at {} under {other:?}", event.kind, event.source, event.lease, event.at.0))
}

/// A session that has ended had a reason to: by its own moments, and by the time that has passed since it was opened and
/// used.
fn ended(session: &Session, known: Option<&Use>, now: Timestamp, done: &[Done]) -> Option<String> {
    let (at, reason) = session.ended?;
    let within = |since: Option<Timestamp>, span: Duration| since.is_some_and(|since| now.since(since) <= span);
    let is_young = at.since(session.started_at) <= session.policy.max_duration
        || within(known.and_then(|known| known.opened_after), session.policy.max_duration);
    let is_used = at.since(session.last_active_at) <= session.policy.idle_timeout
        || within(known.and_then(|known| known.used_after), session.policy.idle_timeout);
    let early = match reason {
        CloseReason::Expired => is_young,
        CloseReason::IdleTimeout => is_used,
        CloseReason::Destroyed => {
            let own = done.iter().any(|(op, _)| asked(op) == Some(&session.thread) || forced(op).is_some());
            !own && is_young && is_used
        }
        CloseReason::Superseded | CloseReason::ServerRestart | CloseReason::Closed | CloseReason::RuntimeLost => false,
    };
    early.then(|| format!("closed early at {}, {known:?}: {session:?}", now.0))
}

/// Every instance that there is belongs to a lease that says so, or was hidden from us by the provider itself.
fn truth(world: &World, leases: &[Lease]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (handle, _) in world.fake.truth() {
        let known = leases.iter().any(|lease| lease.instance.as_ref() == Some(&handle.instance));
        if !known && !world.abandoned.contains(&handle.instance) && !world.fake.has_denied(&handle.instance) {
            wrong.push(format!("nobody knows {} of {}", handle.instance, handle.lease));
        }
    }
    wrong
}

fn executions(world: &World, done: &[Done], excused: &BTreeSet<CommandId>) -> Vec<String> {
    let twice = world.fake.repeated().into_iter().filter(|id| !excused.contains(id));
    let mut wrong: Vec<_> = twice.map(|id| format!("{id} was carried out more than once")).collect();
    for (_, answer) in done {
        let Answer::Ran(ran) = answer else { continue };
        if ran.code.is_some() && world.fake.executions(&ran.id) == 0 {
            wrong.push(format!("{} is said to have ended with {:?}, and was never carried out", ran.id, ran.code));
        }
    }
    wrong
}
