//! Whose process it was that the kernel killed for want of memory.
//!
//! The kernel counts kills for a control group, and all shells of a steward share one. So the count says that somebody was
//! killed while a command ran, and whose process that was follows only from who else can't have lost one:
//!
//! ```text
//! nobody was killed while it ran                                     no
//! every kill was found to be another's                               no
//! nobody else can have lost a process                                yes, and these kills are its own
//! otherwise                                                          unknown
//! ```
//!
//! That a command ended as a killed process does says nothing: anybody may send SIGKILL. Another command can't have lost a
//! process if it has none and its shell has waited for none since it was idle. That is looked up only when somebody was
//! killed; what it is compared with is noted between two commands, when nobody waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use stead_term::{oom, proc};

/// In the keeper: the file that counts.
pub(crate) const COUNTER: &str = "oom";

/// Spans of kills that were somebody's, as many as are remembered: those of commands that ran at the same time are among
/// the last.
const REMEMBERED: usize = 64;

#[derive(Debug)]
pub(crate) struct Kills {
    counter: Option<File>,
    /// Shells that are busy with a command.
    busy: BTreeMap<u32, Busy>,
    /// Shells that have processes between two commands.
    with_jobs: BTreeSet<u32>,
    /// What was seen of shells between two commands.
    idle: BTreeMap<u32, Idle>,
    /// Kills that were found to be somebody's: behind the first count, up to the second.
    claims: VecDeque<(u64, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct Busy {
    company: Company,
    /// The count when it began.
    began: u64,
}

/// Whether anybody else may have lost a process while a command ran who can't be looked at any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Company {
    Alone,
    Others,
}

/// A shell between two commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Idle {
    pub(crate) pid: i32,
    /// Page faults of processes that it has waited for. Each process has some, so the number grows with each.
    pub(crate) child_faults: u64,
}

impl Idle {
    /// Whether the shell has no process now and has waited for none since.
    fn lost_nobody(self) -> bool {
        // In this order: a process is counted before it is no longer a child.
        proc::children(self.pid).is_empty()
            && proc::stat(self.pid).is_some_and(|stat| stat.child_faults == self.child_faults)
    }
}

/// Kills while a command ran.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    /// The count when it began, and now.
    pub(crate) before: Option<u64>,
    pub(crate) now: Option<u64>,
    /// How many of those that ended meanwhile, and that no shell has waited for, had been sent SIGKILL by anybody: they may be
    /// what an earlier command has left. The command's own shell is none of them.
    pub(crate) elsewhere: u64,
}

