//! The newest state that anybody knows of a terminal, found without waking or changing anything. The store has it, except
//! where a server was killed between an answer and its writing: then the steward that gave the answer has it, or the
//! journal that it left.

use super::{Inner, sit};
use crate::error::Error;
use crate::lease::Ready;
use crate::provider::{Handle, Surroundings, Trouble, in_time};
use crate::runtime::{Captured, RuntimeError};
use crate::seat::{CommitError, Seat};
use crate::steward::StewardError;
use stead_model::ids::{InstanceId, ShellId};
use stead_model::lease::{Lease, Observed};
use stead_model::proto::{Fault, FaultCode, Reply, Request};
use stead_model::state::{Bytes, ShellState};
use stead_model::terminal::Terminal;
use stead_steward::past::PastShell;

/// A terminal as it is now, its state as it is stored.
pub(super) async fn newest(inner: &Inner, terminal: &Terminal) -> Result<Terminal, Error> {
    let gone = || Error::NotFound { kind: "terminal", id: terminal.id.to_string() };
    if let Some(seat) = inner.seat(&terminal.id) {
        settle(inner, &seat).await?;
        return inner.core.store.terminal(&terminal.id).await?.ok_or_else(gone);
    }
    if terminal.generation == 0 {
        // Nobody has ever opened it.
        return Ok(terminal.clone());
    }
    let Some(lease) = inner.core.store.lease(&terminal.lease).await? else { return Ok(terminal.clone()) };
    let Some(captured) = captured(inner, terminal, &lease).await? else { return Ok(terminal.clone()) };
    if captured.version <= terminal.version {
        return Ok(terminal.clone());
    }
    let surroundings = inner.core.provider(&lease.provider)?.surroundings(&lease.workspace);
    let state = as_stored(captured.state, &surroundings);
    Ok(Terminal { version: captured.version, content_version: captured.version, state, ..terminal.clone() })
}

/// Waits until the store has what a seat has acknowledged. If the way to its shell is broken, its steward, which has been
/// started again, is asked by another: whoever reads the row next is not to find less than was answered.
pub(super) async fn settle(inner: &Inner, seat: &Seat) -> Result<(), Error> {
    if seat.settle().await || seat.is_left() {
        return Ok(());
    }
    let Some(terminal) = inner.core.store.terminal(&seat.terminal).await? else { return Ok(()) };
    let Some(lease) = inner.core.store.lease(&seat.lease).await? else { return Ok(()) };
    if !inner.core.provider(&lease.provider)?.capabilities().steward {
        return Ok(());
    }
    match catch_up(inner, seat, &terminal, &lease).await {
        // Deleted meanwhile, with what it knew.
        Err(_) if inner.core.store.terminal(&seat.terminal).await?.is_none() => Ok(()),
        done => done,
    }
}

async fn catch_up(inner: &Inner, seat: &Seat, terminal: &Terminal, lease: &Lease) -> Result<(), Error> {
    let Some(captured) = look(inner, terminal, lease).await? else { return Ok(()) };
    seat.commit_captured(&inner.core, captured).await.or_else(|error| match error {
        // Somebody else has it, and what was acknowledged.
        CommitError::Gone | CommitError::Stale(_) => Ok(()),
        CommitError::Runtime(error) => Err(error.into()),
        CommitError::Store(error) => Err(error.into()),
    })
}

/// The same for a plain read, which opens no shell. A steward that can't be asked changes nothing: then the store's row
/// is what is known.
pub(super) async fn newest_without_opening(inner: &Inner, terminal: Terminal) -> Result<Terminal, Error> {
    // Whoever sits there writes the row, and nobody has ever opened the first generation.
    if terminal.generation == 0 || inner.seat(&terminal.id).is_some() {
        return Ok(terminal);
    }
    let Some(lease) = inner.core.store.lease(&terminal.lease).await? else { return Ok(terminal) };
    let provider = inner.core.provider(&lease.provider)?;
    if !provider.capabilities().steward {
        return Ok(terminal);
    }
    match look(inner, &terminal, &lease).await {
        Ok(Some(captured)) if captured.version > terminal.version => {
            let state = as_stored(captured.state, &provider.surroundings(&lease.workspace));
            Ok(Terminal { version: captured.version, content_version: captured.version, state, ..terminal })
        }
        Ok(_) => Ok(terminal),
        Err(Error::Refused(fault)) if fault.code == FaultCode::Damaged => {
            tracing::warn!(terminal = %terminal.id, shown = terminal.version, "{fault}");
            Ok(terminal)
        }
        Err(error) => {
            tracing::debug!(%error, terminal = %terminal.id, "its steward can't be asked for its state");
            Ok(terminal)
        }
    }
}

async fn look(inner: &Inner, terminal: &Terminal, lease: &Lease) -> Result<Option<Captured>, Error> {
    let Some(steward) = inner.reader(&lease.id).await? else {
        let ready = inner.leases.look(&lease.id, "read.state").await?;
        return left_in_journal(inner, terminal, &ready).await;
    };
    let shell = ShellId::parse(terminal.id.as_str()).map_err(|error| Error::Invalid(error.to_string()))?;
    match steward.request(&Request::State(shell)).await {
        Ok(Reply::State(stored)) => {
            let state = minicbor::decode(&stored.state).map_err(|error| Error::Broken(error.to_string()))?;
            Ok(Some(Captured { version: stored.version, state }))
        }
        Ok(_) => Ok(None),
        // This instance is a later one, in which nobody has opened it yet.
        Err(StewardError::Fault(fault)) if fault.code == FaultCode::NotFound => Ok(None),
        Err(StewardError::Fault(fault)) if fault.code == FaultCode::Damaged => Err(Error::Refused(fault)),
        Err(error) => Err(RuntimeError::Broken(error).into()),
    }
}

