//! What we say to a shell, and how it answers. All of it is text; sending it is the steward's work.
//!
//! The shell reads lines from a control FIFO and answers on a reply FIFO, both in a private run directory. A command's
//! text lies in a file that the shell sources with its streams redirected, so nothing in the text can be taken for
//! protocol, unfinished quotes stay in their file, and what it defines lasts. An answer is three fields, each ended by
//! NUL: `TOKEN STATUS`, `$PWD`, `$OLDPWD`.
//!
//! ```text
//!  . c </dev/null >o.7 2>e.7; printf "41 $?".. >rep; . d 1<>st
//!    │                         └ the report          └ the capture, only if the text may have changed more than
//!    └ the command itself                              the directory
//! ```

use crate::epilogue::{self, Epilogue, Held, Target};
use crate::state::{Bytes, ShellState};
use crate::word::quote;
use minicbor::{Decode, Encode};

/// How a shell wants to be spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Dialect {
    /// bash: everything can be captured.
    #[n(0)]
    Bash,
    /// dash and busybox ash: no arrays, no `declare -f`, so functions live only as long as the shell.
    #[n(1)]
    Posix,
}

impl Dialect {
    /// Before a builtin's name: finds the builtin whatever functions or aliases the user has made.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Bash => "\\builtin ",
            Self::Posix => "\\command ",
        }
    }

    /// Arguments for an interactive shell without start-up files: interactive, because then errors and interrupts
    /// unwind to the top instead of ending the shell.
    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Bash => &["--norc", "--noprofile", "--noediting", "-i"],
            Self::Posix => &["-i"],
        }
    }
}

/// Names of the files in a run directory. `ctl` and `rep` carry the incarnation, so that a shell which a killed
/// steward left behind half-started is never spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lines {
    pub dialect: Dialect,
    dir: String,
    /// For what may hold a secret: a directory that is in memory alone. The other one if there is none.
    private: String,
    rep: String,
}

/// Files that may hold a secret: the command and what stands around it, the environment script, and the dumps.
pub const PRIVATE: [&str; 6] = ["c", "w", "v", "st", "xt", "t"];

/// Whether a file of the run directory may hold a secret. Standard input (`i.N`) may too.
pub fn is_private(name: &str) -> bool {
    PRIVATE.contains(&name) || name.starts_with("i.")
}

/// Where a command's standard input comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    Empty,
    /// `i.N`: a file with bytes given beforehand, or a FIFO that is written to as it runs.
    Given,
    /// The shell's terminal, for all three streams.
    Terminal,
}

/// One command, ready to be put into the control FIFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trigger<'a> {
    pub number: u64,
    /// The pair of FIFOs for its output.
    pub pair: u64,
    pub input: Input,
    /// `$?` as the command finds it.
    pub last_status: u8,
    /// `PIPESTATUS` as the command finds it; empty if it is `$?`, or the command can't ask for it.
    pub pipe_status: &'a [u8],
    /// Where its outputs lead.
    pub targets: [Target; 2],
    /// The descriptors for outputs that the shell has open.
    pub held: Held,
    pub overlay: bool,
    pub capture: bool,
    /// A DEBUG or RETURN trap is set. Sourcing hides the first and fires the second; `eval` does as a terminal would.
    pub eval: bool,
}

/// A directory and variables for one command only.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overlay {
    pub cwd: Option<Bytes>,
    pub env: Vec<(Bytes, Bytes)>,
}

impl Overlay {
    pub fn is_empty(&self) -> bool {
        self.cwd.is_none() && self.env.is_empty()
    }
}

impl Lines {
    pub fn new(dialect: Dialect, dir: &str, incarnation: u64) -> Self {
        let rep = quoted(&format!("{dir}/rep.{incarnation}"));
        Self { dialect, dir: dir.to_owned(), private: dir.to_owned(), rep }
    }

    /// The same with texts and dumps of the shell in another directory, for a shell that has secrets.
    pub fn hidden_in(self, private: &str) -> Self {
        Self { private: private.to_owned(), ..self }
    }

    fn path(&self, name: &str) -> String {
        let dir = if is_private(name) { &self.private } else { &self.dir };
        quoted(&format!("{dir}/{name}"))
    }

    fn say(&self, token: &str) -> String {
        let prefix = self.dialect.prefix();
        // `<>`: opening it never waits for us. A shell whose steward and keeper are dead must be able to end.
        format!("{prefix}printf '%s\\0' \"{token} $?\" \"$PWD\" \"${{OLDPWD-}}\" 1<>{}", self.rep)
    }

