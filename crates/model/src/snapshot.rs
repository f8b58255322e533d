//! The files of a project as they were at one moment.

use crate::clock::Timestamp;
use crate::ids::{ProjectId, SnapshotId};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub id: SnapshotId,
    pub project: ProjectId,
    pub description: String,
    /// SHA-256 of the archive in hexadecimal digits. Its file is called so: the same files at two moments are stored once.
    pub digest: String,
    /// Of the archive.
    pub bytes: u64,
    /// Of what is in it.
    pub tree_bytes: u64,
    pub files: u64,
    pub created_at: Timestamp,
    /// Absent: it goes with its project.
    pub expires_at: Option<Timestamp>,
}

impl Snapshot {
    /// Whether its time is over.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}
