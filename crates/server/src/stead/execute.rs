//! The path of one command through the layers: a seat, the runtime, the record, the state. Read it top to bottom.
//!
//! What breaks on the way is told apart by whether the command can have run. Its id makes the steward run it once,
//! however often it is sent; so after a break the instance is looked at, replaced if it is dead, and asked what it knows
//! of the command. What it knows is followed to its end; what it never got is sent again, once; what nobody can know is
//! `lost`. An instance that was paused is not woken for this: its command is waited for. One that was destroyed is not
//! replaced: its journal tells what became of the command.

use super::watch::{self, Outcome, Watch};
use super::{Inner, Sandbox, Stead, claim, sit};
use crate::error::Error;
use crate::lease::LeaseError;
use crate::provider::Effect;
use crate::runtime::{Listener, Run, RuntimeError};
use crate::seat::Seat;
use crate::steward::Told;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stead_model::clock::Timestamp;
use stead_model::command::Command;
use stead_model::frame::Stream;
use stead_model::ids::{CommandId, LeaseId, ProviderName, ShellId};
use stead_model::lease::{Desired, Observed};
use stead_model::plain::plain;
use stead_model::proto::{CommandInfo, Ending, Fault, FaultCode, FirstSignal, IfBusy, Status, Stdin, Warning};
use stead_model::state::Bytes;

/// Breaks of the connection to a steward that is alive, during one command. A steward that dies this often while it
/// runs one is not going to finish it.
const MOST_BREAKS: u32 = 1000;

/// How long whoever asks for a command again waits until it is found out what became of it, where nobody has it any more.
const FOUND_OUT: Duration = Duration::from_secs(30);

/// A command to be run.
#[derive(Debug, Clone)]
pub struct Execute {
    /// Chosen by the caller: run at most once.
    pub id: Option<CommandId>,
    pub command: Vec<u8>,
    pub cwd: Option<Vec<u8>>,
    pub env: Vec<(String, Vec<u8>)>,
    pub stdin: Stdin,
    pub timeout: Option<Duration>,
    pub if_busy: IfBusy,
}

impl Execute {
    pub fn new(command: impl Into<Vec<u8>>) -> Self {
        Self {
            id: None,
            command: command.into(),
            cwd: None,
            env: Vec::new(),
            stdin: Stdin::Empty,
            timeout: None,
            if_busy: IfBusy::Queue,
        }
    }
}

/// A command that has ended, with all it printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executed {
    pub command: Command,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Executed {
    pub fn exit_code(&self) -> Option<i32> {
        self.command.ending.as_ref().and_then(|ending| ending.exit_code)
    }
}

/// All that a command prints.
#[derive(Debug, Default)]
struct Heard {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    is_evicted: bool,
}

impl Listener for Heard {
    fn hear(&mut self, told: Told) {
        if let Told::Output(chunk) = told {
            match chunk.stream {
                Stream::Stdout => self.stdout.extend_from_slice(&chunk.bytes),
                Stream::Stderr => self.stderr.extend_from_slice(&chunk.bytes),
            }
        }
    }

    fn evicted(&mut self) {
        self.is_evicted = true;
    }
}

impl Sandbox {
    /// Runs a command and waits for its end and its output. Of what ran some time ago the output may be left out because it
    /// is no longer kept; then the record has a warning `output_evicted`.
    pub async fn run(&self, execute: Execute) -> Result<Executed, Error> {
        let mut heard = Heard::default();
        let command = self.execute(execute, &mut heard).await?;
        let Heard { stdout, stderr, is_evicted } = heard;
        let command = if is_evicted { super::commands::without_output(command) } else { command };
        Ok(Executed { command, stdout, stderr })
    }

    /// Runs a command to its end; `listener` hears its events in order, each once.
    pub async fn execute(&self, execute: Execute, listener: &mut dyn Listener) -> Result<Command, Error> {
        let (seat, _busy) = sit::enter(&self.inner, &self.at).await?;
        self.allow(&seat, &execute).await?;
        let chosen = execute.id.is_some();
        let (mut row, run) = prepare(&self.inner, &seat, execute)?;
        let claim = if chosen {
            loop {
                match claim::make(&self.inner, &seat, &mut row).await? {
                    claim::Made::Now(claim) => break Some(claim),
                    claim::Made::Before(before) => {
                        if let Some(command) = self.repeat(&seat, *before, &run, listener).await? {
                            return Ok(command);
                        }
                    }
                }
            }
        } else {
            self.inner.ledger.note(row.clone()).await;
            None
        };
        let travel = Travel::new(self, seat, run, 0);
        let ended = self.travel(travel, row, listener).await;
        if let (Some(claim), Ok(ended)) = (claim, &ended) {
            claim.publish(ended);
        }
        ended
    }

