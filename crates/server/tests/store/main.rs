//! What every store keeps of its promises. The suites take any [`stead_server::store::Store`]; `on_every_store!` runs
//! them on each that there is: SQLite on a real file, and the one in memory. What is about files is SQLite's alone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "helpers fail the test they are called from, as tests themselves do"
)]

mod agents;
mod commands;
mod corrupt;
mod crash;
mod disk_full;
mod env;
mod law;
mod leases;
mod moves;
mod projects;
mod races;
mod rig;
mod scenarios;
mod schema;
mod sessions;
mod sqlite;
mod terminals;
mod threads;
mod tokens;
mod upkeep;
