//! Where the providers of this machine keep things.
//!
//! ```text
//! WORKSPACES/W/files          what is /workspace inside; the same for every provider, so a thread can move
//! WORKSPACES/W/home           what is HOME inside
//! DATA/leases/L/place         the steward's directory: socket, journal; outlives instances
//! DATA/leases/L/turn          locked by whoever makes, ends or removes an instance of it
//! DATA/leases/L/instance      which instance runs over it, as `ID KEEPER-PID START-TIME WORKSPACE`
//! ```

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use stead_model::ids::{InstanceId, LeaseId};

#[derive(Debug, Clone)]
pub(super) struct Places {
    /// The provider's own.
    pub(super) data: PathBuf,
    /// Shared with others.
    pub(super) workspaces: PathBuf,
}

/// Which processes are an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Occupant {
    pub(super) instance: InstanceId,
    pub(super) keeper: i32,
    pub(super) start_time: u64,
    pub(super) workspace: String,
}

impl Places {
    pub(super) fn files(&self, workspace: &str) -> PathBuf {
        self.workspace(workspace).join("files")
    }

    pub(super) fn home(&self, workspace: &str) -> PathBuf {
        self.workspace(workspace).join("home")
    }

    pub(super) fn workspace(&self, workspace: &str) -> PathBuf {
        self.workspaces.join(workspace)
    }

    pub(super) fn lease(&self, lease: &LeaseId) -> PathBuf {
        self.data.join("leases").join(lease.as_str())
    }

    pub(super) fn steward(&self, lease: &LeaseId) -> PathBuf {
        self.lease(lease).join("place")
    }

    pub(super) fn make(&self, lease: &LeaseId, workspace: &str) -> io::Result<()> {
        for path in [self.files(workspace), self.home(workspace), self.steward(lease)] {
            DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        }
        Ok(())
    }

    /// One at a time makes or ends what runs over a lease's directory, of all servers. `None` if there is no directory.
    pub(super) fn turn(&self, lease: &LeaseId) -> io::Result<Option<File>> {
        let file = File::options().write(true).create(true).truncate(false).open(self.lease(lease).join("turn"));
        let file = match file {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        file.lock()?;
        Ok(Some(file))
    }

    pub(super) fn occupy(&self, lease: &LeaseId, occupant: &Occupant) -> io::Result<()> {
        let path = self.lease(lease).join("instance");
        let text =
            format!("{} {} {} {}\n", occupant.instance, occupant.keeper, occupant.start_time, occupant.workspace);
        let temporary = path.with_extension("new");
        fs::write(&temporary, text)?;
        fs::rename(temporary, path)
    }

    /// Absent if nobody has been there, or what is written there makes no sense.
    pub(super) fn occupant(&self, lease: &LeaseId) -> Option<Occupant> {
        let text = fs::read_to_string(self.lease(lease).join("instance")).ok()?;
        let mut words = text.split_whitespace();
        Some(Occupant {
            instance: InstanceId::parse(words.next()?).ok()?,
            keeper: words.next()?.parse().ok()?,
            start_time: words.next()?.parse().ok()?,
            workspace: words.next()?.to_owned(),
        })
    }

    pub(super) fn leases(&self) -> io::Result<Vec<LeaseId>> {
        let entries = match fs::read_dir(self.data.join("leases")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.filter_map(|name| LeaseId::parse(&name).ok()).collect())
    }
}

/// Removes a directory with all in it; one that isn't there is removed already.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
