//! Medians and percentiles, and how they are written.

use std::time::Duration;

/// The nearest-rank percentile; with few samples the 99th is the greatest.
pub(super) fn percentile(mut samples: Vec<Duration>, percent: usize) -> Duration {
    samples.sort_unstable();
    let rank = (samples.len() * percent).div_ceil(100).max(1);
    samples.get(rank - 1).copied().unwrap_or_default()
}

pub(super) fn median(samples: Vec<Duration>) -> Duration {
    percentile(samples, 50)
}

pub(super) fn ratio(of: Duration, to: Duration) -> f64 {
    of.as_secs_f64() / to.as_secs_f64()
}

/// Three digits are what such a measurement is good for.
pub(super) fn written(duration: Duration) -> String {
    let micros = duration.as_secs_f64() * 1e6;
    if micros < 1e3 {
        digits(micros, "µs")
    } else if micros < 1e6 {
        digits(micros / 1e3, "ms")
    } else {
        digits(micros / 1e6, "s")
    }
}

pub(super) fn times(ratio: f64) -> String {
    digits(ratio, "x").replace(' ', "")
}

fn digits(value: f64, unit: &str) -> String {
    if value < 10.0 {
        format!("{value:.2} {unit}")
    } else if value < 100.0 {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let samples: Vec<_> = (1..=200).rev().map(Duration::from_micros).collect();
        assert_eq!(median(samples.clone()), Duration::from_micros(100));
        assert_eq!(percentile(samples, 99), Duration::from_micros(198));
        assert_eq!(percentile(vec![Duration::from_secs(1)], 99), Duration::from_secs(1));
        assert_eq!(median(Vec::new()), Duration::ZERO);
    }

    #[test]
    fn durations_are_written_with_three_digits() {
        assert_eq!(written(Duration::from_nanos(2_345)), "2.35 µs");
        assert_eq!(written(Duration::from_micros(47)), "47.0 µs");
        assert_eq!(written(Duration::from_micros(50_231)), "50.2 ms");
        assert_eq!(times(612.4), "612x");
    }
}
