//! What `PIPESTATUS` and `$_` are after a command, so that the next one finds them as it would at a prompt.
//!
//! The line that runs a command overwrites both when it has run it, so they are known by the text or not at all: after
//! simple commands `PIPESTATUS` is `$?`, and `$_` is the last word as it is written. Behind any other text a line is put
//! that has the shell say what they are ([`crate::shell::Lines::question`]), if the text is whole: an open quote would
//! take that line in.

use crate::effect::{Commands, Context, Effect, Joint, Token};
use crate::state::Bytes;
use minicbor::{Decode, Encode};

/// How it becomes known what a command left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closing {
    /// `PIPESTATUS` is `$?`, and `$_` is this.
    Simple(Argument),
    /// The shell is asked at the end of the text.
    Asked,
    /// Nothing can be put behind the text: `PIPESTATUS` counts as `$?`, `$_` as empty.
    Unknown,
    /// There is no command in it, and both stay as they are, with `$?`.
    Nothing,
}

/// `$_` after simple commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// As the shell reads it.
    pub word: Bytes,
    /// It is this only if the last command of a list was come to, which it certainly was if the list succeeded.
    pub if_success: bool,
}

/// What the next command is to find.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct Parameters {
    /// Empty: `$?` alone.
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub pipe_status: Vec<u8>,
    /// `$_`, as a word that the shell reads. Empty: it is.
    #[n(1)]
    pub argument: Bytes,
}

/// A longer word is not carried on.
pub const LONGEST: usize = 512;

/// Of a pipeline of more programs only `$?` is.
pub const MOST: usize = 16;

/// `may_ask`: whether a line may be put behind the text, for one that traces or prints what it reads would show it.
pub fn closing_of(text: &[u8], effect: Effect, context: &Context, may_ask: bool) -> Closing {
    match simple(text, effect, context) {
        Some(closing) => closing,
        None if may_ask && !shows_itself(text) && is_whole(text) => Closing::Asked,
        None => Closing::Unknown,
    }
}

/// Words that begin something other than a simple command, or run another command in their place.
const COMPOUND: [&[u8]; 25] = [
    b"if",
    b"then",
    b"else",
    b"elif",
    b"fi",
    b"case",
    b"esac",
    b"for",
    b"select",
    b"while",
    b"until",
    b"do",
    b"done",
    b"in",
    b"function",
    b"time",
    b"{",
    b"}",
    b"!",
    b"[[",
    b"]]",
    b"coproc",
    b"exec",
    b"return",
    b"trap",
];

fn simple(text: &[u8], effect: Effect, context: &Context) -> Option<Closing> {
    let mut commands = Commands::new(text);
    // The last word of the command that is being read, and of the one before it.
    let (mut words, mut last, mut joint, mut joined) = (0, None, Joint::Sequence, Joint::Sequence);
    loop {
        let from = commands.at;
        match commands.next_word() {
            Token::Word(word) => {
                let redefined = context.redefined.contains(&word.bytes);
                if words == 0 && (word.expands || redefined || COMPOUND.contains(&word.bytes.as_slice())) {
                    return None;
                }
                let assigns = words == 0 && word.bytes.contains(&b'=');
                words += 1;
                joined = joint;
                last = Some(if assigns { None } else { Some((word, text.get(from..commands.at)?)) });
                if assigns {
                    // Words behind it would be a command.
                    words = 0;
                }
            }
            Token::Separator(Joint::Pipe) | Token::NotUnderstood => return None,
            Token::Separator(next) => (words, joint) = (0, next),
            Token::End => break,
        }
    }
    let Some(last) = last else { return is_blank(text).then_some(Closing::Nothing) };
    let word = match last {
        None => Bytes::default(),
        Some((word, _)) if !word.expands => Bytes(crate::word::quote(&word.bytes)),
        Some((_, written)) if effect == Effect::DirectoryOnly => Bytes(stable(written)?),
        Some(_) => return None,
    };
    let word = if word.len() > LONGEST { Bytes::default() } else { word };
    Some(Closing::Simple(Argument { word, if_success: joined == Joint::Condition }))
}

