//! Threads, terminals and their states.

use super::{Tables, conflict, exists, missing, page};
use crate::store::{AskedEnv, IDS_KEPT, KeptState, Page, Result, TerminalEnv};
use stead_model::clock::Timestamp;
use stead_model::ids::{LeaseId, ProjectId, TerminalId, ThreadId};
use stead_model::lease::{Desired, Lease};
use stead_model::terminal::{KEPT_STATES, Terminal};
use stead_model::thread::Thread;

const THREAD: &str = "thread";
const TERMINAL: &str = "terminal";

impl Tables {
    pub(super) fn create_thread(&mut self, thread: &Thread, terminal: &Terminal, lease: Option<&Lease>) -> Result<()> {
        if self.threads.contains_key(&thread.id) {
            return exists(THREAD, &thread.id);
        }
        if let Some(lease) = lease {
            self.put_lease(lease)?;
        }
        self.threads.insert(thread.id.clone(), thread.clone());
        let put = self.put_terminal(terminal);
        if put.is_err() {
            // Both were put a moment ago, and nobody has seen them.
            self.threads.remove(&thread.id);
            if let Some(lease) = lease {
                self.leases.remove(&lease.id);
            }
        }
        put
    }

    pub(super) fn fork_thread(
        &mut self,
        thread: &Thread,
        terminals: &[Terminal],
        envs: &[(TerminalId, AskedEnv)],
    ) -> Result<()> {
        if self.threads.contains_key(&thread.id) {
            return exists(THREAD, &thread.id);
        }
        self.refuse_if_removed(&thread.lease)?;
        self.threads.insert(thread.id.clone(), thread.clone());
        for (done, terminal) in terminals.iter().enumerate() {
            if let Err(error) = self.put_terminal(terminal) {
                // All of it was put a moment ago, and nobody has seen it.
                self.threads.remove(&thread.id);
                for put in terminals.iter().take(done) {
                    self.delete_terminal(&put.id);
                }
                return Err(error);
            }
        }
        for (terminal, asked) in envs {
            self.change_env(terminal, asked)?;
        }
        Ok(())
    }

    pub(super) fn move_thread(
        &mut self,
        before: &Thread,
        after: &Thread,
        terminals: &[(Terminal, Terminal)],
    ) -> Result<()> {
        let Some(stored) = self.threads.get(&before.id) else { return missing(THREAD, &before.id) };
        if stored.lease != before.lease {
            return conflict(THREAD, &before.id);
        }
        self.refuse_if_removed(&after.lease)?;
        for (was, becomes) in terminals {
            let Some(stored) = self.terminals.get(&was.id) else { return missing(TERMINAL, &was.id) };
            if (stored.generation, stored.version) != (was.generation, was.version) {
                return conflict(TERMINAL, &was.id);
            }
            self.refuse_terminal(becomes)?;
        }
        let named = |terminal: &Terminal| {
            terminals.iter().any(|(was, becomes)| was.id == terminal.id && becomes.lease != before.lease)
        };
        if self.terminals.values().any(|terminal| terminal.lease == before.lease && !named(terminal)) {
            return conflict("lease", &before.lease);
        }
        if !self.leases.contains_key(&before.lease) {
            return missing("lease", &before.lease);
        }
        for (was, becomes) in terminals {
            self.replace_terminal(was, becomes)?;
        }
        if let Some(thread) = self.threads.get_mut(&before.id) {
            thread.provider = after.provider.clone();
            thread.lease = after.lease.clone();
            thread.workspace.clone_from(&after.workspace);
        }
        self.past_leases.insert(before.lease.clone(), before.id.clone());
        Ok(())
    }

    /// Nobody is on it, and it is to be destroyed.
    fn refuse_if_removed(&self, lease: &LeaseId) -> Result<()> {
        let doomed = self.leases.get(lease).is_some_and(|lease| lease.desired == Desired::Destroyed);
        let used = self.terminals.values().any(|terminal| terminal.lease == *lease);
        if doomed && !used { conflict("lease", lease) } else { Ok(()) }
    }

    pub(super) fn threads_of(&self, project: Option<&ProjectId>, at: &Page) -> Vec<Thread> {
        let of = |thread: &&Thread| project.is_none() || thread.project.as_ref() == project;
        page(self.threads.values().filter(of), |thread| (thread.created_at, thread.id.as_str()), at)
    }