    /// Work in a project needs room there. What has been asked for before needs none.
    pub(super) async fn allow(&self, seat: &Seat, execute: &Execute) -> Result<(), Error> {
        let Some(project) = &seat.thread.project else { return Ok(()) };
        let allowed = super::projects::used(&self.inner, project).await;
        if allowed.is_ok() {
            self.inner.sync_memories(project).await;
        }
        match (&allowed, &execute.id) {
            (Err(Error::NoSpace(_)), Some(id)) if self.inner.core.store.command(id).await?.is_some() => Ok(()),
            _ => allowed.map(drop),
        }
    }

    pub(super) async fn travel(
        &self,
        mut travel: Travel<'_>,
        row: Command,
        listener: &mut dyn Listener,
    ) -> Result<Command, Error> {
        let watch = Watch::over(&self.inner, &row);
        let (begun, _counted) = (Instant::now(), travel.seat.count());
        let outcome = travel.arrive(listener).await;
        watch.end();
        let ended = self.arrived(&travel, row, outcome, begun).await?;
        match travel.unheard() {
            Some(after) => self.tell_behind(ended, after, listener).await,
            None => Ok(ended),
        }
    }

    /// Writes down what became of a command: how it ended, that it never ran, or that this is still to be found out.
    pub(super) async fn arrived(
        &self,
        travel: &Travel<'_>,
        row: Command,
        outcome: Result<CommandInfo, Error>,
        begun: Instant,
    ) -> Result<Command, Error> {
        if let Some(project) = &travel.seat.thread.project {
            self.inner.sync_memories(project).await;
        }
        let ended = match outcome {
            Ok(info) => {
                if let Some(state) = info.state.as_ref().and_then(|state| minicbor::decode(state).ok()) {
                    travel.seat.note_state(info.state_version, state);
                }
                conclude(&row, &travel.seat, &info)
            }
            Err(error) => {
                let error = error.told_as(|text| travel.seat.redact_text(text));
                if !travel.answered && is_turned_away(&error) {
                    // Whoever asked is told so, and may ask for the same again.
                    self.inner.ledger.take_back(&row.id).await;
                    return Err(error);
                }
                if let Some(fault) = travel.why_never_ran(&error).await {
                    let ended = self.inner.ledger.note(fail(&self.inner, &row, fault)).await;
                    self.inner.core.measure.ended(ended.status, false, begun.elapsed());
                    self.log(&travel.seat, &ended).await;
                    self.inner.ledger.flush().await;
                } else {
                    // It may run, or have run: it is not said to be lost before that is certain.
                    watch::leave(&self.inner, [row]);
                    watch::look_soon(&self.inner);
                }
                return Err(error);
            }
        };
        let ended = self.acknowledge(&travel.seat, ended).await;
        let ended = self.keep_output(&travel.seat, ended).await;
        let ended = self.inner.ledger.note(ended).await;
        let state_changed = ended.ending.as_ref().is_some_and(|ending| ending.state_changed);
        self.inner.core.measure.ended(ended.status, state_changed, begun.elapsed());
        travel.seat.touch(&self.inner.core);
        self.log(&travel.seat, &ended).await;
        if !travel.seat.keeps_state || ended.status == Status::Lost {
            // No journal would know how it ended.
            self.inner.ledger.flush().await;
        }
        Ok(ended)
    }

    async fn log(&self, seat: &Seat, ended: &Command) {
        if let Some(project) = &seat.thread.project {
            super::projects::log::ended(&self.inner, project, ended).await;
        }
    }

