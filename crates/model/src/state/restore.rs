//! A script that makes a fresh shell equal to a stored state.
//!
//! The order matters: variables first, because an array can only be declared by a plain `declare`, which a function could
//! hide; functions before aliases (or their bodies would be expanded), and under `extglob`, which their patterns may
//! need; read-only variables after everything that might still assign; `set -o` last, because `errexit`, `noexec` and
//! `nounset` would act on the script itself.

use super::ShellState;
use crate::shell::Dialect;
use crate::word::quote;

/// How much of a state to bring back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    All,
    /// Without functions, aliases, traps and options: for a shell in which these made us unable to hear from it.
    WithoutCode,
    /// For a shell that even its variables keep from starting.
    DirectoryOnly,
}

/// Builtins and functions of these names are what we speak through; a state that takes them away is restored without
/// that part.
const NEEDED: [&str; 11] =
    [".", "builtin", "printf", "declare", "alias", "umask", "trap", "enable", "cd", "command", "complete"];

/// Setting it is `set -o posix`, under which functions may not have all names: it comes with the options.
const SWITCH: &[u8] = b"POSIXLY_CORRECT";

/// `start` is the directory that the shell is started in: if it is the right one, there is no `cd`, and a fresh shell has
/// no `OLDPWD`, as it should.
pub fn script(dialect: Dialect, state: &ShellState, extent: Extent, start: &[u8]) -> Vec<u8> {
    let mut script = Script { dialect, out: Vec::new() };
    match extent {
        Extent::All => {
            script.data(state, start);
            script.functions(state);
            script.code(state);
        }
        Extent::WithoutCode => script.data(state, start),
        Extent::DirectoryOnly => script.directory(state, start),
    }
    script.out
}

struct Script {
    dialect: Dialect,
    out: Vec<u8>,
}

impl Script {
    /// One statement, run as the builtin of its first word whatever functions or aliases there are.
    fn line(&mut self, parts: &[&[u8]]) {
        self.out.extend_from_slice(self.dialect.prefix().as_bytes());
        self.raw(parts);
    }

    fn raw(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.out.extend_from_slice(part);
        }
        self.out.push(b'\n');
    }

    fn data(&mut self, state: &ShellState, start: &[u8]) {
        self.variables(state, |statement| !is_readonly(statement));
        self.directory(state, start);
        self.variables(state, is_readonly);
        if let Some(umask) = &state.umask {
            self.line(&[b"umask ", umask.as_bytes()]);
        }
    }

    fn shell_options(&mut self, state: &ShellState) {
        for (name, on) in &state.shopt {
            self.line(&[b"shopt ", if *on { b"-s " } else { b"-u " }, name.as_bytes()]);
        }
    }

    fn functions(&mut self, state: &ShellState) {
        if !state.functions.text.is_empty() {
            self.line(&[b"shopt -s extglob"]);
            self.raw(&[&state.functions.text]);
            self.line(&[b"shopt -u extglob"]);
            for name in &state.functions.exported {
                self.line(&[b"export -f -- ", &quote(name)]);
            }
        }
        for name in &state.functions.removed {
            self.line(&[b"unset -f -- ", &quote(name)]);
        }
        // A function named `builtin` or `command` would swallow all that we say; it alone is not brought back.
        for name in [b"builtin".as_slice(), b"command"] {
            if state.functions.names.contains(name) {
                self.raw(&[b"\\unset -f ", name]);
            }
        }
    }

    fn variables(&mut self, state: &ShellState, which: impl Fn(&[u8]) -> bool) {
        let now = |name: &[u8], statement: &[u8]| name != SWITCH && which(statement);
        for (name, statement) in state.variables.iter().filter(|(name, statement)| now(name, statement)) {
            // A declaration adds flags but never takes one away: start from nothing.
            if state.unexported.contains(name) {
                self.line(&[b"unset -v ", name]);
            }
            match self.dialect {
                // A quoted word before it, and `=(` is a syntax error.
                Dialect::Bash if is_array(statement) => self.raw(&[statement]),
                Dialect::Bash => self.line(&[statement]),
                // `export A=..` and `A=..` are no builtins that could be hidden.
                Dialect::Posix => self.raw(&[statement]),
            }
        }
        if which(b"") {
            for name in &state.unset {
                self.line(&[b"unset -v ", name]);
            }
        }
    }

    fn directory(&mut self, state: &ShellState, start: &[u8]) {
        if self.dialect == Dialect::Bash {
            for dir in state.dirs.iter().rev() {
                self.line(&[b"cd -- ", &quote(dir), b" 2>/dev/null && \\builtin pushd . >/dev/null 2>&1"]);
            }
        }
        if !state.cwd.is_empty() && (*state.cwd != *start || !state.dirs.is_empty()) {
            self.enter(&state.cwd);
        }
        if let Some(oldpwd) = &state.oldpwd {
            self.raw(&[b"OLDPWD=", &quote(oldpwd)]);
        }
    }

    /// `cd` to the directory or, if it is gone, to the nearest parent that is there. The steward sees where the shell
    /// ended up and says so in the next result.
    fn enter(&mut self, cwd: &[u8]) {
        let mut chain = Vec::new();
        let mut path = cwd;
        loop {
            if !chain.is_empty() {
                chain.extend_from_slice(b" || ");
            }
            chain.extend_from_slice(self.dialect.prefix().as_bytes());
            chain.extend_from_slice(b"cd -- ");
            chain.extend_from_slice(&quote(path));
            chain.extend_from_slice(b" >/dev/null 2>&1");
            let Some(slash) = path.iter().rposition(|&byte| byte == b'/').filter(|_| path != b"/") else { break };
            path = path.get(..slash.max(1)).unwrap_or(b"/");
        }
        self.raw(&[&chain]);
    }

    fn code(&mut self, state: &ShellState) {
        self.shell_options(state);
        if !state.completions.is_empty() {
            self.raw(&[&state.completions]);
        }
        for name in state.disabled.iter().filter(|name| !NEEDED.contains(&name.as_str())) {
            self.line(&[b"enable -n ", name.as_bytes()]);
        }
        if !state.args.is_empty() {
            let args: Vec<_> = state.args.iter().map(|arg| quote(arg)).collect();
            self.line(&[b"set -- ", &args.join(&b' ')]);
        }
        for (signal, command) in &state.traps {
            self.line(&[b"trap -- ", &quote(command), b" ", signal.as_bytes()]);
        }
        for (name, value) in &state.aliases {
            let dashes: &[u8] = if self.dialect == Dialect::Bash { b"alias -- " } else { b"alias " };
            self.line(&[dashes, &quote(name), b"=", &quote(value)]);
        }
        if let Some(statement) = state.variables.get(SWITCH) {
            self.line(&[statement]);
        }
        for (name, on) in &state.options {
            self.line(&[b"set ", if *on { b"-o " } else { b"+o " }, name.as_bytes()]);
        }
    }
}

