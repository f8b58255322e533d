//! A steward in namespaces of its own: what it can't reach, what it can, and that it lasts. Each test has an enclosure
//! of its own. A machine that can't make any says so in each test.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_macros,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "helpers fail the test they are called from, as tests themselves do"
)]

mod cell;
mod contained;
mod lasting;
mod limits;
mod network;
mod ordinary;
#[path = "../it/rig.rs"]
mod rig;
