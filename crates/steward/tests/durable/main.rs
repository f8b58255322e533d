//! What must last: a shell's state over the death of everything, shells that are not bash, the smallest system that a
//! steward can live in, and the journal. Each test has a directory and a steward of its own.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_macros,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "helpers fail the test they are called from, as tests themselves do"
)]

mod bare_root;
mod journal;
mod killing;
mod past;
mod posix;
#[path = "../it/rig.rs"]
mod rig;
mod state;
