//! Does the text of a command end where its last line ends?
//!
//! What stands behind a text in the same file is read by bash as lines of its own only if nothing in the text is left
//! open: a quote, a here-document, a substitution, `a |` that waits for `b`. The reading errs in one direction only: a
//! text that is not understood is not whole.

/// Words of which one opens what the other closes, where a command begins.
const PAIRS: [(&[u8], &[u8]); 5] = [(b"if", b"fi"), (b"case", b"esac"), (b"do", b"done"), (b"{", b"}"), (b"[[", b"]]")];

/// Behind these words a command begins.
const OPENERS: [&[u8]; 10] = [b"if", b"then", b"elif", b"else", b"while", b"until", b"do", b"{", b"!", b"time"];

/// Whether lines behind the text are read as lines of their own.
pub fn is_whole(text: &[u8]) -> bool {
    let mut scan = Scan { text, at: 0, documents: Vec::new(), words: Vec::new(), waits: false, begins: true };
    scan.list(None) && !scan.waits && scan.documents.is_empty() && scan.words_are_paired()
}

/// A here-document whose lines are still to come.
struct Document {
    delimiter: Vec<u8>,
    /// `<<-`: tabs before the delimiter don't count.
    indented: bool,
    /// Quoted delimiter: a backslash at the end of a line is one.
    literal: bool,
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
    documents: Vec<Document>,
    /// Those where a command begins, and every `]]`.
    words: Vec<&'a [u8]>,
    /// A command begins with the next word.
    begins: bool,
    /// The last thing read wants something behind it: `|`, `&&`, `f()`.
    waits: bool,
}

