//! A lease: the durable handle on compute. What we want of it and what was last seen of it are different things, and
//! they change by different events.
//!
//! ```text
//!                 ┌────────────────────────── gone ◄──────────────────────────┐
//!                 ▼                                                           │
//! none ─ begin ─► creating ─ created / seen running ─► running ◄─ resumed ─ paused
//!  ▲  ▲             │   │                               │  │  ── paused ──►   │
//!  │  └── failed ───┘   └── failed, who knows ─► unknown │  └─ unclear ─► unknown ── seen ──► running, paused
//!  │                                             ▲       │
//!  └──────────── destroyed (from anywhere) ──────┴───────┘        stopped: seen gone; `begin` starts over
//! ```
//!
//! [`Lease::apply`] is the only way to change one; [`Lease::step`] says what has to be done next to bring what is seen
//! to what is wanted. Both are pure: the driver in the server calls them, talks to the provider, and writes the outcome
//! together with its event.

use crate::clock::Timestamp;
use crate::ids::{InstanceId, LeaseId, ProviderName};
use std::fmt;
use std::time::Duration;

/// What was seen longer ago than this is looked at again before it is relied on.
pub const FRESH: Duration = Duration::from_secs(3);

/// An error of a provider can be a whole page; this much of it is kept.
const MOST_ERROR: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Desired {
    Running,
    Paused,
    Destroyed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Observed {
    /// There is no instance.
    None,
    /// One is being made; whether it is there yet is not known.
    Creating,
    Running,
    Paused,
    /// It was there and is gone.
    Stopped,
    /// It may be there; the provider couldn't tell.
    Unknown,
}

impl Desired {
    pub const ALL: [Self; 3] = [Self::Running, Self::Paused, Self::Destroyed];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Destroyed => "destroyed",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|desired| desired.as_str() == text)
    }
}

impl Observed {
    pub const ALL: [Self; 6] = [Self::None, Self::Creating, Self::Running, Self::Paused, Self::Stopped, Self::Unknown];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Unknown => "unknown",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|observed| observed.as_str() == text)
    }
}

impl fmt::Display for Desired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A limit that is not enforced, a mount that was left out: said, never silently skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caveat {
    pub code: String,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub id: LeaseId,
    pub provider: ProviderName,
    /// Which workspace its instances see; names a directory, a volume.
    pub workspace: String,
    pub desired: Desired,
    pub observed: Observed,
    pub observed_at: Option<Timestamp>,
    /// Present while there is one, or may be one.
    pub instance: Option<InstanceId>,
    /// What was seen is doubtful, however recent.
    pub needs_refresh: bool,
    pub last_error: Option<String>,
    pub caveats: Vec<Caveat>,
    /// Grows by one with each event; every write names the one it saw.
    pub version: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// What a provider says of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    Running,
    Paused,
    Gone,
    /// It couldn't say.
    Unclear,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    WantRunning,
    WantPaused,
    WantDestroyed,
    /// The provider is about to be asked for an instance of this name.
    Begin(InstanceId),
    Created(Vec<Caveat>),
    /// It certainly made none.
    NotCreated {
        error: String,
    },
    Paused,
    Resumed,
    Destroyed,
    Saw(Seen),
    /// A call failed, and what it did is not known.
    Failed {
        error: String,
    },
}

impl Input {
    /// The word for it in the event log.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::WantRunning => "intent.ensure_running",
            Self::WantPaused => "intent.pause",
            Self::WantDestroyed => "intent.destroy",
            Self::Begin(_) => "instance.creating",
            Self::Created(_) => "instance.created",
            Self::NotCreated { .. } => "instance.not_created",
            Self::Paused => "instance.paused",
            Self::Resumed => "instance.resumed",
            Self::Destroyed => "instance.destroyed",
            Self::Saw(_) => "observe.status",
            Self::Failed { .. } => "provider.error",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("lease `{lease}` wants `{desired}` and was seen `{observed}`: `{input}` can't happen to it")]
pub struct IllegalTransition {
    pub lease: LeaseId,
    pub desired: Desired,
    pub observed: Observed,
    pub input: &'static str,
}

/// What the driver does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It is as it should be.
    Rest,
    /// Look before anything else.
    Probe,
    Create,
    Pause,
    Resume,
    Destroy,
}

impl Lease {
    pub fn new(id: LeaseId, provider: ProviderName, workspace: String, now: Timestamp) -> Self {
        Self {
            id,
            provider,
            workspace,
            desired: Desired::Running,
            observed: Observed::None,
            observed_at: None,
            instance: None,
            needs_refresh: false,
            last_error: None,
            caveats: Vec::new(),
            version: 0,
            created_at: now,
            updated_at: now,
        }
    }

