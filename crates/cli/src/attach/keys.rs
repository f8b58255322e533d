//! The keys that leave an attached terminal.

use std::fmt;
use std::str::FromStr;

/// One key after the other; none at all means that no key leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DetachKeys {
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no key; write one letter, or `ctrl-` and one of `a`-`z @ [ \\ ] ^ _`")]
pub(crate) struct InvalidKey(String);

impl FromStr for DetachKeys {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        if text.is_empty() {
            return Ok(Self { bytes: Vec::new() });
        }
        let key = |word: &str| {
            let invalid = || InvalidKey(word.to_owned());
            match (word.strip_prefix("ctrl-").map(str::as_bytes), word.as_bytes()) {
                (Some(&[letter @ b'a'..=b'z']), _) => Ok(letter - b'a' + 1),
                (Some(&[sign @ (b'@' | b'['..=b'_')]), _) => Ok(sign & 0x1f),
                (None, &[letter]) if letter.is_ascii_graphic() => Ok(letter),
                _ => Err(invalid()),
            }
        };
        Ok(Self { bytes: text.split(',').map(key).collect::<Result<_, _>>()? })
    }
}

impl fmt::Display for DetachKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, &byte) in self.bytes.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { " " })?;
            match byte {
                0..32 => write!(f, "Ctrl-{}", char::from(byte + b'@'))?,
                _ => write!(f, "{}", char::from(byte))?,
            }
        }
        Ok(())
    }
}

impl DetachKeys {
    pub(super) fn is_none(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Looks for the keys in what is typed. Those that may be the beginning are held back until the next one tells.
#[derive(Debug)]
pub(super) struct Scanner {
    keys: DetachKeys,
    /// A terminal in another keyboard mode sends a key with Ctrl as a sequence.
    sequence: Option<Vec<u8>>,
    matched: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    Through(Vec<u8>),
    /// What came before the keys that leave.
    Leave(Vec<u8>),
}

impl Scanner {
    pub(super) fn new(keys: DetachKeys) -> Self {
        let sequence = match keys.bytes.as_slice() {
            &[byte @ 1..32] => {
                let sign = (byte | 0x40).to_ascii_lowercase();
                Some(format!("\x1b[{sign};5u").into_bytes())
            }
            _ => None,
        };
        Self { keys, sequence, matched: 0 }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) -> Typed {
        let mut through = Vec::with_capacity(bytes.len());
        let Some(&first) = self.keys.bytes.first() else { return Typed::Through(bytes.to_vec()) };
        for (at, &byte) in bytes.iter().enumerate() {
            let rest = bytes.get(at..).unwrap_or_default();
            if self.sequence.as_ref().is_some_and(|sequence| rest.starts_with(sequence)) {
                return Typed::Leave(through);
            }
            if self.keys.bytes.get(self.matched) != Some(&byte) {
                through.extend_from_slice(self.keys.bytes.get(..self.matched).unwrap_or_default());
                self.matched = 0;
            }
            if self.keys.bytes.get(self.matched) == Some(&byte) {
                self.matched += 1;
            } else if byte != first {
                through.push(byte);
            }
            if self.matched == self.keys.bytes.len() {
                self.matched = 0;
                return Typed::Leave(through);
            }
        }
        Typed::Through(through)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanner(keys: &str) -> Scanner {
        Scanner::new(keys.parse().unwrap())
    }

    fn through(bytes: &[u8]) -> Typed {
        Typed::Through(bytes.to_vec())
    }

    #[test]
    fn keys_are_read_and_named() {
        for (text, shown) in [("ctrl-\\", "Ctrl-\\"), ("ctrl-p,ctrl-q", "Ctrl-P Ctrl-Q"), ("ctrl-a,d", "Ctrl-A d")] {
            assert_eq!(text.parse::<DetachKeys>().unwrap().to_string(), shown);
        }
        for text in ["ctrl-", "ctrl-aa", "ab", "a,,b", "ü", "ctrl-1", ","] {
            assert!(text.parse::<DetachKeys>().is_err(), "{text}");
        }
        assert!("".parse::<DetachKeys>().unwrap().is_none());
    }

    #[test]
    fn one_key_leaves_with_what_came_before_it() {
        let mut scanner = scanner("ctrl-\\");
        assert_eq!(scanner.feed(b"ls\r"), through(b"ls\r"));
        assert_eq!(scanner.feed(b"ab\x1ccd"), Typed::Leave(b"ab".to_vec()));
        assert_eq!(scanner.feed(b"ab\x1b[92;5u"), Typed::Leave(b"ab".to_vec()), "as another keyboard mode sends it");
    }

    #[test]
    fn a_sequence_is_held_back_and_given_through_when_it_turns_out_another() {
        let mut scanner = scanner("ctrl-p,q");
        assert_eq!(scanner.feed(b"a\x10"), through(b"a"));
        assert_eq!(scanner.feed(b"b"), through(b"\x10b"));
        assert_eq!(scanner.feed(b"\x10"), through(b""));
        assert_eq!(scanner.feed(b"\x10"), through(b"\x10"), "the second may still be the beginning");
        assert_eq!(scanner.feed(b"q"), Typed::Leave(Vec::new()));
    }

    #[test]
    fn without_keys_everything_goes_through() {
        assert_eq!(scanner("").feed(b"\x1c\x10q"), through(b"\x1c\x10q"));
    }
}
