//! The state of a shell as data: what makes a new shell the same place as the old one.
//!
//! A [`Capture`] is everything a shell said about itself at one moment. Two captures of the same kind of shell, one
//! fresh and one lived in, give a [`ShellState`]: the difference, which can be stored, compared, and turned into a
//! script ([`restore`]) that makes another fresh shell equal.
//!
//! ```text
//! fresh shell ── capture ── baseline ─┐
//! lived-in shell ── capture ──────────┴─ delta = ShellState ── restore script ── any fresh shell
//! ```
//!
//! Law: capture → restore → capture gives an equal [`ShellState`]. Not in it, because no script can bring them back:
//! jobs and `$!`, open descriptors, the hash table, `$$`, `PIPESTATUS`, `$_`, resource limits, and names that the
//! shell itself owns ([`capture::is_own`]).

pub mod capture;
mod env;
pub mod restore;

use crate::effect::Context;
use crate::epilogue::may_redirect;
use crate::word::Reader;
use minicbor::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};

pub use capture::{Capture, CaptureError};

type Names = BTreeSet<Bytes>;

/// A byte string that is one in CBOR too (a `Vec<u8>` would become an array of numbers).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Encode, Decode)]
#[cbor(transparent)]
pub struct Bytes(#[cbor(with = "minicbor::bytes")] pub Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl<T: AsRef<[u8]> + ?Sized> From<&T> for Bytes {
    fn from(bytes: &T) -> Self {
        Self(bytes.as_ref().to_vec())
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::borrow::Borrow<[u8]> for Bytes {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

/// What differs from the fresh shell. `Default` is the fresh shell itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct ShellState {
    /// As the shell names it (`$PWD`), so a path through symbolic links stays one. Empty: wherever it was started.
    #[n(0)]
    pub cwd: Bytes,
    #[n(1)]
    pub oldpwd: Option<Bytes>,
    /// New or changed variables: name to the statement, in the shell's own words, that declares it.
    #[n(2)]
    pub variables: BTreeMap<Bytes, Bytes>,
    /// Variables of the fresh shell that are gone.
    #[n(3)]
    pub unset: Names,
    /// Variables that the fresh shell exported and this one has, but does not export.
    #[n(4)]
    pub unexported: Names,
    #[n(5)]
    pub functions: Functions,
    #[n(6)]
    pub aliases: BTreeMap<Bytes, Bytes>,
    /// `shopt` and `set -o` options that differ.
    #[n(7)]
    pub shopt: BTreeMap<String, bool>,
    #[n(8)]
    pub options: BTreeMap<String, bool>,
    /// Octal, as `umask` prints it; `None` as in the fresh shell.
    #[n(9)]
    pub umask: Option<String>,
    /// Signal or pseudo-signal name to the command (empty: ignored).
    #[n(10)]
    pub traps: BTreeMap<String, Bytes>,
    /// The directory stack below the working directory.
    #[n(11)]
    pub dirs: Vec<Bytes>,
    /// Positional parameters.
    #[n(12)]
    pub args: Vec<Bytes>,
    /// Builtins switched off (`enable -n`).
    #[n(13)]
    pub disabled: BTreeSet<String>,
    /// `complete -p`, as printed.
    #[n(14)]
    pub completions: Bytes,
}

/// All functions as one text, because only the shell can tell where one ends: a here-document may hold any line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct Functions {
    #[n(0)]
    pub text: Bytes,
    #[n(1)]
    pub names: Names,
    #[n(2)]
    pub exported: Names,
    /// Functions of the fresh shell that are gone.
    #[n(3)]
    pub removed: Names,
}

impl Functions {
    /// Takes out the functions whose text holds something, and names them: only those where it is certain which line
    /// begins which, else all.
    fn leave_out(&mut self, holds: impl Fn(&[u8]) -> bool) -> Vec<Bytes> {
        if !holds(&self.text) {
            return Vec::new();
        }
        let Some(each) = self.each() else {
            let removed = std::mem::take(&mut self.removed);
            let all = std::mem::replace(self, Self { removed, ..Self::default() });
            return all.names.into_iter().collect();
        };
        let (gone, kept): (Vec<_>, Vec<_>) = each.into_iter().partition(|(_, text)| holds(text));
        let text = Bytes(kept.iter().flat_map(|(_, text)| text.iter().copied()).collect());
        let gone: Vec<Bytes> = gone.into_iter().map(|(name, _)| name.clone()).collect();
        self.text = text;
        for name in &gone {
            self.names.remove(name);
            self.exported.remove(name);
        }
        gone
    }

    /// Each function with its text. A definition begins with a line that a here-document may hold as well; if every name
    /// has one such line and no more, each is where its function begins.
    fn each(&self) -> Option<Vec<(&Bytes, &[u8])>> {
        let mut begins: Vec<(&Bytes, usize)> = Vec::new();
        let mut at = 0;
        for line in self.text.split_inclusive(|byte| *byte == b'\n') {
            let head = line.strip_suffix(b" () \n").map(|head| head.strip_prefix(b"function ").unwrap_or(head));
            if let Some(name) = head.and_then(|head| self.names.get(head)) {
                begins.push((name, at));
            }
            at += line.len();
        }
        let named: BTreeSet<_> = begins.iter().map(|(name, _)| *name).collect();
        let certain = begins.len() == self.names.len() && named.len() == begins.len();
        if !certain || begins.first().is_none_or(|(_, first)| *first != 0) {
            return None;
        }
        let ends = begins.iter().skip(1).map(|(_, at)| *at).chain([self.text.len()]);
        let pieces = begins.iter().zip(ends).map(|((name, from), to)| Some((*name, self.text.get(*from..to)?)));
        pieces.collect()
    }
}

impl ShellState {
    /// The environment a child would see, as a difference: name to value, `None` where it is gone.
    pub fn env_delta(&self) -> BTreeMap<Bytes, Option<Bytes>> {
        let gone = self.unset.iter().chain(&self.unexported).map(|name| (name.clone(), None));
        let set = self.variables.iter().filter_map(|(name, statement)| {
            let value = exported_value(statement)?;
            Some((name.clone(), Some(Bytes(value))))
        });
        gone.chain(set).collect()
    }

    /// What bears on the meaning of the next command's words.
    pub fn context(&self) -> Context {
        let names = self.functions.names.iter().chain(self.aliases.keys()).map(|name| name.0.clone());
        let prompt_command = self.variables.get(b"PROMPT_COMMAND".as_slice());
        let texts = self.aliases.values().chain(self.traps.values()).chain(prompt_command);
        let mut texts = texts.chain([&self.functions.text]).map(|text| text.0.as_slice());
        let is_on = |option: &&str| self.options.get(*option).is_some_and(|on| *on);
        Context {
            redefined: names.collect(),
            hooked: !self.traps.is_empty() || prompt_command.is_some(),
            redirects: texts.any(may_redirect),
            watched: ["xtrace", "verbose"].iter().any(is_on)
                || ["DEBUG", "RETURN"].iter().any(|trap| self.traps.contains_key(*trap)),
        }
    }

    /// Takes the parts of `other` that per-command overlays touch, for the names given: an overlay never sticks, even
    /// when the shell died under it.
    pub fn without_overlay(mut self, before: &Self, names: &[Bytes]) -> Self {
        for name in names {
            self.variables.remove(name);
            self.unset.remove(name);
            self.unexported.remove(name);
            if let Some(statement) = before.variables.get(name) {
                self.variables.insert(name.clone(), statement.clone());
            }
            if before.unset.contains(name) {
                self.unset.insert(name.clone());
            }
            if before.unexported.contains(name) {
                self.unexported.insert(name.clone());
            }
        }
        self.cwd = before.cwd.clone();
        self.oldpwd.clone_from(&before.oldpwd);
        self
    }
}

/// The value of a `declare -x NAME=..` or `export NAME=..` statement; `None` if it doesn't export, is an array or has
/// no value.
fn exported_value(statement: &[u8]) -> Option<Vec<u8>> {
    let mut reader = Reader::new(statement);
    if reader.eat(b"declare -") {
        let attributes = reader.until(b" ");
        if !attributes.contains(&b'x') || attributes.iter().any(|flag| b"aAn".contains(flag)) {
            return None;
        }
    } else if !reader.eat(b"export") {
        return None;
    }
    reader.skip_blank();
    reader.until(b"=");
    if !reader.eat(b"=") {
        return None;
    }
    reader.word().or_else(|_| if reader.is_done() { Ok(Vec::new()) } else { Err(()) }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(variables: &[(&str, &str)]) -> ShellState {
        let variables = variables.iter().map(|(k, v)| (Bytes::from(k), Bytes::from(v))).collect();
        ShellState { variables, ..ShellState::default() }
    }

    #[test]
    fn the_environment_delta_has_exported_values_and_what_is_gone() {
        let mut state = state(&[
            ("A", r#"declare -x A="x\$y""#),
            ("B", r#"declare -- B="plain""#),
            ("C", r#"declare -ax C=([0]="1")"#),
            ("D", r"declare -rx D=$'\xff\n'"),
            ("E", "declare -x E"),
            ("F", "export F='it'\\''s'"),
            ("G", "declare -x G=\"\""),
        ]);
        state.unset.insert(Bytes::from("HOME"));
        state.unexported.insert(Bytes::from("LANG"));
        let want = [
            ("A", Some(&b"x$y"[..])),
            ("D", Some(b"\xff\n")),
            ("F", Some(b"it's")),
            ("G", Some(b"")),
            ("HOME", None),
            ("LANG", None),
        ];
        let want: BTreeMap<_, _> = want.into_iter().map(|(k, v)| (Bytes::from(k), v.map(Bytes::from))).collect();
        assert_eq!(state.env_delta(), want);
    }

    #[test]
    fn an_overlay_leaves_no_trace_whatever_it_hid() {
        let before = state(&[("KEPT", "declare -- KEPT=\"1\""), ("HID", "declare -x HID=\"old\"")]);
        let mut after = state(&[
            ("HID", "declare -x HID=\"new\""),
            ("NEW", "declare -x NEW=\"n\""),
            ("MINE", "declare -- MINE=\"2\""),
        ]);
        after.cwd = Bytes::from("/overlay");
        let names = [Bytes::from("HID"), Bytes::from("NEW")];
        let mut want = state(&[("HID", "declare -x HID=\"old\""), ("MINE", "declare -- MINE=\"2\"")]);
        want.cwd = before.cwd.clone();
        assert_eq!(after.without_overlay(&before, &names), want);
    }

    #[test]
    fn states_round_trip_through_their_stored_form() {
        let mut state = state(&[("A", "declare -x A=$'\\xff'")]);
        state.traps.insert("INT".into(), Bytes::from("echo int"));
        state.dirs.push(Bytes(vec![0xff, b'/']));
        let stored = minicbor::to_vec(&state).unwrap();
        assert_eq!(minicbor::decode::<ShellState>(&stored).unwrap(), state);
    }
}
