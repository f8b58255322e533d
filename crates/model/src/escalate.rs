//! How a command is stopped: interrupt, ask, kill; and when the shell itself has to go.
//!
//! ```text
//!  0 ───────────── 2/5 grace ──────────── grace ─────── grace + 250 ms
//!  │  INT          │  TERM                │  KILL        │  replace the shell
//!  │  each group   │  each group once,    │  everything  │  if it still doesn't answer
//!  │  once; the    │  the shell INT       │  but the     │
//!  │  shell often  │                      │  shell       │
//! ```
//!
//! A group gets a signal once per phase, because programs take a second interrupt as "don't clean up". The shell and
//! its forks are interrupted again and again: bash loses an interrupt that hits it between fork and wait, and a fork
//! one that hits it before it has become the program.

use std::collections::BTreeSet;
use std::time::Duration;

/// How long a shell may take to answer after everything in it was killed.
const LAST_CHANCE: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Interrupt,
    Terminate,
    Kill,
    ReplaceShell,
}

/// Who has the terminal, as the kernel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreground {
    /// The shell itself is running (a loop, a builtin, a command substitution).
    Shell,
    /// A group led by a copy of the shell: a subshell, or a program that is not yet executed.
    Fork(i32),
    Group(i32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Interrupt(Foreground),
    Terminate(Foreground),
    /// Every process of the command, but not the shell.
    KillAll,
    ReplaceShell,
    Nothing,
}

/// The course of one cancellation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Escalation {
    grace: Duration,
    /// Where to begin: a caller may ask for TERM or KILL at once.
    first: Phase,
    ticks: u32,
    signalled: BTreeSet<(Phase, i32)>,
}

impl Escalation {
    pub fn new(grace: Duration, first: Phase) -> Self {
        Self { grace, first, ticks: 0, signalled: BTreeSet::new() }
    }

    pub fn grace(&self) -> Duration {
        self.grace
    }

    pub fn phase(&self, elapsed: Duration) -> Phase {
        let by_time = if elapsed >= self.grace + LAST_CHANCE {
            Phase::ReplaceShell
        } else if elapsed >= self.grace {
            Phase::Kill
        } else if elapsed >= self.grace * 2 / 5 {
            Phase::Terminate
        } else {
            Phase::Interrupt
        };
        by_time.max(self.first)
    }

    /// What to do now, and when to look again.
    pub fn tick(&mut self, elapsed: Duration, foreground: Foreground) -> (Action, Duration) {
        let phase = self.phase(elapsed);
        let action = match (phase, foreground) {
            (Phase::Interrupt | Phase::Terminate, Foreground::Shell) | (Phase::Interrupt, Foreground::Fork(_)) => {
                Action::Interrupt(foreground)
            }
            (Phase::Terminate, Foreground::Fork(_)) => Action::Terminate(foreground),
            (Phase::Interrupt, Foreground::Group(group)) => {
                if self.once(phase, group) {
                    Action::Interrupt(foreground)
                } else {
                    Action::Nothing
                }
            }
            (Phase::Terminate, Foreground::Group(group)) => {
                if self.once(phase, group) {
                    Action::Terminate(foreground)
                } else {
                    Action::Nothing
                }
            }
            (Phase::Kill, _) => Action::KillAll,
            (Phase::ReplaceShell, _) => Action::ReplaceShell,
        };
        self.ticks = self.ticks.saturating_add(1);
        // Most cancellations are over after the first signal, and a program that is cleaning up need not be looked at more
        // than 50 times a second. Once it is being killed we want to be there when the shell goes on to what follows.
        let pause = if self.ticks <= 3 || phase > Phase::Interrupt { 2 } else { 20 };
        (action, Duration::from_millis(pause))
    }

    fn once(&mut self, phase: Phase, group: i32) -> bool {
        self.signalled.insert((phase, group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn every_phase_and_foreground_has_its_action() {
        use Foreground::{Fork, Group, Shell};
        let cases = [
            (0, Shell, Action::Interrupt(Shell)),
            (0, Group(5), Action::Interrupt(Group(5))),
            (0, Fork(5), Action::Interrupt(Fork(5))),
            (2000, Fork(5), Action::Terminate(Fork(5))),
            (5000, Fork(5), Action::KillAll),
            (5250, Fork(5), Action::ReplaceShell),
            (2000, Shell, Action::Interrupt(Shell)),
            (2000, Group(5), Action::Terminate(Group(5))),
            (5000, Shell, Action::KillAll),
            (5000, Group(5), Action::KillAll),
            (5250, Shell, Action::ReplaceShell),
            (5250, Group(5), Action::ReplaceShell),
        ];
        for (at, foreground, want) in cases {
            let mut escalation = Escalation::new(ms(5000), Phase::Interrupt);
            assert_eq!(escalation.tick(ms(at), foreground).0, want, "at {at} ms with {foreground:?}");
        }
    }

    #[test]
    fn a_group_is_interrupted_once_and_asked_to_end_once_but_each_new_group_again() {
        use Action::{Interrupt, KillAll, Nothing, Terminate};
        let mut escalation = Escalation::new(ms(1000), Phase::Interrupt);
        let got: Vec<_> = [(0, 5), (10, 5), (20, 6), (30, 5), (400, 5), (410, 5), (1000, 5)]
            .map(|(at, group)| escalation.tick(ms(at), Foreground::Group(group)).0)
            .into();
        let (five, six) = (Foreground::Group(5), Foreground::Group(6));
        assert_eq!(got, [Interrupt(five), Nothing, Interrupt(six), Nothing, Terminate(five), Nothing, KillAll]);
    }

    #[test]
    fn the_caller_may_begin_further_up_but_never_further_down() {
        let escalation = Escalation::new(ms(1000), Phase::Kill);
        assert_eq!(escalation.phase(ms(0)), Phase::Kill);
        assert_eq!(escalation.phase(ms(2000)), Phase::ReplaceShell);
    }

    #[test]
    fn no_grace_at_all_kills_at_once() {
        let mut escalation = Escalation::new(ms(0), Phase::Interrupt);
        assert_eq!(escalation.tick(ms(0), Foreground::Shell).0, Action::KillAll);
    }
}