    /// The first line a new shell reads. A script that can't be read to its end would leave half a state: then it goes,
    /// before it comes to any command.
    pub fn start(&self) -> String {
        let p = self.dialect.prefix();
        format!(" {p}. {} </dev/null || {p}exit 1\n", self.path("init"))
    }

    /// The file that [`Self::start`] sources: quiet prompts, no history, our EXIT trap, then the baseline if it isn't
    /// known yet, then the state to bring back.
    pub fn init_script(&self, baseline: Baseline, restore: &[u8]) -> Vec<u8> {
        let prefix = self.dialect.prefix();
        let mut out = match self.dialect {
            Dialect::Bash => format!("PS1= PS2=\n{prefix}set +o history +H\n{prefix}history -c\n"),
            // busybox ash takes a signal that comes while it waits for the next line, as that of a child that ended, for the
            // end of its input. With `ignoreeof` it reads on.
            Dialect::Posix => format!("PS1= PS2=\n{prefix}set -o ignoreeof\n"),
        };
        let trap = format!("{prefix}trap {} EXIT\n", quoted(&self.exit_trap()));
        out.push_str(&trap);
        if baseline == Baseline::Wanted {
            out.extend([&self.dump_into("base"), "\n", &self.say("B"), "\n"]);
        }
        let mut out = out.into_bytes();
        out.extend_from_slice(restore);
        out.extend_from_slice(format!("{}\n", self.say("R")).as_bytes());
        out
    }

    /// The command of the EXIT trap that we set, to be told from the user's own.
    pub fn exit_trap(&self) -> String {
        format!("{}. {}", self.dialect.prefix(), self.path("x"))
    }

    /// Sourced by the EXIT trap: the status first, for `$?` lasts one command, then the state at the moment of leaving.
    pub fn exit_script(&self) -> String {
        // A subshell that an interrupt hits before it has put away its inherited traps runs this too: it says who it is.
        format!("{}\n{}\n", self.say("X${BASHPID-}"), self.dump_into("xt"))
    }

    /// What follows a command that may have changed more than the directory. bash hides a DEBUG trap from what it
    /// sources, so that one is asked for outside.
    fn capture(&self) -> String {
        let debug = match self.dialect {
            Dialect::Bash => format!("\\builtin trap -p DEBUG >|{}; ", self.path("t")),
            Dialect::Posix => String::new(),
        };
        format!("{debug}{}", self.dump_into("st"))
    }

    /// Sources the dump, over what is in the file: cutting a file costs more than writing it, and the dump has an end of its
    /// own. `||`: what fails in it (no completions, say) must not end a shell that has `errexit` on. The
    /// redirection stands out here because `{` could be an alias.
    fn dump_into(&self, file: &str) -> String {
        let p = self.dialect.prefix();
        format!("{p}. {} 1<>{} 2>/dev/null || {p}:", self.path("d"), self.path(file))
    }

    /// Every `printf` is a write and five microseconds, so what can be told apart by its first word is not separated.
    pub fn dump_script(&self) -> String {
        let p = self.dialect.prefix();
        let sections = match self.dialect {
            Dialect::Bash => format!(
                "{p}printf '%s\\0' \"$#\" \"$@\"\n{p}declare -p\n{p}printf '\\0'\n{p}declare -f\n{p}printf '\\0'\n\
                 {p}declare -F\n{p}alias -p\n{p}umask\n{p}trap -p\n{p}enable -n\n{p}complete -p\n\
                 {p}printf '\\0%s' \"${{#DIRSTACK[@]}}\" \"${{DIRSTACK[@]}}\"\n{p}printf '\\0'\n"
            ),
            Dialect::Posix => format!(
                "{p}printf '%s\\0' \"$#\" \"$@\"\n{p}export -p\n{p}printf '\\0'\n{p}set\n{p}printf '\\0'\n\
                 {p}alias\n{p}printf '\\0'\n{p}umask\n{p}printf '\\0'\n{p}trap\n{p}printf '\\0'\n{p}set +o\n\
                 {p}printf '\\0'\n"
            ),
        };
        format!("{sections}{p}printf 'end\\0'\n")
    }

    /// What is put behind the text of a command, in the same file. `||`: an ERR trap, or `errexit`, has no business here.
    pub fn epilogue(&self, epilogue: Epilogue, number: u64, pair: u64) -> String {
        let statuses = "\"${PIPESTATUS[@]/%/ }\"";
        match epilogue {
            Epilogue::None => String::new(),
            Epilogue::Statuses => format!(
                "\n\\builtin printf '%b' \"P{number} $?\\0\\0\" {statuses} '\\0' 1<>{} || \\builtin :\n",
                self.rep
            ),
            Epilogue::Outputs => {
                let script = self.path("k");
                format!("\n\\builtin . {script} \"$?\" {pair} {number} {statuses} || \\builtin :\n")
            }
        }
    }

