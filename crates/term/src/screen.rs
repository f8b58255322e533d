//! A terminal screen: what a person who looks at a shell's terminal sees, and the answers that programs get when they ask
//! the terminal something.
//!
//! The screen is a cache of the bytes that led to it. It is fed with them, and can say at any time what bytes would make
//! another terminal look the same ([`Screen::restore`]). Feeding costs what the bytes ask for, up to a millisecond for nine
//! of them; so it is done in small pieces and the caller looks at the clock between them.

mod probe;
mod quiet;
mod restore;

pub use quiet::Quiet;

use alacritty_terminal::event::{Event, EventListener, WindowSize};
use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::term::{Config, Term, TermMode};
use alacritty_terminal::vte::ansi::{Processor, Rgb, Timeout};
use probe::Probe;
use quiet::Tracked;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;
use stead_model::proto::Size;

/// Lines above the screen: enough to come back when a window is made lower and higher again.
const HISTORY: usize = 500;

/// What is fed between two looks at the clock.
pub const PIECE: usize = 128;

/// Answers to one piece of output. Nine bytes ask for three; a program that asks for megabytes gets none of them.
const MOST_ANSWERS: usize = 16 << 10;

/// The colours of a terminal that nobody has chosen any for: grey on black.
const FOREGROUND: Rgb = Rgb { r: 0xd8, g: 0xd8, b: 0xd8 };
const BACKGROUND: Rgb = Rgb { r: 0, g: 0, b: 0 };

/// A cell's size in pixels, for programs that ask.
const CELL: (u16, u16) = (8, 16);

pub struct Screen {
    term: Term<Ear>,
    parser: Processor<Never>,
    heard: Rc<RefCell<Heard>>,
    tracked: Tracked,
    probe: Probe,
    size: Size,
    /// The beginning of a character whose rest is yet to come. The parser loses or spoils what stands beside one that is
    /// given to it in two parts.
    begun: Vec<u8>,
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen").field("size", &self.size).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Heard {
    answers: String,
    title: Option<String>,
    size: Size,
}

struct Ear(Rc<RefCell<Heard>>);

impl EventListener for Ear {
    fn send_event(&self, event: Event) {
        let mut heard = self.0.borrow_mut();
        let size = heard.size;
        let answer = match event {
            Event::PtyWrite(text) => text,
            Event::ColorRequest(index, format) => format(colour(index)),
            Event::TextAreaSizeRequest(format) => format(WindowSize {
                num_lines: size.rows,
                num_cols: size.columns,
                cell_width: CELL.0,
                cell_height: CELL.1,
            }),
            // There is no clipboard: an empty one.
            Event::ClipboardLoad(_, format) => format(""),
            Event::Title(title) => {
                heard.title = Some(title.chars().filter(|c| !c.is_control()).take(200).collect());
                return;
            }
            Event::ResetTitle => {
                heard.title = None;
                return;
            }
            Event::ClipboardStore(..)
            | Event::MouseCursorDirty
            | Event::CursorBlinkingChange
            | Event::Wakeup
            | Event::Bell
            | Event::Exit
            | Event::ChildExit(_) => return,
        };
        heard.answer(&answer);
    }
}

impl Heard {
    fn answer(&mut self, text: &str) {
        if self.answers.len() + text.len() <= MOST_ANSWERS {
            self.answers.push_str(text);
        }
    }
}

fn colour(index: usize) -> Rgb {
    match index {
        // The named ones: foreground, background, cursor.
        257 => BACKGROUND,
        256 | 258.. => FOREGROUND,
        0..=15 => {
            let level = if index > 7 { 0xff } else { 0xaa };
            let part = |bit: usize| if index & bit == 0 { 0 } else { level };
            Rgb { r: part(1), g: part(2), b: part(4) }
        }
        16..=231 => {
            let step =
                |at: usize| u8::try_from([0, 95, 135, 175, 215, 255].get(at % 6).copied().unwrap_or(0)).unwrap_or(0);
            let cube = index - 16;
            Rgb { r: step(cube / 36), g: step(cube / 6), b: step(cube) }
        }
        232..=255 => {
            let grey = u8::try_from(8 + (index - 232) * 10).unwrap_or(u8::MAX);
            Rgb { r: grey, g: grey, b: grey }
        }
    }
}

/// Synchronized updates are shown as they come: there is nobody to flicker for, and nothing waits in a buffer.
#[derive(Debug, Default)]
struct Never;

impl Timeout for Never {
    fn set_timeout(&mut self, _: Duration) {}
    fn clear_timeout(&mut self) {}
    fn pending_timeout(&self) -> bool {
        false
    }
}

struct Dims(Size);

impl Dimensions for Dims {
    fn total_lines(&self) -> usize {
        self.screen_lines()
    }
    fn screen_lines(&self) -> usize {
        usize::from(self.0.rows)
    }
    fn columns(&self) -> usize {
        usize::from(self.0.columns)
    }
}

impl Screen {
    pub fn new(size: Size) -> Self {
        let size = size.clamped();
        let heard = Rc::new(RefCell::new(Heard { size, ..Heard::default() }));
        let config = Config { scrolling_history: HISTORY, kitty_keyboard: true, ..Config::default() };
        let term = Term::new(config, &Dims(size), Ear(Rc::clone(&heard)));
        let (parser, tracked, probe) = (Processor::new(), Tracked::new(size.rows), Probe::default());
        Self { term, parser, heard, tracked, probe, size, begun: Vec::new() }
    }

    pub fn size(&self) -> Size {
        self.size
    }

