//! Where a project is.
//!
//! ```text
//! PROJECTS/P/repo                    /workspace of its threads
//! PROJECTS/P/home                    their HOME
//! PROJECTS/P/.memories/hot           what the store of hot memories keeps on disk
//! PROJECTS/P/.memories/shown         the same as files, as its sandboxes see them at /memories/hot; `shown-..` elsewhere
//! PROJECTS/P/.memories/persistent    memories that are files
//! PROJECTS/P/.logs                   one for each session
//! PROJECTS/P/routes/NAME             files of a route of its own
//! PROJECTS/P/tmp                     room for a moment
//! PROJECTS/P/.sight                  which of these its sandboxes see as memories
//! PROJECTS/P/.project_metadata.json  a mirror of its row
//! ```

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use stead_model::ids::ProjectId;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectPlace {
    root: PathBuf,
}

impl ProjectPlace {
    /// Of a project, below the directory that has them all.
    pub fn of(projects: &Path, id: &ProjectId) -> Self {
        Self::at(projects.join(id.as_str()))
    }

    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn repo(&self) -> PathBuf {
        self.root.join("repo")
    }

    pub fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    pub fn hot(&self) -> PathBuf {
        self.root.join(".memories/hot")
    }

    pub fn persistent(&self) -> PathBuf {
        self.root.join(".memories/persistent")
    }

    /// Hot memories as the sandboxes of the project see them.
    pub fn shown(&self) -> PathBuf {
        self.root.join(".memories/shown")
    }

    pub fn logs(&self) -> PathBuf {
        self.root.join(".logs")
    }

    pub fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    pub fn metadata(&self) -> PathBuf {
        self.root.join(".project_metadata.json")
    }

    /// Makes whatever of it is not there.
    pub fn make(&self) -> io::Result<()> {
        for dir in [self.repo(), self.home(), self.hot(), self.persistent(), self.shown(), self.logs(), self.tmp()] {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        Ok(())
    }
}
