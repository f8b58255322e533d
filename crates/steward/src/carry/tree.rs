//! Files of a sandbox, as whoever is inside sees them. What is told is what the disk says; links are told of, never
//! followed below the directories that were asked for.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use stead_model::carry::{Content, Done, Entry, Kind, PIECE, Put, Stamp};
use stead_model::state::Bytes;

/// Entries in one message.
const BATCH: usize = 500;

/// What is begun of a file, beside it.
const BEGUN: &[u8] = b".stead-carry";

pub(super) fn list(roots: &[Bytes], mut say: impl FnMut(Vec<Entry>) -> io::Result<()>) -> io::Result<()> {
    let mut batch = Vec::new();
    let mut open: Vec<PathBuf> = roots.iter().rev().map(path).collect();
    while let Some(dir) = open.pop() {
        let entries = match fs::read_dir(&dir) {
            // Gone, or never there.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
            entries => entries?,
        };
        for item in entries {
            let at = item?.path();
            if at.as_os_str().as_bytes().ends_with(BEGUN) {
                continue;
            }
            let about = match at.symlink_metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                about => about?,
            };
            let Some(entry) = entry(&at, &about) else { continue };
            if entry.kind == Kind::Dir {
                open.push(at);
            }
            batch.push(entry);
            if batch.len() == BATCH {
                say(std::mem::take(&mut batch))?;
            }
        }
    }
    if batch.is_empty() { Ok(()) } else { say(batch) }
}

fn entry(at: &Path, about: &Metadata) -> Option<Entry> {
    let kind = match about.file_type() {
        kind if kind.is_file() => Kind::File,
        kind if kind.is_dir() => Kind::Dir,
        kind if kind.is_symlink() => Kind::Link,
        _ => return None,
    };
    let target = (kind == Kind::Link).then(|| fs::read_link(at).ok()).flatten();
    let target = target.map(|target| Bytes(target.into_os_string().into_vec()));
    if kind == Kind::Link && target.is_none() {
        return None;
    }
    let path = Bytes(at.as_os_str().as_bytes().to_vec());
    Some(Entry { path, kind, mode: about.mode() & 0o7777, stamp: stamp(about), target })
}

fn stamp(about: &Metadata) -> Stamp {
    let nanoseconds = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
    Stamp {
        inode: about.ino(),
        size: about.len(),
        modified: nanoseconds(about.mtime(), about.mtime_nsec()),
        changed: nanoseconds(about.ctime(), about.ctime_nsec()),
    }
}

pub(super) fn get(paths: &[Bytes], mut say: impl FnMut(Box<Content>) -> io::Result<()>) -> io::Result<()> {
    for wanted in paths {
        let opened = File::options().read(true).custom_flags(no_follow()).open(path(wanted));
        let plain = opened.ok().filter(|file| file.metadata().is_ok_and(|about| about.is_file()));
        let Some(mut file) = plain else {
            say(Box::new(Content {
                path: wanted.clone(),
                offset: 0,
                bytes: Bytes::default(),
                last: true,
                gone: true,
            }))?;
            continue;
        };
        let mut offset = 0;
        loop {
            let mut bytes = Vec::with_capacity(PIECE);
            let read = Read::take(&mut file, PIECE as u64).read_to_end(&mut bytes)?;
            let last = read < PIECE;
            say(Box::new(Content { path: wanted.clone(), offset, bytes: Bytes(bytes), last, gone: false }))?;
            offset += read as u64;
            if last {
                break;
            }
        }
    }
    Ok(())
}

/// Neither a link, nor what would keep us waiting.
fn no_follow() -> i32 {
    i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0)
}

/// A file that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct Putting {
    begun: Option<(Bytes, File, u64)>,
}

impl Putting {
    pub(super) fn put(&mut self, put: &Put) -> io::Result<Done> {
        let at = path(&put.path);
        match put.kind {
            Kind::Dir => make_dir(&at, put.mode)?,
            Kind::Link => {
                let target = put.target.as_ref().map(path).unwrap_or_default();
                let new = beside(&at);
                let _ = fs::remove_file(&new);
                make_parents(&at)?;
                std::os::unix::fs::symlink(target, &new)?;
                take_place(&new, &at)?;
            }
            Kind::File => {
                if !self.piece(&at, put)? {
                    return Ok(Done::All);
                }
            }
        }
        Ok(Done::There(stamp(&at.symlink_metadata()?)))
    }

    /// Whether it is whole.
    fn piece(&mut self, at: &Path, put: &Put) -> io::Result<bool> {
        let new = beside(at);
        let ours = self.begun.take().filter(|(path, _, length)| *path == put.path && *length == put.offset);
        let mut file = match ours {
            Some((_, file, _)) => file,
            None if put.offset == 0 => {
                make_parents(at)?;
                let _ = fs::remove_file(&new);
                File::options().write(true).create_new(true).mode(0o600).open(&new)?
            }
            None => return Err(io::Error::other("a piece of a file that was not begun")),
        };
        file.write_all(&put.bytes)?;
        if !put.last {
            self.begun = Some((put.path.clone(), file, put.offset + put.bytes.len() as u64));
            return Ok(false);
        }
        file.set_permissions(fs::Permissions::from_mode(put.mode & 0o7777))?;
        let time = Timespec {
            tv_sec: put.modified.div_euclid(1_000_000_000),
            tv_nsec: put.modified.rem_euclid(1_000_000_000),
        };
        rustix::fs::futimens(&file, &Timestamps { last_access: time, last_modification: time })?;
        take_place(&new, at)?;
        Ok(true)
    }
}

fn make_dir(at: &Path, mode: u32) -> io::Result<()> {
    make_parents(at)?;
    if at.symlink_metadata().is_ok_and(|about| !about.is_dir()) {
        fs::remove_file(at)?;
    }
    match fs::create_dir(at) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => created?,
    }
    rustix::fs::chmodat(CWD, at, Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())?;
    Ok(())
}

fn make_parents(at: &Path) -> io::Result<()> {
    at.parent().map_or(Ok(()), fs::create_dir_all)
}

/// A directory that is in the way goes with all that is in it.
fn take_place(new: &Path, at: &Path) -> io::Result<()> {
    if at.symlink_metadata().is_ok_and(|about| about.is_dir()) {
        fs::remove_dir_all(at)?;
    }
    fs::rename(new, at)
}

fn beside(at: &Path) -> PathBuf {
    let name = at.file_name().unwrap_or(OsStr::new("")).as_bytes();
    // A name of the longest kind leaves no room behind it.
    let name = name.get(..name.len().min(200)).unwrap_or_default();
    at.with_file_name(OsStr::from_bytes(&[b".".as_slice(), name, BEGUN].concat()))
}

pub(super) fn remove(what: &Bytes) -> io::Result<()> {
    let at = path(what);
    let gone = match at.symlink_metadata() {
        Ok(about) if about.is_dir() => fs::remove_dir_all(&at),
        Ok(_) => fs::remove_file(&at),
        Err(error) => Err(error),
    };
    match gone {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn path(bytes: &Bytes) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.0.clone()))
}
