//! The durable layers on real compute: the built binary is the steward, the store is a SQLite file.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    dead_code,
    reason = "helpers fail the test they are called from, as tests themselves do; the rig serves other suites too"
)]

mod attach;
mod rig;
mod room;
mod smoke;
