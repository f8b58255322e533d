//! Sessions and commands.

use super::{Tables, conflict, exists, missing, page};
use crate::store::{Page, Result};
use stead_model::command::{Command, replaces};
use stead_model::ids::{TerminalId, ThreadId};
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
        Ok(())
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
        if !self.threads.contains_key(&command.thread) {
            return missing("thread", &command.thread);
        }
        self.commands.insert(command.id.clone(), command.clone());
        Ok(())
    }

    pub(super) fn save_commands(&mut self, commands: &[Command]) {
        for command in commands.iter().filter(|command| self.threads.contains_key(&command.thread)) {
            let known = self.commands.get(&command.id).map(|known| known.status);
            if known.is_none_or(|known| replaces(known, command.status)) {
                self.commands.insert(command.id.clone(), command.clone());
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
