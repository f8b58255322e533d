//! What there is to say about a file.

use super::Files;
use super::failure::Failure;
use super::ground::{Ground, Last, Way};
use crate::error::Error;
use rustix::fs::{FileType, OFlags, Stat};
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use stead_model::clock::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Dir,
    Symlink,
    Other,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Dir => "dir",
            Self::Symlink => "symlink",
            Self::Other => "other",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// With what isn't UTF-8 replaced; `path` has every byte.
    pub name: String,
    /// Absolute, as the sandbox knows it.
    pub path: Vec<u8>,
    pub kind: Kind,
    pub size: u64,
    pub mode: u32,
    pub modified_at: Timestamp,
    /// Where a link leads.
    pub target: Option<Vec<u8>>,
    /// Of a plain file.
    pub etag: Option<String>,
}

impl Entry {
    pub(super) fn new(path: Vec<u8>, stat: &Stat, target: Option<Vec<u8>>) -> Self {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let kind = kind(stat);
        Self {
            name: String::from_utf8_lossy(name).into_owned(),
            kind,
            size: size(stat),
            mode: stat.st_mode & 0o7777,
            modified_at: modified_at(stat),
            target,
            etag: (kind == Kind::File).then(|| etag(stat)),
            path,
        }
    }
}

impl Files {
    /// What is there; of a link, the link itself.
    pub async fn stat(&self, path: impl AsRef<[u8]>) -> Result<Entry, Error> {
        self.at(path.as_ref(), |ground, path| {
            let spot = ground.find(path, Last::Keep, Way::MustBe)?;
            let seen = spot.open(OFlags::PATH)?;
            let stat = rustix::fs::fstat(&seen)?;
            if spot.as_dir && kind(&stat) != Kind::Dir {
                return Err(Failure::Path("it is not a directory"));
            }
            // The link that was looked at, not what has taken its name since.
            let link = kind(&stat) == Kind::Symlink;
            let target = link.then(|| rustix::fs::readlinkat(&seen, "", Vec::new())).transpose()?;
            Ok(Entry::new(Ground::absolute(path), &stat, target.map(std::ffi::CString::into_bytes)))
        })
        .await
    }
}

pub(super) fn kind(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
            Kind::Other
        }
    }
}

pub(super) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

pub(super) fn modified_at(stat: &Stat) -> Timestamp {
    let millis = i128::from(stat.st_mtime) * 1000 + i128::from(stat.st_mtime_nsec) / 1_000_000;
    Timestamp(u64::try_from(millis).unwrap_or(0))
}

/// A strong one: another whenever the file is another, was written, or was touched. The time of the last change of its
/// inode is in it, which nobody can set.
pub(super) fn etag(stat: &Stat) -> String {
    let mut hash = Sha256::new();
    for number in [stat.st_dev, stat.st_ino, size(stat)] {
        hash.update(number.to_le_bytes());
    }
    let times = [
        (i128::from(stat.st_mtime), i128::from(stat.st_mtime_nsec)),
        (i128::from(stat.st_ctime), i128::from(stat.st_ctime_nsec)),
    ];
    for (seconds, nanoseconds) in times {
        hash.update(seconds.to_le_bytes());
        hash.update(nanoseconds.to_le_bytes());
    }
    let digits = hash.finalize().iter().take(16).fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    });
    format!("\"{digits}\"")
}

/// A name below a path.
pub(super) fn below(path: &[u8], name: &OsStr) -> Vec<u8> {
    let slash: &[u8] = if path.is_empty() || path.ends_with(b"/") { b"" } else { b"/" };
    [path, slash, name.as_bytes()].concat()
}
