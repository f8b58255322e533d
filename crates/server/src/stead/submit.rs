//! Commands that go on by themselves: whoever asked for one may leave, and find it again by its id.

use super::commands::{is_missing, without_output};
use super::execute::{Travel, prepare, with_info};
use super::watch::Watch;
use super::{Execute, Sandbox, Stead, Where, claim, sit};
use crate::error::Error;
use crate::runtime::{Listener, Run};
use crate::seat::{Busy, Seat};
use crate::steward::Told;
use std::sync::Arc;
use std::time::Instant;
use stead_model::command::Command;
use stead_model::frame::Stream;

/// What is kept of a stream that may be larger than anybody wants in one answer: its beginning and its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    pub head: Vec<u8>,
    pub tail: Vec<u8>,
    pub total: u64,
    half: usize,
}

impl Kept {
    pub fn new(most: usize) -> Self {
        Self { half: most / 2, ..Self::default() }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.half.saturating_sub(self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        self.tail.extend_from_slice(rest);
        // Now and then, not with each byte.
        if self.tail.len() > 4 * self.half {
            self.trim();
        }
    }

    fn trim(&mut self) {
        let surplus = self.tail.len().saturating_sub(self.half);
        self.tail.drain(..surplus);
    }

    /// How much is missing between the two.
    pub fn omitted(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }
}

/// A command that has ended, with as much of its output as was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    pub command: Command,
    /// Absent: it printed something that is no longer kept.
    pub stdout: Option<Kept>,
    pub stderr: Option<Kept>,
}

/// Keeps as much as was asked for of what a command prints.
struct Keep {
    stdout: Kept,
    stderr: Kept,
    is_evicted: bool,
}

impl Listener for Keep {
    fn hear(&mut self, told: Told) {
        if let Told::Output(chunk) = told {
            match chunk.stream {
                Stream::Stdout => self.stdout.push(&chunk.bytes),
                Stream::Stderr => self.stderr.push(&chunk.bytes),
            }
        }
    }

    fn evicted(&mut self) {
        self.is_evicted = true;
    }
}

impl Keep {
    fn new(most: usize) -> Self {
        Self { stdout: Kept::new(most), stderr: Kept::new(most), is_evicted: false }
    }

    fn of(mut self, command: Command) -> Ran {
        self.stdout.trim();
        self.stderr.trim();
        if !self.is_evicted {
            return Ran { command, stdout: Some(self.stdout), stderr: Some(self.stderr) };
        }
        let nothing = |bytes| (!is_missing(&command, bytes)).then(|| Kept::new(0));
        let (stdout, stderr) = (nothing(command.stdout_bytes), nothing(command.stderr_bytes));
        Ran { command: without_output(command), stdout, stderr }
    }
}

impl Stead {
    /// Runs a command and waits for its end. It is run on a task of its own: if nobody waits any more, it goes on, and is
    /// written down. At most `most` bytes of each stream are kept.
    pub async fn run(&self, at: Where, execute: Execute, most: usize) -> Result<Ran, Error> {
        let stead = self.clone();
        let work = async move {
            let sandbox = stead.get_sandbox(at).await?;
            let mut keep = Keep::new(most);
            let command = sandbox.execute(execute, &mut keep).await?;
            Ok(keep.of(command))
        };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }

    /// Hands a command to its shell and returns as soon as that has it, running or queued. The same id again is the same
    /// record.
    pub async fn submit(&self, at: Where, execute: Execute) -> Result<Command, Error> {
        let stead = self.clone();
        let work = async move {
            let sandbox = stead.get_sandbox(at).await?;
            sandbox.submit(execute).await
        };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }
}

