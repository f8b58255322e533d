//! After a start: what a server that was killed left of a snapshot, of a restore, or of a project that was being made from
//! a snapshot, is removed.

use super::super::{Inner, projects, trash};
use super::sweep;
use crate::error::Error;
use crate::files::sweep_stages;
use crate::store::Page;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use stead_model::ids::ProjectId;
use stead_model::project::Filter;

/// A file of this name, with the id behind it, lies beside the projects as long as one is made from a snapshot.
const UNFINISHED: &str = ".making-";
/// How long a start waits until trees are removed that nobody needs. Removing a large one goes on behind it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Notes that a project is being made. Its row follows.
pub(super) fn mark_unfinished(root: &Path, id: &ProjectId) -> Result<(), Error> {
    let path = root.join(format!("{UNFINISHED}{id}"));
    std::fs::write(&path, "").map_err(|error| projects::on_disk(&path, &error))
}

/// It is made, or removed.
pub(super) fn clear_unfinished(root: &Path, id: &ProjectId) -> Result<(), Error> {
    let path = root.join(format!("{UNFINISHED}{id}"));
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(projects::on_disk(&path, &error)),
        _ => Ok(()),
    }
}

pub(in super::super) async fn recover(inner: &Arc<Inner>) -> Result<(), Error> {
    let Some(root) = inner.projects.settings.root.clone() else { return Ok(()) };
    for id in unfinished(&root)? {
        // One that is not in the trash was made, and only the note is left.
        let row = inner.core.store.project(&id).await?;
        if row.is_some_and(|project| project.retention.trashed_at.is_some()) {
            trash::discard(inner, &id).await?;
        }
        clear_unfinished(&root, &id)?;
    }
    sweep(inner).await?;
    let (dirs, stop) = (stage_dirs(inner, root).await?, inner.core.hang_up.clone());
    let sweeping = inner.core.tasks.spawn_blocking(move || {
        for dir in dirs {
            if let Err(error) = sweep_stages(&dir, &stop) {
                tracing::warn!(%error, dir = %dir.display(), "what was being unpacked there can't be removed");
            }
        }
    });
    let _ = tokio::time::timeout(PATIENCE, sweeping).await;
    Ok(())
}

fn unfinished(root: &Path) -> Result<Vec<ProjectId>, Error> {
    let entries = match std::fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| projects::on_disk(root, &error))?,
    };
    let name = |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
    let id = |name: String| ProjectId::parse(name.strip_prefix(UNFINISHED)?).ok();
    Ok(entries.filter_map(name).filter_map(id).collect())
}

/// Where trees are unpacked: beside the projects, and beside the workspaces.
async fn stage_dirs(inner: &Inner, root: PathBuf) -> Result<BTreeSet<PathBuf>, Error> {
    let mut dirs = BTreeSet::from([root]);
    for project in inner.core.store.projects(&Filter::default(), &Page::all()).await? {
        dirs.extend(trash::directories(inner, &project.id));
    }
    for lease in inner.core.store.leases(None, &Page::all()).await? {
        let provider = inner.core.providers.get(&lease.provider);
        let lasting = provider.and_then(|provider| provider.lasting(&lease.workspace));
        let trees = lasting.into_iter().flat_map(|lasting| [Some(lasting.files), lasting.home]).flatten();
        dirs.extend(trees.filter_map(|tree| tree.parent().map(Path::to_owned)));
    }
    Ok(dirs)
}
