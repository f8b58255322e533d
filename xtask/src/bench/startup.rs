//! How long a steward takes to start over a fresh directory, and how much memory it and its keeper have without a
//! shell.

use super::sample::{median, percentile};
use super::steward::Steward;
use super::{Effort, Subjects};
use crate::cargo;
use crate::failed::{Result, While};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Startup {
    pub(super) build: &'static str,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) samples: usize,
    /// Resident memory in KiB.
    pub(super) steward: u32,
    pub(super) keeper: u32,
}

pub(super) fn measure(subjects: &Subjects, effort: Effort) -> Result<Vec<Startup>> {
    let samples = effort.choose(40, 10);
    let mut builds = vec![Measured::new("release", &subjects.steward)];
    builds.extend(subjects.static_steward.as_ref().map(|path| Measured::new("static (`dist`, musl)", path)));
    eprintln!("startup: {samples} times");
    for _ in 0..samples {
        for build in &mut builds {
            build.once(&subjects.scratch)?;
        }
    }
    let result = |build: Measured| Startup {
        build: build.name,
        p50: median(build.taken.clone()),
        p99: percentile(build.taken, 99),
        samples,
        steward: build.resident.0,
        keeper: build.resident.1,
    };
    Ok(builds.into_iter().map(result).collect())
}

struct Measured<'a> {
    name: &'static str,
    program: &'a Path,
    taken: Vec<Duration>,
    /// The most that was seen, of steward and keeper.
    resident: (u32, u32),
}

impl<'a> Measured<'a> {
    fn new(name: &'static str, program: &'a Path) -> Self {
        Self { name, program, taken: Vec::new(), resident: (0, 0) }
    }

    fn once(&mut self, scratch: &Path) -> Result {
        let steward = Steward::not_started(scratch)?;
        let begun = Instant::now();
        cargo::output(&mut steward.command(self.program))?;
        self.taken.push(begun.elapsed());
        let client = steward.client()?;
        let welcome = client.welcome();
        self.resident.0 = self.resident.0.max(resident(welcome.pid)?);
        self.resident.1 = self.resident.1.max(resident(welcome.keeper_pid)?);
        Ok(())
    }
}

/// `VmRSS` of a process: what it has in memory, pages of its program included.
fn resident(pid: u32) -> Result<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).or_failed(format!("process {pid} is gone"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.or_failed(format!("process {pid} does not say what it has in memory"))
}
