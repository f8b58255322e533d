//! A person at a terminal, through the layers. Two tasks serve an attachment, and outlive neither it nor the terminal:
//!
//! ```text
//! steward ── sight ──► looker ── events (few) ──► whoever holds the attachment
//!    ▲                   │ the way broke: sits down again, attaches again, begins with a fresh screen
//!    └──── sight ◄── typist ◄── keys (few) ◄──────┘
//! ```
//!
//! Keys are use of the session; only looking is not. Nothing is woken for whoever is attached already: when the
//! instance is paused, the session closed or the thread deleted, the attachment ends.

use super::{Inner, Stead, Where, execute, sit, watch};
use crate::error::Error;
use crate::lease::{AutoResume, LeaseError};
use crate::runtime::{RuntimeError, Sight};
use crate::seat::Seat;
use crate::steward::{Seen, Told};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_model::clock::Timestamp;
use stead_model::ids::TerminalId;
use stead_model::lease::Desired;
use stead_model::proto::{Detached, Entered, Event, ShellEnd, Size};
use tokio::sync::{mpsc, watch as latest};
use tokio_util::sync::{CancellationToken, DropGuard};

/// What waits to be received; who doesn't take it stops the steward from sending more.
const EVENTS: usize = 16;

/// What waits to be typed; who types more waits.
const KEYS: usize = 16;

/// Stewards that may die in a row while we attach.
const TRIES: u32 = 5;

/// How long a terminal whose seat was left may take to say why.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a person at a terminal sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachEvent {
    /// For the person's terminal. The first, and the first after a break, show the whole screen.
    Bytes(Vec<u8>),
    /// The shell's process ended (`exit`); the next prompt has another, with its state.
    Exit(ShellEnd),
    /// The terminal has another size: the smallest of all who look.
    Resized(Size),
    /// The last.
    Detached(Detached),
}

enum Act {
    Press(Vec<u8>),
    Resize(Size),
}

/// Somebody's place at a terminal. Dropping it is leaving.
#[derive(Debug)]
pub struct Attachment {
    events: mpsc::Receiver<AttachEvent>,
    keys: mpsc::Sender<Act>,
    _leave: DropGuard,
}

impl Attachment {
    /// The next thing to see; `None` after the last. May be given up at any time without losing anything.
    pub async fn recv(&mut self) -> Option<AttachEvent> {
        self.events.recv().await
    }

    /// Types. Returns when it is on its way; waits while the terminal takes nothing.
    pub async fn send(&self, bytes: impl Into<Vec<u8>>) -> Result<(), Error> {
        self.act(Act::Press(bytes.into())).await
    }

    /// The person's window has another size.
    pub async fn resize(&self, columns: u16, rows: u16) -> Result<(), Error> {
        self.act(Act::Resize(Size { columns, rows })).await
    }

    async fn act(&self, act: Act) -> Result<(), Error> {
        self.keys.send(act).await.map_err(|_| Error::Conflict("the terminal is no longer attached to".to_owned()))
    }

    /// A hand that types while another receives.
    pub fn keyboard(&self) -> Keyboard {
        Keyboard(self.keys.clone())
    }
}

/// Types at an [`Attachment`] that somebody else holds. It keeps nothing attached.
#[derive(Debug, Clone)]
pub struct Keyboard(mpsc::Sender<Act>);

impl Keyboard {
    pub async fn send(&self, bytes: impl Into<Vec<u8>>) -> Result<(), Error> {
        let sent = self.0.send(Act::Press(bytes.into())).await;
        sent.map_err(|_| Error::Conflict("the terminal is no longer attached to".to_owned()))
    }

    pub async fn resize(&self, columns: u16, rows: u16) -> Result<(), Error> {
        let sent = self.0.send(Act::Resize(Size { columns, rows })).await;
        sent.map_err(|_| Error::Conflict("the terminal is no longer attached to".to_owned()))
    }
}

impl std::fmt::Debug for Act {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What people type may be a password.
        match self {
            Self::Press(keys) => write!(f, "Press({} bytes)", keys.len()),
            Self::Resize(size) => write!(f, "Resize({size:?})"),
        }
    }
}

/// Where an attachment is at the moment.
#[derive(Debug, Clone)]
struct Place {
    seat: Arc<Seat>,
    sight: Arc<dyn Sight>,
}

