//! Reading the headers of an archive: what an entry is, what it is called, and whether it may be in one.

use super::super::failure::Failure;
use super::super::ground::MAX_DEPTH;
use super::stream::{Stream, incomplete};
use crate::error::Error;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use tar::{EntryType, Header, PaxExtensions};

pub(super) const BLOCK: usize = 512;
/// Longer than any path that is as deep as we go, and than any note that a tar writes.
const MAX_NOTE: u64 = 128 * 1024;

/// What is said of an entry in front of it, where its header has no room.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) path: Option<Vec<u8>>,
    pub(super) target: Option<Vec<u8>>,
    /// Where the header's own can't say it.
    pub(super) size: Option<u64>,
}

impl Notes {
    /// Whether it was such a note.
    pub(super) fn take(&mut self, kind: EntryType, size: u64, stream: &mut Stream) -> Result<bool, Failure> {
        let is_note = kind.is_gnu_longname()
            || kind.is_gnu_longlink()
            || kind.is_pax_local_extensions()
            || kind.is_pax_global_extensions();
        if !is_note {
            return Ok(false);
        }
        if size > MAX_NOTE {
            return Err(Error::TooLarge(format!("the archive has a note of {size} bytes about a file")).into());
        }
        let mut text = vec![0; usize::try_from(size).unwrap_or(0)];
        stream.fill(&mut text)?;
        skip(stream, padding(size))?;
        let until_nul = |text: Vec<u8>| text.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        if kind.is_gnu_longname() {
            self.path = Some(until_nul(text));
        } else if kind.is_gnu_longlink() {
            self.target = Some(until_nul(text));
        } else {
            for extension in PaxExtensions::new(&text) {
                let extension = extension.map_err(|_| malformed())?;
                match extension.key().map_err(|_| malformed())? {
                    // Said for all entries, a name makes no sense.
                    "path" if kind.is_pax_local_extensions() => self.path = Some(extension.value_bytes().to_vec()),
                    "linkpath" if kind.is_pax_local_extensions() => {
                        self.target = Some(extension.value_bytes().to_vec());
                    }
                    "size" if kind.is_pax_local_extensions() => {
                        let size = extension.value().ok().and_then(|text| text.parse().ok());
                        self.size = Some(size.ok_or_else(malformed)?);
                    }
                    "size" => return Err(malformed()),
                    key if key.starts_with("GNU.sparse") => {
                        let message = "an entry has holes in the manner of POSIX; `tar --format=gnu --sparse` writes them so \
                                       that they are taken, or leave `--sparse` out";
                        return Err(Error::Invalid(message.to_owned()).into());
                    }
                    _ => {}
                }
            }
        }
        Ok(true)
    }
}

/// The size, if the header is one.
pub(super) fn checked(header: &Header, block: &[u8; BLOCK]) -> Result<u64, Failure> {
    // The sum is made with spaces where it is itself.
    let sum: u32 =
        block.iter().enumerate().map(|(at, byte)| u32::from(if (148..156).contains(&at) { b' ' } else { *byte })).sum();
    if header.cksum().ok() != Some(sum) {
        return Err(malformed());
    }
    header.entry_size().map_err(|_| malformed())
}

pub(super) fn malformed() -> Failure {
    Error::Invalid("this is not a tar archive, or a broken one".to_owned()).into()
}

pub(super) fn refused(path: &[u8], message: &str) -> Failure {
    let path = String::from_utf8_lossy(path).into_owned();
    Error::Path { path, message: message.to_owned() }.into()
}

/// Why an entry of this kind is in no workspace.
pub(super) fn unwanted(kind: EntryType) -> Option<&'static str> {
    if kind.is_character_special() || kind.is_block_special() {
        Some("it is a device")
    } else if kind.is_fifo() {
        Some("it is a pipe")
    } else if is_file(kind) || kind.is_dir() || kind.is_symlink() || kind.is_hard_link() {
        None
    } else {
        Some("it is neither a file nor a directory nor a link")
    }
}

pub(super) fn is_file(kind: EntryType) -> bool {
    kind.is_file() || kind.is_contiguous() || kind.is_gnu_sparse()
}

/// An entry's path below the stage.
pub(super) fn parts(path: &[u8], longest: usize) -> Result<Vec<OsString>, &'static str> {
    if path.starts_with(b"/") {
        return Err("it is absolute");
    }
    if path.contains(&0) {
        return Err("it has a NUL in it");
    }
    if path.len() > longest {
        return Err("it is longer than 4096 bytes");
    }
    let parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let parts: Vec<_> = parts.map(|part| OsString::from_vec(part.to_vec())).collect();
    if parts.iter().any(|part| part == "..") {
        return Err("it has `..` in it");
    }
    if parts.len() > MAX_DEPTH {
        return Err("it is more than 256 directories deep");
    }
    Ok(parts)
}

/// The directories above an entry.
pub(super) fn above(parts: &[OsString]) -> OsString {
    let above = parts.split_last().map(|(_, above)| above).unwrap_or_default();
    above.iter().fold(OsString::new(), |mut path, part| {
        path.push(part);
        path.push("/");
        path
    })
}

pub(super) fn padding(size: u64) -> u64 {
    size.next_multiple_of(BLOCK as u64) - size
}

/// Passes over what an entry carries that carries nothing.
pub(super) fn skip(stream: &mut Stream, size: u64) -> Result<(), Failure> {
    let copied = std::io::copy(&mut stream.take(size), &mut std::io::sink()).map_err(incomplete)?;
    if copied < size { Err(incomplete(std::io::ErrorKind::UnexpectedEof.into())) } else { Ok(()) }
}
