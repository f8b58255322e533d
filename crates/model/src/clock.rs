//! Moments. Nothing in this crate knows what time it is: whoever asks says so.

use std::fmt;
use std::time::Duration;

/// Milliseconds since the epoch, UTC. Written as RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// How long after `earlier` this is; nothing if it is not (a clock was set back).
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = i64::try_from(self.0).unwrap_or(i64::MAX);
        match jiff::Timestamp::from_millisecond(millis) {
            Ok(moment) => write!(f, "{moment:.3}"),
            // Past the year 9999, which only a policy without end can name.
            Err(_) => f.write_str("9999-12-31T23:59:59.999Z"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_in_utc_with_milliseconds() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp(1_763_251_200_042).to_string(), "2025-11-16T00:00:00.042Z");
        assert_eq!(Timestamp(u64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn a_clock_that_was_set_back_gives_no_negative_time() {
        assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
        assert_eq!(Timestamp(9).since(Timestamp(5)), Duration::from_millis(4));
        assert_eq!(Timestamp(u64::MAX).after(Duration::from_secs(1)), Timestamp(u64::MAX));
    }
}
