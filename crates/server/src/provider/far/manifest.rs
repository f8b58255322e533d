//! What was the same on both sides when we last looked: by it a change on either side is seen, and told from the other's.
//! Pure, but for its file.

use minicbor::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use stead_model::carry::{Entry, Kind, Stamp};
use stead_model::state::Bytes;

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(super) struct Row {
    #[n(0)]
    pub(super) kind: Kind,
    #[n(1)]
    pub(super) mode: u32,
    #[n(2)]
    pub(super) there: Stamp,
    #[n(3)]
    pub(super) here: Stamp,
    #[n(4)]
    pub(super) target: Option<Bytes>,
}

#[derive(Debug, Default)]
pub(super) struct Manifest {
    path: PathBuf,
    rows: BTreeMap<Bytes, Row>,
}

/// What one side has and the other has not yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    /// Directories before what is in them.
    pub(super) changed: Vec<Entry>,
    /// What is below a directory before it.
    pub(super) removed: Vec<Bytes>,
}

/// Whose list it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    There,
    Here,
}

impl Manifest {
    /// The one of an instance; one that is missing or damaged knows nothing.
    pub(super) fn open(lease: &Path, instance: &str) -> Self {
        let path = lease.join(format!("{instance}.files"));
        let rows = std::fs::read(&path).ok().and_then(|bytes| minicbor::decode(&bytes).ok());
        Self { path, rows: rows.unwrap_or_default() }
    }

    pub(super) fn save(&self) -> io::Result<()> {
        stead_steward::dir::write_atomically(&self.path, &minicbor::to_vec(&self.rows).unwrap_or_default())
    }

    pub(super) fn forget(&mut self, path: &Bytes) {
        self.rows.remove(path);
    }

    pub(super) fn note(&mut self, entry: &Entry, there: Stamp, here: Stamp) {
        let row = Row { kind: entry.kind, mode: entry.mode, there, here, target: entry.target.clone() };
        self.rows.insert(entry.path.clone(), row);
    }

    /// What has changed on a side since it was noted.
    pub(super) fn difference(&self, side: Side, entries: Vec<Entry>) -> Difference {
        let seen: BTreeSet<Bytes> = entries.iter().map(|entry| entry.path.clone()).collect();
        let mut changed: Vec<_> = entries.into_iter().filter(|entry| !self.has(side, entry)).collect();
        changed.sort_by(|one, other| one.path.cmp(&other.path));
        let removed = self.rows.keys().rev().filter(|path| !seen.contains(*path)).cloned().collect();
        Difference { changed, removed }
    }

    fn has(&self, side: Side, entry: &Entry) -> bool {
        let Some(row) = self.rows.get(&entry.path).filter(|row| row.kind == entry.kind) else { return false };
        let known = match side {
            Side::There => row.there,
            Side::Here => row.here,
        };
        match entry.kind {
            // We keep the right to work in a directory, whatever its mode is over there.
            Kind::Dir => row.mode & 0o777 | 0o700 == entry.mode & 0o777 | 0o700,
            Kind::Link => row.target == entry.target,
            Kind::File => known == entry.stamp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, changed: i64) -> Entry {
        let stamp = Stamp { inode: 1, size: 1, modified: 1, changed };
        Entry { path: path.into(), kind: Kind::File, mode: 0o644, stamp, target: None }
    }

    fn dir(path: &str) -> Entry {
        Entry { kind: Kind::Dir, mode: 0o755, ..file(path, 0) }
    }

    #[test]
    fn each_side_is_compared_with_what_was_noted_of_it() {
        let mut manifest = Manifest::default();
        for entry in [dir("/w/d"), file("/w/d/a", 1), file("/w/b", 1)] {
            manifest.note(&entry, entry.stamp, Stamp { changed: 9, ..entry.stamp });
        }
        let same = vec![dir("/w/d"), file("/w/d/a", 1), file("/w/b", 1)];
        assert_eq!(manifest.difference(Side::There, same), Difference::default());
        let here = vec![dir("/w/d"), file("/w/d/a", 9), file("/w/b", 9)];
        assert_eq!(manifest.difference(Side::Here, here), Difference::default());
        let other = vec![file("/w/new", 1), file("/w/b", 2)];
        let difference = manifest.difference(Side::There, other);
        assert_eq!(difference.changed, [file("/w/b", 2), file("/w/new", 1)]);
        assert_eq!(difference.removed, [Bytes::from("/w/d/a"), Bytes::from("/w/d")]);
    }

    #[test]
    fn a_file_that_became_a_directory_has_changed() {
        let mut manifest = Manifest::default();
        manifest.note(&file("/w/x", 1), file("/w/x", 1).stamp, Stamp::default());
        assert_eq!(manifest.difference(Side::There, vec![dir("/w/x")]).changed, [dir("/w/x")]);
    }

    #[test]
    fn what_was_saved_is_read_back_and_damage_is_no_knowledge() {
        let place = tempfile::tempdir().unwrap();
        let mut manifest = Manifest::open(place.path(), "inst-1");
        manifest.note(&file("/w/x", 1), Stamp::default(), Stamp::default());
        manifest.save().unwrap();
        assert_eq!(Manifest::open(place.path(), "inst-1").rows, manifest.rows);
        std::fs::write(place.path().join("inst-1.files"), b"\xff\x00").unwrap();
        assert!(Manifest::open(place.path(), "inst-1").rows.is_empty());
    }
}
