//! Encrypts secrets for the store, and reads them back. What is encrypted says which terminal and which name it is for: a
//! row that was put in another's place, or altered, is told and not used.
//!
//! XChaCha20-Poly1305, whose nonces are long enough to be drawn at random. The key is a file beside the database, made
//! when the first secret is: a copy of the database alone tells nothing.

use crate::store::Sealed;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use stead_model::env::Secret;
use stead_model::ids::{ProjectId, TerminalId};
use stead_model::state::Bytes;

const KEY: usize = 32;
const NONCE: usize = 24;

#[derive(Debug, Clone, thiserror::Error)]
pub enum VaultError {
    #[error(
        "secret `{name}` of terminal `{terminal}` can't be read: it was altered, or encrypted with another key; set it again, or remove it"
    )]
    Altered { terminal: TerminalId, name: String },
    #[error("the credentials of the repository of project `{project}` can't be read: they were altered")]
    Credentials { project: ProjectId },
    #[error("the key of the secrets, `{path}`, is missing; put it back, or set the secrets again")]
    Missing { path: String },
    #[error("the key of the secrets, `{path}`, can't be used: {what}")]
    Key { path: String, what: String },
    #[error("no random numbers can be had: {0}")]
    Random(String),
}

/// Where the key is.
pub struct Vault {
    place: Option<PathBuf>,
    key: Mutex<Option<XChaCha20Poly1305>>,
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vault").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Vault {
    /// With its key in a file, which is made when it is first needed.
    pub fn at(place: PathBuf) -> Self {
        Self { place: Some(place), key: Mutex::default() }
    }

    /// With a key that is gone with the process, and so are the secrets: for tests.
    pub fn in_memory() -> Self {
        Self { place: None, key: Mutex::default() }
    }

    pub(crate) fn seal(&self, terminal: &TerminalId, name: &Bytes, value: &Secret) -> Result<Sealed, VaultError> {
        self.encrypt(&place_of(terminal, name), value)
    }

    pub(crate) fn open(&self, terminal: &TerminalId, name: &Bytes, sealed: &Sealed) -> Result<Secret, VaultError> {
        let altered = || VaultError::Altered { terminal: terminal.clone(), name: name.escape_ascii().to_string() };
        self.decrypt(&place_of(terminal, name), sealed)?.ok_or_else(altered)
    }

    /// What lets us clone a project's repository.
    pub(crate) fn seal_credentials(&self, project: &ProjectId, value: &Secret) -> Result<Sealed, VaultError> {
        self.encrypt(&repository_of(project), value)
    }

    pub(crate) fn open_credentials(&self, project: &ProjectId, sealed: &Sealed) -> Result<Secret, VaultError> {
        let opened = self.decrypt(&repository_of(project), sealed)?;
        opened.ok_or_else(|| VaultError::Credentials { project: project.clone() })
    }

    fn encrypt(&self, place: &[u8], value: &Secret) -> Result<Sealed, VaultError> {
        let cipher = self.cipher(Absent::Make)?;
        let nonce: [u8; NONCE] = random()?;
        let payload = Payload { msg: value.reveal(), aad: place };
        let bytes = cipher.encrypt(&XNonce::from(nonce), payload);
        let bytes = bytes.map_err(|_| VaultError::Random("the cipher refused".to_owned()))?;
        Ok(Sealed { nonce: nonce.to_vec(), bytes })
    }

    /// `None`: it was altered, or is another's.
    fn decrypt(&self, place: &[u8], sealed: &Sealed) -> Result<Option<Secret>, VaultError> {
        let cipher = self.cipher(Absent::Refuse)?;
        let Ok(nonce) = <[u8; NONCE]>::try_from(sealed.nonce.as_slice()) else { return Ok(None) };
        let payload = Payload { msg: &sealed.bytes, aad: place };
        Ok(cipher.decrypt(&XNonce::from(nonce), payload).ok().map(Secret::new))
    }

    fn cipher(&self, absent: Absent) -> Result<XChaCha20Poly1305, VaultError> {
        let mut key = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cipher) = &*key {
            return Ok(cipher.clone());
        }
        let bytes = match &self.place {
            None => random()?,
            Some(place) => from_file(place, absent)?,
        };
        Ok(key.insert(XChaCha20Poly1305::new(&Key::from(bytes))).clone())
    }
}

/// What to do without a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Absent {
    Make,
    /// There are secrets that were encrypted with it: another one is of no use.
    Refuse,
}

fn place_of(terminal: &TerminalId, name: &[u8]) -> Vec<u8> {
    [b"stead secret 1\0", terminal.as_str().as_bytes(), b"\0", name].concat()
}

