//! `cargo xtask bench docker`: what a command costs in a container of ours, beside `docker exec`; and how long a thread
//! takes from nothing to its first output, beside `docker run`.
//!
//! The engine is one of the bench's own, as for the tests, and the image is made of this machine's programs, so no
//! network is needed. As in [`super`], only ratios within a run mean something, and nothing asserts.

mod engine;
mod first;
mod page;
mod warm;

use super::http::server::Server;
use super::machine::Machine;
use super::{Effort, Options, Record};
use crate::cargo::{self, Workspace};
use crate::failed::{Failed, Result, While};
use crate::gate::engine::Engines;
use crate::gate::{provide_one, static_steward};
use engine::Engine;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const IMAGE: &str = "stead/bench";

/// Everything that was timed in one way.
#[derive(Debug)]
struct Timed {
    kind: Kind,
    name: &'static str,
    samples: Vec<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ours,
    /// The program `docker`, which the goal is about.
    Program,
    /// The same asked of the engine itself, without starting a program for it.
    Api,
    Other,
}

impl Timed {
    fn new(kind: Kind, name: &'static str) -> Self {
        Self { kind, name, samples: Vec::new() }
    }
}

/// Builds what is measured and what measures, starts an engine, and hands over.
pub(crate) fn run(options: Options) -> Result {
    let workspace = Workspace::load()?;
    cargo::run(&mut workspace.cargo(&["build", "--release", "--package", "stead", "--package", "xtask"]))?;
    let steward = static_steward::build(&workspace)?;
    let (engines, socket) = Engines::docker_alone(&workspace)?;
    provide_one("docker", "docker.io")?;
    let release = workspace.target.join("release");
    let mut measure = Command::new(release.join("xtask"));
    measure.arg("bench-docker-release").arg(options.effort.choose("full", "quick"));
    measure.arg(&workspace.target).arg(release.join("stead")).arg(steward.path).arg(socket);
    match options.record {
        Record::Write => measure.arg(workspace.root.join("docs/benchmarks-docker.md")),
        Record::PrintOnly => measure.arg("-"),
    };
    let done = cargo::run(&mut measure);
    drop(engines);
    done
}

/// Measures; called by [`run`] as `bench-docker-release EFFORT DIRECTORY STEAD STEWARD SOCKET RECORD`.
pub(crate) fn measure(arguments: &[&str]) -> Result {
    let [effort, directory, stead, steward, socket, record] = *arguments else {
        return Err(Failed::new("`bench-docker-release` is for `bench docker` to call"));
    };
    let effort = if effort == "quick" { Effort::Quick } else { Effort::Full };
    let scratch =
        tempfile::Builder::new().prefix("bench-").tempdir_in(directory).or_failed("can't make a directory")?;
    let begun = Instant::now();
    let machine = Machine::look()?;
    let engine = Engine::at(Path::new(socket))?;
    // Both without a network: what one costs is the engine's doing, and the same for all.
    let config = format!(
        "default_provider = 'docker'\n[provider.docker]\nkind = 'docker'\nimage = '{IMAGE}'\nnetwork = 'none'\n\
         socket = '{socket}'\non_exit = 'destroy'\n"
    );
    let server =
        Server::start(Path::new(stead), scratch.path(), &config, &[("STEAD_STATIC_STEWARD", Path::new(steward))])?;
    let mut build = Command::new(stead);
    build.args(["image", "build", "--from-host", "--name", IMAGE, "--config"]).arg(scratch.path().join("stead.toml"));
    build.arg("--data").arg(scratch.path().join("data"));
    eprint!("{}", cargo::output(&mut build)?);
    let warm = warm::measure(&server, &engine, effort)?;
    let first = first::measure(&server, &engine, effort)?;
    server.stop()?;
    let results = page::Results { machine, effort, versions: engine.versions()?, warm, first };
    let text = page::markdown(&results);
    print!("{text}");
    eprintln!("measured in {:.0} s", begun.elapsed().as_secs_f64());
    if record != "-" {
        fs::write(Path::new(record), &text).or_failed(format!("can't write `{record}`"))?;
        eprintln!("wrote `{record}`");
    }
    Ok(())
}
