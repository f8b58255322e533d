//! Runs the tests by nextest: it runs each in a process of its own.

use super::Depth;
use super::tally::Tally;
use crate::cargo::{self, Workspace};
use crate::failed::Result;
use std::path::PathBuf;

/// What a test finds in its environment: where an engine listens, where the clouds' own programs are.
type Variable = (&'static str, PathBuf);

/// Those of all crates.
pub(super) fn run(workspace: &Workspace, variables: &[Variable], depth: Depth) -> Result<Tally> {
    let mut command = workspace.cargo(&["nextest", "run", "--retries", "0", "--workspace", "--no-fail-fast"]);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
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

/// Names of tests that have to do with containers.
const CONTAINERS: &str = "test(docker) | test(podman) | test(containers) | test(doctor)";

/// Those alone.
pub(super) fn containers(workspace: &Workspace, variables: &[Variable]) -> Result<Tally> {
    let arguments = ["nextest", "run", "--retries", "0", "--package", "stead", "--no-fail-fast", "-E", CONTAINERS];
    cargo::run(workspace.cargo(&arguments).envs(variables.iter().map(|(name, value)| (name, value))))?;
    Tally::of_last_run(workspace)
}
