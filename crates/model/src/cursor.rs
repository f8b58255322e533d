//! Where a list goes on, as a caller carries it from one page to the next: text that means nothing to it, and that is
//! checked when it comes back.

use crate::clock::Timestamp;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// How much of a list is given, if nothing else is asked for.
pub const USUAL: u32 = 100;
/// The most that may be asked for.
pub const MOST: u32 = 1000;

/// Longer ones are none of ours.
const MOST_TEXT: usize = 512;

/// The last thing on a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cursor {
    /// Of a list by age: when it was made, and its id.
    Thing { at: Timestamp, id: String },
    /// Of a list by version.
    Version(u64),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is none that a list of {0} gave; begin without one")]
pub struct InvalidCursor(pub &'static str);

impl Cursor {
    /// The list's name is in it, so that no list takes another's.
    pub fn to_text(&self, list: &'static str) -> String {
        let plain = match self {
            Self::Thing { at, id } => format!("{list} at {} {id}", at.0),
            Self::Version(version) => format!("{list} version {version}"),
        };
        URL_SAFE_NO_PAD.encode(plain)
    }

    pub fn parse(list: &'static str, text: &str) -> Result<Self, InvalidCursor> {
        let cursor = Self::read(list, text).ok_or(InvalidCursor(list))?;
        // What we would have written otherwise was not written by us.
        if cursor.to_text(list) == text { Ok(cursor) } else { Err(InvalidCursor(list)) }
    }

    fn read(list: &str, text: &str) -> Option<Self> {
        if text.len() > MOST_TEXT {
            return None;
        }
        let plain = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        let words: Vec<&str> = plain.split(' ').collect();
        match words[..] {
            [of, "at", at, id] if of == list => {
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
                let is_id = (1..=crate::ids::MAX_LEN).contains(&id.len()) && id.bytes().all(plain);
                is_id.then_some(Self::Thing { at: Timestamp(at.parse().ok()?), id: id.to_owned() })
            }
            [of, "version", version] if of == list => Some(Self::Version(version.parse().ok()?)),
            _ => None,
        }
    }
}

/// How many a caller wants, if that can be.
pub fn limit(asked: Option<u32>) -> Result<u32, InvalidLimit> {
    match asked {
        None => Ok(USUAL),
        Some(asked) if (1..=MOST).contains(&asked) => Ok(asked),
        Some(asked) => Err(InvalidLimit(asked)),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`limit` is {0}, and can be 1 to {MOST}")]
pub struct InvalidLimit(u32);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_cursor_comes_back_as_it_went() {
        let cursors = [
            Cursor::Thing { at: Timestamp(0), id: "a".into() },
            Cursor::Thing { at: Timestamp(u64::MAX), id: "A.b_c:d-9".repeat(14) },
            Cursor::Version(0),
            Cursor::Version(u64::MAX),
        ];
        for cursor in cursors {
            let text = cursor.to_text("threads");
            assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{text}");
            assert_eq!(Cursor::parse("threads", &text), Ok(cursor.clone()));
            assert_eq!(Cursor::parse("leases", &text), Err(InvalidCursor("leases")), "not another list's");
        }
    }

    #[test]
    fn what_no_list_gave_is_refused() {
        let encode = |plain: &str| URL_SAFE_NO_PAD.encode(plain);
        let good = Cursor::Version(7).to_text("states");
        let bad = [
            String::new(),
            "%%%".to_owned(),
            format!("{good}="),
            format!("{good}A"),
            format!(" {good}"),
            encode("states version -1"),
            encode("states version 07"),
            encode("states version +7"),
            encode("states version 99999999999999999999"),
            encode("states version 7 "),
            encode("states at 5 "),
            encode("states at 5 a/b"),
            encode("states at 5 a b"),
            encode("states at 5 \u{e9}"),
            encode("states at x a"),
            encode("states"),
            "A".repeat(1000),
        ];
        for text in bad {
            assert_eq!(Cursor::parse("states", &text), Err(InvalidCursor("states")), "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_taken_is_what_we_would_have_written(text in "[ -~]{0,60}") {
            if let Ok(cursor) = Cursor::parse("threads", &text) {
                prop_assert_eq!(cursor.to_text("threads"), text);
            }
        }
    }

    #[test]
    fn a_page_has_a_hundred_things_and_at_most_a_thousand() {
        assert_eq!([limit(None), limit(Some(1)), limit(Some(1000))], [Ok(100), Ok(1), Ok(1000)]);
        assert!(limit(Some(0)).is_err() && limit(Some(1001)).is_err());
    }
}
