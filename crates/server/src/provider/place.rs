//! Where the providers of this machine keep things.
//!
//! ```text
//! WORKSPACES/W/files          what is /workspace inside; the same for every provider, so a thread can move
//! WORKSPACES/W/home           what is HOME inside
//! WORKSPACES/../projects/P    the same for a workspace that is a project's, as `repo` and `home`
//! DATA/leases/L/place         the steward's directory: socket, journal; outlives instances
//! DATA/leases/L/turn          locked by whoever makes, ends or removes an instance of it
//! DATA/leases/L/instance      which instance runs over it, as `ID KEEPER-PID START-TIME WORKSPACE`
//! ```

use super::Lasting;
use crate::project::ProjectPlace;
use crate::project::sight::Sight;
use sha2::Digest;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, lchown};
use std::path::{Path, PathBuf};
use stead_model::ids::{InstanceId, LeaseId};
use stead_model::lease::Caveat;
use stead_model::project::is_project_id;
use stead_term::{proc, scarce};

#[derive(Debug, Clone)]
pub(super) struct Places {
    /// The provider's own.
    pub(super) data: PathBuf,
    /// Shared with others.
    pub(super) workspaces: PathBuf,
}

/// Stands in front of the name of the boot in which a process id was written down.
pub(super) const BOOT: &str = "\nboot ";

/// Which processes are an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Occupant {
    pub(super) instance: InstanceId,
    /// With its start time, of this boot; 0 if it is not known, or was of another one.
    pub(super) keeper: i32,
    pub(super) start_time: u64,
    pub(super) workspace: String,
}

impl Places {
    /// Whether things can be kept there, by trying.
    pub(super) fn probe(&self) -> io::Result<()> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.data);
        made.and_then(|()| File::open(&self.data)).map(drop).map_err(|error| {
            let why = format!("can't use `{}`: {error}", self.data.display());
            io::Error::new(error.kind(), why)
        })
    }

    pub(super) fn files(&self, workspace: &str) -> PathBuf {
        if is_given(workspace) {
            return PathBuf::from(workspace);
        }
        let name = if is_project_id(workspace) { "repo" } else { "files" };
        self.workspace(workspace).join(name)
    }

    /// The memories of a project, and where they are inside; made where they are not. Those that others lie in come
    /// first.
    pub(super) fn memories(&self, workspace: &str) -> Vec<(PathBuf, PathBuf)> {
        self.sight(workspace).map(|(sight, place)| sight.directories(&place)).unwrap_or_default()
    }

    /// What of its memories can't be shown, and why.
    pub(super) fn caveats(&self, workspace: &str) -> Vec<Caveat> {
        let unseen = self.sight(workspace).map(|(sight, _)| sight.unseen).unwrap_or_default();
        unseen.into_iter().map(|message| Caveat { code: "memories-not-shown".to_owned(), message }).collect()
    }

    fn sight(&self, workspace: &str) -> Option<(Sight, ProjectPlace)> {
        let place = is_project_id(workspace).then(|| ProjectPlace::at(self.workspace(workspace)))?;
        Some((Sight::read(&place), place))
    }

    pub(super) fn home(&self, workspace: &str) -> PathBuf {
        self.workspace(workspace).join("home")
    }

    /// What we keep for a workspace; of a directory that was given to us that is the home alone.
    pub(super) fn workspace(&self, workspace: &str) -> PathBuf {
        if is_given(workspace) {
            let digest = sha2::Sha256::digest(workspace.as_bytes());
            let name = digest.iter().take(8).fold("host-".to_owned(), |name, byte| name + &format!("{byte:02x}"));
            return self.workspaces.join(name);
        }
        if is_project_id(workspace) {
            // Beside the others: what else a project has is nobody's workspace.
            return self.workspaces.with_file_name("projects").join(workspace);
        }
        self.workspaces.join(workspace)
    }

    /// Directories that are no sandbox's.
    pub(super) fn private(&self) -> Vec<PathBuf> {
        let above = self.workspaces.parent().map(Path::to_owned);
        above.into_iter().chain([self.workspaces.clone(), self.data.clone()]).collect()
    }

    pub(super) fn lasting(&self, workspace: &str) -> Lasting {
        Lasting { files: self.files(workspace), home: Some(self.home(workspace)) }
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
        let Occupant { instance, keeper, start_time, workspace } = occupant;
        let text = format!("{instance} {keeper} {start_time} {workspace}{BOOT}{}\n", proc::boot_id());
        let temporary = path.with_extension("new");
        fs::write(&temporary, text)?;
        fs::rename(temporary, path)
    }

    /// Absent if nobody has been there, or what is written there makes no sense. That it can't be read now, for want of a
    /// descriptor, says neither.
    pub(super) fn occupant(&self, lease: &LeaseId) -> io::Result<Option<Occupant>> {
        match fs::read_to_string(self.lease(lease).join("instance")) {
            Ok(text) => Ok(Occupant::read(&text)),
            Err(error) if scarce::is_passing(&error) => Err(error),
            Err(_) => Ok(None),
        }
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

impl Occupant {
    fn read(text: &str) -> Option<Self> {
        let text = text.trim_end_matches('\n');
        let (text, boot) = text.rsplit_once(BOOT).unwrap_or((text, "unknown"));
        // The last may have spaces in it: it may be a path.
        let mut words = text.splitn(4, ' ');
        let instance = InstanceId::parse(words.next()?).ok()?;
        let (keeper, start_time) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        // After a reboot the same numbers may be those of anybody.
        let (keeper, start_time) = if boot == proc::boot_id() { (keeper, start_time) } else { (0, 0) };
        Some(Self { instance, keeper, start_time, workspace: words.next()?.to_owned() })
    }
}

/// Whether a workspace is a directory of this machine, named by its path, and no name of ours.
fn is_given(workspace: &str) -> bool {
    workspace.starts_with('/')
}

/// Removes a directory with all in it; one that isn't there is removed already.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Gives a directory with all in it to another user, unless it is theirs. What is linked to elsewhere stays whose it is.
pub(super) fn give(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let meta = path.symlink_metadata()?;
    if meta.uid() == uid && meta.gid() == gid {
        return Ok(());
    }
    if meta.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), uid, gid)?;
        }
    }
    // Last, so that one that was interrupted is gone on with.
    lchown(path, Some(uid), Some(gid))
}