/// Nothing but blanks and comments.
pub fn is_blank(text: &[u8]) -> bool {
    text.split(|byte| *byte == b'\n').all(|line| line.trim_ascii_start().first().is_none_or(|byte| *byte == b'#'))
}

/// A word that is the same when it is read once more: parameters in it are plain variables, and nothing else expands.
/// They are written in such a way that one which is gone by then is no error.
fn stable(written: &[u8]) -> Option<Vec<u8>> {
    let written = written.trim_ascii();
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(byte) = written.get(at) {
        match byte {
            b'*' | b'?' | b'~' | b'{' | b'[' | b'<' | b'>' | b'#' => return None,
            b'$' => {
                let braced = written.get(at + 1) == Some(&b'{');
                let from = at + 1 + usize::from(braced);
                let rest = written.get(from..)?;
                let length = rest.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
                let name = rest.get(..length)?;
                let lower = name.first()?.is_ascii_alphabetic() && !crate::state::capture::is_own(name);
                if !lower {
                    return None;
                }
                out.extend_from_slice(&[b"${", name, b"-}"].concat());
                at = from + length + usize::from(braced);
                continue;
            }
            _ => out.push(*byte),
        }
        at += 1;
    }
    Some(out)
}

/// Whether a text may turn on what would show our line: traces, lines as they are read, a DEBUG trap.
fn shows_itself(text: &[u8]) -> bool {
    let has = |word: &[u8]| text.windows(word.len()).any(|window| window == word);
    if has(b"xtrace") || has(b"verbose") || has(b"DEBUG") || has(b"RETURN") {
        return true;
    }
    let mut words = text.split(|byte| byte.is_ascii_whitespace() || b";&|(){}`'\"".contains(byte));
    words.any(|word| {
        let flags = word.strip_prefix(b"-").unwrap_or_default();
        flags.iter().all(u8::is_ascii_alphabetic) && flags.iter().any(|flag| b"xv".contains(flag)) && has(b"set")
    })
}

/// Whether a text surely ends outside of quotes, here-documents and operators, so that what stands on the next line is a
/// command of its own. Conservative: what isn't understood is not whole.
pub fn is_whole(text: &[u8]) -> bool {
    let mut reader = Whole { text, at: 0, open: Vec::new(), documents: Vec::new(), last: [b'\n'; 2] };
    reader.read().is_some()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Double,
    Substitution,
    Brace,
}

struct Whole<'a> {
    text: &'a [u8],
    at: usize,
    open: Vec<Open>,
    /// Ends of here-documents that begin on the next line, and whether tabs before them are passed over.
    documents: Vec<(&'a [u8], bool)>,
    /// The last two bytes that are neither blank nor comment.
    last: [u8; 2],
}

