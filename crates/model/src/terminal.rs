//! A terminal: the identity and the state of a shell, whatever process is that shell at the moment.
//!
//! Each runtime that opens a terminal gets the next *generation*; what it captures is only taken as long as no later one
//! has opened it. Within a generation versions only grow. So the past can't overwrite the present, whoever is late.
//!
//! An instance that was thought to be gone may turn up again, with a shell that went its own way meanwhile. So a terminal
//! knows on which instance it lives, and a shell on another is given the terminal's state, whatever its version.
//!
//! ```text
//! open ──► generation + 1 ──► commit (same generation, greater version) ──► kept, or unchanged
//!                         └─► commit (another generation, or an old version) ──► stale: refused
//! ```

use crate::clock::Timestamp;
use crate::ids::{InstanceId, LeaseId, TerminalId, ThreadId};
use crate::state::ShellState;

/// Versions whose content changed that are kept of each terminal.
pub const KEPT_STATES: u64 = 100;

/// The terminal that a thread has without asking for it.
pub const DEFAULT_NAME: &str = "default";

/// A name for a terminal within its thread.
pub fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terminal {
    pub id: TerminalId,
    pub thread: ThreadId,
    pub lease: LeaseId,
    pub name: String,
    pub state: ShellState,
    /// Grows by one with each finished command.
    pub version: u64,
    /// The version whose content this is; versions since then changed nothing.
    pub content_version: u64,
    /// Grows by one with each runtime.
    pub generation: u64,
    /// The instance whose shell was given this state, or has left it; absent where a journal outlives instances.
    pub instance: Option<InstanceId>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// What a runtime captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub generation: u64,
    pub version: u64,
    pub state: ShellState,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stale {
    #[error("the snapshot is of runtime {given}, but terminal `{terminal}` has been opened by runtime {current} since")]
    Generation { terminal: TerminalId, given: u64, current: u64 },
    #[error("the snapshot is version {given} of terminal `{terminal}`, which is at {current} already")]
    Version { terminal: TerminalId, given: u64, current: u64 },
}

impl Terminal {
    pub fn new(id: TerminalId, thread: ThreadId, lease: LeaseId, name: String, now: Timestamp) -> Self {
        Self {
            id,
            thread,
            lease,
            name,
            state: ShellState::default(),
            version: 0,
            content_version: 0,
            generation: 0,
            instance: None,
            created_at: now,
            updated_at: now,
        }
    }

    /// Another runtime takes over.
    pub fn open(&self, now: Timestamp) -> Self {
        Self { generation: self.generation + 1, updated_at: now, ..self.clone() }
    }

    /// Whether an instance that has a shell of this terminal was left behind: the terminal has lived on another since, so
    /// what that shell became there is not what this terminal is, however late its version.
    pub fn has_left(&self, instance: &InstanceId) -> bool {
        self.instance.as_ref().is_some_and(|last| last != instance)
    }

    /// The shell on an instance has this terminal's state.
    pub fn settle(&self, instance: InstanceId, now: Timestamp) -> Self {
        Self { instance: Some(instance), updated_at: now, ..self.clone() }
    }

    /// The terminal after a runtime captured its state.
    pub fn commit(&self, snapshot: &Snapshot, now: Timestamp) -> Result<Self, Stale> {
        if snapshot.generation != self.generation {
            return Err(Stale::Generation {
                terminal: self.id.clone(),
                given: snapshot.generation,
                current: self.generation,
            });
        }
        if snapshot.version <= self.version {
            return Err(Stale::Version { terminal: self.id.clone(), given: snapshot.version, current: self.version });
        }
        let mut next = Self { version: snapshot.version, updated_at: now, ..self.clone() };
        if snapshot.state != self.state {
            next.state = snapshot.state.clone();
            next.content_version = snapshot.version;
        }
        Ok(next)
    }

    /// The terminal with an earlier content, as a new version.
    pub fn restore(&self, content: ShellState, now: Timestamp) -> Self {
        let version = self.version + 1;
        let changed = content != self.state;
        Self {
            version,
            content_version: if changed { version } else { self.content_version },
            state: content,
            updated_at: now,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terminal() -> Terminal {
        let thread = ThreadId::parse("t").unwrap();
        let made = (TerminalId::made_of([1; 8]), LeaseId::made_of([2; 8]));
        Terminal::new(made.0, thread, made.1, DEFAULT_NAME.into(), Timestamp(0)).open(Timestamp(1))
    }

    fn at(cwd: &str) -> ShellState {
        ShellState { cwd: cwd.into(), ..ShellState::default() }
    }

    fn snapshot(generation: u64, version: u64, cwd: &str) -> Snapshot {
        Snapshot { generation, version, state: at(cwd) }
    }

    #[test]
    fn a_late_snapshot_of_an_old_shell_is_refused() {
        let second = terminal().commit(&snapshot(1, 1, "/a"), Timestamp(2)).unwrap().open(Timestamp(3));
        let late = second.commit(&snapshot(1, 2, "/late"), Timestamp(4));
        assert_eq!(late, Err(Stale::Generation { terminal: second.id.clone(), given: 1, current: 2 }));
        assert_eq!(second.commit(&snapshot(2, 2, "/b"), Timestamp(4)).unwrap().state, at("/b"));
    }

    #[test]
    fn an_older_version_of_the_same_shell_is_refused() {
        let terminal = terminal().commit(&snapshot(1, 5, "/five"), Timestamp(2)).unwrap();
        for version in [4, 5] {
            let refused = terminal.commit(&snapshot(1, version, "/x"), Timestamp(3));
            assert_eq!(refused, Err(Stale::Version { terminal: terminal.id.clone(), given: version, current: 5 }));
        }
    }

    #[test]
    fn a_version_without_a_change_keeps_the_content_it_had() {
        let one = terminal().commit(&snapshot(1, 1, "/a"), Timestamp(2)).unwrap();
        let two = one.commit(&snapshot(1, 2, "/a"), Timestamp(3)).unwrap();
        assert_eq!((two.version, two.content_version), (2, 1));
        let three = two.restore(at("/old"), Timestamp(4));
        assert_eq!((three.version, three.content_version, three.state), (3, 3, at("/old")));
    }

    #[test]
    fn a_name_is_short_and_plain() {
        assert!(is_name("default") && is_name("build-2.x_y"));
        assert!(!is_name("") && !is_name(".x") && !is_name("a b") && !is_name(&"x".repeat(65)));
    }
}
