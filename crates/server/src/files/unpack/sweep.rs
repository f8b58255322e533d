//! Removes what servers that died were unpacking, or had not removed yet. A stage that somebody works in is locked.

use super::super::change::remove_below_while;
use super::super::failure::Failure;
use super::super::spot::beneath;
use super::stage::STAGE_PREFIX;
use crate::error::Error;
use rustix::fs::{Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tokio_util::sync::CancellationToken;

/// Sweeps a directory in which trees are unpacked, if there is one.
pub(crate) fn sweep_stages(dir: &Path, stop: &CancellationToken) -> Result<(), Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let swept = match rustix::fs::open(dir, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened.map_err(Failure::from).and_then(|dir| sweep_dir(&dir, stop)),
    };
    swept.map_err(|failure| failure.at(dir.as_os_str().as_bytes()))
}

pub(super) fn sweep_dir(above: &OwnedFd, stop: &CancellationToken) -> Result<(), Failure> {
    for entry in Dir::read_from(above)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if !name.as_bytes().starts_with(STAGE_PREFIX.as_bytes()) {
            continue;
        }
        let Ok(dir) = beneath(above, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW) else { continue };
        if rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok()
            && let Err(failure) = remove_below_while(above, name, &|| !stop.is_cancelled())
        {
            tracing::warn!(?failure, name = %name.display(), "what a server left that died can't be removed");
        }
    }
    Ok(())
}
