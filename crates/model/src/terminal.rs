//! A terminal: the identity and the state of a shell, whatever process is that shell at the moment.
//!
//! Each runtime that opens a terminal gets the next *generation*; what it captures is only taken as long as no later one
//! has opened it. Within a generation versions only grow. So the past can't overwrite the present, whoever is late.
//!
//! An instance that was thought to be gone may turn up again, with a shell that went its own way meanwhile. So a terminal
//! knows which instances it has left, and a shell there is given the terminal's state, whatever its version.
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

/// Instances that a terminal remembers to have lived on.
pub const KEPT_HOMES: usize = 16;

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
    /// The instances that it has lived on, the present one last; none where a journal outlives instances.
    pub homes: Vec<InstanceId>,
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
            homes: Vec::new(),
            created_at: now,
            updated_at: now,
        }
    }

    /// Another runtime takes over.
    pub fn open(&self, now: Timestamp) -> Self {
        Self { generation: self.generation + 1, updated_at: now, ..self.clone() }
    }

    pub fn lives_on(&self, instance: &InstanceId) -> bool {
        self.homes.last() == Some(instance)
    }

    /// Whether it has lived there, and elsewhere since: what its shell became there is not what it is, however late the
    /// version.
    pub fn has_left(&self, instance: &InstanceId) -> bool {
        self.homes.contains(instance) && !self.lives_on(instance)
    }

    /// The terminal, living on an instance whose shell has its state.
    pub fn settle(&self, instance: &InstanceId, now: Timestamp) -> Self {
        let mut homes: Vec<_> = self.homes.iter().filter(|home| *home != instance).cloned().collect();
        homes.push(instance.clone());
        homes.drain(..homes.len().saturating_sub(KEPT_HOMES));
        Self { homes, updated_at: now, ..self.clone() }
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

    #[test]
    fn an_instance_is_left_when_the_terminal_lives_on_another_and_no_longer_when_it_is_back() {
        let [one, other, never] = [1, 2, 3].map(|n| InstanceId::made_of([n; 8]));
        let there = terminal().settle(&one, Timestamp(2)).settle(&other, Timestamp(3));
        assert_eq!((there.has_left(&one), there.has_left(&other), there.has_left(&never)), (true, false, false));
        let back = there.settle(&one, Timestamp(4));
        assert_eq!((back.has_left(&one), back.has_left(&other)), (false, true));
        assert_eq!((back.version, back.generation, &back.state), (there.version, there.generation, &there.state));
    }

    #[test]
    fn as_many_homes_are_remembered_as_were_lived_on_lately() {
        let instance = |n: usize| InstanceId::made_of([u8::try_from(n).unwrap(); 8]);
        let moved = (0..KEPT_HOMES + 2).fold(terminal(), |moved, n| moved.settle(&instance(n), Timestamp(2)));
        assert_eq!(moved.homes.len(), KEPT_HOMES);
        assert!(!moved.has_left(&instance(1)) && moved.has_left(&instance(2)));
    }
}
