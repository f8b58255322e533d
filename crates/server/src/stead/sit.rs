//! From a thread to a seat: every layer is found, or made.

use super::{Inner, Where};
use crate::error::Error;
use crate::lease::{LeaseError, Ready};
use crate::provider::{Access, Channel, Surroundings, in_time};
use crate::runtime::{LiveRuntime, Opening, Runtime, RuntimeError, WrappedRuntime};
use crate::seat::{Busy, Seat, Seating};
use crate::steward::{Steward, StewardError};
use crate::store::StoreError;
use std::sync::Arc;
use stead_model::ids::{InstanceId, LeaseId, ProviderName, SessionId, ShellId, TerminalId, TokenId};
use stead_model::lease::{Desired, Lease, Observed};
use stead_model::proto::FaultCode;
use stead_model::session::{Input, Session, Status};
use stead_model::state::{Bytes, ShellState};
use stead_model::terminal::{DEFAULT_NAME, Terminal};
use stead_model::thread::Thread;

/// Stewards that may die in a row while they greet us.
const GREETINGS: u32 = 10;

/// How often a terminal is opened whose instance or steward goes away meanwhile.
const TRIES: u32 = 4;

/// The seat of a thread's terminal: the one there is, or a new one.
pub(super) async fn down(inner: &Arc<Inner>, at: &Where) -> Result<Arc<Seat>, Error> {
    if let Some(seat) = taken(inner, at) {
        seat.touch(&inner.core);
        return Ok(seat);
    }
    if inner.core.stop.is_cancelled() {
        return Err(Error::Stopping);
    }
    // Whoever asked may go away; what has been begun is finished all the same.
    let (worker, place) = (Arc::clone(inner), at.clone());
    let work = async move {
        let door = worker.door(&place.thread);
        let _inside = door.lock().await;
        match taken(&worker, &place) {
            Some(seat) => {
                seat.touch(&worker.core);
                Ok(seat)
            }
            None => open(&worker, &place, Opened::Never).await,
        }
    };
    inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
}

/// The same, entered: from here on nobody takes the seat away without asking.
pub(super) async fn enter(inner: &Arc<Inner>, at: &Where) -> Result<(Arc<Seat>, Busy), Error> {
    loop {
        let seat = down(inner, at).await?;
        let busy = seat.enter();
        // Between the two it may have been taken away, for a pause or by the reaper.
        if inner.is_there(&seat) {
            inner.touched(&seat.thread).await;
            return Ok((seat, busy));
        }
    }
}

/// The same after an instance was seen to fail. The thread may have been deleted meanwhile, and an instance that was
/// destroyed with its thread looks like one that failed: no thread is made here, and no other terminal is opened. So does
/// one that was paused, where a pause cuts connections: it is not woken, and an instance that was destroyed is not replaced.
pub(super) async fn down_beyond(inner: &Arc<Inner>, at: &Where, failed: &Arc<Seat>) -> Result<Arc<Seat>, Error> {
    let (worker, place, failed) = (Arc::clone(inner), existing(at), Arc::clone(failed));
    let work = async move {
        let door = worker.door(&place.thread);
        let _inside = door.lock().await;
        match taken(&worker, &place) {
            Some(seat) if seat.terminal != failed.terminal => Err(deleted(&failed.terminal)),
            // Somebody else has been through this.
            Some(seat) if seat.generation != failed.generation => Ok(seat),
            _ => {
                open(&worker, &place, Opened::Before { terminal: &failed.terminal, failed: Some(&failed.instance) })
                    .await
            }
        }
    };
    inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
}

/// The same for somebody whose seat was taken away: back to the same terminal, if it is still there.
pub(super) async fn down_again(inner: &Arc<Inner>, at: &Where, left: &Arc<Seat>) -> Result<Arc<Seat>, Error> {
    let (worker, place, left) = (Arc::clone(inner), existing(at), Arc::clone(left));
    let work = async move {
        let door = worker.door(&place.thread);
        let _inside = door.lock().await;
        match taken(&worker, &place) {
            Some(seat) if seat.terminal != left.terminal => Err(deleted(&left.terminal)),
            Some(seat) => {
                seat.touch(&worker.core);
                Ok(seat)
            }
            None => open(&worker, &place, Opened::Before { terminal: &left.terminal, failed: None }).await,
        }
    };
    inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
}

