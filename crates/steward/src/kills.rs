//! Whose process it was that the kernel killed for want of memory.
//!
//! The kernel counts kills for a control group, and all shells of a steward share one. So the count says that somebody was
//! killed while a command ran, and what else is known says whether it was one of the command's own:
//!
//! ```text
//! nobody was killed while it ran                                     no
//! it ended as a killed process does, and the kill is nobody else's   yes
//! nobody else was there who could have been killed                   yes
//! every kill was somebody else's                                     no
//! otherwise                                                          unknown
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use stead_term::oom;

/// In the keeper: the file that counts.
pub(crate) const COUNTER: &str = "oom";

/// Kills that were somebody's, as many as are remembered: those of commands that ran at the same time are among the last.
const REMEMBERED: usize = 64;

#[derive(Debug)]
pub(crate) struct Kills {
    counter: Option<File>,
    /// Shells that are busy with a command.
    busy: BTreeMap<u32, Company>,
    /// Shells that have processes between two commands.
    with_jobs: BTreeSet<u32>,
    /// For each kill that was found to be somebody's, what the count was then.
    claims: VecDeque<u64>,
}

/// Whether anybody else was there while a command ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Company {
    Alone,
    Others,
}

/// Kills while a command ran.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    /// The count when it began, and now.
    pub(crate) before: Option<u64>,
    pub(crate) now: Option<u64>,
    /// How many were killed, by anybody, that were no shell's children.
    pub(crate) elsewhere: u64,
}

/// How a command ended, as far as it bears on this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// As a process ends that was sent SIGKILL, and not by us.
    Killed,
    Otherwise,
}

impl Kills {
    pub(crate) fn new(counter: Option<OwnedFd>) -> Self {
        Self {
            counter: counter.map(File::from),
            busy: BTreeMap::new(),
            with_jobs: BTreeSet::new(),
            claims: VecDeque::new(),
        }
    }

    pub(crate) fn counter(&self) -> Option<(String, BorrowedFd<'_>)> {
        self.counter.as_ref().map(|file| (COUNTER.to_owned(), file.as_fd()))
    }

    /// How many have been killed so far.
    pub(crate) fn count(&self) -> Option<u64> {
        self.counter.as_ref().and_then(oom::killed)
    }

    /// A command is about to run; returns the count.
    pub(crate) fn begin(&mut self, shell: u32) -> Option<u64> {
        let count = self.count()?;
        let alone = self.busy.keys().all(|other| *other == shell) && self.with_jobs.is_empty();
        self.busy.values_mut().for_each(|company| *company = Company::Others);
        self.busy.insert(shell, if alone { Company::Alone } else { Company::Others });
        Some(count)
    }

    /// A command that an earlier steward has started: nobody knows who was there.
    pub(crate) fn adopt(&mut self, shell: u32) {
        self.busy.values_mut().for_each(|company| *company = Company::Others);
        self.busy.insert(shell, Company::Others);
    }

    /// It has ended: whether one of its processes was killed, of all that were while it ran.
    pub(crate) fn end(&mut self, shell: u32, kills: Span, fate: Fate) -> Option<bool> {
        let company = self.busy.remove(&shell).unwrap_or(Company::Others);
        let (before, now) = (kills.before?, kills.now?);
        let claimed = self.claims.iter().filter(|at| **at > before).count() as u64;
        let verdict = judge(now.saturating_sub(before), claimed, kills.elsewhere, fate, company);
        if verdict == Some(true) {
            self.claims.push_back(now);
            if self.claims.len() > REMEMBERED {
                self.claims.pop_front();
            }
        }
        verdict
    }

    /// It never came to an end, or to run.
    pub(crate) fn forget(&mut self, shell: u32) {
        self.busy.remove(&shell);
    }

    /// Whether a shell has processes between two commands.
    pub(crate) fn jobs(&mut self, shell: u32, any: bool) {
        if any {
            self.with_jobs.insert(shell);
            // They were started by the command that has just ended, or live beside those that run now.
            self.busy.iter_mut().filter(|(key, _)| **key != shell).for_each(|(_, company)| *company = Company::Others);
        } else {
            self.with_jobs.remove(&shell);
        }
    }
}