    /// The lease after an event, or why the event can't be.
    pub fn apply(&self, input: &Input, now: Timestamp) -> Result<Self, IllegalTransition> {
        let illegal = || IllegalTransition {
            lease: self.id.clone(),
            desired: self.desired,
            observed: self.observed,
            input: input.kind(),
        };
        let mut next = self.clone();
        next.version += 1;
        next.updated_at = now;
        match input {
            // While something is being destroyed it can't be wanted back: that would be another.
            Input::WantRunning | Input::WantPaused
                if self.desired == Desired::Destroyed && self.observed != Observed::None =>
            {
                return Err(illegal());
            }
            Input::WantRunning => next.desired = Desired::Running,
            Input::WantPaused if self.observed == Observed::None => {}
            Input::WantPaused => next.desired = Desired::Paused,
            Input::WantDestroyed => next.desired = Desired::Destroyed,
            Input::Begin(instance) => match (self.desired, self.observed) {
                (Desired::Running, Observed::None | Observed::Stopped) => {
                    next.instance = Some(instance.clone());
                    next.caveats = Vec::new();
                    next.see(Observed::Creating, now);
                }
                _ => return Err(illegal()),
            },
            Input::Created(caveats) if self.observed == Observed::Creating => {
                next.caveats.clone_from(caveats);
                next.see(Observed::Running, now);
            }
            Input::NotCreated { error } if self.observed == Observed::Creating => {
                next.instance = None;
                next.see(Observed::None, now);
                next.last_error = Some(shorten(error));
            }
            Input::Paused if self.observed == Observed::Running => next.see(Observed::Paused, now),
            Input::Resumed if self.observed == Observed::Paused => next.see(Observed::Running, now),
            Input::Created(_) | Input::NotCreated { .. } | Input::Paused | Input::Resumed => return Err(illegal()),
            Input::Destroyed => {
                next.instance = None;
                next.caveats = Vec::new();
                next.see(Observed::None, now);
            }
            Input::Saw(seen) => next.observed = self.after_seeing(*seen, now, &mut next).ok_or_else(illegal)?,
            Input::Failed { error } => {
                next.needs_refresh = true;
                next.last_error = Some(shorten(error));
                if self.observed == Observed::Creating {
                    next.observed = Observed::Unknown;
                }
            }
        }
        Ok(next)
    }

    fn after_seeing(&self, seen: Seen, now: Timestamp, next: &mut Self) -> Option<Observed> {
        let observed = match (self.observed, seen) {
            // There is nothing to be seen.
            (Observed::None, Seen::Gone | Seen::Unclear) => return Some(Observed::None),
            (Observed::None, Seen::Running | Seen::Paused) | (Observed::Stopped, Seen::Paused) => return None,
            (Observed::Stopped, Seen::Unclear) => return Some(Observed::Stopped),
            (_, Seen::Unclear) => {
                next.needs_refresh = true;
                return Some(Observed::Unknown);
            }
            (_, Seen::Running) => Observed::Running,
            (_, Seen::Paused) => Observed::Paused,
            (_, Seen::Gone) => Observed::Stopped,
        };
        next.see(observed, now);
        Some(observed)
    }

    fn see(&mut self, observed: Observed, now: Timestamp) {
        self.observed = observed;
        self.observed_at = Some(now);
        self.needs_refresh = false;
        self.last_error = None;
    }

    /// Whether what was seen can be relied on without looking again.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        !self.needs_refresh && self.observed_at.is_some_and(|at| now.since(at) <= FRESH && at <= now)
    }

    /// What to do to bring what is seen to what is wanted.
    pub fn step(&self, now: Timestamp) -> Step {
        match (self.desired, self.observed) {
            (Desired::Running, Observed::None | Observed::Stopped) => Step::Create,
            (Desired::Paused | Desired::Destroyed, Observed::None) | (Desired::Paused, Observed::Stopped) => Step::Rest,
            // A steward or a server died in the middle of making it.
            (Desired::Running | Desired::Paused, Observed::Creating | Observed::Unknown) => Step::Probe,
            (Desired::Running, Observed::Running) | (Desired::Paused, Observed::Paused) => {
                if self.is_fresh(now) {
                    Step::Rest
                } else {
                    Step::Probe
                }
            }
            (Desired::Running, Observed::Paused) => Step::Resume,
            (Desired::Paused, Observed::Running) => Step::Pause,
            (
                Desired::Destroyed,
                Observed::Creating | Observed::Running | Observed::Paused | Observed::Stopped | Observed::Unknown,
            ) => Step::Destroy,
        }
    }
}

