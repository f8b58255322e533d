//! The client of `AgentBay` against a cloud of our own, which really runs what it is asked to.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "these are tests")]

mod channel;
mod faults;
mod lifecycle;
mod rig;
mod work;