    /// The same id again: the same record, with the output as far as it is still kept. `None`: there was no room for it, and
    /// it is to be asked for anew.
    async fn repeat(
        &self,
        seat: &Seat,
        mut before: claim::Before,
        run: &Run,
        listener: &mut dyn Listener,
    ) -> Result<Option<Command>, Error> {
        let listener = &mut Once { listener, seen: 0 };
        if before.row.status.is_final() {
            return self.tell_again(before.row, listener).await.map(Some);
        }
        if seat.runtime.remembers() {
            if known(seat, run).await?.is_none() {
                // Whoever has it is still on the way there.
                before.arrival().await;
            }
            match known(seat, run).await? {
                Some(info) if info.status.is_final() => {
                    let ended = self.inner.settle(conclude(&before.row, seat, &info)).await?;
                    return self.tell_again(ended, listener).await.map(Some);
                }
                // Asked for only where it is known: what isn't would be run.
                Some(_) => match seat.runtime.run(run, 0, listener).await {
                    Ok(info) => return self.inner.settle(conclude(&before.row, seat, &info)).await.map(Some),
                    Err(RuntimeError::Refused(fault)) => return Err(fault.into()),
                    // What ran it may be gone: whoever has it, or watches over it, finds out.
                    Err(RuntimeError::Broken(_) | RuntimeError::Provider(_)) => {}
                },
                None => {}
            }
        }
        let row = before.row.clone();
        let ended = match before.wait().await? {
            claim::Waited::Ended(ended) => *ended,
            claim::Waited::TurnedAway => return Ok(None),
            claim::Waited::Open => {
                let id = row.id.clone();
                match tokio::time::timeout(FOUND_OUT, self.see_end(row)).await {
                    Ok(ended) => ended?,
                    Err(_) => return Err(Error::Conflict(format!("`{id}` was sent before, and has not ended"))),
                }
            }
        };
        self.tell_again(ended, listener).await.map(Some)
    }

    /// Tells everything that a command which has ended told while it ran, as far as that is kept.
    pub(super) async fn tell_again(&self, ended: Command, listener: &mut dyn Listener) -> Result<Command, Error> {
        self.tell_behind(ended, 0, listener).await
    }

    /// The same from behind a place in its sequence.
    async fn tell_behind(&self, ended: Command, after: u64, listener: &mut dyn Listener) -> Result<Command, Error> {
        if ended.status == Status::Failed {
            return Ok(ended);
        }
        let stead = Stead { inner: Arc::clone(&self.inner) };
        let told = match stead.replay(&ended.id, after, false).await {
            Ok(mut follow) => loop {
                match follow.next().await {
                    Some(Ok(event)) => listener.hear(event.told()),
                    Some(Err(error)) => break Err(error),
                    None => break Ok(()),
                }
            },
            Err(error) => Err(error),
        };
        match told {
            Err(Error::Refused(fault)) if fault.code == FaultCode::Gone => listener.evicted(),
            told => told?,
        }
        Ok(ended)
    }

    /// Waits for the end of a command that somebody else sent, and has left.
    async fn see_end(&self, row: Command) -> Result<Command, Error> {
        let id = &row.id.clone();
        // Nobody has it any more: without somebody who finds out, it would never end.
        watch::leave(&self.inner, [row]);
        watch::look(&self.inner).await;
        let stead = Stead { inner: Arc::clone(&self.inner) };
        // Behind everything that it may print.
        let followed = stead.follow(id, u64::MAX - 1, false).await;
        let failed = match followed {
            Ok(mut follow) => loop {
                match follow.next().await {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => break Some(error),
                    None => break None,
                }
            },
            Err(error) => Some(error),
        };
        let command = stead.command(id).await?;
        // How it ended is known also where its output is not kept.
        if command.status.is_final() {
            return Ok(command);
        }
        Err(failed.unwrap_or_else(|| Error::Conflict(format!("`{id}` was sent before, and has not ended"))))
    }

    /// What an answer names is durable: in the steward's journal where that outlives the instance, else in the store,
    /// before the answer.
    async fn acknowledge(&self, seat: &Seat, mut ended: Command) -> Command {
        if ended.ending.as_ref().is_none_or(|ending| ending.state_changed) {
            seat.acknowledge(ended.state_version);
        } else {
            seat.acknowledge_number(ended.state_version);
        }
        if !seat.keeps_state
            && let Err(error) = seat.commit(&self.inner.core).await
            && let Some(ending) = &mut ended.ending
        {
            let code = "state_not_stored".to_owned();
            ending.warnings.push(Warning { code, message: error.to_string() });
        }
        ended
    }

