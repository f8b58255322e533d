//! What of the user's own an agent is given, and what it gives back. An agent has copies: a sandbox is shared with
//! whoever works in its workspace, and a file of the user's that was mounted there could be changed for good by any of
//! them. Only files that a description calls renewed come back, because an agent that renews a login leaves the old one
//! worthless; what would be run or obeyed outside, as settings with hooks in them, never does.

use super::Shared;
use crate::error::Error;
use crate::files::Files;
use crate::store::AgentSession;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use stead_agent::Spec;

/// The largest file of credentials that is copied.
const MOST_CREDENTIALS: u64 = 1 << 20;

/// A file of the user's that an agent may have.
struct Own {
    path: PathBuf,
    mode: u32,
    /// In milliseconds.
    changed: u64,
}

/// Where a path below a home is in the sandbox.
pub(super) fn inside(home: &[u8], path: &str) -> Vec<u8> {
    [home, b"/", path.as_bytes()].concat()
}

/// Gives an agent the files that its description lists, each with the mode it has.
pub(super) async fn bring(shared: &Shared, files: &Files, home: &[u8], spec: &Spec) -> Result<(), Error> {
    for path in &spec.credential_files {
        let Some(own) = own(shared, path) else { continue };
        // The agent may have renewed its copy.
        let newer = match files.stat(inside(home, path)).await {
            Ok(there) => own.changed > there.modified_at.0,
            Err(_) => true,
        };
        if newer {
            let bytes = tokio::fs::read(&own.path).await.map_err(|error| unreadable(&own.path, &error))?;
            files.write_as(inside(home, path), bytes, own.mode).await?;
        }
    }
    Ok(())
}

/// Gives the user back what an agent has renewed, if the user hasn't meanwhile. What can't be had now is told to the log:
/// the turn it was needed for is over.
pub(super) async fn take_back(shared: &Shared, session: &AgentSession, spec: &Spec) {
    for path in &spec.renews {
        match renewed(shared, session, path).await {
            Ok(true) => tracing::info!(session = %session.id, path, "an agent has renewed a credential"),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, session = %session.id, path, "a renewed credential is not taken back"),
        }
    }
}

async fn renewed(shared: &Shared, session: &AgentSession, path: &str) -> Result<bool, Error> {
    // A login that the user doesn't have is the sandbox's own.
    let Some(own) = own(shared, path) else { return Ok(false) };
    let thread = shared.stead.thread(&session.thread).await?;
    let around = shared.stead.surroundings(&thread)?;
    let Some(home) = around.home() else { return Ok(false) };
    let files = shared.stead.files(&session.thread).await?;
    let there = match files.stat(inside(home, path)).await {
        Ok(there) => there,
        Err(Error::NotFound { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    if there.modified_at.0 <= own.changed || there.size > MOST_CREDENTIALS {
        return Ok(false);
    }
    let new = files.read(inside(home, path)).await?;
    let old = tokio::fs::read(&own.path).await.map_err(|error| unreadable(&own.path, &error))?;
    let whole = serde_json::from_slice::<serde_json::Value>(&new).is_ok_and(|value| value.is_object());
    if new == old || !whole {
        return Ok(false);
    }
    let replacing = tokio::task::spawn_blocking(move || replace(&own, &new));
    let replaced = replacing.await.map_err(|error| Error::Io(error.to_string()))?;
    replaced.map(|()| true).map_err(|error| Error::Io(format!("it can't be written: {error}")))
}

/// A plain file of the user's, if there is one and it is small enough.
fn own(shared: &Shared, path: &str) -> Option<Own> {
    let path = std::fs::canonicalize(shared.settings.home.as_ref()?.join(path)).ok()?;
    let metadata = std::fs::metadata(&path).ok()?;
    let changed = metadata.modified().unwrap_or_else(|_| SystemTime::now());
    let changed = changed.duration_since(UNIX_EPOCH).map_or(0, |at| u64::try_from(at.as_millis()).unwrap_or(u64::MAX));
    let fits = metadata.is_file() && metadata.len() <= MOST_CREDENTIALS;
    fits.then(|| Own { path, mode: metadata.permissions().mode() & 0o777, changed })
}

/// Whole or not at all, with the mode it had.
fn replace(own: &Own, bytes: &[u8]) -> std::io::Result<()> {
    let draft = own.path.with_extension(format!("stead-{}", std::process::id()));
    let write = || {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(bytes)?;
        file.set_permissions(std::fs::Permissions::from_mode(own.mode))?;
        file.sync_all()?;
        std::fs::rename(&draft, &own.path)
    };
    write().inspect_err(|_| drop(std::fs::remove_file(&draft)))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::Io(format!("`{}` can't be read: {error}", path.display()))
}
