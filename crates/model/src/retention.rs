//! How long a project is kept.
//!
//! ```text
//!  access ──────────────► -3 d ──────► -2 d ──────► -1 d ──────► expires_at ──────► + 1 d ──────► + trash
//!            active        warning      reminder     final         marked            trashed       purged
//!                          └──────────── warned ───────────┘
//!  an access, an extension, a pin: back to active         restored from the trash: back to active
//! ```
//!
//! 1. Each step happens once. It is a change of [`Retention`], written before anybody is told of it: after a restart what
//!    was written is not due again.
//! 2. Nothing is trashed that was not marked a whole day before. Who comes late (the server was down for weeks) says the
//!    last word there was to say, marks, and waits a day like everybody else.
//! 3. What is pinned, or in use, is left alone; when its use ends it has its days again.
//! 4. A clock is not believed too much. One that leaps forward while we look starts the day between mark and trash, and
//!    the hours in the trash, again. One that is set back by more than a day makes void what was said too early; by less,
//!    nothing is said twice.
//!
//! [`Retention::due`] says what the next step is and [`Retention::apply`] is the step; the rest of this file is what
//! people do to it. All of it is pure.

use crate::clock::Timestamp;
use std::fmt;
use std::time::Duration;

pub const DAY: Duration = Duration::from_hours(24);

/// Between being marked and being moved to the trash.
const GRACE: Duration = DAY;

/// How loudly it was last said that a project will go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    Warning,
    Reminder,
    Final,
}

/// Where a project stands, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    Active,
    Warned,
    Marked,
    Trashed,
}

/// What decides whether a project is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    pub last_accessed_at: Timestamp,
    /// When it is marked; never moved back by an access.
    pub expires_at: Timestamp,
    /// The days that an access gives it.
    pub keep_days: u32,
    pub pinned: bool,
    /// What has been said since the last access.
    pub notified: Option<Level>,
    pub marked_at: Option<Timestamp>,
    pub trashed_at: Option<Timestamp>,
}

/// What is the same for all projects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// How many days before the end it is said for the first time; 0: never.
    pub warning_days: u32,
    /// How long something stays in the trash.
    pub trash: Duration,
}

/// What a clock shows, and how far it can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub now: Timestamp,
    /// What it showed after it last leapt forward, if it was seen to.
    pub leapt_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Due {
    Say(Level),
    Mark,
    Trash,
    /// Its time in the trash is over: gone for good.
    Purge,
    /// It is in use: it gets its days again.
    Keep,
    /// What was said or marked was so by a clock that has been set back since.
    Recall,
    /// The clock has leapt forward since it was marked or trashed: the wait begins again.
    Wait,
}