    /// Has the output of a command where it can be read whatever becomes of its instance.
    async fn keep_output(&self, seat: &Seat, mut ended: Command) -> Command {
        if seat.is_mirrored
            && let Err(error) = super::afar::catch_up(&self.inner, &seat.lease).await
            && let Some(ending) = &mut ended.ending
        {
            let code = "output_not_copied".to_owned();
            ending.warnings.push(Warning { code, message: error.to_string() });
        }
        ended
    }

    /// Ends a command early.
    pub async fn cancel(&self, command: &CommandId) -> Result<CommandInfo, Error> {
        let seat = sit::down(&self.inner, &self.at).await?;
        Ok(seat.runtime.cancel(command, FirstSignal::Interrupt).await?)
    }
}

/// Passes each event on once, though a command is told from its beginning a second time.
struct Once<'a> {
    listener: &'a mut dyn Listener,
    /// The last place in its sequence that was passed on.
    seen: u64,
}

impl Listener for Once<'_> {
    fn hear(&mut self, told: Told) {
        let place = told.seq();
        if place.is_none_or(|seq| seq > self.seen) {
            self.seen = place.unwrap_or(self.seen);
            self.listener.hear(told);
        }
    }

    fn evicted(&mut self) {
        self.listener.evicted();
    }
}

/// What a shell says of a command that is asked for again; nothing if it can't be asked.
async fn known(seat: &Seat, run: &Run) -> Result<Option<CommandInfo>, Error> {
    match seat.runtime.look_up(&run.command).await {
        Ok(info) => Ok(info),
        Err(RuntimeError::Refused(fault)) => Err(Error::from(fault)),
        Err(RuntimeError::Broken(_) | RuntimeError::Provider(_)) => Ok(None),
    }
}

/// One command on its way, over any number of connections.
pub(super) struct Travel<'a> {
    sandbox: &'a Sandbox,
    seat: Arc<Seat>,
    run: Run,
    /// The last place in its sequence that the listener heard.
    seen: u64,
    /// What the listener heard of each stream, in bytes.
    heard: [u64; 2],
    /// Whether it was sent a second time.
    resent: bool,
    /// Whether it was given up though it can't have run.
    never_ran: bool,
    /// Whether its end was read from the journal of an instance that is gone, and not heard.
    is_read: bool,
    /// Whether whoever asked for it has been told that it is on its way.
    answered: bool,
}

impl<'a> Travel<'a> {
    /// `from` is the place behind which it is followed: 0 for all of it, the last there can be for its end alone.
    pub(super) fn new(sandbox: &'a Sandbox, seat: Arc<Seat>, run: Run, from: u64) -> Self {
        let (resent, never_ran, is_read, answered) = Default::default();
        Self { sandbox, seat, run, seen: from, heard: [0; 2], resent, never_ran, is_read, answered }
    }

    /// The place behind which its journal has more than the listener heard.
    fn unheard(&self) -> Option<u64> {
        (self.is_read && self.seen < u64::MAX).then_some(self.seen)
    }

    /// Whoever asked for it has been told that it is on its way.
    pub(super) fn answered(self) -> Self {
        Self { answered: true, ..self }
    }

    /// Why a command that was given up never ran; none if it may have. A refusal is one only as long as its shell hasn't
    /// got it: later it means that it can't be followed.
    async fn why_never_ran(&self, error: &Error) -> Option<Fault> {
        if self.never_ran {
            return Some(Fault::new(FaultCode::Unavailable, error.to_string()));
        }
        if let Error::Refused(fault) = error
            && self.seen == 0
        {
            let known = self.seat.runtime.look_up(&self.run.command).await;
            return matches!(known, Ok(None)).then(|| fault.clone());
        }
        None
    }

    /// The way that it came, to follow the command on: where it is, what it is, and the place behind which it is followed.
    pub(super) fn into_parts(self) -> (Arc<Seat>, Run, u64) {
        (self.seat, self.run, self.seen)
    }

