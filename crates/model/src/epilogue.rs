//! What a command leaves in the shell that only the shell can tell, and only before the line that ran it is over: the
//! statuses of its last pipeline (`PIPESTATUS`), and where `exec` has pointed the shell's own outputs.
//!
//! A command that may have left one of them gets an epilogue: a line of ours behind its text, in the same file. The line
//! reports the statuses; if the command may have redirected the shell, the line also keeps the outputs that no longer
//! lead to the command's own pipes, as descriptors of the shell. Other commands have no epilogue, and cost nothing. The
//! next command finds both as it would at a prompt:
//!
//! ```text
//!  exec 2>errors.txt              a command; its epilogue: exec 252>&2
//!
//!  exec 242>&252 252>&-; . c </dev/null >o.8 2>e.8 2>&242 242>&-
//!    │                   └ the next command; programs that it starts don't see 242
//!    └ what was handed over is kept
//! ```

use crate::effect::{Context, Effect};
use crate::state::Bytes;
use crate::whole::is_whole;
use minicbor::{Decode, Encode};

/// The descriptors in which the shell keeps its redirected outputs, and those by which an epilogue hands them over.
pub const KEPT: [i32; 2] = [241, 242];
pub const HANDED_OVER: [i32; 2] = [251, 252];

/// Redirects the shell itself. With `builtin` before it, bash would take the redirection back.
const EXEC: &str = "\\command exec";

/// Which epilogue a command gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Epilogue {
    #[default]
    None,
    /// It may leave statuses of a pipeline.
    Statuses,
    /// It may have redirected the shell as well.
    Outputs,
}

/// Where an output of the next command leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(index_only)]
pub enum Target {
    /// To its own pipe.
    #[default]
    #[n(0)]
    Own,
    /// To the pipe of its other output: `2>&1` or `1>&2`.
    #[n(1)]
    Other,
    /// Where the shell's descriptor of [`KEPT`] leads.
    #[n(2)]
    Kept,
    /// Nowhere: `2>&-`.
    #[n(3)]
    Closed,
}

/// Where the shell's own outputs lead, as a command left them with `exec`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct Outputs {
    /// Standard output and standard error.
    #[n(0)]
    pub targets: [Target; 2],
    /// What the kernel calls a kept one; else empty.
    #[n(1)]
    pub links: [Bytes; 2],
}

/// What an epilogue has reported.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Leftovers {
    /// `$?` of the command; `None`: the report of it has not come.
    pub status: Option<u8>,
    pub statuses: Vec<u8>,
    /// Where each output led, if that was asked; `Kept` stands for handed over.
    pub outputs: Option<[Target; 2]>,
}

impl Leftovers {
    /// Numbers with a blank behind each.
    pub fn take_statuses(&mut self, status: u8, statuses: &[u8]) {
        let numbers = std::str::from_utf8(statuses).unwrap_or_default().split_ascii_whitespace();
        self.status = Some(status);
        self.statuses = numbers.map(str::parse).collect::<Result<_, _>>().unwrap_or_default();
    }

    /// `letter` says where output 1 or 2 led.
    pub fn take_output(&mut self, output: u8, letter: &[u8]) {
        let (at, own, other) = if output == 1 { (0, b"o", b"e") } else { (1, b"e", b"o") };
        let target = match letter {
            b"k" => Target::Kept,
            b"-" => Target::Closed,
            letter if letter == other => Target::Other,
            letter if letter == own => Target::Own,
            _ => return,
        };
        if let Some(place) = self.outputs.get_or_insert_default().get_mut(at) {
            *place = target;
        }
    }

    /// `PIPESTATUS`, unless it is `$?` alone, as it is after any command without an epilogue.
    pub fn pipe_status(&self) -> Option<Vec<u8>> {
        let says_more = !self.statuses.is_empty() && !self.statuses.iter().copied().eq(self.status);
        says_more.then(|| self.statuses.clone())
    }
}

