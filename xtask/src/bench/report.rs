//! The page that a run becomes.

use super::Effort;
use super::goals::{self, Verdict};
use super::latency::Table;
use super::machine::Machine;
use super::pipe;
use super::restart::Restart;
use super::sample::{ratio, times, written};
use super::startup::Startup;
use super::throughput::Throughput;

#[derive(Debug)]
pub(super) struct Results {
    pub(super) machine: Machine,
    pub(super) effort: Effort,
    pub(super) tables: Vec<Table>,
    pub(super) throughput: Throughput,
    pub(super) restart: Restart,
    pub(super) startup: Vec<Startup>,
}

const METHOD: &str = "\
## Method

- Every mechanism is measured in the same run, in interleaved rounds; p50 and p99 are the medians of the rounds' p50 and p99. With few samples (the slow mechanisms) a round's p99 is its slowest sample. Only ratios within one run mean something: the machine is shared and virtual.
- The client that measures and the steward are release builds. Ours is the whole way of a command: a request on the unix socket of a real steward, the command run in a long-lived bash, its output and end written to the journal, the reply decoded.
- Placement decides what a pipe costs: within one CPU it is a context switch, between two it is a wake-up of an idle CPU, which a virtual machine pays dearly for. So there is a table for the client on one CPU and everything else on another, one for everything on one CPU, and one for what the scheduler makes of it.
- State: `true` and `cd .` can't have changed more than the directory, which is read from `/proc` after every command, so no capture is taken; what even that reading costs can't be told apart from outside. `: ; x=same` and `x=$RANDOM` are captured in the shell; the former finds what was there before.
- The FIFO mechanism is a minimal re-creation: two FIFOs and two labelling subshells for each command, the exit code in a file that the client looks for every 50 ms.
- tmux: one `send-keys`, then `capture-pane` without pause until the marker shows; each is a process.
";

pub(super) fn markdown(results: &Results) -> String {
    let parts = [
        heading(results),
        goals(results),
        results.tables.iter().map(latency).collect::<Vec<_>>().join("\n"),
        throughput(&results.throughput),
        restart(&results.restart),
        startup(&results.startup),
        METHOD.to_owned(),
    ];
    parts.join("\n")
}

fn heading(results: &Results) -> String {
    let Machine { kernel, cpu, cpus, memory_gib, bash, date, load } = &results.machine;
    let again = results.effort.choose("cargo xtask bench shell", "cargo xtask bench shell --quick --write");
    format!(
        "# Benchmarks\n\n\
         Written by `{again}` on {date}; run it again rather than compare with other machines.\n\n\
         Linux {kernel}, {cpus} x {cpu}, {memory_gib} GiB, bash {bash}; load average at the start {load}.\n\n\
         What threads, leases and the store add to a command is in [benchmarks-layers.md](benchmarks-layers.md).\n"
    )
}

fn goals(results: &Results) -> String {
    let rows = goals::all(results).into_iter().map(|goal| {
        let verdict = match goal.verdict {
            Verdict::Met => "yes",
            Verdict::Missed => "**no**",
        };
        vec![goal.text.to_owned(), goal.place.to_owned(), goal.measured, verdict.to_owned()]
    });
    let table = table(&["goal", "where", "measured", "met in this run"], &rows.collect::<Vec<_>>());
    format!("## Goals\n\n{table}")
}

fn latency(table: &Table) -> String {
    let floor = table.p50(pipe::NAME);
    let rows = table.rows.iter().map(|row| {
        let over = floor.map_or_else(String::new, |floor| times(ratio(row.p50, floor)));
        vec![row.name.to_owned(), written(row.p50), written(row.p99), over, row.samples.to_string()]
    });
    let rows = self::table(&["mechanism", "p50", "p99", "p50 to pipe", "samples"], &rows.collect::<Vec<_>>());
    format!("## One `true`, {}: {}\n\n{rows}", table.place, table.about)
}

fn throughput(throughput: &Throughput) -> String {
    let row = |name: &str, taken| {
        let share = times(ratio(throughput.to_file, taken));
        vec![name.to_owned(), written(taken), format!("{:.0} MiB/s", throughput.rate(taken)), share]
    };
    let rows = [
        row("`head | cat > file`", throughput.to_file),
        row("**ours**, `head | cat` into the journal", throughput.to_journal),
        row("**ours**, `head` into the journal", throughput.in_place_of_cat),
    ];
    let table = table(&["", "time", "rate", "to `cat > file`"], &rows);
    let size = throughput.mebibytes;
    format!(
        "## Throughput\n\n`head` is `head -c {size}M /dev/zero`; unpinned, on one file system that is synced before \
         each, median of three interleaved rounds. Nobody follows the output.\n\n{table}"
    )
}

fn restart(restart: &Restart) -> String {
    let row = |name: &str, taken| vec![name.to_owned(), written(taken), times(ratio(taken, restart.bare))];
    let rows = vec![
        row("bare `bash --norc --noprofile -i`, spawn to first answer", restart.bare),
        row("**ours**, reply to `exit 0` until reply to `true`, less a plain `true`", restart.restored),
        row("**ours**, the same from sending `exit 0` on, less two plain `true`", restart.with_exit),
    ];
    let table = table(&["", "p50", "to bare bash"], &rows);
    let samples = restart.samples;
    format!(
        "## From a dead shell to a restored one\n\nUnpinned, {samples} times, with 40 variables, two functions, an \
         alias and changed options to restore. The steward starts the new shell before it answers the command that \
         ended the old one, so the second row leaves most of the work out and the goal is judged by the third, which has \
         also the end of the old shell in it.\n\n{table}"
    )
}

fn startup(builds: &[Startup]) -> String {
    let rows = builds.iter().map(|build| {
        let kib = |kib: u32| format!("{kib} KiB");
        let samples = build.samples.to_string();
        let resident = [kib(build.steward), kib(build.keeper)];
        [vec![build.build.to_owned(), written(build.p50), written(build.p99), samples], resident.to_vec()].concat()
    });
    let columns = ["build", "start p50", "p99", "samples", "steward resident", "keeper resident"];
    let table = table(&columns, &rows.collect::<Vec<_>>());
    format!("## Starting a steward\n\n`steward start` over a fresh directory until it returns, no shell.\n\n{table}")
}

/// A markdown table that is also readable as text.
pub(super) fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    // A bar ends a cell even inside backticks.
    let escaped = |cells: Vec<&str>| cells.iter().map(|cell| cell.replace('|', r"\|")).collect();
    let mut lines: Vec<Vec<String>> = vec![escaped(columns.to_vec())];
    lines.extend(rows.iter().map(|row| escaped(row.iter().map(String::as_str).collect())));
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns.len()).map(width).collect();
    let mut text: Vec<_> = lines
        .iter()
        .map(|line| {
            let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
        })
        .collect();
    let rule: Vec<_> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
    text.insert(1, format!("|{}|\n", rule.join("|")));
    text.concat()
}
