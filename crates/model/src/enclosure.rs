//! What an enclosed steward has around it: which parts of the host it sees, as whom, and how much of everything.
//!
//! Paths of the host are as the one who starts it sees them; paths of the inside begin at the root that is made for it.

use minicbor::{Decode, Encode};
use std::path::{Path, PathBuf};

/// Where the program lies inside.
pub const PROGRAM: &str = "/run/stead/stead";

/// Where the steward's directory lies inside.
pub const PLACE: &str = "/run/stead/place";

/// What `/tmp`, `/var`, `/run` and shared memory may hold together, if nothing else is said.
pub const TMP_BYTES: u64 = 1 << 30;

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Enclosure {
    #[n(0)]
    pub hostname: String,
    /// Host: the program that is the steward; inside it is [`PROGRAM`], read-only.
    #[cbor(n(1), with = "path")]
    pub program: PathBuf,
    /// Host: the steward's directory; inside it is [`PLACE`].
    #[cbor(n(2), with = "path")]
    pub place: PathBuf,
    /// Host: what is worked on.
    #[cbor(n(3), with = "path")]
    pub workspace: PathBuf,
    /// Inside: where the workspace is.
    #[cbor(n(4), with = "path")]
    pub mount_path: PathBuf,
    /// Host: what is kept of the user's own.
    #[cbor(n(5), with = "path")]
    pub home: PathBuf,
    /// Inside: where that is.
    #[cbor(n(6), with = "path")]
    pub home_path: PathBuf,
    #[n(7)]
    pub user: User,
    #[n(8)]
    pub owner: Owner,
    #[n(9)]
    pub network: Network,
    /// Host and inside, at the same path; read-only.
    #[cbor(n(10), with = "paths")]
    pub read_only: Vec<PathBuf>,
    /// What `/tmp`, `/var`, `/run` and shared memory may hold together; it is memory.
    #[n(11)]
    pub tmp_bytes: u64,
    /// Host: `cgroup.procs` files to enter before anything else.
    #[cbor(n(12), with = "paths")]
    pub cgroup_procs: Vec<PathBuf>,
    /// Processes and threads, all together. The kernel exempts its own root: see [`Owner::Same`].
    #[n(13)]
    pub max_processes: Option<u64>,
    /// Address space of each process, in bytes: for where no cgroup can limit the memory of all.
    #[n(14)]
    pub max_memory: Option<u64>,
    /// Open files of each process.
    #[n(15)]
    pub max_files: Option<u64>,
    /// More directories of the host to work in.
    #[n(16)]
    #[cbor(default)]
    pub more: Vec<Share>,
}

/// A directory of the host, and where it is inside; both may write to it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Share {
    #[cbor(n(0), with = "path")]
    pub host: PathBuf,
    #[cbor(n(1), with = "path")]
    pub inside: PathBuf,
}

impl Enclosure {
    /// The usual one: user `agent`, the workspace at `/workspace`, the host's network, no limits but that of `/tmp`.
    pub fn new(program: &Path, place: &Path, workspace: &Path, home: &Path) -> Self {
        Self {
            hostname: "stead".to_owned(),
            program: program.to_owned(),
            place: place.to_owned(),
            workspace: workspace.to_owned(),
            mount_path: PathBuf::from("/workspace"),
            home: home.to_owned(),
            home_path: PathBuf::from("/home/agent"),
            user: User::default(),
            owner: Owner::Apart,
            network: Network::Host,
            read_only: Vec::new(),
            tmp_bytes: TMP_BYTES,
            cgroup_procs: Vec::new(),
            max_processes: None,
            max_memory: None,
            max_files: None,
            more: Vec::new(),
        }
    }
}

/// Who one is inside.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct User {
    #[n(0)]
    pub uid: u32,
    #[n(1)]
    pub gid: u32,
    #[n(2)]
    pub name: String,
}

impl Default for User {
    fn default() -> Self {
        Self { uid: 1000, gid: 1000, name: "agent".to_owned() }
    }
}

/// Who that is for the host's kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Owner {
    /// If root starts it: a user that owns nothing, with files shown to it as if they were its own. If that can't be
    /// had (an ordinary user starts it, or a file system can't show files so) it is as `Same`.
    #[n(0)]
    Apart,
    /// Whoever starts it.
    #[n(1)]
    Same,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Network {
    /// The host's interfaces, addresses and ports.
    #[n(0)]
    Host,
    /// One of its own with nothing in it.
    #[n(1)]
    None,
}

/// A path is bytes: not every file name is text.
mod path {
    use minicbor::decode::{Decoder, Error as DecodeError};
    use minicbor::encode::{Encoder, Error as EncodeError, Write};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    pub(super) fn encode<C, W: Write>(path: &Path, e: &mut Encoder<W>, _: &mut C) -> Result<(), EncodeError<W::Error>> {
        e.bytes(path.as_os_str().as_bytes())?.ok()
    }

    pub(super) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<PathBuf, DecodeError> {
        Ok(PathBuf::from(OsStr::from_bytes(d.bytes()?)))
    }
}

mod paths {
    use super::path;
    use minicbor::decode::{Decoder, Error as DecodeError};
    use minicbor::encode::{Encoder, Error as EncodeError, Write};
    use std::path::PathBuf;

    pub(super) fn encode<C, W: Write>(
        paths: &[PathBuf],
        e: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        e.array(paths.len() as u64)?;
        for item in paths {
            path::encode(item, e, context)?;
        }
        Ok(())
    }

    pub(super) fn decode<C>(d: &mut Decoder<'_>, context: &mut C) -> Result<Vec<PathBuf>, DecodeError> {
        let count = d.array()?.ok_or_else(|| DecodeError::message("paths without a count"))?;
        (0..count).map(|_| path::decode(d, context)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn an_enclosure_comes_back_as_it_was_written() {
        let odd = PathBuf::from(OsStr::from_bytes(b"/data/\xff \n"));
        let enclosure = Enclosure {
            network: Network::None,
            owner: Owner::Same,
            read_only: vec![odd.clone(), PathBuf::from("/srv/models")],
            cgroup_procs: vec![PathBuf::from("/sys/fs/cgroup/stead/a/cgroup.procs")],
            max_processes: Some(100),
            max_memory: Some(1 << 30),
            ..Enclosure::new(Path::new("/usr/bin/stead"), &odd, Path::new("/w"), Path::new("/h"))
        };
        let bytes = minicbor::to_vec(&enclosure).unwrap();
        assert_eq!(minicbor::decode::<Enclosure>(&bytes).unwrap(), enclosure);
    }
}
