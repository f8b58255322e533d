//! Projects: made, found, changed, put away.
//!
//! ```text
//! asked for ─► checked ─► row, if there is room ─► directories and mirror ─► answered ─► repository, if one was asked for
//! ```
//!
//! The row comes first: a server that dies behind it finds a project whose directories it makes when it starts again.

mod admit;
mod import;
pub(crate) mod log;
mod repository;
mod sessions;
mod usage;

pub(crate) use admit::{Exchange, Exchanges, Gates, admit};
pub(crate) use repository::{Clones, abandon, begin as begin_clone};
pub use sessions::Connection;
pub(crate) use sessions::{Connections, closed};
pub use usage::Room;
pub(crate) use usage::{Usage, used, used_without_need, write_down};

use super::{List, Listed, Stead};
use crate::error::Error;
use crate::project::{Metadata, ProjectPlace, ProjectSettings};
use crate::stead::Inner;
use crate::store::{Page, StoreError};
use std::path::Path;
use std::sync::Arc;
use stead_model::env::Secret;
use stead_model::ids::{ProjectId, ProviderName};
use stead_model::project::{Change, Cloning, Config, Draft, Filter, InvalidProject, Project, Status};
use stead_model::session::Session;

/// Shown with a project.
const RECENT_SESSIONS: u32 = 100;

impl From<InvalidProject> for Error {
    fn from(error: InvalidProject) -> Self {
        match error {
            InvalidProject::Env(error) => Self::Env(error),
            InvalidProject::Prefix(_)
            | InvalidProject::Description
            | InvalidProject::Tag(_)
            | InvalidProject::Tags(_)
            | InvalidProject::Config { .. } => Self::Invalid(error.to_string()),
        }
    }
}

fn unknown(id: &ProjectId) -> Error {
    Error::NotFound { kind: "project", id: id.to_string() }
}

impl Stead {
    pub fn project_settings(&self) -> &ProjectSettings {
        &self.inner.projects.settings
    }

    /// A project with its directories. `credentials`: what lets us clone its repository.
    pub async fn create_project(&self, draft: Draft, credentials: Option<Secret>) -> Result<Project, Error> {
        let inner = Arc::clone(&self.inner);
        let work = async move { create(&inner, draft, credentials).await };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }

    /// One that is there, in the trash or not.
    pub async fn project(&self, id: &ProjectId) -> Result<Project, Error> {
        get(&self.inner, id).await
    }

    /// What is last heard of the clone of its repository, while that goes on.
    pub fn clone_progress(&self, id: &ProjectId) -> Option<String> {
        self.inner.projects.clones.progress(id)
    }

    /// Newest first.
    pub async fn list_projects(&self, filter: &Filter, list: &List) -> Result<Listed<Project>, Error> {
        let (page, limit) = list.page("projects")?;
        self.inner.ledger.flush().await;
        let found = self.inner.core.store.projects(filter, &page).await?;
        let place = |project: &Project| super::lists::thing(project.created_at, &project.id);
        let mut listed = Listed::cut(found, limit, "projects", place);
        self.measure_some(&mut listed.items).await;
        listed.items.iter_mut().for_each(|project| self.present(project));
        Ok(listed)
    }

    /// Every project outside the trash, and every one in it.
    pub async fn all_projects(&self) -> Result<Vec<Project>, Error> {
        let store = &self.inner.core.store;
        let mut all = store.projects(&Filter::kept(), &Page::all()).await?;
        let trashed = Filter { status: Some(Status::Trashed), ..Filter::default() };
        all.extend(store.projects(&trashed, &Page::all()).await?);
        Ok(all)
    }

    /// Describes or configures it otherwise. Instances that run keep what they began with.
    /// `from`: what a new configuration was made of; if another is there by now, that is a conflict.
    pub async fn change_project(
        &self,
        id: &ProjectId,
        from: Option<&Config>,
        change: Change,
    ) -> Result<Project, Error> {
        let usual_days = self.inner.projects.settings.keep_days;
        if let Some(config) = &change.config {
            check_provider(&self.inner, config)?;
        }
        self.inner.ledger.flush().await;
        let changed = update(&self.inner, id, |project| {
            if from.is_some_and(|from| *from != project.config) {
                return Err(Error::Conflict(format!("project `{id}` was configured otherwise meanwhile")));
            }
            Ok(Some(project.changed(change.clone(), usual_days)?))
        })
        .await?;
        if change.config.is_some() && changed.status() != Status::Trashed {
            self.inner.see(&changed).await?;
        }
        Ok(changed)
    }

    /// Its newest sessions, as they are now.
    pub async fn recent_sessions(&self, id: &ProjectId) -> Result<Vec<Session>, Error> {
        let page = Page { limit: RECENT_SESSIONS, after: None };
        Ok(self.inner.core.store.sessions_of_project(id, &page).await?)
    }

    /// Where its files are; absent where nothing is kept on a disk.
    pub fn project_place(&self, id: &ProjectId) -> Option<ProjectPlace> {
        place(&self.inner, id)
    }
}

pub(crate) fn place(inner: &Inner, id: &ProjectId) -> Option<ProjectPlace> {
    inner.projects.settings.root.as_ref().map(|root| ProjectPlace::of(root, id))
}

pub(crate) async fn get(inner: &Inner, id: &ProjectId) -> Result<Project, Error> {
    inner.core.store.project(id).await?.ok_or_else(|| unknown(id))
}

/// One that is not in the trash.
pub(crate) async fn open(inner: &Inner, id: &ProjectId) -> Result<Project, Error> {
    let project = get(inner, id).await?;
    if project.status() == Status::Trashed { Err(usage::trashed(id)) } else { Ok(project) }
}

