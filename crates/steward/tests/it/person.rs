//! A person at a terminal: what arrives is drawn on a screen, and the screen is what is looked at.

use super::rig::{PATIENCE, Rig, TestShell};
use std::time::Instant;
use stead_model::ids::ShellId;
use stead_model::proto::{Detached, Event, Size};
use stead_steward::client::{Attachment, ClientError, Seen};
use stead_term::screen::{PIECE, Screen};

pub(crate) struct Person {
    pub(crate) attachment: Attachment,
    pub(crate) screen: Screen,
    pub(crate) events: Vec<Event>,
    pub(crate) left: Option<Detached>,
    pub(crate) bytes: u64,
    /// Whether a question that comes through fails the test.
    pub(crate) strict: bool,
}

impl Person {
    pub(crate) fn at(rig: &Rig, shell: &ShellId) -> Self {
        Self::with_window(rig, shell, 80, 24)
    }

    pub(crate) fn with_window(rig: &Rig, shell: &ShellId, columns: u16, rows: u16) -> Self {
        let size = Size { columns, rows };
        let attachment = rig.client().attach(shell, size).unwrap();
        Self { attachment, screen: Screen::new(size), events: Vec::new(), left: None, bytes: 0, strict: true }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.attachment.press(keys.as_bytes()).unwrap();
    }

    pub(crate) fn text(&self) -> String {
        self.screen.text()
    }

    /// Looks on until the screen is as wanted.
    #[track_caller]
    pub(crate) fn wait(&mut self, what: &str, mut check: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + PATIENCE / 6;
        while !check(self) {
            assert!(Instant::now() < until, "waited too long for {what}; the screen:\n{}\n---", self.text());
            if let Err(error) = self.step() {
                panic!("waiting for {what}: {error}; the screen:\n{}\n---", self.text());
            }
        }
    }

    #[track_caller]
    pub(crate) fn wait_text(&mut self, part: &str) {
        self.wait(part, |person| person.text().contains(part));
    }

    /// Waits for a line of the screen, whole.
    #[track_caller]
    pub(crate) fn wait_line(&mut self, line: &str) {
        self.wait(line, |person| person.text().lines().any(|shown| shown == line));
    }

    /// Waits for what the last line is.
    #[track_caller]
    pub(crate) fn wait_last(&mut self, line: &str) {
        self.wait(line, |person| person.text().lines().last().unwrap_or_default() == line);
    }

    pub(crate) fn step(&mut self) -> Result<(), ClientError> {
        match self.attachment.recv()? {
            Seen::Bytes(bytes) => {
                self.bytes += bytes.len() as u64;
                for piece in bytes.chunks(PIECE) {
                    let answer = self.screen.feed(piece);
                    assert!(!self.strict || answer.is_empty(), "people are not asked: {}", bytes.escape_ascii());
                }
            }
            Seen::Event(event) => {
                self.events.push(event);
            }
            Seen::Refused(fault) => panic!("{fault}"),
            Seen::Taken(_) => {}
            Seen::Detached(why) => self.left = Some(why),
        }
        Ok(())
    }

    /// Waits until nothing more is behind the screen.
    #[track_caller]
    pub(crate) fn wait_left(&mut self) -> Detached {
        self.wait("the end", |person| person.left.is_some());
        self.left.unwrap()
    }
}

/// The prompt in the scratch directory.
pub(crate) fn prompt(rig: &Rig) -> String {
    format!("{} #", rig.scratch().display())
}

/// A shell whose prompt is `$`, and a person before it.
pub(crate) fn shell_and_person(rig: &Rig) -> (TestShell, Person) {
    let mut shell = rig.shell();
    shell.out("PS1='$ '");
    let mut person = Person::at(rig, &shell.id);
    person.wait_last("$");
    (shell, person)
}
