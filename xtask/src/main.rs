//! The chores of this repository, so that people and CI call the same thing.

#![expect(clippy::print_stdout, clippy::disallowed_macros, reason = "what a chore did is its output")]

mod agents;
mod bench;
mod campaign;
mod cargo;
mod failed;
mod gate;
mod load;
mod openapi;
mod steward;

use failed::{Failed, Result};
use std::error::Error;
use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask test [--quick]
       cargo xtask test --agents
       cargo xtask test --containers
       cargo xtask agents
       cargo xtask steward
       cargo xtask bench shell [--quick] [--write]
       cargo xtask bench layers [--quick] [--write]
       cargo xtask openapi
       cargo xtask load
       cargo xtask campaign [--rounds N] [--seed S] [--provider P]
       cargo xtask campaign --load [--commands N] [--seed S] [--provider P]
       cargo xtask bench http [--quick] [--write]
       cargo xtask bench agents [--quick] [--write]
       cargo xtask bench memory [--quick] [--write]
       cargo xtask bench docker [--quick] [--write]

  test           everything that must hold before a merge; installs or names what it needs
    --quick        without the long stress tests, and with two terminal agents instead of all
    --agents       only the terminal agents, all of them, without network
    --containers   only what has to do with containers, on engines that are started for it
    --description  only whether the server keeps to its description
  agents         installs the terminal agents that are tested against into ~/.cache/stead/agents
  steward        builds the static steward that is put into containers, where `target/*/stead` finds it
  bench shell    latency and throughput of our shells against other ways to drive one;
                 writes docs/benchmarks.md
    --quick        fewer samples, under a minute, writes nothing
    --write        writes docs/benchmarks.md even so
  bench layers   the same of threads, leases and the store above them;
                 writes docs/benchmarks-layers.md
    --quick        fewer samples, two minutes, writes nothing
    --write        writes docs/benchmarks-layers.md even so
  openapi        writes openapi.json, the description of the HTTP interface
  load           a thousand terminals and two hundred clients for a minute;
                 writes docs/load.md
  campaign       random commands while server, stewards, keepers and shells are killed; then every
                 field, byte and run is checked against what must be
    --rounds N     so many rounds (30)
    --seed S       the plan of another run; else a new one
    --provider P   only `local` or only `namespace`; else each in turn, with moves between them
    --first N      begins with this round of the plan (0)
    --fault KIND   kills only `server`, `steward`, `keeper`, `shell`, `instance` or `all`
    --release      of a release build
    --program FILE a `stead` that is built already
    --load         instead of that, many clients at one instance on a machine that is kept busy;
                   every field of every answer is checked
    --commands N   so many of them (20,000)
  bench http     a command by way of the HTTP interface, alone and in a crowd, and its output
                 as a stream; writes docs/benchmarks-http.md
    --quick        fewer samples, two minutes, writes nothing
    --write        writes docs/benchmarks-http.md even so
  bench agents   from a word of a terminal agent to who listens, and what an idle session costs;
                 writes docs/benchmarks-agents.md
    --quick        a debug build, writes nothing
    --write        writes docs/benchmarks-agents.md even so
  bench memory   memories of projects beside a map, a file and Redis, in-process and over HTTP,
                 and with a million of them; writes docs/benchmarks-memory.md
    --quick        fewer samples and entries, writes nothing
    --write        writes docs/benchmarks-memory.md even so
  bench docker   a command in a container beside `docker exec`, a new thread beside `docker run`;
                 needs root to start an engine; writes docs/benchmarks-docker.md
    --quick        fewer rounds, writes nothing
    --write        writes docs/benchmarks-docker.md even so
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprint!("xtask: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                eprint!(": {cause}");
                source = cause.source();
            }
            eprintln!();
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result {
    match arguments {
        ["test"] => gate::run(gate::Depth::Full),
        ["test", "--agents"] => gate::agents(),
        ["test", "--containers"] => gate::containers(),
        ["agents"] => agents::install(agents::Which::All).map(|did| println!("{did}")),
        ["test", "--description"] => gate::description(),
        ["test", "--quick"] => gate::run(gate::Depth::Quick),
        ["steward"] => steward::provide().map(|did| println!("{did}")),
        ["openapi"] => openapi::write(),
        ["load"] => load::run(),
        ["campaign", flags @ ..] => campaign::run(&campaign::Options::parse(flags)?),
        ["bench", "shell", flags @ ..] => bench::run(bench::Options::parse(flags)?),
        ["bench", "layers", flags @ ..] => bench::layers::run(bench::Options::parse(flags)?),
        ["bench", "memory", flags @ ..] => bench::memory::run(bench::Options::parse(flags)?),
        ["bench", "http", flags @ ..] => bench::http::run(bench::Options::parse(flags)?),
        ["bench", "docker", flags @ ..] => bench::docker::run(bench::Options::parse(flags)?),
        ["bench", "agents", flags @ ..] => agents::bench(flags),
        // Those below are how the benchmark calls itself: as its release builds, and as the far end of a pipe.
        ["bench-release", arguments @ ..] => bench::measure(arguments),
        ["bench-http-release", arguments @ ..] => bench::http::measure(arguments),
        ["bench-docker-release", arguments @ ..] => bench::docker::measure(arguments),
        ["bench-echo"] => bench::echo(),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        [] => Err(Failed::new(format!("say what to do\n\n{USAGE}"))),
        other => Err(Failed::new(format!("`{}` is not a chore\n\n{USAGE}", other.join(" ")))),
    }
}