    /// Sends a command until its shell has it, running or queued, and gives what the shell says of it. After a break it is
    /// found out first whether the shell has it, so that nobody is told so whom the next command could overtake. Final:
    /// what became of it is known already, and it must not be sent again.
    pub(super) async fn deliver(&mut self) -> Result<CommandInfo, Error> {
        let mut breaks = 0;
        loop {
            let seat = Arc::clone(&self.seat);
            let broken = match seat.runtime.submit(&self.run).await {
                Ok(info) => {
                    // Its output is read from the journal by whoever wants it; here only the end matters.
                    self.seen = u64::MAX;
                    return Ok(info);
                }
                Err(RuntimeError::Refused(fault)) => return Err(fault.into()),
                Err(error @ (RuntimeError::Broken(_) | RuntimeError::Provider(_))) => error,
            };
            breaks += 1;
            if breaks > MOST_BREAKS {
                return Err(broken.into());
            }
            if let Some(info) = self.find_out(broken).await? {
                return Ok(info);
            }
        }
    }

    async fn arrive(&mut self, listener: &mut dyn Listener) -> Result<CommandInfo, Error> {
        let mut breaks = 0;
        loop {
            let attempt = {
                let seat = Arc::clone(&self.seat);
                let _busy = seat.enter();
                let (seen, [stdout, stderr]) = (&mut self.seen, &mut self.heard);
                let after = *seen;
                let mut hear = |told: Told| {
                    let place = told.seq();
                    if place.is_none_or(|seq| seq > *seen) {
                        *seen = place.unwrap_or(*seen);
                        if let Told::Output(chunk) = &told {
                            let stream = if chunk.stream == Stream::Stdout { &mut *stdout } else { &mut *stderr };
                            *stream = chunk.offset + chunk.bytes.len() as u64;
                        }
                        listener.hear(told);
                    }
                };
                seat.runtime.run(&self.run, after, &mut hear).await
            };
            let broken = match attempt {
                Ok(info) => return Ok(info),
                Err(RuntimeError::Refused(fault)) => return Err(fault.into()),
                Err(error @ (RuntimeError::Broken(_) | RuntimeError::Provider(_))) => error,
            };
            breaks += 1;
            if breaks > MOST_BREAKS {
                return Err(broken.into());
            }
            match self.find_out(broken).await? {
                // It is kept with what it had written, which is heard first.
                Some(info)
                    if !self.is_read
                        && info.number > 0
                        && info.last_seq > self.seen
                        && self.seat.runtime.remembers() => {}
                Some(info) => return Ok(info),
                None => {}
            }
        }
    }

