//! What is said about a project or a thread that stands alone: in the log, in its events, to a webhook.

use crate::clock::Timestamp;
use crate::ids::{EventId, ProjectId, ThreadId};
use crate::retention::Level;

/// What it is said of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    Project(ProjectId),
    /// One without a project.
    Thread(ThreadId),
}

impl Subject {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Project(_) => "project",
            Self::Thread(_) => "thread",
        }
    }

    pub fn id(&self) -> &str {
        match self {
            Self::Project(id) => id.as_str(),
            Self::Thread(id) => id.as_str(),
        }
    }

    pub fn parse(kind: &str, id: &str) -> Option<Self> {
        match kind {
            "project" => ProjectId::parse(id).ok().map(Self::Project),
            "thread" => ThreadId::parse(id).ok().map(Self::Thread),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    Said(Level),
    Marked,
    Trashed,
    Restored,
    Purged,
}

impl What {
    pub const ALL: [Self; 7] = [
        Self::Said(Level::Warning),
        Self::Said(Level::Reminder),
        Self::Said(Level::Final),
        Self::Marked,
        Self::Trashed,
        Self::Restored,
        Self::Purged,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Said(level) => level.as_str(),
            Self::Marked => "marked",
            Self::Trashed => "trashed",
            Self::Restored => "restored",
            Self::Purged => "purged",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|what| what.as_str() == text)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The same however often it is told.
    pub id: EventId,
    pub subject: Subject,
    pub what: What,
    pub at: Timestamp,
    /// When it would be marked, as of then.
    pub expires_at: Timestamp,
    /// What caused it: `cleanup`, `api`, `recovery`.
    pub source: String,
}

/// One that is in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Their order.
    pub seq: u64,
    pub notice: Notice,
    /// How often somebody outside was told in vain, or in the end not.
    pub attempts: u32,
    /// When that is tried next; absent: it was done, given up, or there is nobody to tell.
    pub next_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for what in What::ALL {
            assert_eq!(What::parse(what.as_str()), Some(what));
        }
        for subject in [Subject::Project(ProjectId::parse("a-1").unwrap()), Subject::Thread(ThreadId::made_of([1; 8]))]
        {
            assert_eq!(Subject::parse(subject.kind(), subject.id()), Some(subject));
        }
        assert_eq!(Subject::parse("lease", "x"), None);
    }
}
