//! The steward as a whole: the real binary, real shells, real kills. Each test has a directory and a steward of its own.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_macros,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "helpers fail the test they are called from, as tests themselves do"
)]

mod basics;
mod env;
mod ferry;
mod hard_cases;
mod hygiene;
mod input;
mod isolation;
mod limits;
mod overlays;
mod people;
mod person;
mod pids;
mod queue;
mod rest;
mod rig;
mod screens;
mod secrets;
mod unseen;
