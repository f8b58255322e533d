//! Files of a project as they are shown.

use super::super::super::files::encode;
use crate::memory::HotStatus;
use crate::space::Item;
use serde::Serialize;
use utoipa::ToSchema;

/// A file, a directory, a link, or something else; wherever it is kept.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ItemView {
    name: String,
    /// From the root of the routes.
    path: String,
    /// `file`, `dir`, `symlink` or `other`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// Of a plain file.
    size: Option<u64>,
    /// Null of what leads to routes.
    #[schema(format = DateTime)]
    modified_at: Option<String>,
    /// Where a link leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// Of a plain file.
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    /// Only if `path` isn't UTF-8, and so is shown with replacements.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_encoded: Option<String>,
}

impl From<Item> for ItemView {
    fn from(item: Item) -> Self {
        let path = item.path();
        Self {
            name: String::from_utf8_lossy(item.name()).into_owned(),
            kind: item.kind.name(),
            size: item.size,
            modified_at: item.modified_at.map(|at| at.to_string()),
            target: item.target.map(|target| String::from_utf8_lossy(&target).into_owned()),
            etag: item.etag,
            path_encoded: std::str::from_utf8(&path).is_err().then(|| encode(&path)),
            path: String::from_utf8_lossy(&path).into_owned(),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EditedView {
    pub(super) replaced: u64,
    pub(super) file: ItemView,
}

/// The hot memory of a project.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct MemoryView {
    entries: u64,
    /// What it takes in RAM, about.
    bytes: u64,
    limit_bytes: u64,
    /// Written since the last snapshot.
    journal_bytes: u64,
    /// Null if there was none yet.
    #[schema(format = DateTime)]
    snapshot_at: Option<String>,
    /// What was found damaged when it was read, and snapshots that failed.
    warnings: Vec<String>,
}

impl From<HotStatus> for MemoryView {
    fn from(status: HotStatus) -> Self {
        Self {
            entries: status.entries,
            bytes: status.bytes,
            limit_bytes: status.limit,
            journal_bytes: status.journal_bytes,
            snapshot_at: status.snapshot_at.map(|at| at.to_string()),
            warnings: status.warnings,
        }
    }
}
