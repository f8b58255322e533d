//! Exchanging a piece of a file for another.

use super::Files;
use super::failure::Failure;
use super::ground::{Last, Way};
use super::write::{Condition, Written, put};
use crate::error::Error;
use std::io::Read;

/// An edit holds the file in memory, twice.
pub(crate) const MAX_EDITED: u64 = 64 * 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    pub old: String,
    pub new: String,
    /// How often `old` must be there. Every one of them is exchanged.
    pub count: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    pub replaced: u64,
    pub written: Written,
}

impl Edit {
    /// How many bytes a file gets longer by it.
    pub(crate) fn growth(&self) -> u64 {
        self.count.saturating_mul((self.new.len() as u64).saturating_sub(self.old.len() as u64))
    }

    /// Whether it says what to do.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.old.is_empty() {
            return Err(Error::Invalid("`old` is empty: it would be everywhere".to_owned()));
        }
        if self.count == 0 {
            return Err(Error::Invalid("`count` is 0: nothing would be edited".to_owned()));
        }
        Ok(())
    }
}

impl Files {
    /// Exchanges text, if it is there exactly as often as the caller believes and nobody else changes the file meanwhile.
    pub async fn edit(&self, path: impl AsRef<[u8]>, edit: Edit) -> Result<Edited, Error> {
        edit.check()?;
        self.change(path.as_ref(), move |ground, path| {
            let (file, stat) = ground.find(path, Last::Follow, Way::MustBe)?.open_file()?;
            let mut bytes = Vec::new();
            file.take(MAX_EDITED + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > MAX_EDITED {
                return Err(Error::TooLarge("a file of more than 64 MiB is not edited in place".to_owned()).into());
            }
            let (bytes, replaced) = exchange(&bytes, edit.old.as_bytes(), edit.new.as_bytes());
            if replaced != edit.count {
                let shown = String::from_utf8_lossy(path);
                let message = format!("`old` is {replaced} times in `{shown}`, not {} times", edit.count);
                return Err(Error::Conflict(message).into());
            }
            let condition = Condition::Is(vec![super::entry::etag(&stat)]);
            match put(ground, path, &bytes, &condition) {
                Err(Failure::Is(Error::PreconditionFailed(_))) => {
                    let shown = String::from_utf8_lossy(path);
                    Err(Error::Conflict(format!("`{shown}` was changed by somebody else meanwhile")).into())
                }
                written => Ok(Edited { replaced, written: written? }),
            }
        })
        .await
    }
}

/// Every occurrence, and how many they were.
pub(crate) fn exchange(text: &[u8], old: &[u8], new: &[u8]) -> (Vec<u8>, u64) {
    let (mut result, mut count, mut done) = (Vec::with_capacity(text.len()), 0, 0);
    for at in memchr::memmem::find_iter(text, old) {
        result.extend_from_slice(text.get(done..at).unwrap_or_default());
        result.extend_from_slice(new);
        done = at + old.len();
        count += 1;
    }
    result.extend_from_slice(text.get(done..).unwrap_or_default());
    (result, count)
}

#[cfg(test)]
mod tests {
    use super::exchange;

    #[test]
    fn every_occurrence_is_exchanged_none_twice_and_none_within_what_was_put_in() {
        let cases: [(&str, &str, &str, &str, u64); 6] = [
            ("a b a", "a", "aa", "aa b aa", 2),
            ("aaa", "aa", "b", "ba", 1),
            ("abc", "x", "y", "abc", 0),
            ("abc", "abc", "", "", 1),
            ("", "x", "y", "", 0),
            ("äöä", "ä", "", "ö", 2),
        ];
        for (text, old, new, after, count) in cases {
            let (bytes, replaced) = exchange(text.as_bytes(), old.as_bytes(), new.as_bytes());
            assert_eq!((String::from_utf8(bytes).unwrap().as_str(), replaced), (after, count), "{text}");
        }
    }
}
