//! What the layers promise, as tests: the scenarios of the systems that stead unites under the names they had there, and
//! the behaviours beyond them. `docs/scenarios.md` says which is where, and where we differ on purpose.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::wildcard_imports,
    reason = "helpers fail the test they are called from, as tests themselves do"
)]

mod behaviour;
mod chat_session;
mod integration;
mod lease;
#[path = "../layers/rig.rs"]
mod rig;
mod runtime;
mod scene;
mod terminal;
mod web_simulation;
