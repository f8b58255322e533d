//! What the environment call asks of a terminal: variables to set and to unset, and secrets. Checked as a whole: one bad
//! name, and nothing of it happens.

use crate::state::Bytes;
use crate::state::capture::is_own;
use crate::word::is_name;
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

/// Name to value; `None` unsets it.
pub type Vars = BTreeMap<Bytes, Option<Bytes>>;

/// A few times what the largest honest environments have.
pub const MAX_NAMES: usize = 1000;

/// The kernel takes strings of up to 128 KiB, `NAME=VALUE` and a NUL; with a longer one no program could be started.
pub const MAX_STRING: usize = 128 << 10;

/// The kernel takes 2 MiB of arguments and environment together; half of it is for the rest.
pub const MAX_TOTAL: usize = 1 << 20;

/// Shorter values are not looked for in texts: they would be found everywhere.
pub const SHORTEST_HIDDEN: usize = 4;

/// What stands where a secret was.
pub const MASK: &str = "***";

/// A value that is never printed: not by `Debug`, and it has no `Display`.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Secret(#[n(0)] Bytes);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(MASK)
    }
}

impl Secret {
    pub fn new(value: impl Into<Vec<u8>>) -> Self {
        Self(Bytes(value.into()))
    }

    /// The value itself, for whoever encrypts it or gives it to a shell.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnvChange {
    pub vars: Vars,
    /// `None` removes it.
    pub secrets: BTreeMap<Bytes, Option<Secret>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    #[error("`{0}` is no name for a variable: letters, digits and `_`, not starting with a digit")]
    Name(String),
    #[error("`{0}` belongs to the shell; it can't be set from outside")]
    Own(String),
    #[error("the value of `{0}` has a NUL byte in it")]
    Nul(String),
    #[error("`{0}` is named both as a variable and as a secret")]
    Twice(String),
    #[error("{0} names in one call; {MAX_NAMES} are the most")]
    TooMany(usize),
    #[error("the value of `{name}` is too long: {length} bytes with its name; {MAX_STRING} are the most")]
    TooLong { name: String, length: usize },
    #[error("{0} bytes in one call; {MAX_TOTAL} are the most")]
    TooLarge(usize),
}

impl EnvChange {
    /// From texts, as a request has them.
    pub fn of(vars: BTreeMap<String, Option<String>>, secrets: BTreeMap<String, Option<String>>) -> Self {
        let name = |name: String| Bytes(name.into_bytes());
        let value = |value: Option<String>| value.map(|value| Bytes(value.into_bytes()));
        Self {
            vars: vars.into_iter().map(|(key, text)| (name(key), value(text))).collect(),
            secrets: secrets.into_iter().map(|(key, text)| (name(key), text.map(Secret::new))).collect(),
        }
    }

    pub fn check(&self) -> Result<(), EnvError> {
        if let Some(name) = self.secrets.keys().find(|name| self.vars.contains_key(*name)) {
            return Err(EnvError::Twice(shown(name)));
        }
        let vars = self.vars.iter().map(|(name, value)| (name, value.as_deref()));
        let secrets = self.secrets.iter().map(|(name, value)| (name, value.as_ref().map(Secret::reveal)));
        check(vars.chain(secrets))
    }
}

/// Whether these may be set, each and together.
pub fn check<'a>(all: impl Iterator<Item = (&'a Bytes, Option<&'a [u8]>)>) -> Result<(), EnvError> {
    let (mut names, mut total) = (0, 0);
    for (name, value) in all {
        check_name(name)?;
        let value = value.unwrap_or_default();
        if value.contains(&0) {
            return Err(EnvError::Nul(shown(name)));
        }
        let length = name.len() + value.len() + 2;
        if length > MAX_STRING {
            return Err(EnvError::TooLong { name: shown(name), length });
        }
        (names, total) = (names + 1, total + length);
    }
    if names > MAX_NAMES {
        return Err(EnvError::TooMany(names));
    }
    if total > MAX_TOTAL {
        return Err(EnvError::TooLarge(total));
    }
    Ok(())
}

fn check_name(name: &[u8]) -> Result<(), EnvError> {
    /// They run code in the shell, switch it to another mode, or end it; a command may set them.
    const MIGHTY: [&[u8]; 7] = [b"BASH_ENV", b"ENV", b"PS0", b"PS4", b"PROMPT_COMMAND", b"POSIXLY_CORRECT", b"TMOUT"];
    if !is_name(name) {
        return Err(EnvError::Name(shown(name)));
    }
    if is_own(name) || MIGHTY.contains(&name) {
        return Err(EnvError::Own(shown(name)));
    }
    Ok(())
}

