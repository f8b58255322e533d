//! Tables, and values as people read them.

use crate::settings;
use jiff::Timestamp;
use serde_json::Value;
use std::fmt::Write;
use std::io::{self, IsTerminal};

/// Columns as wide as they need to be, two spaces apart. The last one is cut at the edge of a terminal; where there is
/// none, nothing is cut.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|&name| name.to_owned()).collect()] }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    pub(crate) fn render(&self) -> String {
        let screen = Screen::of_stdout();
        self.render_on(&screen)
    }

    fn render_on(&self, screen: &Screen) -> String {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| length(cell)).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        let mut out = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', width - length(cell) + 2));
            }
            let line = line.trim_end();
            let line = match screen.columns {
                Some(columns) if length(line) > columns => {
                    let kept: String = line.chars().take(columns.saturating_sub(1)).collect();
                    format!("{kept}…")
                }
                _ => line.to_owned(),
            };
            let (on, off) = if number == 0 && screen.colours { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
            let _ = writeln!(out, "{on}{line}{off}");
        }
        out
    }
}

#[derive(Debug, Default)]
struct Screen {
    columns: Option<usize>,
    colours: bool,
}

impl Screen {
    fn of_stdout() -> Self {
        if !io::stdout().is_terminal() {
            return Self::default();
        }
        let columns = rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
        Self { columns: columns.filter(|&columns| columns > 0), colours: settings::colours() }
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// A value in one line. What would move the cursor or start a sequence is shown as its escape.
pub(crate) fn one_line(value: &Value) -> String {
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    };
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

/// A number of bytes as people say it; `-` where it isn't known.
pub(crate) fn size(bytes: &Value) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let Some(bytes) = bytes.as_u64() else { return "-".to_owned() };
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut one, mut unit) = (1_u128, "B");
    for next in UNITS {
        if u128::from(bytes) < one * 1024 {
            break;
        }
        (one, unit) = (one * 1024, next);
    }
    let rounded = |parts: u128| (u128::from(bytes) * parts + one / 2) / one;
    let tenths = rounded(10);
    if tenths < 100 { format!("{}.{} {unit}", tenths / 10, tenths % 10) } else { format!("{} {unit}", rounded(1)) }
}

/// How old something is that began at that time.
pub(crate) fn span(time: &Value) -> String {
    age(time).trim_end_matches(" ago").to_owned()
}

/// How long ago a time was, or how far ahead it lies.
pub(crate) fn age(time: &Value) -> String {
    age_at(time, Timestamp::now())
}

fn age_at(time: &Value, now: Timestamp) -> String {
    let Some(then) = time.as_str().and_then(|text| text.parse::<Timestamp>().ok()) else { return "-".to_owned() };
    let seconds = now.as_second() - then.as_second();
    let span = match seconds.abs() {
        0 => return "now".to_owned(),
        seconds @ 1..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds @ 3600..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86400),
    };
    if seconds > 0 { format!("{span} ago") } else { format!("in {span}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_are_aligned_and_lines_have_no_blank_end() {
        let mut table = Table::new(&["NAME", "X", "LAST"]);
        table.row(["a".to_owned(), "long one".to_owned(), "ü".to_owned()]);
        table.row(["longer".to_owned(), "y".to_owned(), String::new()]);
        let want = "NAME    X         LAST\na       long one  ü\nlonger  y\n";
        assert_eq!(table.render_on(&Screen::default()), want);
    }

    #[test]
    fn a_terminal_gets_lines_that_fit_and_a_head_that_stands_out() {
        let mut table = Table::new(&["A", "TEXT"]);
        table.row(["1".to_owned(), "0123456789".to_owned()]);
        let screen = Screen { columns: Some(8), colours: true };
        assert_eq!(table.render_on(&screen), "\x1b[1mA  TEXT\x1b[0m\n1  0123…\n");
    }

    #[test]
    fn nothing_in_a_value_reaches_the_terminal_as_a_command() {
        assert_eq!(one_line(&json!("a\x1b[2J\nb\tc\r")), r"a\u{1b}[2J\nb\tc\r");
        assert_eq!(one_line(&Value::Null), "-");
        assert_eq!(one_line(&json!(["x", 1])), r#"["x",1]"#);
    }

    #[test]
    fn sizes_are_told_as_people_say_them() {
        for (bytes, want) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (10_240, "10 KiB"),
            (3_250_585, "3.1 MiB"),
            (5 << 40, "5.0 TiB"),
            (u64::MAX, "16777216 TiB"),
        ] {
            assert_eq!(size(&bytes.into()), want, "{bytes}");
        }
        assert_eq!(size(&Value::Null), "-");
    }

    #[test]
    fn times_are_told_as_people_say_them() {
        let now: Timestamp = "2026-01-10T12:00:00Z".parse().unwrap();
        for (time, want) in [
            ("2026-01-10T12:00:00.300Z", "now"),
            ("2026-01-10T11:59:13.000Z", "47s ago"),
            ("2026-01-10T11:00:01Z", "59m ago"),
            ("2026-01-09T12:00:00Z", "24h ago"),
            ("2026-01-01T12:00:00Z", "9d ago"),
            ("2026-01-10T13:00:00Z", "in 1h"),
            ("soon", "-"),
        ] {
            assert_eq!(age_at(&time.into(), now), want, "{time}");
        }
        assert_eq!(age_at(&Value::Null, now), "-");
    }
}
