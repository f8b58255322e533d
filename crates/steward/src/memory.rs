//! Places that are in memory alone: a descriptor for the secrets of a shell, which the keeper holds too, and a directory
//! for the files through which a shell that has secrets is spoken to. Neither is ever on a disk.

use crate::dir::Dir;
use rustix::fs::{MemfdFlags, Mode};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Where a file system in memory is usually found; looked at in this order.
const PLACES: [&str; 4] = ["/dev/shm", "/run/shm", "/tmp", "/run"];

const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;

/// A file without a name. Whoever holds a descriptor of it has it; nobody else can.
pub(crate) fn file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = File::from(rustix::fs::memfd_create("stead", MemfdFlags::CLOEXEC)?);
    file.write_all_at(bytes, 0)?;
    Ok(OwnedFd::from(file))
}

pub(crate) fn read(fd: &OwnedFd) -> io::Result<Vec<u8>> {
    let file = File::from(fd.try_clone()?);
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(0);
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The directory for one shell, made if it isn't there.
pub(crate) fn directory(dir: &Dir, shell: u32) -> io::Result<PathBuf> {
    let mut why =
        io::Error::new(io::ErrorKind::Unsupported, "no file system in memory was found (is /dev/shm mounted?)");
    for place in places(dir) {
        match private(&place).and_then(|()| {
            let path = place.join(shell.to_string());
            private(&path).map(|()| path)
        }) {
            Ok(path) => return Ok(path),
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// Whether there is a place for such directories at all.
pub(crate) fn is_there() -> bool {
    PLACES.iter().any(|place| is_in_memory(place))
}

/// Removes what stewards over the same directory left there for shells that are no more.
pub(crate) fn sweep(dir: &Dir, keep: impl Fn(u32) -> bool) {
    for place in places(dir) {
        let Ok(entries) = fs::read_dir(&place) else { continue };
        for entry in entries.flatten() {
            if !entry.file_name().to_string_lossy().parse().is_ok_and(&keep) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        // Fails as long as there is something in it.
        let _ = fs::remove_dir(&place);
    }
}

pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = super::shell::open_private(path)?;
    file.set_len(0)?;
    file.write_all(bytes)
}

/// Named by the directory's own place on its disk, so that each steward over it finds what the one before it made.
fn places(dir: &Dir) -> Vec<PathBuf> {
    let Ok(meta) = dir.root().metadata() else { return Vec::new() };
    let name = format!("stead-{}-{:x}-{:x}", rustix::process::geteuid().as_raw(), meta.dev(), meta.ino());
    PLACES.iter().filter(|place| is_in_memory(place)).map(|place| Path::new(place).join(&name)).collect()
}

fn is_in_memory(place: &str) -> bool {
    rustix::fs::statfs(place).is_ok_and(|found| [TMPFS, RAMFS].contains(&found.f_type))
}

/// A directory of ours that nobody else can look into; one that somebody put in its place is refused.
fn private(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(Mode::RWXU.bits()).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let meta = path.symlink_metadata()?;
    let mode = meta.permissions().mode() & 0o777;
    let ours = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() && mode == 0o700;
    if ours { Ok(()) } else { Err(io::Error::other(format!("`{}` is not ours alone", path.display()))) }
}
