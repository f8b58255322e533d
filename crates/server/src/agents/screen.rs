//! The screen of an agent that has no protocol: its bytes are drawn here as they are drawn for people, and looked at.

use super::driver::Driver;
use super::ledger::Step;
use super::owner::Owner;
use crate::error::Error;
use crate::stead::{AttachEvent, Attachment, Stead, Where};
use std::time::Duration;
use stead_agent::pty::View;
use stead_agent::pty::osc::{Scanner, Signal};
use stead_agent::spec::Screen as Look;
use stead_model::frame::Chunk;
use stead_model::proto::Size;
use stead_term::screen::Screen;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A screen that has not changed for so long has settled.
const SETTLED: Duration = Duration::from_millis(800);

/// Pieces that wait to be drawn; more wait in the journal.
const AHEAD: usize = 4;

type Drawn = (Vec<String>, Vec<Signal>);

enum Work {
    Draw(Vec<u8>, oneshot::Sender<Drawn>),
    /// Somebody with a smaller window looks, or has gone: the agent draws for that size.
    Resize(Size),
}

#[derive(Debug)]
pub(super) struct Emulator {
    bytes: mpsc::Sender<Work>,
    keys: crate::stead::Keyboard,
    /// Bytes of before, which lead to the screen and are not news.
    old: u64,
    /// When it last changed, if nobody has looked at it since it settled.
    changed: Option<Instant>,
    lines: Vec<String>,
    _leave: DropGuard,
}

impl Emulator {
    /// Sits down at the agent's terminal. `old`: how many of its bytes were looked at before.
    pub(super) async fn attach(stead: &Stead, at: Where, look: &Look, old: u64) -> Result<Self, Error> {
        let size = Size { columns: look.columns, rows: look.rows };
        let attachment = stead.attach(at, size).await?;
        let keys = attachment.keyboard();
        let (bytes, inbox) = mpsc::channel(AHEAD);
        let left = CancellationToken::new();
        stead.spawn(stay(attachment, bytes.downgrade(), left.clone()));
        // An emulator can't go from one thread to another, so it has one.
        let drawing = std::thread::Builder::new().name("agent-screen".to_owned()).spawn(move || draw(size, inbox));
        drawing.map_err(|error| Error::Io(format!("no thread for a screen: {error}")))?;
        Ok(Self { bytes, keys, old, changed: None, lines: Vec::new(), _leave: left.drop_guard() })
    }

    pub(super) async fn press(&self, keys: Vec<u8>) -> Result<(), Error> {
        self.keys.send(keys).await
    }

    pub(super) fn settles_at(&self) -> Option<Instant> {
        self.changed.map(|at| at + SETTLED)
    }

    async fn feed(&mut self, bytes: Vec<u8>) -> Vec<Signal> {
        let (reply, drawn) = oneshot::channel();
        if self.bytes.send(Work::Draw(bytes, reply)).await.is_err() {
            return Vec::new();
        }
        let Ok((lines, signals)) = drawn.await else { return Vec::new() };
        self.lines = lines;
        self.changed = Some(Instant::now());
        signals
    }
}

/// Keeps a place at the terminal, so that it has our size, or that of whoever has less room.
async fn stay(mut attachment: Attachment, work: mpsc::WeakSender<Work>, left: CancellationToken) {
    loop {
        let event = tokio::select! {
            biased;
            () = left.cancelled() => return,
            event = attachment.recv() => event,
        };
        let Some(event) = event else { return };
        let AttachEvent::Resized(size) = event else { continue };
        let Some(work) = work.upgrade() else { return };
        if work.send(Work::Resize(size)).await.is_err() {
            return;
        }
    }
}

fn draw(size: Size, mut inbox: mpsc::Receiver<Work>) {
    let mut screen = Screen::new(size);
    let mut scanner = Scanner::default();
    while let Some(work) = inbox.blocking_recv() {
        let (bytes, reply) = match work {
            Work::Draw(bytes, reply) => (bytes, reply),
            Work::Resize(size) => {
                screen.resize(size);
                continue;
            }
        };
        for piece in bytes.chunks(stead_term::screen::PIECE) {
            // The steward's own emulator gives the answers.
            screen.feed(piece);
        }
        let _ = reply.send((screen.lines(), scanner.scan(&bytes)));
    }
}

impl Owner {
    /// What the agent has drawn.
    pub(super) async fn draw(&mut self, chunk: &Chunk, step: &mut Step) {
        let Some(screen) = &mut self.screen else { return };
        let end = chunk.offset + chunk.bytes.len() as u64;
        let signals = screen.feed(chunk.bytes.clone()).await;
        if end <= screen.old {
            return;
        }
        let lines = screen.lines.clone();
        self.look(&lines, &signals, false, step);
        self.hear_hook(step).await;
        if let Some(process) = &mut step.session.process {
            (process.read, process.seen) = (end, chunk.seq);
        }
    }

    /// Nothing has changed for a while.
    pub(super) async fn look_again(&mut self) -> Result<(), Error> {
        let Some(screen) = &mut self.screen else { return Ok(()) };
        screen.changed = None;
        let lines = screen.lines.clone();
        let mut step = Step::new(&self.session);
        self.look(&lines, &[], true, &mut step);
        self.hear_hook(&mut step).await;
        self.commit(step).await
    }

    fn look(&mut self, lines: &[String], signals: &[Signal], settled: bool, step: &mut Step) {
        let look = self.spec().and_then(|spec| spec.screen);
        let Some(driver @ Driver::Pty(_)) = &mut self.driver else { return };
        let before = driver.moves();
        let effects = driver.see(look.as_ref(), View { lines, signals, settled });
        if driver.moves() > before {
            self.active = Instant::now();
        }
        self.take(effects, step);
    }
}
