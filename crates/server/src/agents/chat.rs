//! What people ask of agents: a message, an answer, an end. Everything is handed to the session's owner.

use super::owner::{Ask, Held, Verdict};
use super::{Agents, At, Found};
use crate::error::Error;
use crate::store::{AgentChange, AgentRun, AgentSession, RunStatus};
use stead_agent::event::{KINDS, Rule};
use stead_agent::{Policy, SessionKey, Spec};
use stead_model::ids::{AgentId, RunId};
use tokio::sync::oneshot;

/// What happens to a message for a session that is busy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IfBusy {
    #[default]
    Reject,
    /// It waits in order; the agent gets it when it has finished what is before it.
    Queue,
}

#[derive(Debug, Clone)]
pub struct NewChat {
    pub provider: String,
    pub at: At,
    pub model: Option<String>,
    pub message: String,
    /// Chosen by the caller: the same message is given to the agent once.
    pub id: Option<RunId>,
    pub if_busy: IfBusy,
    /// What becomes of questions in this turn; without one it is the session's that counts.
    pub policy: Option<Policy>,
    /// Whoever asks is bound to projects, and gets no agent where commands see the whole machine.
    pub bound: bool,
}

/// Of a message; more is a file's worth.
const MOST_MESSAGE: usize = 1 << 20;

impl Agents {
    /// Hands a message to an agent. Returns when it is written down; what comes of it are its events.
    pub async fn chat(&self, new: NewChat) -> Result<(AgentRun, AgentSession), Error> {
        let shared = &self.shared;
        let spec = shared.settings.specs.get(&new.provider);
        let spec = spec.ok_or_else(|| Error::NotFound { kind: "agent", id: new.provider.clone() })?;
        if new.message.trim().is_empty() {
            return Err(Error::Invalid("`message` is empty".to_owned()));
        }
        if new.message.len() > MOST_MESSAGE {
            return Err(Error::TooLarge(format!("a message has at most {MOST_MESSAGE} bytes")));
        }
        if let Some(model) = new.model.as_deref().filter(|model| !model.is_empty()) {
            if !spec.takes_model() {
                return Err(Error::Invalid(format!("agent `{}` can't be told which model to use", spec.name)));
            }
            if model.len() > 200 || model.chars().any(|c| c.is_control() || c.is_whitespace()) {
                return Err(Error::Invalid("`model` is no name of a model".to_owned()));
            }
        }
        if let Found::Missing(why) = shared.settings.find(spec) {
            let how =
                if spec.install.is_empty() { String::new() } else { format!("; install it with `{}`", spec.install) };
            return Err(Error::AgentCannot(format!("agent `{}` is not on this machine: {why}{how}", spec.name)));
        }
        if let Some(policy) = &new.policy {
            check(policy, spec)?;
        }
        let place = shared.place(&new.at).await?;
        let key = SessionKey::new(&spec.name, &place.workspace, new.model.as_deref());
        if let Some(id) = &new.id
            && let Some(run) = shared.store.agent_run(id).await?
        {
            return self.again(run, &key, &new.message).await;
        }
        let session = shared.session_at(&key, &place).await?;
        if new.bound {
            // The session may have been begun by somebody who may do more.
            let thread = shared.stead.thread(&session.thread).await?;
            if !shared.stead.is_fit_for(&thread.provider, thread.project.as_ref()).await? {
                return Err(Error::Forbidden(format!(
                    "agent session `{}` is on a provider that doesn't isolate",
                    session.id
                )));
            }
        }
        let run = AgentRun {
            id: new.id.unwrap_or_else(|| RunId::made_of(shared.stead.entropy())),
            session: session.id.clone(),
            conversation: session.conversation,
            message: new.message.clone(),
            policy: new.policy,
            status: RunStatus::Queued,
            last_seq: 0,
            created_at: shared.clock.now(),
            started_at: None,
            ended_at: None,
        };
        let (reply, answer) = oneshot::channel();
        shared.ask(&session.id, Ask::Prompt { run: Box::new(run.clone()), if_busy: new.if_busy, reply }).await?;
        match answer.await.unwrap_or(Err(Error::Stopping)) {
            Err(Error::AlreadyExists { kind: "run", .. }) => {
                let there = self.run(&run.id).await?;
                self.again(there, &key, &new.message).await
            }
            answered => Ok((answered?, session)),
        }
    }

    /// The same id again: the same run, if it is the same message.
    async fn again(&self, run: AgentRun, key: &SessionKey, message: &str) -> Result<(AgentRun, AgentSession), Error> {
        let session = self.session(&run.session).await?;
        if session.key != *key || run.message != message {
            return Err(Error::Conflict(format!("run `{}` is another message", run.id)));
        }
        Ok((run, session))
    }

