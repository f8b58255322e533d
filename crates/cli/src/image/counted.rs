//! Something to look at while an archive is made, if there is a terminal to show it on.

use super::BuildError;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// An archive that is counted as it is written.
pub(super) struct Counted<W> {
    out: W,
    progress: ProgressBar,
}

impl<W: Write> Counted<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, progress: progress() }
    }

    pub(super) fn end(mut self) -> Result<(), BuildError> {
        self.out.flush().map_err(BuildError::Archive)
    }
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.out.write(buf)?;
        self.progress.inc(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W> Drop for Counted<W> {
    fn drop(&mut self) {
        self.progress.finish_and_clear();
    }
}

fn progress() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {bytes}, {bytes_per_sec}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
