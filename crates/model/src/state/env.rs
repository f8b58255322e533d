//! Changing a stored state from outside: variables that the environment call sets, and secrets that must not be in it.

use super::ShellState;
use super::{Bytes, exported_value};
use crate::env::{MASK, SHORTEST_HIDDEN, Secret, Vars};
use crate::shell::Dialect;
use crate::word::quote;
use std::collections::BTreeSet;

impl ShellState {
    /// Sets and unsets variables, as a shell would have it that was told to. Those that are read-only stay as they are and
    /// are returned. `fresh` tells whether a fresh shell has a name: only then is there something to be unset.
    pub fn change_env(&mut self, dialect: Dialect, vars: &Vars, fresh: impl Fn(&[u8]) -> bool) -> Vec<Bytes> {
        let mut refused = Vec::new();
        for (name, value) in vars {
            if self.is_readonly(name) {
                refused.push(name.clone());
                continue;
            }
            self.forget(name);
            match value {
                Some(value) => {
                    self.variables.insert(name.clone(), export(dialect, name, value));
                }
                None if fresh(name) => {
                    self.unset.insert(name.clone());
                }
                None => {}
            }
        }
        refused
    }

    /// Whether nothing can change the variable in the shell that is so.
    pub fn is_readonly(&self, name: &[u8]) -> bool {
        self.variables.get(name).is_some_and(|statement| super::restore::is_readonly(statement))
    }

    fn forget(&mut self, name: &[u8]) {
        self.variables.remove(name);
        self.unset.remove(name);
        self.unexported.remove(name);
    }

    /// Takes out the secrets, and everything that holds the value of one: what was a variable, an alias, a trap, a function.
    /// Returns what went beside the secrets themselves, by name.
    pub fn hide(&mut self, names: &BTreeSet<Bytes>, values: &[&Secret]) -> Vec<String> {
        for name in names {
            self.variables.remove(name);
            self.unexported.remove(name);
        }
        let forms: Vec<Vec<u8>> = values.iter().flat_map(|value| forms(value.reveal())).collect();
        if forms.is_empty() {
            return Vec::new();
        }
        let holds = |text: &[u8]| forms.iter().any(|form| contains(text, form));
        let mut gone = Vec::new();
        let mut say = |name: &[u8]| gone.push(String::from_utf8_lossy(name).into_owned());
        self.variables.retain(|name, statement| {
            let kept = !holds(statement) && !exported_value(statement).is_some_and(|value| holds(&value));
            if !kept {
                say(name);
            }
            kept
        });
        self.aliases.retain(|name, value| !holds(value) || (say(name), false).1);
        self.traps.retain(|name, value| !holds(value) || (say(name.as_bytes()), false).1);
        for name in self.functions.leave_out(|text| holds(text)) {
            say(&name);
        }
        if self.args.iter().any(|arg| holds(arg)) {
            say(b"arguments");
            self.args.clear();
        }
        if holds(&self.completions) {
            say(b"completions");
            self.completions = Bytes::default();
        }
        self.dirs.retain(|dir| !holds(dir));
        gone
    }

    /// With other names for directories. Only for what is shown: a shell could not go to them.
    pub fn mask_paths(&mut self, mask: impl Fn(&[u8]) -> Vec<u8>) {
        let paths = std::iter::once(&mut self.cwd).chain(&mut self.oldpwd).chain(&mut self.dirs);
        for path in paths {
            *path = Bytes(mask(path));
        }
    }

    /// As it is shown: with the variables that are still to be set, and with a mask for each secret.
    pub fn shown<'a>(&self, vars: &Vars, secrets: impl IntoIterator<Item = &'a Bytes>) -> Self {
        let mut state = self.clone();
        state.change_env(Dialect::Posix, vars, |_| true);
        for name in secrets {
            // Unset in the shell by a command: then that is what there is to see.
            if !state.unset.contains(name) {
                state.variables.insert(name.clone(), export(Dialect::Posix, name, MASK.as_bytes()));
            }
        }
        state
    }

    /// Whether a command unset the secret.
    pub fn has_unset(&self, name: &[u8]) -> bool {
        self.unset.contains(name)
    }
}