impl Stead {
    /// Attaches to a thread's terminal; finds or makes everything that it needs, as a command does.
    pub async fn attach(&self, at: Where, size: Size) -> Result<Attachment, Error> {
        let inner = &self.inner;
        let size = size.clamped();
        let mut seat = sit::down(inner, &at).await?;
        if let Some(project) = &seat.thread.project {
            super::projects::used(inner, project).await?;
        }
        inner.touched(&seat.thread).await;
        let mut tries = 0;
        // The first word comes before anybody is told that it worked: a refusal is an answer.
        let (sight, first) = loop {
            match begin(&seat, size).await {
                Ok(begun) => break begun,
                Err(RuntimeError::Broken(_)) if tries < TRIES => {
                    tries += 1;
                    seat = match sit::down_beyond(inner, &at, &seat).await {
                        // Somebody paused or destroyed the instance; whoever attaches asks for one.
                        Err(Error::Lease(LeaseError::Paused(_) | LeaseError::Destroyed(_))) => {
                            sit::down(inner, &at).await?
                        }
                        seat => seat?,
                    };
                }
                Err(error) => return Err(error.into()),
            }
        };
        let (events, heard) = mpsc::channel(EVENTS);
        let (keys, typed) = mpsc::channel(KEYS);
        let over = CancellationToken::new();
        let place = latest::Sender::new(Place { seat, sight });
        let size = Arc::new(Mutex::new(size));
        let typist = Typist { inner: Arc::clone(inner), place: place.subscribe(), size: Arc::clone(&size) };
        inner.core.tasks.spawn(typist.run(typed, over.clone()));
        let at = Where { create: false, auto_resume: AutoResume::No, ..at };
        let here = Here::new(inner, &place.borrow().seat.terminal);
        let looker = Looker { inner: Arc::clone(inner), at, place, size, events, over: over.clone(), _here: here };
        inner.core.tasks.spawn(looker.run(first));
        Ok(Attachment { events: heard, keys, _leave: over.drop_guard() })
    }

    /// How many look at a terminal, and when somebody last typed there.
    pub(crate) fn attended(&self, terminal: &TerminalId) -> (usize, Option<Timestamp>) {
        let looking = lookers(&self.inner).get(terminal).copied().unwrap_or(0);
        (looking, self.inner.seat(terminal).map(|seat| seat.session().last_active_at))
    }
}

/// Attaches, and waits for the first thing to see.
async fn begin(seat: &Seat, size: Size) -> Result<(Arc<dyn Sight>, Seen), RuntimeError> {
    let sight = seat.runtime.attach(size).await?;
    let first = sight.next().await?;
    Ok((sight, first))
}

/// Passes on what is typed, one after the other.
struct Typist {
    inner: Arc<Inner>,
    place: latest::Receiver<Place>,
    size: Arc<Mutex<Size>>,
}

impl Typist {
    async fn run(mut self, mut typed: mpsc::Receiver<Act>, over: CancellationToken) {
        loop {
            let act = tokio::select! {
                biased;
                () = over.cancelled() => return,
                act = typed.recv() => act,
            };
            let Some(act) = act else { return };
            // Never cut short: half a message would end the connection for all.
            let place = self.place.borrow_and_update().clone();
            let done = match &act {
                Act::Press(keys) => {
                    place.seat.touch(&self.inner.core);
                    place.sight.press(keys).await
                }
                Act::Resize(size) => {
                    *self.size.lock().unwrap_or_else(PoisonError::into_inner) = size.clamped();
                    place.sight.resize(*size).await
                }
            };
            if let Err(error) = done {
                // Keys that were on their way when the steward died may have arrived: they are not typed twice.
                tracing::debug!(%error, terminal = %place.seat.terminal, "what was typed may be lost");
            }
        }
    }
}

/// Passes on what is to be seen, and finds the way back when it breaks.
struct Looker {
    inner: Arc<Inner>,
    at: Where,
    place: latest::Sender<Place>,
    size: Arc<Mutex<Size>>,
    events: mpsc::Sender<AttachEvent>,
    over: CancellationToken,
    _here: Here,
}

/// Counts one who looks at a terminal, as long as it is held.
struct Here {
    inner: Arc<Inner>,
    terminal: TerminalId,
}

impl Here {
    fn new(inner: &Arc<Inner>, terminal: &TerminalId) -> Self {
        *lookers(inner).entry(terminal.clone()).or_insert(0) += 1;
        Self { inner: Arc::clone(inner), terminal: terminal.clone() }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        let mut lookers = lookers(&self.inner);
        if let Some(count) = lookers.get_mut(&self.terminal) {
            *count -= 1;
            if *count == 0 {
                lookers.remove(&self.terminal);
            }
        }
    }
}

fn lookers(inner: &Inner) -> MutexGuard<'_, HashMap<TerminalId, usize>> {
    inner.lookers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What follows.
enum Then {
    GoOn,
    /// Nobody is to see any more.
    End(Option<Detached>),
}

