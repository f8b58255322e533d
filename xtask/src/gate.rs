//! `cargo xtask test`: everything that must hold before a merge, cheapest first. The first step that fails ends it.

mod boundaries;
mod fuzz;
mod run_tests;
mod schema;
mod source;
pub(crate) mod static_steward;
mod tools;

pub(crate) use tools::{is_target_installed, provide_one};

use crate::cargo::{self, Workspace};
use crate::failed::{Result, While};
use std::time::Instant;

/// How much of the stress tests to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    Full,
    Quick,
}

pub(crate) fn run(depth: Depth) -> Result {
    let begun = Instant::now();
    let workspace = Workspace::load()?;
    step("format", || {
        cargo::run(&mut workspace.cargo(&["fmt", "--all", "--check"]))?;
        Ok("every file is as `cargo fmt` writes it".to_owned())
    })?;
    step("lints", || {
        let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
        cargo::run(&mut workspace.cargo(&arguments))?;
        Ok("clippy has nothing to say".to_owned())
    })?;
    step("boundaries", || boundaries::check(&workspace))?;
    step("tools", tools::provide)?;
    let mut steward = None;
    step("static steward", || {
        let built = static_steward::build(&workspace)?;
        let said = built.to_string();
        steward = Some(built.path);
        Ok(said)
    })?;
    let steward = steward.or_failed("the static steward was not built")?;
    step("fuzz", || fuzz::smoke(&workspace))?;
    step("tests", || run_tests::run(&workspace, &steward, depth))?;
    step("description", || schema::check(&workspace))?;
    println!("\nall of it holds ({:.0} s)", begun.elapsed().as_secs_f64());
    Ok(())
}

/// The last step alone.
pub(crate) fn description() -> Result {
    let workspace = Workspace::load()?;
    step("description", || schema::check(&workspace))
}

/// Runs one step, which says what it did.
fn step(name: &str, work: impl FnOnce() -> Result<String>) -> Result {
    println!("== {name}");
    let begun = Instant::now();
    let did = work().or_failed(format!("step `{name}` failed"))?;
    println!("   {did} ({:.1} s)", begun.elapsed().as_secs_f64());
    Ok(())
}
