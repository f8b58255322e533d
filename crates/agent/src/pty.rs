//! Any program that talks to people through a terminal. Its screen is looked at, not its bytes: what it draws is
//! compared with the patterns of its [`Screen`], and what it says about itself ([`osc`]) counts more.
//!
//! ```text
//! starting ──quiet prompt or idle──► idle ──message──► typed ──echo, then Enter──► working ──idle, or end and silence──► idle
//!                                                                              ▲ ▼ permission
//!                                                                            asking
//! ```
//!
//! A screen is lossy: what a program rendered is not what its model wrote. Pieces are told when a line is whole and only
//! as long as what was told still stands; the message at the end is the screen's last word.

pub mod osc;
mod read;

use crate::event::{Event, Permission, PermissionOption};
use crate::machine::{Effects, Told};
use crate::spec::{Screen, ScreenPermission};
use osc::Signal;
use serde::{Deserialize, Serialize};

/// What is known of a session; the screen itself is drawn anew from the bytes that led to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pty {
    state: State,
    waiting: Option<String>,
    asked: u64,
    questions: Vec<Permission>,
    /// Which of its patterns the last question was found by.
    #[serde(default)]
    found_by: usize,
    /// It said that it works, so it will say that it doesn't.
    signals: bool,
    /// It said that it takes a message.
    #[serde(default)]
    idle: bool,
    /// What it said that it waits for.
    #[serde(default)]
    blocked: Option<String>,
    /// The conversation that it was started to go on with.
    #[serde(default)]
    resume: Option<String>,
    #[serde(skip)]
    moves: Moves,
}

/// How to tell something that happens from something that only turns: a screen may move while nothing goes on.
#[derive(Debug, Clone, Default, PartialEq)]
struct Moves {
    counted: u64,
    /// What the answer looked like.
    text: String,
    said: Option<Signal>,
}

impl Moves {
    fn said(&mut self, signal: &Signal) {
        if !matches!(signal, Signal::Title(_)) && self.said.as_ref() != Some(signal) {
            self.said = Some(signal.clone());
            self.counted += 1;
        }
    }

    fn shows(&mut self, text: &str) {
        if self.text != text {
            text.clone_into(&mut self.text);
            self.counted += 1;
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Starting,
    Idle,
    Typed {
        message: String,
    },
    Working {
        message: String,
        /// The message was to be seen when it was typed.
        #[serde(default)]
        echoed: bool,
        /// It was seen to do something since Enter.
        begun: bool,
        interrupted: bool,
        /// What was told of the answer.
        told: String,
        /// A question was answered that is still on the screen.
        answered: bool,
        /// How often a question was seen that nobody was told of.
        #[serde(default)]
        unasked: u32,
        /// Something was allowed: it is being done while the screen looks as if nothing were.
        #[serde(default)]
        allowed: bool,
    },
}

/// What there is to see.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The lines of the screen and those above it, without spaces at their ends.
    pub lines: &'a [String],
    /// What the program said since the last look.
    pub signals: &'a [Signal],
    /// Nothing has changed for a while.
    pub settled: bool,
}

const ENTER: &[u8] = b"\r";

/// A question is asked when it stands still, or when it was seen so often: something else may move for ever.
const MOVING: u32 = 20;

impl Default for Pty {
    fn default() -> Self {
        Self {
            state: State::Starting,
            waiting: None,
            asked: 0,
            questions: Vec::new(),
            found_by: 0,
            signals: false,
            idle: false,
            blocked: None,
            resume: None,
            moves: Moves::default(),
        }
    }
}

impl Pty {
    pub fn begin(resume: Option<String>) -> Self {
        Self { resume, ..Self::default() }
    }

    pub fn is_ready(&self) -> bool {
        self.state != State::Starting
    }

    pub fn is_in_turn(&self) -> bool {
        self.waiting.is_some() || matches!(self.state, State::Typed { .. } | State::Working { .. })
    }

    pub fn questions(&self) -> &[Permission] {
        &self.questions
    }

    /// How often something has happened: the answer has grown, or the program has said something else of itself.
    pub fn moves(&self) -> u64 {
        self.moves.counted
    }

