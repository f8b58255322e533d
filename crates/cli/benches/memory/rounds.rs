//! Interleaved rounds: every subject has its turn before the first has its next.

use crate::Result;
use std::hint::black_box;
use std::time::{Duration, Instant};

pub(crate) type Once<'a> = Box<dyn FnMut(usize) -> Result<Option<usize>> + 'a>;

pub(crate) struct Subject<'a> {
    name: &'static str,
    samples: usize,
    once: Once<'a>,
    p50: Vec<Duration>,
    p99: Vec<Duration>,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(
        name: &'static str,
        samples: usize,
        once: impl FnMut(usize) -> Result<Option<usize>> + 'a,
    ) -> Self {
        Self { name, samples, once: Box::new(once), p50: Vec::new(), p99: Vec::new() }
    }
}

pub(crate) struct Rounds {
    pub(crate) table: &'static str,
    pub(crate) rounds: usize,
}

impl Rounds {
    pub(crate) fn run(&self, mut subjects: Vec<Subject<'_>>) -> Result {
        for round in 0..self.rounds {
            for subject in &mut subjects {
                let mut taken = Vec::with_capacity(subject.samples);
                for sample in 0..subject.samples {
                    // Another file each time, and none that the one before it has just brought near.
                    let number = (round * subject.samples + sample).wrapping_mul(7919);
                    let begun = Instant::now();
                    black_box((subject.once)(black_box(number))?);
                    taken.push(begun.elapsed());
                }
                subject.p50.push(percentile(&mut taken, 50));
                subject.p99.push(percentile(&mut taken, 99));
            }
        }
        for mut subject in subjects {
            let samples = subject.samples * self.rounds;
            print(
                self.table,
                subject.name,
                percentile(&mut subject.p50, 50),
                percentile(&mut subject.p99, 50),
                samples,
            );
        }
        Ok(())
    }
}

pub(crate) fn print(table: &str, name: &str, p50: Duration, p99: Duration, samples: usize) {
    println!("row\t{table}\t{name}\t{}\t{}\t{samples}", p50.as_nanos(), p99.as_nanos());
}

pub(crate) fn percentile(samples: &mut [Duration], percent: usize) -> Duration {
    samples.sort_unstable();
    let rank = (samples.len() * percent).div_ceil(100).max(1);
    samples.get(rank - 1).copied().unwrap_or_default()
}
