//! Samples, collected by row and printed as one line for each.

use std::time::Duration;

/// The samples of one comparison, in rounds.
#[derive(Debug)]
pub(crate) struct Table {
    name: String,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    name: String,
    rounds: Vec<Vec<Duration>>,
    rates: Vec<f64>,
}

impl Table {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), rows: Vec::new() }
    }

    /// Samples that have been taken one after another.
    pub(crate) fn add_round(&mut self, row: &str, samples: Vec<Duration>) {
        self.row(row).rounds.push(samples);
    }

    /// A sample that is a round by itself wouldn't have percentiles, so all of these are one.
    pub(crate) fn add(&mut self, row: &str, sample: Duration) {
        let row = self.row(row);
        match row.rounds.last_mut() {
            Some(round) => round.push(sample),
            None => row.rounds.push(vec![sample]),
        }
    }

    pub(crate) fn add_rate(&mut self, row: &str, per_second: f64) {
        self.row(row).rates.push(per_second);
    }

    /// p50 and p99 are the medians of those of the rounds.
    pub(crate) fn print(mut self) {
        for row in &mut self.rows {
            let of_rounds = |percent| percentile(row.rounds.iter().map(|round| percentile(round.clone(), percent)), 50);
            let samples: usize = row.rounds.iter().map(Vec::len).sum();
            let (p50, p99) = (of_rounds(50).as_nanos(), of_rounds(99).as_nanos());
            println!("row\t{}\t{}\t{p50}\t{p99}\t{samples}", self.name, row.name);
            row.rates.sort_by(f64::total_cmp);
            if let Some(rate) = row.rates.get(row.rates.len() / 2) {
                println!("rate\t{}\t{}\t{rate}", self.name, row.name);
            }
        }
    }

    fn row(&mut self, name: &str) -> &mut Row {
        let at = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            self.rows.push(Row { name: name.to_owned(), rounds: Vec::new(), rates: Vec::new() });
            self.rows.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "it was found or made just now")]
        &mut self.rows[at]
    }
}

/// The nearest-rank percentile; with few samples the 99th is the greatest.
fn percentile(samples: impl IntoIterator<Item = Duration>, percent: usize) -> Duration {
    let mut samples: Vec<_> = samples.into_iter().collect();
    samples.sort_unstable();
    let rank = (samples.len() * percent).div_ceil(100).max(1);
    samples.get(rank - 1).copied().unwrap_or_default()
}

/// Says that something isn't compared, and why.
pub(crate) fn absent(what: &str, why: &str) {
    println!("absent\t{what}\t{}", why.split_whitespace().collect::<Vec<_>>().join(" "));
}
