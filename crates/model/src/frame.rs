//! Framing: how messages are cut out of a byte stream (unix socket, stdio of `docker exec -i`, anything ordered).
//!
//! ```text
//! u32 length of what follows | u8 kind | u32 request id | payload        (integers big-endian)
//! ```
//!
//! The other side is treated as hostile: a length over the limit or an unknown kind ends the connection, and no
//! buffer grows beyond one frame.

/// Room for the largest command text (4 MiB), its environment and standard input, and then some.
pub const MAX_FRAME: usize = 16 << 20;

const PREFIX: usize = 4;
const HEADER: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Client to steward: a CBOR [`crate::proto::Request`].
    Request,
    /// Steward to client: the one CBOR [`crate::proto::Reply`] that ends a request.
    Reply,
    /// Steward to client: a CBOR [`crate::proto::Event`] of a followed command.
    Event,
    /// Steward to client: output bytes of a followed command, see [`Chunk`].
    Data,
    /// Steward to client: a CBOR [`crate::proto::Fault`] that ends a request.
    Fault,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Self::Request => 1,
            Self::Reply => 2,
            Self::Event => 3,
            Self::Data => 4,
            Self::Fault => 5,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::Request, Self::Reply, Self::Event, Self::Data, Self::Fault].into_iter().find(|k| k.code() == code)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub kind: Kind,
    /// Chosen by the client; every answer to a request carries its id.
    pub request: u32,
    pub payload: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {0} bytes is over the limit of {MAX_FRAME}")]
    TooLarge(usize),
    #[error("a frame of {0} bytes is too short to have a header")]
    TooShort(usize),
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    #[error("a data frame is shorter than its header")]
    ShortData,
    #[error("unknown stream {0}")]
    UnknownStream(u8),
}

/// Appends one frame to `out`.
pub fn write(out: &mut Vec<u8>, kind: Kind, request: u32, payload: &[u8]) {
    let length = u32::try_from(HEADER + payload.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.push(kind.code());
    out.extend_from_slice(&request.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Cuts frames out of bytes as they arrive.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// How much of `buffer` has been handed out already; moved to the front when a frame is incomplete.
    taken: usize,
}

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, `None` until more bytes have come. An error is final: the stream has no next frame.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let pending = self.buffer.get(self.taken..).unwrap_or_default();
        let Some((length, rest)) = pending.split_first_chunk::<PREFIX>() else {
            self.compact();
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > MAX_FRAME {
            return Err(FrameError::TooLarge(length));
        }
        if length < HEADER {
            return Err(FrameError::TooShort(length));
        }
        let Some(body) = rest.get(..length) else {
            self.compact();
            return Ok(None);
        };
        let (Some((&code, body)), after) = (body.split_first(), PREFIX + length) else {
            return Err(FrameError::TooShort(length));
        };
        let Some((request, payload)) = body.split_first_chunk::<4>() else {
            return Err(FrameError::TooShort(length));
        };
        let kind = Kind::from_code(code).ok_or(FrameError::UnknownKind(code))?;
        let frame = Frame { kind, request: u32::from_be_bytes(*request), payload: payload.to_vec() };
        self.taken += after;
        Ok(Some(frame))
    }

    fn compact(&mut self) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > 64 << 10 {
            self.buffer = Vec::new();
        }
    }
}

/// Which of a command's two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, minicbor::Encode, minicbor::Decode)]
#[cbor(index_only)]
pub enum Stream {
    #[n(0)]
    Stdout,
    #[n(1)]
    Stderr,
}

impl Stream {
    pub const BOTH: [Self; 2] = [Self::Stdout, Self::Stderr];

    fn code(self) -> u8 {
        match self {
            Self::Stdout => 0,
            Self::Stderr => 1,
        }
    }
}

