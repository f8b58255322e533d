//! Terminal agents, the real ones, against a model of our own. Without network: the model is on the loopback interface.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::needless_pass_by_value,
    dead_code,
    reason = "helpers fail the test they are called from, as tests themselves do; the rig has more than is used here"
)]

mod bench;
mod busy;
mod cli;
mod durable;
mod lasting;
mod model;
mod permissions;
mod person;
mod policy;
mod polly;
#[path = "../http/rig.rs"]
mod rig;
mod routes;
mod sandbox;
mod scene;
mod screens;
mod toy;
mod trouble;
mod turns;
