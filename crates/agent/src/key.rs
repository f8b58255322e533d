//! What makes a session this one: agent, workspace, model. Compared as a whole; never by a part of its text.

use std::fmt;

/// The model of a session that named none.
pub const DEFAULT_MODEL: &str = "default";

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    pub provider: String,
    /// The canonical path of the workspace, on the machine that has its files.
    pub workspace: String,
    pub model: String,
}

impl SessionKey {
    pub fn new(provider: &str, workspace: &str, model: Option<&str>) -> Self {
        Self {
            provider: provider.to_owned(),
            workspace: workspace.to_owned(),
            model: model.filter(|model| !model.is_empty()).unwrap_or(DEFAULT_MODEL).to_owned(),
        }
    }

    /// The model to ask the agent for; none means that the agent chooses.
    pub fn asked_model(&self) -> Option<&str> {
        (self.model != DEFAULT_MODEL).then_some(self.model.as_str())
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.provider, self.workspace, self.model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_begins_like_another_is_another() {
        let one = SessionKey::new("codex", "/ws/p1", None);
        let other = SessionKey::new("codex", "/ws/p10", None);
        assert_ne!(one, other);
        assert_eq!(one.to_string(), "codex:/ws/p1:default");
        assert_eq!(one, SessionKey::new("codex", "/ws/p1", Some("")));
        assert_eq!((one.asked_model(), SessionKey::new("a", "/", Some("m")).asked_model()), (None, Some("m")));
    }
}
