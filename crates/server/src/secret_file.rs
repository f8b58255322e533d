//! Secrets that lie in the data directory: readable by their owner alone, made once, never shown.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Reads a secret, or makes it. Of any number that make it at once one wins, and all get the same.
pub(crate) fn read_or_make(path: &Path, make: impl Fn() -> String) -> io::Result<String> {
    loop {
        match read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            read => return read,
        }
        let temporary = path.with_extension(format!("new-{}", random_hex(8)));
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let written = file.write_all(make().as_bytes()).and_then(|()| file.sync_all());
        // A link, not a rename: it must not take the place of another's.
        let placed = written.and_then(|()| fs::hard_link(&temporary, path));
        fs::remove_file(&temporary)?;
        match placed {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            placed => placed?,
        }
    }
}

fn read(path: &Path) -> io::Result<String> {
    let flags = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let mut file = File::options().read(true).custom_flags(flags).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() || about.mode() & 0o077 != 0 {
        let message = "others may read it; it must be a plain file with mode 0600";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let text = text.trim().to_owned();
    if text.len() < 16 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too short to be a secret"));
    }
    Ok(text)
}

/// Digits that nobody can guess.
pub(crate) fn random_hex(bytes: usize) -> String {
    let mut random = vec![0; bytes];
    // The kernel's generator fails only before it is seeded, early at boot.
    while getrandom::fill(&mut random).is_err() {
        std::thread::yield_now();
    }
    random.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_is_made_once_and_belongs_to_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let made: Vec<String> = std::thread::scope(|scope| {
            let make = || read_or_make(&path, || random_hex(32)).unwrap();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(made.iter().all(|secret| *secret == made[0] && secret.len() == 64), "{made:?}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_secret_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        read_or_make(&path, || random_hex(32)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(read_or_make(&path, || random_hex(32)).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
