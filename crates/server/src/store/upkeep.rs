//! The part of the store that keeping and removing needs. What is said of something is written together with the change
//! that it tells of.

use super::{Page, Result};
use async_trait::async_trait;
use stead_model::clock::Timestamp;
use stead_model::ids::{EventId, ProjectId, SnapshotId, ThreadId};
use stead_model::notice::{Notice, Subject, Told};
use stead_model::project::Project;
use stead_model::retention::Retention;
use stead_model::snapshot::Snapshot;

/// What is to be told, and whether there is somebody outside who wants to hear it.
#[derive(Debug, Clone, Copy)]
pub struct Telling<'a> {
    pub notice: &'a Notice,
    pub outside: bool,
}

#[async_trait]
pub trait Upkeep: Send + Sync {
    /// [`super::Store::replace_project`] with what is told of it, in one transaction. `Limit` if it comes out of the
    /// trash and there are `most` outside already.
    async fn keep_project(&self, before: &Project, after: &Project, told: Option<Telling<'_>>, most: u32)
    -> Result<()>;
    /// [`super::Store::delete_project`] with what is told of it, and its snapshots' rows.
    async fn purge_project(&self, id: &ProjectId, told: Telling<'_>) -> Result<()>;

    /// What was said of a thread that stands alone, if anything was since it was last active. When it expires is not
    /// stored: that follows from when it was active.
    async fn kept_thread(&self, id: &ThreadId) -> Result<Option<Retention>>;
    /// All of them.
    async fn kept_threads(&self) -> Result<Vec<(ThreadId, Retention)>>;
    /// `Conflict` (kind `thread`) if it has been active after `kept.last_accessed_at`, `NotFound` if it is gone.
    async fn keep_thread(&self, id: &ThreadId, kept: &Retention, told: Option<Telling<'_>>) -> Result<()>;
    /// Something said of what is gone, or of nothing that is kept here.
    async fn tell(&self, told: Telling<'_>) -> Result<()>;

    /// Oldest first, behind a number.
    async fn notices(&self, of: Option<&Subject>, after: u64, limit: u32) -> Result<Vec<Told>>;
    /// Those whose time to be told outside has come, the oldest first.
    async fn untold(&self, now: Timestamp, limit: u32) -> Result<Vec<Told>>;
    /// When the next one's time comes.
    async fn next_untold(&self) -> Result<Option<Timestamp>>;
    async fn tried(&self, id: &EventId, attempts: u32, next_at: Option<Timestamp>) -> Result<()>;
    /// Those from before, unless they are still to be told.
    async fn forget_notices(&self, before: Timestamp) -> Result<u64>;

    /// When projects were last looked through.
    async fn last_cleanup(&self) -> Result<Option<Timestamp>>;
    async fn cleaned_up(&self, at: Timestamp) -> Result<()>;

    /// `NotFound` (kind `project`) if there is no such project.
    async fn put_snapshot(&self, snapshot: &Snapshot) -> Result<()>;
    async fn snapshot(&self, id: &SnapshotId) -> Result<Option<Snapshot>>;
    /// Newest first.
    async fn snapshots(&self, project: Option<&ProjectId>, page: &Page) -> Result<Vec<Snapshot>>;
    /// Deleting what isn't there is fine.
    async fn delete_snapshot(&self, id: &SnapshotId) -> Result<()>;
}