/// Changes a project by what is there: read, changed, and written if nobody else has meanwhile. `None` changes nothing.
/// The mirror follows.
pub(crate) async fn update(
    inner: &Inner,
    id: &ProjectId,
    change: impl Fn(&Project) -> Result<Option<Project>, Error>,
) -> Result<Project, Error> {
    loop {
        let before = get(inner, id).await?;
        let Some(after) = change(&before)? else { return Ok(before) };
        let after = Project { version: before.version + 1, ..after };
        match inner.core.store.replace_project(&before, &after).await {
            Ok(()) => {
                mirror(inner, &after).await;
                return Ok(after);
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

async fn create(inner: &Arc<Inner>, draft: Draft, credentials: Option<Secret>) -> Result<Project, Error> {
    let project = insert(inner, draft, credentials, |_| Ok(())).await?;
    if let Err(error) = settle(inner, &project).await {
        inner.core.store.delete_project(&project.id).await?;
        return Err(error);
    }
    if project.clone == Cloning::Wanted {
        repository::begin(inner, &project.id);
    }
    Ok(project)
}

/// The row of a new project, if there is room for one more.
pub(super) async fn insert(
    inner: &Inner,
    draft: Draft,
    credentials: Option<Secret>,
    prepare: impl Fn(&mut Project) -> Result<(), Error>,
) -> Result<Project, Error> {
    let core = &inner.core;
    let settings = &inner.projects.settings;
    check_provider(inner, &draft.config)?;
    loop {
        let [a, b, c, d, ..] = core.entropy();
        let mut project = draft.clone().make([a, b, c, d], core.now(), settings.keep_days)?;
        prepare(&mut project)?;
        let sealed = match &credentials {
            Some(secret) => Some(core.vault.seal_credentials(&project.id, secret)?),
            None => None,
        };
        match core.store.create_project(&project, sealed.as_ref(), settings.most).await {
            Ok(()) => return Ok(project),
            // Four bytes are not many.
            Err(StoreError::AlreadyExists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Makes what a project has on disk, as far as it isn't there.
pub(super) async fn settle(inner: &Inner, project: &Project) -> Result<(), Error> {
    let Some(place) = place(inner, &project.id) else { return Ok(()) };
    let metadata = Metadata::of(project);
    let work = move || place.make().and_then(|()| metadata.write(&place)).map_err(|error| (place, error));
    let made = tokio::task::spawn_blocking(work).await.map_err(|error| Error::Io(error.to_string()))?;
    made.map_err(|(place, error)| on_disk(place.root(), &error))?;
    inner.see(project).await
}

pub(crate) fn on_disk(path: &Path, error: &std::io::Error) -> Error {
    if crate::stoppable::is_stopped(error) {
        return Error::Stopping;
    }
    let message = format!("can't use `{}`: {error}", path.display());
    let full = matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
    if full { Error::NoSpace(message) } else { Error::Io(message) }
}

/// The readable mirror; the row is the truth, so a mirror that can't be written is only told.
pub(crate) async fn mirror(inner: &Inner, project: &Project) {
    let Some(place) = place(inner, &project.id) else { return };
    let metadata = Metadata::of(project);
    // Makes no directory: one that is not there is on its way to the trash.
    let written = tokio::task::spawn_blocking(move || metadata.write(&place)).await;
    match written.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(%error, project = %project.id, "its mirror is not up to date");
        }
        _ => {}
    }
}

/// After a start: what was cut short is finished.
pub(super) async fn recover(inner: &Arc<Inner>) -> Result<(), Error> {
    let projects = inner.core.store.projects(&Filter::kept(), &Page::all()).await?;
    import::recover(inner, &projects).await?;
    for project in &projects {
        if let Err(error) = settle(inner, project).await {
            tracing::warn!(%error, project = %project.id, "its directories could not be made");
        }
    }
    repository::recover(inner, &projects);
    keep_as_configured(inner).await
}

/// One that doesn't say how long it is kept is kept as the server is configured now.
async fn keep_as_configured(inner: &Inner) -> Result<(), Error> {
    let usual = inner.projects.settings.keep_days;
    let trashed = Filter { status: Some(Status::Trashed), ..Filter::default() };
    for filter in [Filter::kept(), trashed] {
        for project in inner.core.store.projects(&filter, &Page::all()).await? {
            update(inner, &project.id, |project| {
                if project.config.cleanup_after_days.is_some() || project.retention.keep_days == usual {
                    return Ok(None);
                }
                let mut after = project.clone();
                after.retention.keep_for(usual);
                if project.status() == Status::Trashed {
                    // What led there is as it was.
                    (after.retention.notified, after.retention.marked_at) =
                        (project.retention.notified, project.retention.marked_at);
                }
                Ok(Some(after))
            })
            .await?;
        }
    }
    Ok(())
}

/// That a provider of that name is configured and can do what is asked of it.
fn check_provider(inner: &Inner, config: &Config) -> Result<(), Error> {
    match &config.provider {
        Some(name) => check_demands(inner, name, config),
        None => Ok(()),
    }
}

/// That a provider can do what a project asks of it.
pub(crate) fn check_demands(inner: &Inner, provider: &ProviderName, config: &Config) -> Result<(), Error> {
    match inner.core.provider(provider)?.refuses(&config.demands()) {
        Some(setting) => {
            Err(Error::Unsupported(format!("provider `{provider}` can't do what `config.{setting}` asks")))
        }
        None => Ok(()),
    }
}