impl Stead {
    /// The same with what it has printed, if it had ended before: then nobody has to ask for that again. Of one that has
    /// not, output is absent where there is some already.
    pub async fn submit_and_show(&self, at: Where, execute: Execute, most: usize) -> Result<Ran, Error> {
        let stead = self.clone();
        let work = async move {
            let sandbox = stead.get_sandbox(at).await?;
            let command = sandbox.clone().submit(execute).await?;
            if command.status.is_final() {
                let mut keep = Keep::new(most);
                let command = sandbox.tell_again(command, &mut keep).await?;
                return Ok(keep.of(command));
            }
            let nothing = |bytes| (bytes == 0).then(|| Kept::new(0));
            let (stdout, stderr) = (nothing(command.stdout_bytes), nothing(command.stderr_bytes));
            Ok(Ran { command, stdout, stderr })
        };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }
}

impl Sandbox {
    async fn submit(self, execute: Execute) -> Result<Command, Error> {
        let (seat, busy) = sit::enter(&self.inner, &self.at).await?;
        self.allow(&seat, &execute).await?;
        let chosen = execute.id.is_some();
        let (mut row, run) = prepare(&self.inner, &seat, execute)?;
        let claim = if chosen {
            match claim::make(&self.inner, &seat, &mut row).await? {
                claim::Made::Now(claim) => Some(claim),
                claim::Made::Before(before) => return Ok(self.inner.newest_of(before.row).await),
            }
        } else {
            self.inner.ledger.note(row.clone()).await;
            None
        };
        if !seat.runtime.remembers() {
            // A shell that runs one thing at a time has no queue to put it in: its run is the call.
            let inner = Arc::clone(&self.inner);
            self.go_on(seat, busy, (row.clone(), run), claim, 0);
            if !chosen {
                inner.ledger.flush().await;
            }
            return Ok(row);
        }
        let (watch, begun) = (Watch::over(&self.inner, &row), Instant::now());
        let mut travel = Travel::new(&self, seat, run, 0);
        let delivered = travel.deliver().await;
        watch.end();
        match delivered {
            Ok(info) if !info.status.is_final() => {
                let shown = with_info(&row, &info);
                let (seat, run, from) = travel.into_parts();
                let inner = Arc::clone(&self.inner);
                self.go_on(seat, busy, (row, run), claim, from);
                if !chosen {
                    // Whoever is told the id may use it from now on, whatever becomes of this server.
                    inner.ledger.flush().await;
                }
                Ok(shown)
            }
            // It is over, or was refused. Then the claim is let go: whoever waits for the same id finds in the store what
            // became of it.
            outcome => {
                let ended = self.arrived(&travel, row, outcome, begun).await?;
                if let Some(claim) = claim {
                    claim.publish(&ended);
                }
                Ok(ended)
            }
        }
    }

    fn go_on(self, seat: Arc<Seat>, busy: Busy, (row, run): (Command, Run), claim: Option<claim::Claim>, from: u64) {
        let tasks = self.inner.core.tasks.clone();
        tasks.spawn(async move {
            let _busy = busy;
            let mut ignore = |_: Told| {};
            let travel = Travel::new(&self, seat, run, from).answered();
            match self.travel(travel, row, &mut ignore).await {
                Ok(ended) => {
                    if let Some(claim) = claim {
                        claim.publish(&ended);
                    }
                }
                Err(error) => tracing::warn!(%error, "a command ended without anybody waiting for it"),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(most: usize, pieces: &[&[u8]]) -> Kept {
        let mut kept = Kept::new(most);
        for piece in pieces {
            kept.push(piece);
        }
        kept.trim();
        kept
    }

    #[test]
    fn what_fits_is_kept_whole() {
        let kept = kept(8, &[b"abc", b"defgh"]);
        assert_eq!((kept.head.as_slice(), kept.tail.as_slice(), kept.omitted()), (&b"abcd"[..], &b"efgh"[..], 0));
    }

    #[test]
    fn of_what_does_not_fit_the_beginning_and_the_end_stay() {
        let long: Vec<u8> = (0..=255).collect();
        for size in [1, 3, 7, 256] {
            let pieces: Vec<&[u8]> = long.chunks(size).collect();
            let kept = kept(8, &pieces);
            assert_eq!((kept.head.as_slice(), kept.tail.as_slice()), (&long[..4], &long[252..]), "{size}");
            assert_eq!((kept.total, kept.omitted()), (256, 248));
        }
    }
}
