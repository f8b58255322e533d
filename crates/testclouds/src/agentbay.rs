//! `AgentBay`: sessions that are machines, spoken to by named actions in forms, and by tools. Strict: an action, field,
//! header, tool or argument that the reference doesn't know is refused and remembered as a violation.
//!
//! ```text
//! POST /?Action=..                 create, look, list, pause, resume, delete, call a tool
//! POST /link/SESSION/callTool      the same tools, past the front door; its token changes when a session wakes
//! ```

mod actions;
mod door;
mod form;
mod link;
mod session;
pub mod tls;
mod tools;

use crate::faults::Faults;
use session::Session;
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The only key it takes.
pub const KEY: &str = "akm-00000000-test-cloud";

/// Stopped, with all its machines, when it is dropped.
#[derive(Debug)]
pub struct AgentBay {
    /// `http://HOST:PORT`.
    pub url: String,
    pub faults: Faults,
    state: Arc<State>,
    stop: CancellationToken,
}

/// What can be switched while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// Whether this account may let sessions sleep; on at first.
    MayPause,
    /// Whether sessions have a direct link; on at first.
    Links,
    /// Whether what goes wrong is told with status 200 and by the body alone; off at first.
    ErrorsInBody,
    /// Whether a session does one thing after the other; off at first.
    OneAtATime,
}

#[derive(Debug)]
pub(crate) struct State {
    /// Where links lead.
    base: String,
    faults: Faults,
    violations: Mutex<Vec<String>>,
    sessions: Mutex<BTreeMap<String, Arc<Session>>>,
    /// Those that have ended, and why.
    ended: Mutex<BTreeMap<String, String>>,
    nonces: Mutex<HashSet<String>>,
    may_pause: AtomicBool,
    links: AtomicBool,
    errors_in_body: AtomicBool,
    one_at_a_time: AtomicBool,
    /// However many are asked for.
    longest_page: AtomicU64,
    counter: AtomicU64,
}

/// Serves on a listener until the process ends.
pub async fn serve(listener: TcpListener) {
    let cloud = AgentBay::on(listener);
    cloud.stop.cancelled().await;
}

impl AgentBay {
    pub async fn start() -> Self {
        Self::on(TcpListener::bind(("127.0.0.1", 0)).await.unwrap())
    }

    /// On a listener of the caller's.
    pub fn on(listener: TcpListener) -> Self {
        let url = format!("http://{}", listener.local_addr().unwrap());
        let faults = Faults::default();
        let state = Arc::new(State {
            base: url.clone(),
            faults: faults.clone(),
            violations: Mutex::default(),
            sessions: Mutex::default(),
            ended: Mutex::default(),
            nonces: Mutex::default(),
            may_pause: AtomicBool::new(true),
            links: AtomicBool::new(true),
            errors_in_body: AtomicBool::new(false),
            one_at_a_time: AtomicBool::new(false),
            longest_page: AtomicU64::new(100),
            counter: AtomicU64::new(0),
        });
        let stop = CancellationToken::new();
        let router = door::router(state.clone());
        let until = stop.clone().cancelled_owned();
        tokio::spawn(async move {
            tokio::select! {
                served = axum::serve(listener, router) => served.unwrap(),
                () = until => {}
            }
        });
        Self { url, faults, state, stop }
    }

    /// The same over TLS too, for who can't do without.
    pub async fn start_tls(&self) -> std::io::Result<tls::Tls> {
        tls::start(door::router(self.state.clone()), self.stop.clone()).await
    }

    pub fn switch(&self, switch: Switch, on: bool) {
        let place = match switch {
            Switch::MayPause => &self.state.may_pause,
            Switch::Links => &self.state.links,
            Switch::ErrorsInBody => &self.state.errors_in_body,
            Switch::OneAtATime => &self.state.one_at_a_time,
        };
        place.store(on, Ordering::SeqCst);
    }

    /// A list has at most so many on a page, whatever is asked for.
    pub fn shorten_pages(&self, most: u64) {
        self.state.longest_page.store(most, Ordering::SeqCst);
    }

    /// The machine of a session is gone, and the front door doesn't know: it says `RUNNING` still.
    pub fn lose(&self, session: &str) {
        self.state.session(session).unwrap().lose();
    }

    /// What was asked that the reference doesn't know.
    pub fn violations(&self) -> Vec<String> {
        self.state.violations.lock().unwrap().clone()
    }

    /// Every process of every session, as this machine numbers them.
    pub fn pids(&self) -> Vec<i32> {
        self.state.all().iter().filter_map(|session| session.machine()).flat_map(|machine| machine.pids()).collect()
    }

    /// Where a file of a session is on this machine.
    pub fn outside(&self, session: &str, path: &str) -> Option<PathBuf> {
        Some(self.state.session(session)?.machine()?.outside(path))
    }

    /// The sessions there are, with their state.
    pub fn sessions(&self) -> BTreeMap<String, String> {
        let sessions = self.state.sessions.lock().unwrap();
        sessions.iter().map(|(id, session)| (id.clone(), session.status().to_string())).collect()
    }
}

impl Drop for AgentBay {
    fn drop(&mut self) {
        self.stop.cancel();
        let sessions = std::mem::take(&mut *self.state.sessions.lock().unwrap());
        for session in sessions.values() {
            session.lose();
        }
    }
}

impl State {
    fn session(&self, id: &str) -> Option<Arc<Session>> {
        self.all().into_iter().find(|session| session.id == id)
    }

    /// Without those whose machine has ended by itself: whoever runs the machines sees that.
    fn all(&self) -> Vec<Arc<Session>> {
        let all: Vec<_> = self.sessions.lock().unwrap().values().cloned().collect();
        let (ended, there): (Vec<_>, _) = all.into_iter().partition(|session| session.has_ended());
        for session in ended {
            session.finish(self, "ended");
        }
        there
    }

    fn violation(&self, text: String) {
        self.violations.lock().unwrap().push(text);
    }

    fn next(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::SeqCst)
    }
}
