//! How far a copy has come, for somebody who watches.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::time::Duration;

#[derive(Debug, Clone)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// A bar if there is a terminal to show it on, else nothing.
    pub(super) fn of_bytes(total: Option<u64>) -> Self {
        if !io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let (bar, template) = match total {
            Some(total) => (ProgressBar::new(total), "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left"),
            None => (ProgressBar::new_spinner(), "{spinner} {bytes}, {bytes_per_sec}"),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    pub(super) fn add(&self, bytes: usize) {
        self.0.inc(bytes as u64);
    }

    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
