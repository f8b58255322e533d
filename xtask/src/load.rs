//! `cargo xtask load`: the load test of the HTTP server at its full size, in a release build.

use crate::cargo::{self, Workspace};
use crate::failed::Result;

pub(crate) fn run() -> Result {
    let workspace = Workspace::load()?;
    let arguments = ["test", "--release", "--package", "stead", "--test", "http", "--", "--nocapture", "--exact", TEST];
    cargo::run(workspace.cargo(&arguments).env("STEAD_LOAD", "full"))
}

const TEST: &str = "load::many_clients_at_many_terminals_lose_nothing";
