//! Work in a project: it is an access, and it needs room.
//!
//! An access is an exec, a write, a session or a WebSocket, never a read. It is written once a minute at most, and at
//! once after something was said of the project; what was not written yet is shown all the same.

use super::{on_disk, place, update};
use crate::error::Error;
use crate::stead::{Inner, Stead};
use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use stead_model::clock::Timestamp;
use stead_model::ids::ProjectId;
use stead_model::project::{Project, Status};

/// How often an access is written down.
const OFTEN: Duration = Duration::from_mins(1);

/// A tree that is measured faster than this is measured each time; another at most for a tenth of the time.
const QUICK: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(crate) struct Usage {
    of: Mutex<HashMap<ProjectId, Known>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    accessed_at: Option<Timestamp>,
    written_at: Option<Timestamp>,
    measured: Option<Measured>,
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    at: Instant,
    took: Duration,
    bytes: u64,
}

impl Usage {
    fn known(&self, id: &ProjectId) -> Known {
        self.of.lock().unwrap_or_else(PoisonError::into_inner).get(id).copied().unwrap_or_default()
    }

    fn note(&self, id: &ProjectId, change: impl FnOnce(&mut Known)) {
        change(self.of.lock().unwrap_or_else(PoisonError::into_inner).entry(id.clone()).or_default());
    }

    /// The next access is written whenever it is; what was measured is measured again.
    pub(crate) fn forget(&self, id: &ProjectId) {
        self.of.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

impl Stead {
    /// Somebody is about to work in a project: run a command, write a file, open a session. Refused if it is in the
    /// trash or its disk limit is reached. What is written has to find the room that is left.
    pub async fn project_used(&self, id: &ProjectId) -> Result<Room, Error> {
        used(&self.inner, id).await
    }

    /// A project as it is now: with all that was answered counted, with accesses that are not written yet, and its size.
    pub async fn present_project(&self, id: &ProjectId) -> Result<Project, Error> {
        self.inner.ledger.flush().await;
        let mut project = self.project(id).await?;
        if project.status() != Status::Trashed {
            match measure(&self.inner, id).await {
                Ok(bytes) => project.statistics.disk_bytes = bytes,
                Err(error) => tracing::warn!(%error, project = %id, "its size is not known"),
            }
        }
        self.present(&mut project);
        Ok(project)
    }

    /// Sizes for a list: what can be measured in a moment, first those that never were. Others are told as they were.
    pub(super) async fn measure_some(&self, projects: &mut [Project]) {
        let until = tokio::time::Instant::now() + QUICK;
        let mut kept: Vec<_> = projects.iter_mut().filter(|project| project.status() != Status::Trashed).collect();
        kept.sort_by_key(|project| project.statistics.disk_bytes.is_some());
        for project in kept {
            let (inner, id) = (Arc::clone(&self.inner), project.id.clone());
            let work = async move { measure(&inner, &id).await };
            match tokio::time::timeout_at(until, self.inner.core.finish(work)).await {
                Ok(Some(Ok(bytes))) => project.statistics.disk_bytes = bytes,
                Ok(Some(Err(error))) => tracing::warn!(%error, project = %project.id, "its size is not known"),
                Ok(None) | Err(_) => return,
            }
        }
    }

    pub(super) fn present(&self, project: &mut Project) {
        if let Some(at) = self.inner.projects.usage.known(&project.id).accessed_at {
            project.retention.count(at);
        }
    }
}

pub(crate) async fn used(inner: &Inner, id: &ProjectId) -> Result<Room, Error> {
    let project = super::open(inner, id).await?;
    accessed(inner, &project).await?;
    room(inner, &project).await
}

/// The same for what needs no room.
pub(crate) async fn used_without_need(inner: &Inner, id: &ProjectId) -> Result<(), Error> {
    accessed(inner, &super::open(inner, id).await?).await
}

pub(crate) fn trashed(id: &ProjectId) -> Error {
    Error::Trashed(id.clone())
}

async fn accessed(inner: &Inner, project: &Project) -> Result<(), Error> {
    let (id, now) = (&project.id, inner.core.now());
    let usage = &inner.projects.usage;
    usage.note(id, |known| known.accessed_at = known.accessed_at.max(Some(now)));
    let recent = usage.known(id).written_at.is_some_and(|at| at <= now && now.since(at) < OFTEN);
    if recent && project.status() == Status::Active {
        return Ok(());
    }
    update(inner, id, |project| {
        if project.status() == Status::Trashed {
            return Err(trashed(id));
        }
        let mut project = project.clone();
        project.retention.access(now);
        Ok(Some(project))
    })
    .await?;
    usage.note(id, |known| known.written_at = Some(now));
    Ok(())
}

/// What was not written yet, before the server ends.
pub(crate) async fn write_down(inner: &Inner) {
    let unwritten: Vec<(ProjectId, Timestamp)> = {
        let known = inner.projects.usage.of.lock().unwrap_or_else(PoisonError::into_inner);
        let late = known.iter().filter(|(_, known)| known.accessed_at > known.written_at);
        late.filter_map(|(id, known)| Some((id.clone(), known.accessed_at?))).collect()
    };
    for (id, at) in unwritten {
        let written = update(inner, &id, |project| {
            if project.status() == Status::Trashed {
                return Ok(None);
            }
            let mut project = project.clone();
            project.retention.access(at);
            Ok(Some(project))
        });
        if let Err(error) = written.await {
            tracing::warn!(%error, project = %id, "its last use is not written down");
        }
    }
}

/// Refuses what would need more room than the project may have.
async fn room(inner: &Inner, project: &Project) -> Result<Room, Error> {
    let Some(limit) = project.config.limits.disk else { return Ok(Room::default()) };
    match measure(inner, &project.id).await? {
        Some(bytes) if bytes >= limit => {
            let error = format!("project `{}` holds {bytes} bytes, and may hold {limit}", project.id);
            inner.core.store.project_failed(&project.id, inner.core.now(), &error).await?;
            Err(Error::NoSpace(error))
        }
        Some(bytes) => Ok(Room(Some(Bounded {
            project: project.id.clone(),
            limit,
            held: bytes,
            left: limit.saturating_sub(bytes),
        }))),
        None => Ok(Room::default()),
    }
}

/// What may still be written to a project: anything, where it has no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Room(Option<Bounded>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Bounded {
    project: ProjectId,
    limit: u64,
    held: u64,
    left: u64,
}

impl Room {
    /// How much that is; none: any.
    pub fn left(&self) -> Option<u64> {
        self.0.as_ref().map(|bounded| bounded.left)
    }

