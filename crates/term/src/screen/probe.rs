//! The question whether a terminal understands what programs say of themselves (OSC 7501: `state=working`). The emulator
//! doesn't know it. A program that hears the answer to a later question first takes it that there is none, so this one
//! has to be answered in its turn.

const QUESTION: &[u8] = b"\x1b]7501;?";

/// Programs ask with either end, and understand both.
pub(super) const ANSWER: &str = "\x1b]7501;?\x1b\\";

/// Finds the question, however it is cut into pieces.
#[derive(Debug, Default)]
pub(super) struct Probe {
    /// How much of it was seen; one more than all of it is an escape behind it.
    seen: usize,
}

impl Probe {
    /// How many of these bytes there are up to the end of the first question.
    pub(super) fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        bytes.iter().position(|byte| self.ends_with(*byte)).map(|at| at + 1)
    }

    fn ends_with(&mut self, byte: u8) -> bool {
        let whole = QUESTION.len();
        let end = (self.seen == whole && byte == 0x07) || (self.seen == whole + 1 && byte == b'\\');
        self.seen = match byte {
            _ if QUESTION.get(self.seen) == Some(&byte) => self.seen + 1,
            0x1b if self.seen == whole => whole + 1,
            0x1b => 1,
            b']' if self.seen == whole + 1 => 2,
            _ => 0,
        };
        end
    }
}