/// The same for who is inside already.
pub(super) async fn down_inside(inner: &Arc<Inner>, at: &Where) -> Result<Arc<Seat>, Error> {
    match taken(inner, at) {
        Some(seat) => Ok(seat),
        None => open(inner, at, Opened::Never).await,
    }
}

/// The same place for somebody who was there before: a thread that is gone is not made again.
fn existing(at: &Where) -> Where {
    Where { create: false, ..at.clone() }
}

fn deleted(terminal: &TerminalId) -> Error {
    Error::NotFound { kind: "terminal", id: terminal.to_string() }
}

/// What whoever opens a terminal knows of it from an earlier time.
#[derive(Debug, Clone, Copy)]
enum Opened<'a> {
    Never,
    /// Its thread may have been deleted and made again since: then that is another terminal, and not the one that is meant.
    Before {
        terminal: &'a TerminalId,
        failed: Option<&'a InstanceId>,
    },
}

fn taken(inner: &Inner, at: &Where) -> Option<Arc<Seat>> {
    let seat = inner.seat_named(&at.thread, &at.terminal)?;
    inner.is_good(&seat).then_some(seat)
}

/// Opens a terminal. Its instance may be put to sleep or destroyed in the middle of it, by the reaper or by somebody who
/// shares it and can't know that we are coming; or its steward may be killed, again and again: then it is opened again.
async fn open(inner: &Arc<Inner>, at: &Where, opened: Opened<'_>) -> Result<Arc<Seat>, Error> {
    let mut tries = 1;
    loop {
        match try_open(inner, at, opened).await {
            Err(Error::Broken(error)) if tries < TRIES => {
                tracing::debug!(error, thread = %at.thread, "opening the terminal once more");
                tries += 1;
            }
            opened => return opened,
        }
    }
}

async fn try_open(inner: &Arc<Inner>, at: &Where, opened: Opened<'_>) -> Result<Arc<Seat>, Error> {
    let thread = thread(inner, at).await?;
    let terminal = terminal(inner, &thread, &at.terminal).await?;
    let suspect = match opened {
        Opened::Never => None,
        Opened::Before { terminal: before, .. } if *before != terminal.id => return Err(deleted(before)),
        Opened::Before { failed, .. } => failed.cloned(),
    };
    let lease = lease(inner, &thread, &terminal).await?;
    if suspect.is_some() {
        still_wanted(&lease)?;
    }
    let _admitted = super::projects::admit(inner, &thread, &lease.id).await?;
    super::reap::write_down_all(inner, |seat| seat.terminal == terminal.id).await?;
    let session = live_session(inner, &terminal.id).await?;
    // Put to sleep with a session that waits for it, or by the reaper, which closed its session.
    let asleep = session.as_ref().is_some_and(|session| session.status == Status::Paused)
        || lease.desired == Desired::Paused
        || lease.observed == Observed::Paused;
    let source = if asleep { "auto_resume" } else { "run.ensure" };
    // Until its session is in the store nobody else could know that we are coming.
    let _arriving = inner.leases.arrive(&lease.id);
    let ready = match suspect {
        Some(suspect) => inner.leases.keep_running_beyond(&lease.id, suspect, "run.refresh").await?,
        None => inner.leases.ensure_running(&lease.id, at.auto_resume, source).await?,
    };
    // From the next generation on it is stale, also if nobody gets to sit here.
    if let Some(before) = inner.take_seat(&terminal.id) {
        before.leave();
    }
    let (terminal, ready, runtime) = runtime(inner, terminal, ready, opened).await?;
    let Some(instance) = ready.lease.instance.clone() else {
        return Err(Error::Broken("the lease has no instance".to_owned()));
    };
    let session = match session_for(inner, &thread, &terminal, &instance, session, at.by.as_ref()).await {
        Err(Error::Store(error)) if matches!(*error, StoreError::Conflict { kind: "lease", .. }) => {
            // Its owner here doesn't know yet what another server has made of it.
            inner.leases.look_anew(&ready.lease, source).await?;
            return Err(Error::Broken("another server pauses or destroys the instance".to_owned()));
        }
        session => session?,
    };
    let provider = inner.core.provider(&ready.lease.provider)?;
    let seating = Seating {
        thread,
        terminal: terminal.id.clone(),
        name: terminal.name.clone(),
        lease: ready.lease.id.clone(),
        instance,
        generation: terminal.generation,
        version: terminal.version,
        surroundings: provider.surroundings(&ready.lease.workspace),
        keeps_state: provider.capabilities().durable_journal && runtime.remembers(),
        is_mirrored: provider.mirror(&ready.lease.id).is_some(),
        runtime,
        session,
    };
    let seat = Seat::take(&inner.core, seating);
    if let Err(error) = settle_in(inner, &seat, &ready.lease.provider).await {
        seat.leave();
        return Err(error);
    }
    inner.put_seat(&seat);
    super::watch::look_soon(inner);
    Ok(seat)
}

