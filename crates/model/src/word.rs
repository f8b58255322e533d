//! Shell words: quoting bytes for a shell, and reading back what `declare -p`, `alias -p`, `trap -p`, `export -p` and
//! `set` print. Those prints are the shells' own promise of re-usable input, so a small reader of quoting is enough;
//! it never guesses by lines, because a value may hold any line.

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WordError {
    #[error("a quote opened at byte {0} is never closed")]
    Unclosed(usize),
    #[error("expected a word at byte {0}")]
    Expected(usize),
}

/// `text` in single quotes, so that any POSIX shell reads exactly these bytes. NUL can't be in a shell word; callers
/// refuse it before.
pub fn quote(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    out.push(b'\'');
    for &byte in text {
        if byte == b'\'' {
            out.extend_from_slice(b"'\\''");
        } else {
            out.push(byte);
        }
    }
    out.push(b'\'');
    out
}

/// A reader over printed shell source.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    pub fn is_done(&self) -> bool {
        self.at >= self.text.len()
    }

    pub fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// What was read since `from`.
    pub fn since(&self, from: usize) -> &'a [u8] {
        self.text.get(from..self.at).unwrap_or_default()
    }

    fn bump(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    pub fn skip_blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
    }

    pub fn skip_newlines(&mut self) {
        while matches!(self.peek(), Some(b'\n')) {
            self.at += 1;
        }
    }

    /// Takes `literal` if it is next.
    pub fn eat(&mut self, literal: &[u8]) -> bool {
        let found = self.text.get(self.at..).is_some_and(|rest| rest.starts_with(literal));
        if found {
            self.at += literal.len();
        }
        found
    }

    /// Bytes up to (not including) the first one that `stop` names, unquoted text only.
    pub fn until(&mut self, stop: &[u8]) -> &'a [u8] {
        let from = self.at;
        while self.peek().is_some_and(|byte| !stop.contains(&byte)) {
            self.at += 1;
        }
        self.since(from)
    }

    /// One word, its quotes taken away: `'..'`, `".."`, `$'..'`, `\x` and plain bytes in any mixture, up to
    /// unquoted white space.
    pub fn word(&mut self) -> Result<Vec<u8>, WordError> {
        let (from, mut out) = (self.at, Vec::new());
        let mut quoted = false;
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\n' => break,
                b'\'' => self.single(&mut out)?,
                b'"' => self.double(&mut out)?,
                b'$' if self.text.get(self.at + 1) == Some(&b'\'') => self.ansi_c(&mut out)?,
                b'\\' => {
                    self.at += 1;
                    out.extend(self.bump());
                }
                _ => {
                    self.at += 1;
                    out.push(byte);
                    continue;
                }
            }
            quoted = true;
        }
        if out.is_empty() && !quoted {
            return Err(WordError::Expected(from));
        }
        Ok(out)
    }

    /// Passes over the rest of a statement, to the newline that ends it: one that stands in no quotes.
    pub fn skip_statement(&mut self) -> Result<(), WordError> {
        self.skip_until(b"\n")
    }

    /// Passes over one element of a printed array, to the blank that ends it.
    pub fn skip_entry(&mut self) -> Result<(), WordError> {
        self.skip_until(b" ")
    }

    fn skip_until(&mut self, ends: &[u8]) -> Result<(), WordError> {
        let mut sink = Vec::new();
        while let Some(byte) = self.peek() {
            match byte {
                _ if ends.contains(&byte) => return Ok(()),
                b'\'' => self.single(&mut sink)?,
                b'"' => self.double(&mut sink)?,
                b'$' if self.text.get(self.at + 1) == Some(&b'\'') => self.ansi_c(&mut sink)?,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
            sink.clear();
        }
        self.at = self.at.min(self.text.len());
        Ok(())
    }

    fn single(&mut self, out: &mut Vec<u8>) -> Result<(), WordError> {
        let open = self.at;
        self.at += 1;
        out.extend_from_slice(self.until(b"'"));
        self.bump().map(|_| ()).ok_or(WordError::Unclosed(open))
    }

    fn double(&mut self, out: &mut Vec<u8>) -> Result<(), WordError> {
        let open = self.at;
        self.at += 1;
        loop {
            match self.bump().ok_or(WordError::Unclosed(open))? {
                b'"' => return Ok(()),
                b'\\' => match self.bump().ok_or(WordError::Unclosed(open))? {
                    b'\n' => {}
                    byte @ (b'\\' | b'"' | b'$' | b'`') => out.push(byte),
                    byte => out.extend_from_slice(&[b'\\', byte]),
                },
                byte => out.push(byte),
            }
        }
    }

    fn ansi_c(&mut self, out: &mut Vec<u8>) -> Result<(), WordError> {
        let open = self.at;
        self.at += 2;
        loop {
            match self.bump().ok_or(WordError::Unclosed(open))? {
                b'\'' => return Ok(()),
                b'\\' => {
                    let byte = self.bump().ok_or(WordError::Unclosed(open))?;
                    self.escape(byte, out);
                }
                byte => out.push(byte),
            }
        }
    }

    fn escape(&mut self, byte: u8, out: &mut Vec<u8>) {
        match byte {
            b'a' => out.push(7),
            b'b' => out.push(8),
            b'e' | b'E' => out.push(27),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            b'0'..=b'7' => {
                self.at -= 1;
                out.push(self.digits(8, 3).to_le_bytes()[0]);
            }
            b'x' => out.push(self.digits(16, 2).to_le_bytes()[0]),
            b'u' => self.unicode(4, out),
            b'U' => self.unicode(8, out),
            b'c' => out.extend(self.bump().map(|control| control & 0x1f)),
            b'\\' | b'\'' | b'"' | b'?' => out.push(byte),
            other => out.extend_from_slice(&[b'\\', other]),
        }
    }

    fn unicode(&mut self, most: usize, out: &mut Vec<u8>) {
        if let Some(c) = char::from_u32(self.digits(16, most)) {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }

    fn digits(&mut self, radix: u32, most: usize) -> u32 {
        let mut value = 0;
        for _ in 0..most {
            let Some(digit) = self.peek().and_then(|byte| char::from(byte).to_digit(radix)) else { break };
            value = value * radix + digit;
            self.at += 1;
        }
        value
    }
}

/// Whether a shell would take this as the name of a variable.
pub fn is_name(name: &[u8]) -> bool {
    name.first().is_some_and(|&b| b.is_ascii_alphabetic() || b == b'_')
        && name.iter().all(|&b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(source: &[u8], want: &[u8]) {
        let mut reader = Reader::new(source);
        assert_eq!(reader.word().as_deref(), Ok(want), "{}", source.escape_ascii());
        assert!(reader.is_done());
    }

    #[test]
    fn every_form_of_quoting_that_shells_print_is_read_back() {
        check(b"plain", b"plain");
        check(b"''", b"");
        check(b"\"\"", b"");
        check(b"'it'\\''s'", b"it's");
        check(b"'it'\"'\"'s'", b"it's");
        check(br#""a\"b\$c\`d\\e\qf""#, br#"a"b$c`d\e\qf"#);
        check(b"\"two\nlines\"", b"two\nlines");
        check(br"$'a\nb\tc\\d\'e'", b"a\nb\tc\\d'e");
        check(br"$'\001\377\x80\E[0m'", b"\x01\xff\x80\x1b[0m");
        check("$'\\u00e9'".as_bytes(), "é".as_bytes());
        check(br"a\ b", b"a b");
    }

    #[test]
    fn an_open_quote_is_an_error_with_its_place() {
        assert_eq!(Reader::new(b"'abc").word(), Err(WordError::Unclosed(0)));
        assert_eq!(Reader::new(b"ab\"c").word(), Err(WordError::Unclosed(2)));
        assert_eq!(Reader::new(b"$'c").word(), Err(WordError::Unclosed(0)));
        assert_eq!(Reader::new(b" x").word(), Err(WordError::Expected(0)));
    }

    #[test]
    fn a_statement_ends_at_the_newline_that_no_quote_holds() {
        let source = b"declare -x A=\"1\ndeclare -x FAKE=\\\"2\\\"\"\nnext";
        let mut reader = Reader::new(source);
        reader.skip_statement().unwrap();
        assert_eq!(reader.peek(), Some(b'\n'));
        reader.skip_newlines();
        assert_eq!(reader.until(b""), b"next");
    }

    proptest! {
        #[test]
        fn quoting_then_reading_is_the_identity(bytes in prop::collection::vec(1_u8.., 0..300)) {
            let quoted = quote(&bytes);
            let mut reader = Reader::new(&quoted);
            prop_assert_eq!(reader.word().unwrap(), bytes);
            prop_assert!(reader.is_done());
        }

        #[test]
        fn hostile_text_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Reader::new(&bytes).word();
            let _ = Reader::new(&bytes).skip_statement();
        }
    }
}
