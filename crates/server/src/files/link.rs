//! Links with which a browser fetches one file for a while, without a token: signed with a key that is the server's own.

use crate::vault::{make_key, read_key};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt::{self, Write as _};
use std::io;
use std::path::Path;
use stead_model::clock::Timestamp;
use stead_model::ids::ThreadId;

const KEY_BYTES: usize = 32;

/// What a link allows: this file of this thread, until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link<'a> {
    pub thread: &'a ThreadId,
    /// A thread that has the name of one that was deleted is another.
    pub thread_made_at: Timestamp,
    pub path: &'a [u8],
    pub expires_at: Timestamp,
}

#[derive(Clone)]
pub struct LinkKey([u8; KEY_BYTES]);

impl fmt::Debug for LinkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkKey(***)")
    }
}

impl LinkKey {
    /// The key of a data directory; made if there is none. Links outlive the server that made them.
    pub fn load(data: &Path) -> io::Result<Self> {
        let path = data.join("link.key");
        match read_key(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut key = [0; KEY_BYTES];
                getrandom::fill(&mut key).map_err(io::Error::other)?;
                make_key(&path, &key)?;
                // Whoever was first.
                read_key(&path).map(Self)
            }
            read => read.map(Self),
        }
    }

    /// In hexadecimal digits.
    pub fn sign(&self, link: &Link<'_>) -> String {
        let sum = self.sum(link).map(|sum| sum.finalize().into_bytes());
        sum.iter().flatten().fold(String::new(), |mut digits, byte| {
            let _ = write!(digits, "{byte:02x}");
            digits
        })
    }

    /// Compared in a time that tells nothing.
    pub fn allows(&self, link: &Link<'_>, signature: &str, now: Timestamp) -> bool {
        let Some(bytes) = digits(signature) else { return false };
        let signed = self.sum(link).is_some_and(|sum| sum.verify_slice(&bytes).is_ok());
        signed && now < link.expires_at
    }

    fn sum(&self, link: &Link<'_>) -> Option<Hmac<Sha256>> {
        let mut sum = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        sum.update(b"stead download 1\0");
        for part in [link.thread.as_str().as_bytes(), link.path] {
            // With its length, so that no byte can change sides.
            sum.update(&(part.len() as u64).to_le_bytes());
            sum.update(part);
        }
        sum.update(&link.thread_made_at.0.to_le_bytes());
        sum.update(&link.expires_at.0.to_le_bytes());
        Some(sum)
    }
}

fn digits(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok().filter(|_| pair.len() == 2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_allows_what_was_signed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let key = LinkKey::load(dir.path()).unwrap();
        let (one, other) = (ThreadId::parse("t").unwrap(), ThreadId::parse("ta").unwrap());
        let moment = Timestamp(1000);
        let link = Link { thread: &one, thread_made_at: Timestamp(5), path: b"a/b", expires_at: moment };
        let signature = key.sign(&link);
        let now = Timestamp(999);
        assert!(key.allows(&link, &signature, now));
        assert!(LinkKey::load(dir.path()).unwrap().allows(&link, &signature, now), "also by the next server");
        assert!(!key.allows(&link, &signature, moment), "its time is over");
        let others = [
            Link { thread: &other, path: b"/b", ..link },
            Link { path: b"a/c", ..link },
            Link { expires_at: Timestamp(2000), ..link },
            Link { thread_made_at: Timestamp(6), ..link },
        ];
        for other in others {
            assert!(!key.allows(&other, &signature, now), "{other:?}");
        }
        for wrong in
            ["", "0", "zz", &signature[2..], &signature.replace(['0', '1', '2', '3'], "4"), &format!("{signature}00")]
        {
            assert!(!key.allows(&link, wrong, now), "{wrong}");
        }
        let elsewhere = tempfile::tempdir().unwrap();
        assert!(!LinkKey::load(elsewhere.path()).unwrap().allows(&link, &signature, now), "of another server");
    }
}
