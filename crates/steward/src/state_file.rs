//! The file of a shell's stored state: the state, a mark, and a sum of it. A flipped bit in a value would be another value
//! to whoever decodes it.
//!
//! ```text
//! state (CBOR) │ "sum1" │ CRC-32 of the state, little-endian
//! ```
//!
//! Files from before there were sums end with the state, and can be read. A file with a sum and no state stands for one that
//! was damaged and could not be put right (`past::repair`).

use stead_model::state::{Bytes, ShellState};

const MARK: &[u8; 4] = b"sum1";

/// Why there is no stored state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    #[error("is missing")]
    Missing,
    #[error("is damaged")]
    Damaged,
    #[error("was damaged and has been given up by a repair")]
    GivenUp,
}

pub(crate) fn encode(state: &ShellState) -> Vec<u8> {
    with_sum(minicbor::to_vec(state).unwrap_or_default())
}

/// What takes the place of a damaged one.
pub(crate) fn given_up() -> Vec<u8> {
    with_sum(Vec::new())
}

fn with_sum(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(MARK);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

pub(crate) fn decode(bytes: &[u8]) -> Result<ShellState, StateError> {
    let summed = bytes.split_last_chunk::<4>().and_then(|(rest, sum)| {
        let state = rest.strip_suffix(MARK.as_slice())?;
        Some((state, u32::from_le_bytes(*sum)))
    });
    let state = match summed {
        Some((state, sum)) if crc32fast::hash(state) != sum => return Err(StateError::Damaged),
        Some(([], _)) => return Err(StateError::GivenUp),
        Some((state, _)) => state,
        None => bytes,
    };
    let mut decoder = minicbor::Decoder::new(state);
    match decoder.decode() {
        // Behind a state without a sum stands nothing: this is one whose mark was damaged.
        Ok(read) if decoder.position() == state.len() => Ok(read),
        Ok(_) | Err(_) => Err(StateError::Damaged),
    }
}

/// The state that a shell was opened with. The head of its log has it, with a sum of its own, until another is stored.
pub(crate) fn of_opening(given: Option<&Bytes>) -> Result<ShellState, StateError> {
    given.map_or(Ok(ShellState::default()), |given| minicbor::decode(given).map_err(|_| StateError::Damaged))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> ShellState {
        let variables = [(Bytes::from("A"), Bytes::from("declare -- A=\"right\""))].into();
        ShellState { variables, ..ShellState::default() }
    }

    #[test]
    fn no_flipped_bit_and_no_cut_is_taken_for_a_state() {
        let whole = encode(&state());
        assert_eq!(decode(&whole), Ok(state()));
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bytes), Err(StateError::Damaged), "bit {bit}");
        }
        for length in 0..whole.len() {
            let read = decode(&whole[..length]);
            // Without its whole trailer it is a file from before there was one, and the state is all there.
            let is_all_there = length == whole.len() - 8;
            assert_eq!(read, if is_all_there { Ok(state()) } else { Err(StateError::Damaged) }, "{length}");
        }
    }

    #[test]
    fn a_file_from_before_there_were_sums_can_be_read() {
        assert_eq!(decode(&minicbor::to_vec(state()).unwrap()), Ok(state()));
        assert_eq!(decode(&given_up()), Err(StateError::GivenUp));
    }
}
