//! The page that a run becomes.

use crate::bench::Effort;
use crate::bench::layers::{Numbers, Row};
use crate::bench::machine::Machine;
use crate::bench::report::table;
use crate::bench::sample::{ratio, times, written};
use crate::failed::{Failed, Result};
use std::time::Duration;

const MOST_IN_RAM: Duration = Duration::from_nanos(500);
const MOST_ON_DISK: Duration = Duration::from_micros(36);
const MOST_OVER_IDLE: f64 = 3.0;

const METHOD: &str = "\
## Method

- Everything is measured in one run, in interleaved rounds; p50 and p99 are the medians of the rounds' p50 and p99. Only ratios within one run mean something: the machine is shared and virtual. What it takes to look at the clock, twice, is in every number.
- In-process: the server's code as a library, release build. Ours is the whole way from a path as text through the table of routes to the bytes; \"by its key\" is the store alone. Values have 200 bytes, a thousand files in turn.
- A hot write is in the journal, by one `write(2)`, before it returns. A persistent write is a new file that replaces the old one and is synced first, as every file is that the server replaces; `std::fs::write` writes in place and syncs nothing.
- Redis: `redis-server` with an append-only file and no fsync, which is as durable as our journal; one connection over its unix socket, one request at a time.
- HTTP: the release build of `stead serve`, one connection over its unix socket, one request at a time; a minimal client.
- Many entries: 100 bytes each. A thread reads at random while another writes the snapshot.
";

pub(super) fn markdown(machine: &Machine, effort: Effort, numbers: &Numbers) -> Result<String> {
    let count = effort.choose("a million", "a hundred thousand");
    Ok([
        heading(machine, effort, numbers),
        goals(numbers)?,
        section(numbers, "Reading, in-process", "read", "`HashMap::get` and a copy"),
        section(numbers, "Writing, in-process", "write", "`HashMap::insert`"),
        section(numbers, "Over HTTP", "http", "`GET /api/version`: a request that does nothing"),
        section(numbers, &format!("With {count} hot entries"), "million", "**ours**, a read, idle"),
        METHOD.to_owned(),
    ]
    .join("\n"))
}

fn heading(machine: &Machine, effort: Effort, numbers: &Numbers) -> String {
    let Machine { kernel, cpu, cpus, memory_gib, date, load, .. } = machine;
    let again = effort.choose("cargo xtask bench memory", "cargo xtask bench memory --quick --write");
    let absent = numbers.absent.iter().map(|absent| format!("- Not compared: {} ({}).\n", absent.what, absent.why));
    let absent = absent.collect::<Vec<_>>().concat();
    format!(
        "# Benchmarks of memories\n\n\
         Written by `{again}` on {date}; run it again rather than compare with other machines.\n\n\
         Linux {kernel}, {cpus} x {cpu}, {memory_gib} GiB; load average at the start {load}.\n\n{absent}"
    )
}

fn row<'a>(numbers: &'a Numbers, table: &str, name: &str) -> Result<&'a Row> {
    let found = numbers.table(table).into_iter().find(|row| row.name == name);
    found.ok_or_else(|| Failed::new(format!("`{name}` was not measured")))
}

fn goals(numbers: &Numbers) -> Result<String> {
    let mut rows = Vec::new();
    let mut add = |goal: &str, measured: String, met: bool| {
        rows.push(vec![goal.to_owned(), measured, if met { "yes" } else { "**no**" }.to_owned()]);
    };
    for (name, most) in [
        ("**ours**, hot", MOST_IN_RAM),
        ("**ours**, state", MOST_IN_RAM),
        ("**ours**, persistent", MOST_ON_DISK),
        ("**ours**, workspace", MOST_ON_DISK),
    ] {
        let p50 = row(numbers, "read", name)?.p50;
        let short = name.trim_start_matches("**ours**, ");
        add(&format!("{short} read at most {}", written(most)), written(p50), p50 <= most);
    }
    let idle = row(numbers, "million", "**ours**, a read, idle")?.p99;
    let during = row(numbers, "million", "**ours**, a read, while a snapshot is written")?.p99;
    let over = ratio(during, idle);
    add("p99 of hot reads during a snapshot at most 3x of idle", times(over), over <= MOST_OVER_IDLE);
    Ok(format!("## Goals\n\n{}", table(&["goal", "measured", "met in this run"], &rows)))
}

fn section(numbers: &Numbers, title: &str, name: &str, base: &str) -> String {
    let base = numbers.table(name).into_iter().find(|row| row.name == base).map(|row| row.p50);
    let rows = numbers.table(name).into_iter().map(|row| {
        let over = base.map_or_else(String::new, |base| times(ratio(row.p50, base)));
        vec![row.name.clone(), written(row.p50), written(row.p99), over, row.samples.to_string()]
    });
    let rows = table(&["", "p50", "p99", "to the first", "samples"], &rows.collect::<Vec<_>>());
    format!("## {title}\n\n{rows}")
}
