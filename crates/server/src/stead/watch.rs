//! Commands that run and that nobody follows: those of a server before us, those whose caller went away, those that
//! slept when they were looked for. Each is found out about with every round of the reaper, and as soon as its lease
//! wakes, until its end is written down.
//!
//! ```text
//! its steward lives ─► ended? noted : followed to its end          it sleeps, or gives no answer ─► later
//! it lives and never got it ─► whoever asks again has it run, else it failed
//! it is gone ─► its journal tells, where that survives ─► noted, or lost
//! ```

use super::{Inner, Recovered, claim, execute, sit};
use crate::error::Error;
use crate::lease::{LeaseError, Ready};
use crate::provider::in_time;
use crate::runtime::{Run, Runtime};
use crate::steward::Told;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use stead_model::command::Command;
use stead_model::ids::{LeaseId, ShellId};
use stead_model::lease::Observed;
use stead_model::proto::{CommandInfo, Ending, Fault, FaultCode, Status};
use stead_steward::past::PastShell;

/// How long a command that never came to its shell waits for whoever asked to ask again.
const ASKED_AGAIN: Duration = Duration::from_secs(5);

/// Leaves commands to be found out about later.
pub(super) fn leave(inner: &Inner, commands: impl IntoIterator<Item = Command>) {
    let mut unwatched = inner.unwatched.lock().unwrap_or_else(PoisonError::into_inner);
    unwatched.extend(commands.into_iter().map(|command| (command.id.clone(), command)));
}

/// Finds out about all that were left.
pub(super) async fn look(inner: &Arc<Inner>) {
    let mut commands: BTreeMap<_, _> =
        std::mem::take(&mut *inner.unwatched.lock().unwrap_or_else(PoisonError::into_inner));
    let mut seen = HashMap::new();
    let leases: std::collections::BTreeSet<_> = commands.values().map(|command| command.lease.clone()).collect();
    for lease in leases {
        match inner.leases.look(&lease, "recovery").await {
            Ok(ready) if ready.lease.observed == Observed::None => {}
            Ok(ready) => {
                seen.insert(lease, ready);
            }
            // Deleted, and everything in it.
            Err(LeaseError::NotFound(_)) => {}
            Err(error) => {
                tracing::debug!(%error, %lease, "can't be looked at");
                leave(inner, commands.extract_if(.., |_, command| command.lease == lease).map(|(_, command)| command));
            }
        }
    }
    if !commands.is_empty() {
        find_out(inner, commands.into_values().collect(), &seen, &mut Recovered::default()).await;
    }
}

/// The same without waiting for it, if there is anything to find out.
pub(super) fn look_soon(inner: &Arc<Inner>) {
    let any = !inner.unwatched.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
    // Without a runtime the process is ending, and the next server finds out.
    if any && tokio::runtime::Handle::try_current().is_ok() && !inner.core.stop.is_cancelled() {
        let worker = Arc::clone(inner);
        inner.core.tasks.spawn(async move { look(&worker).await });
    }
}

/// Held by whoever runs a command: if it is let go before its end is known, the command is watched over.
pub(super) struct Watch {
    inner: Arc<Inner>,
    row: Option<Command>,
}

impl Watch {
    pub(super) fn over(inner: &Arc<Inner>, row: &Command) -> Self {
        Self { inner: Arc::clone(inner), row: Some(row.clone()) }
    }

    /// Its end is known.
    pub(super) fn end(mut self) {
        self.row = None;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(row) = self.row.take() else { return };
        leave(&self.inner, [row]);
        look_soon(&self.inner);
    }
}

