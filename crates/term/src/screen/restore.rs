//! From a grid of cells back to bytes.

use super::quiet::Tracked;
use alacritty_terminal::grid::{Dimensions, Row};
use alacritty_terminal::index::{Column, Line};
use alacritty_terminal::term::cell::{Cell, Flags, Hyperlink};
use alacritty_terminal::term::{Term, TermMode};
use alacritty_terminal::vte::ansi::{CharsetIndex, Color, CursorShape, StandardCharset};
use std::fmt::Write as _;

/// Whatever a terminal was told before, forget it: the first screen, empty, with nothing switched on. What scrolled off it
/// stays where the person can find it.
pub(super) const RESET: &[u8] = b"\x18\x1b[?1049l\x1b[<99u\x1b[r\x1b[?6l\x1b[4l\x1b[20l\x1b[?7h\x1b[m\x1b]8;;\x07\x1b(B\x1b)B\x0f\
\x1b[?1l\x1b>\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?25h\x1b[0 q\x1b[H\x1b[J";

/// What must be so that contents can be written.
pub(super) const NEUTRAL: &[u8] = b"\x1b[r\x1b[?6l\x1b[4l\x1b[20l\x1b[?7h\x1b[m\x1b]8;;\x07\x1b(B\x1b)B\x0f";

/// What a pen writes with.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pen {
    fg: Color,
    bg: Color,
    flags: Flags,
    underline: Option<Color>,
    link: Option<Hyperlink>,
}

/// The flags that are looks; the others say how cells hang together.
const LOOKS: Flags = Flags::INVERSE
    .union(Flags::BOLD_ITALIC)
    .union(Flags::ALL_UNDERLINES)
    .union(Flags::DIM)
    .union(Flags::HIDDEN)
    .union(Flags::STRIKEOUT);

impl Pen {
    fn of(cell: &Cell) -> Self {
        Self {
            fg: cell.fg,
            bg: cell.bg,
            flags: cell.flags & LOOKS,
            underline: cell.underline_color(),
            link: cell.hyperlink(),
        }
    }

    fn plain() -> Self {
        Self::of(&Cell::default())
    }

    /// What makes a terminal that has `before` write with this.
    fn since(&self, before: &Self, out: &mut String) {
        if self == before {
            return;
        }
        if self.link != before.link {
            match &self.link {
                Some(link) => {
                    let _ = write!(out, "\x1b]8;id={};{}\x07", link.id(), link.uri());
                }
                None => out.push_str("\x1b]8;;\x07"),
            }
        }
        if (&self.fg, &self.bg, self.flags, &self.underline)
            == (&before.fg, &before.bg, before.flags, &before.underline)
        {
            return;
        }
        out.push_str("\x1b[0");
        let looks = [
            (Flags::BOLD, "1"),
            (Flags::DIM, "2"),
            (Flags::ITALIC, "3"),
            (Flags::UNDERLINE, "4"),
            (Flags::DOUBLE_UNDERLINE, "4:2"),
            (Flags::UNDERCURL, "4:3"),
            (Flags::DOTTED_UNDERLINE, "4:4"),
            (Flags::DASHED_UNDERLINE, "4:5"),
            (Flags::INVERSE, "7"),
            (Flags::HIDDEN, "8"),
            (Flags::STRIKEOUT, "9"),
        ];
        for (_, code) in looks.iter().filter(|(flag, _)| self.flags.contains(*flag)) {
            let _ = write!(out, ";{code}");
        }
        colour(self.fg, 30, out);
        colour(self.bg, 40, out);
        match self.underline {
            Some(Color::Spec(rgb)) => {
                let _ = write!(out, ";58;2;{};{};{}", rgb.r, rgb.g, rgb.b);
            }
            Some(Color::Indexed(index)) => {
                let _ = write!(out, ";58;5;{index}");
            }
            Some(Color::Named(_)) | None => {}
        }
        out.push('m');
    }
}

/// `base` is 30 for the foreground, 40 for the background.
fn colour(colour: Color, base: u16, out: &mut String) {
    let _ = match colour {
        Color::Named(named) => match named as u16 {
            index @ 0..=7 => write!(out, ";{}", base + index),
            index @ 8..=15 => write!(out, ";{}", base + 60 + index - 8),
            _ => Ok(()),
        },
        Color::Spec(rgb) => write!(out, ";{};2;{};{};{}", base + 8, rgb.r, rgb.g, rgb.b),
        Color::Indexed(index) => write!(out, ";{};5;{index}", base + 8),
    };
}

