//! Runs the tests of all crates, with nextest where it is installed: it runs each in a process of its own.

use super::Depth;
use super::tools::find;
use crate::cargo::{self, Workspace, line};
use crate::failed::{Failed, Result, While};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(super) fn run(
    workspace: &Workspace,
    static_steward: &Path,
    engines: &[(&'static str, PathBuf)],
    depth: Depth,
) -> Result<String> {
    let with_settings = |arguments: &[&str]| {
        let mut command = with_engines(workspace, arguments, static_steward, engines);
        // The gate judges a change, and must judge it twice alike: properties are tried on the same cases each time.
        if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
            command.env("PROPTEST_RNG_SEED", "7");
        }
        if depth == Depth::Quick {
            command.env("STEAD_STRESS", "quick");
        }
        command
    };
    if find("cargo-nextest").is_some() {
        cargo::run(&mut with_settings(&["nextest", "run", "--workspace", "--no-fail-fast"]))?;
        return Ok("all passed; the counts are in the summary above".to_owned());
    }
    println!("   no `cargo-nextest` here; using `cargo test`");
    let counts = cargo_test(&mut with_settings(&["test", "--workspace", "--lib", "--bins", "--tests"]))?;
    Ok(format!("{} passed, {} ignored", counts.passed, counts.ignored))
}

/// Names of tests that have to do with containers.
const CONTAINERS: &str = "test(docker) | test(podman) | test(containers) | test(doctor)";

/// Those alone.
pub(super) fn containers(
    workspace: &Workspace,
    static_steward: &Path,
    engines: &[(&'static str, PathBuf)],
) -> Result<String> {
    let arguments = ["nextest", "run", "--package", "stead", "--no-fail-fast", "-E", CONTAINERS];
    cargo::run(&mut with_engines(workspace, &arguments, static_steward, engines))?;
    Ok("all passed; the counts are in the summary above".to_owned())
}

fn with_engines(
    workspace: &Workspace,
    arguments: &[&str],
    static_steward: &Path,
    engines: &[(&'static str, PathBuf)],
) -> Command {
    let mut command = workspace.cargo(arguments);
    command.env("STEAD_STATIC_STEWARD", static_steward);
    // The program has it built in, as one that is shipped; a test tries it alone.
    command.env("STEAD_EMBED_STEWARD", static_steward);
    command.envs(engines.iter().map(|(variable, socket)| (variable, socket)));
    command
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    ignored: u64,
}

impl Counts {
    /// `test result: ok. 12 passed; 0 failed; 1 ignored; ..`, once for each test program.
    fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else {
            return;
        };
        let result = result.split_once(". ").map_or(result, |(_, counts)| counts);
        for part in result.split("; ") {
            match part.split_once(' ').map(|(count, what)| (count.parse::<u64>(), what)) {
                Some((Ok(count), "passed")) => self.passed += count,
                Some((Ok(count), "ignored")) => self.ignored += count,
                _ => {}
            }
        }
    }
}

/// `cargo test` counts per program only, so we add up, passing on what it says.
fn cargo_test(command: &mut Command) -> Result<Counts> {
    let name = line(command);
    let mut child = command.stdout(Stdio::piped()).spawn().or_failed(format!("can't run `{name}`"))?;
    let mut counts = Counts::default();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line.or_failed(format!("can't read what `{name}` says"))?;
            println!("{line}");
            counts.add(&line);
        }
    }
    let status = child.wait().or_failed(format!("can't wait for `{name}`"))?;
    if status.success() { Ok(counts) } else { Err(Failed::new(format!("`{name}` failed ({status})"))) }
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn the_counts_of_all_test_programs_are_added() {
        let mut counts = Counts::default();
        counts.add("running 3 tests");
        counts.add("test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s");
        counts.add("test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        assert_eq!(counts, Counts { passed: 42, ignored: 1 });
    }
}
