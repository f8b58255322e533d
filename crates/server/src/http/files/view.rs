//! Files as they are shown.

use crate::files::{Entry, Match, Matches, Skipped, Unpacked};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde::Serialize;
use utoipa::ToSchema;

/// What stands for itself in a query.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A path with every byte that could mean something else encoded.
pub(in super::super) fn encode(path: &[u8]) -> String {
    percent_encode(path, PLAIN).to_string()
}

fn unless_text(path: &[u8]) -> Option<String> {
    std::str::from_utf8(path).is_err().then(|| encode(path))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file, a directory, a link, or something else.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FileView {
    name: String,
    /// Absolute in the sandbox.
    path: String,
    /// `file`, `dir`, `symlink` or `other`.
    #[serde(rename = "type")]
    kind: &'static str,
    size: u64,
    /// Octal, of four digits.
    #[schema(example = "0644")]
    mode: String,
    #[schema(format = DateTime)]
    modified_at: String,
    /// Where a link leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// Of a plain file.
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    /// Only if `path` isn't UTF-8, and so is shown with replacements: what to send as `path=`, as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_encoded: Option<String>,
}

impl From<Entry> for FileView {
    fn from(entry: Entry) -> Self {
        Self {
            name: entry.name,
            kind: entry.kind.name(),
            size: entry.size,
            mode: format!("{:04o}", entry.mode),
            modified_at: entry.modified_at.to_string(),
            target: entry.target.as_deref().map(text),
            etag: entry.etag,
            path_encoded: unless_text(&entry.path),
            path: text(&entry.path),
        }
    }
}

/// A line that fits.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct MatchView {
    path: String,
    /// From 1.
    line: u64,
    /// Of the first byte that fits, from 1.
    column: u64,
    /// The line, at most 1000 bytes of it.
    text: String,
    /// Whether the line goes on.
    cut: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_encoded: Option<String>,
}

impl From<Match> for MatchView {
    fn from(found: Match) -> Self {
        Self {
            path_encoded: unless_text(&found.path),
            path: text(&found.path),
            line: found.line,
            column: found.column,
            text: text(&found.text),
            cut: found.cut,
        }
    }
}

/// A file that was not searched.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SkippedView {
    path: String,
    /// `binary` or `unreadable`.
    reason: &'static str,
}

impl From<Skipped> for SkippedView {
    fn from(skipped: Skipped) -> Self {
        Self { path: text(&skipped.path), reason: skipped.reason }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(in super::super) struct MatchesView {
    items: Vec<MatchView>,
    next_cursor: Option<String>,
    /// The first hundred.
    skipped: Vec<SkippedView>,
    files_skipped: u64,
    files_searched: u64,
}

impl From<Matches> for MatchesView {
    fn from(found: Matches) -> Self {
        Self {
            items: found.items.into_iter().map(Into::into).collect(),
            next_cursor: super::query::cursor(found.next),
            skipped: found.skipped.into_iter().map(Into::into).collect(),
            files_skipped: found.files_skipped,
            files_searched: found.files_searched,
        }
    }
}

/// What an archive became.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct UnpackedView {
    files: u64,
    dirs: u64,
    links: u64,
    bytes: u64,
}

impl From<Unpacked> for UnpackedView {
    fn from(unpacked: Unpacked) -> Self {
        let Unpacked { files, dirs, links, bytes } = unpacked;
        Self { files, dirs, links, bytes }
    }
}