fn shorten(error: &str) -> String {
    error.chars().take(MOST_ERROR).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    fn lease(desired: Desired, observed: Observed) -> Lease {
        let id = LeaseId::made_of([1; 8]);
        let mut lease = Lease::new(id, ProviderName::parse("p").unwrap(), "w".into(), Timestamp(0));
        (lease.desired, lease.observed) = (desired, observed);
        if observed != Observed::None {
            lease.instance = Some(InstanceId::made_of([2; 8]));
            lease.observed_at = Some(Timestamp(0));
        }
        lease
    }

    fn inputs() -> Vec<Input> {
        vec![
            Input::WantRunning,
            Input::WantPaused,
            Input::WantDestroyed,
            Input::Begin(InstanceId::made_of([3; 8])),
            Input::Created(Vec::new()),
            Input::NotCreated { error: "no".into() },
            Input::Paused,
            Input::Resumed,
            Input::Destroyed,
            Input::Saw(Seen::Running),
            Input::Saw(Seen::Paused),
            Input::Saw(Seen::Gone),
            Input::Saw(Seen::Unclear),
            Input::Failed { error: "who knows".into() },
        ]
    }

    /// What every pair of wanted and seen does with every input: `-` for what can't be, else the new pair.
    #[test]
    fn every_state_answers_every_input() {
        let mut table = String::new();
        for desired in Desired::ALL {
            for observed in Observed::ALL {
                let before = lease(desired, observed);
                let cells: Vec<_> = inputs()
                    .iter()
                    .map(|input| match before.apply(input, Timestamp(10)) {
                        Ok(after) => {
                            assert_eq!(after.version, 1, "every event counts");
                            assert_eq!(after.instance.is_none(), after.observed == Observed::None, "{input:?}");
                            short(&after)
                        }
                        Err(error) => {
                            assert_eq!((error.desired, error.observed), (desired, observed));
                            assert!(error.to_string().contains(observed.as_str()), "both states are named");
                            "--".to_owned()
                        }
                    })
                    .collect();
                writeln!(table, "{} {}", short(&before), cells.join(" ")).unwrap();
            }
        }
        assert_eq!(table, EXPECTED, "\n{table}");
    }

    fn short(lease: &Lease) -> String {
        let first = |text: &str| text.chars().next().unwrap_or(' ');
        format!("{}{}", first(lease.desired.as_str()).to_uppercase(), first(lease.observed.as_str()))
    }

    // Columns: want running, paused, destroyed; begin, created, not created, paused, resumed, destroyed; seen running,
    // paused, gone, unclear; failed. First letter wanted (Running, Paused, Destroyed), second seen (none, creating,
    // running, paused, stopped, unknown).
    const EXPECTED: &str = "\
Rn Rn Rn Dn Rc -- -- -- -- Rn -- -- Rn Rn Rn
Rc Rc Pc Dc -- Rr Rn -- -- Rn Rr Rp Rs Ru Ru
Rr Rr Pr Dr -- -- -- Rp -- Rn Rr Rp Rs Ru Rr
Rp Rp Pp Dp -- -- -- -- Rr Rn Rr Rp Rs Ru Rp
Rs Rs Ps Ds Rc -- -- -- -- Rn Rr -- Rs Rs Rs
Ru Ru Pu Du -- -- -- -- -- Rn Rr Rp Rs Ru Ru
Pn Rn Pn Dn -- -- -- -- -- Pn -- -- Pn Pn Pn
Pc Rc Pc Dc -- Pr Pn -- -- Pn Pr Pp Ps Pu Pu
Pr Rr Pr Dr -- -- -- Pp -- Pn Pr Pp Ps Pu Pr
Pp Rp Pp Dp -- -- -- -- Pr Pn Pr Pp Ps Pu Pp
Ps Rs Ps Ds -- -- -- -- -- Pn Pr -- Ps Ps Ps
Pu Ru Pu Du -- -- -- -- -- Pn Pr Pp Ps Pu Pu
Dn Rn Dn Dn -- -- -- -- -- Dn -- -- Dn Dn Dn
Dc -- -- Dc -- Dr Dn -- -- Dn Dr Dp Ds Du Du
Dr -- -- Dr -- -- -- Dp -- Dn Dr Dp Ds Du Dr
Dp -- -- Dp -- -- -- -- Dr Dn Dr Dp Ds Du Dp
Ds -- -- Ds -- -- -- -- -- Dn Dr -- Ds Ds Ds
Du -- -- Du -- -- -- -- -- Dn Dr Dp Ds Du Du
";

    #[test]
    fn what_was_seen_a_while_ago_is_looked_at_again() {
        let mut seen = lease(Desired::Running, Observed::Running);
        seen.observed_at = Some(Timestamp(1000));
        assert_eq!(seen.step(Timestamp(4000)), Step::Rest);
        assert_eq!(seen.step(Timestamp(4001)), Step::Probe);
        assert_eq!(seen.step(Timestamp(999)), Step::Probe, "a clock that was set back proves nothing");
        seen.needs_refresh = true;
        assert_eq!(seen.step(Timestamp(1001)), Step::Probe);
    }

    #[test]
    fn whatever_is_wanted_there_is_a_step_towards_it() {
        for desired in Desired::ALL {
            for observed in Observed::ALL {
                let lease = lease(desired, observed);
                let settled = match desired {
                    Desired::Running => observed == Observed::Running,
                    Desired::Paused => matches!(observed, Observed::Paused | Observed::None | Observed::Stopped),
                    Desired::Destroyed => observed == Observed::None,
                };
                assert_eq!(lease.step(Timestamp(1)) == Step::Rest, settled, "{desired} {observed}");
            }
        }
    }

    #[test]
    fn a_long_error_is_cut() {
        let failed = lease(Desired::Running, Observed::Running)
            .apply(&Input::Failed { error: "é".repeat(2000) }, Timestamp(1))
            .unwrap();
        assert_eq!(failed.last_error.unwrap().chars().count(), 500);
        assert!(failed.needs_refresh);
    }
}
