//! How a command is stopped: interrupt, ask, kill; and when the shell itself has to go.
//!
//! ```text
//!  0 ───────────── 2/5 grace ──────────── grace ─────── 250 ms after the first KILL
//!  │  INT          │  TERM                │  KILL        │  replace the shell, if it still doesn't answer
//!  │  each group   │  each group once,    │  everything  │  and had the processor, or doesn't want it;
//!  │  once; the    │  the shell INT       │  but the     │  after three seconds in any case
//!  │  shell often  │                      │  shell       │
//! ```
//!
//! A group gets a signal once per phase, because programs take a second interrupt as "don't clean up". The shell and
//! its forks are interrupted again and again: bash loses an interrupt that hits it between fork and wait, and a fork
//! one that hits it before it has become the program.
//!
//! On a machine that is too busy nobody is on time. The shell is judged by what it did since everything else was killed,
//! not by how late it is, for it would have answered if it had been let.

use std::collections::BTreeSet;
use std::time::Duration;

/// How long a shell may take to answer after everything in it was killed.
const LAST_CHANCE: Duration = Duration::from_millis(250);

/// A shell that waits for the processor gets as long as this.
const LONGEST_CHANCE: Duration = Duration::from_secs(3);

/// So much of the processor's time is enough for any answer. One that took more goes on with something else.
const ENOUGH_TO_ANSWER: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Interrupt,
    Terminate,
    Kill,
}

/// What the kernel says of the shell's own process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShellTime {
    /// How long it has computed.
    pub ran: Duration,
    /// It computes, or would if it were let.
    pub wants_processor: bool,
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
    /// When everything but the shell was killed for the first time, and how long the shell had computed then.
    killed: Option<(Duration, Duration)>,
}

impl Escalation {
    pub fn new(grace: Duration, first: Phase) -> Self {
        Self { grace, first, ticks: 0, signalled: BTreeSet::new(), killed: None }
    }

    /// Asked again, and perhaps harder: goes on from there, and each group gets its signal once more.
    pub fn ask_again(&mut self, elapsed: Duration, first: Phase) {
        let first = first.max(self.phase(elapsed));
        *self = Self { killed: self.killed, ..Self::new(self.grace, first) };
    }

    pub fn grace(&self) -> Duration {
        self.grace
    }

    pub fn phase(&self, elapsed: Duration) -> Phase {
        let by_time = if elapsed >= self.grace {
            Phase::Kill
        } else if elapsed >= self.grace * 2 / 5 {
            Phase::Terminate
        } else {
            Phase::Interrupt
        };
        by_time.max(self.first)
    }

