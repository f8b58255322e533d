//! Text that programs wrote for a terminal, as it can be shown anywhere: without the sequences that colour it, move a
//! cursor or name a window, and without control characters.

use std::iter::Peekable;
use std::str::Chars;

/// The same text without escape sequences, of which nothing stays, and without control characters but line breaks and
/// tabs. What was to be written over is on a line of its own.
pub fn plain(text: &str) -> String {
    if !text.contains(|c: char| c.is_control() && c != '\n' && c != '\t') {
        return text.to_owned();
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => skip_escape(&mut rest),
            '\u{9b}' => skip_control(&mut rest),
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => skip_string(&mut rest),
            '\r' => {
                if rest.peek() != Some(&'\n') {
                    plain.push('\n');
                }
            }
            '\n' | '\t' => plain.push(c),
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    plain
}

type Rest<'a> = Peekable<Chars<'a>>;

/// Behind the escape character.
fn skip_escape(rest: &mut Rest<'_>) {
    match rest.peek() {
        Some('[') => {
            rest.next();
            skip_control(rest);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            rest.next();
            skip_string(rest);
        }
        _ => {
            while rest.next_if(|c| (' '..='/').contains(c)).is_some() {}
            rest.next_if(|c| ('0'..='~').contains(c));
        }
    }
}

/// Parameters, intermediates, and the letter that ends them.
fn skip_control(rest: &mut Rest<'_>) {
    while rest.next_if(|c| ('0'..='?').contains(c)).is_some() {}
    while rest.next_if(|c| (' '..='/').contains(c)).is_some() {}
    rest.next_if(|c| ('@'..='~').contains(c));
}

/// Up to the terminator. One that was cut off ends with its line: what follows was meant to be read.
fn skip_string(rest: &mut Rest<'_>) {
    while let Some(c) = rest.next_if(|c| *c != '\n') {
        match c {
            '\u{7}' | '\u{9c}' => return,
            '\u{1b}' if rest.next_if(|c| *c == '\\').is_some() => return,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_stays_of_a_sequence() {
        for (written, read) in [
            ("plain ü\n\ttext", "plain ü\n\ttext"),
            ("\u{1b}[1;31merror\u{1b}[0m: no", "error: no"),
            ("\u{1b}[38:2::255:0:0mx\u{1b}[?25ly\u{1b}[2 qz", "xyz"),
            ("\u{1b}]0;a title\u{7}x", "x"),
            ("\u{1b}]8;;http://a\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}Pq#0;2;0;0;0\u{1b}\\x\u{1b}_y\u{1b}\\z", "xz"),
            ("\u{1b}(Bx\u{1b}7\u{1b}=y", "xy"),
            ("\u{9b}31mx\u{9d}0;t\u{9c}y", "xy"),
            ("10%\r20%\r\ndone\r\n", "10%\n20%\ndone\n"),
            ("a\u{8}b\u{0}c\u{7f}", "abc"),
            ("cut off \u{1b}[1;3", "cut off "),
            ("cut off \u{1b}]0;title\nnext", "cut off \nnext"),
            ("\u{1b}", ""),
        ] {
            assert_eq!(plain(written), read, "{written:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_plain_stays_and_no_control_character_does(text in ".*", coloured in "[ -~ü]*") {
            let once = plain(&text);
            prop_assert!(!once.contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
            prop_assert_eq!(plain(&once), once.clone());
            prop_assert_eq!(plain(&format!("\u{1b}[31m{coloured}\u{1b}[m")), coloured);
        }
    }
}
