//! What a shell has around it: the poller, the keeper, the clock, the timers. One struct, so that each step of a shell
//! can be a plain method that gets it lent.

use crate::dir::Dir;
use crate::heir::Heir;
use crate::kills::Kills;
use crate::link::Link;
use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use stead_model::ids::CommandId;
use stead_term::fifo::Probe;
use stead_term::poll::Poller;
use stead_term::spawn::OpenFiles;

/// How much is kept.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Bytes that all journals together may take.
    pub journal_limit: u64,
    /// Finished commands that one shell remembers.
    pub command_limit: usize,
    /// Shells that may be open at the same time, where the limit of open files allows as many.
    pub shell_limit: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { journal_limit: 20 << 30, command_limit: 65_536, shell_limit: 1000 }
    }
}

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) dir: Dir,
    pub(crate) settings: Settings,
    pub(crate) poller: Poller,
    pub(crate) link: Link,
    pub(crate) heir: Heir,
    pub(crate) probe: Probe,
    pub(crate) boot: Vec<u8>,
    /// The keeper has lived since a steward last had all shells: what it hasn't got, nobody has.
    pub(crate) kept: bool,
    /// What shells may open; we ourselves may open more.
    pub(crate) open_files: OpenFiles,
    /// Who was killed for want of memory.
    pub(crate) kills: Kills,
    timers: BTreeSet<(Instant, Timer)>,
    /// Shells with news for their followers.
    pub(crate) news: BTreeSet<u32>,
    /// Shells with work that can wait until every answer is on its way.
    pub(crate) chores: BTreeSet<u32>,
    /// Shells whose screen has more to take in.
    pub(crate) feeding: BTreeSet<u32>,
    /// Shells whose prompt may have to show something else.
    pub(crate) prompts: BTreeSet<u32>,
    /// Commands that shells took by themselves: a person's.
    pub(crate) named: Vec<(CommandId, (u32, u64))>,
    /// Pairs of streams that have more to read than one slice.
    pub(crate) unread: BTreeSet<(u32, u64)>,
}

/// Something to look at later. A timer that has lost its meaning by then does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timer {
    pub(crate) shell: u32,
    pub(crate) what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// Tell followers that this command has started, if nothing else has told them yet.
    Announce(u64),
    /// The command of this number has run long enough.
    Deadline(u64),
    /// The next step of a cancellation.
    Escalate(u64),
    /// Is the shell still busy with this command, or back without having said so?
    Watch(u64),
    /// The disk was full: try again.
    Retry,
    /// A shell is gone and its exit status should have come by now.
    Unreaped(u64),
    /// Output of this pair has had time to gather.
    Gathered(u64),
    /// Start the shell again.
    Respawn,
    /// The shell should have taken the environment of this number.
    Env(u64),
    /// Standard input is to be closed as soon as the shell has opened it.
    Input,
    /// A terminal may take more of what was typed.
    Keys,
    /// It is time for another picture.
    Draw,
    /// The prompt should show itself anew.
    Redraw,
    /// There should be a prompt.
    Prompt,
    /// Of no shell: there may be a descriptor for a connection again.
    Listen,
    /// Finished output is to be summed.
    Sum,
}

impl Host {
    #[expect(clippy::too_many_arguments, reason = "each is a part of its own, given once")]
    pub(crate) fn new(
        dir: Dir,
        settings: Settings,
        poller: Poller,
        probe: Probe,
        link: Link,
        heir: Heir,
        open_files: OpenFiles,
        kills: Kills,
    ) -> Self {
        Self {
            dir,
            settings,
            poller,
            probe,
            link,
            heir,
            boot: stead_term::proc::boot_id().as_bytes().to_vec(),
            kept: false,
            open_files,
            kills,
            timers: BTreeSet::new(),
            news: BTreeSet::new(),
            chores: BTreeSet::new(),
            feeding: BTreeSet::new(),
            prompts: BTreeSet::new(),
            named: Vec::new(),
            unread: BTreeSet::new(),
        }
    }

