//! A stream over calls: a program is started behind a ferry (a role of the steward, see `stead_model::ferry`), and what it
//! reads and writes is put and taken at offsets. A call whose answer is lost is made again and does nothing twice. What
//! else fails breaks the channel: above all a session that sleeps or is gone.
//!
//! ```text
//! reader ◄── 4 pieces ◄── fetch: `ferry take --from N --wait MS`, again and again
//! writer ──► 16 pieces ─► deliver: `ferry put --at N BASE64`, as much as has come meanwhile
//! ```

mod turns;

use super::Inner;
use super::front::nonce;
use super::shell::{Ended, SHORT, quoted};
use crate::retry::Policy;
use crate::wire::Call;
use crate::{Channel, CloudError, Effect, Trouble};
use bytes::{Buf, Bytes, BytesMut};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use stead_model::ferry::{Accepted, Reader, Taken, encode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard, PollSender};
use tokio_util::task::TaskTracker;
use turns::Turns;

/// What one `put` carries: 32 KiB in base64.
const MOST_PUT: usize = 24 << 10;

/// What one `take` brings by a link; by the front door a message has less.
const MOST_TAKEN: usize = 256 << 10;

/// What one write hands over.
const MOST_WRITTEN: usize = 16 << 10;

/// A `take` waits for output this long, at most: a command has 50 s.
const LONGEST_WAIT: Duration = Duration::from_secs(40);

/// Of what a command may take, for the rest of it.
const AROUND: Duration = Duration::from_secs(8);

/// Calls that are made again; counted anew after each that succeeds.
const AGAIN: Policy = Policy {
    first_wait: Duration::from_millis(100),
    longest_wait: Duration::from_secs(2),
    budget: Duration::from_secs(8),
};

const WHAT: &str = "speak to a program";

pub(super) async fn open(
    inner: &Arc<Inner>,
    tasks: &TaskTracker,
    id: &str,
    program: &str,
    arguments: &[&str],
) -> Result<Box<dyn Channel>, CloudError> {
    let ferry = Ferry {
        inner: inner.clone(),
        id: id.to_owned(),
        program: quoted(program),
        dir: format!("/tmp/.stead-ferry-{}", nonce(WHAT)?),
        turns: Turns::default(),
    };
    let words: Vec<String> = arguments.iter().map(|word| quoted(word)).collect();
    let command = format!("open --dir {} -- {} {}", ferry.dir, ferry.program, words.join(" "));
    // Opening again finds what was opened.
    ferry.call_again(&command, SHORT, |said| (said == "open\n").then_some(())).await?;
    let (incoming, received) = mpsc::channel(4);
    let (sender, outgoing) = mpsc::channel(16);
    let broken = Arc::new(OnceLock::new());
    let stop = CancellationToken::new();
    tasks.spawn(carry(ferry, incoming, outgoing, broken.clone(), stop.clone()));
    let writer = PollSender::new(sender);
    Ok(Box::new(Ferried { received, rest: Bytes::new(), writer, broken, _stop: stop.drop_guard() }))
}

/// A program behind its ferry.
struct Ferry {
    inner: Arc<Inner>,
    id: String,
    /// The steward inside, quoted.
    program: String,
    dir: String,
    turns: Turns,
}

impl Ferry {
    async fn call(&self, command: &str, time: Duration) -> Result<Ended, CloudError> {
        let script = format!("exec {} ferry {command}", self.program);
        self.inner.shell(WHAT, Call::Changes, &self.id, &script, time).await
    }