/// Everything on the screen, for an empty one.
pub(super) fn contents<T>(term: &Term<T>) -> Vec<u8> {
    let (mut out, mut pen, mut wrapped) = (String::new(), Pen::plain(), false);
    for at in 0..term.screen_lines() {
        let row = row(term, at);
        let goes_on =
            row.last().is_some_and(|cell| cell.flags.contains(Flags::WRAPLINE)) && at + 1 < term.screen_lines();
        if !wrapped {
            let _ = write!(out, "\x1b[{};1H", at + 1);
        }
        // A line that goes on in the next is written to its end, and the next follows by itself: so the terminal knows
        // that the two are one.
        let length = if goes_on { row.len() } else { written(row).max(usize::from(wrapped)) };
        // A wide character that had no room leaves a gap behind it, with its own looks, when it is written again.
        let gap = goes_on
            && match (row.last(), self::row(term, at + 1)) {
                (Some(last), [wide, second, ..]) => {
                    last.flags.contains(Flags::LEADING_WIDE_CHAR_SPACER)
                        && wide.flags.contains(Flags::WIDE_CHAR)
                        && second.flags.contains(Flags::WIDE_CHAR_SPACER)
                        && Pen::of(last) == Pen::of(wide)
                }
                _ => false,
            };
        cells(row, length - usize::from(gap), &mut pen, &mut out);
        wrapped = goes_on;
    }
    Pen::plain().since(&pen, &mut out);
    out.into_bytes()
}

fn row<T>(term: &Term<T>, at: usize) -> &[Cell] {
    let row: &Row<Cell> = &term.grid()[Line(i32::try_from(at).unwrap_or(0))];
    &row[Column(0)..Column(term.columns())]
}

/// Cells up to the last that isn't blank.
fn written(row: &[Cell]) -> usize {
    let blank = |cell: &Cell, seen: char| {
        seen == ' '
            && (seen != cell.c || cell.zerowidth().is_none_or(<[char]>::is_empty))
            && Pen::of(cell) == Pen::plain()
    };
    seen(row).filter(|(_, cell, seen)| !blank(cell, *seen)).last().map_or(0, |(at, ..)| at + 1)
}

fn cells(row: &[Cell], length: usize, pen: &mut Pen, out: &mut String) {
    for (cell, seen) in seen(row).take_while(|(at, ..)| *at < length).map(|(_, cell, seen)| (cell, seen)) {
        let wanted = Pen::of(cell);
        wanted.since(pen, out);
        *pen = wanted;
        out.push(seen);
        if seen == cell.c {
            out.extend(cell.zerowidth().into_iter().flatten());
        }
    }
}

/// The cells of a row that are seen, with their places and what is seen in them. Half of a wide character whose other half
/// was overwritten is a blank, and so is a tab, which is remembered in the first of the cells that it skipped.
fn seen(row: &[Cell]) -> impl Iterator<Item = (usize, &Cell, char)> {
    let is =
        |at: Option<usize>, flag: Flags| at.and_then(|at| row.get(at)).is_some_and(|cell| cell.flags.contains(flag));
    row.iter().enumerate().filter_map(move |(at, cell)| {
        let wide = cell.flags.contains(Flags::WIDE_CHAR);
        if cell.flags.contains(Flags::WIDE_CHAR_SPACER) {
            return (!is(at.checked_sub(1), Flags::WIDE_CHAR)).then_some((at, cell, ' '));
        }
        let torn = wide && !is(Some(at + 1), Flags::WIDE_CHAR_SPACER);
        Some((at, cell, if torn || cell.c.is_control() { ' ' } else { cell.c }))
    })
}

