//! Commands whose id the caller chose: run at most once, whoever asks how often.

use super::Inner;
use crate::error::Error;
use crate::seat::Seat;
use crate::store::{SPENT, StoreError};
use std::sync::{Arc, PoisonError};
use stead_model::command::Command;
use stead_model::ids::CommandId;
use tokio::sync::watch;

pub(super) enum Made {
    /// The id is ours; the command is to be run.
    Now(Claim),
    /// Somebody has it already.
    Before(Box<Before>),
}

/// Held while the command is on its way.
pub(super) struct Claim {
    inner: Arc<Inner>,
    id: CommandId,
    outcome: watch::Sender<Option<Command>>,
}

impl Claim {
    pub(super) fn publish(self, ended: &Command) {
        self.outcome.send_replace(Some(ended.clone()));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.inner.claims.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// What is known of an earlier request for the same.
pub(super) struct Before {
    pub(super) row: Command,
    inner: Arc<Inner>,
    running: Option<watch::Receiver<Option<Command>>>,
}

impl Before {
    /// Waits until whoever has it in this server is done with it.
    pub(super) async fn arrival(&mut self) {
        if let Some(running) = &mut self.running {
            let _ = running.wait_for(Option::is_some).await;
        }
    }

    /// What has become of it, once whoever has it in this server is done with it.
    pub(super) async fn wait(self) -> Result<Waited, Error> {
        if let Some(mut running) = self.running
            && let Ok(outcome) = running.wait_for(Option::is_some).await
            && let Some(ended) = outcome.clone()
        {
            return Ok(Waited::Ended(Box::new(ended)));
        }
        // Whoever ran it has written down what became of it.
        self.inner.ledger.flush().await;
        Ok(match self.inner.core.store.command(&self.row.id).await? {
            Some(row) if row.status.is_final() => Waited::Ended(Box::new(row)),
            Some(_) => Waited::Open,
            None => Waited::TurnedAway,
        })
    }
}

pub(super) enum Waited {
    Ended(Box<Command>),
    /// Nobody here knows: it is another server's, or was an earlier one's.
    Open,
    /// There was no room for it; it never ran, and its id is free.
    TurnedAway,
}

/// Makes an id the command's, durably, before anything runs. The same id for something else is refused.
///
/// A server that died may have written down the id and not sent the command. Whoever asks again has it run then, for the
/// first time: the shell's journal says that it never came.
pub(super) async fn make(inner: &Arc<Inner>, seat: &Seat, row: &mut Command) -> Result<Made, Error> {
    loop {
        let before = match write_down(inner, row).await? {
            Made::Now(claim) => return Ok(Made::Now(claim)),
            Made::Before(before) => before,
        };
        let would_be_known =
            seat.runtime.remembers() && (seat.keeps_state || before.row.instance.as_ref() == Some(&seat.instance));
        if before.running.is_some() || before.row.status.is_final() || !would_be_known {
            return Ok(Made::Before(before));
        }
        // Somebody else may ask for the same at the same time: one of us has it, the other looks once more.
        let Some(claim) = try_claim(inner, &row.id) else { continue };
        if seat.runtime.look_up(&row.id).await?.is_some() {
            return Ok(Made::Before(before));
        }
        inner.ledger.flush().await;
        match inner.core.store.command(&row.id).await? {
            Some(known) if !known.status.is_final() => {
                row.created_at = known.created_at;
                return Ok(Made::Now(claim));
            }
            Some(_) | None => {}
        }
    }
}

async fn write_down(inner: &Arc<Inner>, row: &Command) -> Result<Made, Error> {
    loop {
        let made = match try_claim(inner, &row.id) {
            None => {
                let running = inner.claims.lock().unwrap_or_else(PoisonError::into_inner).get(&row.id).cloned();
                before(inner, row, running).await?
            }
            Some(claim) => match inner.core.store.put_command(row).await {
                Ok(()) => return Ok(Made::Now(claim)),
                Err(StoreError::AlreadyExists { kind: SPENT, .. }) => {
                    let message = "was the id of a command whose thread has been deleted; ids are kept for 24 hours";
                    return Err(Error::Conflict(format!("`{}` {message}", row.id)));
                }
                Err(StoreError::AlreadyExists { .. }) => {
                    drop(claim);
                    before(inner, row, None).await?
                }
                Err(error) => return Err(error.into()),
            },
        };
        if let Some(before) = made {
            return Ok(Made::Before(before));
        }
    }
}

/// `None`: it is on its way already.
pub(super) fn try_claim(inner: &Arc<Inner>, id: &CommandId) -> Option<Claim> {
    let (outcome, running) = watch::channel(None);
    let mut claims = inner.claims.lock().unwrap_or_else(PoisonError::into_inner);
    if claims.contains_key(id) {
        return None;
    }
    claims.insert(id.clone(), running);
    Some(Claim { inner: Arc::clone(inner), id: id.clone(), outcome })
}

/// `None`: there is none any more, because it was turned away.
async fn before(
    inner: &Arc<Inner>,
    row: &Command,
    running: Option<watch::Receiver<Option<Command>>>,
) -> Result<Option<Box<Before>>, Error> {
    let conflict = || Error::Conflict(format!("`{}` is the id of another command", row.id));
    let mut running = running;
    loop {
        match inner.core.store.command(&row.id).await? {
            Some(before) => {
                let same = (&before.thread, &before.terminal, &before.text) == (&row.thread, &row.terminal, &row.text);
                return if same {
                    Ok(Some(Box::new(Before { row: before, inner: Arc::clone(inner), running })))
                } else {
                    Err(conflict())
                };
            }
            // Its row is on its way; it is there when whoever claims it is done, if not before.
            None => match &mut running {
                Some(outcome) => {
                    if outcome.changed().await.is_err() {
                        running = None;
                    }
                }
                None => return Ok(None),
            },
        }
        tokio::task::yield_now().await;
    }
}
