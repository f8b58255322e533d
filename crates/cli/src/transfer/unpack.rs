//! What comes from a thread, put down here: aside first, then by one rename to where it belongs. An archive is hostile
//! until it is unpacked: no name in it leads out of the directory that is made for it.

use super::place::Target;
use super::progress::Progress;
use crate::client::ClientError;
use crate::failure::Failure;
use crate::session;
use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::Value;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use tar::EntryType;
use tokio::sync::mpsc;

/// A name beside the target for what isn't complete. Removed when dropped, if it is still there.
#[derive(Debug)]
struct Aside(PathBuf);

impl Aside {
    fn of(target: &Target) -> Result<Self, Failure> {
        Ok(Self(target.parent().join(format!(".stead-{}", session::fresh_digits()?))))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let removed = if self.0.is_dir() { fs::remove_dir_all(&self.0) } else { fs::remove_file(&self.0) };
        drop(removed);
    }
}

/// Puts a file down, with the permissions that it has there.
pub(super) async fn file(
    mut body: Incoming,
    target: &Target,
    mode: &Value,
    progress: &Progress,
) -> Result<(), Failure> {
    let aside = Aside::of(target)?;
    let (Target::New(to) | Target::Into(to)) = target;
    // Whoever asked knows where it was to be, not what lies beside it.
    let mut out = File::options().write(true).create_new(true).mode(0o600).open(&aside.0).map_err(Failure::file(to))?;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(ClientError::broken)?;
        let bytes = frame.data_ref().map_or(&[][..], |data| data.as_ref());
        out.write_all(bytes).map_err(Failure::file(to))?;
        progress.add(bytes.len());
    }
    let mode = permissions(mode).unwrap_or(0o644);
    out.set_permissions(Permissions::from_mode(mode)).map_err(Failure::file(to))?;
    fs::rename(&aside.0, to).map_err(Failure::file(to))
}

/// A mode as a number or in octal digits; never more than permissions.
fn permissions(mode: &Value) -> Option<u32> {
    let number = match mode.as_str() {
        Some(text) => u32::from_str_radix(text.trim_start_matches("0o"), 8).ok()?,
        None => u32::try_from(mode.as_u64()?).ok()?,
    };
    Some(number & 0o777)
}

/// Unpacks an archive as a directory.
pub(super) async fn directory(
    body: Incoming,
    target: &Target,
    force: bool,
    progress: &Progress,
) -> Result<(), Failure> {
    if let Target::New(to) = target
        && fs::symlink_metadata(to).is_ok()
        && !force
    {
        return Err(Failure::Exists(to.clone()));
    }
    let aside = Aside::of(target)?;
    let (send, more) = mpsc::channel(4);
    let (target, counted) = (target.clone(), progress.clone());
    let unpacking = tokio::task::spawn_blocking(move || {
        let (Target::New(to) | Target::Into(to)) = &target;
        fs::DirBuilder::new().mode(0o700).create(&aside.0).map_err(Failure::file(to))?;
        unpack(Pieces { more, piece: Bytes::new(), progress: counted }, &aside.0)?;
        settle(&aside, &target, force)
    });
    let received = receive(body, &send).await;
    drop(send);
    // A connection that broke is why the archive was cut short.
    let unpacked = unpacking.await.map_err(|error| Failure::Runtime(error.into())).flatten();
    received.and(unpacked)
}

async fn receive(mut body: Incoming, send: &mpsc::Sender<io::Result<Bytes>>) -> Result<(), Failure> {
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => {
                let Ok(bytes) = frame.into_data() else { continue };
                // Nobody takes it: unpacking has failed, and says why.
                if send.send(Ok(bytes)).await.is_err() {
                    return Ok(());
                }
            }
            Err(error) => {
                let _ = send.send(Err(io::Error::new(ErrorKind::UnexpectedEof, "it broke off"))).await;
                return Err(ClientError::broken(error).into());
            }
        }
    }
    Ok(())
}

fn unpack(archive: impl Read, into: &Path) -> Result<(), Failure> {
    let mut archive = tar::Archive::new(archive);
    // A directory that nobody may write to is made so when everything is in it.
    let mut modes = Vec::new();
    for entry in archive.entries().map_err(Failure::Archive)? {
        let mut entry = entry.map_err(Failure::Archive)?;
        let name = entry.path().map_err(Failure::Archive)?.into_owned();
        let shown = || name.display().to_string();
        let Some(inside) = inside(&name) else { return Err(Failure::Escape(shown())) };
        let mode = entry.header().mode().map_err(Failure::Archive)? & 0o777;
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "the format knows kinds without end; these are the ones we take"
        )]
        match entry.header().entry_type() {
            EntryType::Directory => {
                let path = into.join(&inside);
                if !below(into, &path) {
                    return Err(Failure::Escape(shown()));
                }
                fs::create_dir_all(&path).map_err(Failure::file(&path))?;
                modes.push((path, mode));
            }
            EntryType::Regular
            | EntryType::Continuous
            | EntryType::GNUSparse
            | EntryType::Symlink
            | EntryType::Link => {
                // False where a link of the archive itself would lead out.
                if inside.as_os_str().is_empty() || !entry.unpack_in(into).map_err(Failure::Archive)? {
                    return Err(Failure::Escape(shown()));
                }
            }
            EntryType::XGlobalHeader => {}
            _ => {
                return Err(Failure::Archive(io::Error::other(format!("`{}` is a device or something else", shown()))));
            }
        }
    }
    for (path, mode) in modes.into_iter().rev() {
        fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(Failure::file(&path))?;
    }
    Ok(())
}