impl Scan<'_> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn words_are_paired(&self) -> bool {
        let count = |wanted: &[u8]| self.words.iter().filter(|word| **word == wanted).count();
        // `for x in a;` may be followed by a group, and `function f` by the body.
        let loops = count(b"for") + count(b"select") + count(b"while") + count(b"until");
        loops == count(b"done")
            && count(b"function") + count(b"coproc") == 0
            && PAIRS.iter().all(|(open, close)| count(open) == count(close))
    }

    /// Reads up to the closing parenthesis, or to the end of the text.
    fn list(&mut self, close: Option<u8>) -> bool {
        while let Some(byte) = self.peek(0) {
            match byte {
                b' ' | b'\t' => self.at += 1,
                b'\n' => {
                    self.at += 1;
                    self.begins = true;
                    // In a substitution, where the document lies is another question.
                    if !self.documents.is_empty() && (close.is_some() || !self.pass_documents()) {
                        return false;
                    }
                }
                b';' | b'&' | b'|' => self.operator(byte),
                b'#' => self.pass_line(),
                b')' => {
                    // A pattern of `case` ends with one too.
                    let pattern = self.words.contains(&b"case".as_slice());
                    self.begins = true;
                    match close {
                        None if pattern => self.at += 1,
                        Some(b')') if !pattern => {
                            self.at += 1;
                            self.waits = false;
                            return true;
                        }
                        _ => return false,
                    }
                }
                // A pattern of `case` may begin with one.
                b'(' if close.is_none() && self.begins && self.words.contains(&b"case".as_slice()) => self.at += 1,
                b'(' => {
                    if !self.parenthesis() {
                        return false;
                    }
                }
                b'<' | b'>' => {
                    if !self.redirection(close.is_some()) {
                        return false;
                    }
                }
                _ => {
                    if !self.word() {
                        return false;
                    }
                }
            }
        }
        close.is_none()
    }

    fn operator(&mut self, byte: u8) {
        let doubled = self.peek(1) == Some(byte);
        self.at += if doubled || byte == b'|' && self.peek(1) == Some(b'&') { 2 } else { 1 };
        self.waits = byte == b'|' || byte == b'&' && doubled;
        self.begins = true;
    }

    fn pass_line(&mut self) {
        while self.peek(0).is_some_and(|byte| byte != b'\n') {
            self.at += 1;
        }
    }

    /// A subshell, an array, arithmetic; or `()`, and the body of a function is to come.
    fn parenthesis(&mut self) -> bool {
        if self.peek(1) == Some(b'(') {
            return self.arithmetic();
        }
        self.at += 1;
        let from = self.at;
        while matches!(self.peek(0), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        let empty = self.peek(0) == Some(b')');
        self.at = from;
        self.begins = true;
        let closed = self.list(Some(b')'));
        self.waits = empty;
        closed
    }

    /// `((..))`, where `<<` is no here-document. What may be two subshells is not understood.
    fn arithmetic(&mut self) -> bool {
        let mut depth = 0_u32;
        while let Some(byte) = self.peek(0) {
            match byte {
                b'(' => depth += 1,
                b')' => depth -= 1,
                b'\'' | b'"' | b'`' | b'\\' | b'#' | b'\n' => return false,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                (self.waits, self.begins) = (false, true);
                let inside = self.text.get(..self.at).unwrap_or_default();
                return inside.ends_with(b"))");
            }
        }
        false
    }

    fn redirection(&mut self, nested: bool) -> bool {
        self.waits = false;
        if self.text.get(self.at..).is_some_and(|rest| rest.starts_with(b"<<<")) {
            self.at += 3;
            return true;
        }
        if self.peek(0) == Some(b'<') && self.peek(1) == Some(b'<') {
            self.at += 2;
            return !nested && self.document();
        }
        // `>&`, `>|`, `<&`: what stands behind is part of it, and no operator.
        self.at += 1;
        if matches!(self.peek(0), Some(b'&' | b'|' | b'>')) {
            self.at += 1;
        }
        true
    }

    fn document(&mut self) -> bool {
        let indented = self.peek(0) == Some(b'-');
        self.at += usize::from(indented);
        while matches!(self.peek(0), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        let (mut delimiter, mut literal) = (Vec::new(), false);
        while let Some(byte) = self.peek(0) {
            match byte {
                b' ' | b'\t' | b'\n' | b';' | b'|' | b'&' | b'<' | b'>' => break,
                b'\'' | b'"' => {
                    literal = true;
                    let from = self.at + 1;
                    let rest = self.text.get(from..).unwrap_or_default();
                    let Some(length) = rest.iter().position(|end| *end == byte) else { return false };
                    delimiter.extend_from_slice(rest.get(..length).unwrap_or_default());
                    self.at = from + length + 1;
                }
                b'\\' | b'$' | b'`' | b'(' | b')' => return false,
                _ => {
                    delimiter.push(byte);
                    self.at += 1;
                }
            }
        }
        let understood = !delimiter.is_empty() && !delimiter.iter().any(|byte| matches!(byte, b'\n' | b'\\'));
        self.documents.push(Document { delimiter, indented, literal });
        understood
    }

    /// Passes over the lines of the here-documents that the line before announced.
    fn pass_documents(&mut self) -> bool {
        for document in std::mem::take(&mut self.documents) {
            loop {
                if self.at >= self.text.len() {
                    return false;
                }
                let from = self.at;
                self.pass_line();
                let line = self.text.get(from..self.at).unwrap_or_default();
                self.at += 1;
                let tabs = line.iter().take_while(|byte| document.indented && **byte == b'\t').count();
                if line.get(tabs..).unwrap_or_default() == document.delimiter {
                    break;
                }
                // It joins two lines, and the second is then no delimiter.
                if !document.literal && line.ends_with(b"\\") {
                    return false;
                }
            }
        }
        self.at = self.at.min(self.text.len());
        true
    }

    fn word(&mut self) -> bool {
        self.waits = false;
        let (from, begins) = (self.at, self.begins);
        while let Some(byte) = self.peek(0) {
            match byte {
                b' ' | b'\t' | b'\n' | b';' | b'|' | b'&' | b'<' | b'>' | b')' => break,
                // `name=(..)`, `@(..)`, and also `f()`.
                b'(' => {
                    if !self.parenthesis() {
                        return false;
                    }
                    if self.waits {
                        break;
                    }
                }
                b'\\' => {
                    if self.peek(1).is_none() {
                        return false;
                    }
                    self.at += 2;
                }
                _ => {
                    if !self.quoted_or_expanded(byte, false) {
                        return false;
                    }
                }
            }
        }
        let word = self.text.get(from..self.at).unwrap_or_default();
        if begins || word == b"]]" {
            self.words.push(word);
        }
        // What a function or a substitution ends with says so itself.
        self.begins = self.waits || begins && (OPENERS.contains(&word) || word.contains(&b'='));
        true
    }

    /// One byte, or the quote or the expansion that begins with it.
    fn quoted_or_expanded(&mut self, byte: u8, in_quotes: bool) -> bool {
        match byte {
            b'\'' if !in_quotes => self.up_to(b'\'', false),
            b'"' if !in_quotes => self.double_quoted(),
            b'`' => self.up_to(b'`', true),
            b'$' => match self.peek(1) {
                Some(b'\'') if !in_quotes => {
                    self.at += 1;
                    self.up_to(b'\'', true)
                }
                Some(b'(') => {
                    self.at += 1;
                    self.parenthesis()
                }
                Some(b'{') => self.parameter(in_quotes),
                Some(b'[') => false,
                _ => {
                    self.at += 1;
                    true
                }
            },
            _ => {
                self.at += 1;
                true
            }
        }
    }

    /// Behind the next byte of this kind, which a backslash may escape.
    fn up_to(&mut self, end: u8, escapes: bool) -> bool {
        self.at += 1;
        while let Some(byte) = self.peek(0) {
            self.at += if escapes && byte == b'\\' { 2 } else { 1 };
            if byte == end {
                return true;
            }
        }
        false
    }

    fn double_quoted(&mut self) -> bool {
        self.at += 1;
        while let Some(byte) = self.peek(0) {
            match byte {
                b'"' => {
                    self.at += 1;
                    return true;
                }
                b'\\' => self.at += 2,
                _ => {
                    if !self.quoted_or_expanded(byte, true) {
                        return false;
                    }
                }
            }
        }
        false
    }

    /// `${..}`. Which quotes count in it depends on what is around it: with one in it, it is not understood.
    fn parameter(&mut self, in_quotes: bool) -> bool {
        self.at += 2;
        while let Some(byte) = self.peek(0) {
            match byte {
                b'}' => {
                    self.at += 1;
                    return true;
                }
                b'\'' | b'"' | b'\\' | b'`' | b'{' | b'\n' => return false,
                _ => {
                    if !self.quoted_or_expanded(byte, in_quotes) {
                        return false;
                    }
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;