/// The epilogue that a text calls for. `carried`: the command finds statuses that it may leave as they are.
///
/// A text that is not whole would swallow the epilogue, and gets none; nor does one that runs where our lines would be
/// seen: under a DEBUG trap, or where what is run or read is printed (`set -x`, `set -v`).
pub fn epilogue_of(text: &[u8], effect: Effect, carried: bool, context: &Context) -> Epilogue {
    if effect == Effect::DirectoryOnly && !text.iter().any(|byte| b"|!".contains(byte)) {
        return Epilogue::None;
    }
    let words = Words::of(text);
    let redirects = words.redirects || context.redirects && (context.hooked || names_one_of(text, context));
    let changed = effect == Effect::Unknown && (redirects || carried);
    if !(words.pipes || changed) || context.watched || words.watches {
        return Epilogue::None;
    }
    let redefined = |names: &[&[u8]]| names.iter().any(|name| context.redefined.contains(*name));
    if redefined(&[b"builtin"]) || !is_whole(text) {
        return Epilogue::None;
    }
    let script_means_something_else = redefined(&[b"command", b"if", b"then", b"elif", b"else", b"fi"]);
    let may_have = redirects && effect == Effect::Unknown && !script_means_something_else;
    if may_have { Epilogue::Outputs } else { Epilogue::Statuses }
}

/// Whether a text of functions, aliases or traps may redirect the shell that runs it.
pub fn may_redirect(text: &[u8]) -> bool {
    Words::of(text).redirects
}

/// Whether a function or an alias stands in a text.
fn names_one_of(text: &[u8], context: &Context) -> bool {
    let ends = |byte: &u8| byte.is_ascii_whitespace() || b";&|(){}<>`'\"\\$".contains(byte);
    text.split(ends).any(|word| !word.is_empty() && context.redefined.contains(word))
}

/// What a text may do by the words in it, wherever they stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Words {
    /// There is a pipeline, or a `!`.
    pipes: bool,
    /// `exec`, or what runs another text, or a command whose name is known only when it is run.
    redirects: bool,
    /// A DEBUG or RETURN trap, `set -x` or `set -v`: our lines would be seen.
    watches: bool,
}

impl Words {
    fn of(text: &[u8]) -> Self {
        // `e''xec` and `\exec` are words in disguise.
        let text: Vec<u8> = text.iter().copied().filter(|byte| !b"'\"\\".contains(byte)).collect();
        let mut words = Self::default();
        let (mut sets, mut flags, mut begins) = (false, false, true);
        let mut at = 0;
        while let Some(byte) = text.get(at) {
            let rest = text.get(at..).unwrap_or_default();
            let next = rest.get(1);
            let length = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
            if length > 0 {
                begins = words.see_word(rest.get(..length).unwrap_or_default(), &mut sets, &mut flags);
                at += length;
                continue;
            }
            at += 1;
            match byte {
                // `||` is no pipeline.
                b'|' if next == Some(&b'|') => at += 1,
                b'|' => words.pipes = true,
                b'!' => words.pipes |= next.is_some_and(u8::is_ascii_whitespace),
                b'.' => words.redirects |= begins && next.is_none_or(u8::is_ascii_whitespace),
                b'$' | b'`' => words.redirects |= begins && next != Some(&b'('),
                b'-' => {
                    let option = rest.get(1..).unwrap_or_default();
                    let option = option.iter().take_while(|byte| byte.is_ascii_alphabetic());
                    flags |= option.into_iter().any(|flag| b"xv".contains(flag));
                }
                _ => {}
            }
            begins = match byte {
                b' ' | b'\t' => begins,
                b'\n' | b';' | b'&' | b'|' | b'(' | b'{' | b'!' => true,
                _ => false,
            };
        }
        words.watches |= sets && flags;
        words
    }

    /// Whether a command begins behind this word.
    fn see_word(&mut self, word: &[u8], sets: &mut bool, flags: &mut bool) -> bool {
        match word {
            b"exec" | b"eval" | b"source" => self.redirects = true,
            b"DEBUG" | b"RETURN" | b"BASH_XTRACEFD" => self.watches = true,
            b"set" | b"shopt" => *sets = true,
            b"xtrace" | b"verbose" => *flags = true,
            b"then" | b"do" | b"else" | b"elif" | b"if" | b"while" | b"until" | b"time" | b"builtin" | b"command" => {
                return true;
            }
            _ => {}
        }
        false
    }
}

