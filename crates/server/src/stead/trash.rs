//! The trash: out of sight at once, gone for good only later.
//!
//! ```text
//! row says trashed ─► nobody enters ─► sessions closed, instances destroyed ─► PROJECTS/P renamed to TRASH/P
//! restored:  TRASH/P renamed to PROJECTS/P ─► row says kept
//! purged:    TRASH/P renamed to TRASH/P.purge ─► threads, files, row
//! ```
//!
//! The row is the truth and the directory follows it: [`settle`] brings it to where the row says, and does so at every
//! start, so a server may die between any two steps. What is being purged has another name: nobody restores half of it.

use super::{Inner, Stead, projects};
use crate::error::Error;
use crate::lease::Force;
use crate::store::{Page, StoreError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use stead_model::ids::{CommandId, ProjectId};
use stead_model::notice::{Subject, What};
use stead_model::project::{Cloning, Filter, Project, Status};
use stead_model::retention::{Due, Moment};
use stead_model::session::CloseReason;

impl Stead {
    /// Puts a project into the trash. Refused while somebody works in it, unless forced.
    pub async fn delete_project(&self, id: &ProjectId, force: Force) -> Result<(), Error> {
        let (inner, id) = (Arc::clone(&self.inner), id.clone());
        let work = async move { trash(&inner, &id, force, "api").await };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }

    /// Takes a project out of the trash. One that isn't in it stays as it is.
    pub async fn restore_project(&self, id: &ProjectId) -> Result<Project, Error> {
        let (inner, id) = (Arc::clone(&self.inner), id.clone());
        let work = async move { restore(&inner, &id).await };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }

    /// Days on top of those it has.
    pub async fn extend_project(&self, id: &ProjectId, days: u32) -> Result<Project, Error> {
        let now = self.inner.core.now();
        projects::update(&self.inner, id, |project| {
            let mut project = kept(project)?.clone();
            project.retention.extend(days, now);
            Ok(Some(project))
        })
        .await
    }

    pub async fn pin_project(&self, id: &ProjectId) -> Result<Project, Error> {
        projects::update(&self.inner, id, |project| {
            let mut project = kept(project)?.clone();
            project.retention.pin();
            Ok(Some(project))
        })
        .await
    }

    pub async fn unpin_project(&self, id: &ProjectId) -> Result<Project, Error> {
        let now = self.inner.core.now();
        projects::update(&self.inner, id, |project| {
            let mut project = kept(project)?.clone();
            project.retention.unpin(self.inner.upkeep.rules, now);
            Ok(Some(project))
        })
        .await
    }
}

/// One that is not in the trash.
pub(crate) fn kept(project: &Project) -> Result<&Project, Error> {
    if project.retention.trashed_at.is_some() { Err(Error::Trashed(project.id.clone())) } else { Ok(project) }
}

/// The same by its id; one that isn't there is somebody else's to tell.
pub(crate) async fn refuse_if_trashed(inner: &Inner, id: Option<&ProjectId>) -> Result<(), Error> {
    let Some(id) = id else { return Ok(()) };
    match inner.core.store.project(id).await? {
        Some(project) => kept(&project).map(drop),
        None => Ok(()),
    }
}

/// What somebody does in a project, if anybody does.
pub(super) async fn in_use(inner: &Inner, id: &ProjectId) -> Result<Option<String>, Error> {
    if inner.projects.clones.is_on_its_way(id) {
        return Ok(Some("git: its repository is on its way".to_owned()));
    }
    super::reap::write_down_all(inner, |seat| seat.thread.project.as_ref() == Some(id)).await?;
    let now = inner.core.present();
    // One whose time is over is only waiting to be closed.
    let live = inner.core.store.live_sessions_of_project(id).await?;
    if let Some(session) = live.iter().find(|session| session.expiry(now.clone()).is_none()) {
        return Ok(Some(format!("session `{}`", session.id)));
    }
    Ok(running(inner, id).await?.map(|command| format!("command `{command}`")))
}

/// A command that runs or waits in a project.
pub(super) async fn running(inner: &Inner, project: &ProjectId) -> Result<Option<CommandId>, Error> {
    inner.ledger.flush().await;
    for command in inner.core.store.open_commands().await? {
        let thread = inner.core.store.thread(&command.thread).await?;
        if thread.is_some_and(|thread| thread.project.as_ref() == Some(project)) {
            return Ok(Some(command.id));
        }
    }
    Ok(None)
}

pub(super) async fn trash(inner: &Arc<Inner>, id: &ProjectId, force: Force, source: &str) -> Result<(), Error> {
    let yard = inner.yard(id);
    let _alone = yard.lock().await;
    let before = loop {
        let before = projects::get(inner, id).await?;
        if before.retention.trashed_at.is_some() {
            return settle(inner, &before).await;
        }
        refuse_if_used(inner, id, force).await?;
        let mut after = before.clone();
        after.version += 1;
        after.retention = before.retention.apply(Due::Trash, inner.core.now());
        let notice = inner.notice(Subject::Project(id.clone()), What::Trashed, &after.retention, source);
        match inner.core.store.keep_project(&before, &after, Some(inner.telling(&notice)), u32::MAX).await {
            Ok(()) => {
                inner.told(&notice);
                break before;
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    };
    inner.projects.usage.forget(id);
    // Somebody may have come in between the look and the row.
    if let Err(used) = refuse_if_used(inner, id, force).await {
        back(inner, id, &before, source).await?;
        return Err(used);
    }
    settle(inner, &projects::get(inner, id).await?).await
}

async fn refuse_if_used(inner: &Inner, id: &ProjectId, force: Force) -> Result<(), Error> {
    match in_use(inner, id).await? {
        Some(by) if force == Force::No => {
            Err(Error::Conflict(format!("project `{id}` is in use by {by}; force it if that is meant")))
        }
        Some(_) | None => Ok(()),
    }
}

/// As it was: it was never moved.
async fn back(inner: &Inner, id: &ProjectId, before: &Project, source: &str) -> Result<(), Error> {
    let now = projects::get(inner, id).await?;
    let after = Project { version: now.version + 1, retention: before.retention.clone(), ..now.clone() };
    let notice = inner.notice(Subject::Project(id.clone()), What::Restored, &after.retention, source);
    inner.core.store.keep_project(&now, &after, Some(inner.telling(&notice)), u32::MAX).await?;
    inner.told(&notice);
    Ok(())
}

async fn restore(inner: &Arc<Inner>, id: &ProjectId) -> Result<Project, Error> {
    let yard = inner.yard(id);
    let _alone = yard.lock().await;
    loop {
        let before = projects::get(inner, id).await?;
        if before.retention.trashed_at.is_none() {
            return Ok(before);
        }
        if let Some(places) = places(inner, id)
            && tokio::fs::try_exists(&places.purged).await.unwrap_or(false)
        {
            return Err(Error::Gone(format!("project `{id}` is being removed: its time in the trash is over")));
        }
        let mut after = before.clone();
        after.version += 1;
        after.retention.restore(inner.core.now());
        // First the files: whoever finds the row finds them.
        if let Some(places) = places(inner, id) {
            move_dir(places.trashed, places.there).await?;
        }
        let notice = inner.notice(Subject::Project(id.clone()), What::Restored, &after.retention, "api");
        let most = inner.projects.settings.most;
        match inner.core.store.keep_project(&before, &after, Some(inner.telling(&notice)), most).await {
            Ok(()) => {
                inner.told(&notice);
                projects::mirror(inner, &after).await;
                if after.clone == Cloning::Wanted {
                    projects::begin_clone(inner, id);
                }
                return Ok(after);
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => {
                settle_dir(inner, &before).await?;
                return Err(error.into());
            }
        }
    }
}

/// Removes what is in the trash for good, if it is still due.
pub(super) async fn purge(inner: &Arc<Inner>, id: &ProjectId, moment: Moment, source: &str) -> Result<(), Error> {
    let yard = inner.yard(id);
    let _alone = yard.lock().await;
    let Some(project) = inner.core.store.project(id).await? else { return Ok(()) };
    if project.retention.due(inner.upkeep.rules, false, moment) != Some(Due::Purge) {
        return Ok(());
    }
    settle(inner, &project).await?;
    if let Some(places) = places(inner, id) {
        move_dir(places.trashed, places.purged).await?;
    }
    for thread in inner.core.store.threads(Some(id), &Page::all()).await? {
        super::threads::delete(inner, &thread.id).await?;
    }
    if let Some(places) = places(inner, id) {
        remove(places.purged).await?;
    }
    let notice = inner.notice(Subject::Project(id.clone()), What::Purged, &project.retention, source);
    inner.core.store.purge_project(id, inner.telling(&notice)).await?;
    inner.told(&notice);
    super::snapshots::sweep(inner).await
}

/// Removes one that nobody was told of.
pub(super) async fn discard(inner: &Inner, id: &ProjectId) -> Result<(), Error> {
    if let Some(places) = places(inner, id) {
        remove(places.there).await?;
        remove(places.trashed).await?;
    }
    Ok(inner.core.store.delete_project(id).await?)
}

/// Brings what a project has to where its row says.
pub(super) async fn settle(inner: &Arc<Inner>, project: &Project) -> Result<(), Error> {
    if project.retention.trashed_at.is_some() {
        quiet(inner, &project.id).await?;
        // Nobody writes there any more; who restores it finds its memories in its directory.
        inner.memories.snapshot(&project.id).await?;
        let _shut = inner.memories.shut(&project.id).await;
        return settle_dir(inner, project).await;
    }
    settle_dir(inner, project).await
}

/// Ends what runs in a project: commands, sessions, instances. Its terminals stay.
pub(super) async fn quiet(inner: &Arc<Inner>, id: &ProjectId) -> Result<(), Error> {
    let store = &inner.core.store;
    projects::abandon(inner, id).await?;
    for thread in store.threads(Some(id), &Page::all()).await? {
        let door = inner.door(&thread.id);
        let _inside = door.lock().await;
        // It may have moved to another lease, or be deleted.
        let Some(thread) = store.thread(&thread.id).await? else { continue };
        for terminal in store.terminals_of_thread(&thread.id).await? {
            super::close::cancel_all(inner, &terminal.id).await;
            if let Some(session) = store.live_session(&terminal.id).await? {
                super::close::session(inner, session, CloseReason::Destroyed).await?;
            }
        }
        if store.lease(&thread.lease).await?.is_some_and(|lease| lease.instance.is_some()) {
            inner.leases.destroy(&thread.lease, Force::Yes, Vec::new(), "trash").await?;
        }
    }
    Ok(())
}

/// After a start: what was cut short is finished. A project whose instance can't be ended now is left for the next round;
/// nobody can enter it.
pub(super) async fn recover(inner: &Arc<Inner>) -> Result<(), Error> {
    for project in inner.core.store.projects(&Filter::kept(), &Page::all()).await? {
        settle_dir(inner, &project).await?;
    }
    let trashed = Filter { status: Some(Status::Trashed), ..Filter::default() };
    for project in inner.core.store.projects(&trashed, &Page::all()).await? {
        if let Err(error) = settle(inner, &project).await {
            tracing::warn!(%error, project = %project.id, "is not in the trash yet");
        }
    }
    Ok(())
}

struct Places {
    there: PathBuf,
    trashed: PathBuf,
    purged: PathBuf,
}

/// Where the directory of a project may be.
fn places(inner: &Inner, id: &ProjectId) -> Option<Places> {
    let there = projects::place(inner, id)?.root().to_owned();
    let trash = there.parent()?.with_file_name("trash");
    Some(Places { there, trashed: trash.join(id.as_str()), purged: trash.join(format!("{id}.purge")) })
}

/// Where a project's own directory is, or may be.
pub(super) fn directories(inner: &Inner, id: &ProjectId) -> Vec<PathBuf> {
    places(inner, id).map(|places| vec![places.there, places.trashed]).unwrap_or_default()
}

async fn settle_dir(inner: &Inner, project: &Project) -> Result<(), Error> {
    let Some(places) = places(inner, &project.id) else { return Ok(()) };
    if project.retention.trashed_at.is_some() {
        move_dir(places.there, places.trashed).await
    } else {
        move_dir(places.trashed, places.there).await
    }
}

/// Renames a directory. One that isn't there was moved already; one that is there already is never written over.
async fn move_dir(from: PathBuf, to: PathBuf) -> Result<(), Error> {
    let work = move || match try_move(&from, &to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !from.exists() => Ok(()),
        moved => moved.map_err(|error| projects::on_disk(&from, &error)),
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Io(error.to_string()))?
}

fn try_move(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(above) = to.parent() {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(above)?;
    }
    let flags = rustix::fs::RenameFlags::NOREPLACE;
    Ok(rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, flags)?)
}

async fn remove(dir: PathBuf) -> Result<(), Error> {
    let work = move || match std::fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(projects::on_disk(&dir, &error)),
        _ => Ok(()),
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Io(error.to_string()))?
}

impl Inner {
    /// One at a time moves the directory of a project.
    pub(super) fn yard(&self, id: &ProjectId) -> Arc<tokio::sync::Mutex<()>> {
        let mut yards = self.yards.lock().unwrap_or_else(PoisonError::into_inner);
        if yards.len() > 1024 {
            yards.retain(|_, yard| Arc::strong_count(yard) > 1);
        }
        Arc::clone(yards.entry(id.clone()).or_default())
    }
}