    pub fn prompt(&mut self, screen: &Screen, message: &str) -> Effects {
        let mut effects = Effects::default();
        match self.state {
            State::Starting => self.waiting = Some(message.to_owned()),
            State::Idle | State::Typed { .. } | State::Working { .. } => self.type_in(screen, message, &mut effects),
        }
        effects
    }

    fn type_in(&mut self, screen: &Screen, message: &str, effects: &mut Effects) {
        let clean: String = message.chars().filter(|c| !c.is_control() || *c == '\n' || *c == '\t').collect();
        if screen.paste {
            effects.write.extend(b"\x1b[200~");
            effects.write.extend(clean.as_bytes());
            effects.write.extend(b"\x1b[201~");
        } else {
            effects.write.extend(clean.replace('\n', " ").as_bytes());
        }
        self.state = State::Typed { message: clean };
    }

    pub fn interrupt(&mut self, screen: &Screen) -> Effects {
        let mut effects = Effects::default();
        if self.waiting.take().is_some() {
            effects.event(Event::Aborted {});
            return effects;
        }
        match &mut self.state {
            State::Starting | State::Idle => {}
            State::Typed { .. } => {
                effects.write.extend(screen.interrupt.as_bytes());
                effects.event(Event::Aborted {});
                self.state = State::Idle;
            }
            State::Working { interrupted, .. } => {
                *interrupted = true;
                effects.write.extend(screen.interrupt.as_bytes());
            }
        }
        self.questions.clear();
        effects
    }

    /// Answers a question; without an option it is refused.
    pub fn answer(&mut self, screen: &Screen, id: &str, option: Option<&str>) -> Effects {
        let mut effects = Effects::default();
        let Some(at) = self.questions.iter().position(|question| question.id == id) else { return effects };
        let question = self.questions.remove(at);
        // The description may be another by now.
        let same = |permission: &&ScreenPermission| permission.kind == question.kind;
        let permission = screen.permissions.get(self.found_by).filter(same);
        let Some(permission) = permission.or_else(|| screen.permissions.iter().find(same)) else { return effects };
        let keys = if option == Some("allow") { &permission.allow } else { &permission.deny };
        effects.write.extend(keys.as_bytes());
        if let State::Working { answered, allowed, .. } = &mut self.state {
            *answered = true;
            *allowed |= option == Some("allow");
        }
        effects
    }

    /// Looks at the screen.
    pub fn see(&mut self, screen: &Screen, view: View<'_>) -> Effects {
        let mut effects = Effects::default();
        for signal in view.signals {
            self.moves.said(signal);
            match signal {
                Signal::Working => {
                    (self.signals, self.blocked) = (true, None);
                    if let State::Working { begun, .. } = &mut self.state {
                        *begun = true;
                    }
                }
                Signal::Blocked { message, .. } => {
                    self.signals = true;
                    self.blocked.clone_from(message);
                }
                Signal::Title(title) => match title_means(screen, title) {
                    Some(Means::Busy) => {
                        self.signals = true;
                        if let State::Working { begun, .. } = &mut self.state {
                            *begun = true;
                        }
                    }
                    // It may be set before the last line is drawn: from here on the screen decides.
                    Some(Means::Idle) => self.signals = false,
                    None => {}
                },
                // Some say so for a moment between two things they do: from here on the screen decides.
                Signal::Idle => (self.signals, self.idle, self.blocked) = (false, true, None),
                Signal::Done | Signal::Failed => (self.idle, self.blocked) = (true, None),
            }
        }
        match &self.state {
            State::Starting => self.start(screen, view, &mut effects),
            State::Idle => {}
            State::Typed { message } => {
                let message = message.clone();
                let echoed = read::echo(screen, view.lines, &message).is_some();
                if view.settled || echoed {
                    effects.write.extend(ENTER);
                    self.moves.counted += 1;
                    self.state = State::Working {
                        message,
                        echoed,
                        begun: false,
                        interrupted: false,
                        told: String::new(),
                        answered: false,
                        unasked: 0,
                        allowed: false,
                    };
                }
            }
            State::Working { .. } => self.work(screen, view, &mut effects),
        }
        effects
    }