impl<'a> Whole<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn read(&mut self) -> Option<()> {
        // A pattern of `case` closes a parenthesis that none has opened.
        let nested = self.text.windows(2).any(|two| two == b"$(" || two == b"<(" || two == b">(");
        if nested && self.text.windows(4).any(|word| word == b"case") {
            return None;
        }
        while let Some(byte) = self.peek() {
            match self.open.last() {
                Some(Open::Double) => self.double(byte)?,
                Some(Open::Brace) => self.brace(byte)?,
                Some(Open::Substitution) | None => self.plain(byte)?,
            }
        }
        let joins = [*b"&&", *b"|&"].contains(&self.last) || self.last[1] == b'|';
        (self.open.is_empty() && self.documents.is_empty() && !joins).then_some(())
    }

    fn plain(&mut self, byte: u8) -> Option<()> {
        let begins_word = self.at.checked_sub(1).and_then(|at| self.text.get(at));
        let begins_word = begins_word.is_none_or(|before| before.is_ascii_whitespace() || b";&|()".contains(before));
        self.at += 1;
        match byte {
            b'\n' => self.pass_documents()?,
            b' ' | b'\t' => return Some(()),
            b'#' if begins_word => {
                while self.peek().is_some_and(|byte| byte != b'\n') {
                    self.at += 1;
                }
                return Some(());
            }
            b'\\' => self.escaped()?,
            b'\'' => self.pass_quoted()?,
            b'"' => self.open.push(Open::Double),
            b'`' => self.pass_backquoted()?,
            b'$' => self.dollar()?,
            b'(' if self.open.last() == Some(&Open::Substitution) => self.open.push(Open::Substitution),
            b')' if self.open.last() == Some(&Open::Substitution) => {
                self.open.pop();
            }
            b'<' if self.text.get(self.at..)?.starts_with(b"<<") => self.at += 2,
            b'<' if self.peek() == Some(b'<') => self.document()?,
            _ => {}
        }
        if byte != b'\n' {
            self.last = [self.last[1], byte];
        }
        Some(())
    }

    fn double(&mut self, byte: u8) -> Option<()> {
        self.at += 1;
        match byte {
            b'"' => {
                self.open.pop();
                self.last = [self.last[1], byte];
            }
            b'\\' => self.escaped()?,
            b'`' => self.pass_backquoted()?,
            b'$' if self.peek() != Some(b'\'') => self.dollar()?,
            _ => {}
        }
        Some(())
    }

    /// In `${...}`, what a single quote means depends on what is around.
    fn brace(&mut self, byte: u8) -> Option<()> {
        self.at += 1;
        match byte {
            b'}' => {
                self.open.pop();
            }
            b'\\' => self.escaped()?,
            b'"' => self.open.push(Open::Double),
            b'\'' | b'`' => return None,
            b'$' => self.dollar()?,
            _ => {}
        }
        Some(())
    }

    fn escaped(&mut self) -> Option<()> {
        self.peek()?;
        self.at += 1;
        Some(())
    }

    fn pass_quoted(&mut self) -> Option<()> {
        self.at += self.text.get(self.at..)?.iter().position(|byte| *byte == b'\'')? + 1;
        Some(())
    }

    /// Up to the next one, if nothing between could hide it.
    fn pass_backquoted(&mut self) -> Option<()> {
        let rest = self.text.get(self.at..)?;
        let length = rest.iter().position(|byte| *byte == b'`')?;
        let inner = rest.get(..length)?;
        if inner.iter().any(|byte| b"\\'\"$#<".contains(byte)) {
            return None;
        }
        self.at += length + 1;
        Some(())
    }

    /// Behind a `$`.
    fn dollar(&mut self) -> Option<()> {
        match self.peek() {
            Some(b'(') => self.open.push(Open::Substitution),
            Some(b'{') => self.open.push(Open::Brace),
            Some(b'\'') => {
                self.at += 1;
                loop {
                    match self.peek()? {
                        b'\'' => break,
                        b'\\' => self.at += 2,
                        _ => self.at += 1,
                    }
                }
            }
            // `$#` and `$$` are no beginnings.
            Some(b'#' | b'$' | b'?' | b'!' | b'-' | b'@' | b'*') => {}
            Some(_) | None => return Some(()),
        }
        self.at += 1;
        Some(())
    }

    /// Behind the first `<` of `<<`: notes how the document ends. A word with anything special in it is not understood.
    fn document(&mut self) -> Option<()> {
        if !self.open.is_empty() {
            return None;
        }
        self.at += 1;
        let tabs = self.peek() == Some(b'-');
        self.at += usize::from(tabs);
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        let quote = self.peek().filter(|byte| matches!(byte, b'\'' | b'"' | b'\\'));
        self.at += usize::from(quote.is_some());
        let rest = self.text.get(self.at..)?;
        let length = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
        let end = rest.get(..length).filter(|end| !end.is_empty())?;
        self.at += length;
        if let Some(quote) = quote.filter(|quote| *quote != b'\\') {
            if self.peek() != Some(quote) {
                return None;
            }
            self.at += 1;
        }
        let over = self.peek().is_none_or(|byte| byte.is_ascii_whitespace() || b";&|)<>".contains(&byte));
        self.documents.push((end, tabs));
        over.then_some(())
    }

    fn pass_documents(&mut self) -> Option<()> {
        for (end, tabs) in std::mem::take(&mut self.documents) {
            loop {
                let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
                let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                let line = rest.get(..length)?;
                self.at = (self.at + length + 1).min(self.text.len());
                let bare = line.iter().position(|byte| *byte != b'\t').and_then(|from| line.get(from..));
                if line == end || tabs && bare == Some(end) {
                    break;
                }
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests;
