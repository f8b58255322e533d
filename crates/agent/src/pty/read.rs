//! Finding an answer on a screen: behind the echo of the message, before the next prompt, without what is drawn around
//! it.

use crate::spec::Screen;
use regex::Regex;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) busy: bool,
    pub(super) ended: bool,
    /// The program takes a message again.
    pub(super) prompts: bool,
    /// It begins behind the message, not with whatever else is drawn.
    pub(super) found: bool,
}

/// How much of a message is looked for: programs cut and wrap what is long.
const RECOGNISED: usize = 20;

/// The line of the last echo of a message.
pub(super) fn echo(screen: &Screen, lines: &[String], message: &str) -> Option<usize> {
    let first = message.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let begin: String = first.chars().take(RECOGNISED).collect();
    if begin.is_empty() {
        return None;
    }
    let is_echo = |line: &str, mark: &str| {
        let Some(rest) = line.strip_prefix(mark.trim()) else { return false };
        let rest = rest.trim_start();
        // Without a mark, a line that only begins alike may be anybody's.
        let ours = if mark.is_empty() && begin == first { rest == first } else { rest.starts_with(&begin) };
        ours || !mark.is_empty() && rest.starts_with("[Pasted")
    };
    lines.iter().rposition(|line| screen.echo.iter().any(|mark| is_echo(line.trim(), mark)))
}

pub(super) fn answer(screen: &Screen, lines: &[String], message: &str) -> Answer {
    let echo = echo(screen, lines, message);
    let mut read = Answer { found: echo.is_some(), ..Answer::default() };
    // It has scrolled away, is yet to be drawn, or never is.
    let from = echo.map_or(0, |at| at + 1);
    let lines = lines.get(from..).unwrap_or_default();
    let is = |pattern: &Option<Regex>, line: &str| pattern.as_ref().is_some_and(|pattern| pattern.is_match(line));
    let drawn = |line: &String| {
        line.is_empty()
            || is(&screen.busy, line)
            || is(&screen.end, line)
            || screen.noise.iter().any(|noise| noise.is_match(line))
    };
    // An answer may have a line that looks like the prompt; only the one that nothing is said behind is it.
    let prompt = lines.iter().rposition(|line| screen.prompt.is_match(line));
    let prompt = prompt.filter(|at| lines.iter().skip(at + 1).all(drawn));
    read.prompts = prompt.is_some();
    let mut behind = message.lines().map(str::trim).filter(|line| !line.is_empty()).skip(1).peekable();
    let mut kept: Vec<String> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if behind.peek().is_some_and(|rest| !line.is_empty() && rest.starts_with(line.trim())) {
            behind.next();
            continue;
        }
        if is(&screen.busy, line) {
            read.busy = true;
            continue;
        }
        if is(&screen.end, line) {
            read.ended = true;
            continue;
        }
        // What is below the prompt is drawn, not said.
        if prompt.is_some_and(|prompt| at >= prompt) || screen.noise.iter().any(|noise| noise.is_match(line)) {
            continue;
        }
        if !line.is_empty() {
            // What was said to be done before this was said is done.
            (read.busy, read.ended) = (false, false);
        }
        kept.push(unmark(screen, line));
    }
    let begin = kept.iter().position(|line| !line.is_empty()).unwrap_or(kept.len());
    let end = kept.iter().rposition(|line| !line.is_empty()).map_or(begin, |at| at + 1);
    read.text = kept.get(begin..end).unwrap_or_default().join("\n");
    read
}

/// A line without the mark before an answer, or the room that the mark takes in the lines behind it.
fn unmark(screen: &Screen, line: &str) -> String {
    if screen.answer.is_empty() {
        return line.to_owned();
    }
    if let Some(rest) = line.strip_prefix(screen.answer.as_str()) {
        return rest.to_owned();
    }
    let width = screen.answer.chars().count();
    let spaces = line.chars().take(width).take_while(|c| *c == ' ').count();
    line.get(spaces..).unwrap_or(line).to_owned()
}

/// All but the last line, which may still grow.
pub(super) fn whole_lines(text: &str) -> &str {
    text.rfind('\n').and_then(|at| text.get(..=at)).unwrap_or_default()
}