/// A name in a message: printable, and not the whole of a long one.
fn shown(name: &[u8]) -> String {
    name.escape_ascii().to_string().chars().take(100).collect()
}

/// `text` without the values: each place where one stood has the mask. Of values that overlap the longer one counts.
pub fn redact<'a>(text: &[u8], values: impl IntoIterator<Item = &'a Secret>) -> Vec<u8> {
    let mut values: Vec<_> = values.into_iter().map(Secret::reveal).filter(|v| v.len() >= SHORTEST_HIDDEN).collect();
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        if let Some(after) = values.iter().find_map(|value| rest.strip_prefix(*value)) {
            out.extend_from_slice(MASK.as_bytes());
            rest = after;
        } else {
            out.push(*first);
            rest = behind;
        }
    }
    out
}

/// The same for a message.
pub fn redact_text<'a>(text: &str, values: impl IntoIterator<Item = &'a Secret>) -> String {
    String::from_utf8_lossy(&redact(text.as_bytes(), values)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars(all: &[(&str, Option<&[u8]>)]) -> EnvChange {
        let vars = all.iter().map(|(name, value)| (Bytes::from(name), value.map(Bytes::from))).collect();
        EnvChange { vars, ..EnvChange::default() }
    }

    #[test]
    fn names_are_those_that_a_shell_takes_and_does_not_own() {
        for good in ["A", "_x9", "PATH", "HOME", "LD_PRELOAD", "PS1"] {
            assert_eq!(vars(&[(good, Some(b"v"))]).check(), Ok(()), "{good}");
        }
        for bad in ["", "9A", "A-B", "A=B", "A B", "é", "BASH_FUNC_x%%"] {
            assert!(matches!(vars(&[(bad, None)]).check(), Err(EnvError::Name(_))), "{bad}");
        }
        for own in ["EUID", "UID", "PPID", "BASHOPTS", "SHELLOPTS", "BASH_VERSINFO", "BASH_ENV", "PWD", "_", "TMOUT"] {
            assert!(matches!(vars(&[(own, Some(b"v"))]).check(), Err(EnvError::Own(_))), "{own}");
        }
    }

    #[test]
    fn values_may_be_any_bytes_but_nul_up_to_what_the_kernel_takes() {
        assert_eq!(vars(&[("A", Some(b"\xff\n'\"$`\\"))]).check(), Ok(()));
        assert_eq!(vars(&[("A", Some(b"x\0y"))]).check(), Err(EnvError::Nul("A".into())));
        let most = vec![b'x'; MAX_STRING - 3];
        assert_eq!(vars(&[("A", Some(&most))]).check(), Ok(()));
        assert!(matches!(vars(&[("AB", Some(&most))]).check(), Err(EnvError::TooLong { .. })));
        let names: Vec<_> = (0..12).map(|n| format!("A{n}")).collect();
        let much: Vec<_> = names.iter().map(|name| (name.as_str(), Some(&most[..100_000]))).collect();
        assert!(matches!(vars(&much).check(), Err(EnvError::TooLarge(_))));
        let names: Vec<_> = (0..=MAX_NAMES).map(|n| format!("A{n}")).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), None)).collect();
        assert_eq!(vars(&many).check(), Err(EnvError::TooMany(MAX_NAMES + 1)));
    }

    #[test]
    fn a_name_is_a_variable_or_a_secret() {
        let mut change = vars(&[("A", None)]);
        change.secrets.insert(Bytes::from("A"), Some(Secret::new("x")));
        assert_eq!(change.check(), Err(EnvError::Twice("A".into())));
    }

    #[test]
    fn a_secret_is_not_printed() {
        let mut change = EnvChange::default();
        change.secrets.insert(Bytes::from("A"), Some(Secret::new("hunter22")));
        assert!(!format!("{change:?}").contains("hunter22"));
    }

    #[test]
    fn values_are_masked_wherever_they_stand_and_short_ones_are_not_looked_for() {
        let values = [Secret::new("abcd"), Secret::new("abcdef"), Secret::new("x")];
        let redacted = |text: &str| redact_text(text, &values);
        assert_eq!(redacted("abcdabcdef x abc"), "****** x abc");
        assert_eq!(redacted("-abcde-"), "-***e-");
        assert_eq!(redact(b"\xffabcd\0", &values), b"\xff***\0");
    }
}
