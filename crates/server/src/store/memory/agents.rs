//! Terminal agents.

use super::{MemoryStore, conflict, exists, missing, page};
use crate::store::{AgentChange, AgentEvent, AgentRun, AgentSession, AgentStore, Page, Result};
use async_trait::async_trait;
use std::collections::BTreeMap;
use stead_agent::SessionKey;
use stead_model::ids::{AgentId, RunId};

#[derive(Debug, Default)]
pub(super) struct Agents {
    sessions: BTreeMap<AgentId, AgentSession>,
    runs: BTreeMap<RunId, AgentRun>,
    events: BTreeMap<(RunId, u64), AgentEvent>,
}

impl Agents {
    fn runs_of(&self, which: impl Fn(&AgentRun) -> bool) -> Vec<AgentRun> {
        let mut runs: Vec<_> = self.runs.values().filter(|run| which(run)).cloned().collect();
        runs.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
        runs
    }

    fn change(&mut self, change: &AgentChange) -> Result<()> {
        for (before, _) in &change.sessions {
            match self.sessions.get(&before.id) {
                None => return missing("agent session", &before.id),
                Some(there) if there.version != before.version => return conflict("agent session", &before.id),
                Some(_) => {}
            }
        }
        let taken = change.events.iter().find(|event| self.events.contains_key(&(event.run.clone(), event.seq)));
        if let Some(taken) = taken {
            return conflict("run", &taken.run);
        }
        for (_, after) in &change.sessions {
            self.sessions.insert(after.id.clone(), after.clone());
        }
        for run in &change.runs {
            self.runs.insert(run.id.clone(), run.clone());
        }
        for event in &change.events {
            self.events.insert((event.run.clone(), event.seq), event.clone());
        }
        Ok(())
    }
}

#[async_trait]
impl AgentStore for MemoryStore {
    async fn put_agent_session(&self, session: &AgentSession) -> Result<()> {
        self.with(|tables| {
            let sessions = &mut tables.agents.sessions;
            if sessions.values().any(|there| there.id == session.id || there.key == session.key) {
                return exists("agent session", &session.id);
            }
            sessions.insert(session.id.clone(), session.clone());
            Ok(())
        })
        .await
    }

    async fn agent_session(&self, id: &AgentId) -> Result<Option<AgentSession>> {
        Ok(self.with(|tables| tables.agents.sessions.get(id).cloned()).await)
    }

    async fn agent_session_by_key(&self, key: &SessionKey) -> Result<Option<AgentSession>> {
        Ok(self.with(|tables| tables.agents.sessions.values().find(|there| there.key == *key).cloned()).await)
    }

    async fn agent_sessions(&self, at: &Page) -> Result<Vec<AgentSession>> {
        Ok(self
            .with(|tables| {
                page(tables.agents.sessions.values(), |session| (session.created_at, session.id.as_str()), at)
            })
            .await)
    }

    async fn agent_sessions_of_workspace(&self, workspace: &str) -> Result<Vec<AgentSession>> {
        let mut found: Vec<AgentSession> = self
            .with(|tables| {
                let all = tables.agents.sessions.values();
                all.filter(|session| session.key.workspace == workspace).cloned().collect()
            })
            .await;
        found.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(found)
    }

    async fn live_agent_sessions(&self) -> Result<Vec<AgentSession>> {
        let live = |session: &&AgentSession| session.process.is_some() || session.run.is_some();
        Ok(self.with(|tables| tables.agents.sessions.values().filter(live).cloned().collect()).await)
    }

    async fn delete_agent_session(&self, id: &AgentId) -> Result<()> {
        self.with(|tables| {
            let agents = &mut tables.agents;
            agents.sessions.remove(id);
            let runs: Vec<_> =
                agents.runs.values().filter(|run| run.session == *id).map(|run| run.id.clone()).collect();
            agents.runs.retain(|run, _| !runs.contains(run));
            agents.events.retain(|(run, _), _| !runs.contains(run));
        })
        .await;
        Ok(())
    }

    async fn put_agent_run(&self, run: &AgentRun) -> Result<()> {
        self.with(|tables| {
            if tables.agents.runs.contains_key(&run.id) {
                return exists("run", &run.id);
            }
            tables.agents.runs.insert(run.id.clone(), run.clone());
            Ok(())
        })
        .await
    }

    async fn agent_run(&self, id: &RunId) -> Result<Option<AgentRun>> {
        Ok(self.with(|tables| tables.agents.runs.get(id).cloned()).await)
    }

    async fn open_agent_runs(&self, session: &AgentId) -> Result<Vec<AgentRun>> {
        let open = |run: &AgentRun| run.session == *session && !run.status.is_final();
        Ok(self.with(|tables| tables.agents.runs_of(open)).await)
    }

    async fn agent_runs(&self, session: &AgentId, conversation: u64) -> Result<Vec<AgentRun>> {
        let of = |run: &AgentRun| run.session == *session && run.conversation == conversation;
        Ok(self.with(|tables| tables.agents.runs_of(of)).await)
    }

    async fn agent_events(&self, run: &RunId, after: u64, limit: u32) -> Result<Vec<AgentEvent>> {
        let behind = (run.clone(), after.saturating_add(1))..=(run.clone(), u64::MAX);
        Ok(self
            .with(|tables| {
                let events = tables.agents.events.range(behind).map(|(_, event)| event.clone());
                events.take(limit as usize).collect()
            })
            .await)
    }

    async fn change_agents(&self, change: &AgentChange) -> Result<()> {
        self.with(|tables| tables.agents.change(change)).await
    }
}