fn repository_of(project: &ProjectId) -> Vec<u8> {
    [b"stead repository 1\0", project.as_str().as_bytes()].concat()
}

fn random<const N: usize>() -> Result<[u8; N], VaultError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| VaultError::Random(error.to_string()))?;
    Ok(bytes)
}

fn from_file(path: &Path, absent: Absent) -> Result<[u8; KEY], VaultError> {
    let shown = || path.display().to_string();
    let failed = |error: io::Error| VaultError::Key { path: shown(), what: error.to_string() };
    match read_key(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if absent == Absent::Refuse {
                return Err(VaultError::Missing { path: shown() });
            }
            make_key(path, &random()?).map_err(failed)?;
            // Whoever was first.
            read_key(path).map_err(failed)
        }
        read => read.map_err(failed),
    }
}

pub(crate) fn read_key(path: &Path) -> io::Result<[u8; KEY]> {
    let flags = rustix::fs::OFlags::NOFOLLOW.union(rustix::fs::OFlags::NONBLOCK).bits().cast_signed();
    let mut file = File::options().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() || meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it is not a plain file of ours"));
    }
    if meta.permissions().mode().trailing_zeros() < 6 {
        return Err(io::Error::other("others can read it; make it private (chmod 600)"));
    }
    let mut key = [0; KEY];
    if meta.len() != KEY as u64 {
        return Err(io::Error::other(format!("it has {} bytes, not {KEY}", meta.len())));
    }
    file.read_exact(&mut key)?;
    Ok(key)
}

/// Whole and on disk, or not at all; one that is there already stays.
pub(crate) fn make_key(path: &Path, key: &[u8; KEY]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", crate::clock::fresh_digits()));
    let temporary = dir.join(name);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let made =
        file.write_all(key).and_then(|()| file.sync_all()).and_then(|()| match fs::hard_link(&temporary, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        });
    let removed = fs::remove_file(&temporary);
    made?;
    removed?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terminal(byte: u8) -> TerminalId {
        TerminalId::made_of([byte; 8])
    }

    fn altered(read: &Result<Secret, VaultError>) -> bool {
        matches!(read, Err(VaultError::Altered { .. }))
    }

    #[test]
    fn what_was_sealed_is_read_only_as_it_was_and_where_it_was() {
        let vault = Vault::in_memory();
        let (name, value) = (Bytes::from("TOKEN"), Secret::new("value"));
        let sealed = vault.seal(&terminal(1), &name, &value).unwrap();
        assert_eq!(vault.open(&terminal(1), &name, &sealed).unwrap(), value);
        assert!(altered(&vault.open(&terminal(2), &name, &sealed)), "another terminal's");
        assert!(altered(&vault.open(&terminal(1), &Bytes::from("OTHER"), &sealed)), "another name's");
        for at in 0..sealed.bytes.len() {
            let mut bytes = sealed.bytes.clone();
            bytes[at] ^= 1;
            assert!(altered(&vault.open(&terminal(1), &name, &Sealed { bytes, ..sealed.clone() })));
        }
        let short = Sealed { nonce: vec![0; 3], ..sealed.clone() };
        assert!(altered(&vault.open(&terminal(1), &name, &short)));
        assert!(altered(&Vault::in_memory().open(&terminal(1), &name, &sealed)), "another key");
        assert_ne!(vault.seal(&terminal(1), &name, &value).unwrap(), sealed, "never the same twice");
    }

    #[test]
    fn the_key_is_made_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret.key");
        let name = Bytes::from("A");
        let sealed = Vault::at(path.clone()).seal(&terminal(1), &name, &Secret::new("v")).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
        assert_eq!(Vault::at(path.clone()).open(&terminal(1), &name, &sealed).unwrap(), Secret::new("v"));
        let before = fs::read(&path).unwrap();
        Vault::at(path.clone()).seal(&terminal(1), &name, &Secret::new("w")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_key_that_is_missing_open_to_others_or_cut_short_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret.key");
        let name = Bytes::from("A");
        let sealed = Vault::at(path.clone()).seal(&terminal(1), &name, &Secret::new("v")).unwrap();
        let open = || Vault::at(path.clone()).open(&terminal(1), &name, &sealed).unwrap_err().to_string();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(open().contains("chmod 600"), "{}", open());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, b"short").unwrap();
        assert!(open().contains("5 bytes"), "{}", open());
        fs::remove_file(&path).unwrap();
        assert!(open().contains("is missing"), "{}", open());
        assert!(!path.exists(), "reading makes none");
    }
}
