//! A project directory that comes from elsewhere.
//!
//! ```text
//! its mirror is read and checked ─► copied to PROJECTS/.import-P, its mirror last ─► row ─► renamed to PROJECTS/P
//! ```
//!
//! One that was put below PROJECTS under its own name is taken as it is. Without a row nothing has the name of a project:
//! an import that is refused or cut short keeps nobody from trying again. A server that finds a row and a whole copy does
//! what is left to do.

use super::{check_provider, settle};
use crate::error::Error;
use crate::project::{Metadata, MetadataError, ProjectPlace};
use crate::stead::{Inner, Stead};
use std::collections::BTreeSet;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stead_model::ids::ProjectId;
use stead_model::project::{Cloning, Project};
use stead_model::route::{Backend, Root, Routes};

/// What is being copied has another name than any project.
const UNFINISHED: &str = ".import-";

impl From<MetadataError> for Error {
    fn from(error: MetadataError) -> Self {
        match &error {
            MetadataError::Unreadable { path, source } => {
                Self::Path { path: path.clone(), message: format!("it can't be read: {source}") }
            }
            MetadataError::Malformed { .. } | MetadataError::Invalid(_) => Self::Invalid(error.to_string()),
        }
    }
}

impl Stead {
    /// Makes a project of a directory of this machine that was one elsewhere. It keeps its id.
    pub async fn import_project(&self, path: &Path) -> Result<Project, Error> {
        let (inner, path) = (Arc::clone(&self.inner), path.to_owned());
        let work = async move { import(&inner, &path).await };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }
}

async fn import(inner: &Arc<Inner>, path: &Path) -> Result<Project, Error> {
    let refused = |message: &str| Error::Path { path: path.display().to_string(), message: message.to_owned() };
    let Some(root) = inner.projects.settings.root.clone() else {
        return Err(Error::Unsupported("projects have no directories here".to_owned()));
    };
    if !path.is_absolute() {
        return Err(refused("name the directory by its absolute path"));
    }
    let from = tokio::fs::canonicalize(path).await.map_err(|error| refused(&error.to_string()))?;
    let source = ProjectPlace::at(from.clone());
    let metadata = blocking({
        let source = source.clone();
        move || Ok(Metadata::read(&source)?)
    })
    .await?;
    let pinned = metadata.pinned;
    let (id, draft) = metadata.draft(inner.projects.settings.schemes)?;
    check_provider(inner, &draft.config)?;
    if inner.core.store.project(&id).await?.is_some() {
        return Err(Error::AlreadyExists { kind: "project", id: id.to_string() });
    }
    let core = &inner.core;
    let mut project = draft.make(digits(&id), core.now(), inner.projects.settings.keep_days)?;
    project.retention.pinned = pinned;
    if project.clone == Cloning::Wanted {
        // It is in the directory.
        project.clone = Cloning::Done(core.now());
    }
    let there = ProjectPlace::of(&root, &id);
    let in_place = tokio::fs::canonicalize(there.root()).await.is_ok_and(|place| place == from);
    if in_place {
        core.store.create_project(&project, None, inner.projects.settings.most).await?;
    } else {
        let routes = crate::stead::memories::routes_of(&inner.routes, &project)?;
        let part = bring(inner, &source, &there, &routes, Metadata::of(&project)).await?;
        if let Err(error) = core.store.create_project(&project, None, inner.projects.settings.most).await {
            blocking(move || remove(part.root())).await?;
            return Err(error.into());
        }
        if let Err(error) = blocking(move || take_place(&part, &there)).await {
            core.store.delete_project(&project.id).await?;
            return Err(error);
        }
    }
    settle(inner, &project).await?;
    Ok(project)
}

/// The eight digits at the end of an id.
fn digits(id: &ProjectId) -> [u8; 4] {
    let (_, digits) = id.as_str().rsplit_once('-').unwrap_or_default();
    u32::from_str_radix(digits, 16).unwrap_or_default().to_be_bytes()
}

