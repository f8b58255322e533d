//! A person at a terminal: how one attaches, types, and sees the screen.

use crate::ids::{CommandId, ShellId};
use crate::state::Bytes;
use minicbor::{Decode, Encode};

/// How large a terminal is. Smaller or larger than these limits no program draws anything useful, and an emulator may
/// not survive it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Size {
    #[n(0)]
    pub columns: u16,
    #[n(1)]
    pub rows: u16,
}

impl Default for Size {
    fn default() -> Self {
        Self { columns: 80, rows: 24 }
    }
}

impl Size {
    pub const LEAST: Self = Self { columns: 10, rows: 4 };
    pub const MOST: Self = Self { columns: 500, rows: 200 };

    /// The nearest size that can be had.
    pub fn clamped(self) -> Self {
        Self {
            columns: self.columns.clamp(Self::LEAST.columns, Self::MOST.columns),
            rows: self.rows.clamp(Self::LEAST.rows, Self::MOST.rows),
        }
    }

    /// What fits into both.
    pub fn smallest(self, other: Self) -> Self {
        Self { columns: self.columns.min(other.columns), rows: self.rows.min(other.rows) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Attach {
    #[n(0)]
    pub shell: ShellId,
    #[n(1)]
    pub size: Size,
    /// How many bytes of the screen may be sent before more credit is given.
    #[n(2)]
    pub credit: u64,
}

/// What a person types. Answered with [`super::Reply::Done`] when the terminal has taken it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Type {
    /// The request by which this connection attached.
    #[n(0)]
    pub attachment: u32,
    #[n(1)]
    pub bytes: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Resize {
    #[n(0)]
    pub attachment: u32,
    #[n(1)]
    pub size: Size,
}

/// What a person's line became.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Entered {
    #[n(0)]
    pub command: CommandId,
    #[n(1)]
    pub text: Bytes,
}

/// The last word on an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Detached {
    /// The client asked for it.
    #[n(0)]
    Asked,
    /// Somebody pressed Ctrl-D at an empty prompt.
    #[n(1)]
    EndOfFile,
    /// The shell is resting or closed: nothing is behind the screen any more.
    #[n(2)]
    Closed,
}

/// A shell process ended while people looked on; the next prompt has another, with its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ShellEnd {
    #[n(0)]
    pub exit_code: Option<i32>,
    #[n(1)]
    pub signal: Option<i32>,
}
