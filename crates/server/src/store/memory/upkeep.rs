//! What keeping and removing needs.

use super::{MemoryStore, Tables, conflict, exists, missing, page};
use crate::store::upkeep::{Telling, Upkeep};
use crate::store::{Page, Result, StoreError};
use async_trait::async_trait;
use std::collections::BTreeMap;
use stead_model::clock::Timestamp;
use stead_model::ids::{EventId, ProjectId, SnapshotId, ThreadId};
use stead_model::notice::{Subject, Told};
use stead_model::project::Project;
use stead_model::retention::Retention;
use stead_model::snapshot::Snapshot;

#[derive(Debug, Default)]
pub(super) struct UpkeepTables {
    last_seq: u64,
    notices: BTreeMap<u64, Told>,
    threads: BTreeMap<ThreadId, Retention>,
    snapshots: BTreeMap<SnapshotId, Snapshot>,
    cleanup: Option<Timestamp>,
}

impl Tables {
    fn tell(&mut self, told: Telling<'_>) -> Result<()> {
        let (upkeep, notice) = (&mut self.upkeep, told.notice);
        if upkeep.notices.values().any(|told| told.notice.id == notice.id) {
            return exists("notice", &notice.id);
        }
        upkeep.last_seq += 1;
        let next_at = told.outside.then_some(notice.at);
        let told = Told { seq: upkeep.last_seq, notice: notice.clone(), attempts: 0, next_at };
        upkeep.notices.insert(upkeep.last_seq, told);
        Ok(())
    }

    fn kept(&self, id: &ThreadId) -> Option<Retention> {
        let thread = self.threads.get(id)?;
        let kept = self.upkeep.threads.get(id).filter(|kept| kept.last_accessed_at >= thread.last_active_at)?;
        let at = thread.last_active_at;
        Some(Retention { last_accessed_at: at, expires_at: at, keep_days: 0, ..kept.clone() })
    }
}

#[async_trait]
impl Upkeep for MemoryStore {
    async fn keep_project(
        &self,
        before: &Project,
        after: &Project,
        told: Option<Telling<'_>>,
        most: u32,
    ) -> Result<()> {
        self.with(|tables| {
            let kept = tables.projects.values().filter(|project| project.retention.trashed_at.is_none()).count();
            let returns = before.retention.trashed_at.is_some() && after.retention.trashed_at.is_none();
            if returns && kept >= most as usize {
                return Err(StoreError::Limit { kind: "project", most });
            }
            tables.replace_project(before, after)?;
            told.map_or(Ok(()), |told| tables.tell(told))
        })
        .await
    }

    async fn purge_project(&self, id: &ProjectId, told: Telling<'_>) -> Result<()> {
        self.with(|tables| {
            tables.projects.remove(id);
            tables.upkeep.snapshots.retain(|_, snapshot| snapshot.project != *id);
            tables.tell(told)
        })
        .await
    }

    async fn kept_thread(&self, id: &ThreadId) -> Result<Option<Retention>> {
        self.with(|tables| Ok(tables.kept(id))).await
    }

    async fn kept_threads(&self) -> Result<Vec<(ThreadId, Retention)>> {
        self.with(|tables| {
            let ids = tables.upkeep.threads.keys();
            Ok(ids.filter_map(|id| Some((id.clone(), tables.kept(id)?))).collect())
        })
        .await
    }

    async fn keep_thread(&self, id: &ThreadId, kept: &Retention, told: Option<Telling<'_>>) -> Result<()> {
        self.with(|tables| {
            let Some(thread) = tables.threads.get(id) else { return missing("thread", id) };
            if thread.last_active_at > kept.last_accessed_at {
                return conflict("thread", id);
            }
            tables.upkeep.threads.insert(id.clone(), kept.clone());
            told.map_or(Ok(()), |told| tables.tell(told))
        })
        .await
    }

    async fn tell(&self, told: Telling<'_>) -> Result<()> {
        self.with(|tables| tables.tell(told)).await
    }

    async fn notices(&self, of: Option<&Subject>, after: u64, limit: u32) -> Result<Vec<Told>> {
        self.with(|tables| {
            let behind = tables.upkeep.notices.range(after.saturating_add(1)..).map(|(_, told)| told);
            let wanted = behind.filter(|told| of.is_none_or(|of| told.notice.subject == *of));
            Ok(wanted.take(limit as usize).cloned().collect())
        })
        .await
    }

    async fn untold(&self, now: Timestamp, limit: u32) -> Result<Vec<Told>> {
        self.with(|tables| {
            let due = tables.upkeep.notices.values().filter(|told| told.next_at.is_some_and(|next| next <= now));
            let mut due: Vec<Told> = due.cloned().collect();
            due.sort_by_key(|told| (told.next_at, told.seq));
            due.truncate(limit as usize);
            Ok(due)
        })
        .await
    }

    async fn next_untold(&self) -> Result<Option<Timestamp>> {
        self.with(|tables| Ok(tables.upkeep.notices.values().filter_map(|told| told.next_at).min())).await
    }

    async fn tried(&self, id: &EventId, attempts: u32, next_at: Option<Timestamp>) -> Result<()> {
        self.with(|tables| {
            for told in tables.upkeep.notices.values_mut().filter(|told| told.notice.id == *id) {
                (told.attempts, told.next_at) = (attempts, next_at);
            }
            Ok(())
        })
        .await
    }

    async fn forget_notices(&self, before: Timestamp) -> Result<u64> {
        self.with(|tables| {
            let many = tables.upkeep.notices.len();
            tables.upkeep.notices.retain(|_, told| told.notice.at >= before || told.next_at.is_some());
            Ok((many - tables.upkeep.notices.len()) as u64)
        })
        .await
    }

    async fn last_cleanup(&self) -> Result<Option<Timestamp>> {
        self.with(|tables| Ok(tables.upkeep.cleanup)).await
    }

    async fn cleaned_up(&self, at: Timestamp) -> Result<()> {
        self.with(|tables| {
            tables.upkeep.cleanup = Some(at);
            Ok(())
        })
        .await
    }

    async fn put_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        self.with(|tables| {
            if !tables.projects.contains_key(&snapshot.project) {
                return missing("project", &snapshot.project);
            }
            if tables.upkeep.snapshots.contains_key(&snapshot.id) {
                return exists("snapshot", &snapshot.id);
            }
            tables.upkeep.snapshots.insert(snapshot.id.clone(), snapshot.clone());
            Ok(())
        })
        .await
    }

    async fn snapshot(&self, id: &SnapshotId) -> Result<Option<Snapshot>> {
        self.with(|tables| Ok(tables.upkeep.snapshots.get(id).cloned())).await
    }

    async fn snapshots(&self, project: Option<&ProjectId>, at: &Page) -> Result<Vec<Snapshot>> {
        self.with(|tables| {
            let all = tables.upkeep.snapshots.values();
            let wanted = all.filter(|snapshot| project.is_none_or(|project| snapshot.project == *project));
            Ok(page(wanted, |snapshot| (snapshot.created_at, snapshot.id.as_str()), at))
        })
        .await
    }

    async fn delete_snapshot(&self, id: &SnapshotId) -> Result<()> {
        self.with(|tables| {
            tables.upkeep.snapshots.remove(id);
            Ok(())
        })
        .await
    }
}
