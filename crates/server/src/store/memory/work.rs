//! Sessions and commands.

use super::{Tables, conflict, exists, missing, page};
use crate::store::{Page, Result, SPENT};
use stead_model::command::Command;
use stead_model::ids::{CommandId, LeaseId, TerminalId, ThreadId};
use stead_model::project::Tally;
use stead_model::proto::Status::Queued;
use stead_model::session::{CloseReason, Session, Status};

const SESSION: &str = "session";

impl Tables {
    pub(super) fn open_session(&mut self, session: &Session) -> Result<()> {
        if self.sessions.contains_key(&session.id) {
            return exists(SESSION, &session.id);
        }
        for live in self.sessions.values_mut() {
            if live.terminal == session.terminal && live.status.is_live() {
                live.status = Status::Closed;
                live.ended = Some((session.started_at, CloseReason::Superseded));
                live.version += 1;
            }
        }
        self.sessions.insert(session.id.clone(), session.clone());
        if let Some(project) = &session.project {
            // A project that has been deleted counts nothing.
            let _ = self.project_statistics(project, |statistics| statistics.sessions += 1);
        }
        Ok(())
    }

    pub(super) fn refuse_if_sessions_changed(&self, lease: &LeaseId, sessions: &[Session]) -> Result<()> {
        let is_known =
            |live: &Session| sessions.iter().any(|known| (&known.id, known.version) == (&live.id, live.version));
        let others = self.sessions.values().filter(|session| session.lease == *lease && session.status.is_live());
        match others.into_iter().find(|live| !is_known(live)) {
            Some(other) => conflict(SESSION, &other.id),
            None => Ok(()),
        }
    }

    pub(super) fn live_session(&self, terminal: &TerminalId) -> Option<&Session> {
        self.sessions.values().find(|session| session.terminal == *terminal && session.status.is_live())
    }

    pub(super) fn sessions_where(&self, which: impl Fn(&Session) -> bool, at: &Page) -> Vec<Session> {
        let found = self.sessions.values().filter(|session| which(session));
        page(found, |session| (session.started_at, session.id.as_str()), at)
    }

    pub(super) fn replace_session(&mut self, before: &Session, after: &Session) -> Result<()> {
        let Some(stored) = self.sessions.get(&before.id) else { return missing(SESSION, &before.id) };
        // Changed, or another one has become the live one of its terminal.
        let rival = self.live_session(&stored.terminal).is_some_and(|live| live.id != before.id);
        if stored.version != before.version || (after.status.is_live() && rival) {
            return conflict(SESSION, &before.id);
        }
        if let Some(stored) = self.sessions.get_mut(&before.id) {
            stored.status = after.status;
            stored.policy = after.policy;
            stored.started_at = after.started_at;
            stored.last_active_at = after.last_active_at;
            stored.ended = after.ended;
            stored.version = after.version;
        }
        Ok(())
    }

    pub(super) fn put_command(&mut self, command: &Command) -> Result<()> {
        if self.commands.contains_key(&command.id) {
            return exists("command", &command.id);
        }
        if self.spent.get(&command.id).is_some_and(|until| *until > command.created_at) {
            return exists(SPENT, &command.id);
        }
        if !self.threads.contains_key(&command.thread) {
            return missing("thread", &command.thread);
        }
        self.commands.insert(command.id.clone(), command.clone());
        Ok(())
    }

    pub(super) fn take_back_command(&mut self, id: &CommandId) {
        if self.commands.get(id).is_some_and(|command| command.status == Queued) {
            self.commands.remove(id);
        }
    }

    pub(super) fn save_commands(&mut self, commands: &[Command]) {
        for told in commands {
            let known = self.commands.get(&told.id);
            if known.is_none() && !self.terminals.contains_key(&told.terminal) {
                continue;
            }
            let command = match known {
                Some(known) => known.clone().joined(told.clone()),
                None => told.clone(),
            };
            if known == Some(&command) {
                continue;
            }
            let more = Tally::between(known, &command);
            self.commands.insert(command.id.clone(), command.clone());
            let project = self.threads.get(&command.thread).and_then(|thread| thread.project.clone());
            let Some(project) = project.filter(|_| command.status.is_final()) else { continue };
            // A project that has been deleted counts nothing.
            let _ = self.project_statistics(&project, |statistics| more.add_to(statistics));
            let error = command.ending.as_ref().and_then(|ending| ending.error.as_ref());
            if let (Some(error), Some(at)) = (error, command.ended_at) {
                let error = Some((at, error.message.clone()));
                let _ = self.project_statistics(&project, |statistics| statistics.last_error = error);
            }
        }
    }

    pub(super) fn commands_of(&self, thread: &ThreadId, at: &Page) -> Vec<Command> {
        let of = self.commands.values().filter(|command| command.thread == *thread);
        page(of, |command| (command.created_at, command.id.as_str()), at)
    }

    pub(super) fn open_commands(&self) -> Vec<Command> {
        let open = self.commands.values().filter(|command| !command.status.is_final());
        let mut open = page(open, |command| (command.created_at, command.id.as_str()), &Page::all());
        open.reverse();
        open
    }
}