    /// What to do now, and when to look again.
    pub fn tick(&mut self, elapsed: Duration, foreground: Foreground, shell: ShellTime) -> (Action, Duration) {
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
            (Phase::Kill, _) if self.had_its_chance(elapsed, shell) => Action::ReplaceShell,
            (Phase::Kill, _) => {
                self.killed.get_or_insert((elapsed, shell.ran));
                Action::KillAll
            }
        };
        self.ticks = self.ticks.saturating_add(1);
        // Most cancellations are over after the first signal, and a program that is cleaning up need not be looked at more
        // than 50 times a second. Once it is being killed we want to be there when the shell goes on to what follows.
        let pause = if self.ticks <= 3 || phase > Phase::Interrupt { 2 } else { 20 };
        (action, Duration::from_millis(pause))
    }

    fn had_its_chance(&self, elapsed: Duration, shell: ShellTime) -> bool {
        let Some((at, ran)) = self.killed else { return false };
        let (waited, used) = (elapsed.saturating_sub(at), shell.ran.saturating_sub(ran));
        let is_starved = shell.wants_processor && used < ENOUGH_TO_ANSWER;
        waited >= if is_starved { LONGEST_CHANCE } else { LAST_CHANCE }
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

    const ASLEEP: ShellTime = ShellTime { ran: Duration::ZERO, wants_processor: false };

    #[test]
    fn every_phase_and_foreground_has_its_action() {
        use Foreground::{Fork, Group, Shell};
        let cases = [
            (0, Shell, Action::Interrupt(Shell)),
            (0, Group(5), Action::Interrupt(Group(5))),
            (0, Fork(5), Action::Interrupt(Fork(5))),
            (2000, Fork(5), Action::Terminate(Fork(5))),
            (5000, Fork(5), Action::KillAll),
            (2000, Shell, Action::Interrupt(Shell)),
            (2000, Group(5), Action::Terminate(Group(5))),
            (5000, Shell, Action::KillAll),
            (5000, Group(5), Action::KillAll),
            // Whoever comes too late to kill kills first.
            (9000, Shell, Action::KillAll),
        ];
        for (at, foreground, want) in cases {
            let mut escalation = Escalation::new(ms(5000), Phase::Interrupt);
            assert_eq!(escalation.tick(ms(at), foreground, ASLEEP).0, want, "at {at} ms with {foreground:?}");
        }
    }

    #[test]
    fn a_group_is_interrupted_once_and_asked_to_end_once_but_each_new_group_again() {
        use Action::{Interrupt, KillAll, Nothing, Terminate};
        let mut escalation = Escalation::new(ms(1000), Phase::Interrupt);
        let got: Vec<_> = [(0, 5), (10, 5), (20, 6), (30, 5), (400, 5), (410, 5), (1000, 5)]
            .map(|(at, group)| escalation.tick(ms(at), Foreground::Group(group), ASLEEP).0)
            .into();
        let (five, six) = (Foreground::Group(5), Foreground::Group(6));
        assert_eq!(got, [Interrupt(five), Nothing, Interrupt(six), Nothing, Terminate(five), Nothing, KillAll]);
    }

    #[test]
    fn the_caller_may_begin_further_up_but_never_further_down() {
        let escalation = Escalation::new(ms(1000), Phase::Kill);
        assert_eq!(escalation.phase(ms(0)), Phase::Kill);
        let mut escalation = Escalation::new(ms(1000), Phase::Terminate);
        escalation.ask_again(ms(10), Phase::Interrupt);
        assert_eq!(escalation.phase(ms(20)), Phase::Terminate);
    }

    #[test]
    fn a_shell_that_was_let_and_does_not_answer_is_replaced_and_one_that_was_not_let_gets_longer() {
        let busy = |ran| ShellTime { ran: ms(ran), wants_processor: true };
        let cases = [
            ("asleep", 249, ASLEEP, Action::KillAll),
            ("asleep", 250, ASLEEP, Action::ReplaceShell),
            ("in a loop", 250, busy(200), Action::ReplaceShell),
            ("not let", 250, busy(0), Action::KillAll),
            ("hardly let", 2999, busy(99), Action::KillAll),
            ("not let for long", 3000, busy(0), Action::ReplaceShell),
        ];
        for (what, after, shell, want) in cases {
            let mut escalation = Escalation::new(ms(1000), Phase::Interrupt);
            // Late already: the chance begins with the first kill.
            let _ = escalation.tick(ms(1500), Foreground::Shell, ASLEEP);
            assert_eq!(escalation.tick(ms(1500 + after), Foreground::Shell, shell).0, want, "{what} {after} ms");
        }
    }

    #[test]
    fn asking_again_gives_no_new_chance() {
        let mut escalation = Escalation::new(ms(1000), Phase::Kill);
        for at in [0, 100, 200] {
            escalation.ask_again(ms(at), Phase::Kill);
            assert_eq!(escalation.tick(ms(at), Foreground::Shell, ASLEEP).0, Action::KillAll);
        }
        escalation.ask_again(ms(260), Phase::Kill);
        assert_eq!(escalation.tick(ms(260), Foreground::Shell, ASLEEP).0, Action::ReplaceShell);
    }

    #[test]
    fn no_grace_at_all_kills_at_once() {
        let mut escalation = Escalation::new(ms(0), Phase::Interrupt);
        assert_eq!(escalation.tick(ms(0), Foreground::Shell, ASLEEP).0, Action::KillAll);
    }
}