/// What is appended to the redirections of a command whose outputs lead elsewhere.
pub fn redirections(targets: [Target; 2]) -> String {
    let [out, err] = targets;
    let mut text = Vec::new();
    // Before an output is pointed elsewhere, the other one may need it. (Both exchanged is the caller's to do.)
    match (out == Target::Other, err == Target::Other) {
        (true, false) => text.push(" >&2".to_owned()),
        (false, true) => text.push(" 2>&1".to_owned()),
        (true, true) | (false, false) => {}
    }
    for ((target, number), kept) in targets.into_iter().zip([1, 2]).zip(KEPT) {
        match target {
            // Closed for the command: no program is to see the descriptor that keeps it.
            Target::Kept => text.push(format!(" {number}>&{kept} {kept}>&-")),
            Target::Closed => text.push(format!(" {number}>&-")),
            Target::Own | Target::Other => {}
        }
    }
    text.concat()
}

/// Which of our descriptors are open in a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    pub kept: [bool; 2],
    pub handed_over: [bool; 2],
}

impl Held {
    /// An output whose descriptor a command has closed is its own again.
    pub fn possible(self, mut targets: [Target; 2]) -> [Target; 2] {
        let is_held = self.kept.into_iter().zip(self.handed_over).map(|(kept, handed_over)| kept || handed_over);
        for (target, is_held) in targets.iter_mut().zip(is_held) {
            if *target == Target::Kept && !is_held {
                *target = Target::Own;
            }
        }
        targets
    }
}

/// Has the shell keep what it was handed over, and let go of what no output leads to any more.
pub fn keep(targets: [Target; 2], held: Held) -> String {
    let mut text = Vec::new();
    for (at, target) in targets.into_iter().enumerate() {
        let of = |flags: [bool; 2]| flags.get(at).copied().unwrap_or_default();
        let number = |numbers: [i32; 2]| numbers.get(at).copied().unwrap_or_default();
        let (kept, handed_over) = (number(KEPT), number(HANDED_OVER));
        if of(held.handed_over) {
            if target == Target::Kept {
                text.push(format!(" {kept}>&{handed_over}"));
            }
            text.push(format!(" {handed_over}>&-"));
        }
        if of(held.kept) && target != Target::Kept {
            text.push(format!(" {kept}>&-"));
        }
    }
    if text.is_empty() { String::new() } else { format!("{EXEC}{}; ", text.concat()) }
}

/// Contents of the script that an epilogue sources: `$1` is `$?`, `$2` the number of the pair, `$3` that of the command,
/// the others are the statuses. `o` and `e` are the command's own pipes, `k` is handed over, `-` is closed.
///
/// It sets no variable and no parameter: parameters that a sourced file sets stay.
pub fn script(directory: &str, report: &str) -> String {
    let [out, err] = HANDED_OVER;
    let leads_to = |number: u8, pipe: char| format!("\\builtin [ /dev/fd/{number} -ef {directory}/{pipe}.\"$2\" ]");
    let say = |number: u8, letter: char| format!("\\builtin printf '%s\\0' \"O$3 {number}\" {letter} '' 1<>{report}");
    let output = |number: u8, own: char, other: char, hand_over: String| {
        format!(
            "if {}; then {}; elif {}; then {}; elif {hand_over}; then {}; else {}; fi\n",
            leads_to(number, own),
            say(number, own),
            leads_to(number, other),
            say(number, other),
            say(number, 'k'),
            say(number, '-')
        )
    };
    [
        // What bash says of a closed one is nothing to tell people. Where standard error is closed, nobody hears it.
        output(1, 'o', 'e', format!("\\builtin eval '{EXEC} {out}>&1' 2>/dev/null")),
        output(2, 'e', 'o', format!("{EXEC} {err}>&2")),
        format!("\\builtin printf '%b' \"P$3 $1\\0\\0\" \"${{@:4}}\" '\\0' 1<>{report}\n"),
    ]
    .concat()
}

#[cfg(test)]
mod tests;
