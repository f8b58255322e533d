//! Bringing a sandbox to a state and waiting until it is there. The control plane takes an order and carries it out later,
//! so what counts is what it tells afterwards, not what it answered: an order whose answer was lost may have been taken,
//! and one that was taken twice does no harm.

use super::state::Stand;
use super::{Daytona, part};
use crate::retry::PATIENT;
use crate::wire::{self, Call};
use crate::{CloudError, Effect, Trouble};
use reqwest::Method;
use std::time::Duration;
use tokio::time::Instant;

/// For a state to be reached. An archived sandbox comes back from an object store.
const DEADLINE: Duration = Duration::from_mins(5);

/// Between two looks: most changes take a fraction of a second, some minutes.
const FIRST_LOOK: Duration = Duration::from_millis(50);
const SLOWEST_LOOK: Duration = Duration::from_secs(1);

/// An order that can't be delivered so often won't be.
const MOST_ORDERS: u32 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    Started,
    Stopped,
    Destroyed,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Done,
    Order,
    Wait,
    Gone,
    Failed,
}

impl Aim {
    fn what(self) -> &'static str {
        match self {
            Self::Started => "start the sandbox",
            Self::Stopped => "stop the sandbox",
            Self::Destroyed => "destroy the sandbox",
        }
    }

    fn order(self, id: &str) -> (Method, String) {
        match self {
            Self::Started => (Method::POST, format!("/sandbox/{}/start", part(id))),
            Self::Stopped => (Method::POST, format!("/sandbox/{}/stop", part(id))),
            Self::Destroyed => (Method::DELETE, format!("/sandbox/{}", part(id))),
        }
    }

    fn step(self, stand: Stand) -> Step {
        match (self, stand) {
            (Self::Started, Stand::Started) | (Self::Stopped, Stand::Stopped) | (Self::Destroyed, Stand::Destroyed) => {
                Step::Done
            }
            (Self::Started, Stand::Stopped)
            | (Self::Stopped, Stand::Started)
            | (Self::Destroyed, Stand::Started | Stand::Stopped | Stand::Moving | Stand::Failed) => Step::Order,
            (Self::Started | Self::Stopped, Stand::Moving) | (Self::Destroyed, Stand::Ending) => Step::Wait,
            (Self::Started | Self::Stopped, Stand::Ending | Stand::Destroyed) => Step::Gone,
            (Self::Started | Self::Stopped, Stand::Failed) => Step::Failed,
        }
    }
}

impl Daytona {
    pub(super) async fn drive(&self, id: &str, aim: Aim) -> Result<(), CloudError> {
        let what = aim.what();
        let deadline = Instant::now() + DEADLINE;
        let mut pause = FIRST_LOOK;
        let mut orders = 0;
        let mut taken = false;
        loop {
            let sandbox = match self.get(what, id).await {
                Ok(sandbox) => sandbox,
                Err(error) if error.trouble == Trouble::NotFound && aim == Aim::Destroyed => return Ok(()),
                Err(error) => return Err(CloudError { effect: effect(orders), ..error }),
            };
            match aim.step(sandbox.stand()) {
                Step::Done => return Ok(()),
                Step::Gone => {
                    let message = format!("the sandbox `{id}` is being destroyed, or is");
                    return Err(CloudError::new(what, Trouble::NotFound, Effect::None, message));
                }
                Step::Failed => return Err(sandbox.failure(what, effect(orders))),
                Step::Wait => {}
                // It knows already, and hasn't begun.
                Step::Order if taken => {}
                Step::Order => {
                    orders += 1;
                    taken = match self.order(id, aim).await {
                        Ok(()) => true,
                        Err(error) if error.trouble == Trouble::NotFound && aim == Aim::Destroyed => return Ok(()),
                        // What it does now is to be looked at again.
                        Err(error) if passes(&error) && orders < MOST_ORDERS => {
                            tracing::debug!(%error, "ordering again if it was not taken");
                            false
                        }
                        Err(error) => return Err(error),
                    };
                }
            }
            if Instant::now() >= deadline {
                let state = sandbox.state.as_deref().unwrap_or("unknown");
                let message = format!("the sandbox `{id}` is still in state `{state}` after {} s", DEADLINE.as_secs());
                return Err(CloudError::new(what, Trouble::TimedOut, effect(orders), message));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(SLOWEST_LOOK);
        }
    }

    async fn order(&self, id: &str, aim: Aim) -> Result<(), CloudError> {
        let (method, path) = aim.order(id);
        let ask = wire::ask(aim.what(), Call::Changes, self.patience(), self.control(method, &path)).await;
        match ask {
            // It says when to come again: that is waited for here, once.
            Err(error) if error.after.is_some_and(|after| after <= PATIENT.budget) => {
                tokio::time::sleep(error.after.unwrap_or_default()).await;
                Err(CloudError { trouble: Trouble::Unavailable, ..error })
            }
            done => done.map(drop),
        }
    }
}

/// Whether an order that was not taken may be another time: it was not heard, or the sandbox is busy with something else,
/// of which the cloud says that the order makes no sense.
fn passes(error: &CloudError) -> bool {
    match error.trouble {
        Trouble::Unavailable | Trouble::UsedUp | Trouble::TimedOut | Trouble::Conflict | Trouble::Broken => true,
        Trouble::NotFound | Trouble::Denied | Trouble::Exhausted | Trouble::NoSpace | Trouble::Unsupported => false,
    }
}

fn effect(orders: u32) -> Effect {
    if orders == 0 { Effect::None } else { Effect::Unknown }
}