/// Where the cursor is on a screen whose contents are there, and with what it writes.
pub(super) fn place<T>(term: &Term<T>) -> Vec<u8> {
    let mut out = String::new();
    let (saved, cursor) = (&term.grid().saved_cursor, &term.grid().cursor);
    let mut pen = Pen::plain();
    let _ = write!(out, "\x1b[{};{}H", saved.point.line.0 + 1, saved.point.column.0 + 1);
    Pen::of(&saved.template).since(&pen, &mut out);
    pen = Pen::of(&saved.template);
    out.push_str("\x1b7");
    let line = usize::try_from(cursor.point.line.0).unwrap_or(0);
    let _ = write!(out, "\x1b[{};{}H", line + 1, cursor.point.column.0 + 1);
    if cursor.input_needs_wrap {
        // It stands behind the last column: only writing there brings it there.
        let row = row(term, line);
        let last = row.len().saturating_sub(1);
        let wide = row.get(last).is_some_and(|cell| cell.flags.contains(Flags::WIDE_CHAR_SPACER));
        let from = last.saturating_sub(usize::from(wide));
        let _ = write!(out, "\x1b[{};{}H", line + 1, from + 1);
        let tail: Vec<Cell> = row.get(from..).unwrap_or_default().to_vec();
        cells(&tail, tail.len(), &mut pen, &mut out);
    }
    Pen::of(&cursor.template).since(&pen, &mut out);
    out.into_bytes()
}

/// How a screen whose contents are there takes what is written next.
pub(super) fn behaviour<T>(term: &Term<T>, tracked: &Tracked) -> Vec<u8> {
    let mode = term.mode();
    let mut out = Vec::new();
    let mut first = 1;
    if let Some((top, bottom)) = tracked.region {
        out.extend_from_slice(format!("\x1b[{top};{bottom}r").as_bytes());
        first = usize::from(top).min(term.screen_lines() + 1);
    }
    out.extend(place(term));
    let mut text = String::new();
    if mode.contains(TermMode::ORIGIN) {
        let last = tracked.region.map_or(term.screen_lines(), |(_, bottom)| usize::from(bottom));
        from_origin(term, first, last, &mut text);
    }
    let charsets = &term.grid().cursor.charsets;
    for (index, open) in [(CharsetIndex::G0, '('), (CharsetIndex::G1, ')')] {
        if charsets[index] == StandardCharset::SpecialCharacterAndLineDrawing {
            let _ = write!(text, "\x1b{open}0");
        }
    }
    if tracked.shifted {
        text.push('\x0e');
    }
    let off = [(TermMode::LINE_WRAP, "\x1b[?7l")];
    let on = [(TermMode::INSERT, "\x1b[4h"), (TermMode::LINE_FEED_NEW_LINE, "\x1b[20h")];
    text.extend(off.iter().filter(|(flag, _)| !mode.contains(*flag)).map(|(_, code)| *code));
    text.extend(on.iter().filter(|(flag, _)| mode.contains(*flag)).map(|(_, code)| *code));
    out.extend(text.into_bytes());
    out
}

/// Where the cursor is when places are counted from the first line of a region. It can only have come out of the region by
/// going back to a saved place, or up; and so it does again.
fn from_origin<T>(term: &Term<T>, first: usize, last: usize, text: &mut String) {
    let (cursor, saved) = (&term.grid().cursor, &term.grid().saved_cursor);
    let line = |line: Line| usize::try_from(line.0).unwrap_or(0) + 1;
    let (at, column) = (line(cursor.point.line), cursor.point.column.0);
    text.push_str("\x1b[?6h");
    if (first..=last).contains(&at) {
        let _ = write!(text, "\x1b[{};{}H", at + 1 - first, column + 1);
        return;
    }
    if at < first {
        // Steps up are counted from the region's first line too, which may lie below the screen.
        let home = first.min(last.min(term.screen_lines()));
        let _ = write!(text, "\x1b[{}A", home + first - 1 - at);
    } else {
        let from = line(saved.point.line);
        let step = if from < at { "\x1bD" } else { "\x1bM" };
        text.push_str("\x1b8");
        text.push_str(&step.repeat(from.abs_diff(at)));
        Pen::of(&cursor.template).since(&Pen::of(&saved.template), text);
    }
    text.push('\r');
    if column > 0 {
        let _ = write!(text, "\x1b[{column}C");
    }
}

