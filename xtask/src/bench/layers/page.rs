//! The page that a run becomes.

use super::numbers::{Numbers, Row};
use crate::bench::Effort;
use crate::bench::machine::Machine;
use crate::bench::report::table;
use crate::bench::sample::{ratio, times, written};
use crate::failed::{Failed, Result};
use std::time::Duration;

/// What a hundred thousand threads in the store may cost those who are at work.
const MOST_FOR_THREADS: f64 = 1.2;

const FEW: &str = "100 threads";
const MANY: &str = "100000 threads";
const BWRAP: &str = "`bwrap .. true`";
const NAMESPACE: &str = "**ours**, new thread on `namespace`";

const METHOD: &str = "\
## Method

- Everything is measured in one run, interleaved: within a table each row has its turn before the first has its next, sample by sample where one takes milliseconds, in rounds of hundreds where one takes microseconds. p50 and p99 are the medians of the rounds'; where there is one round of few samples, p99 is the slowest. Only ratios within one run mean something: the machine is shared and virtual.
- What measures is the server's code as a library, optimised, in a task on its runtime, where its handlers would run. No HTTP is in it. Stewards are the release build of `stead`; the store is a SQLite file on the disk that the journals are on.
- New thread: from `get_sandbox` of an id that nobody has used to the first byte of `echo`: rows written, instance made, shell started. The others in that table start a program that does nothing and wait for its end; they keep nothing.
- Back to work: from the call that finds something ended to the first byte of a command that only the old shell's state can print (40 variables, two functions, an alias, options). Pausing, killing and reaping are not in the time; how long reaping takes by itself is a row of its own.
- The plain client, the server's connection alone and the layers each have a shell of their own on the same instance.
- Threads in the store: each has had a session and a command, and keeps a state. Two servers side by side, in turn first. `toy` is a provider without processes, so what is left is the layers and the store.
";

pub(super) fn markdown(machine: &Machine, effort: Effort, numbers: &Numbers) -> Result<String> {
    let mut parts = vec![heading(machine, effort, numbers), goals(numbers)?];
    parts.push(section(numbers, "New thread to first output", "", &["start"])?);
    parts.push(section(
        numbers,
        "Back to work",
        "From the call to the first output, after:",
        &on_providers("life on"),
    )?);
    let commands = [on_providers("`true` on"), on_providers("`x=$RANDOM` on")].concat();
    let about = "`true` can't have changed anything; after `x=$RANDOM` the state is captured, and goes to the store behind the answer.";
    parts.push(section(numbers, "One command in a warm shell", about, &commands)?);
    let about = "`true`, as fast as each can, on one `local` instance; the rate is commands in a second, all together.";
    parts.push(section(numbers, "Eight at once", about, &["eight".to_owned()])?);
    let about =
        "`head -c 100M /dev/zero` in a warm shell on `local`, followed to the end; the rate is MiB in a second.";
    parts.push(section(numbers, "100 MiB of output", about, &["throughput".to_owned()])?);
    let about =
        "Commands are run in one warm sandbox on `local`. Cold is `get_sandbox` of a thread that is only in the store.";
    let tables = ["`true`", "`x=$RANDOM`", "cold on `toy`", "cold on `local`", "store opened", "server started"];
    parts.push(section(numbers, "Threads in the store", about, &tables.map(|table| format!("threads, {table}")))?);
    parts.push(METHOD.to_owned());
    Ok(parts.join("\n"))
}

fn on_providers(what: &str) -> Vec<String> {
    ["local", "namespace"].iter().map(|provider| format!("{what} `{provider}`")).collect()
}

fn heading(machine: &Machine, effort: Effort, numbers: &Numbers) -> String {
    let Machine { kernel, cpu, cpus, memory_gib, bash, date, load } = machine;
    let again = effort.choose("cargo xtask bench layers", "cargo xtask bench layers --quick --write");
    let absent = numbers.absent.iter().map(|absent| format!("- Not compared: {} ({}).\n", absent.what, absent.why));
    let absent = absent.collect::<Vec<_>>().concat();
    format!(
        "# Benchmarks of the layers\n\n\
         Written by `{again}` on {date}; run it again rather than compare with other machines. What a command costs in \
         the shell below is in [benchmarks.md](benchmarks.md).\n\n\
         Linux {kernel}, {cpus} x {cpu}, {memory_gib} GiB, bash {bash}; load average at the start {load}.\n\n{absent}"
    )
}

fn goals(numbers: &Numbers) -> Result<String> {
    let mut rows = Vec::new();
    for (what, name) in [
        ("`true` in a warm sandbox with 100,000 threads in the store at most 1.2x that with 100", "threads, `true`"),
        ("`x=$RANDOM`, likewise", "threads, `x=$RANDOM`"),
        ("`get_sandbox` of a cold thread on `toy`, likewise", "threads, cold on `toy`"),
        ("`get_sandbox` of a cold thread on `local`, likewise", "threads, cold on `local`"),
    ] {
        let over = compared(numbers, name, MANY, FEW)?;
        let verdict = if over <= MOST_FOR_THREADS { "yes" } else { "**no**" };
        rows.push(vec![what.to_owned(), times(over), verdict.to_owned()]);
    }
    if let Ok(over) = compared(numbers, "start", NAMESPACE, BWRAP) {
        let what = "new thread on `namespace` to its first output, beside `bwrap .. true`";
        rows.push(vec![what.to_owned(), times(over), "no limit set".to_owned()]);
    }
    Ok(format!("## Goals\n\n{}", table(&["goal", "measured", "met in this run"], &rows)))
}

fn compared(numbers: &Numbers, table: &str, of: &str, to: &str) -> Result<f64> {
    let p50 = |name| numbers.p50(table, name).ok_or_else(|| Failed::new(format!("`{name}` of `{table}` is missing")));
    Ok(ratio(p50(of)?, p50(to)?))
}

/// Tables under one heading; one that this machine has nothing to say to is left out.
fn section(numbers: &Numbers, title: &str, about: &str, tables: &[impl AsRef<str>]) -> Result<String> {
    let mut parts = vec![format!("## {title}\n")];
    if !about.is_empty() {
        parts.push(format!("{about}\n"));
    }
    let introduction = parts.len();
    for name in tables.iter().map(AsRef::as_ref) {
        let rows = numbers.table(name);
        let Some(first) = rows.first().map(|row| row.p50) else { continue };
        let head = if tables.len() > 1 { name } else { "" };
        parts.push(one_table(head, &rows, first));
    }
    if parts.len() > introduction {
        return Ok(parts.join("\n"));
    }
    Err(Failed::new(format!("nothing was measured for `{title}`")))
}

fn one_table(head: &str, rows: &[&Row], first: Duration) -> String {
    let rated = rows.iter().any(|row| row.rate.is_some());
    let mut columns = vec![head, "p50", "p99", "p50 to first"];
    columns.extend(rated.then_some("rate"));
    columns.push("samples");
    let cells = |row: &&Row| {
        let mut cells = vec![row.name.clone(), written(row.p50), written(row.p99), times(ratio(row.p50, first))];
        cells.extend(row.rate.map(|rate| format!("{rate:.0}/s")));
        cells.push(row.samples.to_string());
        cells
    };
    table(&columns, &rows.iter().map(cells).collect::<Vec<_>>())
}
