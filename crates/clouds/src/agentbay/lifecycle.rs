//! Bringing a session from where it is to where it is to be. The cloud only takes requests and says where a session is;
//! so each round looks, and then asks or waits.
//!
//! ```text
//!            asleep          awake           gone
//! RUNNING    pause           done            delete
//! PAUSED     done            resume          resume, for it can't be deleted asleep
//! -ING       wait            wait            wait
//! gone       not found       not found       done
//! ```

use super::Inner;
use super::sessions::Status;
use crate::retry::PATIENT;
use crate::wire::Call;
use crate::{CloudError, Effect, Trouble};
use std::time::Duration;
use tokio::time::Instant;

/// Looks come this long after each other: soon at first, for most steps are short.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LAST_LOOK: Duration = Duration::from_secs(2);

/// A request whose answer was lost, or that has changed nothing, is made again after this.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// A cloud that says yes so often and does nothing won't.
const MOST_ASKED: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    Asleep,
    Awake,
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Done,
    Wait,
    Ask(&'static str),
    NotFound,
}

const PAUSE: &str = "PauseSessionAsync";
const RESUME: &str = "ResumeSessionAsync";
const DELETE: &str = "DeleteSessionAsync";

impl Aim {
    fn next(self, status: Status) -> Step {
        match (self, status) {
            (Self::Asleep, Status::Paused) | (Self::Awake, Status::Running) | (Self::Gone, Status::Gone) => Step::Done,
            (Self::Asleep, Status::Running) => Step::Ask(PAUSE),
            (Self::Awake | Self::Gone, Status::Paused) => Step::Ask(RESUME),
            // What is in a state that we don't know can still be ended.
            (Self::Gone, Status::Running | Status::Other) => Step::Ask(DELETE),
            (Self::Asleep | Self::Awake, Status::Gone | Status::Deleting) => Step::NotFound,
            (Self::Asleep | Self::Awake, Status::Other)
            | (Self::Asleep | Self::Awake | Self::Gone, Status::Pausing | Status::Resuming)
            | (Self::Gone, Status::Deleting) => Step::Wait,
        }
    }

    /// As long as the cloud's own SDK waits.
    fn patience(self) -> Duration {
        match self {
            Self::Asleep | Self::Awake => Duration::from_mins(10),
            Self::Gone => Duration::from_mins(5),
        }
    }
}

impl Inner {
    pub(super) async fn bring(&self, what: &'static str, id: &str, aim: Aim) -> Result<(), CloudError> {
        let until = Instant::now() + aim.patience();
        let mut asked = Asked::default();
        let mut pause = FIRST_LOOK;
        loop {
            let status = PATIENT.call(|| self.see(what, id)).await?;
            match aim.next(status) {
                Step::Done => return Ok(()),
                Step::NotFound => {
                    let message = format!("session `{id}` is gone");
                    return Err(CloudError::new(what, Trouble::NotFound, Effect::None, message));
                }
                Step::Ask(action) if asked.is_due(action) => {
                    if aim == Aim::Gone && action == RESUME {
                        tracing::info!(session = id, "waking a session that sleeps, for it can't be ended asleep");
                    }
                    asked.count(what, action)?;
                    match self.front.ask(what, Call::Changes, action, &[("SessionId", id)]).await {
                        Ok(_) => {}
                        // Somebody else was faster, or it has begun already: the next look tells.
                        Err(error) if matches!(error.trouble, Trouble::Conflict | Trouble::NotFound) => {}
                        Err(error) if passes(&error) => {
                            tracing::debug!(%error, session = id, "looking what came of it");
                            asked.forget();
                        }
                        Err(error) => return Err(told(error, action)),
                    }
                }
                Step::Ask(_) | Step::Wait => {}
            }
            if Instant::now() > until {
                let message = format!("session `{id}` is still {status:?} after {} s", aim.patience().as_secs());
                return Err(CloudError::new(what, Trouble::TimedOut, Effect::Unknown, message));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_LOOK);
        }
    }
}

/// Whether it makes sense to look, and to ask again.
fn passes(error: &CloudError) -> bool {
    match error.trouble {
        Trouble::Unavailable | Trouble::UsedUp | Trouble::TimedOut => true,
        Trouble::Exhausted => error.after.is_some(),
        // An answer that makes no sense may be one to a request that was heard.
        Trouble::Broken => error.effect == Effect::Unknown,
        Trouble::NotFound | Trouble::Conflict | Trouble::Denied | Trouble::NoSpace | Trouble::Unsupported => false,
    }
}

/// Says what a refusal to sleep most likely means.
fn told(error: CloudError, action: &str) -> CloudError {
    if action != PAUSE || !matches!(error.trouble, Trouble::Denied | Trouble::Unsupported) {
        return error;
    }
    let message = format!("{}; AgentBay lets sessions sleep only for accounts on its list", error.message);
    CloudError { message, ..error }
}

/// What was asked for last, and how often.
#[derive(Debug, Default)]
struct Asked {
    action: &'static str,
    count: u32,
    at: Option<Instant>,
}

impl Asked {
    fn is_due(&self, action: &str) -> bool {
        self.action != action || self.at.is_none_or(|at| at.elapsed() > ASK_AGAIN)
    }

    fn count(&mut self, what: &'static str, action: &'static str) -> Result<(), CloudError> {
        if self.action != action {
            *self = Self { action, count: 0, at: None };
        }
        if self.count >= MOST_ASKED {
            let message = format!("it takes `{action}` and nothing comes of it");
            return Err(CloudError::new(what, Trouble::Unavailable, Effect::Unknown, message));
        }
        (self.count, self.at) = (self.count + 1, Some(Instant::now()));
        Ok(())
    }

    /// The next look may ask at once.
    fn forget(&mut self) {
        self.at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_a_next_step_for_every_aim() {
        use Status::{Deleting, Gone, Other, Paused, Pausing, Resuming, Running};
        use Step::{Ask, Done, NotFound, Wait};
        let steps =
            |aim: Aim| [Running, Pausing, Paused, Resuming, Deleting, Gone, Other].map(|status| aim.next(status));
        assert_eq!(steps(Aim::Asleep), [Ask(PAUSE), Wait, Done, Wait, NotFound, NotFound, Wait]);
        assert_eq!(steps(Aim::Awake), [Done, Wait, Ask(RESUME), Wait, NotFound, NotFound, Wait]);
        assert_eq!(steps(Aim::Gone), [Ask(DELETE), Wait, Ask(RESUME), Wait, Wait, Done, Ask(DELETE)]);
    }
}
