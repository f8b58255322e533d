//! Our copy of a sandbox's files. What is to be written comes from over there and may be meant to do harm: every path is
//! resolved by the kernel below the copy's own directory, through no link.

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use stead_model::carry::{Entry, Kind, Stamp};
use stead_model::state::Bytes;

/// What is begun of a file, until it is whole.
const BEGUN: &str = ".stead-carry";

/// Levels of directories.
const DEEPEST: usize = 200;

/// A directory here and where it is inside.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) inside: PathBuf,
    root: OwnedFd,
}

#[derive(Debug)]
pub(super) struct Here {
    trees: Vec<Tree>,
    begun: Option<(Bytes, File)>,
}

impl Here {
    pub(super) fn open(trees: &[crate::provider::Tree]) -> io::Result<Self> {
        let open = |tree: &crate::provider::Tree| {
            std::fs::create_dir_all(&tree.outside)?;
            let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
            let root = rustix::fs::open(&tree.outside, flags, Mode::empty())?;
            Ok(Tree { inside: PathBuf::from(&tree.inside), root })
        };
        Ok(Self { trees: trees.iter().map(open).collect::<io::Result<_>>()?, begun: None })
    }

    /// The directories over there that are copied.
    pub(super) fn roots(&self) -> Vec<Bytes> {
        self.trees.iter().map(|tree| Bytes(tree.inside.as_os_str().as_bytes().to_vec())).collect()
    }

