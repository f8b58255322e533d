//! Runs the tests of all crates by nextest: it runs each in a process of its own.

use super::Depth;
use super::tally::Tally;
use crate::cargo::{self, Workspace};
use crate::failed::Result;
use std::path::{Path, PathBuf};

pub(super) fn run(
    workspace: &Workspace,
    static_steward: &Path,
    engines: &[(&'static str, PathBuf)],
    depth: Depth,
) -> Result<Tally> {
    let mut command = workspace.cargo(&["nextest", "run", "--workspace", "--no-fail-fast"]);
    command.env("STEAD_STATIC_STEWARD", static_steward);
    command.envs(engines.iter().map(|(variable, socket)| (variable, socket)));
    // The gate judges a change, and must judge it twice alike: properties are tried on the same cases each time.
    if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        command.env("PROPTEST_RNG_SEED", "7");
    }
    if depth == Depth::Quick {
        command.env("STEAD_STRESS", "quick");
    }
    cargo::run(&mut command)?;
    Tally::of_last_run(workspace)
}
