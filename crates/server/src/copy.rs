//! Copies a tree of files: by reference where the file system can (FICLONE), else byte by byte inside the kernel, by
//! several threads, with holes left holes. Modes, times, owners, extended attributes, symbolic and hard links are kept.
//!
//! Whoever works in the source goes on while it is copied. Every file is as it was at some moment of the copy, and one
//! that is written just then may be torn; what goes away meanwhile may be missing. Nothing is followed out of the source:
//! each path is resolved by the kernel below it, without links (openat2), whatever is exchanged under us.

mod data;
mod meta;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Files that wait for a thread.
const WAITING: usize = 128;

/// How often progress is told at most.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// Things left out that are told by name.
const MOST_NAMED: usize = 20;

/// How far a copy is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    pub files: u64,
    pub bytes: u64,
    /// What can't be copied (sockets, pipes, devices) or went away meanwhile; the first few by name.
    pub left_out: Vec<String>,
    pub left_out_count: u64,
}

/// Hears how far a copy is; from several threads, one after the other.
pub type OnProgress = Arc<dyn Fn(&Progress) + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    #[error("can't copy `{}`: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("the server is stopping")]
    Stopped,
}

/// One copy, of however many trees.
pub(crate) struct Copier {
    tell: OnProgress,
    stop: CancellationToken,
    told: Mutex<(Progress, Instant)>,
    /// Whether the file system still may share blocks, and copy inside the kernel.
    pub(self) can_clone: AtomicBool,
    pub(self) can_range: AtomicBool,
    failed: AtomicBool,
}

/// A file to be copied, below both roots.
struct Job {
    path: PathBuf,
}

/// What is left to do when all files are there.
#[derive(Default)]
struct Rest {
    /// From the root down.
    dirs: Vec<(PathBuf, Stat)>,
    /// The other names of files that have several: the first one, this one.
    links: Vec<(PathBuf, PathBuf)>,
}

impl Copier {
    pub(crate) fn new(tell: OnProgress, stop: CancellationToken) -> Self {
        let (can_clone, can_range) = (AtomicBool::new(true), AtomicBool::new(true));
        let told = Mutex::new((Progress::default(), Instant::now()));
        Self { tell, stop, told, can_clone, can_range, failed: AtomicBool::new(false) }
    }

    /// Copies everything below `from` to `to`, which is made. A source that isn't there has nothing to copy. Waits.
    pub(crate) fn copy(&self, from: &Path, to: &Path) -> Result<(), CopyError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = match rustix::fs::openat(CWD, from, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(()),
            root => root.map_err(|errno| at(from, errno))?,
        };
        DirBuilder::new().recursive(true).mode(0o700).create(to).map_err(|error| at(to, error))?;
        let trees = Trees { copier: self, root, to };
        let workers = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 4);
        let (jobs, inbox) = sync_channel(WAITING);
        let inbox = Mutex::new(inbox);
        let (walked, worked) = std::thread::scope(|scope| {
            let work: Vec<_> = (0..workers).map(|_| scope.spawn(|| trees.work(&inbox))).collect();
            let walked = trees.walk(&jobs);
            drop(jobs);
            if walked.is_err() {
                self.failed.store(true, Ordering::Relaxed);
            }
            let worked = work.into_iter().map(|work| work.join().unwrap_or(Err(CopyError::Stopped)));
            (walked, worked.collect::<Result<(), CopyError>>())
        });
        worked?;
        let rest = walked?;
        trees.link(&rest.links)?;
        // From the leaves up: what is made in a directory changes its times.
        for (path, stat) in rest.dirs.iter().rev() {
            let dir = trees.to.join(path);
            let fd = File::open(&dir).map_err(|error| at(&dir, error))?;
            meta::keep(&fd, stat).map_err(|error| at(&dir, error))?;
        }
        self.tell_now();
        Ok(())
    }

    fn told(&self) -> MutexGuard<'_, (Progress, Instant)> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(self) fn count(&self, files: u64, bytes: u64) {
        let mut told = self.told();
        told.0.files += files;
        told.0.bytes += bytes;
        if told.1.elapsed() >= TELL_EVERY {
            told.1 = Instant::now();
            (self.tell)(&told.0);
        }
    }

    fn leave_out(&self, path: &Path, why: &str) {
        let mut told = self.told();
        told.0.left_out_count += 1;
        if told.0.left_out.len() < MOST_NAMED {
            told.0.left_out.push(format!("{}: {why}", path.display()));
        }
    }

    fn tell_now(&self) {
        (self.tell)(&self.told().0);
    }

    pub(self) fn go_on(&self) -> Result<(), CopyError> {
        let over = self.failed.load(Ordering::Relaxed) || self.stop.is_cancelled();
        if over { Err(CopyError::Stopped) } else { Ok(()) }
    }
}

struct Trees<'a> {
    copier: &'a Copier,
    root: OwnedFd,
    to: &'a Path,
}