impl Kills {
    pub(crate) fn new(counter: Option<OwnedFd>) -> Self {
        Self {
            counter: counter.map(File::from),
            busy: BTreeMap::new(),
            with_jobs: BTreeSet::new(),
            idle: BTreeMap::new(),
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
        let company = if self.with_jobs.is_empty() { Company::Alone } else { Company::Others };
        self.busy.insert(shell, Busy { company, began: count });
        Some(count)
    }

    /// A command that an earlier steward has started, when the count was this. Who else was there then nobody knows, which
    /// matters if somebody was killed since.
    pub(crate) fn adopt(&mut self, shell: u32, began: Option<u64>) {
        let (Some(began), Some(now)) = (began, self.count()) else { return };
        let alone = began == now && self.with_jobs.is_empty();
        let company = if alone { Company::Alone } else { Company::Others };
        self.busy.insert(shell, Busy { company, began });
    }

    /// It has ended: whether one of its processes was killed, of all that were while it ran.
    pub(crate) fn end(&mut self, shell: u32, kills: Span) -> Option<bool> {
        let company = self.busy.remove(&shell).map_or(Company::Others, |busy| busy.company);
        let (before, now) = (kills.before?, kills.now?);
        let claimed = self.claims.iter().map(|(after, upto)| (*upto).min(now).saturating_sub((*after).max(before)));
        let unclaimed = now.saturating_sub(before).saturating_sub(claimed.sum());
        if unclaimed == 0 {
            return Some(false);
        }
        let alone = company == Company::Alone && self.with_jobs.is_empty() && self.nobody_else_lost_one();
        if alone && kills.elsewhere == 0 {
            self.claim(before, now);
            return Some(true);
        }
        // Some of them may be the command's: nobody can say any more that they are another's.
        self.be_company();
        (alone && unclaimed > kills.elsewhere).then_some(true)
    }

    /// It never came to an end, or to run.
    pub(crate) fn forget(&mut self, shell: u32) {
        let Some(busy) = self.busy.remove(&shell) else { return };
        if self.count().is_none_or(|now| now > busy.began) {
            self.be_company();
        }
    }

    /// Whether a shell has processes between two commands.
    pub(crate) fn jobs(&mut self, shell: u32, any: bool) {
        if any {
            self.with_jobs.insert(shell);
            // They were started by the command that has just ended, or live beside those that run now.
            let others = self.busy.iter_mut().filter(|(key, _)| **key != shell);
            others.for_each(|(_, busy)| busy.company = Company::Others);
        } else {
            self.with_jobs.remove(&shell);
        }
    }

    /// A shell as it is between two commands; nothing if it is gone.
    pub(crate) fn idle(&mut self, shell: u32, idle: Option<Idle>) {
        match idle {
            Some(idle) => self.idle.insert(shell, idle),
            None => self.idle.remove(&shell),
        };
    }

    /// Whether a shell was seen between two commands.
    pub(crate) fn knows(&self, shell: u32, pid: i32) -> bool {
        self.idle.get(&shell).is_some_and(|idle| idle.pid == pid)
    }

    /// Whether no other command that runs can have lost a process.
    fn nobody_else_lost_one(&self) -> bool {
        self.busy.keys().all(|shell| self.idle.get(shell).is_some_and(|idle| idle.lost_nobody()))
    }

    /// Somebody who may have lost a process is no longer there to be looked at.
    fn be_company(&mut self) {
        self.busy.values_mut().for_each(|busy| busy.company = Company::Others);
    }

    /// Notes kills as somebody's, but for those that are already.
    fn claim(&mut self, before: u64, now: u64) {
        // What is left of the span between claims that were made before, which lie within it or not at all.
        let mut from = before;
        let mut inside: Vec<_> =
            self.claims.iter().copied().filter(|(after, upto)| *upto > before && *after < now).collect();
        inside.sort_unstable();
        for (after, upto) in inside {
            if after > from {
                self.claims.push_back((from, after));
            }
            from = from.max(upto);
        }
        if from < now {
            self.claims.push_back((from, now));
        }
        while self.claims.len() > REMEMBERED {
            self.claims.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

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

    fn end(kills: &mut Kills, shell: u32, before: Option<u64>) -> Option<bool> {
        end_with(kills, shell, before, 0)
    }

    fn end_with(kills: &mut Kills, shell: u32, before: Option<u64>, elsewhere: u64) -> Option<bool> {
        let span = Span { before, now: kills.count(), elsewhere };
        kills.end(shell, span)
    }

    /// A shell that does what it is told, and says when it has.
    struct Shell(Child);

    impl Shell {
        fn new() -> Self {
            Self(Command::new("sh").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
        }

        fn run(&mut self, text: &str) {
            use std::io::{Read, Write};
            writeln!(self.0.stdin.as_mut().unwrap(), "{text}; echo").unwrap();
            self.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        }

        fn idle(&self) -> Idle {
            let pid = i32::try_from(self.0.id()).unwrap();
            Idle { pid, child_faults: proc::stat(pid).unwrap().child_faults }
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn who_is_alone_has_lost_whom_the_kernel_killed_and_the_next_has_not() {
        let (counter, mut kills) = Counter::new();
        let one = kills.begin(1);
        counter.say(6);
        assert_eq!(end(&mut kills, 1, one), Some(true));
        let two = kills.begin(1);
        assert_eq!(end(&mut kills, 1, two), Some(false));
    }

    #[test]
    fn a_kill_while_two_ran_is_neithers_for_certain_however_they_end() {
        let (counter, mut kills) = Counter::new();
        let (one, two) = (kills.begin(1), kills.begin(2));
        counter.say(6);
        assert_eq!(end(&mut kills, 2, two), None);
        assert_eq!(end(&mut kills, 1, one), None, "the other can't be looked at any more");
        let three = kills.begin(2);
        counter.say(7);
        assert_eq!(end(&mut kills, 2, three), Some(true), "what was before it is nothing to it");
    }

    #[test]
    fn a_command_without_processes_is_no_company_and_is_told_that_it_lost_none() {
        let (counter, mut kills) = Counter::new();
        let mut shell = Shell::new();
        shell.run("/bin/true");
        kills.idle(2, Some(shell.idle()));
        let (one, two) = (kills.begin(1), kills.begin(2));
        shell.run("x=1");
        counter.say(7);
        assert_eq!(end(&mut kills, 1, one), Some(true));
        assert_eq!(end(&mut kills, 2, two), Some(false));
        // One that has waited for a process may have lost that.
        let (one, two) = (kills.begin(1), kills.begin(2));
        shell.run("/bin/true");
        counter.say(8);
        assert_eq!((end(&mut kills, 1, one), end(&mut kills, 2, two)), (None, None));
    }

    #[test]
    fn of_kills_that_are_anothers_only_the_rest_is_doubtful() {
        let (counter, mut kills) = Counter::new();
        let shell = Shell::new();
        kills.idle(1, Some(shell.idle()));
        let one = kills.begin(1);
        for count in [6, 7] {
            let two = kills.begin(2);
            counter.say(count);
            assert_eq!(end(&mut kills, 2, two), Some(true));
        }
        counter.say(8);
        assert_eq!(end(&mut kills, 1, one), Some(true), "one is left, and it is alone");
        let (one, two) = (kills.begin(1), kills.begin(2));
        counter.say(9);
        kills.forget(2);
        assert_eq!((two, end(&mut kills, 1, one)), (Some(8), None), "the other was removed, and may have lost it");
    }

    #[test]
    fn what_nobody_has_waited_for_may_be_an_earlier_commands() {
        let (counter, mut kills) = Counter::new();
        let one = kills.begin(1);
        counter.say(6);
        assert_eq!(end_with(&mut kills, 1, one, 1), None);
        let two = kills.begin(1);
        counter.say(8);
        assert_eq!(end_with(&mut kills, 1, two, 1), Some(true), "the other one was its own");
    }

    #[test]
    fn beside_a_background_job_a_kill_may_be_anybodys() {
        let (counter, mut kills) = Counter::new();
        kills.jobs(2, true);
        let one = kills.begin(1);
        counter.say(6);
        assert_eq!(end(&mut kills, 1, one), None);
        kills.jobs(2, false);
        let two = kills.begin(1);
        counter.say(7);
        assert_eq!(end(&mut kills, 1, two), Some(true));
    }

    #[test]
    fn after_another_steward_only_kills_that_it_has_seen_are_told_apart() {
        let (counter, mut kills) = Counter::new();
        kills.adopt(1, Some(4));
        assert_eq!(end(&mut kills, 1, Some(4)), None, "somebody was killed before it came");
        kills.adopt(1, Some(5));
        counter.say(6);
        assert_eq!(end(&mut kills, 1, Some(5)), Some(true));
    }

    #[test]
    fn where_nobody_counts_nobody_knows() {
        let mut kills = Kills::new(None);
        let before = kills.begin(1);
        assert_eq!((before, end(&mut kills, 1, before)), (None, None));
    }
}
