//! Snapshots: the files of a project as one archive, tar in zstd.
//!
//! ```text
//! PROJECTS/P ─► tar ─► zstd ─► SNAPSHOTS/.new-N, hashed on the way ─► SNAPSHOTS/<sha256>.tar.zst ─► row
//! row ─► file, hashed again ─► a tree beside PROJECTS/P ─► exchanged with it in one step ─► the old tree removed
//! ```
//!
//! An archive is called by its hash, and the same tree gives the same bytes: a project that hasn't changed takes no more
//! room for its next snapshot. An archive without a row is what a server left that died, and is removed at the next start.
//! Not in it: the logs of sessions, and what is only there for a moment. Whatever was packed can be unpacked: there is no
//! bound of size or number that an archive of ours has to keep. A server that stops gives both up.

mod recover;

use super::upkeep::Mode;
use super::{Inner, List, Listed, Stead, projects, trash};
use crate::clock::fresh_digits;
use crate::error::Error;
use crate::files::{Replacement, Unpacked, pack_dir};
use crate::lease::Force;
use crate::stoppable::Stoppable;
use crate::store::Page;
pub(super) use recover::recover;
use recover::{clear_unfinished, mark_unfinished};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use stead_model::clock::Timestamp;
use stead_model::ids::{ProjectId, SnapshotId};
use stead_model::project::{Draft, Project};
use stead_model::proto::{Fault, FaultCode};
use stead_model::snapshot::Snapshot;
use tokio_util::sync::CancellationToken;

/// Fast, and small enough.
const LEVEL: i32 = 3;
/// What is in a project's directory and not in its snapshots.
const LEFT_OUT: [&str; 4] = [".logs", "tmp", ".project_metadata.json", ".sight"];
const NEW: &str = ".new-";
const END: &str = ".tar.zst";

/// How long a snapshot stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ttl {
    /// As configured.
    Usual,
    For(Duration),
}

impl Stead {
    pub async fn snapshot_project(&self, id: &ProjectId, description: String, ttl: Ttl) -> Result<Snapshot, Error> {
        let (inner, id) = (Arc::clone(&self.inner), id.clone());
        let work = async move { create(&inner, &id, description, ttl).await };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }

    /// Newest first.
    pub async fn list_snapshots(&self, id: &ProjectId, list: &List) -> Result<Listed<Snapshot>, Error> {
        projects::get(&self.inner, id).await?;
        let (page, limit) = list.page("snapshots")?;
        let found = self.inner.core.store.snapshots(Some(id), &page).await?;
        let place = |snapshot: &Snapshot| super::lists::thing(snapshot.created_at, &snapshot.id);
        let mut listed = Listed::cut(found, limit, "snapshots", place);
        let now = self.inner.core.now();
        listed.items.retain(|snapshot| !snapshot.is_over(now));
        Ok(listed)
    }

    pub async fn snapshot(&self, id: &SnapshotId) -> Result<Snapshot, Error> {
        get(&self.inner, id).await
    }

    /// The project has the files of a snapshot again, and what it had is gone. Refused while somebody works in it, unless
    /// forced; whatever runs then is ended.
    pub async fn restore_snapshot(&self, project: &ProjectId, id: &SnapshotId, force: Force) -> Result<Project, Error> {
        let (inner, project, id) = (Arc::clone(&self.inner), project.clone(), id.clone());
        let work = async move { restore(&inner, &project, &id, force).await };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }

    pub async fn delete_snapshot(&self, project: &ProjectId, id: &SnapshotId) -> Result<(), Error> {
        // Also one whose time is over.
        let snapshot = self.inner.core.store.snapshot(id).await?;
        if snapshot.is_none_or(|snapshot| snapshot.project != *project) {
            return Err(unknown(id));
        }
        self.inner.core.store.delete_snapshot(id).await?;
        sweep(&self.inner).await
    }

    /// A new project with the files of a snapshot. It lies in the trash until it has them, with a note that it is being
    /// made: what a server leaves that dies meanwhile is removed by the next one.
    pub async fn create_project_from(&self, draft: Draft, snapshot: &SnapshotId) -> Result<Project, Error> {
        if draft.config.repo_url.is_some() {
            let message = "a project begins with a repository or with a snapshot, not with both";
            return Err(Error::Invalid(message.to_owned()));
        }
        let snapshot = get(&self.inner, snapshot).await?;
        let inner = Arc::clone(&self.inner);
        let work = async move { create_from(&inner, draft, &snapshot).await };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }
}

