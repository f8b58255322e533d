//! The real `stead`, driven as a person or a script drives it. Each test has a directory and a steward of its own.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_macros,
    clippy::print_stdout,
    reason = "helpers fail the test they are called from, as tests themselves do"
)]

mod codes;
mod doctor;
mod front;
mod help;
mod lasting;
mod protocol_examples;
mod refused;
mod rig;
mod steward;
mod survival;
mod terminal;