    /// A clock that was set back makes nothing older.
    pub(super) fn touch_thread(&mut self, id: &ThreadId, at: Timestamp) -> Result<()> {
        let Some(thread) = self.threads.get_mut(id) else { return missing(THREAD, id) };
        thread.last_active_at = thread.last_active_at.max(at);
        Ok(())
    }

    pub(super) fn delete_thread(&mut self, id: &ThreadId) {
        self.threads.remove(id);
        self.past_leases.retain(|_, mover| mover != id);
        for terminal in self.terminals_where(|terminal| terminal.thread == *id, &Page::all()) {
            self.delete_terminal(&terminal.id);
        }
        for (command, row) in self.commands.extract_if(.., |_, command| command.thread == *id) {
            let until = row.created_at.after(IDS_KEPT);
            let known = self.spent.entry(command).or_insert(until);
            *known = until.max(*known);
        }
    }

    pub(super) fn terminal_named(&self, thread: &ThreadId, name: &str) -> Option<&Terminal> {
        self.terminals.values().find(|terminal| terminal.thread == *thread && terminal.name == name)
    }

    pub(super) fn terminals_where(&self, which: impl Fn(&Terminal) -> bool, at: &Page) -> Vec<Terminal> {
        let found = self.terminals.values().filter(|terminal| which(terminal));
        page(found, |terminal| (terminal.created_at, terminal.id.as_str()), at)
    }

    pub(super) fn put_terminal(&mut self, terminal: &Terminal) -> Result<()> {
        if self.terminals.contains_key(&terminal.id) {
            return exists(TERMINAL, &terminal.id);
        }
        self.refuse_terminal(terminal)?;
        self.terminals.insert(terminal.id.clone(), terminal.clone());
        self.keep(terminal);
        Ok(())
    }

    /// A name that another has, a thread or a lease that isn't there.
    fn refuse_terminal(&self, terminal: &Terminal) -> Result<()> {
        if self.terminal_named(&terminal.thread, &terminal.name).is_some_and(|other| other.id != terminal.id) {
            return exists(TERMINAL, &terminal.name);
        }
        if !self.threads.contains_key(&terminal.thread) {
            return missing(THREAD, &terminal.thread);
        }
        if !self.leases.contains_key(&terminal.lease) {
            return missing("lease", &terminal.lease);
        }
        Ok(())
    }

    fn keep(&mut self, terminal: &Terminal) {
        let kept =
            KeptState { version: terminal.content_version, state: terminal.state.clone(), at: terminal.updated_at };
        let states = self.states.entry(terminal.id.clone()).or_default();
        states.insert(kept.version, kept);
        while states.len() as u64 > KEPT_STATES {
            states.pop_first();
        }
    }

    pub(super) fn replace_terminal(&mut self, before: &Terminal, after: &Terminal) -> Result<()> {
        let Some(stored) = self.terminals.get(&before.id) else { return missing(TERMINAL, &before.id) };
        if (stored.generation, stored.version) != (before.generation, before.version) {
            return conflict(TERMINAL, &before.id);
        }
        // Whose it is and since when doesn't change.
        let next = Terminal { thread: stored.thread.clone(), created_at: stored.created_at, ..after.clone() };
        self.refuse_terminal(&next)?;
        if after.content_version != before.content_version || after.state != before.state {
            self.keep(&next);
        }
        self.terminals.insert(before.id.clone(), next);
        Ok(())
    }

    pub(super) fn delete_terminal(&mut self, id: &TerminalId) {
        self.terminals.remove(id);
        self.states.remove(id);
        self.envs.remove(id);
    }

    pub(super) fn change_env(&mut self, id: &TerminalId, asked: &AskedEnv) -> Result<TerminalEnv> {
        if !self.terminals.contains_key(id) {
            return missing(TERMINAL, id);
        }
        let env = self.envs.entry(id.clone()).or_default();
        env.change(asked);
        Ok(env.clone())
    }

    pub(super) fn states_of(&self, terminal: &TerminalId) -> Vec<KeptState> {
        self.states.get(terminal).into_iter().flat_map(|states| states.values().rev().cloned()).collect()
    }

    pub(super) fn state_at(&self, terminal: &TerminalId, version: u64) -> Option<KeptState> {
        self.states.get(terminal)?.range(..=version).next_back().map(|(_, kept)| kept.clone())
    }
}
