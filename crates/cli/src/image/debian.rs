//! A small Debian, made by debootstrap where that is installed.

use super::{BuildError, which};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use stead_server::provider::docker::Root;

/// What was fetched to make it is of no use in it.
const LEFT_OVER: [&str; 2] = ["var/cache/apt/archives", "var/lib/apt/lists"];

pub(super) fn install(suite: &str, mirror: Option<&str>) -> Result<Scratch, BuildError> {
    let program = which("debootstrap").ok_or_else(|| BuildError::NoProgram("debootstrap".to_owned()))?;
    let tree = Scratch::new()?;
    let mut command = Command::new(program);
    command.args(["--variant=minbase", suite]).arg(&tree.0).args(mirror);
    super::output("debootstrap", &mut command)?;
    for dir in LEFT_OVER.map(|dir| tree.0.join(dir)) {
        let unreadable = |source| BuildError::Unreadable { path: dir.clone(), source };
        for entry in fs::read_dir(&dir).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.is_file() {
                fs::remove_file(&path).map_err(unreadable)?;
            }
        }
    }
    Ok(tree)
}

/// A directory of its own, gone with the value.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// In `/var/tmp`: it holds a system, for which a `/tmp` in memory may be too small.
    fn new() -> Result<Self, BuildError> {
        let path = Path::new("/var/tmp").join(format!("stead-image-{}", std::process::id()));
        let unusable = |source| BuildError::Unreadable { path: path.clone(), source };
        DirBuilder::new().mode(0o755).create(&path).map_err(unusable)?;
        Ok(Self(path))
    }

    pub(super) fn root(&self) -> Root {
        Root::new(&self.0)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