    fn start(&mut self, screen: &Screen, view: View<'_>, effects: &mut Effects) {
        let prompts = view.lines.iter().rev().take(8).any(|line| screen.prompt.is_match(line));
        // Some draw their prompt before they listen, some say that they are idle before they draw it: what is typed then
        // is lost.
        if !prompts || !(self.idle || view.settled) {
            return;
        }
        self.state = State::Idle;
        self.moves.counted += 1;
        effects.told.push(Told::Ready { id: self.resume.clone(), resumed: self.resume.is_some() });
        if let Some(message) = self.waiting.take() {
            self.type_in(screen, &message, effects);
        }
    }

    fn work(&mut self, screen: &Screen, view: View<'_>, effects: &mut Effects) {
        let State::Working { message, echoed, begun, interrupted, told, answered, unasked, allowed } = &mut self.state
        else {
            return;
        };
        let read = read::answer(screen, view.lines, message);
        self.moves.shows(&read.text);
        // Where the message was to be seen and is not, what is there may be anything.
        let sure = read.found || !*echoed;
        *begun |= read.busy || !read.text.is_empty() && (sure || view.settled) || read.ended;
        let asks = screen.permissions.iter().enumerate().find_map(|(at, permission)| {
            let line = view.lines.iter().rev().take(12).find(|line| permission.pattern.is_match(line));
            line.map(|line| (at, line, permission.kind.clone()))
        });
        match asks {
            Some((at, line, kind)) if self.questions.is_empty() && !*answered && !*interrupted => {
                // Keys that come while a question is being drawn are ignored by some, so that nobody agrees to what was
                // not to be seen yet.
                *unasked += 1;
                if !view.settled && *unasked < MOVING {
                    return;
                }
                *unasked = 0;
                self.asked += 1;
                self.found_by = at;
                let permission = Permission {
                    id: format!("screen-{}", self.asked),
                    title: self.blocked.clone().unwrap_or_else(|| line.trim().to_owned()),
                    kind,
                    options: vec![
                        PermissionOption::new("allow", "Yes", "allow_once"),
                        PermissionOption::new("deny", "No", "reject_once"),
                    ],
                };
                self.questions.push(permission.clone());
                effects.event(Event::Permission(permission));
                return;
            }
            Some(_) => return,
            None => *answered = false,
        }
        let whole = read::whole_lines(&read.text);
        if let Some(piece) = whole.strip_prefix(told.as_str()).filter(|piece| sure && !piece.is_empty()) {
            effects.event(Event::Delta { text: piece.to_owned() });
            whole.clone_into(told);
        }
        let said_so = view.signals.iter().rev().find_map(|signal| match signal {
            Signal::Done => Some(true),
            Signal::Failed => Some(false),
            Signal::Idle | Signal::Working | Signal::Blocked { .. } | Signal::Title(_) => None,
        });
        // Where an end is told, a prompt that is drawn all the while says little behind something that was allowed.
        let prompts = read.prompts && (!*allowed || screen.end.is_none() || *interrupted);
        let looks_over = view.settled && *begun && !read.busy && (read.ended || prompts);
        if !(said_so.is_some() && *begun || looks_over && (!self.signals || *interrupted)) {
            return;
        }
        if let Some(rest) = read.text.strip_prefix(told.as_str()).filter(|rest| sure && !rest.is_empty()) {
            effects.event(Event::Delta { text: rest.to_owned() });
        }
        if !sure && screen.hook.is_none() {
            effects
                .status("its screen doesn't go back as far as the message: the beginning of the answer may be missing");
        }
        if !read.text.is_empty() {
            effects.event(Event::Message { text: read.text });
        }
        effects.event(match said_so {
            _ if *interrupted => Event::Aborted {},
            Some(false) => Event::error("agent_error", "the agent says that it failed"),
            Some(true) | None => Event::Done { usage: None },
        });
        self.questions.clear();
        self.state = State::Idle;
    }
}

enum Means {
    Busy,
    Idle,
}

/// What a title says, by its patterns; where only one of both is known, any other title means the opposite.
fn title_means(screen: &Screen, title: &str) -> Option<Means> {
    let busy = screen.busy_title.as_ref().map(|pattern| pattern.is_match(title));
    let idle = screen.idle_title.as_ref().map(|pattern| pattern.is_match(title));
    match (busy, idle) {
        (Some(true), _) | (None, Some(false)) => Some(Means::Busy),
        (_, Some(true)) | (Some(false), None) => Some(Means::Idle),
        (Some(false), Some(false)) | (None, None) => None,
    }
}

#[cfg(test)]
mod tests;
