//! Is a word in the code of a Rust file, as opposed to its comments and strings?
//!
//! Just enough of the lexical grammar to pass over those two. It needn't be right for what doesn't compile.

/// The first line, from 1, where `word` stands as an identifier or keyword of its own.
pub(super) fn line_of_word(source: &str, word: &str) -> Option<usize> {
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if first == '"' {
            string(rest)
        } else if first == '\'' {
            character_or_lifetime(rest)
        } else if is_word(first) {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let (found, behind) = rest.split_at(end);
            if found == word {
                let before = source.len() - rest.len();
                return Some(source.bytes().take(before).filter(|byte| *byte == b'\n').count() + 1);
            }
            let raw = if matches!(found, "r" | "br" | "cr") { raw_string(behind) } else { 0 };
            end + raw
        } else {
            first.len_utf8()
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    None
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Block comments nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with("*/") {
            (depth, at) = (depth.saturating_sub(1), at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

fn string(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        match c {
            '\\' => drop(characters.next()),
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// What follows an `r`; nothing if it isn't a raw string (`r#name` is a name).
fn raw_string(text: &str) -> usize {
    let body = text.trim_start_matches('#');
    let hashes = text.len() - body.len();
    let Some(inner) = body.strip_prefix('"') else {
        return 0;
    };
    let close = format!("\"{}", "#".repeat(hashes));
    inner.find(&close).map_or(text.len(), |at| hashes + 1 + at + close.len())
}

/// `'a'` and `'\n'` are passed over whole, of `'a` only the quote: the rest reads as a word, which no lifetime of ours
/// is mistaken for.
fn character_or_lifetime(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    match characters.next() {
        Some((_, '\\')) => {
            characters.next();
            characters.find(|(_, c)| *c == '\'').map_or(text.len(), |(at, _)| at + 1)
        }
        Some(_) => match characters.next() {
            Some((at, '\'')) => at + 1,
            _ => 1,
        },
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::line_of_word;

    #[track_caller]
    fn check(source: &str, want: Option<usize>) {
        assert_eq!(line_of_word(source, "unsafe"), want, "{source}");
    }

    #[test]
    fn a_word_in_code_is_found_with_its_line() {
        check("unsafe { f() }", Some(1));
        check("fn f() {}\n\nunsafe fn g() {}", Some(3));
        check("let a = '\"'; unsafe {}", Some(1));
        check("let a = '\\''; unsafe {}", Some(1));
        check("fn f<'a>(x: &'a str) { unsafe {} }", Some(1));
        check("let a = r#\"x\"y\"#; unsafe {}", Some(1));
        check("/* a /* b */ c */ unsafe {}", Some(1));
        check("let a = \"\\\\\"; unsafe {}", Some(1));
        check("let a = r\"\\\"; unsafe {}", Some(1));
        check("#[unsafe(no_mangle)]", Some(1));
    }

    #[test]
    fn comments_strings_and_longer_words_are_passed_over() {
        check("// unsafe\n/// unsafe\n//! unsafe", None);
        check("/* unsafe /* unsafe */ unsafe */", None);
        check("let a = \"unsafe \\\" unsafe\";", None);
        check("let a = r##\"unsafe \"# unsafe\"##; let b = br\"unsafe\";", None);
        check("#![expect(unsafe_code, reason = \"unsafe\")]", None);
        check("let not_unsafe = 'u';", None);
        check("let r#type = b\"unsafe\"; let s = \"\u{e4} unsafe\";", None);
    }
}
