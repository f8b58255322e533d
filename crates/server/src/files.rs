//! Files of a sandbox, from outside it: there also while its instance sleeps or is gone. Every path is resolved by the
//! kernel below the tree it belongs to (openat2): neither `..` nor a symbolic link nor an absolute path leads out.

use crate::clock::fresh_digits;
use crate::error::Error;
use crate::provider::Tree;
use crate::stead::Inner;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use stead_model::ids::TerminalId;

#[derive(Debug, Clone)]
pub struct Files {
    trees: Vec<Tree>,
    inner: Arc<Inner>,
    terminal: TerminalId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Dir,
    Symlink,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub kind: Kind,
    pub size: u64,
    pub mode: u32,
}

impl Files {
    pub(crate) fn new(trees: Vec<Tree>, inner: Arc<Inner>, terminal: TerminalId) -> Self {
        Self { trees, inner, terminal }
    }

    pub async fn read(&self, path: &str) -> Result<Vec<u8>, Error> {
        self.at(path, |place| {
            let file = place.open(OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?;
            let mut file = File::from(file);
            if !file.metadata()?.is_file() {
                return Err(std::io::Error::other("it is not a plain file"));
            }
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        })
        .await
    }

    /// Writes a file whole or not at all; makes the directories above it.
    pub async fn write(&self, path: &str, bytes: Vec<u8>) -> Result<(), Error> {
        self.at(path, move |place| {
            let (above, name) = place.split()?;
            let dir = above.make_dir()?;
            let temporary = format!(".stead-{}", fresh_digits());
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = rustix::fs::openat(&dir, &temporary, flags, Mode::from_raw_mode(0o644))?;
            let mut file = File::from(file);
            let written = file.write_all(&bytes).and_then(|()| file.sync_all());
            let placed = written.and_then(|()| Ok(rustix::fs::renameat(&dir, &temporary, &dir, name)?));
            if placed.is_err() {
                let _ = rustix::fs::unlinkat(&dir, &temporary, AtFlags::empty());
            }
            placed
        })
        .await
    }

    pub async fn list(&self, path: &str) -> Result<Vec<Entry>, Error> {
        self.at(path, |place| {
            let dir = place.open(OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
            let mut entries = Vec::new();
            for entry in rustix::fs::Dir::read_from(&dir)? {
                let name = entry?.file_name().to_owned();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                // One that goes while we look isn't there.
                let Ok(stat) = rustix::fs::statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
                entries.push(describe(name.to_string_lossy().into_owned(), &stat));
            }
            entries.sort_by(|one, other| one.name.cmp(&other.name));
            Ok(entries)
        })
        .await
    }

    pub async fn stat(&self, path: &str) -> Result<Entry, Error> {
        self.at(path, |place| {
            let fd = place.open(OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?;
            let name = place.path.file_name().map(|name| name.to_string_lossy().into_owned());
            Ok(describe(name.unwrap_or_default(), &rustix::fs::fstat(&fd)?))
        })
        .await
    }

    pub async fn make_dir(&self, path: &str) -> Result<(), Error> {
        self.at(path, |place| place.make_dir().map(drop)).await
    }

    /// Removes a file, or a directory that is empty.
    pub async fn remove(&self, path: &str) -> Result<(), Error> {
        self.at(path, |place| {
            let (above, name) = place.split()?;
            let dir = above.open(OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
            match rustix::fs::unlinkat(&dir, name, AtFlags::empty()) {
                Err(Errno::ISDIR) => Ok(rustix::fs::unlinkat(&dir, name, AtFlags::REMOVEDIR)?),
                removed => Ok(removed?),
            }
        })
        .await
    }

    async fn at<T: Send + 'static>(
        &self,
        path: &str,
        work: impl FnOnce(&Place) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let place = self.place(path)?;
        let shown = path.to_owned();
        // File operations count as activity.
        if let Some(seat) = self.inner.seat(&self.terminal) {
            seat.touch(&self.inner.core);
        }
        let done = tokio::task::spawn_blocking(move || work(&place)).await;
        match done {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(explain(&shown, &error)),
            Err(error) => Err(Error::Io(error.to_string())),
        }
    }

    /// Which tree a path belongs to, and where in it.
    fn place(&self, path: &str) -> Result<Place, Error> {
        let refused = |message: &str| Error::Path { path: path.to_owned(), message: message.to_owned() };
        if path.contains('\0') {
            return Err(refused("it has a NUL in it"));
        }
        let absolute = if path.starts_with('/') { PathBuf::from(path) } else { Path::new("/workspace").join(path) };
        if absolute.components().any(|part| matches!(part, Component::ParentDir)) {
            return Err(refused("`..` is not taken; name the place itself"));
        }
        // The longest match: a tree may lie within another.
        let within = |tree: &Tree| absolute.strip_prefix(&tree.inside).ok().map(Path::to_owned);
        let found = self.trees.iter().filter_map(|tree| Some((tree, within(tree)?)));
        let (tree, rest) = found
            .max_by_key(|(tree, _)| tree.inside.len())
            .ok_or_else(|| refused("it is not in the workspace, the home directory or another tree of the sandbox"))?;
        Ok(Place { root: tree.outside.clone(), path: rest })
    }
}

fn explain(path: &str, error: &std::io::Error) -> Error {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => Error::NotFound { kind: "file", id: path.to_owned() },
        Some(Errno::XDEV | Errno::LOOP) => {
            Error::Path { path: path.to_owned(), message: "it leads out of the sandbox".to_owned() }
        }
        _ => Error::Path { path: path.to_owned(), message: error.to_string() },
    }
}

fn describe(name: String, stat: &rustix::fs::Stat) -> Entry {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
            Kind::Other
        }
    };
    Entry { name, kind, size: u64::try_from(stat.st_size).unwrap_or(0), mode: stat.st_mode & 0o7777 }
}

/// A path below a root.
struct Place {
    root: PathBuf,
    path: PathBuf,
}

impl Place {
    /// Opens it, resolved by the kernel as if the root were `/`: what a link points to outside isn't found, since inside
    /// there is no outside.
    fn open(&self, flags: OFlags, mode: Mode) -> std::io::Result<OwnedFd> {
        let root = rustix::fs::open(&self.root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let path = if self.path.as_os_str().is_empty() { Path::new(".") } else { &self.path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        loop {
            match rustix::fs::openat2(&root, path, flags | OFlags::CLOEXEC, mode, resolve) {
                // Somebody renamed a directory while the kernel looked.
                Err(Errno::AGAIN) => {}
                opened => return Ok(opened?),
            }
        }
    }

    fn split(&self) -> std::io::Result<(Self, &std::ffi::OsStr)> {
        let name = self.path.file_name().ok_or_else(|| std::io::Error::other("it is the root of a tree"))?;
        let above = self.path.parent().unwrap_or(Path::new("")).to_owned();
        Ok((Self { root: self.root.clone(), path: above }, name))
    }

    /// Makes the directory and those above it, one after the other below the root.
    fn make_dir(&self) -> std::io::Result<OwnedFd> {
        let mut at = Self { root: self.root.clone(), path: PathBuf::new() };
        let mut dir = at.open(OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        for part in self.path.components() {
            match rustix::fs::mkdirat(&dir, part.as_os_str(), Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            at.path.push(part);
            dir = at.open(OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        }
        Ok(dir)
    }
}
