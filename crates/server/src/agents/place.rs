//! Where an agent is to work: a project's workspace, a thread's, or a directory of this machine.

use super::Shared;
use crate::error::Error;
use crate::stead::NewThread;
use crate::store::{AgentSession, StoreError};
use std::path::{Path, PathBuf};
use std::time::Duration;
use stead_agent::SessionKey;
use stead_model::ids::{AgentId, ProjectId, ThreadId};
use stead_model::session::Policy;

/// As it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    Project(ProjectId),
    Thread(ThreadId),
    Workspace(PathBuf),
}

/// The same, found.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The canonical path of its files.
    pub(super) workspace: String,
    pub(super) project: Option<ProjectId>,
    new: NewThread,
}

/// As long as anybody may want it: an agent's process is ended by its own rule.
const FOR_EVER: Duration = Duration::from_hours(24 * 365 * 100);

impl Shared {
    pub(super) async fn place(&self, at: &At) -> Result<Place, Error> {
        match at {
            At::Project(id) => {
                let project = self.store.project(id).await?;
                let project = project.ok_or_else(|| Error::NotFound { kind: "project", id: id.to_string() })?;
                let provider = project.config.provider.unwrap_or_else(|| self.stead.default_provider().clone());
                let dir = self.stead.workspace_dir(&provider, project.id.as_str())?;
                let workspace = dir.map_or_else(|| format!("{provider}/{id}"), |dir| dir.display().to_string());
                let new = NewThread { project: Some(id.clone()), ..NewThread::default() };
                Ok(Place { workspace, project: Some(id.clone()), new })
            }
            At::Thread(id) => {
                let thread = self.stead.thread(id).await?;
                let dir = self.stead.workspace_dir(&thread.provider, &thread.workspace)?;
                let named = || format!("{}/{}", thread.provider, thread.workspace);
                let workspace = dir.map_or_else(named, |dir| dir.display().to_string());
                let new = NewThread { share_with: Some(id.clone()), ..NewThread::default() };
                Ok(Place { workspace, project: thread.project, new })
            }
            At::Workspace(path) => {
                let workspace = self.allowed(path)?;
                let new = NewThread { workspace: Some(workspace.clone()), ..NewThread::default() };
                Ok(Place { workspace, project: None, new })
            }
        }
    }

    /// A directory of this machine, if agents may work there.
    fn allowed(&self, path: &Path) -> Result<String, Error> {
        let wrong = |message: &str| Error::Path { path: path.display().to_string(), message: message.to_owned() };
        if !path.is_absolute() {
            return Err(wrong("a workspace is an absolute path"));
        }
        let forbidden = || {
            let roots = &self.settings.allowed_roots;
            let known: Vec<_> = roots.iter().map(|root| format!("`{}`", root.display())).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Error::Forbidden(format!("agents may work below the directories in `agents.allowed_roots`: {known}"))
        };
        // What is elsewhere is not even looked at.
        let real = crate::stead::settled(path);
        let roots = self.settings.allowed_roots.iter().map(|root| crate::stead::settled(root));
        if !roots.into_iter().any(|root| real.starts_with(root)) {
            return Err(forbidden());
        }
        if !real.is_dir() {
            return Err(wrong("it is no directory"));
        }
        real.into_os_string().into_string().map_err(|_| wrong("its name is no text"))
    }

    /// The session of a key, made if there is none.
    pub(super) async fn session_at(&self, key: &SessionKey, place: &Place) -> Result<AgentSession, Error> {
        loop {
            if let Some(session) = self.store.agent_session_by_key(key).await? {
                self.ensure_thread(&session, place).await?;
                return Ok(session);
            }
            let id = AgentId::made_of(self.stead.entropy());
            let thread = ThreadId::parse(id.as_str()).map_err(|error| Error::Invalid(error.to_string()))?;
            let now = self.clock.now();
            let session = AgentSession {
                id,
                key: key.clone(),
                project: place.project.clone(),
                thread,
                conversation: 0,
                resume: None,
                process: None,
                run: None,
                policy: stead_agent::Policy::default(),
                version: 1,
                created_at: now,
                last_used_at: now,
            };
            match self.store.put_agent_session(&session).await {
                Ok(()) => {
                    self.ensure_thread(&session, place).await?;
                    return Ok(session);
                }
                // Somebody else was first.
                Err(StoreError::AlreadyExists { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The thread that a session's agent runs in; made again if somebody has deleted it.
    async fn ensure_thread(&self, session: &AgentSession, place: &Place) -> Result<(), Error> {
        if self.store.thread(&session.thread).await?.is_some() {
            return Ok(());
        }
        let policy = Policy { idle_timeout: FOR_EVER, max_duration: FOR_EVER };
        let new = NewThread { id: Some(session.thread.clone()), policy, ..place.new.clone() };
        match self.stead.create_thread(new).await {
            Ok(_) | Err(Error::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
