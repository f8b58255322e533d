//! What the measuring program prints, read back.

use crate::failed::{Result, While};
use std::time::Duration;

#[derive(Debug, Default, PartialEq)]
pub(in crate::bench) struct Numbers {
    rows: Vec<Row>,
    pub(in crate::bench) absent: Vec<Absent>,
}

#[derive(Debug, Clone, PartialEq)]
pub(in crate::bench) struct Row {
    table: String,
    pub(in crate::bench) name: String,
    pub(in crate::bench) p50: Duration,
    pub(in crate::bench) p99: Duration,
    pub(in crate::bench) samples: u32,
    /// Commands or mebibytes in a second, where that was counted.
    pub(in crate::bench) rate: Option<f64>,
}

/// Something that this machine can't be compared with.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::bench) struct Absent {
    pub(in crate::bench) what: String,
    pub(in crate::bench) why: String,
}

impl Numbers {
    pub(in crate::bench) fn read(text: &str) -> Result<Self> {
        let mut numbers = Self::default();
        for line in text.lines() {
            numbers.add(line).or_failed(format!("`{line}` is not a measurement"))?;
        }
        Ok(numbers)
    }

    fn add(&mut self, line: &str) -> Option<()> {
        match line.split('\t').collect::<Vec<_>>().as_slice() {
            ["row", table, name, p50, p99, samples] => self.rows.push(Row {
                table: (*table).to_owned(),
                name: (*name).to_owned(),
                p50: Duration::from_nanos(p50.parse().ok()?),
                p99: Duration::from_nanos(p99.parse().ok()?),
                samples: samples.parse().ok()?,
                rate: None,
            }),
            ["rate", table, name, rate] => {
                let row = self.rows.iter_mut().find(|row| row.table == *table && row.name == *name)?;
                row.rate = Some(rate.parse().ok()?);
            }
            ["absent", what, why] => {
                self.absent.push(Absent { what: (*what).to_owned(), why: (*why).to_owned() });
            }
            _ => return None,
        }
        Some(())
    }

    pub(in crate::bench) fn table(&self, name: &str) -> Vec<&Row> {
        self.rows.iter().filter(|row| row.table == name).collect()
    }

    pub(in crate::bench) fn p50(&self, table: &str, name: &str) -> Option<Duration> {
        self.rows.iter().find(|row| row.table == table && row.name == name).map(|row| row.p50)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_numbers_are_read_and_others_refused() {
        let text = "absent\t`x`\tno such program\nrow\tstart\ta b\t1500\t2500\t3\nrate\tstart\ta b\t12.5\n";
        let numbers = Numbers::read(text).unwrap();
        assert_eq!(numbers.absent, [Absent { what: "`x`".to_owned(), why: "no such program".to_owned() }]);
        assert_eq!(numbers.p50("start", "a b"), Some(Duration::from_nanos(1500)));
        assert_eq!(numbers.table("start").first().and_then(|row| row.rate), Some(12.5));
        for bad in ["hello", "row\ta\tb\tc\td\te", "rate\tno\trow\t1"] {
            assert!(Numbers::read(bad).is_err(), "{bad}");
        }
    }
}