    /// A call that its offset makes safe to repeat: after an answer that makes no sense, too.
    async fn call_again<T>(
        &self,
        command: &str,
        time: Duration,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, CloudError> {
        AGAIN
            .call(|| async {
                let ended = self.call(command, time).await.map_err(|error| {
                    let is_broken = error.trouble == Trouble::Broken;
                    CloudError { trouble: if is_broken { Trouble::Unavailable } else { error.trouble }, ..error }
                })?;
                parse(&ended.stdout).ok_or_else(|| refused(&ended))
            })
            .await
    }

    /// How long one call may wait for something to happen.
    fn wait(&self) -> Duration {
        LONGEST_WAIT.min(self.inner.config.patience * 2 / 3)
    }

    async fn take(&self, from: u64) -> Result<Taken, CloudError> {
        let wait = self.wait().min(self.turns.longest_wait());
        let _taking = self.turns.taking(Instant::now());
        // In base64, with what is around it.
        let most = MOST_TAKEN.min(self.inner.most(&self.id, "shell") / 4 * 3 - 512);
        let command = format!("take --dir {} --from {from} --wait {} --most {most}", self.dir, wait.as_millis());
        let taken = self.call_again(&command, wait + AROUND, Taken::parse).await?;
        if taken.from == from { Ok(taken) } else { Err(lost(&format!("asked for {from}, it gave {}", taken.from))) }
    }

    async fn put(&self, at: u64, bytes: &[u8]) -> Result<Accepted, CloudError> {
        let wait = self.wait();
        let command = format!("put --dir {} --at {at} --wait {} {}", self.dir, wait.as_millis(), encode(bytes));
        let turn = self.turns.putting(Instant::now());
        let accepted = self.call_again(&command, wait + AROUND, Accepted::parse).await?;
        if accepted.offset == at + bytes.len() as u64 {
            self.turns.put(&turn, Instant::now());
        }
        let is_possible = (at..=at + bytes.len() as u64).contains(&accepted.offset);
        if is_possible { Ok(accepted) } else { Err(lost(&format!("it has {} of input", accepted.offset))) }
    }

    async fn end(&self, at: u64) -> Result<(), CloudError> {
        let command = format!("put --dir {} --at {at} --end", self.dir);
        self.call_again(&command, SHORT, Accepted::parse).await.map(drop)
    }
}

/// The two sides don't agree about what was carried.
fn lost(message: &str) -> CloudError {
    CloudError::new(WHAT, Trouble::Broken, Effect::Unknown, message)
}

/// What the ferry says instead of an answer.
fn refused(ended: &Ended) -> CloudError {
    let said = if ended.stderr.trim().is_empty() { &ended.stdout } else { &ended.stderr };
    let said: String = said.trim().chars().take(500).collect();
    lost(&format!("the ferry ended with {}: {said}", ended.exit_code))
}

/// Carries until the program ends, something breaks or nobody holds the channel; then lets go of the program.
async fn carry(
    ferry: Ferry,
    incoming: mpsc::Sender<Bytes>,
    outgoing: mpsc::Receiver<Bytes>,
    broken: Arc<OnceLock<CloudError>>,
    stop: CancellationToken,
) {
    let work = async {
        let mut fetching = pin!(fetch(&ferry, &incoming));
        tokio::select! {
            done = &mut fetching => done,
            delivered = deliver(&ferry, outgoing) => match delivered {
                Ok(()) => fetching.await,
                Err(error) => Err(error),
            },
        }
    };
    tokio::select! {
        done = work => if let Err(error) = done {
            tracing::debug!(%error, session = ferry.id, "a channel broke");
            // Before the reader hears that there is no more.
            let _ = broken.set(error);
        },
        () = stop.cancelled() => {}
    }
    drop(incoming);
    // As well as it can be: a ferry that nobody asks ends by itself.
    let close = format!("close --dir {}", ferry.dir);
    if let Err(error) = ferry.call(&close, SHORT).await {
        tracing::debug!(%error, session = ferry.id, "a ferry is left to itself");
    }
}

/// What the program writes, to the reader. Over when the program is.
async fn fetch(ferry: &Ferry, incoming: &mpsc::Sender<Bytes>) -> Result<(), CloudError> {
    let mut from = 0;
    loop {
        let taken = ferry.take(from).await?;
        from += taken.bytes.len() as u64;
        if !taken.bytes.is_empty() && incoming.send(taken.bytes.into()).await.is_err() {
            return Ok(());
        }
        if taken.ended {
            return Ok(());
        }
    }
}

/// What was written, to the program. Over when the writer is, or when the program reads no more.
async fn deliver(ferry: &Ferry, mut outgoing: mpsc::Receiver<Bytes>) -> Result<(), CloudError> {
    let mut at = 0;
    let mut batch = BytesMut::new();
    loop {
        if batch.is_empty() {
            match outgoing.recv().await {
                Some(bytes) => batch.extend_from_slice(&bytes),
                None => return ferry.end(at).await,
            }
        }
        while batch.len() < MOST_PUT
            && let Ok(bytes) = outgoing.try_recv()
        {
            batch.extend_from_slice(&bytes);
        }
        let accepted = ferry.put(at, batch.get(..MOST_PUT).unwrap_or(&batch)).await?;
        let count = usize::try_from(accepted.offset - at).unwrap_or(usize::MAX);
        batch.advance(count.min(batch.len()));
        at = accepted.offset;
        if accepted.reader == Reader::Closed {
            return Ok(());
        }
    }
}

/// The near end of a channel.
struct Ferried {
    received: mpsc::Receiver<Bytes>,
    rest: Bytes,
    writer: PollSender<Bytes>,
    broken: Arc<OnceLock<CloudError>>,
    _stop: DropGuard,
}

impl Ferried {
    fn why(&self) -> Option<io::Error> {
        self.broken.get().map(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error.clone()))
    }
}

impl AsyncRead for Ferried {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.rest.is_empty() {
            match ready!(self.received.poll_recv(cx)) {
                Some(bytes) => self.rest = bytes,
                None => return Poll::Ready(self.why().map_or(Ok(()), Err)),
            }
        }
        let count = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Ferried {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let some = bytes.get(..MOST_WRITTEN).unwrap_or(bytes);
        let sent = match ready!(self.writer.poll_reserve(cx)) {
            Ok(()) => self.writer.send_item(Bytes::copy_from_slice(some)),
            Err(error) => Err(error),
        };
        Poll::Ready(match sent {
            Ok(()) => Ok(some.len()),
            Err(_) => Err(self.why().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())),
        })
    }

    /// What was written is on its way already; when it has arrived, nobody is told.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// The program's input ends after what was written.
    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer.close();
        Poll::Ready(Ok(()))
    }
}