/// How keys and mouse are to be reported, and how the cursor looks.
pub(super) fn input_modes<T>(term: &Term<T>) -> Vec<u8> {
    let mode = term.mode();
    let mut out = String::new();
    let on = [
        (TermMode::APP_CURSOR, "\x1b[?1h"),
        (TermMode::APP_KEYPAD, "\x1b="),
        (TermMode::MOUSE_REPORT_CLICK, "\x1b[?1000h"),
        (TermMode::MOUSE_DRAG, "\x1b[?1002h"),
        (TermMode::MOUSE_MOTION, "\x1b[?1003h"),
        (TermMode::UTF8_MOUSE, "\x1b[?1005h"),
        (TermMode::SGR_MOUSE, "\x1b[?1006h"),
        (TermMode::FOCUS_IN_OUT, "\x1b[?1004h"),
        (TermMode::BRACKETED_PASTE, "\x1b[?2004h"),
    ];
    out.extend(on.iter().filter(|(flag, _)| mode.contains(*flag)).map(|(_, code)| *code));
    let kitty = [
        TermMode::DISAMBIGUATE_ESC_CODES,
        TermMode::REPORT_EVENT_TYPES,
        TermMode::REPORT_ALTERNATE_KEYS,
        TermMode::REPORT_ALL_KEYS_AS_ESC,
        TermMode::REPORT_ASSOCIATED_TEXT,
    ];
    let flags: u32 = kitty.iter().enumerate().filter(|(_, flag)| mode.contains(**flag)).map(|(bit, _)| 1 << bit).sum();
    if flags > 0 {
        let _ = write!(out, "\x1b[>{flags}u");
    }
    let style = term.cursor_style();
    let shape = match style.shape {
        CursorShape::Underline => Some(4),
        CursorShape::Beam => Some(6),
        CursorShape::Block | CursorShape::HollowBlock | CursorShape::Hidden => style.blinking.then_some(2),
    };
    if let Some(shape) = shape {
        let _ = write!(out, "\x1b[{} q", if style.blinking { shape - 1 } else { shape });
    }
    if !mode.contains(TermMode::SHOW_CURSOR) {
        out.push_str("\x1b[?25l");
    }
    out.into_bytes()
}

/// Line by line, each whole and by itself, then what comes after them.
pub(super) fn frame<T>(term: &Term<T>) -> (Vec<Vec<u8>>, Vec<u8>) {
    let rows = (0..term.screen_lines()).map(|at| {
        let row = row(term, at);
        let (mut out, mut pen) = ("\x1b[m".to_owned(), Pen::plain());
        cells(row, written(row), &mut pen, &mut out);
        Pen::plain().since(&pen, &mut out);
        out.push_str("\x1b[K");
        out.into_bytes()
    });
    let point = term.grid().cursor.point;
    let mut end = INPUT_RESET.to_vec();
    end.extend_from_slice(format!("\x1b[{};{}H", point.line.0 + 1, point.column.0 + 1).as_bytes());
    end.extend(input_modes(term));
    (rows.collect(), end)
}

/// Before [`input_modes`] are said anew.
const INPUT_RESET: &[u8] =
    b"\x1b[<99u\x1b[?1l\x1b>\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?25h";

pub(super) fn row_text<T>(term: &Term<T>, at: u16) -> String {
    text_of(row(term, usize::from(at)))
}

/// The lines that have left the screen at its top, oldest first.
pub(super) fn past_rows<T>(term: &Term<T>) -> impl Iterator<Item = String> {
    let grid = term.grid();
    (1..=grid.history_size()).rev().map(|above| {
        let above = i32::try_from(above).unwrap_or(i32::MAX);
        text_of(&grid[Line(-above)][..])
    })
}

/// All lines, oldest first, each with whether the next is the same line.
pub(super) fn all_rows<T>(term: &Term<T>) -> impl Iterator<Item = (String, bool)> {
    let grid = term.grid();
    let above = i32::try_from(grid.history_size()).unwrap_or(i32::MAX);
    let below = i32::try_from(term.screen_lines()).unwrap_or(i32::MAX);
    (-above..below).map(|line| {
        let row = &grid[Line(line)][..];
        (text_of(row), row.last().is_some_and(|cell| cell.flags.contains(Flags::WRAPLINE)))
    })
}

fn text_of(row: &[Cell]) -> String {
    let mut out = String::new();
    for (_, cell, seen) in seen(row) {
        out.push(seen);
        if seen == cell.c {
            out.extend(cell.zerowidth().into_iter().flatten());
        }
    }
    out
}
