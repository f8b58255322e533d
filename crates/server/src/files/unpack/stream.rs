//! The bytes of an archive as they come in.

use super::super::failure::Failure;
use super::super::ground::MAX_PATH;
use crate::error::Error;
use bytes::{Buf, Bytes};
use std::io::{self, Read};
use tokio::sync::mpsc;

#[derive(Debug)]
pub(super) enum Body {
    Piece(Bytes),
    /// The sender meant to stop here; without this word it was cut off.
    End,
}

/// From whoever sends pieces, or from a file of our own.
pub(super) enum Stream {
    Sent { received: mpsc::Receiver<Body>, piece: Bytes, ended: bool },
    Stored(Box<dyn Read>),
}

impl Stream {
    pub(super) fn new(received: mpsc::Receiver<Body>) -> Self {
        Self::Sent { received, piece: Bytes::new(), ended: false }
    }

    /// What follows an archive is of no interest, but that it follows: a stream that was cut off is not complete.
    pub(super) fn pass_the_rest(&mut self) -> Result<(), Failure> {
        let mut waste = [0; 8192];
        while self.read(&mut waste).map_err(incomplete)? > 0 {}
        Ok(())
    }

    /// The longest path that an entry may have: one from outside is one that can be asked for. What we packed ourselves had
    /// it before.
    pub(super) fn longest_path(&self) -> usize {
        match self {
            Self::Sent { .. } => MAX_PATH,
            Self::Stored(_) => usize::MAX,
        }
    }

    pub(super) fn fill(&mut self, buffer: &mut [u8]) -> Result<(), Failure> {
        self.read_exact(buffer).map_err(incomplete)
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (received, piece, ended) = match self {
            Self::Sent { received, piece, ended } => (received, piece, ended),
            Self::Stored(reader) => return reader.read(buffer),
        };
        while piece.is_empty() && !*ended {
            match received.blocking_recv() {
                Some(Body::Piece(next)) => *piece = next,
                Some(Body::End) => *ended = true,
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let count = buffer.len().min(piece.len());
        if let Some(part) = buffer.get_mut(..count) {
            piece.copy_to_slice(part);
        }
        Ok(count)
    }
}

/// A stream that ended too early, or a file of ours that can't be read on.
pub(super) fn incomplete(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return Error::Invalid("the archive is not complete: it ends before its end".to_owned()).into();
    }
    Failure::Os(error)
}
