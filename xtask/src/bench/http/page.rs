//! The page that a run becomes.

use super::crowd::{self, Crowd};
use super::stream::{self, Streams};
use crate::bench::Effort;
use crate::bench::machine::Machine;
use crate::bench::report::table;
use crate::bench::sample::{ratio, times, written};

#[derive(Debug)]
pub(super) struct Results {
    pub(super) machine: Machine,
    pub(super) effort: Effort,
    /// Whom a thread gets that names nobody.
    pub(super) provider: String,
    pub(super) crowds: Vec<Crowd>,
    pub(super) streams: Vec<Streams>,
}

const MOST_OF_SPAWN: f64 = 0.4;
const LEAST_OVER_POLLED: f64 = 50.0;
const LEAST_OF_CAT: f64 = 0.5;

const METHOD: &str = "\
## Method

- Everything is measured in one run, in interleaved rounds: within a table each row has its turn before the first has its next. p50 and p99 are the medians of the rounds'; so is the rate. Only ratios within one run mean something: the machine is shared and virtual, and client, server, stewards and shells have its CPUs together.
- The server is the release build of `stead serve` over a fresh data directory, with its defaults. The client is a release build of a minimal HTTP/1.1 client: one connection for each thread, kept open through a round, one request at a time. A round lasts two seconds, in which every client asks as soon as it is answered.
- Ours is the whole way of a command: token checked (TCP), request decoded, the command run in a long-lived bash by its steward, output and end in its journal, record on its way to the store, state acknowledged, answer read to its last byte. Each client has a stead thread, and so a sandbox, of its own.
- `bash -c true` is started by as many threads at once and keeps nothing. `GET /healthz` is what HTTP alone costs here.
- The polled mechanism is a minimal re-creation: two FIFOs and two labelling subshells for each command, the exit code in a file that is looked for every 50 ms, behind a server that does nothing but read a request and write an answer; a shell for each connection.
- In a crowd the CPUs are the limit: p50 is about the number of clients divided by the rate. The polled mechanism mostly sleeps, so a few of it share a CPU for nothing; its p50 of some 50 ms with 32 clients, divided by 50, would be 30,000 commands a second of two CPUs. Spawns are not served in turn: with 200 at once half of them are quick and the last ones take a second, so there p50 says little, and the rates and p99 say more.
- Streams: lines as a build prints them, 16 MiB of them, printed again and again by `cat` in a warm shell; the client reads to the end and checks how much it was and how it ended. The baseline is the same `cat` with a socket of the same kind as its output, read with the same buffer. Ours is on disk when it is told, as JSON in numbered events; median of five rounds, before each the file system is synced, and twice the memory that it will take is used once: a virtual machine may have to have it back from its host, at a third of the speed that is measured here.
";

pub(super) fn markdown(results: &Results) -> String {
    let mut parts = vec![heading(results), goals(results)];
    parts.extend(results.crowds.iter().map(crowd));
    parts.extend(results.streams.iter().map(streams));
    parts.push(METHOD.to_owned());
    parts.join("\n")
}

fn heading(results: &Results) -> String {
    let Machine { kernel, cpu, cpus, memory_gib, bash, date, load } = &results.machine;
    let again = results.effort.choose("cargo xtask bench http", "cargo xtask bench http --quick --write");
    let busy = load.parse::<f64>().is_ok_and(|load| load > 0.5);
    let quiet = if busy { " The machine was not quiet." } else { "" };
    format!(
        "# Benchmarks of the HTTP interface\n\n\
         Written by `{again}` on {date}; run it again rather than compare with other machines.\n\n\
         Linux {kernel}, {cpus} x {cpu}, {memory_gib} GiB, bash {bash}; load average at the start {load}.{quiet} \
         A thread that names no provider gets `{}` here.\n\n\
         The steward alone is in [benchmarks.md](benchmarks.md), the layers between the two in \
         [benchmarks-layers.md](benchmarks-layers.md).\n",
        results.provider
    )
}

fn goals(results: &Results) -> String {
    let mut rows = Vec::new();
    let mut add = |goal: &str, place: String, measured: f64, met: bool| {
        let verdict = if met { "yes" } else { "**no**" };
        rows.push(vec![goal.to_owned(), place, times(measured), verdict.to_owned()]);
    };
    for crowd in &results.crowds {
        let spawn = crowd.p50(crowd::Kind::Spawn);
        let polled = crowd.p50(crowd::Kind::Polled);
        for row in crowd.rows.iter().filter(|row| row.kind == crowd::Kind::Ours) {
            let place = || format!("{}, {} at once", plain(&row.name), crowd.clients);
            if let Some(share) = spawn.map(|spawn| ratio(row.p50, spawn)) {
                add("p50 at most 0.4x that of `bash -c true`", place(), share, share <= MOST_OF_SPAWN);
            }
            if let Some(ahead) = polled.map(|polled| ratio(polled, row.p50)) {
                add("p50 at least 50x ahead of the polled FIFOs", place(), ahead, ahead >= LEAST_OVER_POLLED);
            }
        }
    }
    for streams in &results.streams {
        let Some(cat) = streams.rows.iter().find(|row| row.kind == stream::Kind::Cat) else { continue };
        for row in streams.rows.iter().filter(|row| row.kind == stream::Kind::Events) {
            let share = ratio(cat.taken, row.taken);
            let place = format!("{}, {}", plain(&row.name), streams.socket);
            add("events at least 0.5x as fast as `cat` into a socket", place, share, share >= LEAST_OF_CAT);
        }
    }
    format!("## Goals\n\n{}", table(&["goal", "where", "measured", "met in this run"], &rows))
}

fn plain(name: &str) -> &str {
    name.strip_prefix("**ours**, ").unwrap_or(name)
}

fn crowd(crowd: &Crowd) -> String {
    let (spawn, polled) = (crowd.p50(crowd::Kind::Spawn), crowd.p50(crowd::Kind::Polled));
    let rows = crowd.rows.iter().map(|row| {
        let to_spawn = spawn.map_or_else(String::new, |spawn| times(ratio(row.p50, spawn)));
        let ahead = polled.map_or_else(String::new, |polled| times(ratio(polled, row.p50)));
        let rate = format!("{:.0}/s", row.rate);
        vec![row.name.clone(), written(row.p50), written(row.p99), to_spawn, ahead, rate, row.samples.to_string()]
    });
    let columns = ["", "p50", "p99", "p50 to spawn", "ahead of polled", "rate", "samples"];
    let table = table(&columns, &rows.collect::<Vec<_>>());
    let clients = match crowd.clients {
        1 => "one client".to_owned(),
        clients => format!("{clients} clients at once"),
    };
    format!("## One `true`, {clients}\n\n{table}")
}

fn streams(streams: &Streams) -> String {
    let cat = streams.rows.iter().find(|row| row.kind == stream::Kind::Cat).map(|row| row.taken);
    let rows = streams.rows.iter().map(|row| {
        let share = cat.map_or_else(String::new, |cat| times(ratio(cat, row.taken)));
        let rate = f64::from(streams.mebibytes) / row.taken.as_secs_f64();
        vec![row.name.clone(), written(row.taken), format!("{rate:.0} MiB/s"), share]
    });
    let table = table(&["", "time", "rate", "to `cat`"], &rows.collect::<Vec<_>>());
    format!("## {} MiB of lines, {}\n\n{table}", streams.mebibytes, streams.socket)
}
