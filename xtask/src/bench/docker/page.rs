//! The page that a run becomes.

use super::{Kind, Timed};
use crate::bench::Effort;
use crate::bench::machine::Machine;
use crate::bench::report::table;
use crate::bench::sample::{median, percentile, ratio, times, written};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Results {
    pub(super) machine: Machine,
    pub(super) effort: Effort,
    /// Of the program `docker` and of the engine.
    pub(super) versions: String,
    pub(super) warm: Vec<Timed>,
    pub(super) first: Vec<Timed>,
}

const MOST_OF_EXEC: f64 = 0.05;

const METHOD: &str = "\
## Method

- Everything is measured in one run, in interleaved rounds: within a table each row has its turn before the first has its next. p50 and p99 are of all samples together; with fewer than a hundred the p99 is the greatest. Only ratios within one run mean something: the machine is shared and virtual, and client, server, engine and containers have its CPUs together.
- The engine is started for the run, over a fresh directory, unless `STEAD_TEST_DOCKER` names one; the image is what `stead image build --from-host` makes, the same for all. No container has a network.
- The server is the release build of `stead serve` over a fresh data directory, with a provider of kind `docker` and else its defaults. The client is a release build of a minimal HTTP/1.1 client whose connection stays open through a round.
- A warm container: ours is the whole way of a command, in a long-lived bash of a terminal that keeps its state, with output and end in its journal; `true` is bash's own and starts no process, `/bin/true` is a program. `docker exec` is the program, from its start to its end; it starts a process in a container whose first process is `sleep`. The Engine API is the same without the program: create and inspect over a connection that stays open, start over one of its own, as the engine demands it.
- From nothing to first output: ours is one request, which makes thread, workspace, container, steward and shell; it is timed until the answer is read, which comes when the command has ended, so it is later than the first output. `docker run` is timed until its first line, and until the program ends, which is when the container is removed. What was made is gone before the next has its turn.
";

pub(super) fn markdown(results: &Results) -> String {
    let warm = rows("`docker exec`", &results.warm);
    let first = rows("`docker run`, first line", &results.first);
    let parts = [
        heading(results),
        goals(&results.warm),
        format!("## One `true` in a warm container\n\n{warm}"),
        format!("## From no container to first output\n\n{first}"),
        METHOD.to_owned(),
    ];
    parts.join("\n")
}

fn heading(results: &Results) -> String {
    let Machine { kernel, cpu, cpus, memory_gib, bash, date, load } = &results.machine;
    let again = results.effort.choose("cargo xtask bench docker", "cargo xtask bench docker --quick --write");
    let busy = load.parse::<f64>().is_ok_and(|load| load > 0.5);
    let quiet = if busy { " The machine was not quiet." } else { "" };
    format!(
        "# Benchmarks of containers\n\n\
         Written by `{again}` on {date}; run it again rather than compare with other machines.\n\n\
         Linux {kernel}, {cpus} x {cpu}, {memory_gib} GiB, bash {bash}, {}; load average at the start {load}.{quiet}\n\n\
         The HTTP interface without containers is in [benchmarks-http.md](benchmarks-http.md); how to set a provider \
         of kind `docker` up in [providers.md](providers.md).\n",
        results.versions
    )
}

fn goals(warm: &[Timed]) -> String {
    let exec = p50(warm, Kind::Program);
    let rows = warm.iter().filter(|timed| timed.kind == Kind::Ours).filter_map(|timed| {
        let share = ratio(median(timed.samples.clone()), exec?);
        let verdict = if share <= MOST_OF_EXEC { "yes" } else { "**no**" };
        let place = timed.name.strip_prefix("**ours**, ").unwrap_or(timed.name);
        let goal = "p50 at most 0.05x that of `docker exec`";
        Some(vec![goal.to_owned(), place.to_owned(), share_of(share), verdict.to_owned()])
    });
    format!("## Goals\n\n{}", table(&["goal", "where", "measured", "met in this run"], &rows.collect::<Vec<_>>()))
}

fn rows(program: &str, all: &[Timed]) -> String {
    let (by_program, by_api) = (p50(all, Kind::Program), p50(all, Kind::Api));
    let rows = all.iter().map(|timed| {
        let middle = median(timed.samples.clone());
        let to = |other: Option<Duration>| other.map_or_else(String::new, |other| share_of(ratio(middle, other)));
        let slow = written(percentile(timed.samples.clone(), 99));
        let samples = timed.samples.len().to_string();
        vec![timed.name.to_owned(), written(middle), slow, to(by_program), to(by_api), samples]
    });
    let to_program = format!("p50 to {program}");
    table(&["", "p50", "p99", &to_program, "p50 to Engine API", "samples"], &rows.collect::<Vec<_>>())
}

fn p50(all: &[Timed], kind: Kind) -> Option<Duration> {
    all.iter().find(|timed| timed.kind == kind).map(|timed| median(timed.samples.clone()))
}

/// A goal of 0.05x can't be judged by two digits behind the point.
fn share_of(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.4}x") } else { times(ratio) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(kind: Kind, name: &'static str, micros: u64) -> Timed {
        Timed { kind, name, samples: vec![Duration::from_micros(micros); 3] }
    }

    #[test]
    fn the_goal_is_judged_by_the_program_docker() {
        let page =
            |ours| goals(&[timed(Kind::Program, "p", 10_000), timed(Kind::Api, "a", 1), timed(Kind::Ours, "o", ours)]);
        assert!(page(500).contains("0.0500x  | yes"), "{}", page(500));
        assert!(page(501).contains("0.0501x  | **no**"), "{}", page(501));
    }
}
