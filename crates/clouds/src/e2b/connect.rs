//! The Connect protocol as far as the daemon speaks it: JSON, not compressed. A stream is a row of envelopes; the last one
//! says whether it went well, whatever the status of the answer was.

use crate::{CloudError, Effect, Trouble};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

/// A piece of output has 32 KiB; encoded, it is a third larger.
const LARGEST: usize = 4 << 20;

const COMPRESSED: u8 = 1;
const LAST: u8 = 2;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Envelope {
    Message(Bytes),
    /// Nothing comes after it.
    Last(Bytes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("an envelope of {0} bytes")]
    TooLarge(usize),
    #[error("an envelope with the flags {0:#04x}")]
    Flags(u8),
}

pub(super) fn envelope(message: &impl Serialize) -> Bytes {
    let json = json(message);
    let mut bytes = BytesMut::with_capacity(json.len() + 5);
    bytes.put_u8(0);
    // What we send is a command line.
    bytes.put_u32(u32::try_from(json.len()).unwrap_or(u32::MAX));
    bytes.put_slice(&json);
    bytes.freeze()
}

pub(super) fn json(message: &impl Serialize) -> Bytes {
    // Our own messages have texts and numbers in them alone.
    serde_json::to_vec(message).unwrap_or_default().into()
}

/// Envelopes out of pieces of any size. Holds one envelope at most, and what came with it.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    rest: BytesMut,
}

impl Decoder {
    pub(super) fn feed(&mut self, piece: &[u8]) {
        self.rest.extend_from_slice(piece);
    }

    /// Whether something has begun that isn't whole.
    pub(super) fn is_within(&self) -> bool {
        !self.rest.is_empty()
    }

    pub(super) fn next(&mut self) -> Result<Option<Envelope>, Malformed> {
        let Some((&[flags, a, b, c, d], rest)) = self.rest.split_first_chunk() else { return Ok(None) };
        if flags & COMPRESSED != 0 || flags & !(COMPRESSED | LAST) != 0 {
            return Err(Malformed::Flags(flags));
        }
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > LARGEST {
            return Err(Malformed::TooLarge(length));
        }
        if rest.len() < length {
            return Ok(None);
        }
        self.rest.advance(5);
        let message = self.rest.split_to(length).freeze();
        Ok(Some(if flags & LAST != 0 { Envelope::Last(message) } else { Envelope::Message(message) }))
    }
}

/// What went wrong, in the protocol's words.
#[derive(Debug, Deserialize)]
pub(super) struct Fault {
    code: String,
    #[serde(default)]
    message: String,
}

impl Fault {
    /// Of an answer that isn't a success. None when somebody else than the daemon gave it.
    pub(super) fn of(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    pub(super) fn error(&self, what: &'static str, effect: Effect) -> CloudError {
        let trouble = match self.code.as_str() {
            // What isn't found is a process or a file: the sandbox is there, it answered.
            "not_found" | "already_exists" | "failed_precondition" | "aborted" => Trouble::Conflict,
            "permission_denied" | "unauthenticated" => Trouble::Denied,
            "resource_exhausted" => Trouble::Exhausted,
            "canceled" | "unavailable" => Trouble::Unavailable,
            "deadline_exceeded" => Trouble::TimedOut,
            "unimplemented" => Trouble::Unsupported,
            _ => Trouble::Broken,
        };
        CloudError::new(what, trouble, effect, format!("the sandbox said {}: {}", self.code, self.message))
    }
}

/// What the last envelope says: nothing, or what went wrong.
pub(super) fn fault_at_the_end(last: &[u8]) -> Option<Fault> {
    #[derive(Deserialize)]
    struct End {
        error: Option<Fault>,
    }
    serde_json::from_slice::<End>(last).ok()?.error
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn envelopes_come_out_as_they_went_in_however_they_are_cut(
            texts in prop::collection::vec(".{0,40}", 0..8),
            cut in 1_usize..30,
        ) {
            let bytes: Vec<u8> = texts.iter().flat_map(|text| envelope(text).to_vec()).collect();
            let (mut decoder, mut out) = (Decoder::default(), Vec::new());
            for piece in bytes.chunks(cut) {
                decoder.feed(piece);
                while let Some(envelope) = decoder.next().unwrap() {
                    out.push(envelope);
                }
            }
            prop_assert!(!decoder.is_within());
            prop_assert_eq!(out, texts.iter().map(|text| Envelope::Message(json(text))).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_no_envelope_is_refused_before_it_is_read() {
        for (bytes, malformed) in [
            ([0, 0xff, 0, 0, 0], Malformed::TooLarge(0xff00_0000)),
            ([1, 0, 0, 0, 0], Malformed::Flags(1)),
            (*b"<html", Malformed::Flags(b'<')),
        ] {
            let mut decoder = Decoder::default();
            decoder.feed(&bytes);
            assert_eq!(decoder.next(), Err(malformed));
        }
        let mut decoder = Decoder::default();
        decoder.feed(b"\x02\0\0\0\x02{}");
        assert_eq!(decoder.next(), Ok(Some(Envelope::Last(Bytes::from_static(b"{}")))));
    }
}
