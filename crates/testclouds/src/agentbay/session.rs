//! One session: a machine, and what the front door says about it.
//!
//! ```text
//! RUNNING ──► PAUSING ──► PAUSED ──► RESUMING ──► RUNNING     each step takes a moment
//!    └──────► DELETING ──► gone                               not from PAUSED
//! ```

use super::State;
use crate::machine::Machine;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long a step takes: long enough to be seen by who looks often.
const STEP: Duration = Duration::from_millis(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Running,
    Pausing,
    Paused,
    Resuming,
    Deleting,
    Finished,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "RUNNING",
            Self::Pausing => "PAUSING",
            Self::Paused => "PAUSED",
            Self::Resuming => "RESUMING",
            Self::Deleting => "DELETING",
            Self::Finished => "FINISH",
        })
    }
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) image: String,
    pub(super) labels: BTreeMap<String, String>,
    /// None when it is gone, whatever the state says.
    machine: Mutex<Option<Arc<Machine>>>,
    status: watch::Sender<Status>,
    token: Mutex<String>,
    /// When it ends for being idle.
    idle_until: Mutex<Instant>,
    timeout: Duration,
    /// Held by a tool where only one may work.
    pub(super) turn: tokio::sync::Mutex<()>,
}

impl Session {
    pub(super) fn start(
        state: &Arc<State>,
        id: String,
        image: String,
        labels: BTreeMap<String, String>,
        timeout: Duration,
    ) -> std::io::Result<Arc<Self>> {
        let session = Arc::new(Self {
            image,
            labels,
            machine: Mutex::new(Some(Arc::new(Machine::start()?))),
            status: watch::Sender::new(Status::Running),
            token: Mutex::new(new_token()),
            idle_until: Mutex::new(Instant::now() + timeout),
            timeout,
            turn: tokio::sync::Mutex::default(),
            id: id.clone(),
        });
        state.sessions.lock().unwrap().insert(id, session.clone());
        tokio::spawn(end_when_idle(Arc::downgrade(state), Arc::downgrade(&session)));
        Ok(session)
    }

    pub(super) fn status(&self) -> Status {
        *self.status.borrow()
    }

    pub(super) fn token(&self) -> String {
        self.token.lock().unwrap().clone()
    }

    pub(super) fn machine(&self) -> Option<Arc<Machine>> {
        self.machine.lock().unwrap().clone()
    }

    pub(super) fn lose(&self) {
        let machine = self.machine.lock().unwrap().take();
        // Whoever still has it has one in which nothing runs.
        machine.inspect(|machine| machine.end());
    }

    /// Whether its machine has ended by itself.
    pub(super) fn has_ended(&self) -> bool {
        self.machine().is_some_and(|machine| !machine.is_alive())
    }

    /// It is no more.
    pub(super) fn finish(&self, state: &State, why: &str) {
        self.lose();
        state.ended.lock().unwrap().insert(self.id.clone(), why.to_owned());
        state.sessions.lock().unwrap().remove(&self.id);
        self.status.send_replace(Status::Finished);
    }

    pub(super) fn refresh(&self) {
        *self.idle_until.lock().unwrap() = Instant::now() + self.timeout;
    }

    /// Waits for a tool, as long as the session is awake: what is in the way of a pause is dropped.
    pub(super) async fn attend<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut status = self.status.subscribe();
        tokio::select! {
            outcome = work => Some(outcome),
            _ = status.wait_for(|status| matches!(status, Status::Paused | Status::Finished)) => None,
        }
    }

    pub(super) fn pause(self: &Arc<Self>) {
        self.status.send_replace(Status::Pausing);
        let session = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(STEP).await;
            if let Some(machine) = session.machine() {
                machine.set_frozen(true);
            }
            session.status.send_replace(Status::Paused);
        });
    }

    pub(super) fn resume(self: &Arc<Self>) {
        self.status.send_replace(Status::Resuming);
        let session = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(STEP).await;
            if let Some(machine) = session.machine() {
                machine.set_frozen(false);
            }
            *session.token.lock().unwrap() = new_token();
            session.refresh();
            session.status.send_replace(Status::Running);
        });
    }

    pub(super) fn delete(self: &Arc<Self>, state: &Arc<State>, why: &str) {
        self.status.send_replace(Status::Deleting);
        let (session, state, why) = (self.clone(), state.clone(), why.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(STEP).await;
            session.finish(&state, &why);
        });
    }
}

async fn end_when_idle(state: Weak<State>, session: Weak<Session>) {
    while let Some(idle_until) = session.upgrade().map(|session| *session.idle_until.lock().unwrap()) {
        tokio::time::sleep_until(idle_until).await;
        let (Some(state), Some(session)) = (state.upgrade(), session.upgrade()) else { return };
        let is_idle = *session.idle_until.lock().unwrap() <= Instant::now();
        match session.status() {
            Status::Running if is_idle => return session.delete(&state, "idle"),
            Status::Deleting | Status::Finished => return,
            // What sleeps isn't idle; it is looked at again later.
            Status::Running | Status::Pausing | Status::Paused | Status::Resuming if is_idle => session.refresh(),
            Status::Running | Status::Pausing | Status::Paused | Status::Resuming => {}
        }
    }
}

fn new_token() -> String {
    format!("{:016x}{:016x}", getrandom::u64().unwrap(), getrandom::u64().unwrap())
}