    /// Contents of `k`, which an epilogue sources.
    pub fn epilogue_script(&self) -> String {
        epilogue::script(&quoted(&self.dir), &self.rep)
    }

    /// The line, or lines, that run one command. Starts with a newline, which takes up an interrupt that is pending.
    pub fn trigger(&self, trigger: &Trigger<'_>) -> String {
        let p = self.dialect.prefix();
        let body = self.path(if trigger.overlay { "w" } else { "c" });
        let run = if trigger.eval { format!("eval \"$(<{body})\"") } else { format!(". {body}") };
        let exchanged = trigger.targets == [Target::Other; 2];
        let (out, err) = if exchanged { ("e", "o") } else { ("o", "e") };
        let output = |name: &str| self.path(&format!("{name}.{}", trigger.pair));
        let set = set_pipe_status(trigger.pipe_status);
        // Input first: when the outputs are open, it is too, and its other end may be closed.
        let own = match trigger.input {
            Input::Empty => format!("</dev/null{set} >{} 2>{}", output(out), output(err)),
            Input::Given => {
                let input = self.path(&format!("i.{}", trigger.number));
                format!("<{input}{set} >{} 2>{}", output(out), output(err))
            }
            // Where its own output goes when no command runs, by its real name; each again, so that what the command
            // does to one ends with it.
            Input::Terminal => format!("<&1{set} >&0 2>&0"),
        };
        let streams = format!("{own}{}", epilogue::redirections(trigger.targets));
        let keep = epilogue::keep(trigger.targets, trigger.held);
        let mut tail = vec![self.say(&trigger.number.to_string())];
        if trigger.input == Input::Terminal && self.dialect == Dialect::Bash {
            // What it would say of its jobs before its own prompt, which nobody sees.
            tail.push(format!("{p}jobs -n"));
        }
        if trigger.overlay {
            tail.push(format!("{p}. {}", self.path("u")));
        }
        if trigger.capture {
            tail.push(self.capture());
            tail.push(self.say("D"));
        }
        let status = self.path(&format!("s.{}", trigger.last_status));
        // One line: between lines bash would run PROMPT_COMMAND, and ash gives what it has read ahead to the programs it
        // runs as their input. (A syntax error in the text makes dash and ash drop the rest of the line; then the shell
        // comes back without a report, which the watch notices.) `||`: a status to be continued must not trip
        // `errexit`; what stands last in the list is not exempt from it.
        let before = if trigger.last_status == 0 { String::new() } else { format!("{p}. {status} || ") };
        format!("\n {keep}{before}{p}{run} {streams}; {}\n", tail.join("; "))
    }

    /// Contents of `s.N`: the shortest way to make `$?` be N.
    pub fn status_script(&self, status: u8) -> String {
        match self.dialect {
            Dialect::Bash => format!("\\builtin return {status}\n"),
            Dialect::Posix => format!("return {status}\n"),
        }
    }

    /// Sourced instead of the command itself when it has an overlay. `C` says that the directory is not there.
    pub fn overlay_script(&self, number: u64, overlay: &Overlay) -> Vec<u8> {
        let p = self.dialect.prefix();
        let mut out = Vec::new();
        if let Some(cwd) = &overlay.cwd {
            out.extend_from_slice(format!("{p}cd -- ").as_bytes());
            out.extend_from_slice(&quote(cwd));
            out.extend_from_slice(
                format!(" >/dev/null 2>&1 || {{ {}; return 1; }}\n", self.say(&format!("C{number}"))).as_bytes(),
            );
        }
        for (name, value) in &overlay.env {
            out.extend_from_slice(name);
            out.push(b'=');
            out.extend_from_slice(&quote(value));
            out.push(b' ');
        }
        // `command` takes from `.` the special rule of POSIX mode that assignments before it last.
        let command = if self.dialect == Dialect::Bash { "\\builtin command" } else { "\\command" };
        out.extend_from_slice(format!("{command} . {}\n", self.path("c")).as_bytes());
        out
    }

    /// Sourced after a command with an overlay: back to where the shell was.
    pub fn undo_script(&self, before: &ShellState, cwd: &[u8]) -> Vec<u8> {
        let p = self.dialect.prefix().as_bytes();
        let mut out = [p, b"cd -- ", &quote(cwd), b" >/dev/null 2>&1\n"].concat();
        match &before.oldpwd {
            Some(oldpwd) => out.extend_from_slice(&[b"OLDPWD=", quote(oldpwd).as_slice(), b"\n"].concat()),
            None => out.extend_from_slice(&[p, b"unset -v OLDPWD\n"].concat()),
        }
        out
    }