    /// Decides what becomes of questions in a session, for messages that don't say it themselves.
    pub async fn set_policy(&self, session: &AgentSession, policy: Policy) -> Result<AgentSession, Error> {
        let spec = self.shared.settings.specs.get(&session.key.provider);
        let spec = spec.ok_or_else(|| Error::NotFound { kind: "agent", id: session.key.provider.clone() })?;
        check(&policy, spec)?;
        let (reply, answer) = oneshot::channel();
        self.shared.ask(&session.id, Ask::Policy { policy, reply }).await?;
        answer.await.unwrap_or(Err(Error::Stopping))
    }

    /// Answers what a run asks permission for.
    pub async fn answer(&self, run: &RunId, permission: &str, option: &str) -> Result<(), Error> {
        let row = self.run(run).await?;
        let (reply, answer) = oneshot::channel();
        let (run, permission, option) = (run.clone(), permission.to_owned(), option.to_owned());
        self.shared.ask(&row.session, Ask::Answer { run, permission, option, reply }).await?;
        answer.await.unwrap_or(Err(Error::Stopping))
    }

    /// Ends a run early, this one and no other. One that has ended stays as it ended.
    pub async fn abort(&self, run: &RunId) -> Result<AgentRun, Error> {
        let row = self.run(run).await?;
        if !row.status.is_final() {
            let (reply, answer) = oneshot::channel();
            self.shared.ask(&row.session, Ask::Abort { run: run.clone(), reply }).await?;
            answer.await.unwrap_or(Err(Error::Stopping))?;
        }
        self.run(run).await
    }

    /// Ends the processes of a workspace's sessions, or of one agent's there, and forgets their conversations: all of
    /// them or, while one is busy, none.
    pub async fn reset(&self, at: &At, provider: Option<&str>) -> Result<Vec<String>, Error> {
        let agents = self.clone();
        let workspace = self.shared.place(at).await?.workspace;
        let provider = provider.map(str::to_owned);
        let work = async move { agents.reset_workspace(&workspace, provider.as_deref()).await };
        self.finish(work).await
    }

    async fn reset_workspace(&self, workspace: &str, provider: Option<&str>) -> Result<Vec<String>, Error> {
        // In one order, so that two resets don't wait for each other.
        let mut held: Vec<Held> = Vec::new();
        for session in self.shared.store.agent_sessions_of_workspace(workspace).await? {
            if provider.is_none_or(|provider| session.key.provider == provider) {
                held.push(self.hold(&session.id).await?);
            }
        }
        let after = |before: &AgentSession| AgentSession {
            conversation: before.conversation + 1,
            resume: None,
            process: None,
            version: before.version + 1,
            ..before.clone()
        };
        let sessions: Vec<_> = held.iter().map(|held| (held.session.clone(), after(&held.session))).collect();
        let change = AgentChange { sessions: sessions.clone(), ..AgentChange::default() };
        self.shared.store.change_agents(&change).await?;
        let mut keys = Vec::new();
        let mut ends = Vec::new();
        for (held, (_, after)) in held.into_iter().zip(sessions) {
            keys.push(after.key.to_string());
            ends.push(held.become_(Verdict::Changed(Box::new(after))));
        }
        for ended in ends {
            // Answered when its processes have ended.
            let _ = ended.await;
        }
        Ok(keys)
    }

    /// Removes a session with all that was said in it.
    pub async fn delete(&self, id: &AgentId) -> Result<(), Error> {
        let agents = self.clone();
        let id = id.clone();
        let work = async move {
            let Some(session) = agents.shared.store.agent_session(&id).await? else { return Ok(()) };
            let held = agents.hold(&id).await?;
            let _ = held.become_(Verdict::Removed).await;
            agents.erase(&session).await
        };
        self.finish(work).await
    }

    /// Keeps everybody else away from a session that is idle.
    async fn hold(&self, id: &AgentId) -> Result<Held, Error> {
        let (reply, answer) = oneshot::channel();
        self.shared.ask(id, Ask::Hold { reply }).await?;
        answer.await.unwrap_or(Err(Error::Stopping))
    }

    /// Does work to its end, whoever goes away.
    async fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (done, outcome) = oneshot::channel();
        self.shared.stead.spawn(async move {
            let _ = done.send(work.await);
        });
        outcome.await.unwrap_or(Err(Error::Stopping))
    }
}

/// A rule that would protect nobody is refused: who wrote it relies on it.
fn check(policy: &Policy, spec: &Spec) -> Result<(), Error> {
    if let Some(kind) = policy.unknown_kind() {
        let kinds = KINDS.map(|kind| format!("`{kind}`")).join(", ");
        return Err(Error::Invalid(format!("`permissions.tools` knows no kind `{kind}`; there are {kinds}")));
    }
    if !spec.asks && policy.has(Rule::Deny) {
        let what = format!("agent `{}` asks nothing before it uses a tool, so nothing can be denied to it", spec.name);
        return Err(Error::AgentCannot(what));
    }
    Ok(())
}
