//! Files of the host's `/etc` that not everybody may read: password hashes, host keys, private certificates. The user
//! inside usually can't either; where it can, because it is root outside and nothing else could be had, covers keep it
//! from it. They are the second lock: one is lost when the host replaces the file below it.

use super::Failed;
use super::mount::{self, Access};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// In the scratch root: an empty file and an empty directory that nobody may read.
const NOTHING: &str = "/nothing";
const NOWHERE: &str = "/nowhere";

pub(super) fn prepare() -> Result<(), Failed> {
    mount::write(Path::new(NOTHING), 0o600, "")?;
    let made = mount::make_dir(Path::new(NOWHERE));
    let closed = |path: &str| fs::set_permissions(path, fs::Permissions::from_mode(0o000));
    made.and_then(|()| closed(NOWHERE)).and_then(|()| closed(NOTHING)).map_err(Failed::at("make an empty cover"))
}

/// Covers everything below `top` that the world may not read.
pub(super) fn private_files(top: &Path) -> Result<(), Failed> {
    let entries = match fs::read_dir(top) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failed::at(format!("look through `{}`", shown(top)))(error)),
    };
    for entry in entries {
        let path = entry.map_err(Failed::at(format!("look through `{}`", shown(top))))?.path();
        // One that is gone by now needs no cover.
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        let mode = meta.permissions().mode();
        if meta.is_symlink() {
            continue;
        }
        if meta.is_dir() {
            if mode & 0o005 == 0o005 { private_files(&path)? } else { lay_over(Path::new(NOWHERE), &path)? }
        } else if mode & 0o004 == 0 || !meta.is_file() {
            cover_file(&path)?;
        }
    }
    Ok(())
}

pub(super) fn cover_file(at: &Path) -> Result<(), Failed> {
    lay_over(Path::new(NOTHING), at)
}

pub(super) fn cover_dir(at: &Path) -> Result<(), Failed> {
    lay_over(Path::new(NOWHERE), at)
}

pub(super) fn lay_over(ours: &Path, at: &Path) -> Result<(), Failed> {
    let tree = mount::tree(ours)?;
    mount::restrict(&tree, Access::ReadOnly).map_err(Failed::at(format!("cover `{}`", shown(at))))?;
    match mount::attach(&tree, at) {
        // Somebody of the host removed it just now.
        Err(failed) if failed.source.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn shown(path: &Path) -> String {
    Path::new("/").join(path.strip_prefix(mount::NEW).unwrap_or(path)).display().to_string()
}