async fn create_from(inner: &Arc<Inner>, draft: Draft, snapshot: &Snapshot) -> Result<Project, Error> {
    let now = inner.core.now();
    let root = projects_root(inner)?;
    let prepare = |project: &mut Project| {
        project.retention.trashed_at = Some(now);
        mark_unfinished(&root, &project.id)
    };
    let project = projects::insert(inner, draft, None, prepare).await?;
    let yard = inner.yard(&project.id);
    let _alone = yard.lock().await;
    let filled = async {
        projects::settle(inner, &project).await?;
        replace(inner, &project.id, snapshot).await?;
        let mut after = project.clone();
        after.version += 1;
        after.retention.trashed_at = None;
        inner.core.store.keep_project(&project, &after, None, inner.projects.settings.most).await?;
        projects::mirror(inner, &after).await;
        Ok(after)
    };
    let filled: Result<Project, Error> = filled.await;
    if filled.is_err() {
        trash::discard(inner, &project.id).await?;
    }
    if let Err(error) = clear_unfinished(&root, &project.id) {
        tracing::warn!(%error, project = %project.id, "the note that it is being made is left for the next start");
    }
    filled
}

/// One that there is. Its files go with the next round; whoever asks for it is told as soon as its time is over.
async fn get(inner: &Inner, id: &SnapshotId) -> Result<Snapshot, Error> {
    let snapshot = inner.core.store.snapshot(id).await?;
    let snapshot = snapshot.ok_or_else(|| unknown(id))?;
    if snapshot.is_over(inner.core.now()) {
        return Err(Error::Gone(format!("the time of snapshot `{id}` is over")));
    }
    Ok(snapshot)
}

fn unknown(id: &SnapshotId) -> Error {
    Error::NotFound { kind: "snapshot", id: id.to_string() }
}

/// One of this project's.
async fn of(inner: &Inner, project: &ProjectId, id: &SnapshotId) -> Result<Snapshot, Error> {
    let snapshot = get(inner, id).await?;
    if snapshot.project != *project {
        return Err(unknown(id));
    }
    Ok(snapshot)
}

fn projects_root(inner: &Inner) -> Result<PathBuf, Error> {
    let root = inner.projects.settings.root.clone();
    root.ok_or_else(|| Error::Unsupported("this server keeps no files".to_owned()))
}

/// Where archives are.
fn store(inner: &Inner) -> Result<PathBuf, Error> {
    Ok(projects_root(inner)?.with_file_name("snapshots"))
}

fn there(inner: &Inner, id: &ProjectId) -> Result<PathBuf, Error> {
    let place =
        projects::place(inner, id).ok_or_else(|| Error::Unsupported("this server keeps no files".to_owned()))?;
    Ok(place.root().to_owned())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Io(error.to_string()))?
}

async fn create(inner: &Arc<Inner>, id: &ProjectId, description: String, ttl: Ttl) -> Result<Snapshot, Error> {
    let yard = inner.yard(id);
    let _alone = yard.lock().await;
    // Nobody sweeps while there is an archive that has no row yet.
    let _archives = inner.archives.lock().await;
    trash::kept(&projects::get(inner, id).await?)?;
    refuse_while_cloning(inner, id)?;
    let (from, store) = (there(inner, id)?, store(inner)?);
    // Hot memory is whole in its directory, and stays so while it is read.
    inner.memories.snapshot(id).await?;
    let hot = inner.hot_of(id).await?;
    let now = inner.core.now();
    let stop = inner.core.hang_up.clone();
    let saved = blocking(move || hot.undisturbed(|| save(&from, &store, &stop))).await?;
    let ttl = match ttl {
        Ttl::Usual => inner.upkeep.snapshot_ttl,
        Ttl::For(ttl) => Some(ttl),
    };
    let snapshot = Snapshot {
        id: SnapshotId::made_of(inner.core.entropy()),
        project: id.clone(),
        description,
        digest: saved.digest,
        bytes: saved.bytes,
        tree_bytes: saved.packed.bytes,
        files: saved.packed.files,
        created_at: now,
        expires_at: ttl.map(|ttl| now.after(ttl)),
    };
    inner.core.store.put_snapshot(&snapshot).await?;
    tracing::info!(project = %id, snapshot = %snapshot.id, bytes = snapshot.bytes, "snapshot taken");
    Ok(snapshot)
}

