//! What happens in a turn, whichever agent it is.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// One event. The last of a turn is one of [`Event::Done`], [`Event::Aborted`], [`Event::Error`], and there is one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum Event {
    /// The agent has the message, or is about to get it.
    Start {
        run_id: String,
        session_id: String,
        key: String,
        /// Whether the agent knows what was said before in this session.
        resumed: bool,
    },
    /// For people: what goes on besides the answer.
    Status {
        text: String,
    },
    /// The next piece of the answer.
    Delta {
        text: String,
    },
    /// A tool is used; the same id again is the same use, further on.
    Tool(Tool),
    /// The agent waits for a decision.
    Permission(Permission),
    /// A whole message of the agent, as it wrote it.
    Message {
        text: String,
    },
    Done {
        #[serde(skip_serializing_if = "Option::is_none", default)]
        usage: Option<Usage>,
    },
    Aborted {},
    Error {
        error: Failure,
    },
}

impl Event {
    pub fn status(text: impl Into<String>) -> Self {
        Self::Status { text: text.into() }
    }

    pub fn error(code: &str, message: impl Into<String>) -> Self {
        Self::Error { error: Failure { code: code.to_owned(), message: message.into(), retryable: false } }
    }

    /// Whether nothing of the turn comes after it.
    pub fn is_last(&self) -> bool {
        match self {
            Self::Done { .. } | Self::Aborted {} | Self::Error { .. } => true,
            Self::Start { .. }
            | Self::Status { .. }
            | Self::Delta { .. }
            | Self::Tool(_)
            | Self::Permission(_)
            | Self::Message { .. } => false,
        }
    }

    /// As it is called on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Start { .. } => "start",
            Self::Status { .. } => "status",
            Self::Delta { .. } => "delta",
            Self::Tool(_) => "tool",
            Self::Permission(_) => "permission",
            Self::Message { .. } => "message",
            Self::Done { .. } => "done",
            Self::Aborted {} => "aborted",
            Self::Error { .. } => "error",
        }
    }

    /// What it says, without its name.
    pub fn data(&self) -> Value {
        let whole = serde_json::to_value(self).unwrap_or_default();
        whole.get("data").cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    pub id: String,
    pub name: String,
    pub input: Value,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output: Option<Value>,
    pub status: ToolStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    Running,
    Completed,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permission {
    pub id: String,
    pub title: String,
    /// What sort of thing is to be done: `execute`, `edit`, `read`...
    pub kind: String,
    pub options: Vec<PermissionOption>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermissionOption {
    pub id: String,
    pub label: String,
    /// `allow_once`, `allow_always`, `reject_once`, `reject_always`.
    pub kind: String,
}

impl PermissionOption {
    pub(crate) fn new(id: &str, label: &str, kind: &str) -> Self {
        Self { id: id.to_owned(), label: label.to_owned(), kind: kind.to_owned() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Allow,
    Deny,
}

impl Permission {
    /// The option that means this and no more than this: once rather than always. None where the agent offers none.
    pub fn option_for(&self, decision: Decision) -> Option<&PermissionOption> {
        let word = match decision {
            Decision::Allow => "allow",
            Decision::Deny => "reject",
        };
        let once = self.options.iter().find(|option| option.kind == format!("{word}_once"));
        once.or_else(|| self.options.iter().find(|option| option.kind.starts_with(word)))
    }

    pub fn option(&self, id: &str) -> Option<&PermissionOption> {
        self.options.iter().find(|option| option.id == id)
    }
}

/// What sorts of things agents ask about; whatever is none of these is `other`.
pub const KINDS: [&str; 10] =
    ["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"];

/// The kind that an agent named, as far as there is such a kind: a rule for all others has to find it.
pub(crate) fn kind(named: &str) -> String {
    KINDS.iter().find(|kind| **kind == named).copied().unwrap_or("other").to_owned()
}

/// What is done with a question for permission: of its kind, or of any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    #[serde(default)]
    pub default: Rule,
    /// By kind of tool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, Rule>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    #[default]
    Ask,
    Allow,
    Deny,
}

impl Default for Policy {
    fn default() -> Self {
        Self::all(Rule::Ask)
    }
}

impl Policy {
    pub fn all(rule: Rule) -> Self {
        Self { default: rule, tools: BTreeMap::new() }
    }

    pub fn rule(&self, kind: &str) -> Rule {
        self.tools.get(kind).copied().unwrap_or(self.default)
    }

    /// A kind that no agent will ever ask about: a rule for it would protect nobody.
    pub fn unknown_kind(&self) -> Option<&str> {
        self.tools.keys().map(String::as_str).find(|kind| !KINDS.contains(kind))
    }

    /// Whether any question would be answered so.
    pub fn has(&self, rule: Rule) -> bool {
        KINDS.iter().any(|kind| self.rule(kind) == rule)
    }
}

/// Tokens, as far as the agent tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub total_tokens: Option<u64>,
}

/// Why a turn failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub code: String,
    pub message: String,
    pub retryable: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events_are_written_as_clients_read_them() {
        let cases = [
            (Event::Delta { text: "a".into() }, "delta", json!({"text": "a"})),
            (Event::Aborted {}, "aborted", json!({})),
            (Event::Done { usage: None }, "done", json!({})),
            (
                Event::error("agent_died", "x"),
                "error",
                json!({"error": {"code": "agent_died", "message": "x", "retryable": false}}),
            ),
        ];
        for (event, name, data) in cases {
            assert_eq!((event.name(), event.data()), (name, data));
            let text = serde_json::to_string(&event).unwrap();
            assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
        }
    }

    #[test]
    fn a_decision_takes_the_smallest_option_that_means_it() {
        let option = |id: &str, kind: &str| PermissionOption::new(id, id, kind);
        let permission = |options: &[PermissionOption]| Permission {
            id: "p".into(),
            title: String::new(),
            kind: "execute".into(),
            options: options.to_vec(),
        };
        let all = permission(&[
            option("always", "allow_always"),
            option("once", "allow_once"),
            option("never", "reject_always"),
            option("no", "reject_once"),
        ]);
        assert_eq!(all.option_for(Decision::Allow).unwrap().id, "once");
        assert_eq!(all.option_for(Decision::Deny).unwrap().id, "no");
        let few = permission(&[option("allow", "odd"), option("fine", "allow_always")]);
        assert_eq!(few.option_for(Decision::Allow).unwrap().id, "fine");
        assert_eq!(few.option_for(Decision::Deny), None);
    }

    #[test]
    fn a_kind_of_tool_has_its_own_rule_or_that_of_all() {
        let policy = Policy { default: Rule::Ask, tools: [("read".to_owned(), Rule::Allow)].into() };
        assert_eq!((policy.rule("read"), policy.rule("execute")), (Rule::Allow, Rule::Ask));
        assert_eq!(policy.unknown_kind(), None);
        assert_eq!((policy.has(Rule::Ask), policy.has(Rule::Deny)), (true, false));
    }

    #[test]
    fn a_rule_for_a_kind_that_does_not_exist_is_found() {
        let policy = Policy { default: Rule::Allow, tools: [("delte".to_owned(), Rule::Deny)].into() };
        assert_eq!(policy.unknown_kind(), Some("delte"));
        assert_eq!((kind("delete"), kind("destroy")), ("delete".to_owned(), "other".to_owned()));
    }
}
