//! The way into a container: the steward's socket in the mounted place, or a process that the engine starts there and
//! whose input and output it carries.

use super::super::{Access, Channel, Effect, Handle, ProviderError, Trouble};
use super::look::State;
use super::{Docker, Way, recipe};
use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use bytes::Bytes;
use futures_util::Stream;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use stead_model::enclosure::{PLACE, PROGRAM};
use stead_model::ids::InstanceId;
use stead_steward::dir::Dir;
use stead_steward::past;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

/// How long a steward that lives may take to listen.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);

/// What the far end may say of why it can't, and is repeated.
const LAST_WORDS: usize = 1024;

impl Docker {
    pub(super) async fn enter(&self, handle: &Handle) -> Result<Access, ProviderError> {
        const WHAT: &str = "connect";
        if self.require(handle, WHAT).await?.state == State::Paused {
            return Err(self.engine.error(WHAT, Trouble::Conflict, Effect::None, "the instance is paused"));
        }
        let place = self.places.steward(&handle.lease);
        self.open(&handle.instance, &place, Duration::ZERO, WHAT).await.map(Access::Steward)
    }

    /// `grace`: how long a steward may be on its way of which nothing is seen yet.
    pub(super) async fn open(
        &self,
        instance: &InstanceId,
        place: &Path,
        grace: Duration,
        what: &'static str,
    ) -> Result<Box<dyn Channel>, ProviderError> {
        if self.config.way == Way::Nearest
            && let Some(stream) = direct(place, grace).await
        {
            return Ok(Box::new(stream));
        }
        Ok(Box::new(self.through_the_engine(instance, what).await?))
    }

    /// Started once and never again: what came of it is heard by whoever greets.
    async fn through_the_engine(
        &self,
        instance: &InstanceId,
        what: &'static str,
    ) -> Result<ExecChannel, ProviderError> {
        let docker = self.engine.docker(what).await?;
        // Nothing has been said to anybody, whatever goes wrong here.
        let failed = |error| ProviderError { effect: Effect::None, ..self.engine.failed(what)(error) };
        let words = [PROGRAM, "connect", "--dir", PLACE];
        let options = CreateExecOptions {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            tty: Some(false),
            cmd: Some(words.to_vec()),
            ..CreateExecOptions::default()
        };
        let made = docker.create_exec(&recipe::container_name(instance), options).await.map_err(failed)?;
        let options = StartExecOptions { detach: false, tty: false, output_capacity: None };
        match docker.start_exec(&made.id, Some(options)).await.map_err(failed)? {
            StartExecResults::Attached { output, input } => {
                Ok(ExecChannel { output, input, unread: Bytes::new(), last_words: Vec::new() })
            }
            StartExecResults::Detached => {
                Err(self.engine.error(what, Trouble::Broken, Effect::None, "the engine did not connect us"))
            }
        }
    }
}

/// The steward's socket, if it can be opened from here.
async fn direct(place: &Path, grace: Duration) -> Option<UnixStream> {
    let place = place.to_owned();
    let connected = tokio::task::spawn_blocking(move || {
        let (begun, dir) = (Instant::now(), Dir::open(&place).ok()?);
        loop {
            match dir.connect() {
                Ok(stream) => return stream.set_nonblocking(true).ok().map(|()| stream),
                Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                    return None;
                }
                Err(_) => {}
            }
            // One that lives will listen; where the lock can't be seen nobody seems to.
            let waited = begun.elapsed();
            let hopeful = waited < grace || past::is_alive(dir.root()).unwrap_or(false);
            if !hopeful || waited > LISTENS_WITHIN.max(grace) {
                return None;
            }
            let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
            let _ = rustix::event::poll(&mut [], Some(&pause));
        }
    });
    UnixStream::from_std(connected.await.ok()??).ok()
}

/// Standard input and output of a process that the engine runs for us. Dropped, its input ends, and so does it.
struct ExecChannel {
    output: Pin<Box<dyn Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>,
    input: Pin<Box<dyn AsyncWrite + Send>>,
    unread: Bytes,
    /// What it said on its standard error, from the beginning.
    last_words: Vec<u8>,
}

impl ExecChannel {
    fn end(&self) -> io::Result<()> {
        if self.last_words.is_empty() {
            return Ok(());
        }
        Err(io::Error::other(String::from_utf8_lossy(&self.last_words).trim().to_owned()))
    }
}

impl AsyncRead for ExecChannel {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            if !self.unread.is_empty() {
                let fits = self.unread.len().min(buf.remaining());
                let part = self.unread.split_to(fits);
                buf.put_slice(&part);
                return Poll::Ready(Ok(()));
            }
            match ready!(self.output.as_mut().poll_next(cx)) {
                Some(Ok(LogOutput::StdOut { message } | LogOutput::Console { message })) => self.unread = message,
                Some(Ok(LogOutput::StdErr { message })) => {
                    let room = LAST_WORDS.saturating_sub(self.last_words.len());
                    self.last_words.extend(message.iter().take(room));
                }
                Some(Ok(LogOutput::StdIn { .. })) => {}
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(self.end()),
            }
        }
    }
}

impl AsyncWrite for ExecChannel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.input.as_mut().poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.as_mut().poll_shutdown(cx)
    }
}
