//! Work on files that a stopping server gives up: a read, a write or a step of it fails with [`Stopped`].

use std::io::{self, Read, Write};
use tokio_util::sync::CancellationToken;

#[derive(Debug, thiserror::Error)]
#[error("the server is stopping")]
pub(crate) struct Stopped;

/// An error if the server is stopping.
pub(crate) fn check(stop: &CancellationToken) -> io::Result<()> {
    if stop.is_cancelled() { Err(io::Error::other(Stopped)) } else { Ok(()) }
}

/// Whether this is the error that [`check`] gives.
pub(crate) fn is_stopped(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Stopped>)
}

/// A reader or writer whose every call fails as soon as the server is stopping.
#[derive(Debug)]
pub(crate) struct Stoppable<T> {
    inner: T,
    stop: CancellationToken,
}

impl<T> Stoppable<T> {
    pub(crate) fn new(inner: T, stop: CancellationToken) -> Self {
        Self { inner, stop }
    }
}

impl<T: Read> Read for Stoppable<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        check(&self.stop)?;
        self.inner.read(buffer)
    }
}

impl<T: Write> Write for Stoppable<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        check(&self.stop)?;
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