impl Looker {
    async fn run(self, first: Seen) {
        let mut next = Ok(first);
        let why = loop {
            match next {
                Ok(seen) => match self.show(seen).await {
                    Then::GoOn => {}
                    Then::End(why) => break why,
                },
                Err(Gone::Left | Gone::Broken) if self.over.is_cancelled() => break None,
                Err(gone) => match self.again(&gone).await {
                    Some(seen) => {
                        next = Ok(seen);
                        continue;
                    }
                    None => break Some(Detached::Closed),
                },
            }
            next = self.next().await;
        };
        match why {
            Some(why) => {
                let _ = self.events.send(AttachEvent::Detached(why)).await;
            }
            None => {
                let _ = self.place().sight.leave().await;
            }
        }
        self.over.cancel();
        // The end of what was typed last is told to whoever looks on; nobody does here any more.
        watch::look_soon(&self.inner);
    }

    fn place(&self) -> Place {
        self.place.borrow().clone()
    }

    async fn next(&self) -> Result<Seen, Gone> {
        let place = self.place();
        tokio::select! {
            biased;
            () = self.over.cancelled() => Err(Gone::Left),
            () = self.inner.core.stop.cancelled() => Err(Gone::Refused),
            seen = place.sight.next() => seen.map_err(Gone::from),
            // Whoever closes the terminal leaves the seat first. What the terminal says then is the truth; one that is
            // asleep says nothing.
            () = silence(&place.seat) => Err(Gone::Left),
        }
    }

    async fn show(&self, seen: Seen) -> Then {
        let place = self.place();
        let event = match seen {
            Seen::Detached(why) => return Then::End(Some(why)),
            Seen::Told(Told::Output(chunk)) => {
                let length = chunk.bytes.len() as u64;
                if self.events.send(AttachEvent::Bytes(chunk.bytes)).await.is_err() {
                    return Then::End(None);
                }
                // If the way is broken, the next look tells.
                let _ = place.sight.taken(length).await;
                return Then::GoOn;
            }
            Seen::Told(Told::Event(Event::ShellEnded(end))) => AttachEvent::Exit(end),
            Seen::Told(Told::Event(Event::Resized(size))) => AttachEvent::Resized(size),
            Seen::Told(Told::Event(Event::Entered(entered))) => {
                self.write_down(&place.seat, &entered).await;
                return Then::GoOn;
            }
            Seen::Told(Told::Event(Event::Advanced(version))) => {
                place.seat.acknowledge(version);
                watch::look_soon(&self.inner);
                return Then::GoOn;
            }
            Seen::Told(Told::Event(
                Event::Queued(_) | Event::Started(_) | Event::Ended(_) | Event::Stalled(_) | Event::Piece(_),
            )) => {
                return Then::GoOn;
            }
        };
        if self.events.send(event).await.is_err() { Then::End(None) } else { Then::GoOn }
    }

    /// A person's command has a row as every other; its end is found out about when it has one.
    async fn write_down(&self, seat: &Seat, entered: &Entered) {
        if matches!(self.inner.core.store.command(&entered.command).await, Ok(Some(_))) {
            // Somebody else looks on, too.
            return;
        }
        let row = execute::row(&self.inner, seat, entered.command.clone(), &entered.text);
        self.inner.ledger.note(row.clone()).await;
        watch::leave(&self.inner, [row]);
    }

    /// Attaches anew, if there is still something to look at. Wakes nothing.
    async fn again(&self, gone: &Gone) -> Option<Seen> {
        for _ in 0..TRIES {
            let before = self.place().seat;
            if !self.inner.leases.last_seen(&before.lease, |lease| lease.desired == Desired::Running) {
                return None;
            }
            self.inner.core.store.live_session(&before.terminal).await.ok()??;
            let seat = match gone {
                Gone::Refused => return None,
                Gone::Broken => sit::down_beyond(&self.inner, &self.at, &before).await.ok()?,
                // Taken away: by somebody who sat down anew, or because it is over.
                Gone::Left => sit::down_again(&self.inner, &self.at, &before).await.ok()?,
            };
            let size = *self.size.lock().unwrap_or_else(PoisonError::into_inner);
            match begin(&seat, size).await {
                Ok((sight, first)) => {
                    self.place.send_replace(Place { seat, sight });
                    return Some(first);
                }
                Err(RuntimeError::Broken(_)) => {}
                Err(RuntimeError::Refused(_) | RuntimeError::Provider(_)) => return None,
            }
        }
        None
    }
}

async fn silence(seat: &Seat) {
    seat.left().await;
    tokio::time::sleep(LAST_WORDS).await;
}

/// Why there is nothing more to see through a sight.
enum Gone {
    /// The seat was left.
    Left,
    Broken,
    Refused,
}

impl From<RuntimeError> for Gone {
    fn from(error: RuntimeError) -> Self {
        match error {
            RuntimeError::Broken(_) | RuntimeError::Provider(_) => Self::Broken,
            RuntimeError::Refused(_) => Self::Refused,
        }
    }
}
