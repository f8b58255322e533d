//! The first token, in its file: made by the first start, whole or not at all, and by one of however many start at once.

use super::{Secret, TokenError};
use crate::clock::fresh_digits;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// More than this is no token.
const MOST: u64 = 4096;

pub(super) fn read_or_make(path: &Path) -> Result<Secret, TokenError> {
    let wrong = |what: String| TokenError::File { path: path.display().to_string(), what };
    if let Some(secret) = read(path).map_err(wrong)? {
        return Ok(secret);
    }
    make(path, &Secret::make()?).map_err(|error| wrong(error.to_string()))?;
    // Not ours, if another start was quicker.
    read(path).map_err(wrong)?.ok_or_else(|| wrong("it is gone as soon as it was made".to_owned()))
}

fn read(path: &Path) -> Result<Option<Secret>, String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err("it is a symbolic link".to_owned()),
        Err(error) => return Err(error.to_string()),
    };
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a plain file".to_owned());
    }
    if metadata.mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "others could read the first token; now they can't");
        file.set_permissions(PermissionsExt::from_mode(0o600)).map_err(|error| error.to_string())?;
    }
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text).map_err(|error| error.to_string())?;
    let secret = Secret::parse(text.trim_end_matches(['\r', '\n']));
    secret.map(Some).ok_or_else(|| "there is no token in it; remove it, and the next start makes another".to_owned())
}

/// Written under another name first: a start that is killed leaves no half of it.
fn make(path: &Path, secret: &Secret) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.new", fresh_digits()));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(CWD, &temporary, flags, Mode::RUSR | Mode::WUSR)?);
    let written = writeln!(file, "{}", secret.reveal()).and_then(|()| file.sync_all());
    // A link is made only where nothing is.
    let placed = written.and_then(|()| std::fs::hard_link(&temporary, path));
    let _ = std::fs::remove_file(&temporary);
    match placed {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn the_first_start_makes_it_private_and_the_next_finds_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let first = read_or_make(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", first.reveal()));
        assert_eq!(read_or_make(&path).unwrap(), first);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn of_many_starts_at_once_all_have_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let all: Vec<_> = std::thread::scope(|scope| {
            let starts: Vec<_> = (0..16).map(|_| scope.spawn(|| read_or_make(&path).unwrap())).collect();
            starts.into_iter().map(|start| start.join().unwrap()).collect()
        });
        assert!(all.iter().all(|secret| *secret == all[0]));
    }

    #[test]
    fn one_that_others_could_read_is_closed_to_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let first = read_or_make(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(read_or_make(&path).unwrap(), first);
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn what_is_no_token_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        for text in ["", "stead_12\n", "secret"] {
            std::fs::write(&path, text).unwrap();
            let error = read_or_make(&path).unwrap_err().to_string();
            assert!(error.contains("no token in it") && error.contains("token`"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(read_or_make(&path).unwrap_err().to_string().contains("symbolic link"));
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(read_or_make(&path).unwrap_err().to_string().contains("plain file"));
    }
}
