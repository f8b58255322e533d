//! `cargo xtask bench shell`: what a command costs in our shell and in shells driven other ways.
//!
//! Everything is measured in one run and in interleaved rounds, because on a shared machine two runs can't be compared:
//! only ratios within a run mean something. Nothing here asserts; it prints, and says which goals were met this time.

pub(crate) mod docker;
mod fifo;
mod goals;
pub(crate) mod http;
mod latency;
pub(crate) mod layers;
mod machine;
pub(crate) mod memory;
mod ours;
mod pipe;
mod piped_bash;
mod place;
mod report;
mod restart;
mod sample;
mod sentinel;
mod spawn;
mod startup;
mod steward;
mod throughput;
mod tmux;

pub(crate) use pipe::echo;

use crate::cargo::{self, Workspace};
use crate::failed::{Failed, Result, While};
use crate::gate::{is_target_installed, static_steward};
use place::Place;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    Full,
    Quick,
}

impl Effort {
    fn choose<T>(self, full: T, quick: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Record {
    Write,
    PrintOnly,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    effort: Effort,
    record: Record,
}

impl Options {
    pub(crate) fn parse(flags: &[&str]) -> Result<Self> {
        let mut options = Self { effort: Effort::Full, record: Record::PrintOnly };
        for flag in flags {
            match *flag {
                "--quick" => options.effort = Effort::Quick,
                "--write" => options.record = Record::Write,
                other => return Err(Failed::new(format!("unknown option `{other}`"))),
            }
        }
        if options.effort == Effort::Full {
            options.record = Record::Write;
        }
        Ok(options)
    }
}

/// Builds what is measured and what measures, both optimised, and hands over to the latter: a debug client would be
/// slower than the steward it times.
pub(crate) fn run(options: Options) -> Result {
    let workspace = Workspace::load()?;
    cargo::run(&mut workspace.cargo(&["build", "--release", "--package", "stead-steward", "--package", "xtask"]))?;
    let release = workspace.target.join("release");
    let mut measure = Command::new(release.join("xtask"));
    measure.arg("bench-release").arg(options.effort.choose("full", "quick"));
    measure.arg(&workspace.target).arg(release.join("steward"));
    match options.record {
        Record::Write => measure.arg(workspace.root.join("docs/benchmarks.md")),
        Record::PrintOnly => measure.arg("-"),
    };
    if is_target_installed(&static_steward::target())? {
        measure.arg(static_steward::build(&workspace)?.path);
    } else {
        eprintln!("no target `{}` here: the static steward is not measured", static_steward::target());
    }
    cargo::run(&mut measure)
}

/// The programs under measurement, and where they may write.
#[derive(Debug)]
struct Subjects {
    /// On the file system that the journal is on; not in memory.
    scratch: PathBuf,
    steward: PathBuf,
    static_steward: Option<PathBuf>,
}

/// Measures; called by [`run`] as `bench-release EFFORT DIRECTORY STEWARD RECORD [STATIC-STEWARD]`.
pub(crate) fn measure(arguments: &[&str]) -> Result {
    let (effort, directory, steward, record, static_steward) = match arguments {
        [effort, directory, steward, record, rest @ ..] => (*effort, *directory, *steward, *record, rest.first()),
        _ => return Err(Failed::new("`bench-release` is for `bench shell` to call")),
    };
    let effort = if effort == "quick" { Effort::Quick } else { Effort::Full };
    let scratch =
        tempfile::Builder::new().prefix("bench-").tempdir_in(directory).or_failed("can't make a directory")?;
    let subjects = Subjects {
        scratch: scratch.path().to_owned(),
        steward: PathBuf::from(steward),
        static_steward: static_steward.map(PathBuf::from),
    };
    let begun = Instant::now();
    let machine = machine::Machine::look()?;
    let mut tables = Vec::new();
    let unpinned = Place::unpinned()?;
    for place in Place::all()? {
        tables.push(latency::measure(&place, &subjects, effort)?);
    }
    unpinned.take()?;
    let throughput = throughput::measure(&subjects, effort)?;
    let restart = restart::measure(&subjects, effort)?;
    let startup = startup::measure(&subjects, effort)?;
    let results = report::Results { machine, effort, tables, throughput, restart, startup };
    let text = report::markdown(&results);
    print!("{text}");
    eprintln!("measured in {:.0} s", begun.elapsed().as_secs_f64());
    if record != "-" {
        fs::write(Path::new(record), &text).or_failed(format!("can't write `{record}`"))?;
        eprintln!("wrote `{record}`");
    }
    Ok(())
}