    /// Runs the environment script, between two commands, and says so.
    pub fn apply_env(&self, number: u64) -> String {
        let p = self.dialect.prefix();
        let script = self.path("v");
        format!("\n {p}. {script} </dev/null >/dev/null 2>&1 || {p}:; {}\n", self.say(&format!("V{number}")))
    }

    /// Contents of `v`. What a name was before (an array, an integer, a reference to another) has no say in what it becomes.
    /// A trace (`set -x`) may go anywhere, so none is made.
    pub fn env_script<'a>(&self, traced: bool, env: impl IntoIterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Vec<u8> {
        let p = self.dialect.prefix().as_bytes();
        let mut out = Vec::new();
        if traced {
            out.extend_from_slice(&[p, b"set +x\n"].concat());
        }
        for (name, value) in env {
            if self.dialect == Dialect::Bash {
                out.extend_from_slice(&[p, b"unset -n ", name, b" && "].concat());
            }
            out.extend_from_slice(&[p, b"unset -v ", name].concat());
            if let Some(value) = value {
                // Not at all if it is read-only: under `errexit` the attempt would end the shell.
                out.extend_from_slice(&[b" && ", p, b"export ", name, b"=", &quote(value)].concat());
            }
            out.push(b'\n');
        }
        if traced {
            out.extend_from_slice(&[p, b"set -x\n"].concat());
        }
        out
    }

    /// Asks the shell to answer when it is back at the top. The blank lines take up an interrupt that is pending, and
    /// end a line that an interrupt cut in two.
    pub fn query(&self, number: u64) -> String {
        format!("\n\n\n {}\n", self.say(&format!("Q{number}")))
    }

    /// After an interrupt, which threw away the rest of the trigger: take back the overlay, capture, and answer.
    pub fn catch_up(&self, number: u64, overlay: bool) -> String {
        let p = self.dialect.prefix();
        let undo = if overlay { format!(" {p}. {}\n", self.path("u")) } else { String::new() };
        format!("\n{undo} {}{}", self.capture(), self.query(number))
    }
}

/// The first byte of a dump file that nothing has been dumped into since it was last looked at; no dump begins with it.
pub const UNUSED: u8 = 0xff;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Baseline {
    Wanted,
    Known,
}

fn quoted(path: &str) -> String {
    String::from_utf8_lossy(&quote(path.as_bytes())).into_owned()
}

/// An expansion that comes to nothing and sets `PIPESTATUS`: any command that did it would set it again when it ends.
fn set_pipe_status(statuses: &[u8]) -> String {
    if statuses.is_empty() {
        return String::new();
    }
    let set = statuses.iter().enumerate().map(|(at, status)| format!("PIPESTATUS[{at}]={status}"));
    format!("\"${{BASH_VERSINFO[{}]+}}\"", set.collect::<Vec<_>>().join(","))
}

/// What a shell said on its reply FIFO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub token: Token,
    /// `$?`.
    pub status: u8,
    pub pwd: Bytes,
    pub oldpwd: Option<Bytes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// The command of this number has ended.
    Ended(u64),
    /// The capture after the last command is complete.
    Captured,
    /// The answer to the query of this number: the shell is at its top level.
    Answer(u64),
    /// The shell, or a subshell with this process id, is about to exit; 0 where it can't tell (dash, ash).
    Exiting(i32),
    /// The overlay directory of this command could not be entered; the command has not run.
    NoDirectory(u64),
    /// The environment script of this number has been run.
    EnvApplied(u64),
    /// By its epilogue, what the command of this number left in `PIPESTATUS`, in the place of `$OLDPWD`.
    Statuses(u64),
    /// Where an output of the shell led behind the command of this number: a letter in the place of `$PWD`, and in that of
    /// `$?` which output.
    Output(u64),
    BaselineReady,
    Ready,
}

impl Token {
    fn parse(text: &str) -> Option<Self> {
        let number = |rest: &str| rest.parse().ok();
        match text.split_at_checked(1)? {
            ("B", "") => Some(Self::BaselineReady),
            ("R", "") => Some(Self::Ready),
            ("D", "") => Some(Self::Captured),
            ("X", "") => Some(Self::Exiting(0)),
            ("X", rest) => rest.parse().ok().map(Self::Exiting),
            ("Q", rest) => number(rest).map(Self::Answer),
            ("V", rest) => number(rest).map(Self::EnvApplied),
            ("C", rest) => number(rest).map(Self::NoDirectory),
            ("P", rest) => number(rest).map(Self::Statuses),
            ("O", rest) => number(rest).map(Self::Output),
            _ => number(text).map(Self::Ended),
        }
    }
}

