//! Do the fuzz targets build and survive a short run? They need a nightly compiler, which not everyone has; the
//! decoders' property tests run everywhere.

use super::tools::find;
use crate::cargo::{self, Workspace, output};
use crate::failed::Result;
use std::process::Command;

/// Enough to run into what is plainly broken, short enough not to be felt.
const RUNS: &str = "-runs=20000";

pub(super) fn smoke(workspace: &Workspace) -> Result<String> {
    if !workspace.root.join("fuzz/Cargo.toml").is_file() {
        return Ok("skipped: there is no `fuzz/`".to_owned());
    }
    if find("cargo-fuzz").is_none() {
        return Ok("skipped: `cargo install cargo-fuzz` gives what it needs".to_owned());
    }
    if output(&mut nightly(workspace, &["--version"])).is_err() {
        return Ok("skipped: `rustup toolchain install nightly` gives what it needs".to_owned());
    }
    cargo::run(&mut nightly(workspace, &["fuzz", "build"]))?;
    let list = output(&mut nightly(workspace, &["fuzz", "list"]))?;
    let targets: Vec<_> = list.split_whitespace().collect();
    for target in &targets {
        cargo::run(&mut nightly(workspace, &["fuzz", "run", target, "--", RUNS]))?;
    }
    Ok(format!("{} targets built and run: {}", targets.len(), targets.join(", ")))
}

fn nightly(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).args(arguments).current_dir(&workspace.root);
    command
}
