//! What we hold ourselves to, and whether this run got there.

use super::latency::Table;
use super::report::Results;
use super::sample::{ratio, times, written};
use super::{fifo, ours, pipe};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Goal {
    pub(super) text: &'static str,
    /// Where it was measured.
    pub(super) place: &'static str,
    pub(super) measured: String,
    pub(super) verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Met,
    Missed,
}

impl Verdict {
    fn of(met: bool) -> Self {
        if met { Self::Met } else { Self::Missed }
    }
}

const MOST_OVER_PIPE: f64 = 6.0;
const LEAST_OVER_POLLED: f64 = 50.0;
const MOST_FOR_STATE: Duration = Duration::from_micros(50);
const LEAST_OF_CAT: f64 = 0.8;
const MOST_OVER_BARE_BASH: f64 = 2.0;
const LONGEST_START: Duration = Duration::from_millis(10);
/// 4 MB, in the KiB that the kernel counts in.
const MOST_RESIDENT: u32 = 4_000_000 / 1024;

pub(super) fn all(results: &Results) -> Vec<Goal> {
    let mut goals: Vec<_> = results.tables.iter().flat_map(of_latency).collect();
    let throughput = &results.throughput;
    for (text, taken) in [
        ("`head | cat` into the journal at least 0.8x as fast as `head | cat > file`", throughput.to_journal),
        ("the same with the steward in the place of `cat`", throughput.in_place_of_cat),
    ] {
        let share = ratio(throughput.to_file, taken);
        let verdict = Verdict::of(share >= LEAST_OF_CAT);
        goals.push(Goal { text, place: "unpinned", measured: times(share), verdict });
    }
    let restart = ratio(results.restart.with_exit, results.restart.bare);
    goals.push(Goal {
        text: "dead shell to restored shell at most 2x a bare bash",
        place: "unpinned",
        measured: times(restart),
        verdict: Verdict::of(restart <= MOST_OVER_BARE_BASH),
    });
    for startup in &results.startup {
        goals.push(Goal {
            text: "steward started in at most 10 ms",
            place: startup.build,
            measured: written(startup.p50),
            verdict: Verdict::of(startup.p50 <= LONGEST_START),
        });
        goals.push(Goal {
            text: "steward and keeper without a shell at most 4 MB resident, each",
            place: startup.build,
            measured: format!("{} and {} KiB", startup.steward, startup.keeper),
            verdict: Verdict::of(startup.steward.max(startup.keeper) <= MOST_RESIDENT),
        });
    }
    goals
}

fn of_latency(table: &Table) -> Vec<Goal> {
    let mut goals = Vec::new();
    let mut add = |goal, measured, met| {
        goals.push(Goal { text: goal, place: table.place, measured, verdict: Verdict::of(met) });
    };
    let Some(ours) = table.p50(ours::TRUE) else {
        return goals;
    };
    if let Some(pipe) = table.p50(pipe::NAME) {
        let over = ratio(ours, pipe);
        add("`true` at most 6x the raw pipe round trip", times(over), over <= MOST_OVER_PIPE);
    }
    if let Some(polled) = table.p50(fifo::NAME) {
        let over = ratio(polled, ours);
        add("`true` at least 50x faster than the polled FIFOs", times(over), over >= LEAST_OVER_POLLED);
    }
    if let Some(directory) = table.p50(ours::DIRECTORY) {
        let added = directory.saturating_sub(ours);
        let goal = "state adds at most 50 µs where nothing can have changed (`cd .` over `true`)";
        add(goal, written(added), added <= MOST_FOR_STATE);
    }
    if let Some(same) = table.p50(ours::SAME) {
        let added = same.saturating_sub(ours);
        let goal = "the same, read strictly: a capture that finds nothing new (`: ; x=same` over `true`)";
        add(goal, written(added), added <= MOST_FOR_STATE);
    }
    goals
}
