//! A sandbox as the control plane tells of it.

use crate::{CloudError, Condition, Effect, Listed, Trouble};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sandbox {
    pub(super) id: String,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    pub(super) state: Option<String>,
    error_reason: Option<String>,
    #[serde(default)]
    pub(super) toolbox_proxy_url: Option<String>,
    #[serde(default)]
    pub(super) created_at: Option<String>,
}

/// Where it is, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stand {
    Started,
    /// Its disk is there: stopped, archived, or asleep as a whole.
    Stopped,
    Moving,
    /// On its way to nothing.
    Ending,
    Destroyed,
    Failed,
}

impl Sandbox {
    pub(super) fn stand(&self) -> Stand {
        match self.state.as_deref() {
            Some("started") => Stand::Started,
            Some("stopped" | "archived" | "paused") => Stand::Stopped,
            Some("destroying") => Stand::Ending,
            Some("destroyed") => Stand::Destroyed,
            Some("error" | "build_failed") => Stand::Failed,
            // Everything that ends with `ing` or comes before a start, what the cloud itself doesn't know, and what it
            // will invent.
            _ => Stand::Moving,
        }
    }

    pub(super) fn condition(&self, what: &'static str) -> Result<Condition, CloudError> {
        match self.stand() {
            Stand::Started => Ok(Condition::Running),
            Stand::Stopped => Ok(Condition::Paused),
            Stand::Moving | Stand::Ending => Ok(Condition::Unclear),
            Stand::Destroyed => Ok(Condition::Gone),
            Stand::Failed => Err(self.failure(what, Effect::None)),
        }
    }

    /// As part of a list, in which one that failed doesn't spoil the others.
    pub(super) fn listed(self) -> Listed {
        let condition = self.condition("list the sandboxes").unwrap_or(Condition::Unclear);
        Listed { id: self.id, labels: self.labels, condition }
    }

    pub(super) fn failure(&self, what: &'static str, effect: Effect) -> CloudError {
        let state = self.state.as_deref().unwrap_or("unknown");
        let reason = self.error_reason.as_deref().filter(|reason| !reason.is_empty()).unwrap_or("it doesn't say why");
        CloudError::new(
            what,
            Trouble::Broken,
            effect,
            format!("the sandbox `{}` is in state `{state}`: {reason}", self.id),
        )
    }

    pub(super) fn has(&self, labels: &BTreeMap<String, String>) -> bool {
        labels.iter().all(|(name, value)| self.labels.get(name) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_state(state: &str) -> Sandbox {
        serde_json::from_value(serde_json::json!({"id": "a", "state": state, "errorReason": "no disk"})).unwrap()
    }

    #[test]
    fn every_state_of_the_reference_has_one_meaning() {
        for (states, expected) in [
            ("started", Ok(Condition::Running)),
            ("stopped archived paused", Ok(Condition::Paused)),
            ("destroyed", Ok(Condition::Gone)),
            (
                "creating restoring destroying starting stopping pending_build building_snapshot unknown pulling_snapshot \
                 archiving resizing snapshotting forking pausing resuming invented_tomorrow",
                Ok(Condition::Unclear),
            ),
        ] {
            for state in states.split(' ') {
                assert_eq!(in_state(state).condition("look"), expected, "{state}");
            }
        }
        for state in ["error", "build_failed"] {
            let error = in_state(state).condition("look").unwrap_err();
            assert_eq!((error.trouble, error.effect), (Trouble::Broken, Effect::None), "{state}");
            assert!(error.message.contains("no disk") && error.message.contains(state), "{error}");
        }
    }
}
