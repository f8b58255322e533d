//! The machine of a session: which dialect it is, and what all of them have in common.
//!
//! ```text
//! begin ──► starting ──ready──► idle ──prompt──► turn ──done, aborted, error──► idle
//!              │  a prompt that comes early waits
//!              └──failed──► the turn that waited has an error; the next needs another process
//! ```

use crate::acp::Acp;
use crate::event::{Event, Permission};
use crate::jsonl::{Claude, Codex};
use crate::spec::{Spec, Transport};
use serde::{Deserialize, Serialize};

/// What an agent is started for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The workspace as the agent sees it.
    pub cwd: String,
    pub model: Option<String>,
    /// The conversation to go on with, by the agent's own name for it.
    pub resume: Option<String>,
}

/// What a machine has to say.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    Event(Event),
    /// It can be talked to. `id`: the agent's own name for the conversation, as far as it is known.
    Ready {
        id: Option<String>,
        resumed: bool,
    },
    /// The conversation has this name from now on.
    Named(String),
    /// The conversation that was to be resumed is not there: the agent has to be started without it.
    CannotResume,
}

/// What follows from something.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Effects {
    pub told: Vec<Told>,
    /// For the agent's standard input.
    pub write: Vec<u8>,
}

impl Effects {
    pub(crate) fn event(&mut self, event: Event) {
        self.told.push(Told::Event(event));
    }

    pub(crate) fn status(&mut self, text: impl Into<String>) {
        self.event(Event::status(text));
    }

    pub fn then(mut self, more: Self) -> Self {
        self.told.extend(more.told);
        self.write.extend(more.write);
        self
    }
}

/// Whoever answers a question that isn't asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    #[error("no permission `{0}` is being asked for")]
    NoSuchQuestion(String),
    #[error("permission `{id}` has no option `{option}`")]
    NoSuchOption { id: String, option: String },
}

/// A session with an agent that speaks in lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Machine {
    Codex(Codex),
    Claude(Claude),
    Acp(Acp),
}

macro_rules! each {
    ($machine:expr, $one:ident => $then:expr) => {
        match $machine {
            Self::Codex($one) => $then,
            Self::Claude($one) => $then,
            Self::Acp($one) => $then,
        }
    };
}

impl Machine {
    /// A process has been started. `None`: it speaks through a terminal, see [`crate::pty`].
    pub fn begin(spec: &Spec, setup: Setup) -> Option<(Self, Effects)> {
        Some(match spec.transport {
            Transport::Codex => {
                let (machine, effects) = Codex::begin(setup);
                (Self::Codex(machine), effects)
            }
            Transport::Claude => {
                let (machine, effects) = Claude::begin(setup);
                (Self::Claude(machine), effects)
            }
            Transport::Acp => {
                let (machine, effects) = Acp::begin(setup, spec.resume.by_message(), spec.set_model);
                (Self::Acp(machine), effects)
            }
            Transport::Pty => return None,
        })
    }

    /// The agent has written a line, here without its end.
    pub fn line(&mut self, line: &[u8]) -> Effects {
        each!(self, machine => machine.line(line))
    }

    /// A message for the agent. Nobody else's turn may be on.
    pub fn prompt(&mut self, text: &str) -> Effects {
        each!(self, machine => machine.prompt(text))
    }

    /// Ends the turn early; its last event comes when the agent has let go.
    pub fn interrupt(&mut self) -> Effects {
        each!(self, machine => machine.interrupt())
    }

    /// The questions that wait for an answer, oldest first.
    pub fn questions(&self) -> &[Permission] {
        each!(self, machine => machine.questions())
    }

    /// Answers one with an option of its own, or refuses where it offers none.
    pub fn answer(&mut self, id: &str, option: Option<&str>) -> Result<Effects, AnswerError> {
        let question = self.questions().iter().find(|question| question.id == id);
        let Some(question) = question else { return Err(AnswerError::NoSuchQuestion(id.to_owned())) };
        if let Some(option) = option.filter(|option| question.option(option).is_none()) {
            return Err(AnswerError::NoSuchOption { id: id.to_owned(), option: option.to_owned() });
        }
        Ok(each!(self, machine => machine.answer(id, option)))
    }

    pub fn is_ready(&self) -> bool {
        each!(self, machine => machine.is_ready())
    }

    /// It came to no conversation and never will: another process has to be started.
    pub fn has_failed(&self) -> bool {
        match self {
            Self::Codex(machine) => machine.has_failed(),
            Self::Acp(machine) => machine.has_failed(),
            // It has nothing to open: whatever fails is a turn.
            Self::Claude(_) => false,
        }
    }

    pub fn is_in_turn(&self) -> bool {
        each!(self, machine => machine.is_in_turn())
    }
}

/// Questions in the order in which they were asked, each with what its answer needs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Questions<T> {
    asked: Vec<Permission>,
    details: Vec<T>,
}

impl<T> Questions<T> {
    pub(crate) fn ask(&mut self, permission: Permission, detail: T) {
        self.asked.push(permission);
        self.details.push(detail);
    }

    pub(crate) fn all(&self) -> &[Permission] {
        &self.asked
    }

    pub(crate) fn take(&mut self, id: &str) -> Option<(Permission, T)> {
        let at = self.asked.iter().position(|question| question.id == id)?;
        Some((self.asked.remove(at), self.details.remove(at)))
    }

    pub(crate) fn drain(&mut self) -> Vec<(Permission, T)> {
        self.asked.drain(..).zip(self.details.drain(..)).collect()
    }
}