pub(super) fn is_readonly(statement: &[u8]) -> bool {
    flags(statement).contains(&b'r')
}

fn is_array(statement: &[u8]) -> bool {
    flags(statement).iter().any(|flag| b"aA".contains(flag))
}

/// Of a `declare -FLAGS NAME..`, up to the first blank.
fn flags(statement: &[u8]) -> &[u8] {
    let rest = statement.strip_prefix(b"declare -").unwrap_or_default();
    rest.split(|&byte| byte == b' ').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Bytes;

    fn text(state: &ShellState) -> String {
        String::from_utf8(script(Dialect::Bash, state, Extent::All, b"")).unwrap()
    }

    #[test]
    fn a_missing_directory_falls_back_parent_by_parent_to_the_root() {
        let state = ShellState { cwd: Bytes::from("/a/b'c"), ..ShellState::default() };
        let want = "\\builtin cd -- '/a/b'\\''c' >/dev/null 2>&1 || \\builtin cd -- '/a' >/dev/null 2>&1 || \\builtin cd -- '/' >/dev/null 2>&1\n";
        assert_eq!(text(&state), want);
    }

    #[test]
    fn read_only_variables_come_after_everything_that_may_still_assign() {
        let mut state = ShellState { cwd: Bytes::from("/"), ..ShellState::default() };
        state.variables.insert(Bytes::from("A"), Bytes::from("declare -r A=\"1\""));
        state.variables.insert(Bytes::from("B"), Bytes::from("declare -- B=\"2\""));
        let script = text(&state);
        let at = |needle: &str| script.find(needle).unwrap();
        assert!(at("B=\"2\"") < at("cd -- ") && at("cd -- ") < at("A=\"1\""), "{script}");
    }

    #[test]
    fn what_would_cut_us_off_from_the_shell_is_not_brought_back() {
        let mut state = ShellState::default();
        state.functions.names.insert(Bytes::from("builtin"));
        state.functions.text = Bytes::from("builtin () \n{ \n    :\n}");
        state.disabled.extend(["printf".to_owned(), "pwd".to_owned()]);
        state.options.insert("nounset".to_owned(), true);
        let script = text(&state);
        assert!(
            script.contains("\\unset -f builtin\n")
                && script.contains("enable -n pwd")
                && script.contains("set -o nounset")
        );
        assert!(!script.contains("enable -n printf"));
    }
}
