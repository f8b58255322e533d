//! What may a command have changed in the shell that ran it?
//!
//! Capturing a shell's whole state costs a few hundred microseconds, reading its directory three. So before a command
//! is run we look at its text: if it is made only of simple commands that can't touch the shell beyond its directory
//! (external programs, `echo`, `cd`, `true`...), the capture is skipped. The reading is conservative in one direction
//! only: everything that is not understood, or might be a function, an alias, an assignment, an expansion with a
//! side effect, counts as [`Effect::Unknown`].

use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// At most the working directory has changed.
    DirectoryOnly,
    /// Anything may have changed: capture.
    Unknown,
}

/// What of the shell's present state bears on the meaning of words.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// Functions, aliases and loaded builtins: names that don't mean what they usually mean.
    pub redefined: BTreeSet<Vec<u8>>,
    /// A trap or `PROMPT_COMMAND` is set: code runs that isn't in the text.
    pub hooked: bool,
    /// Such code, a function or an alias may redirect the shell itself.
    pub redirects: bool,
    /// A line of ours would be seen: what is run or read is printed, or a trap fires for each command.
    pub watched: bool,
}

/// Builtins and reserved words of bash, dash and ash that may change more than the directory. What isn't here is
/// an external program or a builtin like `cd` or `echo`.
const REACHING: [&[u8]; 69] = [
    b".",
    b"alias",
    b"bg",
    b"bind",
    b"break",
    b"builtin",
    b"caller",
    b"command",
    b"compgen",
    b"complete",
    b"compopt",
    b"continue",
    b"declare",
    b"dirs",
    b"disown",
    b"enable",
    b"eval",
    b"exec",
    b"export",
    b"fc",
    b"fg",
    b"getopts",
    b"hash",
    b"history",
    b"let",
    b"local",
    b"mapfile",
    b"popd",
    b"pushd",
    b"read",
    b"readarray",
    b"readonly",
    b"return",
    b"set",
    b"shift",
    b"shopt",
    b"source",
    b"suspend",
    b"trap",
    b"typeset",
    b"ulimit",
    b"umask",
    b"unalias",
    b"unset",
    b"wait",
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
    b"chdir",
    b"jobs",
];

pub fn effect_of(text: &[u8], context: &Context) -> Effect {
    if context.hooked || !is_harmless(text, context) { Effect::Unknown } else { Effect::DirectoryOnly }
}

fn is_harmless(text: &[u8], context: &Context) -> bool {
    let mut commands = Commands { text, at: 0 };
    let mut words = Vec::new();
    loop {
        match commands.next_word() {
            Token::Word(word) => words.push(word),
            Token::Separator => {
                if !simple_command_is_harmless(&words, context) {
                    return false;
                }
                words.clear();
            }
            Token::End => return simple_command_is_harmless(&words, context),
            Token::NotUnderstood => return false,
        }
    }
}

fn simple_command_is_harmless(words: &[Word], context: &Context) -> bool {
    let Some(name) = words.first() else { return true };
    if name.expands || name.bytes.contains(&b'=') || context.redefined.contains(&name.bytes) {
        return false;
    }
    if REACHING.contains(&name.bytes.as_slice()) {
        return false;
    }
    // `printf -v NAME` assigns, `test -v 'a[i=1]'` evaluates; with an expansion among the words we can't tell that it
    // doesn't say so.
    let tricky = [b"printf".as_slice(), b"test", b"["].contains(&name.bytes.as_slice());
    !tricky || !words.iter().any(|word| word.expands || word.bytes.starts_with(b"-v"))
}

struct Word {
    bytes: Vec<u8>,
    expands: bool,
}

enum Token {
    Word(Word),
    Separator,
    End,
    NotUnderstood,
}

struct Commands<'a> {
    text: &'a [u8],
    at: usize,
}

