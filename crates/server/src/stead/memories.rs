//! The files of a project through its routes, with what is in RAM of them.

use super::projects::{open, used_without_need};
use super::{Inner, Stead};
use crate::error::Error;
use crate::memory::{Hot, HotStatus, Memories, Snapshot};
use crate::project::sight::{Sight, mirrored};
use crate::space::{Parts, Space, table};
use crate::store::Page;
use std::sync::Arc;
use stead_model::ids::{ProjectId, SessionId};
use stead_model::project::{Filter, Project};
use stead_model::route::{Backend, Routes};

impl Stead {
    /// The files of a project as a session sees them; without one, its own are not there.
    pub async fn space(&self, project: &ProjectId, session: Option<&SessionId>) -> Result<Space, Error> {
        let row = open(&self.inner, project).await?;
        let routes = routes_of(&self.inner.routes, &row)?;
        let place = self.project_place(project).ok_or_else(no_disk)?;
        let needs_hot = routes.iter().any(|route| matches!(route.backend, Backend::Store));
        let memories = &self.inner.memories;
        let hot = if needs_hot { Some(self.inner.hot(project, &routes).await?) } else { None };
        let state = match session {
            Some(session) => {
                self.check_session(project, session).await?;
                Some(memories.state(session))
            }
            None => None,
        };
        let core = &self.inner.core;
        let (clock, told) = (Arc::clone(&core.clock), Some(Arc::clone(memories)));
        let parts = Parts { routes, hot, state, clock, memories: told };
        Ok(Space::new(place.root(), parts, core.tasks.clone()))
    }

    /// The hot memory of a project, in RAM from here on.
    pub async fn open_memory(&self, project: &ProjectId) -> Result<Arc<Hot>, Error> {
        self.inner.hot_of(project).await
    }

    /// What there is to say about it, and what was found damaged.
    pub async fn memory_status(&self, project: &ProjectId) -> Result<HotStatus, Error> {
        Ok(self.open_memory(project).await?.status())
    }

    /// Writes the hot memory of a project as a whole, for the end of a session.
    pub async fn snapshot_memory(&self, project: &ProjectId) -> Result<Option<Snapshot>, Error> {
        self.inner.memories.snapshot(project).await
    }

    pub fn memories(&self) -> &Arc<Memories> {
        &self.inner.memories
    }

    /// Counts as use of a project, for what needs no room in it.
    pub async fn project_touched(&self, id: &ProjectId) -> Result<(), Error> {
        used_without_need(&self.inner, id).await
    }

    /// That a session is one of a project and goes on.
    async fn check_session(&self, project: &ProjectId, id: &SessionId) -> Result<(), Error> {
        let unknown = || Error::NotFound { kind: "session", id: id.to_string() };
        let session = self.inner.core.store.session(id).await?.ok_or_else(unknown)?;
        if session.project.as_ref() != Some(project) {
            return Err(unknown());
        }
        if session.ended.is_some() {
            return Err(Error::Conflict(format!("session `{id}` has ended, and its files are gone")));
        }
        Ok(())
    }
}

impl Inner {
    /// The hot memory of a project. If it is shown in sandboxes, what was changed there while nobody looked is taken in.
    async fn hot(&self, project: &ProjectId, routes: &Routes) -> Result<Arc<Hot>, Error> {
        let place = super::projects::place(self, project).ok_or_else(no_disk)?;
        let is_new = !self.memories.is_open(project);
        let hot = self.memories.open(project, &place.hot(), routes).await?;
        if is_new {
            self.show(project, &hot, routes).await;
        }
        Ok(hot)
    }

    /// Shows in its sandboxes what a table says, beside what they saw before: those that run go on as they began.
    async fn show(&self, project: &ProjectId, hot: &Hot, routes: &Routes) {
        let Some(place) = super::projects::place(self, project) else { return };
        let mut is_new = false;
        for shown in mirrored(routes, &place) {
            match shown.make(&place) {
                Ok(()) => is_new |= self.memories.show(hot, &shown),
                Err(error) => tracing::warn!(%error, %project, "hot memory is not shown in its sandboxes"),
            }
        }
        if is_new {
            self.memories.sync(project).await;
        }
    }

    /// Before an instance of a project is made, and whenever its table is another: what its sandboxes are to see.
    pub(crate) async fn see(&self, project: &Project) -> Result<(), Error> {
        let Some(place) = super::projects::place(self, &project.id) else { return Ok(()) };
        let routes = routes_of(&self.routes, project)?;
        let sight = Sight::of(&routes);
        let written = tokio::task::spawn_blocking(move || match sight.write(&place) {
            // It is on its way to the trash.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            written => written.map_err(|error| super::projects::on_disk(place.root(), &error)),
        });
        written.await.map_err(|error| Error::Io(error.to_string()))??;
        if self.memories.is_open(&project.id) {
            let hot = self.hot(&project.id, &routes).await?;
            self.show(&project.id, &hot, &routes).await;
        }
        Ok(())
    }

    /// The same by its own routes.
    pub(crate) async fn hot_of(&self, project: &ProjectId) -> Result<Arc<Hot>, Error> {
        let row = open(self, project).await?;
        let routes = routes_of(&self.routes, &row)?;
        self.hot(project, &routes).await
    }

    /// Before a command of a project begins, and after it has ended: its sandbox and RAM have the same hot memory.
    pub(crate) async fn sync_memories(&self, project: &ProjectId) {
        if !self.memories.is_open(project) {
            if let Err(error) = self.hot_of(project).await {
                tracing::warn!(%error, %project, "hot memory is not shown in its sandboxes");
            }
            return;
        }
        self.memories.sync(project).await;
    }
}

/// After a start, behind it: the hot memory of every project is read, those first that were used last. What is damaged
/// is told now, and not when somebody needs it. As much stays in RAM as one project may have; the rest is put away again.
pub(super) async fn read_all(inner: Arc<Inner>) {
    let mut projects = match inner.core.store.projects(&Filter::kept(), &Page::all()).await {
        Ok(projects) => projects,
        Err(error) => return tracing::warn!(%error, "hot memories are read when they are asked for"),
    };
    projects.sort_by_key(|project| std::cmp::Reverse(project.retention.last_accessed_at));
    let mut room = inner.memories.settings().hot.total;
    for project in projects {
        if inner.core.stop.is_cancelled() {
            return;
        }
        let was_open = inner.memories.is_open(&project.id);
        let has_files =
            super::projects::place(&inner, &project.id).is_some_and(|place| Memories::has_files(&place.hot()));
        if was_open || !has_files {
            continue;
        }
        match inner.hot_of(&project.id).await {
            Ok(hot) => {
                let bytes = hot.status().bytes;
                drop(hot);
                match room.checked_sub(bytes) {
                    Some(left) => room = left,
                    None => inner.memories.put_away(&project.id),
                }
            }
            Err(error) => tracing::warn!(%error, project = %project.id, "its hot memory can't be read"),
        }
    }
}

fn no_disk() -> Error {
    Error::Unsupported("this server keeps no projects on a disk".to_owned())
}

/// The routes of a project: its own, or those of the server.
pub(super) fn routes_of(standard: &Arc<Routes>, project: &Project) -> Result<Arc<Routes>, Error> {
    let Some(text) = &project.config.routes else { return Ok(Arc::clone(standard)) };
    let wrong = |message: String| Error::Invalid(format!("the routes of project `{}`: {message}", project.id));
    let written: std::collections::BTreeMap<String, serde_json::Value> =
        serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    Ok(Arc::new(table(written).map_err(|error| wrong(error.to_string()))?))
}
