//! What a ferry says: it carries the input and output of a program over calls that each end soon, where there is no
//! stream. Both directions count bytes from the program's start, so that a call that is repeated because its answer was
//! lost does nothing twice.
//!
//! ```text
//! taken FROM open|end BASE64     the program's output from FROM on; `end`: there is none after it
//! accepted OFFSET open|closed    its input up to OFFSET is in the ferry's hands; `closed`: it reads no more
//! ```

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// How long a ferry waits for somebody to ask, before it lets go of the program and ends.
pub const IDLE: std::time::Duration = std::time::Duration::from_mins(5);

/// Output of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub from: u64,
    pub bytes: Vec<u8>,
    /// The program has ended, and this was the last of it.
    pub ended: bool,
}

/// What became of input for the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// All before it need not be sent again.
    pub offset: u64,
    pub reader: Reader,
}

/// Whether the program still reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    Open,
    Closed,
}

impl Taken {
    pub fn to_text(&self) -> String {
        format!("taken {} {} {}\n", self.from, if self.ended { "end" } else { "open" }, encode(&self.bytes))
    }

    pub fn parse(text: &str) -> Option<Self> {
        let (from, rest) = text.strip_suffix('\n')?.strip_prefix("taken ")?.split_once(' ')?;
        let (ended, bytes) = rest.split_once(' ')?;
        let ended = match ended {
            "open" => false,
            "end" => true,
            _ => return None,
        };
        Some(Self { from: from.parse().ok()?, bytes: decode(bytes)?, ended })
    }
}

impl Accepted {
    pub fn to_text(&self) -> String {
        let reader = match self.reader {
            Reader::Open => "open",
            Reader::Closed => "closed",
        };
        format!("accepted {} {reader}\n", self.offset)
    }

    pub fn parse(text: &str) -> Option<Self> {
        let (offset, reader) = text.strip_suffix('\n')?.strip_prefix("accepted ")?.split_once(' ')?;
        let reader = match reader {
            "open" => Reader::Open,
            "closed" => Reader::Closed,
            _ => return None,
        };
        Some(Self { offset: offset.parse().ok()?, reader })
    }
}

pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let all: Vec<u8> = (0..=255).collect();
        for taken in [
            Taken { from: 0, bytes: Vec::new(), ended: false },
            Taken { from: u64::MAX, bytes: all, ended: true },
            Taken { from: 7, bytes: vec![0], ended: false },
        ] {
            assert_eq!(Taken::parse(&taken.to_text()), Some(taken));
        }
        for reader in [Reader::Open, Reader::Closed] {
            let accepted = Accepted { offset: 3, reader };
            assert_eq!(Accepted::parse(&accepted.to_text()), Some(accepted));
        }
    }

    #[test]
    fn what_is_cut_is_not() {
        let whole = Taken { from: 12, bytes: b"abcdef".to_vec(), ended: true }.to_text();
        for length in 0..whole.len() {
            assert_eq!(Taken::parse(&whole[..length]), None, "{length}");
        }
        for text in ["accepted 1 open", "accepted 1\n", "accepted x open\n", "taken 1 2 AA==\n"] {
            assert_eq!((Taken::parse(text), Accepted::parse(text)), (None, None), "{text}");
        }
    }
}
