//! `.project_metadata.json`: what a project is, for whoever looks into its directory, and for an import from elsewhere. A
//! mirror: the database is the truth.

use super::{ConfigText, ProjectPlace};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use stead_model::ids::ProjectId;
use stead_model::project::{Draft, InvalidProject, Project, Schemes, is_project_id};

/// More is none of ours.
const MOST: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    #[error("`{path}` can't be read")]
    Unreadable { path: String, source: io::Error },
    #[error("`{path}` is not what it should be: {what}")]
    Malformed { path: String, what: String },
    #[error(transparent)]
    Invalid(#[from] InvalidProject),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metadata {
    pub id: String,
    pub prefix: String,
    pub description: String,
    pub tags: BTreeSet<String>,
    pub config: ConfigText,
    pub pinned: bool,
    pub created_at: String,
    pub last_accessed_at: String,
    pub expires_at: String,
}

impl Metadata {
    pub fn of(project: &Project) -> Self {
        Self {
            id: project.id.to_string(),
            prefix: project.prefix.clone(),
            description: project.description.clone(),
            tags: project.tags.clone(),
            config: ConfigText::of(&project.config),
            pinned: project.retention.pinned,
            created_at: project.created_at.to_string(),
            last_accessed_at: project.retention.last_accessed_at.to_string(),
            expires_at: project.retention.expires_at.to_string(),
        }
    }

    /// Whole or not at all: made beside it and moved.
    pub fn write(&self, place: &ProjectPlace) -> io::Result<()> {
        let path = place.metadata();
        let fresh = path.with_extension("json.new");
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(text.as_bytes())?;
        fs::rename(fresh, path)
    }

    /// Of a directory that comes from elsewhere: nothing in it is believed.
    pub fn read(place: &ProjectPlace) -> Result<Self, MetadataError> {
        let path = place.metadata();
        let shown = || path.display().to_string();
        let unreadable = |source| MetadataError::Unreadable { path: shown(), source };
        let flags = rustix::fs::OFlags::NOFOLLOW.union(rustix::fs::OFlags::NONBLOCK).bits().cast_signed();
        let file = File::options().read(true).custom_flags(flags).open(&path).map_err(unreadable)?;
        let malformed = |what: &str| MetadataError::Malformed { path: shown(), what: what.to_owned() };
        if !file.metadata().map_err(unreadable)?.is_file() {
            return Err(malformed("it is no file"));
        }
        let mut text = String::new();
        file.take(MOST).read_to_string(&mut text).map_err(unreadable)?;
        serde_json::from_str(&text).map_err(|error| malformed(&error.to_string()))
    }

    /// What it asks for: everything is checked as if somebody had sent it. Its repository is there already.
    pub fn draft(self, schemes: Schemes) -> Result<(ProjectId, Draft), MetadataError> {
        let named = ProjectId::parse(&self.id).ok().filter(|id| is_project_id(id.as_str()));
        let prefix = named.as_ref().and_then(|id| id.as_str().rsplit_once('-')).map(|(prefix, _)| prefix);
        let Some(id) = named.clone().filter(|_| prefix == Some(self.prefix.as_str())) else {
            let id: String = self.id.chars().filter(|c| !c.is_control()).take(100).collect();
            return Err(InvalidProject::Prefix(id).into());
        };
        let (config, _) = self.config.asked(schemes)?;
        Ok((id, Draft { prefix: self.prefix, description: self.description, tags: self.tags, config }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_model::clock::Timestamp;

    #[test]
    fn the_mirror_is_readable_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::new("app", [1, 2, 3, 4], Timestamp(5)).unwrap();
        let place = ProjectPlace::of(dir.path(), &project.id);
        place.make().unwrap();
        let metadata = Metadata::of(&project);
        metadata.write(&place).unwrap();
        let text = fs::read_to_string(place.metadata()).unwrap();
        assert!(text.contains("\n  \"id\": \"app-01020304\""), "{text}");
        assert_eq!(Metadata::read(&place).unwrap(), metadata);
        let (id, draft) = metadata.draft(Schemes::default()).unwrap();
        assert_eq!((id, draft.prefix.as_str()), (project.id, "app"));
    }

    #[test]
    fn a_directory_that_lies_about_itself_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::new("app", [1, 2, 3, 4], Timestamp(5)).unwrap();
        let place = ProjectPlace::of(dir.path(), &project.id);
        place.make().unwrap();
        assert!(matches!(Metadata::read(&place), Err(MetadataError::Unreadable { .. })));
        for id in ["../../etc", "app", "other-01020304", "app-0102030G", ""] {
            let metadata = Metadata { id: id.to_owned(), ..Metadata::of(&project) };
            assert!(metadata.draft(Schemes::default()).is_err(), "{id}");
        }
        fs::write(place.metadata(), "{\"id\": 5}").unwrap();
        assert!(matches!(Metadata::read(&place), Err(MetadataError::Malformed { .. })));
        fs::remove_file(place.metadata()).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", place.metadata()).unwrap();
        assert!(matches!(Metadata::read(&place), Err(MetadataError::Unreadable { .. })), "no link is followed");
    }
}
