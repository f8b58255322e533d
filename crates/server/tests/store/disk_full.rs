//! A full disk: said as such, nothing half done, and over as soon as there is room.

use crate::rig::*;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use stead_server::store::{Page, SqliteStore, Store, StoreError};

/// A disk of two megabytes.
struct SmallDisk {
    mount: tempfile::TempDir,
}

impl SmallDisk {
    fn new() -> Self {
        let mount = tempfile::Builder::new().prefix("disk-").tempdir().unwrap();
        let mut command = Command::new("mount");
        let status = command.args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(mount.path()).status().unwrap();
        assert!(status.success(), "can't mount a tmpfs");
        Self { mount }
    }

    fn fill(&self) -> PathBuf {
        let path = self.mount.path().join("filler");
        let mut file = std::fs::File::create(&path).unwrap();
        for size in [4096, 1] {
            while file.write_all(&vec![b'x'; size]).is_ok() {}
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.mount.path()).status();
    }
}

#[tokio::test]
async fn a_full_disk_is_told_and_survived() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: a_full_disk_is_told_and_survived mounts a file system, which only root may");
        return;
    }
    let disk = SmallDisk::new();
    let path = disk.mount.path().join("stead.db");
    let store: Shared = Arc::new(SqliteStore::open(&path).await.unwrap());
    let (_, zero, _) = make_thread(&*store, "before", 1).await;
    let filler = disk.fill();

    let big = in_dir(&"x".repeat(500_000));
    let mut refusals = 0;
    for n in 0..5 {
        let refused = store.replace_terminal(&zero, &next(&zero, big.clone(), n)).await;
        assert!(matches!(refused, Err(StoreError::NoSpace)), "{refused:?}");
        refusals += 1;
    }
    assert_eq!(refusals, 5);
    assert_eq!(store.terminal(&zero.id).await.unwrap(), Some(zero.clone()), "reading goes on");
    assert_eq!(store.states(&zero.id).await.unwrap().len(), 1, "nothing is half done");

    std::fs::remove_file(filler).unwrap();
    let after = next(&zero, big, 9);
    store.replace_terminal(&zero, &after).await.unwrap();
    assert_eq!(store.terminal(&zero.id).await.unwrap(), Some(after));
    make_thread(&*store, "after", 2).await;
    drop(store);
    let again = SqliteStore::open(&path).await.unwrap();
    assert_eq!(again.threads(None, &Page::all()).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_disk_that_is_full_already_makes_no_database() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: a_disk_that_is_full_already_makes_no_database mounts a file system, which only root may");
        return;
    }
    let disk = SmallDisk::new();
    let filler = disk.fill();
    let path = disk.mount.path().join("stead.db");
    let refused = SqliteStore::open(&path).await;
    assert!(matches!(refused, Err(StoreError::NoSpace)), "{refused:?}");
    std::fs::remove_file(filler).unwrap();
    make_thread(&SqliteStore::open(&path).await.unwrap(), "a", 1).await;
}