async fn restore(inner: &Arc<Inner>, project: &ProjectId, id: &SnapshotId, force: Force) -> Result<Project, Error> {
    let yard = inner.yard(project);
    let _alone = yard.lock().await;
    trash::kept(&projects::get(inner, project).await?)?;
    refuse_while_cloning(inner, project)?;
    let snapshot = of(inner, project, id).await?;
    if force == Force::No
        && let Some(command) = trash::running(inner, project).await?
    {
        return Err(Error::Conflict(format!("command `{command}` runs in project `{project}`")));
    }
    // Shells stand in the old tree: the next command gets one in the new, and none is made before that is there.
    let exchange = projects::Exchange::begin(inner, project);
    trash::quiet(inner, project).await?;
    // What is in RAM is that of the files that are there now: nobody writes to it, nor reads it in, until the others are.
    let shut = inner.memories.shut(project).await;
    replace(inner, project, &snapshot).await?;
    drop(shut);
    drop(exchange);
    inner.projects.usage.forget(project);
    projects::used_without_need(inner, project).await?;
    tracing::info!(%project, snapshot = %id, "snapshot restored");
    projects::get(inner, project).await
}

fn refuse_while_cloning(inner: &Inner, id: &ProjectId) -> Result<(), Error> {
    if inner.projects.clones.is_on_its_way(id) {
        return Err(Error::Conflict(format!("the repository of project `{id}` is on its way; wait until it is there")));
    }
    Ok(())
}

async fn replace(inner: &Arc<Inner>, project: &ProjectId, snapshot: &Snapshot) -> Result<(), Error> {
    let (to, archive) = (there(inner, project)?, store(inner)?.join(format!("{}{END}", snapshot.digest)));
    let (digest, stop) = (snapshot.digest.clone(), inner.core.hang_up.clone());
    blocking(move || load(&archive, &digest, &to, &stop)).await.map(drop)
}

/// Removes those whose time is over; which those are.
pub(super) async fn expire(inner: &Arc<Inner>, mode: Mode, now: Timestamp) -> Result<Vec<SnapshotId>, Error> {
    let all = inner.core.store.snapshots(None, &Page::all()).await?;
    let over = all.into_iter().filter(|snapshot| snapshot.is_over(now));
    let over: Vec<SnapshotId> = over.map(|snapshot| snapshot.id).collect();
    if mode == Mode::Really {
        for id in &over {
            inner.core.store.delete_snapshot(id).await?;
            tracing::info!(snapshot = %id, "snapshot expired");
        }
        sweep(inner).await?;
    }
    Ok(over)
}

/// Removes archives that no row names.
pub(super) async fn sweep(inner: &Arc<Inner>) -> Result<(), Error> {
    let Ok(store) = store(inner) else { return Ok(()) };
    let _archives = inner.archives.lock().await;
    let all = inner.core.store.snapshots(None, &Page::all()).await?;
    let named: HashSet<String> = all.into_iter().map(|snapshot| format!("{}{END}", snapshot.digest)).collect();
    let work = move || {
        let entries = match std::fs::read_dir(&store) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|error| projects::on_disk(&store, &error))?,
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if (name.starts_with(NEW) || name.ends_with(END)) && !named.contains(&name) {
                let path = entry.path();
                std::fs::remove_file(&path).map_err(|error| projects::on_disk(&path, &error))?;
            }
        }
        Ok(())
    };
    blocking(work).await
}

struct Saved {
    digest: String,
    bytes: u64,
    packed: Unpacked,
}

/// Counts and hashes what passes.
struct Hashed<T> {
    inner: T,
    hash: Sha256,
    bytes: u64,
}

