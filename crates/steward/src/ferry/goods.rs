//! The bytes in a ferry's hands. Counted from the program's start, so that what comes twice is seen.

use std::collections::VecDeque;

/// Each way. A program that writes more waits until somebody takes; more input waits with whoever has it.
pub(super) const CAPACITY: usize = 1 << 20;

/// What the program has written and nobody is known to have.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// All before it was taken.
    start: u64,
    bytes: VecDeque<u8>,
    /// There is no more after it.
    pub(super) ended: bool,
}

/// What was put and the program has not read.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// All before it was accepted.
    accepted: u64,
    bytes: VecDeque<u8>,
    /// Nothing comes after what is here.
    pub(super) ended: bool,
}

/// What was asked for isn't here: the two sides have lost each other.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutOfPlace;

impl Output {
    pub(super) fn room(&self) -> usize {
        CAPACITY.saturating_sub(self.bytes.len())
    }

    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// At most `most` bytes from an offset on, and whether they are the last. What is before it was had, and is forgotten.
    pub(super) fn take(&mut self, from: u64, most: usize) -> Result<(Vec<u8>, bool), OutOfPlace> {
        let had = from.checked_sub(self.start).and_then(|had| usize::try_from(had).ok()).ok_or(OutOfPlace)?;
        if had > self.bytes.len() {
            return Err(OutOfPlace);
        }
        self.bytes.drain(..had);
        self.start = from;
        let bytes: Vec<u8> = self.bytes.iter().take(most).copied().collect();
        let last = self.ended && bytes.len() == self.bytes.len();
        Ok((bytes, last))
    }
}

impl Input {
    pub(super) fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Takes what is new of bytes at an offset, as far as there is room.
    pub(super) fn put(&mut self, at: u64, bytes: &[u8]) -> Result<(), OutOfPlace> {
        let known = self.accepted.checked_sub(at).ok_or(OutOfPlace)?;
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        let new = bytes.get(known..).unwrap_or_default();
        let room = CAPACITY.saturating_sub(self.bytes.len());
        let new = new.get(..room).unwrap_or(new);
        self.bytes.extend(new);
        self.accepted += new.len() as u64;
        Ok(())
    }

    /// What the program is to read next.
    pub(super) fn next(&self) -> &[u8] {
        self.bytes.as_slices().0
    }

    pub(super) fn sent(&mut self, count: usize) {
        self.bytes.drain(..count.min(self.bytes.len()));
    }

    /// The program reads no more: what it has not read, nobody will.
    pub(super) fn forget(&mut self) {
        self.bytes = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_had_is_forgotten_and_what_was_not_comes_again() {
        let mut output = Output::default();
        output.extend(b"abcdef");
        assert_eq!(output.take(0, 4), Ok((b"abcd".to_vec(), false)));
        assert_eq!(output.take(0, 100), Ok((b"abcdef".to_vec(), false)));
        assert_eq!(output.take(4, 100), Ok((b"ef".to_vec(), false)));
        assert_eq!(output.take(3, 100), Err(OutOfPlace));
        assert_eq!(output.take(7, 100), Err(OutOfPlace));
        output.ended = true;
        assert_eq!(output.take(4, 1), Ok((b"e".to_vec(), false)));
        assert_eq!(output.take(5, 1), Ok((b"f".to_vec(), true)));
        assert_eq!(output.take(6, 1), Ok((Vec::new(), true)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        /// However pieces are cut and repeated, the program reads every byte once.
        #[test]
        fn input_is_read_once(pieces in proptest::collection::vec((0usize..40, 1usize..60), 1..200)) {
            let whole: Vec<u8> = (0..=255).cycle().take(4000).collect();
            let (mut input, mut read) = (Input::default(), Vec::new());
            for (back, length) in pieces {
                let at = usize::try_from(input.accepted()).unwrap().saturating_sub(back);
                let piece = &whole[at.min(whole.len())..(at + length).min(whole.len())];
                input.put(at as u64, piece).unwrap();
                let next = input.next().to_vec();
                let some = next.len().div_ceil(2);
                read.extend_from_slice(&next[..some]);
                input.sent(some);
            }
            while !input.next().is_empty() {
                read.extend_from_slice(input.next());
                let count = input.next().len();
                input.sent(count);
            }
            prop_assert_eq!(read.len() as u64, input.accepted());
            prop_assert_eq!(&read[..], &whole[..read.len()]);
            prop_assert_eq!(input.put(input.accepted() + 1, b"x"), Err(OutOfPlace));
        }
    }

    #[test]
    fn nothing_is_accepted_past_the_room_there_is() {
        let mut input = Input::default();
        let much = vec![7; CAPACITY + 5];
        input.put(0, &much).unwrap();
        assert_eq!(input.accepted(), CAPACITY as u64);
        input.put(0, &much).unwrap();
        assert_eq!(input.accepted(), CAPACITY as u64);
        input.sent(3);
        input.put(0, &much).unwrap();
        assert_eq!(input.accepted(), CAPACITY as u64 + 3);
    }
}