/// A name in an archive as a path below where it is unpacked; `None` if it leads elsewhere.
fn inside(name: &Path) -> Option<PathBuf> {
    let part = |part| match part {
        Component::Normal(part) => Some(Some(part)),
        Component::CurDir => Some(None),
        Component::RootDir | Component::ParentDir | Component::Prefix(_) => None,
    };
    name.components().map(part).collect::<Option<Vec<_>>>().map(|parts| parts.into_iter().flatten().collect())
}

/// Whether a directory can be made here without going through a link that the archive brought along.
fn below(into: &Path, path: &Path) -> bool {
    path.ancestors().take_while(|part| *part != into).all(|part| !part.is_symlink())
}

/// Moves what is complete to where it belongs.
fn settle(aside: &Aside, target: &Target, force: bool) -> Result<(), Failure> {
    match target {
        Target::New(to) => place(&aside.0, to, force),
        Target::Into(dir) => {
            let names: Vec<_> = fs::read_dir(&aside.0)
                .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>())
                .map_err(Failure::file(&aside.0))?;
            if let Some(name) = names.iter().find(|name| !force && fs::symlink_metadata(dir.join(name)).is_ok()) {
                return Err(Failure::Exists(dir.join(name)));
            }
            names.iter().try_for_each(|name| place(&aside.0.join(name), &dir.join(name), force))
        }
    }
}

fn place(from: &Path, to: &Path, force: bool) -> Result<(), Failure> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::EXIST) if force => {
            // What was there goes with what lies aside.
            renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE).map_err(|error| Failure::file(to)(error.into()))
        }
        Err(rustix::io::Errno::EXIST) => Err(Failure::Exists(to.to_owned())),
        Err(error) => Err(Failure::file(to)(error.into())),
    }
}

/// The pieces of a body, read as one stream by a thread that may wait.
struct Pieces {
    more: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
    progress: Progress,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.more.blocking_recv() {
                Some(piece) => self.piece = piece?,
                None => return Ok(0),
            }
            self.progress.add(self.piece.len());
        }
        let length = self.piece.len().min(buffer.len());
        self.piece.copy_to_slice(buffer.get_mut(..length).unwrap_or_default());
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::pack::packed;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_tree_with_odd_names_comes_out_as_it_went_in() {
        let from = tempfile::tempdir().unwrap();
        let odd = from.path().join(OsStr::from_bytes(b"\xff \n'x"));
        fs::create_dir(&odd).unwrap();
        fs::create_dir(from.path().join("empty")).unwrap();
        let long = "n".repeat(200);
        fs::write(odd.join(&long), b"\0\xff").unwrap();
        fs::write(from.path().join("-rf"), "").unwrap();
        symlink("/nowhere/else", from.path().join("link")).unwrap();
        fs::set_permissions(odd.join(&long), Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&odd, Permissions::from_mode(0o555)).unwrap();
        let to = tempfile::tempdir().unwrap();
        unpack(packed(from.path()).as_slice(), to.path()).unwrap();
        let odd = to.path().join(odd.file_name().unwrap());
        assert_eq!(fs::read(odd.join(&long)).unwrap(), b"\0\xff");
        assert_eq!(fs::metadata(odd.join(&long)).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::metadata(&odd).unwrap().permissions().mode() & 0o777, 0o555);
        assert_eq!(fs::read_link(to.path().join("link")).unwrap(), Path::new("/nowhere/else"));
        assert!(to.path().join("empty").is_dir() && to.path().join("-rf").is_file());
    }

    fn archive(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, kind, text) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o644);
            let data = if kind.is_file() { text.as_bytes() } else { b"" };
            header.set_size(data.len() as u64);
            // Names that the builder itself would refuse.
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            if !kind.is_file() {
                header.as_mut_bytes()[157..157 + text.len()].copy_from_slice(text.as_bytes());
            }
            header.set_cksum();
            builder.append(&header, data).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn nothing_is_written_outside_whatever_the_archive_says() {
        use EntryType::{Char, Directory, Link, Regular, Symlink};
        let base = tempfile::tempdir().unwrap();
        let into = base.path().join("into");
        let out = base.path().to_str().unwrap();
        let absolute = format!("{out}/abs");
        for entries in [
            vec![("../up", Regular, "x")],
            vec![("a/../../up", Regular, "x")],
            vec![(absolute.as_str(), Regular, "x")],
            vec![("../up", Directory, "")],
            vec![("s", Symlink, out), ("s/up", Regular, "x")],
            vec![("s", Symlink, out), ("s/up", Directory, "")],
            vec![("s", Symlink, ".."), ("s/up", Regular, "x")],
            vec![("h", Link, "../secret")],
            vec![("dev", Char, "")],
            vec![(".", Regular, "x")],
        ] {
            fs::write(base.path().join("secret"), "s").unwrap();
            fs::create_dir(&into).unwrap();
            assert!(unpack(archive(&entries).as_slice(), &into).is_err(), "{entries:?}");
            fs::remove_dir_all(&into).unwrap();
            let left: Vec<_> = fs::read_dir(base.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(left, ["secret"], "{entries:?}");
        }
    }

    #[test]
    fn modes_are_read_in_either_form_and_hold_nothing_but_permissions() {
        assert_eq!(permissions(&0o104_755.into()), Some(0o755));
        assert_eq!(permissions(&"0644".into()), Some(0o644));
        assert_eq!(permissions(&"rwx".into()), None);
        assert_eq!(permissions(&Value::Null), None);
    }
}