/// Finds out what became of commands that nobody follows. `seen` has their leases, but those that have no instance.
pub(super) async fn find_out(
    inner: &Arc<Inner>,
    commands: Vec<Command>,
    seen: &HashMap<LeaseId, Ready>,
    recovered: &mut Recovered,
) {
    let mut words: HashMap<LeaseId, Vec<PastShell>> = HashMap::new();
    for command in commands {
        let ready = seen.get(&command.lease);
        let observed = ready.map_or(Observed::None, |ready| ready.lease.observed);
        match (ready, observed) {
            (Some(ready), Observed::Running) => match ask(inner, &command, ready).await {
                Ok(Known::Ended(info)) => {
                    recovered.ended.push(command.id.clone());
                    inner.ledger.note(inner.described(&command, &info).await).await;
                }
                Ok(Known::Running(runtime)) => {
                    recovered.running.push(command.id.clone());
                    inner.core.tasks.spawn(follow(Arc::clone(inner), command, runtime));
                }
                Ok(Known::Never) => {
                    inner.core.tasks.spawn(never_came(Arc::clone(inner), command));
                }
                Ok(Known::Nothing) => lose(inner, &command, None, recovered).await,
                Err(error) => {
                    // Its end will be known when it can be reached; it is not said to have one.
                    tracing::warn!(%error, command = %command.id, "can't be asked about");
                    leave(inner, [command]);
                }
            },
            // It sleeps, and so does the command.
            (Some(_), Observed::Paused) => {
                recovered.running.push(command.id.clone());
                leave(inner, [command]);
            }
            (Some(_), Observed::Unknown | Observed::Creating) => leave(inner, [command]),
            (_, Observed::Stopped | Observed::None) | (None, _) => {
                if !words.contains_key(&command.lease) {
                    let told = last_words(inner, &command).await;
                    words.insert(command.lease.clone(), told);
                }
                let told = words.get(&command.lease).into_iter().flatten().flat_map(|shell| &shell.commands);
                match told.into_iter().find(|info| info.command == command.id).cloned() {
                    Some(info) if info.status.is_final() => {
                        recovered.ended.push(command.id.clone());
                        inner.ledger.note(inner.described(&command, &info).await).await;
                    }
                    info => lose(inner, &command, info, recovered).await,
                }
            }
        }
    }
    inner.ledger.flush().await;
}

/// What became of a command whose instance was destroyed.
pub(super) enum Outcome {
    /// It ended before that.
    Ended(Box<CommandInfo>),
    NeverBegan,
    /// It ran; what its journal has of it, where there is one.
    Lost(Option<Box<CommandInfo>>),
}

/// What the journal tells of a command whose instance is gone. Wakes nothing, makes nothing.
pub(super) async fn outcome(inner: &Inner, command: &Command) -> Outcome {
    let told = last_words(inner, command).await;
    let info = told.into_iter().flat_map(|shell| shell.commands).find(|info| info.command == command.id);
    match info {
        Some(info) if info.status.is_final() => Outcome::Ended(Box::new(info)),
        Some(info) if info.status == Status::Queued && is_whole(inner, command).await => Outcome::NeverBegan,
        info => Outcome::Lost(info.map(Box::new)),
    }
}

async fn last_words(inner: &Inner, command: &Command) -> Vec<PastShell> {
    let tell = async {
        let lease = inner.core.store.lease(&command.lease).await?;
        let lease = lease.ok_or_else(|| Error::NotFound { kind: "lease", id: command.lease.to_string() })?;
        let instance = command.instance.clone().or(lease.instance);
        let Some(instance) = instance else { return Ok(Vec::new()) };
        let handle =
            crate::provider::Handle { instance, lease: lease.id, workspace: lease.workspace, reference: String::new() };
        let provider = inner.core.provider(&lease.provider)?;
        Ok::<_, Error>(in_time(provider.name(), "read a journal", provider.last_words(&handle)).await?)
    };
    tell.await.unwrap_or_else(|error| {
        tracing::warn!(%error, command = %command.id, "no journal tells what became of it");
        Vec::new()
    })
}

enum Known {
    Ended(Box<CommandInfo>),
    Running(Arc<dyn Runtime>),
    /// Its journal would have it.
    Never,
    /// No journal is kept, or it ran on an instance whose journal is gone.
    Nothing,
}

async fn ask(inner: &Arc<Inner>, command: &Command, ready: &Ready) -> Result<Known, Error> {
    let terminal = inner.core.store.terminal(&command.terminal).await?;
    let terminal = terminal.ok_or_else(|| Error::NotFound { kind: "terminal", id: command.terminal.to_string() })?;
    let runtime = sit::reach(inner, &terminal, ready).await?;
    Ok(match runtime.look_up(&command.id).await? {
        Some(info) if info.status.is_final() => Known::Ended(Box::new(info)),
        Some(_) => Known::Running(runtime),
        None if runtime.remembers() && (is_kept(inner, ready)? || ready.lease.instance == command.instance) => {
            Known::Never
        }
        None => Known::Nothing,
    })
}

