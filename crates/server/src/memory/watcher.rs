//! Whether anything happened in directories since they were last looked at, as the kernel tells it. One inotify for all of
//! a server: a user may have few.
//!
//! What is written through a mapping of a file is not told; whoever relies on this looks for itself now and then.

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug)]
pub(super) struct Watcher {
    /// Absent where there can be none: then everything is always said to have changed.
    inotify: Option<OwnedFd>,
    watches: Mutex<HashMap<i32, Arc<AtomicBool>>>,
}

/// The directories of one who watches.
#[derive(Debug)]
pub(super) struct Watched {
    watcher: Arc<Watcher>,
    changed: Arc<AtomicBool>,
    watches: HashSet<i32>,
    /// Whether every directory is watched.
    is_whole: bool,
}

impl Default for Watcher {
    fn default() -> Self {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC);
        let inotify = inotify.inspect_err(|error| tracing::warn!(%error, "no directory can be watched")).ok();
        Self { inotify, watches: Mutex::default() }
    }
}

impl Watcher {
    /// Marks all that something happened to.
    fn hear(&self) {
        let Some(inotify) = &self.inotify else { return };
        let watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(inotify, &mut buffer);
        loop {
            match events.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => mark(watches.values()),
                Ok(event) => mark(watches.get(&event.wd())),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(error) => {
                    tracing::warn!(%error, "can't hear what happened in directories");
                    return mark(watches.values());
                }
            }
        }
    }
}

fn mark<'a>(changed: impl IntoIterator<Item = &'a Arc<AtomicBool>>) {
    for changed in changed {
        changed.store(true, Ordering::Relaxed);
    }
}

impl Watched {
    /// Of one who watches nothing yet.
    pub(super) fn new(watcher: Arc<Watcher>) -> Self {
        Self { watcher, changed: Arc::default(), watches: HashSet::new(), is_whole: false }
    }

    /// Whether nothing happened since [`Self::begin`].
    pub(super) fn is_quiet(&self) -> bool {
        self.watcher.hear();
        self.is_whole && !self.changed.load(Ordering::Relaxed)
    }

    /// Begins anew: what happens from now on counts, in the directories that are added.
    pub(super) fn begin(&mut self) {
        self.watcher.hear();
        self.forget();
        self.changed = Arc::default();
        self.is_whole = self.watcher.inotify.is_some();
    }

    /// Before it is looked at, so that nothing falls between.
    pub(super) fn add(&mut self, dir: &Path) {
        const WHAT: WatchFlags = WatchFlags::MODIFY
            .union(WatchFlags::CLOSE_WRITE)
            .union(WatchFlags::ATTRIB)
            .union(WatchFlags::CREATE)
            .union(WatchFlags::DELETE)
            .union(WatchFlags::DELETE_SELF)
            .union(WatchFlags::MOVE)
            .union(WatchFlags::MOVE_SELF)
            .union(WatchFlags::ONLYDIR)
            .union(WatchFlags::DONT_FOLLOW);
        let Some(inotify) = &self.watcher.inotify else { return };
        let mut watches = self.watcher.watches.lock().unwrap_or_else(PoisonError::into_inner);
        match inotify::add_watch(inotify, dir, WHAT) {
            Ok(watch) => {
                watches.insert(watch, Arc::clone(&self.changed));
                self.watches.insert(watch);
            }
            Err(_) => self.is_whole = false,
        }
    }

    fn forget(&mut self) {
        let Some(inotify) = &self.watcher.inotify else { return };
        let mut watches = self.watcher.watches.lock().unwrap_or_else(PoisonError::into_inner);
        for watch in self.watches.drain() {
            if watches.remove(&watch).is_some() {
                // Gone with its directory already, perhaps.
                let _ = inotify::remove_watch(inotify, watch);
            }
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    type Deed = fn(&Path);

    #[test]
    fn what_happens_in_a_directory_is_heard_and_what_happens_beside_it_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        fs::create_dir(&one).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(one.join("there"), "1").unwrap();
        let watcher = Arc::<Watcher>::default();
        let [mut first, mut second] = [(); 2].map(|()| Watched::new(Arc::clone(&watcher)));
        assert!(!first.is_quiet(), "nothing is known before it was looked at");
        first.begin();
        first.add(&one);
        second.begin();
        second.add(&other);
        assert!(first.is_quiet() && second.is_quiet());
        let deeds: [(&str, Deed); 5] = [
            ("a new file", |dir| fs::write(dir.join("new"), "1").unwrap()),
            ("a file written over", |dir| fs::write(dir.join("there"), "2").unwrap()),
            ("a file renamed", |dir| fs::rename(dir.join("new"), dir.join("newer")).unwrap()),
            ("a file removed", |dir| fs::remove_file(dir.join("newer")).unwrap()),
            ("a directory made", |dir| fs::create_dir(dir.join("below")).unwrap()),
        ];
        for (what, deed) in deeds {
            deed(&one);
            assert!(!first.is_quiet(), "{what} was not heard");
            assert!(second.is_quiet(), "{what} was heard by another");
            first.begin();
            first.add(&one);
            assert!(first.is_quiet());
        }
        first.add(&dir.path().join("missing"));
        assert!(!first.is_quiet(), "one that can't be watched may change unheard");
        drop((first, second));
        assert!(watcher.watches.lock().unwrap().is_empty());
    }
}
