//! An archive on its way to the engine while it is being made: never whole in memory, never on a disk.

use super::BuildError;
use bytes::Bytes;
use futures_util::Stream;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Pieces that are made and not yet sent; whoever makes more waits.
const PIECES: usize = 16;

const PIECE: usize = 64 << 10;

/// What `make` writes, as a stream, and what became of it.
pub(super) fn archive(
    make: impl FnOnce(&mut dyn Write) -> Result<(), BuildError> + Send + 'static,
) -> (impl Stream<Item = io::Result<Bytes>> + Send + 'static, JoinHandle<Result<(), BuildError>>) {
    let (pieces, mut taken) = mpsc::channel(PIECES);
    let maker = tokio::task::spawn_blocking(move || {
        let failed = pieces.clone();
        let mut out = io::BufWriter::with_capacity(PIECE, Pieces { pieces, progress: progress() });
        let done = make(&mut out).and_then(|()| out.flush().map_err(BuildError::Archive));
        if done.is_err() {
            // An archive that only ends too early could be taken for a whole one.
            let _ = failed.blocking_send(Err(io::Error::other("the archive could not be made")));
        }
        done
    });
    (futures_util::stream::poll_fn(move |cx| taken.poll_recv(cx)), maker)
}

struct Pieces {
    pieces: mpsc::Sender<io::Result<Bytes>>,
    progress: ProgressBar,
}

impl Write for Pieces {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let piece = Bytes::copy_from_slice(buf);
        self.pieces.blocking_send(Ok(piece)).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        self.progress.inc(buf.len() as u64);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.progress.finish_and_clear();
    }
}

/// Something to look at if there is a terminal to show it on.
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
