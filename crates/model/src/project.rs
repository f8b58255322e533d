//! A project: a named workspace that many threads may share, with what its threads begin with and how long it is kept.
//!
//! What is asked for comes as a [`Draft`] and is checked as a whole: one thing wrong, and nothing of it is made.

mod config;
mod tally;

pub use config::{Config, Demands, Limits, RepoUrl, Schemes};
pub use tally::Tally;

use crate::clock::Timestamp;
use crate::env::EnvError;
use crate::ids::ProjectId;
use crate::retention::{Level, Retention};
use std::collections::BTreeSet;
use std::time::Duration;

/// The longest prefix of a project's id.
const MOST_PREFIX: usize = 32;
/// What a description may hold, in bytes.
const MOST_DESCRIPTION: usize = 4096;
const MOST_TAGS: usize = 32;
const MOST_TAG: usize = 64;
/// How long a project is kept without being used, if nobody says otherwise.
pub const KEEP_DAYS: u32 = 30;
/// The longest: a hundred years.
pub const MOST_DAYS: u32 = 36_500;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// `{prefix}-{8 hexadecimal digits}`.
    pub id: ProjectId,
    pub prefix: String,
    pub description: String,
    pub tags: BTreeSet<String>,
    pub config: Config,
    pub retention: Retention,
    pub clone: Cloning,
    pub created_at: Timestamp,
    /// Grows by one with each change; every write names the one it saw. Statistics grow by themselves.
    pub version: u64,
    pub statistics: Statistics,
}

/// What has become of the repository that a project begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cloning {
    /// None was asked for.
    Nothing,
    /// It is on its way, or will be again when the server is.
    Wanted,
    Done(Timestamp),
    Failed {
        at: Timestamp,
        error: String,
    },
}

/// What has happened in a project since it was made; deleting a thread takes nothing back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statistics {
    pub sessions: u64,
    /// Those that have ended, however.
    pub commands: u64,
    pub failed_commands: u64,
    pub run_time: Duration,
    pub output_bytes: u64,
    /// As last measured; absent before that.
    pub disk_bytes: Option<u64>,
    pub last_error: Option<(Timestamp, String)>,
}

/// In the words of the contract, by what its retention says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    Active,
    Warned,
    Marked,
    Trashed,
}

impl Status {
    pub const ALL: [Self; 4] = [Self::Active, Self::Warned, Self::Marked, Self::Trashed];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Warned => "warned",
            Self::Marked => "marked",
            Self::Trashed => "trashed",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// A project as somebody asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Draft {
    pub prefix: String,
    pub description: String,
    pub tags: BTreeSet<String>,
    pub config: Config,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidProject {
    #[error(
        "`{0}` can't be the prefix of a project: lower-case letters, digits and hyphens, beginning with a letter, at most 32"
    )]
    Prefix(String),
    #[error("`description`: at most {MOST_DESCRIPTION} bytes, without control characters")]
    Description,
    #[error("`tags`: `{0}` is none: 1-{MOST_TAG} letters, digits and `. _ : / -`")]
    Tag(String),
    #[error("`tags`: {0} are too many; {MOST_TAGS} are the most")]
    Tags(usize),
    #[error("`config.{setting}`: {message}")]
    Config { setting: &'static str, message: String },
    #[error("`config.env`: {0}")]
    Env(EnvError),
}

impl Draft {
    /// The project, its id made of four bytes that nobody can guess. `usual_days`: how long those are kept that don't say.
    pub fn make(self, entropy: [u8; 4], now: Timestamp, usual_days: u32) -> Result<Project, InvalidProject> {
        check_prefix(&self.prefix)?;
        check_about(&self.description, &self.tags)?;
        self.config.check()?;
        let digits = u32::from_be_bytes(entropy);
        let id = ProjectId::parse(&format!("{}-{digits:08x}", self.prefix))
            .map_err(|_| InvalidProject::Prefix(shown(&self.prefix)))?;
        let keep_days = self.config.cleanup_after_days.unwrap_or(usual_days);
        let clone = if self.config.repo_url.is_some() { Cloning::Wanted } else { Cloning::Nothing };
        Ok(Project {
            id,
            prefix: self.prefix,
            description: self.description,
            tags: self.tags,
            config: self.config,
            retention: Retention {
                last_accessed_at: now,
                expires_at: now.after(days(keep_days)),
                keep_days,
                pinned: false,
                notified: None,
                marked_at: None,
                trashed_at: None,
            },
            clone,
            created_at: now,
            version: 0,
            statistics: Statistics::default(),
        })
    }
}