impl Commands<'_> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn next_word(&mut self) -> Token {
        while matches!(self.peek(0), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        let Some(byte) = self.peek(0) else { return Token::End };
        match byte {
            b'\n' | b';' => {
                self.at += 1;
                if byte == b';' && self.peek(0) == Some(b';') { Token::NotUnderstood } else { Token::Separator }
            }
            b'|' | b'&' => self.operator(byte),
            b'#' => {
                while self.peek(0).is_some_and(|b| b != b'\n') {
                    self.at += 1;
                }
                self.next_word()
            }
            b'(' | b')' => Token::NotUnderstood,
            b'<' | b'>' => self.redirection(),
            _ => self.word(),
        }
    }

    /// `|`, `||` and `&&` join simple commands. A lone `&` leaves a job behind, `|&` and `&>` are rare: not understood.
    fn operator(&mut self, byte: u8) -> Token {
        match (byte, self.peek(1)) {
            (b'|', Some(b'|')) | (b'&', Some(b'&')) => {
                self.at += 2;
                Token::Separator
            }
            (b'|', next) if next != Some(b'&') => {
                self.at += 1;
                Token::Separator
            }
            _ => Token::NotUnderstood,
        }
    }

    /// Passes over `>`, `>>`, `<`, `>&` and the word behind. Here-documents, here-strings and process substitutions
    /// are not understood.
    fn redirection(&mut self) -> Token {
        let open = self.peek(0);
        self.at += 1;
        match (open, self.peek(0)) {
            (Some(b'>'), Some(b'>' | b'&' | b'|')) | (Some(b'<'), Some(b'&')) => self.at += 1,
            (_, Some(b'(' | b'<' | b'>')) => return Token::NotUnderstood,
            _ => {}
        }
        while matches!(self.peek(0), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        match self.word() {
            Token::Word(_) => self.next_word(),
            Token::Separator | Token::End | Token::NotUnderstood => Token::NotUnderstood,
        }
    }

    fn word(&mut self) -> Token {
        let mut word = Word { bytes: Vec::new(), expands: false };
        let from = self.at;
        while let Some(byte) = self.peek(0) {
            match byte {
                b' ' | b'\t' | b'\n' | b';' | b'|' | b'&' => break,
                b'<' | b'>' => {
                    // `2>file`: the digits belong to the redirection. `{name}>file` assigns.
                    if word.bytes.ends_with(b"}") {
                        return Token::NotUnderstood;
                    }
                    if !word.bytes.is_empty() && word.bytes.iter().all(u8::is_ascii_digit) {
                        return self.redirection();
                    }
                    break;
                }
                b'(' | b')' | b'`' => return Token::NotUnderstood,
                b'\'' => {
                    self.at += 1;
                    loop {
                        match self.peek(0) {
                            Some(b'\'') => break,
                            Some(inner) => word.bytes.push(inner),
                            None => return Token::NotUnderstood,
                        }
                        self.at += 1;
                    }
                    self.at += 1;
                }
                b'"' => {
                    self.at += 1;
                    if !self.double_quoted(&mut word) {
                        return Token::NotUnderstood;
                    }
                }
                b'$' => {
                    if !self.parameter(&mut word) {
                        return Token::NotUnderstood;
                    }
                }
                b'\\' => {
                    match self.peek(1) {
                        Some(b'\n') | None => return Token::NotUnderstood,
                        Some(escaped) => word.bytes.push(escaped),
                    }
                    self.at += 2;
                }
                _ => {
                    // `[` alone is a command; anywhere else it may be the beginning of a pattern.
                    word.expands |= matches!(byte, b'*' | b'?' | b'~' | b'{') || byte == b'[' && self.at != from;
                    word.bytes.push(byte);
                    self.at += 1;
                }
            }
        }
        if self.at == from { Token::NotUnderstood } else { Token::Word(word) }
    }

    fn double_quoted(&mut self, word: &mut Word) -> bool {
        loop {
            match self.peek(0) {
                Some(b'"') => {
                    self.at += 1;
                    return true;
                }
                Some(b'`') | None => return false,
                Some(b'\\') => {
                    // With a newline it joins two lines, and what was pushed would not be what is run.
                    let Some(escaped) = self.peek(1).filter(|escaped| *escaped != b'\n') else { return false };
                    word.bytes.push(escaped);
                    self.at += 2;
                }
                Some(b'$') => {
                    if !self.parameter(word) {
                        return false;
                    }
                }
                Some(byte) => {
                    word.bytes.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    /// `$name`, `$1`, `$?` and `${name}` only read. Every other expansion may run code or assign.
    fn parameter(&mut self, word: &mut Word) -> bool {
        word.expands = true;
        self.at += 1;
        let braced = self.peek(0) == Some(b'{');
        if braced {
            self.at += 1;
        }
        let from = self.at;
        match self.peek(0) {
            Some(b'?' | b'#' | b'@' | b'*' | b'$' | b'!' | b'-') => self.at += 1,
            _ => {
                while self.peek(0).is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_') {
                    self.at += 1;
                }
            }
        }
        if braced {
            let closed = self.at > from && self.peek(0) == Some(b'}');
            self.at += 1;
            return closed;
        }
        // A lone `$` is itself; `$(`, `$'`, `$"`, `$[` are other syntax.
        self.at > from || matches!(self.peek(0), None | Some(b' ' | b'\n' | b'"' | b';'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, want: Effect) {
        assert_eq!(effect_of(text.as_bytes(), &Context::default()), want, "{text}");
    }

    #[test]
    fn external_programs_and_harmless_builtins_change_the_directory_at_most() {
        for text in [
            "",
            "true",
            "  true  ",
            "cd /tmp",
            "cd /tmp && ls -l | grep x",
            "echo 'a=b' \"c $HOME ${USER}\"",
            "ls >/tmp/x 2>&1",
            "ls 2>/dev/null || echo no",
            "make -j2; make test",
            "/bin/true\n/bin/false\n",
            "git commit -m 'x=$(rm)' # because",
            "test -f a.txt",
            "[ -f a ]",
            "cat < in >> out",
            "exit 3",
            "python3 -c \"print(1)\"",
            "printf 'a\\n'",
            "pwd",
            "kill 123",
            "echo a=b",
            "FOO",
            "ls *.rs ~/x {a,b}",
        ] {
            check(text, Effect::DirectoryOnly);
        }
    }

    #[test]
    fn whatever_might_touch_the_shell_is_unknown() {
        for text in [
            "x=1",
            "x=1 true",
            "export X=1",
            "f() { :; }",
            "alias a=b",
            "set -e",
            "shopt -s extglob",
            "umask 7",
            ". file",
            "source file",
            "eval x",
            "unset X",
            "read x",
            "for i in 1; do :; done",
            "if true; then :; fi",
            "while :; do :; done",
            "{ true; }",
            "(true)",
            "echo $(true)",
            "echo `true`",
            "echo ${x:=1}",
            "echo $((x++))",
            "echo ${x@P}",
            "printf -v x 1",
            "printf $FMT",
            "$cmd",
            "\"$cmd\"",
            "sleep 1 &",
            "a |& b",
            "cat <<EOF\nx\nEOF",
            "cat <<< x",
            "cat <(ls)",
            "ls > >(cat)",
            "exec 3>x",
            "ls {fd}>x",
            "trap x INT",
            "[[ a =~ b ]]",
            "time ls",
            "! true",
            "command cd /",
            "builtin cd /",
            "echo 'open",
            "echo \"open",
            "case x in x) ;; esac",
            "pushd /tmp",
            "wait",
            "hash -r",
            "shift",
            "true;;",
            "echo $'x'",
            "coproc cat",
            "enable -n echo",
            "{unset,LANG}",
            "\"ex\\\nport\" A",
            "?nset A",
            "test -v 'a[LANG=5]'",
            "[ -v a ]",
            "[ $x y ]",
            "jobs -x unset X",
            "ulimit -n 10",
            "function f { :; }",
            "a=(1 2)",
            "let x=1",
            "declare x",
            "true \\\n x",
        ] {
            check(text, Effect::Unknown);
        }
    }

    #[test]
    fn a_redefined_name_or_a_hook_makes_anything_possible() {
        let redefined = Context { redefined: BTreeSet::from([b"ls".to_vec()]), ..Context::default() };
        assert_eq!(effect_of(b"ls", &redefined), Effect::Unknown);
        assert_eq!(effect_of(b"cd /; \\ls", &redefined), Effect::Unknown);
        assert_eq!(effect_of(b"cat ls", &redefined), Effect::DirectoryOnly);
        let hooked = Context { hooked: true, ..Context::default() };
        assert_eq!(effect_of(b"true", &hooked), Effect::Unknown);
    }

    proptest! {
        #[test]
        fn hostile_text_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = effect_of(&bytes, &Context::default());
        }
    }
}