impl<T> Hashed<T> {
    fn new(inner: T) -> Self {
        Self { inner, hash: Sha256::new(), bytes: 0 }
    }

    fn digest(self) -> (String, u64) {
        let mut text = String::new();
        for byte in self.hash.finalize() {
            let _ = write!(text, "{byte:02x}");
        }
        (text, self.bytes)
    }
}

impl<T: Write> Write for Hashed<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hash.update(bytes.get(..count).unwrap_or_default());
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A file that is brought to the disk while it grows, so that nobody waits long for its end.
struct SyncedFile {
    file: File,
    unsynced: u64,
}

/// As much as waits to be brought to the disk.
const MOST_UNSYNCED: u64 = 64 << 20;

impl Write for SyncedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.unsynced += count as u64;
        if self.unsynced >= MOST_UNSYNCED {
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Packs a project's directory into the store of archives.
fn save(from: &Path, store: &Path, stop: &CancellationToken) -> Result<Saved, Error> {
    let failed = |error: io::Error| projects::on_disk(store, &error);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(store).map_err(failed)?;
    let new = store.join(format!("{NEW}{}", fresh_digits()));
    let saved = write_archive(from, &new, stop).and_then(|saved| {
        let name = store.join(format!("{}{END}", saved.digest));
        std::fs::rename(&new, name).map_err(failed)?;
        Ok(saved)
    });
    if saved.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    saved
}

fn write_archive(from: &Path, new: &Path, stop: &CancellationToken) -> Result<Saved, Error> {
    let failed = |error: io::Error| projects::on_disk(new, &error);
    let file = File::options().write(true).create_new(true).mode(0o600).open(new).map_err(failed)?;
    let mut encoder = zstd::Encoder::new(Hashed::new(SyncedFile { file, unsynced: 0 }), LEVEL).map_err(failed)?;
    encoder.include_checksum(true).map_err(failed)?;
    let packed = pack_dir(from, &LEFT_OUT, &mut encoder, stop)?;
    let hashed = encoder.finish().map_err(failed)?;
    hashed.inner.file.sync_all().map_err(failed)?;
    let (digest, bytes) = hashed.digest();
    Ok(Saved { digest, bytes, packed })
}

/// Puts an archive in the place of a project's directory, if it is the archive that was written.
fn load(archive: &Path, digest: &str, to: &Path, stop: &CancellationToken) -> Result<Unpacked, Error> {
    let failed = |error: io::Error| {
        if error.kind() == io::ErrorKind::NotFound {
            return Error::Gone("the archive of this snapshot is not there any more".to_owned());
        }
        projects::on_disk(archive, &error)
    };
    let mut file = File::open(archive).map_err(failed)?;
    let mut hashed = Hashed::new(io::sink());
    io::copy(&mut Stoppable::new(&file, stop.clone()), &mut hashed).map_err(failed)?;
    if hashed.digest().0 != digest {
        // Trying again is of no use.
        let message = "the archive of this snapshot is damaged: its checksum is another";
        let message = format!("{message} (`{}`)", archive.display());
        return Err(Error::Refused(Fault::new(FaultCode::Damaged, message)));
    }
    io::Seek::rewind(&mut file).map_err(failed)?;
    let decoder = zstd::Decoder::with_buffer(BufReader::new(file)).map_err(failed)?;
    unpack(decoder, to, stop)
}

fn unpack(archive: impl Read + 'static, to: &Path, stop: &CancellationToken) -> Result<Unpacked, Error> {
    let (Some(above), Some(name)) = (to.parent(), to.file_name().and_then(|name| name.to_str())) else {
        return Err(Error::Io(format!("`{}` is no place for a project", to.display())));
    };
    let mode = std::fs::symlink_metadata(to).map_err(|error| projects::on_disk(to, &error))?.mode() & 0o777;
    let tree = Replacement::build(above, archive, stop.clone())?;
    for left_out in LEFT_OUT {
        tree.without(left_out)?;
        if left_out != "tmp" {
            tree.keep(to, left_out)?;
        }
    }
    for dir in ["repo", "home", ".memories", ".logs", "tmp"] {
        tree.ensure(dir, 0o700)?;
    }
    tree.take_place(name, mode)
}

#[cfg(test)]
mod tests;