/// Whether an instance is wanted; the lease's owner decides the same again. It is asked here so that whoever follows a
/// command learns this first, whatever else forbids to open its terminal.
fn still_wanted(lease: &Lease) -> Result<(), LeaseError> {
    match lease.desired {
        Desired::Running => Ok(()),
        Desired::Paused => Err(LeaseError::Paused(lease.id.clone())),
        Desired::Destroyed => Err(LeaseError::Destroyed(lease.id.clone())),
    }
}

async fn settle_in(inner: &Inner, seat: &Arc<Seat>, provider: &ProviderName) -> Result<(), Error> {
    // The steward may have seen commands that no server lived to hear of.
    let captured = seat.runtime.capture().await?;
    seat.acknowledge(captured.version);
    super::env::deliver(inner, seat).await?;
    super::execute::init(inner, seat, provider).await
}

async fn thread(inner: &Arc<Inner>, at: &Where) -> Result<Thread, Error> {
    if let Some(thread) = inner.core.store.thread(&at.thread).await? {
        return Ok(thread);
    }
    if !at.create {
        return Err(Error::NotFound { kind: "thread", id: at.thread.to_string() });
    }
    let new = super::NewThread { id: Some(at.thread.clone()), ..super::NewThread::default() };
    match super::threads::create(inner, new).await {
        // Another server, or another door.
        Err(Error::AlreadyExists { kind: "thread", .. }) => {
            let thread = inner.core.store.thread(&at.thread).await?;
            thread.ok_or_else(|| Error::NotFound { kind: "thread", id: at.thread.to_string() })
        }
        made => made,
    }
}