async fn captured(inner: &Inner, terminal: &Terminal, lease: &Lease) -> Result<Option<Captured>, Error> {
    let provider = inner.core.provider(&lease.provider)?;
    if !provider.capabilities().steward {
        // Each answer waited for the store.
        return Ok(None);
    }
    let mut ready = inner.leases.look(&lease.id, "read.state").await?;
    if ready.lease.observed == Observed::Running {
        let asked = async { Ok::<_, Error>(sit::reach(inner, terminal, &ready).await?.capture().await?) };
        match asked.await {
            Ok(captured) => return Ok(Some(captured)),
            // It may have died since it was seen.
            Err(error) => {
                ready = inner.leases.look_anew(&ready.lease, "read.state").await?;
                if ready.lease.observed != Observed::Stopped {
                    return Err(error);
                }
            }
        }
    }
    left_in_journal(inner, terminal, &ready).await
}

/// What a steward that is gone has left of a terminal. `None`: there is one, or nobody can tell.
async fn left_in_journal(inner: &Inner, terminal: &Terminal, ready: &Ready) -> Result<Option<Captured>, Error> {
    let lease = &ready.lease;
    let provider = inner.core.provider(&lease.provider)?;
    match lease.observed {
        Observed::Stopped | Observed::None => {
            let instance = lease.instance.clone().unwrap_or_else(|| InstanceId::made_of([0; 8]));
            let (lease, workspace) = (lease.id.clone(), lease.workspace.clone());
            let handle = Handle { instance, lease, workspace, reference: String::new() };
            let told = match in_time(provider.name(), "read a journal", provider.last_words(&handle)).await {
                Err(error) if error.trouble == Trouble::Unsupported => Vec::new(),
                told => told?,
            };
            let shell = told.into_iter().find(|shell| shell.shell.as_str() == terminal.id.as_str());
            shell.map(|shell| captured_of(shell, terminal)).transpose()
        }
        // Whoever put it to sleep waited for the store; what can't be asked isn't woken for it.
        Observed::Paused | Observed::Running | Observed::Creating | Observed::Unknown => Ok(None),
    }
}

/// What a journal tells of a terminal. Where its state is damaged, the row has it if nothing but the directory has changed
/// since; else an older state would be taken for the newest.
fn captured_of(shell: PastShell, terminal: &Terminal) -> Result<Captured, Error> {
    let version = shell.version;
    match shell.state {
        Ok(state) => Ok(Captured { version, state }),
        Err(lost) if lost.stored <= terminal.version => {
            Ok(Captured { version, state: lost.with(terminal.state.clone()) })
        }
        Err(lost) => Err(Error::Refused(Fault::new(
            FaultCode::Damaged,
            format!(
                "the stored state of terminal `{}` (version {}) {}; a command in it goes on from version {}",
                terminal.id, lost.stored, lost.error, terminal.version
            ),
        ))),
    }
}

pub(super) fn as_stored(state: ShellState, surroundings: &Surroundings) -> ShellState {
    ShellState {
        cwd: Bytes(surroundings.stored(&state.cwd)),
        oldpwd: state.oldpwd.map(|oldpwd| Bytes(surroundings.stored(&oldpwd))),
        ..state
    }
}

/// A stored state as it has to be in another place: who was at home is at home there. Directories below the workspace
/// have the same name everywhere; what else a variable says is the user's.
pub(super) fn elsewhere(state: &ShellState, here: &Surroundings, there: &Surroundings) -> ShellState {
    let (Some(from), Some(to)) = (home(here), home(there)) else { return state.clone() };
    let moved = |path: &Bytes| match path.0.strip_prefix(from) {
        Some(rest) if rest.is_empty() || rest.starts_with(b"/") => Bytes([to, rest].concat()),
        _ => path.clone(),
    };
    ShellState { cwd: moved(&state.cwd), oldpwd: state.oldpwd.as_ref().map(moved), ..state.clone() }
}

fn home(surroundings: &Surroundings) -> Option<&[u8]> {
    let home = surroundings.env.iter().find(|(name, _)| name == b"HOME");
    home.map(|(_, value)| &value[..]).filter(|home| home.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_home(home: &str) -> Surroundings {
        let env = vec![(b"HOME".to_vec(), home.as_bytes().to_vec())];
        Surroundings { env, cwd: b"/workspace".to_vec(), scratch: "/tmp".to_owned() }
    }

    #[test]
    fn whoever_is_at_home_is_at_home_elsewhere() {
        let (here, there) = (at_home("/data/w1/home"), at_home("/home/agent"));
        for (cwd, moved) in [
            ("/data/w1/home", "/home/agent"),
            ("/data/w1/home/src", "/home/agent/src"),
            ("/data/w1/homes", "/data/w1/homes"),
            ("/workspace/x", "/workspace/x"),
            ("", ""),
        ] {
            let state = ShellState { cwd: cwd.into(), oldpwd: Some(cwd.into()), ..ShellState::default() };
            let seen = elsewhere(&state, &here, &there);
            assert_eq!((seen.cwd, seen.oldpwd), (moved.into(), Some(moved.into())));
        }
    }
}