    /// The tree that a path over there is in, and the rest of it; none where it is in no tree, or is no plain path.
    fn find<'a>(&self, path: &'a Bytes) -> Option<(&Tree, &'a Path)> {
        let path = Path::new(OsStr::from_bytes(&path.0));
        self.trees.iter().find_map(|tree| {
            let rest = path.strip_prefix(&tree.inside).ok()?;
            let plain = rest.components().all(|part| matches!(part, std::path::Component::Normal(_)));
            (plain && !rest.as_os_str().is_empty() && rest.components().count() < DEEPEST).then_some((tree, rest))
        })
    }

    /// Whether it belongs to what is copied.
    pub(super) fn has_place_for(&self, path: &Bytes) -> bool {
        self.find(path).is_some()
    }

    /// The directory of a path, made with all above it, and the last name.
    fn parent<'a>(&self, path: &'a Bytes) -> io::Result<(OwnedFd, &'a OsStr)> {
        let (tree, rest) = self.find(path).ok_or(io::ErrorKind::InvalidInput)?;
        let name = rest.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let mut at = tree.root.try_clone()?;
        for part in rest.parent().into_iter().flat_map(Path::components) {
            at = match beneath(&at, part.as_os_str(), OFlags::DIRECTORY | OFlags::RDONLY) {
                Err(Errno::NOENT) => {
                    rustix::fs::mkdirat(&at, part.as_os_str(), Mode::from_raw_mode(0o755))?;
                    beneath(&at, part.as_os_str(), OFlags::DIRECTORY | OFlags::RDONLY)?
                }
                // What was something else is a directory now.
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    rustix::fs::unlinkat(&at, part.as_os_str(), AtFlags::empty())?;
                    rustix::fs::mkdirat(&at, part.as_os_str(), Mode::from_raw_mode(0o755))?;
                    beneath(&at, part.as_os_str(), OFlags::DIRECTORY | OFlags::RDONLY)?
                }
                opened => opened?,
            };
        }
        Ok((at, name))
    }

    /// Makes a directory or a link as it is over there.
    pub(super) fn make(&mut self, entry: &Entry) -> io::Result<()> {
        let (dir, name) = self.parent(&entry.path)?;
        match (entry.kind, &entry.target) {
            (Kind::Dir, _) => {
                let there = beneath(&dir, name, OFlags::DIRECTORY | OFlags::RDONLY);
                if matches!(there, Err(Errno::NOTDIR | Errno::LOOP)) {
                    rustix::fs::unlinkat(&dir, name, AtFlags::empty())?;
                }
                match rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o700)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                // We must be able to go on working in it.
                let opened = beneath(&dir, name, OFlags::DIRECTORY | OFlags::RDONLY)?;
                Ok(rustix::fs::fchmod(opened, Mode::from_raw_mode(entry.mode & 0o777 | 0o700))?)
            }
            (Kind::Link, Some(target)) => {
                remove_at(&dir, name, 0)?;
                Ok(rustix::fs::symlinkat(OsStr::from_bytes(&target.0), &dir, name)?)
            }
            (Kind::Link | Kind::File, _) => Ok(()),
        }
    }

    /// A piece of a file; with the last one it takes its place.
    pub(super) fn piece(&mut self, entry: &Entry, offset: u64, bytes: &[u8], last: bool) -> io::Result<()> {
        let (dir, name) = self.parent(&entry.path)?;
        let new = format!(".{:016x}{BEGUN}", entry.stamp.inode);
        let mut file = match self.begun.take() {
            Some((path, file)) if path == entry.path && offset > 0 => file,
            _ if offset == 0 => {
                remove_at(&dir, OsStr::new(&new), 0)?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                File::from(rustix::fs::openat(&dir, &new, flags, Mode::from_raw_mode(0o600))?)
            }
            _ => return Err(io::Error::other("a piece of a file that was not begun")),
        };
        file.write_all(bytes)?;
        if !last {
            self.begun = Some((entry.path.clone(), file));
            return Ok(());
        }
        rustix::fs::fchmod(&file, Mode::from_raw_mode(entry.mode & 0o777))?;
        let time = Timespec {
            tv_sec: entry.stamp.modified.div_euclid(1_000_000_000),
            tv_nsec: entry.stamp.modified.rem_euclid(1_000_000_000),
        };
        rustix::fs::futimens(&file, &Timestamps { last_access: time, last_modification: time })?;
        if beneath(&dir, name, OFlags::DIRECTORY | OFlags::RDONLY).is_ok() {
            remove_at(&dir, name, 0)?;
        }
        Ok(rustix::fs::renameat(&dir, &new, &dir, name)?)
    }

    pub(super) fn remove(&self, path: &Bytes) -> io::Result<()> {
        let (tree, rest) = self.find(path).ok_or(io::ErrorKind::InvalidInput)?;
        let name = rest.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = rest.parent().unwrap_or(Path::new(""));
        let dir = if parent.as_os_str().is_empty() {
            tree.root.try_clone()?
        } else {
            match beneath(&tree.root, parent.as_os_str(), OFlags::DIRECTORY | OFlags::RDONLY) {
                // Its directory went before it.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
                dir => dir?,
            }
        };
        remove_at(&dir, name, 0)
    }

    /// Everything that is here, by its path over there.
    pub(super) fn list(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for tree in &self.trees {
            list_into(&tree.root, &tree.inside, 0, &mut entries)?;
        }
        Ok(entries)
    }

    /// As it is here now.
    pub(super) fn stamp(&self, path: &Bytes) -> io::Result<Option<Stamp>> {
        let Some((tree, rest)) = self.find(path) else { return Ok(None) };
        match beneath(&tree.root, rest.as_os_str(), OFlags::PATH | OFlags::NOFOLLOW) {
            Ok(file) => Ok(Some(stamp(&rustix::fs::fstat(file)?))),
            Err(_) => Ok(None),
        }
    }

    /// The content of a plain file.
    pub(super) fn read(&self, path: &Bytes) -> io::Result<File> {
        let (tree, rest) = self.find(path).ok_or(io::ErrorKind::NotFound)?;
        let file = File::from(beneath(&tree.root, rest.as_os_str(), OFlags::RDONLY | OFlags::NONBLOCK)?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

/// The next so many bytes of a file.
pub(super) fn next_piece(file: &mut File, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(most);
    Read::take(file, most as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn beneath(dir: impl AsFd, path: &OsStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // A link that is looked at is not followed; anywhere else one is refused.
    let resolve = if flags.contains(OFlags::PATH) { resolve - ResolveFlags::NO_SYMLINKS } else { resolve };
    loop {
        match rustix::fs::openat2(dir.as_fd(), path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
}

fn remove_at(dir: &OwnedFd, name: &OsStr, depth: usize) -> io::Result<()> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) if depth < DEEPEST => {}
        Err(error) => return Err(error.into()),
    }
    let inner = beneath(dir, name, OFlags::DIRECTORY | OFlags::RDONLY)?;
    for item in Dir::read_from(&inner)? {
        let item = item?;
        let name = OsStr::from_bytes(item.file_name().to_bytes());
        if name != "." && name != ".." {
            remove_at(&inner, name, depth + 1)?;
        }
    }
    Ok(rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?)
}

fn list_into(dir: &OwnedFd, inside: &Path, depth: usize, entries: &mut Vec<Entry>) -> io::Result<()> {
    for item in Dir::read_from(dir)? {
        let item = item?;
        let name = OsStr::from_bytes(item.file_name().to_bytes());
        if name == "." || name == ".." || name.as_bytes().ends_with(BEGUN.as_bytes()) {
            continue;
        }
        let Ok(about) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let kind = match FileType::from_raw_mode(about.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Dir,
            FileType::Symlink => Kind::Link,
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => continue,
        };
        let at = inside.join(name);
        let target = (kind == Kind::Link).then(|| rustix::fs::readlinkat(dir, name, Vec::new()).ok()).flatten();
        let path = Bytes(at.clone().into_os_string().into_vec());
        let target = target.map(|target| Bytes(target.into_bytes()));
        entries.push(Entry { path, kind, mode: about.st_mode & 0o7777, stamp: stamp(&about), target });
        if kind == Kind::Dir && depth < DEEPEST {
            let inner = beneath(dir, name, OFlags::DIRECTORY | OFlags::RDONLY)?;
            list_into(&inner, &at, depth + 1, entries)?;
        }
    }
    Ok(())
}

fn stamp(about: &rustix::fs::Stat) -> Stamp {
    let nanoseconds = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
    let rest = |nanoseconds: u64| i64::try_from(nanoseconds).unwrap_or(0);
    Stamp {
        inode: about.st_ino,
        size: u64::try_from(about.st_size).unwrap_or(0),
        modified: nanoseconds(about.st_mtime, rest(about.st_mtime_nsec)),
        changed: nanoseconds(about.st_ctime, rest(about.st_ctime_nsec)),
    }
}
