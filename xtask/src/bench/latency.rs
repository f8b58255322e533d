//! How long one trivial command takes, by every mechanism, in one placement.

use super::fifo::Fifo;
use super::ours::Ours;
use super::pipe::Pipe;
use super::place::Place;
use super::sample::{median, percentile};
use super::sentinel::Sentinel;
use super::spawn::Spawn;
use super::steward::Steward;
use super::tmux::Tmux;
use super::{Effort, Subjects};
use crate::failed::{Result, While};
use std::time::{Duration, Instant};

/// A way to have a command run and to know that it has.
pub(super) trait Mechanism {
    fn name(&self) -> &'static str;

    /// How often to measure it in a full round: more where it is quick.
    fn samples(&self) -> usize;

    fn once(&mut self) -> Result;
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) samples: usize,
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) place: &'static str,
    pub(super) about: &'static str,
    pub(super) rows: Vec<Row>,
}

impl Table {
    /// The median of a mechanism, if it was measured.
    pub(super) fn p50(&self, name: &str) -> Option<Duration> {
        self.rows.iter().find(|row| row.name == name).map(|row| row.p50)
    }
}

/// What a quick round leaves of the samples of a full one, and the fewest that still have a median.
const QUICK_SHARE: usize = 5;
const FEWEST: usize = 5;

pub(super) fn measure(place: &Place, subjects: &Subjects, effort: Effort) -> Result<Table> {
    let rounds = effort.choose(6, 4);
    place.take()?;
    let steward = Steward::start(&subjects.steward, place, &subjects.scratch)?;
    let mut mechanisms: Vec<Box<dyn Mechanism>> =
        vec![Box::new(Pipe::start(place)?), Box::new(Sentinel::start(place)?), Box::new(Spawn::new(place))];
    for ours in Ours::all(&steward)? {
        mechanisms.push(Box::new(ours));
    }
    match Tmux::start(place)? {
        Some(tmux) => mechanisms.push(Box::new(tmux)),
        None => eprintln!("NO `tmux` HERE: it is left out of the comparison"),
    }
    mechanisms.push(Box::new(Fifo::start(place, &subjects.scratch)?));

    let mut measured: Vec<Vec<Vec<Duration>>> = mechanisms.iter().map(|_| Vec::new()).collect();
    for round in 1..=rounds {
        eprintln!("{}: round {round} of {rounds}", place.name);
        for (mechanism, rounds) in mechanisms.iter_mut().zip(&mut measured) {
            let full = mechanism.samples();
            let samples = effort.choose(full, full / QUICK_SHARE).max(FEWEST);
            let name = mechanism.name();
            rounds.push(sample(mechanism.as_mut(), samples).or_failed(format!("`{name}` failed"))?);
        }
    }
    let rows = mechanisms.iter().zip(measured).map(|(mechanism, rounds)| Row {
        name: mechanism.name(),
        p50: median(rounds.iter().map(|samples| percentile(samples.clone(), 50)).collect()),
        p99: median(rounds.iter().map(|samples| percentile(samples.clone(), 99)).collect()),
        samples: rounds.iter().map(Vec::len).sum(),
    });
    Ok(Table { place: place.name, about: place.about, rows: rows.collect() })
}

/// One round of one mechanism. The first few find cold caches left by the one before and aren't counted.
fn sample(mechanism: &mut dyn Mechanism, samples: usize) -> Result<Vec<Duration>> {
    for _ in 0..samples.div_ceil(20) {
        mechanism.once()?;
    }
    let mut durations = Vec::with_capacity(samples);
    for _ in 0..samples {
        let begun = Instant::now();
        mechanism.once()?;
        durations.push(begun.elapsed());
    }
    Ok(durations)
}