/// The terminal of that name. The default one is made again, under the id that the thread remembers, if its row is lost;
/// another must have been made by somebody.
pub(super) async fn terminal(inner: &Inner, thread: &Thread, name: &str) -> Result<Terminal, Error> {
    let store = &inner.core.store;
    if let Some(terminal) = store.terminal_named(&thread.id, name).await? {
        return Ok(terminal);
    }
    if name != DEFAULT_NAME {
        return Err(Error::NotFound { kind: "terminal", id: name.to_owned() });
    }
    ensure_lease_row(inner, thread, &thread.lease).await?;
    let (id, lease) = (thread.default_terminal.clone(), thread.lease.clone());
    let terminal = Terminal::new(id, thread.id.clone(), lease, name.to_owned(), inner.core.now());
    match store.put_terminal(&terminal).await {
        Ok(()) | Err(StoreError::AlreadyExists { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let terminal = store.terminal_named(&thread.id, name).await?;
    terminal.ok_or_else(|| Error::NotFound { kind: "terminal", id: name.to_owned() })
}

/// The terminal's lease; made again under the same id if its row is lost.
async fn lease(inner: &Inner, thread: &Thread, terminal: &Terminal) -> Result<Lease, Error> {
    ensure_lease_row(inner, thread, &terminal.lease).await
}

async fn ensure_lease_row(inner: &Inner, thread: &Thread, id: &LeaseId) -> Result<Lease, Error> {
    let store = &inner.core.store;
    if let Some(lease) = store.lease(id).await? {
        return Ok(lease);
    }
    let lease = Lease::new(id.clone(), thread.provider.clone(), thread.workspace.clone(), inner.core.now());
    match store.put_lease(&lease).await {
        Ok(()) | Err(StoreError::AlreadyExists { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    store.lease(id).await?.ok_or_else(|| Error::NotFound { kind: "lease", id: id.to_string() })
}

/// The live session of a terminal, unless its time is over: then it is closed.
async fn live_session(inner: &Arc<Inner>, terminal: &TerminalId) -> Result<Option<Session>, Error> {
    loop {
        let Some(mut session) = inner.core.store.live_session(terminal).await? else { return Ok(None) };
        if let Some(seat) = inner.seat(terminal).filter(|seat| seat.session().id == session.id) {
            // Uses that nobody has written down yet count.
            session.last_active_at = session.last_active_at.max(seat.session().last_active_at);
        }
        let Some(reason) = session.expiry(inner.core.present()) else { return Ok(Some(session)) };
        if super::close::expired(inner, session, reason).await?.is_some() {
            return Ok(None);
        }
    }
}

async fn session_for(
    inner: &Inner,
    thread: &Thread,
    terminal: &Terminal,
    instance: &InstanceId,
    live: Option<Session>,
    by: Option<&TokenId>,
) -> Result<Session, Error> {
    let core = &inner.core;
    if let Some(before) = live {
        let input = if before.status == Status::Paused { Input::Resumed } else { Input::Touch };
        let after = before.apply(input, core.now()).map_err(|error| Error::Conflict(error.to_string()))?;
        match core.store.open_session_on(instance, Some(&before), &after).await {
            Ok(()) => return Ok(after),
            // Closed or changed meanwhile by another server: a new one takes its place.
            Err(StoreError::Conflict { kind: "session", .. } | StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let id = SessionId::made_of(core.entropy());
    let on = (terminal.id.clone(), terminal.lease.clone());
    let session = Session {
        project: thread.project.clone(),
        opened_by: by.cloned(),
        ..Session::open(id, thread.id.clone(), on, thread.policy, core.now())
    };
    core.store.open_session_on(instance, None, &session).await?;
    core.measure.opened();
    super::projects::log::opened(inner, &session).await;
    core.store.touch_thread(&thread.id, core.now()).await?;
    Ok(session)
}

/// How often a terminal is opened again because another server has opened it meanwhile.
pub(super) const OPENINGS: u32 = 10;

/// Opens the terminal's shell on the instance. An instance that looks alive and can't be reached is looked at again,
/// and replaced if it is dead: once.
async fn runtime(
    inner: &Inner,
    mut terminal: Terminal,
    mut ready: Ready,
    opened: Opened<'_>,
) -> Result<(Terminal, Ready, Arc<dyn Runtime>), Error> {
    for _ in 0..OPENINGS {
        terminal = next_generation(inner, terminal).await?;
        let runtime = match reach(inner, &terminal, &ready).await {
            Err(Error::Broken(_) | Error::Lease(_)) if ready.lease.instance.is_some() => {
                let suspect = ready.lease.instance.clone().unwrap_or_else(|| InstanceId::made_of([0; 8]));
                let lease = &ready.lease.id;
                ready = match opened {
                    Opened::Never => inner.leases.ensure_running_beyond(lease, suspect, "run.refresh").await?,
                    Opened::Before { .. } => inner.leases.keep_running_beyond(lease, suspect, "run.refresh").await?,
                };
                reach(inner, &terminal, &ready).await?
            }
            reached => reached?,
        };
        match settle(inner, terminal, &ready, &*runtime).await? {
            Settled::Here(terminal) => return Ok((terminal, ready, runtime)),
            Settled::Overtaken(again) => terminal = again,
        }
    }
    Err(Error::Broken("other servers keep opening the terminal".to_owned()))
}

enum Settled {
    Here(Terminal),
    /// Somebody has opened it after us, and may have given its shell another state.
    Overtaken(Terminal),
}

/// Has the terminal live on the instance. A shell that it has left there is given its state first: were it noted first
/// that it lives there, a server that is killed in between would leave a shell that goes its own way.
///
/// Nobody who was overtaken changes that shell: that we are not is looked up after its version, and by then whoever comes
/// later finds that version or what we made of it, and of two who set the next one only the first does.
async fn settle(inner: &Inner, terminal: Terminal, ready: &Ready, runtime: &dyn Runtime) -> Result<Settled, Error> {
    let Some(instance) = &ready.lease.instance else { return Ok(Settled::Here(terminal)) };
    let provider = inner.core.provider(&ready.lease.provider)?;
    if provider.capabilities().durable_journal || terminal.lives_on(instance) {
        return Ok(Settled::Here(terminal));
    }
    let mut known = terminal;
    if known.has_left(instance) {
        let found = runtime.capture().await?.version;
        let now = again(inner, &known).await?;
        if now.generation != known.generation {
            return Ok(Settled::Overtaken(now));
        }
        known = now;
        let state = as_known_inside(&known.state, &provider.surroundings(&ready.lease.workspace));
        match runtime.set_state(&state, found.max(known.version) + 1).await {
            Ok(()) => {}
            Err(RuntimeError::Refused(fault)) if fault.code == FaultCode::Conflict => {
                return Ok(Settled::Overtaken(again(inner, &known).await?));
            }
            Err(error) => return Err(error.into()),
        }
    }
    loop {
        let settled = known.settle(instance, inner.core.now());
        match inner.core.store.replace_terminal(&known, &settled).await {
            Ok(()) => return Ok(Settled::Here(settled)),
            Err(StoreError::Conflict { .. }) => {
                let now = again(inner, &known).await?;
                if now.generation != known.generation {
                    return Ok(Settled::Overtaken(now));
                }
                known = now;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

async fn again(inner: &Inner, terminal: &Terminal) -> Result<Terminal, Error> {
    let again = inner.core.store.terminal(&terminal.id).await?;
    again.ok_or_else(|| Error::NotFound { kind: "terminal", id: terminal.id.to_string() })
}

async fn next_generation(inner: &Inner, mut terminal: Terminal) -> Result<Terminal, Error> {
    loop {
        let opened = terminal.open(inner.core.now());
        match inner.core.store.replace_terminal(&terminal, &opened).await {
            Ok(()) => return Ok(opened),
            Err(StoreError::Conflict { .. }) => {
                terminal = again(inner, &terminal).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

pub(super) async fn reach(inner: &Inner, terminal: &Terminal, ready: &Ready) -> Result<Arc<dyn Runtime>, Error> {
    let provider = inner.core.provider(&ready.lease.provider)?;
    let handle = ready.handle().ok_or_else(|| Error::Broken("the lease has no instance".to_owned()))?;
    let shell = ShellId::parse(terminal.id.as_str()).map_err(|error| Error::Invalid(error.to_string()))?;
    let surroundings = provider.surroundings(&ready.lease.workspace);
    let opening = Opening {
        shell,
        state: as_known_inside(&terminal.state, &surroundings),
        version: terminal.version,
        surroundings,
    };
    let mut greetings = 0;
    loop {
        let access = in_time(provider.name(), "connect", provider.access(&handle)).await?;
        let opened: Result<Arc<dyn Runtime>, RuntimeError> = match access {
            Access::Steward(channel) => greet(channel, &opening).await,
            Access::OneShot(shots) => Ok(Arc::new(WrappedRuntime::open(shots, &opening))),
            Access::Runtime(runtime) => Ok(runtime(&opening)),
        };
        match opened {
            // It died while it greeted us; its keeper is starting the next one.
            Err(RuntimeError::Broken(StewardError::Broken(_))) if greetings < GREETINGS => greetings += 1,
            opened => return Ok(opened?),
        }
    }
}

async fn greet(channel: Box<dyn Channel>, opening: &Opening) -> Result<Arc<dyn Runtime>, RuntimeError> {
    let steward = Steward::greet(channel).await?;
    Ok(Arc::new(LiveRuntime::open(Arc::new(steward), opening).await?))
}

pub(super) fn as_known_inside(state: &ShellState, surroundings: &Surroundings) -> ShellState {
    ShellState {
        cwd: Bytes(surroundings.real(&state.cwd)),
        oldpwd: state.oldpwd.as_ref().map(|oldpwd| Bytes(surroundings.real(oldpwd))),
        ..state.clone()
    }
}