/// Output bytes on their way to a follower. `u64 seq | u8 stream | u8 late | u64 offset | u64 microseconds | bytes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Place in the command's one sequence of events, from 1 without holes.
    pub seq: u64,
    pub stream: Stream,
    /// Written by a background child after the command had ended.
    pub late: bool,
    /// Place of the first byte in its stream.
    pub offset: u64,
    /// When the steward saw it, microseconds since the epoch.
    pub at: u64,
    pub bytes: Vec<u8>,
}

/// Bytes of a [`Chunk`] before its output.
pub const CHUNK_HEADER: usize = 26;

impl Chunk {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(CHUNK_HEADER + self.bytes.len());
        out.extend_from_slice(&self.seq.to_be_bytes());
        out.push(self.stream.code());
        out.push(u8::from(self.late));
        out.extend_from_slice(&self.offset.to_be_bytes());
        out.extend_from_slice(&self.at.to_be_bytes());
        out.extend_from_slice(&self.bytes);
        out
    }

    pub fn decode(payload: &[u8]) -> Result<Self, FrameError> {
        let (seq, rest) = payload.split_first_chunk::<8>().ok_or(FrameError::ShortData)?;
        let (&[stream, late], rest) = rest.split_first_chunk::<2>().ok_or(FrameError::ShortData)?;
        let (offset, rest) = rest.split_first_chunk::<8>().ok_or(FrameError::ShortData)?;
        let (at, bytes) = rest.split_first_chunk::<8>().ok_or(FrameError::ShortData)?;
        let stream = match stream {
            0 => Stream::Stdout,
            1 => Stream::Stderr,
            other => return Err(FrameError::UnknownStream(other)),
        };
        Ok(Self {
            seq: u64::from_be_bytes(*seq),
            stream,
            late: late != 0,
            offset: u64::from_be_bytes(*offset),
            at: u64::from_be_bytes(*at),
            bytes: bytes.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kinds() -> impl Strategy<Value = Kind> {
        prop_oneof![Just(Kind::Request), Just(Kind::Reply), Just(Kind::Event), Just(Kind::Data), Just(Kind::Fault)]
    }

    proptest! {
        #[test]
        fn frames_survive_any_cut_of_the_stream(
            frames in prop::collection::vec((kinds(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..200)), 0..8),
            cuts in prop::collection::vec(1_usize..40, 1..50),
        ) {
            let mut wire = Vec::new();
            for (kind, request, payload) in &frames {
                write(&mut wire, *kind, *request, payload);
            }
            let (mut decoder, mut got, mut at) = (Decoder::default(), Vec::new(), 0);
            for cut in cuts.iter().cycle() {
                if at == wire.len() { break; }
                let end = (at + cut).min(wire.len());
                decoder.push(&wire[at..end]);
                at = end;
                while let Some(frame) = decoder.next_frame().unwrap() {
                    got.push((frame.kind, frame.request, frame.payload));
                }
            }
            prop_assert_eq!(got, frames);
        }

        #[test]
        fn hostile_bytes_never_panic_and_never_grow_the_buffer_beyond_what_was_sent(
            bytes in prop::collection::vec(any::<u8>(), 0..400)
        ) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            while let Ok(Some(frame)) = decoder.next_frame() {
                let _ = Chunk::decode(&frame.payload);
            }
            prop_assert!(decoder.buffer.len() <= bytes.len());
        }

        #[test]
        fn chunks_round_trip(
            seq: u64, err: bool, late: bool, offset: u64, at: u64,
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let stream = if err { Stream::Stderr } else { Stream::Stdout };
            let chunk = Chunk { seq, stream, late, offset, at, bytes };
            prop_assert_eq!(Chunk::decode(&chunk.encode()), Ok(chunk));
        }
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_it_is_waited_for() {
        let mut decoder = Decoder::default();
        decoder.push(&u32::MAX.to_be_bytes());
        assert_eq!(decoder.next_frame(), Err(FrameError::TooLarge(u32::MAX as usize)));
    }
}