/// Copies what a project consists of, and nothing else that lies there, to where it is until there is a row.
async fn bring(
    inner: &Arc<Inner>,
    from: &ProjectPlace,
    to: &ProjectPlace,
    routes: &Routes,
    metadata: Metadata,
) -> Result<ProjectPlace, Error> {
    let part = ProjectPlace::at(unfinished(to));
    let pairs = {
        let (from, to, part, routes) = (from.clone(), to.clone(), part.clone(), routes.clone());
        blocking(move || {
            if to.root().symlink_metadata().is_ok() {
                let message = format!("`{}` is there already; name that to import it", to.root().display());
                return Err(Error::Conflict(message));
            }
            remove(part.root())?;
            part.make().map_err(|error| super::on_disk(part.root(), &error))?;
            let mut pairs = Vec::new();
            for dir in known(&from, &routes).map_err(|error| super::on_disk(from.root(), &error))? {
                let copy = part.root().join(&dir);
                std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(&copy)
                    .map_err(|error| super::on_disk(&copy, &error))?;
                pairs.push((from.root().join(dir), copy));
            }
            Ok(pairs)
        })
        .await?
    };
    let copied = crate::stead::fork::copy_files(inner, pairs, Arc::new(|_| {})).await;
    blocking(move || {
        let whole = copied.and_then(|()| metadata.write(&part).map_err(|error| super::on_disk(part.root(), &error)));
        match whole {
            Ok(()) => Ok(part),
            Err(error) => {
                remove(part.root())?;
                Err(error)
            }
        }
    })
    .await
}

/// What a project consists of: its directories, those of all routes of its own, and `tmp` if a route leads there. A link
/// would be somebody else's directory.
fn known(place: &ProjectPlace, routes: &Routes) -> std::io::Result<Vec<PathBuf>> {
    let is_dir = |path: &Path| path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    let mut known: Vec<PathBuf> =
        ["repo", "home", ".memories/hot", ".memories/persistent", ".logs"].map(PathBuf::from).to_vec();
    let tmp = Backend::Filesystem { root: Root::Tmp };
    known.extend(routes.iter().any(|route| route.backend == tmp).then(|| PathBuf::from("tmp")));
    let named = place.root().join("routes");
    if is_dir(&named) {
        for entry in std::fs::read_dir(named)? {
            let path = Path::new("routes").join(entry?.file_name());
            known.extend(path.to_str().and_then(Root::parse).map(|root| PathBuf::from(root.path())));
        }
    }
    // What another lies in has to be no link either.
    known.retain(|dir| dir.ancestors().all(|above| is_dir(&place.root().join(above))));
    Ok(known)
}

/// Where a project is that has no row yet.
fn unfinished(to: &ProjectPlace) -> PathBuf {
    let name = to.root().file_name().unwrap_or_default().to_string_lossy();
    to.root().with_file_name(format!("{UNFINISHED}{name}"))
}

fn take_place(part: &ProjectPlace, to: &ProjectPlace) -> Result<(), Error> {
    let flags = rustix::fs::RenameFlags::NOREPLACE;
    let taken = rustix::fs::renameat_with(rustix::fs::CWD, part.root(), rustix::fs::CWD, to.root(), flags);
    taken.map_err(|error| {
        let error = super::on_disk(to.root(), &error.into());
        let _ = remove(part.root());
        error
    })
}

fn remove(path: &Path) -> Result<(), Error> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(super::on_disk(path, &error)),
        _ => Ok(()),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Io(error.to_string()))?
}

/// After a start, before anything is made for the projects that there are: a copy that is whole, and that only had to get
/// its name, gets it. Any other is begun again by whoever wants it.
pub(super) async fn recover(inner: &Inner, projects: &[Project]) -> Result<(), Error> {
    let Some(root) = inner.projects.settings.root.clone() else { return Ok(()) };
    let ids: BTreeSet<String> = projects.iter().map(|project| project.id.to_string()).collect();
    blocking(move || {
        let Ok(entries) = std::fs::read_dir(&root) else { return Ok(()) };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(id) = name.strip_prefix(UNFINISHED) else { continue };
            let (part, there) = (ProjectPlace::at(entry.path()), ProjectPlace::at(root.join(id)));
            if ids.contains(id) && part.metadata().is_file() && there.root().symlink_metadata().is_err() {
                take_place(&part, &there)?;
            } else {
                remove(part.root())?;
            }
        }
        Ok(())
    })
    .await
}
