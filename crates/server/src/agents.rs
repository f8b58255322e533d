//! Terminal agents as durable sessions: an agent lives in a workspace's sandbox, under a steward, and outlives the server.
//!
//! ```text
//! message ─► session (agent, workspace, model) ─► its owner ─► machine ─► standard input of the agent's process
//!                                                   ▲                        │ journal
//!            events of the run ◄── store ◄──────────┴──────── machine ◄──────┘
//! ```
//!
//! One owner task for each session that is awake; it alone changes the session's row. What an agent wrote is in its
//! command's journal before it is read; what was made of it, how far it was read and what is to be sent to the agent are
//! one row, changed together. So after any death the next owner goes on from the row: it reads on, sends what had not
//! arrived (with its place, so that it arrives once), and tells nothing twice.

mod chat;
mod credentials;
mod driver;
mod events;
mod forget;
mod hook;
mod ledger;
mod owner;
mod place;
mod process;
mod screen;
mod settings;
mod stop;
mod sweep;
mod transcript;
mod version;

pub use chat::{IfBusy, NewChat};
pub use events::RunEvents;
pub use place::At;
pub use settings::{AgentSettings, Found};
pub use transcript::{Message, Role};

use crate::clock::Steady;
use crate::error::Error;
use crate::stead::{List, Listed, Stead};
use crate::store::{AgentRun, AgentSession, Store};
use owner::{Ask, Owner};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stead_agent::Spec;
use stead_model::clock::Timestamp;
use stead_model::ids::{AgentId, RunId};
use tokio::sync::{mpsc, watch};

/// What waits for one owner; who asks more waits.
const ASKED: usize = 64;

/// How often it is looked for what nobody owns.
const SWEEP_EVERY: Duration = Duration::from_mins(1);

/// A cheap handle.
#[derive(Debug, Clone)]
pub struct Agents {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) stead: Stead,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<Steady>,
    pub(crate) settings: AgentSettings,
    versions: version::Versions,
    owners: Mutex<HashMap<AgentId, Known>>,
}

/// A session that somebody owns, or reads.
#[derive(Debug)]
struct Known {
    asks: Option<mpsc::Sender<Ask>>,
    /// Grows whenever something of it is written.
    news: watch::Sender<u64>,
}

impl Agents {
    /// Starts over a store: sessions that an earlier server left in the middle of something are gone on with.
    pub async fn start(stead: Stead, settings: AgentSettings) -> Result<Self, Error> {
        let (store, clock) = stead.ground();
        let (versions, owners) = (version::Versions::default(), Mutex::default());
        let agents = Self { shared: Arc::new(Shared { stead, store, clock, settings, versions, owners }) };
        for session in agents.shared.store.live_agent_sessions().await? {
            agents.shared.own(session);
        }
        agents.shared.stead.spawn(sweep::every(agents.clone(), SWEEP_EVERY));
        Ok(agents)
    }

    pub fn settings(&self) -> &AgentSettings {
        &self.shared.settings
    }

    /// The agents that are described, by name, a page at a time.
    pub fn known(&self, list: &List) -> Result<Listed<Spec>, Error> {
        let place = list.place("agents")?;
        let after = place.after.map(|(_, name)| name);
        let behind = |spec: &&Spec| after.as_ref().is_none_or(|after| spec.name > *after);
        let specs = self.shared.settings.specs.iter().filter(behind).take(place.limit + 1).cloned().collect();
        Ok(Listed::cut_at(specs, place.limit, "agents", |spec| (Timestamp::default(), spec.name.clone())))
    }

    /// Newest first, a page at a time.
    pub async fn list(&self, list: &List) -> Result<Listed<AgentSession>, Error> {
        self.shared.stead.list_agent_sessions(list).await
    }

    pub async fn session(&self, id: &AgentId) -> Result<AgentSession, Error> {
        let session = self.shared.store.agent_session(id).await?;
        session.ok_or_else(|| Error::NotFound { kind: "agent session", id: id.to_string() })
    }

    /// A session by its id or its whole key.
    pub async fn find(&self, name: &str) -> Result<AgentSession, Error> {
        if let Ok(id) = AgentId::parse(name)
            && let Some(session) = self.shared.store.agent_session(&id).await?
        {
            return Ok(session);
        }
        let missing = || Error::NotFound { kind: "agent session", id: name.to_owned() };
        let (provider, rest) = name.split_once(':').ok_or_else(missing)?;
        // A path and a model may both have colons: the session decides where one ends.
        for (at, _) in rest.match_indices(':') {
            let (workspace, model) = (rest.get(..at).unwrap_or_default(), rest.get(at + 1..).unwrap_or_default());
            let key = stead_agent::SessionKey::new(provider, workspace, Some(model));
            if let Some(session) = self.shared.store.agent_session_by_key(&key).await? {
                return Ok(session);
            }
        }
        Err(missing())
    }

    pub async fn run(&self, id: &RunId) -> Result<AgentRun, Error> {
        let run = self.shared.store.agent_run(id).await?;
        run.ok_or_else(|| Error::NotFound { kind: "run", id: id.to_string() })
    }
}

impl Shared {
    fn owners(&self) -> std::sync::MutexGuard<'_, HashMap<AgentId, Known>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner of a session, started if there is none.
    fn own(self: &Arc<Self>, session: AgentSession) -> mpsc::Sender<Ask> {
        let mut owners = self.owners();
        let known =
            owners.entry(session.id.clone()).or_insert_with(|| Known { asks: None, news: watch::Sender::new(0) });
        if let Some(asks) = known.asks.as_ref().filter(|asks| !asks.is_closed()) {
            return asks.clone();
        }
        let (asks, inbox) = mpsc::channel(ASKED);
        known.asks = Some(asks.clone());
        let owner = Owner::new(Arc::clone(self), session, inbox);
        self.stead.spawn(owner.run());
        asks
    }

    /// Told whenever something of a session is written.
    pub(crate) fn news(&self, session: &AgentId) -> watch::Receiver<u64> {
        let mut owners = self.owners();
        let known = owners.entry(session.clone()).or_insert_with(|| Known { asks: None, news: watch::Sender::new(0) });
        known.news.subscribe()
    }

    pub(crate) fn tell(&self, session: &AgentId) {
        if let Some(known) = self.owners().get(session) {
            known.news.send_modify(|count| *count += 1);
        }
    }

    /// Asks a session's owner, whichever it is by now.
    pub(crate) async fn ask(self: &Arc<Self>, id: &AgentId, mut ask: Ask) -> Result<(), Error> {
        loop {
            let session = self.store.agent_session(id).await?;
            let session = session.ok_or_else(|| Error::NotFound { kind: "agent session", id: id.to_string() })?;
            match self.own(session).send(ask).await {
                Ok(()) => return Ok(()),
                // It has just gone to rest.
                Err(mpsc::error::SendError(back)) => ask = back,
            }
        }
    }
}