impl Project {
    /// A plain one.
    pub fn new(prefix: &str, entropy: [u8; 4], now: Timestamp) -> Result<Self, InvalidProject> {
        Draft { prefix: prefix.to_owned(), ..Draft::default() }.make(entropy, now, KEEP_DAYS)
    }

    pub fn status(&self) -> Status {
        let Retention { notified, marked_at, trashed_at, .. } = &self.retention;
        match (trashed_at, marked_at, notified) {
            (Some(_), _, _) => Status::Trashed,
            (None, Some(_), _) => Status::Marked,
            (None, None, Some(Level::Warning | Level::Reminder | Level::Final)) => Status::Warned,
            (None, None, None) => Status::Active,
        }
    }

    /// The next version of it, otherwise described or configured.
    pub fn changed(&self, change: Change, usual_days: u32) -> Result<Self, InvalidProject> {
        let mut after = Self { version: self.version + 1, ..self.clone() };
        if let Some(description) = change.description {
            after.description = description;
        }
        if let Some(tags) = change.tags {
            after.tags = tags;
        }
        if let Some(config) = change.config {
            if config.repo_url != self.config.repo_url {
                let message = "it is cloned when the project is made, and can't be changed after that".to_owned();
                return Err(InvalidProject::Config { setting: "repo_url", message });
            }
            config.check()?;
            if config.cleanup_after_days != self.config.cleanup_after_days {
                after.retention.keep_for(config.cleanup_after_days.unwrap_or(usual_days));
            }
            after.config = config;
        }
        check_about(&after.description, &after.tags)?;
        Ok(after)
    }
}

/// What is to be different; absent stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    pub description: Option<String>,
    pub tags: Option<BTreeSet<String>>,
    pub config: Option<Config>,
}

/// Which projects a list is of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// What their ids' prefixes begin with.
    pub prefix: Option<String>,
    /// All of them.
    pub tags: BTreeSet<String>,
    /// Absent: those that are not in the trash.
    pub status: Option<Status>,
    /// Absent: any.
    pub among: Option<BTreeSet<ProjectId>>,
}

impl Filter {
    /// All that are not in the trash.
    pub fn kept() -> Self {
        Self::default()
    }

    pub fn takes(&self, project: &Project) -> bool {
        let status = project.status();
        self.prefix.as_ref().is_none_or(|prefix| project.prefix.starts_with(prefix.as_str()))
            && self.tags.is_subset(&project.tags)
            && self.status.map_or(status != Status::Trashed, |wanted| wanted == status)
            && self.among.as_ref().is_none_or(|among| among.contains(&project.id))
    }
}

/// Whether a text is what a project's id looks like: which workspaces are a project's is told by it.
pub fn is_project_id(text: &str) -> bool {
    let Some((prefix, digits)) = text.rsplit_once('-') else { return false };
    let hex = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
    digits.len() == 8 && digits.bytes().all(hex) && check_prefix(prefix).is_ok()
}

pub fn days(number: u32) -> Duration {
    Duration::from_hours(24 * u64::from(number))
}

/// What is wrong, in a message: printable, and not the whole of it if it is long.
fn shown(text: &str) -> String {
    text.chars().take(40).filter(|c| !c.is_control()).collect()
}

fn check_prefix(prefix: &str) -> Result<(), InvalidProject> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let begins = prefix.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    if begins && prefix.len() <= MOST_PREFIX && prefix.bytes().all(plain) {
        Ok(())
    } else {
        Err(InvalidProject::Prefix(shown(prefix)))
    }
}

fn check_about(description: &str, tags: &BTreeSet<String>) -> Result<(), InvalidProject> {
    if description.len() > MOST_DESCRIPTION || description.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        return Err(InvalidProject::Description);
    }
    if tags.len() > MOST_TAGS {
        return Err(InvalidProject::Tags(tags.len()));
    }
    let plain = |c: char| c.is_alphanumeric() || "._:/-".contains(c);
    match tags.iter().find(|tag| !(1..=MOST_TAG).contains(&tag.chars().count()) || !tag.chars().all(plain)) {
        Some(tag) => Err(InvalidProject::Tag(shown(tag))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
