//! What became of the tests. One that can't run on a machine prints `SKIPPED: ` with the reason and returns; nextest
//! takes it for passed. So its report is read again, with what each test printed, and such a test counts as skipped.

use crate::cargo::Workspace;
use crate::failed::{Result, While};
use quick_junit::{Report, TestCaseStatus};
use std::fmt;

/// How a test says that it did not run.
const MARK: &str = "SKIPPED: ";

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: usize,
    /// Name and reason.
    skipped: Vec<(String, String)>,
}

impl Tally {
    /// Of nextest's last run, which must have succeeded.
    pub(crate) fn of_last_run(workspace: &Workspace) -> Result<Self> {
        // Named in .config/nextest.toml.
        let path = workspace.target.join("nextest/default/junit.xml");
        let text = std::fs::read_to_string(&path).or_failed(format!("can't read `{}`", path.display()))?;
        let report = Report::deserialize_from_str(&text).or_failed(format!("`{}` is no report", path.display()))?;
        Ok(Self::of(&report))
    }

    fn of(report: &Report) -> Self {
        let mut tally = Self::default();
        for suite in &report.test_suites {
            for case in &suite.test_cases {
                let name = || format!("{} {}", suite.name.as_str(), case.name.as_str());
                let TestCaseStatus::Success { .. } = &case.status else { continue };
                let printed = [&case.system_out, &case.system_err].into_iter().flatten();
                let reason = printed.flat_map(|text| text.lines()).find_map(|line| line.split_once(MARK));
                match reason {
                    Some((_, reason)) => tally.skipped.push((name(), reason.to_owned())),
                    None => tally.passed += 1,
                }
            }
        }
        tally
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.skipped.extend(other.skipped);
    }

    /// Every test that needs something that isn't here.
    pub(crate) fn details(&self) -> String {
        let lines: Vec<_> = self.skipped.iter().map(|(name, reason)| format!("SKIPPED {name}: {reason}\n")).collect();
        lines.concat()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, 0 failed, {} skipped", self.passed, self.skipped.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_says_it_was_skipped_is_not_counted_as_passed() {
        let report = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="3" failures="0" errors="0">
  <testsuite name="stead::http" tests="3" disabled="0" errors="0" failures="0">
    <testcase name="a" classname="stead::http"><system-out>running 1 test
test a ... ok</system-out></testcase>
    <testcase name="live" classname="stead::http"><system-out>running 1 test
SKIPPED: no KEY
test live ... ok</system-out></testcase>
    <testcase name="b" classname="stead::http"></testcase>
  </testsuite>
</testsuites>"#;
        let tally = Tally::of(&Report::deserialize_from_str(report).unwrap());
        assert_eq!(tally.to_string(), "2 passed, 0 failed, 1 skipped");
        assert_eq!(tally.details(), "SKIPPED stead::http live: no KEY\n");
    }
}
