//! Where text that is still being written may be cut.

/// A character has at most four bytes: so many of them may be there without the last.
pub const MOST_UNFINISHED: usize = 3;

/// How many bytes at the end of a stream are the beginning of a character whose rest may still come. The last
/// [`MOST_UNFINISHED`] bytes are enough to tell.
pub fn unfinished(end: &[u8]) -> usize {
    let near = end.get(end.len().saturating_sub(MOST_UNFINISHED)..).unwrap_or_default();
    let Some(first) = near.iter().rposition(|byte| *byte >= 0xc0) else { return 0 };
    match std::str::from_utf8(near.get(first..).unwrap_or_default()) {
        Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => near.len() - first,
        Ok(_) | Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_what_can_still_become_a_character_is_unfinished() {
        let cases: [(&[u8], usize); 14] = [
            (b"", 0),
            (b"abc", 0),
            (b"ab\xc3", 1),
            ("aé".as_bytes(), 0),
            (b"\xe2\x82", 2),
            ("€".as_bytes(), 0),
            (b"abc\xf0\x9f\x98", 3),
            ("😀".as_bytes(), 0),
            // No character begins so, or goes on so.
            (b"\xff", 0),
            (b"\xc0", 0),
            (b"\xe0\x80", 0),
            (b"\x80\x80\x80", 0),
            (b"\xf0\x9fc", 0),
            (b"\xe2\xe2", 1),
        ];
        for (bytes, want) in cases {
            assert_eq!(unfinished(bytes), want, "{bytes:x?}");
        }
    }

    proptest! {
        #[test]
        fn text_cut_anywhere_is_text_without_what_is_unfinished(text in "\\PC{1,40}", cut: prop::sample::Index) {
            let at = cut.index(text.len() + 1);
            let end = at - unfinished(&text.as_bytes()[..at]);
            prop_assert!(text.is_char_boundary(end) && at - end <= MOST_UNFINISHED);
        }

        #[test]
        fn of_any_bytes_little_is_held_back(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            prop_assert!(unfinished(&bytes) <= MOST_UNFINISHED.min(bytes.len()));
        }
    }
}