impl Level {
    pub const ALL: [Self; 3] = [Self::Warning, Self::Reminder, Self::Final];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Reminder => "reminder",
            Self::Final => "final",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == text)
    }

    /// How many days before the end it is said.
    fn days_before(self, warning_days: u32) -> u32 {
        match self {
            Self::Warning => warning_days,
            Self::Reminder => warning_days.div_ceil(2),
            Self::Final => 1,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Standing {
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
        Self::ALL.into_iter().find(|standing| standing.as_str() == text)
    }
}

impl Moment {
    pub fn believed(now: Timestamp) -> Self {
        Self { now, leapt_at: None }
    }

    /// Something happened then, and what comes next does so this much later.
    fn wait(self, since: Timestamp, span: Duration, next: Due) -> Option<Due> {
        if self.leapt_at.is_some_and(|leapt| since < leapt && leapt <= self.now) {
            return Some(Due::Wait);
        }
        (self.now >= since.after(span)).then_some(next)
    }
}

impl Retention {
    /// That of something made now.
    pub fn new(keep_days: u32, now: Timestamp) -> Self {
        Self {
            last_accessed_at: now,
            expires_at: now.after(days(keep_days)),
            keep_days,
            pinned: false,
            notified: None,
            marked_at: None,
            trashed_at: None,
        }
    }

    pub fn standing(&self) -> Standing {
        if self.trashed_at.is_some() {
            Standing::Trashed
        } else if self.marked_at.is_some() {
            Standing::Marked
        } else if self.notified.is_some() {
            Standing::Warned
        } else {
            Standing::Active
        }
    }

    /// The next step, if there is one now. After it was applied there may be another.
    pub fn due(&self, rules: Rules, in_use: bool, at: Moment) -> Option<Due> {
        if let Some(trashed_at) = self.trashed_at {
            return at.wait(trashed_at, rules.trash, Due::Purge);
        }
        if self.pinned {
            return None;
        }
        let level = self.level(rules, at.now);
        if in_use {
            return (level.is_some() || at.now >= self.expires_at).then_some(Due::Keep);
        }
        // More than a day, so that a clock which is put right by a second has nothing said twice.
        let too_early = |level: Level| at.now.after(DAY) < self.said_at(level, rules);
        if self.notified.is_some_and(too_early) || (self.marked_at.is_some() && at.now.after(DAY) < self.expires_at) {
            return Some(Due::Recall);
        }
        if let Some(level) = level.filter(|level| self.notified < Some(*level)) {
            return Some(Due::Say(level));
        }
        if at.now < self.expires_at {
            return None;
        }
        match self.marked_at {
            None => Some(Due::Mark),
            Some(marked_at) => at.wait(marked_at, GRACE, Due::Trash),
        }
    }

    /// What it is after a step.
    pub fn apply(&self, due: Due, now: Timestamp) -> Self {
        let mut next = self.clone();
        match due {
            Due::Say(level) => next.notified = Some(level),
            Due::Mark => next.marked_at = Some(now),
            Due::Trash => next.trashed_at = Some(now),
            Due::Keep => {
                next.expires_at = next.expires_at.max(now.after(days(next.keep_days)));
                next.recall();
            }
            Due::Recall => next.recall(),
            Due::Wait => {
                next.marked_at = next.marked_at.map(|_| now);
                next.trashed_at = next.trashed_at.map(|_| now);
            }
            Due::Purge => {}
        }
        next
    }

    /// Somebody worked with it: it has its days again, or those it had if they were more.
    pub fn access(&mut self, now: Timestamp) {
        self.count(now);
        self.recall();
    }

    /// The days that an access gives; what was said stays said.
    pub fn count(&mut self, access: Timestamp) {
        self.last_accessed_at = self.last_accessed_at.max(access);
        self.expires_at = self.expires_at.max(access.after(days(self.keep_days)));
    }

    /// Days on top of those that it has. If it has been over for longer than that, they begin now.
    pub fn extend(&mut self, by: u32, now: Timestamp) {
        let later = self.expires_at.after(days(by));
        self.expires_at = if later > now { later } else { now.after(days(by)) };
        self.recall();
    }

    pub fn pin(&mut self) {
        self.pinned = true;
        self.recall();
    }

    /// From here on its days count again; those in which it is said that it will go are never among the past ones.
    pub fn unpin(&mut self, rules: Rules, now: Timestamp) {
        if self.pinned {
            self.pinned = false;
            self.expires_at = self.expires_at.max(now.after(days(rules.warning_days.max(1))));
        }
    }

    /// Out of the trash again, as if it had just been worked with.
    pub fn restore(&mut self, now: Timestamp) {
        self.trashed_at = None;
        self.access(now);
    }

    /// Other days from now on: counted from the last access, and never fewer than an extension has given.
    pub fn keep_for(&mut self, keep_days: u32) {
        let given = self.last_accessed_at.after(days(self.keep_days));
        self.keep_days = keep_days;
        let asked = self.last_accessed_at.after(days(keep_days));
        self.expires_at = if self.expires_at > given { self.expires_at.max(asked) } else { asked };
        self.recall();
    }

    /// Whole days until it is marked; none if it never is.
    pub fn days_left(&self, now: Timestamp) -> Option<u64> {
        if self.pinned || self.trashed_at.is_some() {
            return None;
        }
        Some(self.expires_at.since(now).as_secs() / DAY.as_secs())
    }

    fn recall(&mut self) {
        self.notified = None;
        self.marked_at = None;
    }

    /// The loudest that is to have been said by now.
    fn level(&self, rules: Rules, now: Timestamp) -> Option<Level> {
        if self.warned_for(rules) == 0 {
            return None;
        }
        Level::ALL.into_iter().rev().find(|level| now >= self.said_at(*level, rules))
    }

    fn said_at(&self, level: Level, rules: Rules) -> Timestamp {
        let before = days(level.days_before(self.warned_for(rules)));
        Timestamp(self.expires_at.0.saturating_sub(millis(before)))
    }

    /// What is kept for few days isn't warned of on the first of them.
    fn warned_for(&self, rules: Rules) -> u32 {
        rules.warning_days.min(self.keep_days.saturating_sub(1))
    }
}

fn days(days: u32) -> Duration {
    DAY * days
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
