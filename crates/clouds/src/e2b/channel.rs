//! A program's input and output as one stream of bytes each way.
//!
//! ```text
//! read   <-  pipe  <-  hear   stdout events of the stream that started it
//! write  ->  pipe  ->  speak  one SendInput after the other; what piles up meanwhile goes with the next
//! drop   ->  stop  ->  SIGKILL: the program is a bridge, it must not stay behind
//! ```
//!
//! Where the sandbox sleeps there is nobody who could end it; that is made up for when the next one is started.

use super::again_if_nothing_was_done;
use super::envd::Envd;
use super::process::{End, Events, Program, Said, start};
use crate::retry::PATIENT;
use crate::wire::Call;
use crate::{CloudError, Effect, Trouble};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Each way. A writer waits when it is full; a program that nobody reads from is held up by the daemon.
const PIPE: usize = 256 << 10;

/// For one piece of input to be taken. It is taken when the program has read almost all of it, which a busy one may let
/// wait.
const TAKEN: Duration = Duration::from_mins(2);

/// For what a program said before it stopped listening.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The end of what it says about errors, to tell why it ended.
const MOST_SAID: usize = 1000;

const WHAT: &str = "speak to a program";

#[derive(Debug)]
pub(super) struct Speaking {
    pipe: DuplexStream,
    /// Set before the pipe ends.
    ending: Arc<OnceLock<Ending>>,
    _stop: DropGuard,
}

#[derive(Debug)]
enum Ending {
    /// By itself, and well.
    Ended,
    /// Not so, or nobody knows.
    Broken(String),
}

pub(super) async fn open(
    envd: &Arc<Envd>,
    id: &str,
    program: &str,
    arguments: &[&str],
) -> Result<Speaking, CloudError> {
    sweep(envd, id).await;
    let tag = format!("stead-{:016x}", getrandom::u64().unwrap_or_default());
    let program = Program { path: program, arguments, stdin: true, deadline: None, tag: Some(&tag) };
    let (pid, events) = start(envd, "start a program", id, program).await?;
    let (pipe, theirs) = tokio::io::duplex(PIPE);
    let (ending, stop) = (Arc::new(OnceLock::new()), CancellationToken::new());
    let bridge = Bridge { envd: Arc::clone(envd), id: id.to_owned(), pid, tag };
    envd.tasks.spawn(bridge.serve(events, theirs, Arc::clone(&ending), stop.clone()));
    Ok(Speaking { pipe, ending, _stop: stop.drop_guard() })
}

/// The program inside.
struct Bridge {
    envd: Arc<Envd>,
    id: String,
    pid: u32,
    /// Its own: numbers are given again.
    tag: String,
}

impl Bridge {
    async fn serve(self, events: Events, pipe: DuplexStream, ending: Arc<OnceLock<Ending>>, stop: CancellationToken) {
        // Both live until it is said how it ended: who reads asks for that when the pipe does.
        let (mut input, mut output) = tokio::io::split(pipe);
        let over = {
            let mut hearing = pin!(hear(events, &mut output));
            let both = async {
                let error = tokio::select! {
                    over = &mut hearing => return over,
                    error = self.speak(&mut input) => error,
                };
                let broken = Over::Broken(error.to_string());
                // Where the daemon itself says that there is nobody to take it, the program has most likely ended; then
                // how it did counts.
                let is_said_by_the_daemon = matches!(error.trouble, Trouble::Conflict | Trouble::Broken);
                let patience = if is_said_by_the_daemon { LAST_WORDS } else { Duration::ZERO };
                tokio::time::timeout(patience, hearing).await.unwrap_or(Some(broken))
            };
            stop.run_until_cancelled(both).await.flatten()
        };
        let is_over = matches!(over, Some(Over::Ended(_)));
        let _ = ending.set(match over {
            None => Ending::Ended,
            Some(Over::Ended(ending)) => ending,
            Some(Over::Broken(why)) => Ending::Broken(why),
        });
        drop((input, output));
        if !is_over {
            self.kill().await;
        }
    }

