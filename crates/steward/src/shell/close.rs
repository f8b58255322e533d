//! The end of a shell: nothing of it stays behind.

use super::{Shell, journal_fault};
use crate::host::Host;
use crate::journal::JournalError;
use std::fs;
use std::io;
use stead_model::proto::Fault;
use stead_term::proc;

impl Shell {
    /// Ends everything of this shell: its processes, its files, its journal.
    pub(crate) fn destroy(mut self, host: &mut Host) -> Result<(), Fault> {
        self.stop(host)?;
        self.journal.remove().map_err(|source| journal_fault(&JournalError::Io { path: self.run, source }))
    }

    /// Ends the shell's processes and removes what it had in the run directory. Its journal stays.
    pub(crate) fn stop(&mut self, host: &mut Host) -> Result<(), Fault> {
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
fn end_session(session: i32) {
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
