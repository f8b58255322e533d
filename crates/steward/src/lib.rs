//! The supervisor inside a sandbox. It owns shells, runs commands in them, and writes every byte they print to a
//! journal before anyone sees it. Three roles of one program:
//!
//! ```text
//! client ── socket ──► steward ── control FIFO ──► bash
//!                        │  ▲ ◄── reply FIFO ────────┘│
//!                        │  └──── output FIFOs ◄──────┘
//!            descriptors │ ▲
//!                        ▼ │ after a crash
//!                      keeper   (starts the steward again, holds its descriptors, reaps its shells)
//! ```
//!
//! A fourth, the [`heir`], waits for the death of both. A fifth, the [`ferry`], has nothing to do with shells: it carries a
//! connection where there are only calls.
//!
//! One thread, one epoll loop ([`serve`]): nothing here waits for a disk or a peer for long, and the bytes move inside
//! the kernel. The steward is crash-only. What it must know after `kill -9` is on disk ([`journal`]) or in the keeper
//! ([`keeper`]); starting and recovering are the same code ([`shell::recover`]).

#[macro_use]
mod log;

mod attach;
pub mod bridge;
mod carry;
pub mod client;
mod conn;
pub mod dir;
pub mod entry;
mod ferry;
mod follow;
mod heir;
mod host;
pub mod journal;
pub mod keeper;
mod kills;
mod left_output;
mod link;
mod memory;
pub mod past;
mod request;
mod retain;
mod serve;
mod shell;
pub mod start;
pub mod state_file;
pub mod sum;