    /// What is replaced makes room for what replaces it.
    pub fn give(&mut self, bytes: u64) {
        if let Some(bounded) = &mut self.0 {
            bounded.left = bounded.left.saturating_add(bytes);
        }
    }

    /// Whether so much more would fit.
    pub fn check(&self, bytes: u64) -> Result<(), Error> {
        match &self.0 {
            Some(bounded) if bytes > bounded.left => Err(self.refusal()),
            Some(_) | None => Ok(()),
        }
    }

    /// So much more comes.
    pub fn take(&mut self, bytes: u64) -> Result<(), Error> {
        self.check(bytes)?;
        if let Some(bounded) = &mut self.0 {
            bounded.left -= bytes;
        }
        Ok(())
    }

    /// What is said of more than that.
    pub fn refusal(&self) -> Error {
        let Some(Bounded { project, limit, held, .. }) = &self.0 else {
            return Error::NoSpace("there is no room for it".to_owned());
        };
        Error::NoSpace(format!("project `{project}` holds {held} bytes, and may hold {limit}: this does not fit"))
    }
}

/// What a project has on disk; `None` where it has nothing on one.
pub(crate) async fn measure(inner: &Inner, id: &ProjectId) -> Result<Option<u64>, Error> {
    let Some(place) = place(inner, id) else { return Ok(None) };
    let before = inner.projects.usage.known(id).measured;
    if let Some(Measured { at, took, bytes }) = before
        && took > QUICK
        && at.elapsed() < took * 10
    {
        return Ok(Some(bytes));
    }
    let (root, begun) = (place.root().to_owned(), Instant::now());
    let work = tokio::task::spawn_blocking(move || size_of(&root).map_err(|(path, error)| on_disk(&path, &error)));
    let bytes = work.await.map_err(|error| Error::Io(error.to_string()))??;
    let measured = Measured { at: Instant::now(), took: begun.elapsed(), bytes };
    inner.projects.usage.note(id, |known| known.measured = Some(measured));
    if before.is_none_or(|before| before.bytes != bytes) {
        inner.core.store.measured_project(id, bytes).await?;
    }
    Ok(Some(bytes))
}

/// The blocks of everything below a directory; what has several names there counts once, what vanishes meanwhile not.
fn size_of(root: &Path) -> Result<u64, (PathBuf, std::io::Error)> {
    let mut total: u64 = 0;
    let mut seen = BTreeSet::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        let entries = match std::fs::read_dir(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            entries => entries.map_err(|error| (dir.clone(), error))?,
        };
        for entry in entries {
            let entry = entry.map_err(|error| (dir.clone(), error))?;
            // Of a link itself, not of what it points to.
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                dirs.push(entry.path());
            }
            if meta.nlink() < 2 || meta.is_dir() || seen.insert((meta.dev(), meta.ino())) {
                total += meta.blocks() * 512;
            }
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_two_names_counts_once_and_links_lead_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let big = vec![1; 1 << 20];
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/f"), &big).unwrap();
        let once = size_of(dir.path()).unwrap();
        assert!(once >= 1 << 20, "{once}");
        std::fs::hard_link(dir.path().join("a/f"), dir.path().join("g")).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("root")).unwrap();
        assert!(size_of(dir.path()).unwrap() < once + (1 << 16));
        assert_eq!(size_of(&dir.path().join("none")).unwrap(), 0);
    }
}