    pub fn resize(&mut self, size: Size) {
        let size = size.clamped();
        if size == self.size {
            return;
        }
        let survived = catch_unwind(AssertUnwindSafe(|| self.term.resize(Dims(size)))).is_ok();
        self.size = size;
        self.heard.borrow_mut().size = size;
        self.tracked.resized(size.rows);
        if !survived {
            *self = Self::new(size);
        }
    }

    /// Takes what was written to the terminal, a piece of at most [`PIECE`] bytes at a time, and returns what the terminal
    /// answers. Output that the emulator can't bear leaves an empty screen.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.tracked.see(bytes);
        self.begun.extend_from_slice(bytes);
        let rest = self.begun.split_off(self.begun.len() - unfinished(&self.begun));
        let whole = std::mem::replace(&mut self.begun, rest);
        let mut left = whole.as_slice();
        while let Some((asked, rest)) = self.probe.find(left).and_then(|end| left.split_at_checked(end)) {
            self.draw(asked);
            self.heard.borrow_mut().answer(probe::ANSWER);
            left = rest;
        }
        self.draw(left);
        let mut heard = self.heard.borrow_mut();
        std::mem::take(&mut heard.answers).into_bytes()
    }

    fn draw(&mut self, bytes: &[u8]) {
        let drawn = catch_unwind(AssertUnwindSafe(|| self.parser.advance(&mut self.term, bytes)));
        if drawn.is_err() {
            *self = Self::new(self.size);
        }
    }

    /// The cursor's column, from 0.
    pub fn column(&self) -> usize {
        self.term.grid().cursor.point.column.0
    }

    /// Whether a full-screen program has its own screen before the other.
    pub fn is_alternate(&self) -> bool {
        self.term.mode().contains(TermMode::ALT_SCREEN)
    }

    /// Bytes that make a terminal of the same size, whatever it showed before, look and behave like this one.
    pub fn restore(&mut self) -> Vec<u8> {
        let mut out = restore::RESET.to_vec();
        if self.is_alternate() {
            // The other screen can be seen only by going there, and going back clears this one: so this one is noted
            // first, and written again.
            let mode = *self.term.mode();
            let front = restore::contents(&self.term);
            let behaviour = restore::behaviour(&self.term, &self.tracked);
            self.term.swap_alt();
            out.extend(restore::contents(&self.term));
            out.extend(restore::place(&self.term));
            self.term.swap_alt();
            // It was cleared in the colour of the pen, which is not that of an empty line.
            let clear = [restore::NEUTRAL, b"\x1b[2J"].concat();
            self.write_again(&[&clear[..], &front, &behaviour].concat());
            debug_assert_eq!(mode, *self.term.mode(), "going there and back leaves everything as it was");
            out.extend_from_slice(b"\x1b[?1049h");
            out.extend(clear);
            out.extend(front);
            out.extend(behaviour);
        } else {
            out.extend(restore::contents(&self.term));
            out.extend(restore::behaviour(&self.term, &self.tracked));
        }
        out.extend(restore::input_modes(&self.term));
        if let Some(title) = &self.heard.borrow().title {
            out.extend_from_slice(format!("\x1b]2;{title}\x07").as_bytes());
        }
        out
    }

    fn write_again(&mut self, bytes: &[u8]) {
        // A parser of its own: the other may be in the middle of a sequence.
        let mut parser: Processor<Never> = Processor::new();
        let _ = catch_unwind(AssertUnwindSafe(|| parser.advance(&mut self.term, bytes)));
        self.heard.borrow_mut().answers.clear();
    }

    /// The screen line by line, for a terminal of another size.
    pub fn frame(&self) -> Frame {
        let (rows, end) = restore::frame(&self.term);
        Frame { rows, end }
    }

    /// The same, with the lines above it that are still known.
    pub fn all_text(&self) -> String {
        let mut out = String::new();
        for line in restore::past_rows(&self.term) {
            let _ = writeln!(out, "{}", line.trim_end());
        }
        out + &self.text()
    }

    /// The lines that were written, on it and above it: one that the edge of the screen broke is whole again.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut begun = String::new();
        for (row, goes_on) in restore::all_rows(&self.term) {
            begun.push_str(&row);
            if !goes_on {
                lines.push(std::mem::take(&mut begun).trim_end().to_owned());
            }
        }
        lines.push(begun.trim_end().to_owned());
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }

    /// What is written on it, without colours; blanks at the end of lines are left out.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for row in 0..self.size.rows {
            let _ = writeln!(out, "{}", restore::row_text(&self.term, row).trim_end());
        }
        out.trim_end().to_owned()
    }
}

/// How many bytes at the end are a character without its end.
fn unfinished(bytes: &[u8]) -> usize {
    for (at, byte) in bytes.iter().rev().take(3).enumerate() {
        let length = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return 0,
        };
        return if length > at + 1 { at + 1 } else { 0 };
    }
    0
}

/// A picture of the screen that can be compared with a later one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frame {
    rows: Vec<Vec<u8>>,
    end: Vec<u8>,
}

impl Frame {
    /// What makes a larger terminal that shows `before` show this; nothing if they are the same.
    pub fn since(&self, before: Option<&Self>) -> Vec<u8> {
        if before == Some(self) {
            return Vec::new();
        }
        let mut out = Vec::new();
        if before.is_none() {
            out.extend_from_slice(restore::RESET);
        }
        // Not seen while it moves about.
        out.extend_from_slice(b"\x1b[?25l");
        for (at, row) in self.rows.iter().enumerate() {
            if before.and_then(|before| before.rows.get(at)) != Some(row) {
                out.extend_from_slice(format!("\x1b[{};1H", at + 1).as_bytes());
                out.extend_from_slice(row);
            }
        }
        out.extend_from_slice(&self.end);
        out
    }
}

#[cfg(test)]
mod tests;
