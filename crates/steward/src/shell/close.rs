//! The end of a shell: nothing of it stays behind.

use super::stored::Trust;
use super::{Shell, journal_fault};
use crate::host::Host;
use crate::journal::{JournalError, Need};
use std::fs;
use std::io;
use stead_model::proto::{Fault, FaultCode, SetState};
use stead_model::record::{Record, StateMark};
use stead_model::state::ShellState;
use stead_term::proc;

impl Shell {
    /// Ends everything of this shell: its processes, its files, its journal.
    pub(crate) fn destroy(mut self, host: &mut Host) -> Result<(), Fault> {
        self.stop(host)?;
        self.journal.remove().map_err(|source| journal_fault(&JournalError::Io { path: self.run, source }))
    }

    /// Ends the shell's processes between two commands; the next command gets a new one. A background child that left
    /// the shell's session stays, and so does the pair it writes to.
    pub(crate) fn rest(&mut self, host: &mut Host) -> Result<(), Fault> {
        if self.running.is_some() || !self.queue.is_empty() {
            return Err(Fault::new(FaultCode::Busy, "the shell is busy with a command"));
        }
        let Some(pid) = self.live.as_ref().map(|live| live.pid) else { return Ok(()) };
        // Noted first: who comes after us must not take the missing process for a death.
        let record = Record::Spawning(self.incarnation);
        self.journal.append(&[&record], Need::Last).map_err(|error| journal_fault(&error))?;
        self.condemn();
        end_session(pid);
        self.release(host);
        Ok(())
    }

    /// Another state from the next command on. Nothing has changed if it fails.
    pub(crate) fn put_state(&mut self, host: &mut Host, set: &SetState) -> Result<(), Fault> {
        let state: ShellState = minicbor::decode(&set.state)
            .map_err(|_| Fault::new(FaultCode::Invalid, "the state to be set can't be read"))?;
        let state = self.without_secrets(state);
        if set.version <= self.mark.version {
            let message = format!("the shell is at version {} already", self.mark.version);
            return Err(Fault::new(FaultCode::Conflict, message));
        }
        self.rest(host)?;
        let cwd = if state.cwd.is_empty() { self.open.cwd.clone() } else { state.cwd.clone() };
        let oldpwd = state.oldpwd.clone();
        let mark = StateMark { version: set.version, stored: set.version, cwd, oldpwd, ..StateMark::default() };
        self.journal.store_state(set.version, &state).map_err(|error| journal_fault(&error))?;
        let before = std::mem::replace(&mut self.mark, mark);
        // A head says it all; wherever in the log it stands, it holds from there on.
        if let Err(error) = self.journal.append(&[&self.head()], Need::WithReserve) {
            self.mark = before;
            return Err(journal_fault(&error));
        }
        self.obsolete.push(before.stored);
        self.set_state(state);
        self.trust = Trust::Whole;
        host.prompts.insert(self.key);
        Ok(())
    }

    /// Ends the shell's processes and removes what it had in the run directory. Its journal stays.
    pub(crate) fn stop(&mut self, host: &mut Host) -> Result<(), Fault> {
        self.close_terminal(host);
        if let Some(live) = &self.live {
            let session = live.pid;
            self.condemn();
            end_session(session);
        }
        self.release(host);
        for id in self.pairs.keys().copied().collect::<Vec<_>>() {
            self.drop_pair(host, id);
        }
        if let Some(mut running) = self.running.take() {
            self.close_input(host, &mut running);
        }
        host.kills.forget(self.key);
        host.kills.jobs(self.key, false);
        host.kills.idle(self.key, None);
        self.forget_secrets(host);
        match fs::remove_dir_all(&self.run) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(super::io_fault("can't remove the run directory", &error));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Kills every process of a session. What was forking while we looked is found the next time; what has been killed
/// forks no more, so this ends. The bound is for a kernel that won't let a process go (a dead network disk).
pub(super) fn end_session(session: i32) {
    for _ in 0..1000 {
        let left: Vec<_> = proc::of_session(session).into_iter().filter(|stat| stat.state != b'Z').collect();
        if left.is_empty() {
            return;
        }
        for process in left {
            proc::signal(process.pid, rustix::process::Signal::KILL);
        }
    }
}
