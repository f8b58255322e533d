//! Reading what a shell printed about itself (see [`crate::shell::Lines::dump_script`] for what it was asked).

use super::{Bytes, Functions, ShellState};
use crate::shell::Dialect;
use crate::word::{Reader, WordError, is_name};
use std::collections::{BTreeMap, BTreeSet};

/// Everything a shell said at one moment, absolute.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Capture {
    args: Vec<Bytes>,
    variables: BTreeMap<Bytes, Bytes>,
    functions: Functions,
    aliases: BTreeMap<Bytes, Bytes>,
    shopt: BTreeSet<String>,
    options: BTreeSet<String>,
    umask: String,
    traps: BTreeMap<String, Bytes>,
    dirs: Vec<Bytes>,
    disabled: BTreeSet<String>,
    completions: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    #[error("the dump ends before its section `{0}`")]
    Missing(&'static str),
    #[error("the dump's section `{0}` can't be read")]
    Malformed(&'static str),
    #[error("the dump's section `{section}` can't be read")]
    Word { section: &'static str, source: WordError },
}

/// Names that the shell makes by itself or that mean only the moment; never stored, never set.
pub fn is_own(name: &[u8]) -> bool {
    const OWN: [&[u8]; 32] = [
        b"_",
        b"BASH",
        b"BASHOPTS",
        b"BASHPID",
        b"COMP_WORDBREAKS",
        b"COPROC",
        b"DIRSTACK",
        b"EPOCHREALTIME",
        b"EPOCHSECONDS",
        b"EUID",
        b"FUNCNAME",
        b"GROUPS",
        b"HISTCMD",
        b"HOSTNAME",
        b"HOSTTYPE",
        b"LINENO",
        b"MACHTYPE",
        b"OLDPWD",
        b"OPTERR",
        b"OPTIND",
        b"OSTYPE",
        b"PIPESTATUS",
        b"PPID",
        b"PWD",
        b"RANDOM",
        b"SECONDS",
        b"SHELLOPTS",
        b"SHLVL",
        b"SRANDOM",
        b"UID",
        b"COLUMNS",
        b"LINES",
    ];
    OWN.contains(&name) || name.starts_with(b"BASH_") && name != b"BASH_ENV"
}

impl Capture {
    /// `ours` is the EXIT trap that we set ourselves; it is left out.
    pub fn parse(dialect: Dialect, dump: &[u8], ours: &[u8]) -> Result<Self, CaptureError> {
        let mut sections = Sections { rest: dump };
        let args = sections.list("arguments")?;
        let capture = match dialect {
            Dialect::Bash => Self::bash(&mut sections, args)?,
            Dialect::Posix => Self::posix(&mut sections, args)?,
        };
        if sections.next("end")? != b"end" {
            return Err(CaptureError::Malformed("end"));
        }
        Ok(capture.without_own_trap(ours))
    }

    fn bash(sections: &mut Sections, args: Vec<Bytes>) -> Result<Self, CaptureError> {
        let variables = declarations(sections.next("variables")?)?;
        let text = Bytes::from(sections.next("functions")?);
        // What follows is told apart by the first word of each statement.
        let mut rest = Reader::new(sections.next("functions, aliases, umask, traps, builtins, completions")?);
        let (names, exported) = function_names(&mut rest);
        let aliases = aliases(&mut rest)?;
        let umask = umask(rest.until(b"\n"))?;
        rest.skip_newlines();
        let traps = traps(&mut rest)?;
        let disabled = disabled_builtins(&mut rest);
        let completions = Bytes::from(rest.until(b""));
        let mut dirs = sections.list("directory stack")?;
        if !dirs.is_empty() {
            dirs.remove(0);
        }
        let functions = Functions { text, names, exported, removed: BTreeSet::new() };
        Ok(Self {
            shopt: option_list(&variables, b"BASHOPTS"),
            options: option_list(&variables, b"SHELLOPTS"),
            args,
            variables,
            functions,
            aliases,
            umask,
            traps,
            dirs,
            disabled,
            completions,
        })
    }

    /// dash and ash have no arrays, `shopt` or `declare -f`: their functions can't be captured.
    fn posix(sections: &mut Sections, args: Vec<Bytes>) -> Result<Self, CaptureError> {
        let exported = exports(sections.next("exports")?)?;
        let mut variables = BTreeMap::new();
        let mut reader = Reader::new(sections.next("variables")?);
        while !reader.is_done() {
            let from = reader.at();
            let name = Bytes::from(reader.until(b"=\n"));
            if !reader.eat(b"=") || !is_name(&name) {
                return Err(CaptureError::Malformed("variables"));
            }
            reader.skip_statement().map_err(|source| CaptureError::Word { section: "variables", source })?;
            let keyword: &[u8] = if exported.contains(&name) { b"export " } else { b"" };
            variables.insert(name, Bytes([keyword, reader.since(from)].concat()));
            reader.skip_newlines();
        }
        Ok(Self {
            aliases: aliases(&mut Reader::new(sections.next("aliases")?))?,
            umask: umask(sections.next("umask")?)?,
            traps: traps(&mut Reader::new(sections.next("traps")?))?,
            options: plus_o(sections.next("options")?),
            args,
            variables,
            ..Self::default()
        })
    }

    /// Adds the DEBUG trap, which the dump itself can't see: what `trap -p DEBUG` printed, or nothing.
    pub fn with_debug_trap(mut self, printed: &[u8]) -> Result<Self, CaptureError> {
        self.traps.extend(traps(&mut Reader::new(printed))?);
        Ok(self)
    }

    fn without_own_trap(mut self, ours: &[u8]) -> Self {
        if self.traps.get("EXIT").is_some_and(|command| command.0 == ours) {
            self.traps.remove("EXIT");
        }
        self
    }

    /// The value of a plain variable, for the few that the caller needs.
    pub fn variable(&self, name: &[u8]) -> Option<Vec<u8>> {
        let statement = self.variables.get(name)?;
        let mut reader = Reader::new(statement);
        reader.until(b"=");
        if reader.eat(b"=") { reader.word().ok() } else { None }
    }

    pub fn has(&self, name: &[u8]) -> bool {
        self.variables.contains_key(name)
    }

    /// What a shell that said `self` has over a fresh one that said `baseline`. The working directory is the
    /// caller's to fill in, from the kernel.
    pub fn delta(&self, baseline: &Self) -> ShellState {
        let mut variables = BTreeMap::new();
        let mut unexported = BTreeSet::new();
        for (name, statement) in self.variables.iter().filter(|(name, _)| !is_own(name)) {
            let before = baseline.variables.get(name);
            if before == Some(statement) {
                continue;
            }
            if before.is_some_and(|before| exports_it(before)) && !exports_it(statement) {
                unexported.insert(name.clone());
            }
            variables.insert(name.clone(), statement.clone());
        }
        let unset = baseline.variables.keys().filter(|name| !is_own(name) && !self.variables.contains_key(*name));
        let mut functions = Functions::default();
        if self.functions != baseline.functions {
            functions = self.functions.clone();
            functions.removed = baseline.functions.names.difference(&self.functions.names).cloned().collect();
        }
        ShellState {
            cwd: Bytes::default(),
            oldpwd: self.variable(b"OLDPWD").filter(|dir| !dir.is_empty()).map(Bytes),
            unset: unset.cloned().collect(),
            variables,
            unexported,
            functions,
            aliases: self.aliases.clone(),
            // POSIX mode brings two of its own, which bash notes in `BASHOPTS` only when it next comes by.
            shopt: difference(&self.shopt, &baseline.shopt, |name| {
                let of_posix = matches!(name, "inherit_errexit" | "shift_verbose") && self.options.contains("posix");
                !of_posix && !name.starts_with("compat") && !matches!(name, "restricted_shell" | "login_shell")
            }),
            // `restricted` could never be left again and forbids the redirections that we speak through, `onecmd` would
            // end each new shell at once, and history is off in ours.
            options: difference(&self.options, &baseline.options, |name| {
                !matches!(name, "restricted" | "onecmd" | "history")
            }),
            umask: (self.umask != baseline.umask).then(|| self.umask.clone()),
            traps: self
                .traps
                .iter()
                .filter(|(k, v)| baseline.traps.get(*k) != Some(v))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect(),
            dirs: self.dirs.clone(),
            args: self.args.clone(),
            disabled: self.disabled.clone(),
            completions: if self.completions == baseline.completions {
                Bytes::default()
            } else {
                self.completions.clone()
            },
        }
    }
}

struct Sections<'a> {
    rest: &'a [u8],
}

impl<'a> Sections<'a> {
    fn next(&mut self, name: &'static str) -> Result<&'a [u8], CaptureError> {
        let end = self.rest.iter().position(|&byte| byte == 0).ok_or(CaptureError::Missing(name))?;
        let (section, rest) = self.rest.split_at(end);
        self.rest = rest.get(1..).unwrap_or_default();
        Ok(section)
    }

    /// A count, then that many sections.
    fn list(&mut self, name: &'static str) -> Result<Vec<Bytes>, CaptureError> {
        let count = std::str::from_utf8(self.next(name)?).ok().and_then(|text| text.trim().parse::<usize>().ok());
        let count = count.ok_or(CaptureError::Malformed(name))?;
        (0..count).map(|_| self.next(name).map(Bytes::from)).collect()
    }
}

/// `declare -p`: a statement each, whose value may hold any line.
fn declarations(text: &[u8]) -> Result<BTreeMap<Bytes, Bytes>, CaptureError> {
    let mut out = BTreeMap::new();
    let mut reader = Reader::new(text);
    while !reader.is_done() {
        let from = reader.at();
        if !reader.eat(b"declare -") {
            return Err(CaptureError::Malformed("variables"));
        }
        reader.until(b" ");
        reader.skip_blank();
        let name = Bytes::from(reader.until(b"=\n"));
        if !is_name(&name) {
            return Err(CaptureError::Malformed("variables"));
        }
        reader.skip_statement().map_err(|source| CaptureError::Word { section: "variables", source })?;
        let statement = reader.since(from);
        out.insert(name, in_order(statement).map_or_else(|| Bytes::from(statement), Bytes));
        reader.skip_newlines();
    }
    Ok(out)
}

/// `declare -F`: `declare -f NAME`, with an `x` among the flags if exported.
fn function_names(reader: &mut Reader) -> (BTreeSet<Bytes>, BTreeSet<Bytes>) {
    let (mut names, mut exported) = (BTreeSet::new(), BTreeSet::new());
    while reader.eat(b"declare -f") {
        let flags = reader.until(b" ");
        reader.skip_blank();
        let name = Bytes::from(reader.until(b"\n"));
        reader.skip_newlines();
        if flags.contains(&b'x') {
            exported.insert(name.clone());
        }
        names.insert(name);
    }
    (names, exported)
}

/// `alias NAME='VALUE'` (bash, with more behind) or `NAME='VALUE'` (dash, ash; nothing else).
fn aliases(reader: &mut Reader) -> Result<BTreeMap<Bytes, Bytes>, CaptureError> {
    let mut out = BTreeMap::new();
    while !reader.is_done() {
        let named = reader.eat(b"alias ");
        if !named
            && reader.peek().is_some_and(|byte| byte.is_ascii_digit())
            && !reader.clone().until(b"\n").contains(&b'=')
        {
            break;
        }
        let _ = reader.eat(b"-- ");
        let name = Bytes::from(reader.until(b"="));
        if !reader.eat(b"=") {
            return Err(CaptureError::Malformed("aliases"));
        }
        let value = if matches!(reader.peek(), None | Some(b'\n')) {
            Vec::new()
        } else {
            reader.word().map_err(|source| CaptureError::Word { section: "aliases", source })?
        };
        out.insert(name, Bytes(value));
        reader.skip_newlines();
    }
    Ok(out)
}

/// `trap -- 'COMMAND' SIGNAL`, one or more signals. `SIGINT` and `INT` are the same signal.
fn traps(reader: &mut Reader) -> Result<BTreeMap<String, Bytes>, CaptureError> {
    let failed = |source| CaptureError::Word { section: "traps", source };
    let mut out = BTreeMap::new();
    while reader.eat(b"trap -- ") {
        let command = Bytes(reader.word().map_err(failed)?);
        loop {
            reader.skip_blank();
            if matches!(reader.peek(), None | Some(b'\n')) {
                break;
            }
            let signal = String::from_utf8_lossy(&reader.word().map_err(failed)?).into_owned();
            let signal = signal.strip_prefix("SIG").unwrap_or(&signal).to_owned();
            // In POSIX mode bash names every signal, those without a trap with a dash.
            if command.0 != b"-" {
                out.insert(signal, command.clone());
            }
        }
        reader.skip_newlines();
    }
    Ok(out)
}

fn umask(text: &[u8]) -> Result<String, CaptureError> {
    let digits = text.trim_ascii();
    let octal = !digits.is_empty() && digits.iter().all(|b| (b'0'..=b'7').contains(b));
    if octal { Ok(String::from_utf8_lossy(digits).into_owned()) } else { Err(CaptureError::Malformed("umask")) }
}

/// `enable -n`: `enable -n NAME`.
fn disabled_builtins(reader: &mut Reader) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    while reader.eat(b"enable -n ") {
        out.insert(String::from_utf8_lossy(reader.until(b"\n")).into_owned());
        reader.skip_newlines();
    }
    out
}

/// A colon-separated list in a variable of the shell's own.
fn option_list(variables: &BTreeMap<Bytes, Bytes>, name: &[u8]) -> BTreeSet<String> {
    let Some(statement) = variables.get(name) else { return BTreeSet::new() };
    let text = String::from_utf8_lossy(statement);
    let value = text.split_once('=').map(|(_, value)| value.trim_matches('"')).unwrap_or_default();
    value.split(':').filter(|option| !option.is_empty()).map(str::to_owned).collect()
}

/// `set +o`: `set -o NAME` for what is on.
fn plus_o(text: &[u8]) -> BTreeSet<String> {
    String::from_utf8_lossy(text).lines().filter_map(|line| line.strip_prefix("set -o ")).map(str::to_owned).collect()
}

/// `export -p`: the names.
fn exports(text: &[u8]) -> Result<BTreeSet<Bytes>, CaptureError> {
    let mut out = BTreeSet::new();
    let mut reader = Reader::new(text);
    while !reader.is_done() {
        if !reader.eat(b"export ") {
            return Err(CaptureError::Malformed("exports"));
        }
        out.insert(Bytes::from(reader.until(b"=\n")));
        reader.skip_statement().map_err(|source| CaptureError::Word { section: "exports", source })?;
        reader.skip_newlines();
    }
    Ok(out)
}

fn exports_it(statement: &[u8]) -> bool {
    let mut reader = Reader::new(statement);
    if reader.eat(b"declare -") { reader.until(b" ").contains(&b'x') } else { reader.eat(b"export ") }
}

/// What is on now and was off before, or the other way round, as far as it can be brought back.
fn difference(
    now: &BTreeSet<String>,
    before: &BTreeSet<String>,
    restorable: impl Fn(&str) -> bool,
) -> BTreeMap<String, bool> {
    let on = now.difference(before).map(|name| (name.clone(), true));
    let off = before.difference(now).map(|name| (name.clone(), false));
    on.chain(off).filter(|(name, _)| restorable(name)).collect()
}

/// bash prints an associative array in the order of its hash chains, which another shell with the same keys need not
/// share: sorted, equal arrays are equal text.
fn in_order(statement: &[u8]) -> Option<Vec<u8>> {
    let flags = statement.strip_prefix(b"declare -")?.split(|&byte| byte == b' ').next()?;
    let open = statement.iter().position(|&byte| byte == b'=').filter(|_| flags.contains(&b'A'))?;
    let inner = statement.get(open + 1..)?.strip_prefix(b"(")?.strip_suffix(b")")?;
    let (mut reader, mut entries) = (Reader::new(inner), Vec::new());
    loop {
        reader.skip_blank();
        let from = reader.at();
        if reader.is_done() {
            break;
        }
        reader.skip_entry().ok()?;
        entries.push(reader.since(from));
    }
    entries.sort_unstable();
    Some([statement.get(..=open)?, b"(", &entries.join(&b' '), b")"].concat())
}
