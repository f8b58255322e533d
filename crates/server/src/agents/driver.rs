//! A session's machine, whatever it is made for, and the pieces of output it is fed with.

use serde::{Deserialize, Serialize};
use stead_agent::machine::AnswerError;
use stead_agent::pty::{Pty, View};
use stead_agent::spec::Screen;
use stead_agent::{Effects, Machine, Permission, Setup, Spec};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Driver {
    Lines(Box<Machine>),
    Pty(Box<Pty>),
}

impl Driver {
    pub(super) fn begin(spec: &Spec, setup: Setup) -> (Self, Effects) {
        let resume = setup.resume.clone();
        match Machine::begin(spec, setup) {
            Some((machine, effects)) => (Self::Lines(Box::new(machine)), effects),
            None => (Self::Pty(Box::new(Pty::begin(resume))), Effects::default()),
        }
    }

    pub(super) fn prompt(&mut self, screen: Option<&Screen>, message: &str) -> Effects {
        match (self, screen) {
            (Self::Lines(machine), _) => machine.prompt(message),
            (Self::Pty(pty), Some(screen)) => pty.prompt(screen, message),
            (Self::Pty(_), None) => Effects::default(),
        }
    }

    pub(super) fn interrupt(&mut self, screen: Option<&Screen>) -> Effects {
        match (self, screen) {
            (Self::Lines(machine), _) => machine.interrupt(),
            (Self::Pty(pty), Some(screen)) => pty.interrupt(screen),
            (Self::Pty(_), None) => Effects::default(),
        }
    }

    pub(super) fn answer(
        &mut self,
        screen: Option<&Screen>,
        id: &str,
        option: Option<&str>,
    ) -> Result<Effects, AnswerError> {
        match (self, screen) {
            (Self::Lines(machine), _) => machine.answer(id, option),
            (Self::Pty(pty), screen) => {
                let question = pty.questions().iter().find(|question| question.id == id);
                let question = question.ok_or_else(|| AnswerError::NoSuchQuestion(id.to_owned()))?;
                if let Some(option) = option.filter(|option| question.option(option).is_none()) {
                    return Err(AnswerError::NoSuchOption { id: id.to_owned(), option: option.to_owned() });
                }
                Ok(screen.map(|screen| pty.answer(screen, id, option)).unwrap_or_default())
            }
        }
    }

    pub(super) fn see(&mut self, screen: Option<&Screen>, view: View<'_>) -> Effects {
        match (self, screen) {
            (Self::Pty(pty), Some(screen)) => pty.see(screen, view),
            (Self::Lines(_), _) | (Self::Pty(_), None) => Effects::default(),
        }
    }

    /// How often something has happened on its screen.
    pub(super) fn moves(&self) -> u64 {
        match self {
            Self::Lines(_) => 0,
            Self::Pty(pty) => pty.moves(),
        }
    }

    pub(super) fn questions(&self) -> &[Permission] {
        match self {
            Self::Lines(machine) => machine.questions(),
            Self::Pty(pty) => pty.questions(),
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        match self {
            Self::Lines(machine) => machine.has_failed(),
            Self::Pty(_) => false,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        match self {
            Self::Lines(machine) => machine.is_ready(),
            Self::Pty(pty) => pty.is_ready(),
        }
    }
}

/// A line that is longer says nothing that we could use.
const MOST_LINE: usize = 16 << 20;

/// Cuts a stream of bytes into lines, and knows how far it has got.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The beginning of a line whose end is yet to come.
    begun: Vec<u8>,
    /// One that is too long is passed over.
    skipping: bool,
}

impl Lines {
    /// Tells the lines that are whole now.
    pub(super) fn feed(&mut self, bytes: &[u8], mut line: impl FnMut(&[u8])) {
        let mut rest = bytes;
        while let Some(at) = memchr::memchr(b'\n', rest) {
            let (head, tail) = rest.split_at(at);
            if self.skipping {
                self.skipping = false;
            } else if self.begun.is_empty() {
                line(head);
            } else {
                self.begun.extend_from_slice(head);
                line(&self.begun);
            }
            self.begun.clear();
            rest = tail.get(1..).unwrap_or_default();
        }
        if self.skipping || self.begun.len() + rest.len() > MOST_LINE {
            self.skipping = true;
            self.begun = Vec::new();
        } else {
            self.begun.extend_from_slice(rest);
        }
    }

    /// Bytes that wait for the end of their line.
    pub(super) fn waiting(&self) -> usize {
        self.begun.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, usize) {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for piece in pieces {
            lines.feed(piece, |line| found.push(line.to_vec()));
        }
        (found, lines.waiting())
    }

    #[test]
    fn a_line_is_told_when_it_is_whole() {
        assert_eq!(cut(&[b"a\nb", b"c\n\nd"]), (vec![b"a".to_vec(), b"bc".to_vec(), vec![]], 1));
    }

    #[test]
    fn a_line_that_never_ends_is_passed_over_and_costs_nothing() {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for _ in 0..20 {
            lines.feed(&vec![b'x'; 1 << 20], |line| found.push(line.to_vec()));
            assert!(lines.waiting() <= MOST_LINE);
        }
        lines.feed(b"\nnext\n", |line| found.push(line.to_vec()));
        assert_eq!(found, [b"next".to_vec()]);
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(text in "[a\n]{0,40}", at in 0usize..40) {
            let bytes = text.as_bytes();
            let at = at.min(bytes.len());
            prop_assert_eq!(cut(&[&bytes[..at], &bytes[at..]]), cut(&[bytes]));
        }
    }
}