    /// After a break: a seat on whatever runs now, and what it knows of the command. `None`: go on with it there.
    async fn find_out(&mut self, broken: RuntimeError) -> Result<Option<CommandInfo>, Error> {
        let before = Arc::clone(&self.seat);
        loop {
            match sit::down_beyond(&self.sandbox.inner, &self.sandbox.at, &before).await {
                Ok(seat) => {
                    self.seat = seat;
                    break;
                }
                Err(Error::Lease(LeaseError::Paused(lease))) => self.sleep_with(&lease).await?,
                Err(Error::Lease(LeaseError::Destroyed(lease))) => {
                    if let Some(info) = self.read_outcome(&lease).await? {
                        return Ok(Some(info));
                    }
                    self.sleep_with(&lease).await?;
                }
                // Whoever exchanges the files holds the yard.
                Err(Error::Moving) => {
                    if let Some(project) = &before.thread.project {
                        drop(self.sandbox.inner.yard(project).lock().await);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        match self.seat.runtime.look_up(&self.run.command).await {
            Ok(Some(info)) if info.status == Status::Lost => Ok(Some(info)),
            // It is known there, running or ended: follow it from where we were. Or it is broken again: the next round
            // looks once more.
            Ok(Some(_)) | Err(RuntimeError::Broken(_)) => Ok(None),
            Ok(None) => {
                let same_instance = self.seat.instance == before.instance;
                let never_sent = matches!(&broken, RuntimeError::Provider(error) if error.effect == Effect::None);
                // Its journal would know: the same one is asked, or one that took over all it had.
                let would_be_known = before.keeps_state || (same_instance && before.runtime.remembers());
                let cannot_have_run = self.seen == 0 && (never_sent || would_be_known);
                if cannot_have_run && !self.resent {
                    self.resent = true;
                    return Ok(None);
                }
                if cannot_have_run {
                    self.never_ran = true;
                    return Err(broken.into());
                }
                Ok(Some(self.lost()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until a lease may be wanted running again.
    async fn sleep_with(&self, lease: &LeaseId) -> Result<(), Error> {
        let inner = &self.sandbox.inner;
        tokio::select! {
            biased;
            () = inner.core.stop.cancelled() => Err(Error::Stopping),
            () = inner.core.closing.cancelled() => Err(Error::Stopping),
            () = inner.leases.unpaused(lease) => Ok(()),
        }
    }

    /// What became of it, where its instance was destroyed; none if there is another by now, which can be asked.
    async fn read_outcome(&mut self, lease: &LeaseId) -> Result<Option<CommandInfo>, Error> {
        let inner = &self.sandbox.inner;
        // Another server may have destroyed it.
        let ready = inner.leases.look_beyond(lease, self.seat.instance.clone(), "run.refresh").await?;
        match (ready.lease.desired, ready.lease.observed) {
            (Desired::Running | Desired::Paused, _) => return Ok(None),
            (Desired::Destroyed, Observed::None | Observed::Stopped) => {}
            // It may go on: it is not said to be lost before that is certain.
            (Desired::Destroyed, Observed::Creating | Observed::Running | Observed::Paused | Observed::Unknown) => {
                return Err(LeaseError::Unclear(lease.clone()).into());
            }
        }
        let row = super::commands::row(inner, &self.run.command).await?;
        match watch::outcome(inner, &row).await {
            Outcome::Ended(info) => {
                self.is_read = true;
                Ok(Some(*info))
            }
            Outcome::NeverBegan => {
                self.never_ran = true;
                Err(Error::Broken("its instance ended before it could run".to_owned()))
            }
            Outcome::Lost(Some(info)) => {
                self.is_read = true;
                let ending = Some(Ending::new(Status::Lost, None));
                let ended_at = Some(inner.core.now().0 * 1000);
                Ok(Some(CommandInfo { status: Status::Lost, ending, ended_at, ..*info }))
            }
            Outcome::Lost(None) => Ok(Some(self.lost())),
        }
    }

    /// Nobody can know what became of it; what was heard of it was written.
    fn lost(&self) -> CommandInfo {
        let now = self.sandbox.inner.core.now().0 * 1000;
        let [stdout_bytes, stderr_bytes] = self.heard;
        CommandInfo {
            command: self.run.command.clone(),
            shell: self.run.shell.clone(),
            number: 0,
            status: Status::Lost,
            ending: Some(Ending::new(Status::Lost, None)),
            stdout_bytes,
            stderr_bytes,
            last_seq: if self.seen == u64::MAX { 0 } else { self.seen },
            cwd: Bytes::default(),
            state_version: 0,
            accepted_at: now,
            started_at: None,
            ended_at: Some(now),
            stalled: false,
            evicted: false,
            state: None,
            sums: None,
        }
    }
}

/// The record of a command that is about to be sent.
pub(super) fn row(inner: &Inner, seat: &Seat, id: CommandId, text: &[u8]) -> Command {
    Command {
        id,
        thread: seat.thread.id.clone(),
        terminal: seat.terminal.clone(),
        lease: seat.lease.clone(),
        session: Some(seat.session().id),
        instance: Some(seat.instance.clone()),
        text: Bytes(seat.redact(text)),
        status: Status::Queued,
        ending: None,
        stdout_bytes: 0,
        stderr_bytes: 0,
        cwd: Bytes::default(),
        state_version: 0,
        created_at: inner.core.now(),
        started_at: None,
        ended_at: None,
    }
}

pub(super) fn prepare(inner: &Inner, seat: &Seat, execute: Execute) -> Result<(Command, Run), Error> {
    let id = execute.id.unwrap_or_else(|| CommandId::made_of(inner.core.entropy()));
    let shell = ShellId::parse(seat.terminal.as_str()).map_err(|error| Error::Invalid(error.to_string()))?;
    let row = row(inner, seat, id.clone(), &execute.command);
    let mut run = Run::new(shell, id, execute.command);
    run.cwd = execute.cwd.map(|cwd| Bytes(seat.surroundings.real(&cwd)));
    run.env = execute.env.into_iter().map(|(name, value)| (Bytes::from(name.as_bytes()), Bytes(value))).collect();
    run.stdin = execute.stdin;
    run.timeout_ms = execute.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
    run.if_busy = execute.if_busy;
    run.asked_at = Some(row.created_at.0 * 1000);
    Ok((row, run))
}

/// The record of a command, from what its steward says of it.
pub(super) fn conclude(row: &Command, seat: &Seat, info: &CommandInfo) -> Command {
    let cwd = Bytes(seat.redact(&seat.surroundings.stored(&info.cwd)));
    let mut told = with_info(row, info);
    veil(&mut told, |text| seat.redact_text(text));
    Command { instance: Some(seat.instance.clone()), cwd, ..told }
}

/// What a shell says of a command's end, as it may be told.
pub(super) fn veil(command: &mut Command, words: impl Fn(String) -> String) {
    let Some(ending) = &mut command.ending else { return };
    for warning in &mut ending.warnings {
        warning.message = words(std::mem::take(&mut warning.message));
    }
    if let Some(fault) = &mut ending.error {
        fault.message = words(std::mem::take(&mut fault.message));
    }
}

pub(super) fn with_info(row: &Command, info: &CommandInfo) -> Command {
    let moment = |micros: u64| Timestamp(micros / 1000);
    Command {
        status: info.status,
        ending: info.ending.clone(),
        stdout_bytes: info.stdout_bytes,
        stderr_bytes: info.stderr_bytes,
        cwd: info.cwd.clone(),
        state_version: info.state_version,
        started_at: info.started_at.map(moment),
        ended_at: info.ended_at.map(moment),
        ..row.clone()
    }
}

pub(super) fn fail(inner: &Inner, row: &Command, fault: Fault) -> Command {
    let ending = Ending { error: Some(fault), ..Ending::new(Status::Failed, None) };
    row.end(ending, inner.core.now()).unwrap_or_else(|_| row.clone())
}

/// Whether there was no room for it just then. It never ran, and the same request may do better later; so its id is not
/// used up.
pub(super) fn is_turned_away(error: &Error) -> bool {
    matches!(error, Error::Refused(fault) if matches!(fault.code, FaultCode::Busy | FaultCode::LimitReached))
}

/// Prepares a fresh sandbox. Each command has an id made of the lease's, so a steward that has run it doesn't again; one
/// that has failed is tried again under the next id.
pub(super) async fn init(inner: &Inner, seat: &Seat, provider: &ProviderName) -> Result<(), Error> {
    // What a journal outlives is prepared once for all; else each instance is.
    let of = if seat.keeps_state { seat.lease.to_string() } else { seat.instance.to_string() };
    for (number, text) in inner.treatment(provider).init_commands.iter().enumerate() {
        let shell = ShellId::parse(seat.terminal.as_str()).map_err(|error| Error::Invalid(error.to_string()))?;
        let mut tries = 0;
        let (id, before) = loop {
            let id = CommandId::parse(&format!("init:{of}:{number}:{tries}"))
                .map_err(|error| Error::Invalid(error.to_string()))?;
            let before = if seat.runtime.remembers() {
                seat.runtime.look_up(&id).await?.and_then(|info| info.ending)
            } else {
                inner.core.store.command(&id).await?.and_then(|row| row.ending)
            };
            match before {
                Some(ending) if !succeeded(&ending) => tries += 1,
                before => break (id, before),
            }
        };
        if before.is_some() {
            continue;
        }
        let mut output = Vec::new();
        let row = row(inner, seat, id.clone(), text.as_bytes());
        let run = Run::new(shell, id, text.as_bytes());
        let mut hear = |told: Told| {
            if let Told::Output(chunk) = told {
                output.extend_from_slice(&chunk.bytes);
            }
        };
        let info = seat.runtime.run(&run, 0, &mut hear).await?;
        inner.core.store.save_commands(&[conclude(&row, seat, &info)]).await?;
        if !info.ending.as_ref().is_some_and(succeeded) {
            let status = info.ending.as_ref().map(|ending| format!("{:?} {:?}", ending.status, ending.exit_code));
            return Err(Error::InitFailed {
                provider: provider.to_string(),
                command: text.clone(),
                status: status.unwrap_or_default(),
                output: plain(&String::from_utf8_lossy(&output)).chars().take(500).collect(),
            });
        }
        seat.acknowledge(info.state_version);
    }
    Ok(())
}

fn succeeded(ending: &Ending) -> bool {
    ending.status == Status::Exited && ending.exit_code == Some(0)
}