/// Whether the journal of an instance is that of all before it, too.
fn is_kept(inner: &Inner, ready: &Ready) -> Result<bool, Error> {
    Ok(inner.core.provider(&ready.lease.provider)?.capabilities().durable_journal)
}

/// Follows a command that began under another server, to write down how it ends.
async fn follow(inner: Arc<Inner>, command: Command, runtime: Arc<dyn Runtime>) {
    let Ok(shell) = ShellId::parse(command.terminal.as_str()) else { return };
    let run = Run::new(shell, command.id.clone(), Vec::new());
    // From behind everything: only the end matters here, readers have their own ways.
    let mut ignore = |_: Told| {};
    let end = runtime.run(&run, u64::MAX, &mut ignore);
    let outcome = tokio::select! {
        biased;
        outcome = end => outcome,
        () = inner.core.stop.cancelled() => return,
    };
    match outcome {
        Ok(info) => {
            inner.ledger.note(inner.described(&command, &info).await).await;
            if let Some(seat) = inner.seat(&command.terminal) {
                seat.acknowledge(info.state_version);
            }
        }
        Err(error) => {
            tracing::warn!(%error, command = %command.id, "lost sight of it");
            leave(&inner, [command]);
        }
    }
}

/// Its id was written down, and then the server died. Whoever asks for the same id again soon has it run; after that it
/// is over.
async fn never_came(inner: Arc<Inner>, command: Command) {
    tokio::select! {
        biased;
        // The next server finds the same.
        () = inner.core.stop.cancelled() => return,
        () = tokio::time::sleep(ASKED_AGAIN) => {}
    }
    // Somebody sends it right now, and writes down what becomes of it.
    let Some(claim) = claim::try_claim(&inner, &command.id) else { return };
    if let Err(error) = close_unsent(&inner, &command).await {
        tracing::warn!(%error, command = %command.id, "can't be asked about");
        leave(&inner, [command]);
    }
    drop(claim);
}

async fn close_unsent(inner: &Arc<Inner>, command: &Command) -> Result<(), Error> {
    let row = super::commands::row(inner, &command.id).await?;
    if row.status.is_final() {
        return Ok(());
    }
    let ready = inner.leases.look(&row.lease, "recovery").await?;
    let never = ready.lease.observed == Observed::Running && matches!(ask(inner, &row, &ready).await?, Known::Never);
    if !never {
        leave(inner, [row]);
        return Ok(());
    }
    let message = "the command never came to its shell; it never ran";
    inner.ledger.note(execute::fail(inner, &row, Fault::new(FaultCode::Unavailable, message))).await;
    inner.ledger.flush().await;
    Ok(())
}

async fn lose(inner: &Inner, command: &Command, info: Option<CommandInfo>, recovered: &mut Recovered) {
    recovered.lost.push(command.id.clone());
    let never_began = info.as_ref().is_some_and(|info| info.status == Status::Queued) && is_whole(inner, command).await;
    let base = match info {
        Some(info) => inner.described(command, &info).await,
        None => command.clone(),
    };
    // What its journal has as waiting was never given to its shell: the next steward there will say the same.
    let ended = if never_began {
        let message = "its instance ended before it could run";
        execute::fail(inner, &base, Fault::new(FaultCode::Unavailable, message))
    } else {
        Command {
            status: Status::Lost,
            ending: Some(Ending::new(Status::Lost, None)),
            ended_at: Some(inner.core.now()),
            ..base
        }
    };
    inner.ledger.note(ended).await;
}

/// Whether the journal that tells of a command is the one that its steward wrote, not a copy that may lack its end.
async fn is_whole(inner: &Inner, command: &Command) -> bool {
    let Ok(Some(lease)) = inner.core.store.lease(&command.lease).await else { return false };
    inner.core.provider(&lease.provider).is_ok_and(|provider| provider.journal(&lease.id).is_some())
}