/// Of so many kills while it ran, so many have been found to be others' and so many may be anybody's.
fn judge(kills: u64, claimed: u64, elsewhere: u64, fate: Fate, company: Company) -> Option<bool> {
    let unclaimed = kills.saturating_sub(claimed);
    match (fate, company) {
        _ if kills == 0 => Some(false),
        (Fate::Killed, _) if unclaimed > 0 => Some(true),
        (Fate::Otherwise, _) if unclaimed == 0 => Some(false),
        (Fate::Otherwise, Company::Alone) if unclaimed > elsewhere => Some(true),
        (Fate::Killed, _) | (Fate::Otherwise, Company::Alone | Company::Others) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Company::{Alone, Others};
    use Fate::{Killed, Otherwise};

    #[test]
    fn a_kill_is_a_commands_own_only_where_it_can_be_nobody_elses() {
        for (kills, claimed, elsewhere, fate, company, want) in [
            (0, 0, 0, Otherwise, Alone, Some(false)),
            (0, 0, 1, Killed, Others, Some(false)),
            (1, 0, 0, Killed, Alone, Some(true)),
            (1, 0, 0, Killed, Others, Some(true)),
            (1, 1, 0, Killed, Others, None),
            (2, 1, 0, Killed, Others, Some(true)),
            (1, 0, 0, Otherwise, Alone, Some(true)),
            (1, 0, 1, Otherwise, Alone, None),
            (2, 0, 1, Otherwise, Alone, Some(true)),
            (1, 0, 0, Otherwise, Others, None),
            (1, 1, 0, Otherwise, Others, Some(false)),
            (2, 1, 0, Otherwise, Others, None),
        ] {
            let case = format!("{kills} {claimed} {elsewhere} {fate:?} {company:?}");
            assert_eq!(judge(kills, claimed, elsewhere, fate, company), want, "{case}");
        }
    }

    /// A counter that says what it is told.
    struct Counter(tempfile::TempDir);

    impl Counter {
        fn new() -> (Self, Kills) {
            let counter = Self(tempfile::tempdir().unwrap());
            counter.say(5);
            let file = File::open(counter.0.path().join("memory.events")).unwrap();
            (counter, Kills::new(Some(OwnedFd::from(file))))
        }

        fn say(&self, count: u64) {
            std::fs::write(self.0.path().join("memory.events"), format!("oom_kill {count}\n")).unwrap();
        }
    }

    fn end(kills: &mut Kills, shell: u32, before: Option<u64>, fate: Fate) -> Option<bool> {
        let span = Span { before, now: kills.count(), elsewhere: 0 };
        kills.end(shell, span, fate)
    }

    #[test]
    fn of_two_that_run_at_once_the_one_that_was_killed_is_told() {
        let (counter, mut kills) = Counter::new();
        let (one, two) = (kills.begin(1), kills.begin(2));
        assert_eq!((one, two), (Some(5), Some(5)));
        counter.say(6);
        assert_eq!(end(&mut kills, 1, one, Killed), Some(true));
        assert_eq!(end(&mut kills, 2, two, Otherwise), Some(false));
        // The next is not told of what was before it.
        let three = kills.begin(1);
        assert_eq!(end(&mut kills, 1, three, Otherwise), Some(false));
    }

    #[test]
    fn beside_a_background_job_a_kill_may_be_anybodys() {
        let (counter, mut kills) = Counter::new();
        kills.jobs(2, true);
        let one = kills.begin(1);
        counter.say(6);
        assert_eq!(end(&mut kills, 1, one, Otherwise), None);
        kills.jobs(2, false);
        let two = kills.begin(1);
        counter.say(7);
        assert_eq!(end(&mut kills, 1, two, Otherwise), Some(true));
    }

    #[test]
    fn where_nobody_counts_nobody_knows() {
        let mut kills = Kills::new(None);
        let before = kills.begin(1);
        assert_eq!((before, end(&mut kills, 1, before, Killed)), (None, None));
    }
}
