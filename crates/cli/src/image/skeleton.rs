//! What every image has beside its programs, and the one that is busybox and nothing else.

use super::{BuildError, output, which};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use stead_server::steward_program::is_static;
use tar::{Builder, EntryType, Header};

/// Directories, with their modes.
const DIRECTORIES: [(&str, u32); 12] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("usr", 0o755),
    ("usr/bin", 0o755),
    ("var", 0o755),
    ("var/tmp", 0o1777),
];

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";
const GROUP: &str = "root:x:0:\nnobody:x:65534:\n";
const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files dns\n";

/// An archive of a tree that belongs to root, as it is being written.
pub(super) struct Tree<W: Write> {
    builder: Builder<W>,
}

impl<W: Write> Tree<W> {
    pub(super) fn begin(out: W) -> Result<Self, BuildError> {
        let mut tree = Self { builder: Builder::new(out) };
        for (path, mode) in DIRECTORIES {
            tree.directory(path, mode)?;
        }
        for (path, text) in [("etc/passwd", PASSWD), ("etc/group", GROUP), ("etc/nsswitch.conf", NSSWITCH)] {
            let header = header(EntryType::Regular, 0o644, text.len() as u64);
            tree.append(header, path, text.as_bytes())?;
        }
        Ok(tree)
    }

    pub(super) fn directory(&mut self, path: &str, mode: u32) -> Result<(), BuildError> {
        self.append(header(EntryType::Directory, mode, 0), &format!("{path}/"), io::empty())
    }

    pub(super) fn link(&mut self, path: &str, to: &str) -> Result<(), BuildError> {
        let mut header = header(EntryType::Symlink, 0o777, 0);
        self.builder.append_link(&mut header, path, to).map_err(BuildError::Archive)
    }

    /// A file of this machine, whatever links lead to it.
    pub(super) fn file(&mut self, path: &str, from: &Path, mode: u32) -> Result<(), BuildError> {
        let unreadable = |source| BuildError::Unreadable { path: from.to_owned(), source };
        let file = File::open(from).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        self.append(header(EntryType::Regular, mode, length), path, file)
    }

    fn append(&mut self, mut header: Header, path: &str, data: impl io::Read) -> Result<(), BuildError> {
        self.builder.append_data(&mut header, path, data).map_err(BuildError::Archive)
    }

    pub(super) fn end(mut self) -> Result<(), BuildError> {
        self.builder.finish().map_err(BuildError::Archive)
    }
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    header
}

/// A shell and some hundred tools in one file.
pub(super) fn busybox(out: impl Write) -> Result<(), BuildError> {
    let program = which("busybox").ok_or_else(|| BuildError::NoProgram("busybox".to_owned()))?;
    if !is_static(&program) {
        return Err(BuildError::NotStatic(program));
    }
    let applets = output("busybox", Command::new(&program).arg("--list"))?;
    let mut tree = Tree::begin(out)?;
    tree.directory("bin", 0o755)?;
    tree.file("bin/busybox", &program, 0o755)?;
    for applet in applets.lines().filter(|name| !name.is_empty() && !name.contains('/') && *name != "busybox") {
        tree.link(&format!("bin/{applet}"), "busybox")?;
    }
    // Where scripts look for it.
    tree.link("usr/bin/env", "/bin/busybox")?;
    tree.end()
}
