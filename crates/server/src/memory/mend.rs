//! What still counts of a journal or a snapshot behind the first of its records that is not whole.
//!
//! A process that dies leaves the beginning of a record at the very end, and nothing else: that one was never
//! acknowledged, and is cut off without a word. Everything else is damage. Then each record that is whole is kept,
//! wherever it lies: what is behind a bad one is found by the length of that, or else byte by byte.

use stead_model::memory::{Claim, Note, claim, decode, decode_all, is_cut_short};

/// What is found behind the last record that is whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rest<'a> {
    /// The beginning of one record.
    Torn,
    Damaged {
        /// Those that are whole.
        notes: Vec<Note<'a>>,
        /// Nothing whole follows what was bad last.
        ends_badly: bool,
    },
}

/// How much is hashed for each byte that is looked through. In a value that was made for it there can be much that looks
/// like the beginning of a record.
const EFFORT: usize = 64;

/// Looks through what does not begin with a whole record. `fits`: whether a record can be one of these at all, by its
/// number.
pub(super) fn gather(bytes: &[u8], fits: impl Fn(u64) -> bool) -> Rest<'_> {
    let mut effort = bytes.len().saturating_mul(EFFORT);
    let (mut notes, mut rest, mut ends_badly) = (Vec::new(), bytes, false);
    while !rest.is_empty() {
        if let Some((note, size)) = decode(rest) {
            notes.push(note);
            rest = rest.get(size..).unwrap_or_default();
            ends_badly = false;
            continue;
        }
        if let Some(next) = past(rest).or_else(|| search(rest, &fits, &mut effort)) {
            rest = rest.get(next..).unwrap_or_default();
            ends_badly = true;
            continue;
        }
        // Nothing whole comes any more; the last one may be so but for what it says of its length.
        let last = decode_all(rest);
        if last.is_none() && rest.len() == bytes.len() && is_cut_short(rest) {
            return Rest::Torn;
        }
        ends_badly = last.is_none();
        notes.extend(last);
        break;
    }
    Rest::Damaged { notes, ends_badly }
}

/// Where the next record is, if the length of this one is right.
fn past(bytes: &[u8]) -> Option<usize> {
    let Claim { size, .. } = claim(bytes)?;
    let rest = bytes.get(size..)?;
    (rest.is_empty() || decode(rest).is_some()).then_some(size)
}

/// Where the next record is, wherever that may be.
fn search(bytes: &[u8], fits: impl Fn(u64) -> bool, effort: &mut usize) -> Option<usize> {
    (1..bytes.len()).find(|at| {
        let rest = bytes.get(*at..).unwrap_or_default();
        let Some(claim) = claim(rest).filter(|claim| claim.size <= rest.len() && fits(claim.number)) else {
            return false;
        };
        let Some(left) = effort.checked_sub(claim.size) else { return false };
        *effort = left;
        decode(rest).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_model::clock::Timestamp;
    use stead_model::memory::What;

    /// Records 1 to 5, and where each begins.
    fn five() -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut begins) = (Vec::new(), Vec::new());
        for number in 1..=5 {
            begins.push(bytes.len());
            let key = format!("k{number}");
            let note = Note { number, at: Timestamp(1), key: key.as_bytes(), what: What::File(b"some value") };
            assert!(note.encode(&mut bytes));
        }
        begins.push(bytes.len());
        (bytes, begins)
    }

    fn numbers(rest: &Rest<'_>) -> (Vec<u64>, bool) {
        match rest {
            Rest::Torn => (Vec::new(), false),
            Rest::Damaged { notes, ends_badly } => (notes.iter().map(|note| note.number).collect(), *ends_badly),
        }
    }

    #[test]
    fn of_a_record_with_any_one_byte_wrong_nothing_else_is_lost() {
        let (bytes, begins) = five();
        for bad in 0..4 {
            for at in begins[bad]..begins[bad + 1] {
                for bit in [0, 7] {
                    let mut bytes = bytes[begins[bad]..].to_vec();
                    bytes[at - begins[bad]] ^= 1 << bit;
                    let after: Vec<u64> = (bad as u64 + 2..=5).collect();
                    let found = gather(&bytes, |number| number > bad as u64 && number < 20);
                    assert_eq!(numbers(&found), (after, false), "record {bad}, byte {at}, bit {bit}");
                }
            }
        }
    }

    #[test]
    fn a_last_record_that_is_cut_short_was_never_there_and_one_that_is_wrong_is_damage() {
        let (bytes, begins) = five();
        let last = &bytes[begins[4]..];
        for cut in 1..last.len() {
            assert_eq!(gather(&last[..cut], |_| true), Rest::Torn, "{cut}");
        }
        for at in 4..last.len() {
            let mut bytes = last.to_vec();
            bytes[at] ^= 1;
            assert_eq!(numbers(&gather(&bytes, |_| true)), (vec![], true), "{at}");
        }
        // Of all its bytes the length can be told from the others.
        for at in 0..4 {
            let mut bytes = last.to_vec();
            bytes[at] ^= 1;
            assert_eq!(numbers(&gather(&bytes, |_| true)), (vec![5], false), "{at}");
        }
        assert_eq!(numbers(&gather(&[0; 100], |_| true)), (vec![], true));
    }

    #[test]
    fn a_value_that_is_made_to_look_like_records_takes_no_longer_than_others() {
        let mut value = Vec::new();
        for _ in 0..20_000 {
            // Each claims to reach far into what follows it.
            let mut head = Vec::new();
            assert!(Note { number: 9, at: Timestamp(1), key: b"", what: What::File(b"") }.encode(&mut head));
            head[..4].copy_from_slice(&400_000_u32.to_be_bytes());
            value.extend(head);
        }
        let mut bytes = Vec::new();
        assert!(Note { number: 1, at: Timestamp(1), key: b"k", what: What::File(&value) }.encode(&mut bytes));
        bytes[0] ^= 1;
        let mut effort = bytes.len() * EFFORT;
        assert_eq!(search(&bytes, |number| number == 9, &mut effort), None);
        assert!(effort < 400_100, "no more than that is hashed");
    }
}
