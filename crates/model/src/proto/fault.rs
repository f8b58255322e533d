//! Failures, typed: a program acts on the code, a person reads the message.

use minicbor::{Decode, Encode};

/// Why a request failed; the connection lives on.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Fault {
    #[n(0)]
    pub code: FaultCode,
    #[n(1)]
    pub message: String,
    /// For [`FaultCode::Gone`]: the number of the oldest command of the shell whose output is still there.
    #[n(2)]
    pub earliest: Option<u64>,
    /// For [`FaultCode::Conflict`] of input that was sent with an offset: where it has to go on.
    #[n(3)]
    pub expected: Option<u64>,
}

impl Fault {
    pub fn new(code: FaultCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), earliest: None, expected: None }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum FaultCode {
    /// The request can't be understood or breaks a rule; it changed nothing.
    #[n(0)]
    Invalid,
    #[n(1)]
    NotFound,
    /// The id is taken by another command.
    #[n(2)]
    Conflict,
    /// The shell is busy and the request said not to wait.
    #[n(3)]
    Busy,
    /// The queue is full.
    #[n(4)]
    LimitReached,
    /// The output was removed to make room.
    #[n(5)]
    Gone,
    #[n(6)]
    NoSpace,
    /// No such shell program, or it can't be started.
    #[n(7)]
    Unsupported,
    /// No version in common.
    #[n(8)]
    Version,
    /// The operating system refused; the message says what.
    #[n(9)]
    Unavailable,
    /// A directory that was asked for is not there.
    #[n(10)]
    NoDirectory,
    /// What was written is not as it was.
    #[n(11)]
    Damaged,
}
