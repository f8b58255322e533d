//! `cargo xtask bench http`: what a command costs by way of the HTTP interface, alone and in a crowd, and how fast its
//! output streams.
//!
//! The server is the release build of `stead serve` over a directory of its own; the client is a minimal one of ours, so
//! that what is measured is the server and not a library. As in [`super`], only ratios within a run mean something, and
//! nothing asserts.

pub(super) mod client;
pub(super) mod crowd;
pub(super) mod ours;
mod page;
mod polled;
pub(super) mod server;
mod stream;

use super::machine::Machine;
use super::{Effort, Options, Record};
use crate::cargo::{self, Workspace};
use crate::failed::{Failed, Result, While};
use server::Server;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Nothing stays behind; else as it comes.
const CONFIG: &str = "\
[provider.namespace]
kind = \"namespace\"
on_exit = \"destroy\"
[provider.local]
kind = \"local\"
on_exit = \"destroy\"
";

/// Builds what is measured and what measures, and hands over to the latter.
pub(crate) fn run(options: Options) -> Result {
    let workspace = Workspace::load()?;
    cargo::run(&mut workspace.cargo(&["build", "--release", "--package", "stead", "--package", "xtask"]))?;
    let release = workspace.target.join("release");
    let mut measure = Command::new(release.join("xtask"));
    measure.arg("bench-http-release").arg(options.effort.choose("full", "quick"));
    measure.arg(&workspace.target).arg(release.join("stead"));
    match options.record {
        Record::Write => measure.arg(workspace.root.join("docs/benchmarks-http.md")),
        Record::PrintOnly => measure.arg("-"),
    };
    cargo::run(&mut measure)
}

/// Measures; called by [`run`] as `bench-http-release EFFORT DIRECTORY STEAD RECORD`.
pub(crate) fn measure(arguments: &[&str]) -> Result {
    let [effort, directory, stead, record] = *arguments else {
        return Err(Failed::new("`bench-http-release` is for `bench http` to call"));
    };
    let effort = if effort == "quick" { Effort::Quick } else { Effort::Full };
    let scratch =
        tempfile::Builder::new().prefix("bench-").tempdir_in(directory).or_failed("can't make a directory")?;
    let begun = Instant::now();
    let machine = Machine::look()?;
    let server = Server::start(Path::new(stead), scratch.path(), CONFIG, &[])?;
    let provider = server.default_provider()?;
    let crowds = crowd::measure(&server, &provider, scratch.path(), effort)?;
    let streams = stream::measure(&server, &provider, scratch.path(), effort)?;
    server.stop()?;
    let text = page::markdown(&page::Results { machine, effort, provider, crowds, streams });
    print!("{text}");
    eprintln!("measured in {:.0} s", begun.elapsed().as_secs_f64());
    if record != "-" {
        fs::write(Path::new(record), &text).or_failed(format!("can't write `{record}`"))?;
        eprintln!("wrote `{record}`");
    }
    Ok(())
}
