//! Removes what servers that died were unpacking, or had not removed yet. A stage that somebody works in is locked.

use super::super::change::remove_below_while;
use super::super::failure::Failure;
use super::super::spot::beneath;
use super::stage::STAGE_PREFIX;
use crate::error::Error;
use rustix::fs::{Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

/// Held from before a stage is made until it is locked, and while it is found out whether one is: between the two steps it
/// looks like one that a dead server left. It is this process's own, for a data directory has one server, and whoever is in
/// a sandbox could hold a lock on a directory that it sees for ever.
static NOT_YET_LOCKED: Mutex<()> = Mutex::new(());

pub(super) fn not_yet_locked() -> MutexGuard<'static, ()> {
    NOT_YET_LOCKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sweeps a directory in which trees are unpacked, if there is one.
pub(crate) fn sweep_stages(dir: &Path, stop: &CancellationToken) -> Result<(), Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let swept = match rustix::fs::open(dir, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened.map_err(Failure::from).and_then(|dir| sweep_dir(&dir, stop)),
    };
    swept.map_err(|failure| failure.at(dir.as_os_str().as_bytes()))
}

pub(super) fn sweep_dir(above: &OwnedFd, stop: &CancellationToken) -> Result<(), Failure> {
    for entry in Dir::read_from(above)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if !name.as_bytes().starts_with(STAGE_PREFIX.as_bytes()) {
            continue;
        }
        let unlocked = not_yet_locked();
        let Ok(dir) = beneath(above, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW) else { continue };
        let is_left = rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok();
        drop(unlocked);
        if is_left && let Err(failure) = remove_below_while(above, name, &|| !stop.is_cancelled()) {
            tracing::warn!(?failure, name = %name.display(), "what a server left that died can't be removed");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Replacement;
    use std::io::Cursor;
    use tokio_util::sync::CancellationToken;

    #[test]
    fn trees_that_are_replaced_at_once_beside_each_other_do_not_sweep_each_other() {
        let above = tempfile::tempdir().unwrap();
        let mut archive = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_size(3);
        header.set_mode(0o644);
        archive.append_data(&mut header, "new", &b"new"[..]).unwrap();
        let archive = archive.into_inner().unwrap();
        std::thread::scope(|scope| {
            for project in 0..8 {
                let (above, archive) = (above.path(), archive.clone());
                scope.spawn(move || {
                    let name = format!("project-{project}");
                    let tree = above.join(&name);
                    std::fs::create_dir(&tree).unwrap();
                    for round in 0..1500 {
                        let stop = CancellationToken::new();
                        let built = Replacement::build(above, Cursor::new(archive.clone()), stop);
                        let built = built.unwrap_or_else(|error| panic!("{name}, round {round}: {error}"));
                        // The rest are given up, which leaves more time for making them.
                        if round % 100 == 0 {
                            std::fs::write(tree.join("old"), "old").unwrap();
                            built.take_place(&name, 0o755).unwrap();
                            assert_eq!(std::fs::read(tree.join("new")).unwrap(), b"new", "{name}, round {round}");
                            assert!(!tree.join("old").exists(), "{name}, round {round}");
                        }
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(above.path()).unwrap().count(), 8);
    }
}