/// Cuts reports out of the reply log. What isn't a report (somebody wrote into the FIFO by its path) is passed over.
#[derive(Debug, Default)]
pub struct Reports {
    pending: Vec<u8>,
}

impl Reports {
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    pub fn next_report(&mut self) -> Option<Report> {
        loop {
            let mut ends = self.pending.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(at, _)| at);
            let (head, pwd, oldpwd) = (ends.next()?, ends.next()?, ends.next()?);
            let fields: Vec<u8> = self.pending.drain(..=oldpwd).collect();
            let report = fields.get(..head).and_then(|head| std::str::from_utf8(head).ok()).and_then(|text| {
                let (token, status) = text.split_once(' ')?;
                Some((Token::parse(token)?, status.parse().ok()?))
            });
            let field = |from: usize, to: usize| Bytes::from(fields.get(from + 1..to).unwrap_or_default());
            if let Some((token, status)) = report {
                let oldpwd = Some(field(pwd, oldpwd)).filter(|dir| !dir.is_empty());
                return Some(Report { token, status, pwd: field(head, pwd), oldpwd });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(dialect: Dialect) -> Lines {
        Lines::new(dialect, "/r", 3)
    }

    const TRIGGER: Trigger<'static> = Trigger {
        number: 41,
        pair: 7,
        input: Input::Empty,
        last_status: 0,
        pipe_status: &[],
        targets: [Target::Own; 2],
        held: Held { kept: [false; 2], handed_over: [false; 2] },
        overlay: false,
        capture: false,
        eval: false,
    };

    #[test]
    fn a_plain_command_is_one_line_that_fits_a_pipe_atomically() {
        let line = lines(Dialect::Bash).trigger(&TRIGGER);
        let want = "\n \\builtin . '/r/c' </dev/null >'/r/o.7' 2>'/r/e.7'; \
                    \\builtin printf '%s\\0' \"41 $?\" \"$PWD\" \"${OLDPWD-}\" 1<>'/r/rep.3'\n";
        assert_eq!(line, want);
        let full = Trigger { input: Input::Given, last_status: 255, overlay: true, capture: true, ..TRIGGER };
        let deep = Lines::new(Dialect::Bash, &"/x".repeat(128), 3);
        assert!(deep.trigger(&full).len() < 4096);
    }

    #[test]
    fn nothing_follows_the_line_that_runs_a_command() {
        let line = lines(Dialect::Posix).trigger(&Trigger { last_status: 3, capture: true, ..TRIGGER });
        let want = "\n \\command . '/r/s.3' || \\command . '/r/c' </dev/null >'/r/o.7' 2>'/r/e.7'; \
                    \\command printf '%s\\0' \"41 $?\" \"$PWD\" \"${OLDPWD-}\" 1<>'/r/rep.3'; \
                    \\command . '/r/d' 1<>'/r/st' 2>/dev/null || \\command :; \
                    \\command printf '%s\\0' \"D $?\" \"$PWD\" \"${OLDPWD-}\" 1<>'/r/rep.3'\n";
        assert_eq!(line, want);
    }

    #[test]
    fn reports_are_read_however_they_are_cut_and_noise_is_passed_over() {
        let wire = b"41 0\0/tmp\0\0noise\0\0\0Q9 130\0/a\nb\0/old\0X77 5\0/\0\0";
        let want = [
            (Token::Ended(41), 0, "/tmp", None),
            (Token::Answer(9), 130, "/a\nb", Some("/old")),
            (Token::Exiting(77), 5, "/", None),
        ];
        for step in 1..wire.len() {
            let (mut reports, mut got) = (Reports::default(), Vec::new());
            for piece in wire.chunks(step) {
                reports.push(piece);
                while let Some(report) = reports.next_report() {
                    got.push(report);
                }
            }
            let want: Vec<_> = want
                .iter()
                .map(|(token, status, pwd, old)| Report {
                    token: *token,
                    status: *status,
                    pwd: Bytes::from(pwd),
                    oldpwd: old.map(Bytes::from),
                })
                .collect();
            assert_eq!(got, want, "cut every {step} bytes");
        }
    }

    proptest! {
        #[test]
        fn hostile_replies_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut reports = Reports::default();
            reports.push(&bytes);
            while reports.next_report().is_some() {}
        }
    }
}