    pub(crate) fn after(&mut self, wait: Duration, shell: u32, what: What) {
        self.timers.insert((Instant::now() + wait, Timer { shell, what }));
    }

    /// How long the loop may sleep.
    pub(crate) fn next_wait(&self) -> Option<Duration> {
        let work = [&self.chores, &self.news, &self.feeding, &self.prompts];
        if !self.unread.is_empty() || work.iter().any(|shells| !shells.is_empty()) {
            return Some(Duration::ZERO);
        }
        self.timers.first().map(|(at, _)| at.saturating_duration_since(Instant::now()))
    }

    /// The next timer that had come due by then. A caller who works through all of them takes one moment for that: a
    /// timer that is set meanwhile has to wait until the poller was asked again, however long the work takes. Else a
    /// steward that gets little of the processor would look at a shell again and again without hearing its answer.
    pub(crate) fn due(&mut self, by: Instant) -> Option<Timer> {
        let (at, timer) = *self.timers.first()?;
        if at > by {
            return None;
        }
        self.timers.remove(&(at, timer));
        Some(timer)
    }
}

/// Microseconds since the epoch: what people read.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Microseconds since boot, sleep included: what deadlines count in. A step of the wall clock doesn't touch it.
pub(crate) fn uptime() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1000
}

/// What an epoll event is about, packed into its 64 bits: 8 for the kind, 24 for the shell or connection, 32 for the
/// pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Keeper,
    Listener,
    Connection(u32),
    Replies(u32),
    Terminal(u32),
    Process(u32),
    Output(u32, u64),
    Input(u32),
    Heir,
    /// What the prompt shows, and what it says.
    Prompt(u32),
    PromptSaid(u32),
}

impl Source {
    pub(crate) fn token(self) -> u64 {
        let pack =
            |kind: u64, shell: u32, pair: u64| kind << 56 | u64::from(shell & 0xff_ffff) << 32 | pair & 0xffff_ffff;
        match self {
            Self::Keeper => pack(0, 0, 0),
            Self::Listener => pack(1, 0, 0),
            Self::Connection(id) => pack(2, id, 0),
            Self::Replies(shell) => pack(3, shell, 0),
            Self::Terminal(shell) => pack(4, shell, 0),
            Self::Process(shell) => pack(5, shell, 0),
            Self::Output(shell, pair) => pack(6, shell, pair),
            Self::Input(shell) => pack(7, shell, 0),
            Self::Heir => pack(8, 0, 0),
            Self::Prompt(shell) => pack(9, shell, 0),
            Self::PromptSaid(shell) => pack(10, shell, 0),
        }
    }

    pub(crate) fn from_token(token: u64) -> Option<Self> {
        let shell = u32::try_from(token >> 32 & 0xff_ffff).unwrap_or(0);
        match token >> 56 {
            0 => Some(Self::Keeper),
            1 => Some(Self::Listener),
            2 => Some(Self::Connection(shell)),
            3 => Some(Self::Replies(shell)),
            4 => Some(Self::Terminal(shell)),
            5 => Some(Self::Process(shell)),
            6 => Some(Self::Output(shell, token & 0xffff_ffff)),
            7 => Some(Self::Input(shell)),
            8 => Some(Self::Heir),
            9 => Some(Self::Prompt(shell)),
            10 => Some(Self::PromptSaid(shell)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_survive_the_trip_through_the_kernel() {
        for source in [
            Source::Keeper,
            Source::Listener,
            Source::Connection(7),
            Source::Replies(0xff_ffff),
            Source::Terminal(1),
            Source::Process(2),
            Source::Output(3, 0xffff_ffff),
            Source::Input(9),
            Source::Heir,
            Source::Prompt(4),
            Source::PromptSaid(5),
        ] {
            assert_eq!(Source::from_token(source.token()), Some(source));
        }
    }
}
