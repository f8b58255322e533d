//! A stored state that can't be read after a restart. The server has states too: whoever opens the shell next says what
//! the last one was that it knows, and the next result tells what became of it.
//!
//! ```text
//! Whole ── its file can't be read ──► Lost ── opened, no process ──► Whole
//!                                      │ └── opened, process alive ──► Behind ── captured ──► Whole
//!                                      └── captured ──► Whole
//! ```

use super::{Shell, journal_fault};
use crate::host::Host;
use crate::journal::{JournalError, Need};
use crate::state_file::{self, StateError};
use stead_model::proto::{Fault, FaultCode, OpenShell, Warning};
use stead_model::record::StateMark;
use stead_model::state::ShellState;

/// What the state in memory is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    Whole,
    /// It was taken from the server. The process that is running may have a newer one: the next command is captured
    /// whatever it does.
    Behind,
    /// There is none. No process is started with it, and nobody is told it.
    Lost(StateError),
}

/// What a state is but for the directory, which the journal has.
const PARTS: &str = "variables, functions, aliases and options";

impl Shell {
    pub(super) fn load_state(&mut self) -> Result<(), JournalError> {
        let state = match self.mark.stored {
            0 => state_file::of_opening(self.open.state.as_ref()),
            stored => self.journal.load_state(stored)?,
        };
        if let Err(error) = &state {
            note!("steward: shell {}: its stored state of version {} {error}", self.open.shell, self.mark.stored);
            self.trust = Trust::Lost(*error);
        }
        self.set_state(state.unwrap_or_default());
        Ok(())
    }

    /// Refuses what needs a state where there is none.
    pub(super) fn require_state(&self) -> Result<(), Fault> {
        let Trust::Lost(error) = self.trust else { return Ok(()) };
        let StateMark { stored, .. } = &self.mark;
        let message = format!(
            "the stored state of terminal `{}` (version {stored}) {error}; a command in it goes on from the last version \
             that the server has",
            self.open.shell
        );
        Err(Fault::new(FaultCode::Damaged, message))
    }

    /// Takes the state of whoever opens the shell, if its own is lost.
    pub(crate) fn replace_lost_state(&mut self, host: &mut Host, open: &OpenShell) -> Result<(), Fault> {
        let Trust::Lost(error) = self.trust else { return Ok(()) };
        let given = match &open.state {
            Some(state) => minicbor::decode(state)
                .map_err(|_| Fault::new(FaultCode::Invalid, "the state to go on with can't be read"))?,
            None => ShellState::default(),
        };
        let (state, known) = (self.without_secrets(given), open.version.unwrap_or(0));
        let stored = self.mark.stored;
        // Nothing but the directory has changed since that version.
        let is_same = open.state.is_some() && known >= stored;
        let failed = |error: JournalError| journal_fault(&error);
        if is_same {
            self.journal.store_state(stored, &state).map_err(failed)?;
        } else {
            // What this version was has been told, so this is another.
            let version = self.mark.version + 1;
            self.journal.store_state(version, &state).map_err(failed)?;
            let mark = StateMark { version, stored: version, ..self.mark.clone() };
            let before = std::mem::replace(&mut self.mark, mark);
            if let Err(error) = self.journal.append(&[&self.head()], Need::WithReserve) {
                self.mark = before;
                return Err(journal_fault(&error));
            }
            self.obsolete.push(before.stored);
        }
        self.set_state(state);
        let is_alive = self.live.as_ref().is_some_and(|live| !live.gone);
        self.trust = if is_alive { Trust::Behind } else { Trust::Whole };
        let file = format!("the stored state of version {stored} of this terminal {error}");
        if is_alive {
            self.warn(
                "state_restored",
                format!("{file}; the shell runs and still has all of it, so it is stored anew"),
            );
        } else if is_same {
            self.warn(
                "state_restored",
                format!("{file}; it was taken from the server's database, and nothing is lost"),
            );
        } else {
            let message = format!(
                "{file}; {PARTS} are those of version {known}, and what later commands changed in them is lost"
            );
            self.warn("state_lost", message);
        }
        if !is_alive && !self.queue.is_empty() {
            self.respawn(host);
        }
        Ok(())
    }

    /// A capture has told what the process has.
    pub(super) fn state_was_captured(&mut self) -> Option<Warning> {
        let Trust::Lost(error) = std::mem::replace(&mut self.trust, Trust::Whole) else { return None };
        let message =
            format!("the stored state of this terminal {error}; it was taken from the shell, which has all of it");
        Some(Warning { code: "state_restored".to_owned(), message })
    }

    pub(super) fn is_state_lost(&self) -> bool {
        matches!(self.trust, Trust::Lost(_))
    }
}
