//! A project: a named workspace that many threads may share.

use crate::clock::Timestamp;
use crate::ids::ProjectId;

/// The longest prefix of a project's id.
const MOST_PREFIX: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// `{prefix}-{8 hexadecimal digits}`.
    pub id: ProjectId,
    pub prefix: String,
    pub created_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` can't be the prefix of a project: lower-case letters, digits and hyphens, beginning with a letter, at most 32"
)]
pub struct InvalidPrefix(String);

impl Project {
    /// A new one, its id made of four bytes that nobody can guess.
    pub fn new(prefix: &str, entropy: [u8; 4], now: Timestamp) -> Result<Self, InvalidPrefix> {
        let wrong = || InvalidPrefix(prefix.chars().take(40).filter(|c| !c.is_control()).collect());
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let begins = prefix.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        if !begins || prefix.len() > MOST_PREFIX || !prefix.bytes().all(plain) {
            return Err(wrong());
        }
        let digits = u32::from_be_bytes(entropy);
        let id = ProjectId::parse(&format!("{prefix}-{digits:08x}")).map_err(|_| wrong())?;
        Ok(Self { id, prefix: prefix.to_owned(), created_at: now })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_its_prefix_and_eight_digits() {
        let project = Project::new("my-app2", [0, 1, 2, 0xff], Timestamp(5)).unwrap();
        assert_eq!((project.id.as_str(), project.prefix.as_str()), ("my-app2-000102ff", "my-app2"));
    }

    #[test]
    fn a_prefix_is_short_lower_case_and_begins_with_a_letter() {
        for bad in ["", "2x", "-x", "Xy", "a b", "a_b", "é", &"x".repeat(33)] {
            assert!(Project::new(bad, [0; 4], Timestamp(0)).is_err(), "{bad:?} was accepted");
        }
        assert!(Project::new(&"x".repeat(32), [0; 4], Timestamp(0)).is_ok());
    }
}