/// The statement that makes a variable of the environment, as the shell itself would print it: what is captured next is
/// then the same.
fn export(dialect: Dialect, name: &[u8], value: &[u8]) -> Bytes {
    match dialect {
        Dialect::Bash => Bytes([b"declare -x ", name, b"=", &as_printed(value)].concat()),
        Dialect::Posix => Bytes([b"export ", name, b"=", &quote(value)].concat()),
    }
}

/// How bash prints a value: in double quotes, or as `$'..'` if it can't be printed.
fn as_printed(value: &[u8]) -> Vec<u8> {
    let printable = std::str::from_utf8(value).is_ok_and(|text| !text.chars().any(char::is_control));
    if !printable {
        return dollar_quoted(value);
    }
    [b"\"", double_quoted(value).as_slice(), b"\""].concat()
}

fn double_quoted(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    for &byte in value {
        if b"\"\\$`".contains(&byte) {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out
}

fn dollar_quoted(value: &[u8]) -> Vec<u8> {
    let mut out = b"$'".to_vec();
    for &byte in value {
        match byte {
            b'\\' | b'\'' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0x07 => out.extend_from_slice(b"\\a"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0b => out.extend_from_slice(b"\\v"),
            0x0c => out.extend_from_slice(b"\\f"),
            0x1b => out.extend_from_slice(b"\\E"),
            0x20..=0x7e => out.push(byte),
            _ => out.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
        }
    }
    out.push(b'\'');
    out
}

/// The ways in which a shell may have written a value.
fn forms(value: &[u8]) -> Vec<Vec<u8>> {
    if value.len() < SHORTEST_HIDDEN {
        return Vec::new();
    }
    let inner = |quoted: Vec<u8>, from: usize| quoted.get(from..quoted.len() - 1).unwrap_or_default().to_vec();
    let mut forms = vec![value.to_vec(), double_quoted(value), inner(quote(value), 1), inner(dollar_quoted(value), 2)];
    forms.sort_unstable();
    forms.dedup();
    forms
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn vars(all: &[(&str, Option<&[u8]>)]) -> Vars {
        all.iter().map(|(name, value)| (Bytes::from(name), value.map(Bytes::from))).collect()
    }

    fn with(variables: &[(&str, &str)]) -> ShellState {
        let variables = variables.iter().map(|(k, v)| (Bytes::from(k), Bytes::from(v))).collect();
        ShellState { variables, ..ShellState::default() }
    }

    #[test]
    fn what_is_set_reads_back_whatever_its_bytes() {
        for value in [&b"plain"[..], b"", b"a$b\"c`d\\e'f", b"\xff\x01\n\t\x1b"] {
            for dialect in [Dialect::Bash, Dialect::Posix] {
                let mut state = ShellState::default();
                assert!(state.change_env(dialect, &vars(&[("A", Some(value))]), |_| false).is_empty());
                let want = BTreeMap::from([(Bytes::from("A"), Some(Bytes::from(value)))]);
                assert_eq!(state.env_delta(), want, "{dialect:?}");
            }
        }
    }

    #[test]
    fn a_change_takes_the_place_of_whatever_was_there() {
        let mut state =
            with(&[("A", "declare -ai A=([0]=\"1\")"), ("B", "declare -x B=\"b\""), ("L", "declare -- L=\"\"")]);
        state.unexported.insert(Bytes::from("L"));
        state.unset.insert(Bytes::from("HOME"));
        let change = vars(&[("A", Some(b"1")), ("B", None), ("L", Some(b"l")), ("HOME", Some(b"/h")), ("TERM", None)]);
        state.change_env(Dialect::Bash, &change, |name| name == b"TERM");
        let mut want =
            with(&[("A", "declare -x A=\"1\""), ("L", "declare -x L=\"l\""), ("HOME", "declare -x HOME=\"/h\"")]);
        want.unset.insert(Bytes::from("TERM"));
        assert_eq!(state, want);
    }

    #[test]
    fn what_is_read_only_stays_and_is_told() {
        let before = with(&[("A", "declare -rx A=\"1\"")]);
        let mut state = before.clone();
        let refused = state.change_env(Dialect::Bash, &vars(&[("A", Some(b"2")), ("B", Some(b"3"))]), |_| false);
        assert_eq!(refused, [Bytes::from("A")]);
        assert_eq!(state.variables.get(b"A".as_slice()), before.variables.get(b"A".as_slice()));
        assert!(state.variables.contains_key(b"B".as_slice()));
    }

    #[test]
    fn nothing_of_a_secret_stays_in_a_state() {
        let secret = Secret::new("pa$$w'rd");
        let mut state = with(&[
            ("TOKEN", "declare -x TOKEN=\"another\""),
            ("AUTH", "declare -x AUTH=\"Bearer pa\\$\\$w'rd\""),
            ("LIST", "declare -a LIST=([0]=\"pa\\$\\$w'rd\")"),
            ("KEPT", "declare -x KEPT=\"kept\""),
        ]);
        state.aliases.insert(Bytes::from("a"), Bytes::from("echo pa$$w'rd"));
        state.traps.insert("INT".into(), Bytes::from("echo 'pa$$w'\\''rd'"));
        state.args.push(Bytes::from("pa$$w'rd"));
        let gone = state.hide(&BTreeSet::from([Bytes::from("TOKEN")]), &[&secret]);
        assert_eq!(gone, ["AUTH", "LIST", "a", "INT", "arguments"]);
        assert_eq!(state, with(&[("KEPT", "declare -x KEPT=\"kept\"")]));
    }

    #[test]
    fn of_functions_only_the_one_that_holds_a_secret_goes() {
        let text = "\
            auth () \n{ \n    curl -H 'Bearer hunter22'\n}\n\
            build () \n{ \n    cat <<E\n}\nkept\nE\n\n}\n\
            function c-d () \n{ \n    :\n}\ndeclare -fx c-d\n";
        let mut state = ShellState::default();
        state.functions.text = Bytes::from(text);
        state.functions.names = ["auth", "build", "c-d"].map(Bytes::from).into();
        state.functions.exported = ["auth", "c-d"].map(Bytes::from).into();
        assert_eq!(state.hide(&BTreeSet::new(), &[&Secret::new("hunter22")]), ["auth"]);
        assert_eq!(state.functions.names, ["build", "c-d"].map(Bytes::from).into());
        assert_eq!(state.functions.exported, ["c-d"].map(Bytes::from).into());
        assert_eq!(state.functions.text, Bytes::from(text.split_at(text.find("build").unwrap()).1));
    }

    #[test]
    fn where_nobody_can_tell_where_a_function_ends_all_go() {
        // The document in `a` looks like the beginning of `b`.
        let text = "a () \n{ \n    cat <<E\nb () \n{ \nhunter22\n}\nE\n\n}\nb () \n{ \n    :\n}\n";
        let mut state = ShellState::default();
        state.functions.text = Bytes::from(text);
        state.functions.names = ["a", "b"].map(Bytes::from).into();
        assert_eq!(state.hide(&BTreeSet::new(), &[&Secret::new("hunter22")]), ["a", "b"]);
        assert_eq!(state.functions, super::super::Functions::default());
    }

    #[test]
    fn directories_are_shown_without_a_secret() {
        let mut state =
            ShellState { cwd: "/w/hunter22/x".into(), oldpwd: Some("/w/hunter22".into()), ..ShellState::default() };
        let secret = [Secret::new("hunter22")];
        state.mask_paths(|path| crate::env::redact(path, &secret));
        assert_eq!((state.cwd, state.oldpwd), ("/w/***/x".into(), Some("/w/***".into())));
    }

    #[test]
    fn a_secret_is_shown_as_a_mask_unless_a_command_unset_it() {
        let names = [Bytes::from("GONE"), Bytes::from("TOKEN")];
        let mut state = ShellState::default();
        state.unset.insert(Bytes::from("GONE"));
        let shown = state.shown(&vars(&[("A", Some(b"1")), ("B", None)]), &names).env_delta();
        let want = [("A", Some("1")), ("B", None), ("GONE", None), ("TOKEN", Some("***"))];
        let want: BTreeMap<_, _> = want.into_iter().map(|(k, v)| (Bytes::from(k), v.map(Bytes::from))).collect();
        assert_eq!(shown, want);
    }
}
