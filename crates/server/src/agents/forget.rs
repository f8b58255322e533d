//! Leaving: a sandbox that an agent needs no more, a session that nobody can reach any more.

use super::ledger::Step;
use super::owner::{Ask, Owner};
use super::{Agents, credentials};
use crate::error::Error;
use crate::store::{AgentSession, Ending, Page};
use std::collections::HashSet;
use stead_agent::Event;
use stead_model::ids::ThreadId;
use tokio::sync::oneshot;
use tokio::time::Instant;

impl Owner {
    /// The process has been unused for long enough: it ends, and nothing else is forgotten.
    pub(super) async fn rest(&mut self) -> Result<(), Error> {
        self.stop_process().await;
        let mut step = Step::new(&self.session);
        step.session.process = None;
        self.commit(step).await
    }

    /// After a turn: what it renewed goes back. Without a process: nobody needs its sandbox.
    pub(super) async fn settle(&mut self) {
        if std::mem::take(&mut self.renewed)
            && let Some(spec) = self.spec()
        {
            credentials::take_back(&self.shared, &self.session, &spec).await;
        }
        let needed = self.session.process.is_some() || self.run.is_some() || !self.queue.is_empty();
        if needed || !std::mem::take(&mut self.sits) {
            return;
        }
        // What can't be left now is left in the next round of the sweep.
        if let Err(error) = self.shared.stead.put_to_rest(&self.session.thread).await {
            tracing::debug!(%error, session = %self.session.id, "an agent's sandbox can't be left yet");
        }
    }

    /// Ends the turn, those that wait, and the process.
    pub(super) async fn end(&mut self) -> Result<(), Error> {
        for run in std::mem::take(&mut self.queue) {
            self.end_queued(run).await?;
        }
        self.over = true;
        if self.run.is_none() {
            self.stop_process().await;
            return Ok(());
        }
        self.ending = Some((Ending::Asked, Instant::now()));
        self.stop_process().await;
        let mut step = Step::promised(&self.session);
        step.session.process = None;
        step.events.push(Event::Aborted {});
        self.commit(step).await
    }
}

impl Agents {
    /// Leaves sandboxes that no agent needs, and removes sessions that nobody can reach. Told again it does nothing.
    pub(crate) async fn tidy(&self) -> Result<(), Error> {
        let sessions = self.shared.store.agent_sessions(&Page::all()).await?;
        let live: HashSet<ThreadId> =
            self.shared.store.live_sessions().await?.into_iter().map(|session| session.thread).collect();
        let agents: HashSet<&ThreadId> = sessions.iter().map(|session| &session.thread).collect();
        for session in &sessions {
            if self.is_out_of_reach(session, &agents).await? {
                tracing::info!(session = %session.id, key = %session.key, "nobody can reach this agent any more");
                self.remove(session).await?;
            } else if session.process.is_none() && session.run.is_none() && live.contains(&session.thread) {
                self.shared.stead.put_to_rest(&session.thread).await?;
            }
        }
        Ok(())
    }

    /// Whether whatever it was made for is gone: its project, or every thread that shares its workspace.
    async fn is_out_of_reach(&self, session: &AgentSession, agents: &HashSet<&ThreadId>) -> Result<bool, Error> {
        let store = &self.shared.store;
        if let Some(project) = &session.project {
            return Ok(store.project(project).await?.is_none());
        }
        let Some(thread) = store.thread(&session.thread).await? else { return Ok(false) };
        if !crate::stead::is_own(&thread.workspace) {
            return Ok(false);
        }
        let terminals = store.terminals_of_lease(&thread.lease).await?;
        Ok(terminals.iter().all(|terminal| agents.contains(&terminal.thread)))
    }

    /// Removes a session with all that was said in it, whoever is in the middle of it.
    async fn remove(&self, session: &AgentSession) -> Result<(), Error> {
        let (reply, ended) = oneshot::channel();
        self.shared.ask(&session.id, Ask::End { reply }).await?;
        ended.await.unwrap_or(Err(Error::Stopping))?;
        self.erase(session).await
    }

    /// Removes what is left of a session whose processes have ended.
    pub(super) async fn erase(&self, session: &AgentSession) -> Result<(), Error> {
        self.shared.store.delete_agent_session(&session.id).await?;
        self.shared.owners().remove(&session.id);
        self.shared.stead.delete_thread(&session.thread).await
    }
}