impl Trees<'_> {
    fn open(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve)
    }

    /// Makes directories and symbolic links, and hands files out.
    fn walk(&self, jobs: &SyncSender<Job>) -> Result<Rest, CopyError> {
        let mut rest = Rest::default();
        let mut several: HashMap<(u64, u64), PathBuf> = HashMap::new();
        let mut left = vec![PathBuf::new()];
        while let Some(path) = left.pop() {
            self.copier.go_on()?;
            let failed = |errno: Errno| at(&path, errno);
            let dir = match self.open(&path, OFlags::DIRECTORY) {
                Err(errno) if is_gone(errno) && !path.as_os_str().is_empty() => {
                    self.copier.leave_out(&path, "went away");
                    continue;
                }
                dir => dir.map_err(failed)?,
            };
            let made = self.to.join(&path);
            if !path.as_os_str().is_empty() {
                DirBuilder::new().mode(0o700).create(&made).map_err(|error| at(&made, error))?;
            }
            rest.dirs.push((path.clone(), rustix::fs::fstat(&dir).map_err(failed)?));
            let target = File::open(&made).map_err(|error| at(&made, error))?;
            meta::copy_attributes(&dir, &target).map_err(|error| at(&path, error))?;
            for entry in Dir::read_from(&dir).map_err(failed)? {
                let name = entry.map_err(failed)?.file_name().to_owned();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                let below = path.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
                let stat = match rustix::fs::statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(errno) if is_gone(errno) => continue,
                    stat => stat.map_err(|errno| at(&below, errno))?,
                };
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::Directory => left.push(below),
                    FileType::Symlink => self.copy_symlink(&dir, &name, &below, &stat)?,
                    FileType::RegularFile => {
                        if stat.st_nlink > 1 {
                            if let Some(first) = several.get(&(stat.st_dev, stat.st_ino)) {
                                rest.links.push((first.clone(), below));
                                continue;
                            }
                            several.insert((stat.st_dev, stat.st_ino), below.clone());
                        }
                        // They stop taking files only when one has failed, and that is what is told.
                        if jobs.send(Job { path: below }).is_err() {
                            return Err(CopyError::Stopped);
                        }
                    }
                    FileType::Fifo => self.copier.leave_out(&below, "a named pipe"),
                    FileType::Socket => self.copier.leave_out(&below, "a socket"),
                    FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
                        self.copier.leave_out(&below, "a device");
                    }
                }
            }
        }
        Ok(rest)
    }

    fn work(&self, inbox: &Mutex<Receiver<Job>>) -> Result<(), CopyError> {
        loop {
            let job = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(Job { path }) = job else { return Ok(()) };
            // After a failure the rest is only taken out of the way of whoever sends it.
            if self.copier.failed.load(Ordering::Relaxed) {
                continue;
            }
            if let Err(error) = self.copy_file(&path) {
                self.copier.failed.store(true, Ordering::Relaxed);
                while inbox.lock().unwrap_or_else(PoisonError::into_inner).recv().is_ok() {}
                return Err(error);
            }
        }
    }

    fn copy_file(&self, path: &Path) -> Result<(), CopyError> {
        let source = match self.open(path, OFlags::empty()) {
            Err(errno) if is_gone(errno) => {
                self.copier.leave_out(path, "went away");
                return Ok(());
            }
            source => File::from(source.map_err(|errno| at(path, errno))?),
        };
        let stat = rustix::fs::fstat(&source).map_err(|errno| at(path, errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            self.copier.leave_out(path, "became something else");
            return Ok(());
        }
        let made = self.to.join(path);
        let target = File::options().write(true).create_new(true).mode(0o600).open(&made);
        let target = target.map_err(|error| at(&made, error))?;
        data::copy(self.copier, &source, &target, &stat).map_err(|error| match error {
            data::DataError::Io(error) => at(path, error),
            data::DataError::Stopped => CopyError::Stopped,
        })?;
        meta::copy_attributes(&source, &target).map_err(|error| at(path, error))?;
        meta::keep(&target, &stat).map_err(|error| at(&made, error))?;
        self.copier.count(1, 0);
        Ok(())
    }

    fn copy_symlink(&self, dir: &OwnedFd, name: &std::ffi::CStr, path: &Path, stat: &Stat) -> Result<(), CopyError> {
        let words = match rustix::fs::readlinkat(dir, name, Vec::new()) {
            Err(errno) if is_gone(errno) || errno == Errno::INVAL => {
                self.copier.leave_out(path, "went away");
                return Ok(());
            }
            words => words.map_err(|errno| at(path, errno))?,
        };
        let made = self.to.join(path);
        rustix::fs::symlinkat(&words, CWD, &made).map_err(|errno| at(&made, errno))?;
        meta::keep_of_symlink(&made, stat).map_err(|error| at(&made, error))?;
        self.copier.count(1, 0);
        Ok(())
    }

    fn link(&self, links: &[(PathBuf, PathBuf)]) -> Result<(), CopyError> {
        for (first, other) in links {
            self.copier.go_on()?;
            let (existing, made) = (self.to.join(first), self.to.join(other));
            match rustix::fs::linkat(CWD, &existing, CWD, &made, AtFlags::empty()) {
                Ok(()) => self.copier.count(1, 0),
                // Its first name went away before it was copied.
                Err(Errno::NOENT) => self.copy_file(other)?,
                Err(errno) => return Err(at(&made, errno)),
            }
        }
        Ok(())
    }
}

/// What somebody took away, or exchanged, between two looks.
fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::STALE)
}

fn at(path: &Path, error: impl Into<io::Error>) -> CopyError {
    CopyError::Io { path: path.to_owned(), error: error.into() }
}

#[cfg(test)]
mod tests;
