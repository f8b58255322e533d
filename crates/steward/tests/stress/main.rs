//! The steward under random kills and cancellations. Each test has a directory and a steward of its own.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_macros,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "helpers fail the test they are called from, as tests themselves do"
)]

mod at_most_once;
mod cancel;
mod crash;
mod env;
#[path = "../it/rig.rs"]
mod rig;
mod starved;
