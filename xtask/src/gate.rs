//! `cargo xtask test`: everything that must hold before a merge, cheapest first. The first step that fails ends it.

mod boundaries;
pub(crate) mod engine;
mod fuzz;
mod python;
mod run_tests;
mod schema;
mod source;
pub(crate) mod static_steward;
pub(crate) mod tally;
mod tools;

pub(crate) use tools::{is_target_installed, provide_one};

use crate::agents;
use crate::campaign;
use crate::cargo::{self, Workspace};
use crate::failed::{Result, While};
use std::time::Instant;
use tally::Tally;

/// The clouds' own, which must find in our test servers all that they expect of theirs.
const SDKS: [&str; 3] = ["e2b==2.63.0", "daytona==0.226.1", "wuying-agentbay-sdk==0.22.3"];

/// How much of the stress tests to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    Full,
    Quick,
}

pub(crate) fn run(depth: Depth) -> Result {
    let begun = Instant::now();
    let mut workspace = Workspace::load()?;
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
    step("static steward", || {
        let built = static_steward::build(&workspace)?;
        workspace.embed(&built.path);
        Ok(built.to_string())
    })?;
    step("fuzz", || fuzz::smoke(&workspace))?;
    let mut engines = None;
    step("engines", || {
        let started = engine::Engines::start(&workspace)?;
        let said = started.describe();
        engines = Some(started);
        Ok(said)
    })?;
    let mut variables = engines.as_ref().map(|engines| engines.variables.clone()).unwrap_or_default();
    step("sdks", || {
        let place = python::provide(&workspace.target.join("sdks"), &SDKS)?;
        variables.push(("STEAD_SDKS", place));
        Ok(format!("{} judge the clouds that are tested against", SDKS.join(", ")))
    })?;
    let mut tally = Tally::default();
    step("tests", || {
        tally = run_tests::run(&workspace, &variables, depth)?;
        Ok(tally.to_string())
    })?;
    drop(engines);
    step("campaign", || campaign::gate(&workspace))?;
    step("agents", || {
        let (did, of_agents) = agents::test(&workspace, agents::Which::of(depth), agents::Tests::WithThem)?;
        tally.add(of_agents);
        Ok(did)
    })?;
    step("description", || schema::check(&workspace))?;
    print!("\n{}", tally.details());
    println!("tests: {tally}");
    println!("all of it holds ({:.0} s)", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Every terminal agent.
pub(crate) fn agents() -> Result {
    let workspace = Workspace::load()?;
    step("agents", || {
        let (did, tally) = agents::test(&workspace, agents::Which::All, agents::Tests::All)?;
        print!("{}", tally.details());
        Ok(format!("{did}: {tally}"))
    })
}

/// What has to do with containers, with what it needs.
pub(crate) fn containers() -> Result {
    let mut workspace = Workspace::load()?;
    step("tools", tools::provide)?;
    let built = static_steward::build(&workspace)?;
    workspace.embed(&built.path);
    let engines = engine::Engines::start(&workspace)?;
    println!("   {}", engines.describe());
    step("tests", || {
        let tally = run_tests::containers(&workspace, &engines.variables)?;
        print!("{}", tally.details());
        Ok(tally.to_string())
    })
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
