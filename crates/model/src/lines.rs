//! Windows of lines: a part of a text by the numbers of its lines, from 0.

use std::ops::Range;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// The bytes of it, the ends of its lines included.
    pub bytes: Range<usize>,
    /// The first line that is in it, and the one after the last.
    pub lines: Range<u64>,
    /// Of the whole text.
    pub total: u64,
}

impl Window {
    /// Where the next window begins, if there is more.
    pub fn next(&self) -> Option<u64> {
        (self.lines.end < self.total).then_some(self.lines.end)
    }
}

/// Lines `offset` to `offset + limit` of a text. What is behind the last end of a line is one, too, unless it is empty.
pub fn window(text: &[u8], offset: u64, limit: u64) -> Window {
    let (from, to) = (offset, offset.saturating_add(limit));
    let (mut begin, mut end, mut total) = (text.len(), text.len(), 0_u64);
    let mut at = 0;
    while at < text.len() {
        if total == from {
            begin = at;
        }
        if total == to {
            end = at;
        }
        let rest = text.get(at..).unwrap_or_default();
        at += memchr::memchr(b'\n', rest).map_or(rest.len(), |found| found + 1);
        total += 1;
    }
    let (first, last) = (from.min(total), to.min(total));
    if first == last {
        begin = end.min(begin);
        end = begin;
    }
    Window { bytes: begin..end, lines: first..last, total }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_window_is_whole_lines() {
        for (text, offset, limit, want, lines, total) in [
            ("a\nb\nc", 0, 2, "a\nb\n", 0..2, 3),
            ("a\nb\nc", 2, 9, "c", 2..3, 3),
            ("a\nb\n", 1, 1, "b\n", 1..2, 2),
            ("a\nb\n", 2, 5, "", 2..2, 2),
            ("a\nb\n", 9, 5, "", 2..2, 2),
            ("", 0, 5, "", 0..0, 0),
            ("\n\n", 1, 5, "\n", 1..2, 2),
            ("x", 0, 0, "", 0..0, 1),
        ] {
            let window = window(text.as_bytes(), offset, limit);
            assert_eq!(
                (&text[window.bytes.clone()], window.lines.clone(), window.total),
                (want, lines, total),
                "{text:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn windows_one_after_another_are_the_text(text in "[ab\n]{0,40}", size in 1_u64..5) {
            let (mut read, mut at) = (String::new(), Some(0));
            while let Some(offset) = at {
                let window = window(text.as_bytes(), offset, size);
                read.push_str(&text[window.bytes.clone()]);
                at = window.next();
            }
            prop_assert_eq!(read, text);
        }
    }
}
