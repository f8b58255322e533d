//! A small Debian, made by debootstrap where that is installed.

use super::{BuildError, which};
use std::fs::DirBuilder;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(super) fn write(suite: &str, mut out: impl Write) -> Result<(), BuildError> {
    let program = which("debootstrap").ok_or_else(|| BuildError::NoProgram("debootstrap".to_owned()))?;
    let tree = Scratch::new()?;
    super::output("debootstrap", Command::new(program).args(["--variant=minbase", suite]).arg(&tree.0))?;
    // What was fetched to make it is of no use in it, and devices are the engine's.
    let leave_out = ["./dev/*", "./proc/*", "./sys/*", "./var/cache/apt/archives/*.deb", "./var/lib/apt/lists/*"];
    let mut tar = Command::new("tar");
    tar.args(leave_out.map(|path| format!("--exclude={path}"))).args(["--numeric-owner", "-C"]).arg(&tree.0);
    let spawned =
        tar.args(["-cf", "-", "."]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut tar = spawned.map_err(|_| BuildError::NoProgram("tar".to_owned()))?;
    if let Some(mut stdout) = tar.stdout.take() {
        io::copy(&mut stdout, &mut out).map_err(BuildError::Archive)?;
    }
    let ended = tar.wait_with_output().map_err(BuildError::Archive)?;
    if ended.status.success() {
        return Ok(());
    }
    Err(BuildError::Failed { program: "tar", said: String::from_utf8_lossy(&ended.stderr).trim().to_owned() })
}

/// A directory of its own, gone with the value.
struct Scratch(PathBuf);

impl Scratch {
    /// In `/var/tmp`: it holds a system, for which a `/tmp` in memory may be too small.
    fn new() -> Result<Self, BuildError> {
        let path = Path::new("/var/tmp").join(format!("stead-image-{}", std::process::id()));
        let unusable = |source| BuildError::Unreadable { path: path.clone(), source };
        DirBuilder::new().mode(0o755).create(&path).map_err(unusable)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