    /// Returns only when it can't go on: after the last input it closes, and waits for the program to end.
    async fn speak(&self, input: &mut (impl AsyncRead + Unpin)) -> CloudError {
        let process = json!({ "pid": self.pid });
        let mut piece = vec![0; PIPE];
        loop {
            // What is in the pipe, all at once.
            let length = input.read(&mut piece).await.unwrap_or(0);
            let (method, message) = match piece.get(..length) {
                Some([]) | None => ("process.Process/CloseStdin", json!({ "process": process })),
                Some(bytes) => {
                    let input = json!({ "stdin": STANDARD.encode(bytes) });
                    ("process.Process/SendInput", json!({ "process": process, "input": input }))
                }
            };
            let sent = again_if_nothing_was_done(|| self.envd.ask(WHAT, TAKEN, &self.id, method, &message)).await;
            if let Err(error) = sent {
                return error;
            }
            if length == 0 {
                return std::future::pending().await;
            }
        }
    }

    async fn kill(&self) {
        if let Err(error) = kill(&self.envd, &self.id, self.pid).await {
            tracing::debug!(%error, sandbox = self.id, pid = self.pid, "a program stays behind for now");
            self.envd.left_behind().entry(self.id.clone()).or_default().push(self.tag.clone());
        }
    }
}

async fn kill(envd: &Envd, id: &str, pid: u32) -> Result<(), CloudError> {
    let message = json!({ "process": { "pid": pid }, "signal": "SIGNAL_SIGKILL" });
    let patience = envd.api.times.read;
    let killed = PATIENT.call(|| envd.ask("end a program", patience, id, "process.Process/SendSignal", &message));
    match killed.await {
        // The daemon says so: it ended by itself.
        Err(error) if error.trouble == Trouble::Conflict && error.effect == Effect::None => Ok(()),
        killed => killed.map(drop),
    }
}

/// Ends what stayed behind in a sandbox that has slept. Only as well as it can be done: it does no harm where it is.
async fn sweep(envd: &Envd, id: &str) {
    #[derive(Deserialize)]
    struct All {
        #[serde(default)]
        processes: Vec<One>,
    }
    #[derive(Deserialize)]
    struct One {
        pid: u32,
        tag: Option<String>,
    }
    let Some(left) = envd.left_behind().remove(id) else { return };
    let (what, message) = ("list programs", json!({}));
    let all = PATIENT.call(|| envd.ask(what, envd.api.times.read, id, "process.Process/List", &message)).await;
    let processes = match all.and_then(|body| super::understood::<All>(what, Call::Reads, &body)) {
        Ok(All { processes }) => processes,
        Err(error) => {
            tracing::debug!(%error, sandbox = id, "programs stay behind");
            envd.left_behind().insert(id.to_owned(), left);
            return;
        }
    };
    for one in processes.into_iter().filter(|one| one.tag.as_ref().is_some_and(|tag| left.contains(tag))) {
        if let Err(error) = kill(envd, id, one.pid).await {
            tracing::debug!(%error, sandbox = id, pid = one.pid, "a program stays behind");
        }
    }
}

enum Over {
    Ended(Ending),
    Broken(String),
}

/// None when nobody reads any more.
async fn hear(mut events: Events, output: &mut (impl AsyncWrite + Unpin)) -> Option<Over> {
    let mut complaint = Vec::new();
    loop {
        match events.next().await {
            Ok(Said::Out(piece)) => output.write_all(&piece).await.ok()?,
            Ok(Said::Err(piece)) => {
                complaint.extend_from_slice(&piece);
                complaint.drain(..complaint.len().saturating_sub(MOST_SAID));
            }
            Ok(Said::Alive | Said::Started(_)) => {}
            Ok(Said::Ended(end)) => return Some(Over::Ended(ending(&end, &complaint))),
            Err(error) => return Some(Over::Broken(error.to_string())),
        }
    }
}

fn ending(end: &End, complaint: &[u8]) -> Ending {
    if end.exit_code() == Some(0) {
        return Ending::Ended;
    }
    let complaint = String::from_utf8_lossy(complaint);
    Ending::Broken(format!("the program ended: {} {}", end.word(), complaint.trim()).trim().to_owned())
}

impl AsyncRead for Speaking {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = buf.remaining();
        ready!(Pin::new(&mut self.pipe).poll_read(cx, buf))?;
        if room > 0 && buf.remaining() == room {
            return Poll::Ready(match self.ending.get() {
                Some(Ending::Ended) => Ok(()),
                Some(Ending::Broken(why)) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, why.clone())),
                None => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "it broke off")),
            });
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Speaking {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}
