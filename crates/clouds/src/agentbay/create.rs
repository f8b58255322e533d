//! Making a session, or finding the one that was made. The cloud makes another each time it is asked, so it is asked
//! only when none has the labels; and when its answer is lost, whether one has them now.

use super::Inner;
use super::lifecycle::Aim;
use super::sessions::{Status, text_of};
use crate::retry::PATIENT;
use crate::wire::Call;
use crate::{CloudError, Effect, Trouble, Wish};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

const WHAT: &str = "make a session";

/// How long after a lost answer a session is looked for: it may be listed a moment later.
const LOOKS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

impl Inner {
    pub(super) async fn create(&self, wish: &Wish) -> Result<String, CloudError> {
        possible(wish)?;
        if let Some(id) = self.find_usable(&wish.labels).await? {
            return Ok(id);
        }
        // Refused before anything was done, it may be asked again; otherwise it is looked for.
        let made = PATIENT
            .call(|| async {
                match self.make(wish).await {
                    Err(error) if error.effect == Effect::Unknown => Ok(Err(error)),
                    Err(error) => Err(error),
                    Ok(id) => Ok(Ok(id)),
                }
            })
            .await?;
        let id = match made {
            Ok(id) => id,
            Err(error) => return self.find_made(wish, error).await,
        };
        self.bring(WHAT, &id, Aim::Awake).await?;
        self.answers(WHAT, &id).await?;
        Ok(id)
    }

    async fn make(&self, wish: &Wish) -> Result<String, CloudError> {
        let labels = text_of(&wish.labels);
        let timeout = self.config.idle_timeout.as_secs().max(1).to_string();
        let image = wish.template.as_deref().unwrap_or(&self.config.image);
        let mut fields = vec![("ImageId", image), ("Labels", &labels), ("Timeout", &timeout)];
        fields.extend(self.config.region.as_deref().map(|region| ("LoginRegionId", region)));
        let answer = self.front.ask(WHAT, Call::Changes, "CreateMcpSession", &fields).await?;
        let unknown = |message: &str| CloudError::new(WHAT, Trouble::Unavailable, Effect::Unknown, message);
        if answer.data.get("Success").and_then(Value::as_bool) == Some(false) {
            return Err(unknown(answer.data.get("ErrMsg").and_then(Value::as_str).unwrap_or("it failed")));
        }
        match answer.data.get("SessionId").and_then(Value::as_str) {
            Some(id) if !id.is_empty() => {
                self.sessions.learn(id, &answer.data);
                Ok(id.to_owned())
            }
            Some(_) | None => Err(unknown("it names no session")),
        }
    }

    /// After an answer was lost.
    async fn find_made(&self, wish: &Wish, lost: CloudError) -> Result<String, CloudError> {
        tracing::debug!(error = %lost, "looking whether it was made");
        for wait in LOOKS {
            tokio::time::sleep(wait).await;
            if let Some(id) = self.find_usable(&wish.labels).await? {
                return Ok(id);
            }
        }
        Err(lost)
    }

    /// The session with these labels that can be used. One that only seems to be there is none.
    async fn find_usable(&self, labels: &BTreeMap<String, String>) -> Result<Option<String>, CloudError> {
        for (id, status) in self.find(WHAT, labels).await? {
            match status {
                Status::Paused | Status::Pausing => {
                    let message = format!("session `{id}` has these labels and sleeps; resume it or end it");
                    return Err(CloudError::new(WHAT, Trouble::Conflict, Effect::None, message));
                }
                Status::Deleting | Status::Gone => continue,
                Status::Running | Status::Resuming | Status::Other => {}
            }
            let usable = match self.bring(WHAT, &id, Aim::Awake).await {
                Ok(()) => self.answers(WHAT, &id).await,
                Err(error) => Err(error),
            };
            match usable {
                Ok(()) => return Ok(Some(id)),
                Err(error) if error.trouble == Trouble::NotFound => {
                    tracing::warn!(session = id, "a session is listed and isn't there");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// What can't be had is said, not left out.
fn possible(wish: &Wish) -> Result<(), CloudError> {
    let message = if wish.labels.is_empty() || wish.labels.values().any(|value| value.trim().is_empty()) {
        "a session needs labels to be found by, and none may be empty"
    } else if wish.network == Some(false) {
        "a session can't be kept from the network"
    } else if wish.cpus.is_some() || wish.memory_bytes.is_some() {
        "processors and memory of a session can't be chosen"
    } else {
        return Ok(());
    };
    Err(CloudError::new(WHAT, Trouble::Unsupported, Effect::None, message))
}
