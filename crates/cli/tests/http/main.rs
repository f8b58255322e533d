//! The real server over HTTP, as a client sees it. Each test has a server and a data directory of its own.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "helpers fail the test they are called from, as tests themselves do"
)]

mod clouds;
mod containers;
mod env;
mod exec;
mod faults;
mod files;
mod fork;
mod leases;
mod lists;
mod load;
mod lost;
mod memories;
mod openapi;
mod projects;
mod pty;
mod records;
mod retention;
mod rig;
mod security;
mod terminals;
mod threads;
mod tokens;
mod walls;
