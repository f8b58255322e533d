//! What a server says when it can't, and what somebody at a prompt can do about it.

use crate::json::Fields;
use serde_json::Value;
use std::fmt;

/// The one form that every error of the server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) message: String,
    /// Whether the same call may do better later.
    pub(crate) retryable: bool,
    pub(crate) hint: Option<String>,
    /// `details.kind` of a `not_found`.
    pub(crate) kind: Option<String>,
}

impl Problem {
    /// Reads the body of an answer that is no success. One that isn't in our form is told by its status.
    pub(crate) fn read(status: u16, body: &[u8]) -> Self {
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        let error = value.at("error");
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let said = || {
            let said = String::from_utf8_lossy(body);
            let line = said.lines().next().unwrap_or_default().trim();
            if line.is_empty() { format!("the server answered {status}") } else { format!("{line} ({status})") }
        };
        Self {
            status,
            code: text(error.at("code")).unwrap_or_else(|| "unknown".to_owned()),
            message: text(error.at("message")).unwrap_or_else(said),
            retryable: error.at("retryable").as_bool().unwrap_or(false),
            hint: text(error.at("hint")),
            kind: text(error.at("details").at("kind")),
        }
    }

    /// What to do next: in the words of the command line where there are some, else in the server's.
    pub(crate) fn advice(&self) -> Option<String> {
        let known = match (self.code.as_str(), self.kind.as_deref()) {
            ("not_found", Some("thread")) => "`stead ls` lists the threads that there are",
            ("not_found", Some("command")) => "`stead history -t THREAD` lists the commands of a thread",
            ("not_found", Some("provider")) => "`stead providers` lists what is configured",
            ("not_found", Some("token")) => "`stead token ls` lists the tokens",
            ("not_found", Some("terminal")) => "`stead show THREAD` lists the terminals of a thread",
            ("not_found" | "unsupported", Some("agent")) => "`stead agents` tells which there are and how to get them",
            ("not_found", Some("agent session")) => {
                "`stead agents --sessions` lists those that there are, with their keys"
            }
            ("session_in_use", _) => "wait for the end of its turn; `stead chat --queue` puts a message behind it",
            ("not_found", Some("instance")) => "`stead orphans` lists instances that belong to no thread",
            ("unauthorized", _) => {
                "put a token into STEAD_TOKEN; the first one is in the file `token` of the server's data directory, more \
                 are made with `stead token create`"
            }
            ("paused", _) => "`stead resume THREAD` wakes it",
            ("terminal_busy", _) => "wait for the command that runs, or `stead cancel` it; `stead history` names it",
            ("unsupported", _) => "`stead providers` tells what each provider can do",
            ("unavailable", _) => "try again in a moment; `stead doctor` tells whether the server is well",
            _ => return self.hint.clone(),
        };
        Some(known.to_owned())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_server_is_read_with_its_hint() {
        let body = br#"{"error":{"code":"not_found","message":"no thread `x`","retryable":false,"details":{"kind":"thread"}}}"#;
        let problem = Problem::read(404, body);
        assert_eq!((problem.code.as_str(), problem.to_string().as_str()), ("not_found", "no thread `x`"));
        assert!(
            !problem.retryable
                && Problem::read(502, br#"{"error":{"code":"provider_error","message":"","retryable":true}}"#)
                    .retryable
        );
        assert!(problem.advice().unwrap().contains("stead ls"));
        let body = br#"{"error":{"code":"conflict","message":"it runs","retryable":false,"hint":"say force"}}"#;
        assert_eq!(Problem::read(409, body).advice().as_deref(), Some("say force"), "the server knows better");
    }

    #[test]
    fn an_answer_in_another_form_is_told_by_its_status() {
        assert_eq!(Problem::read(502, b"<html>\nBad Gateway").to_string(), "<html> (502)");
        assert_eq!(Problem::read(500, b"").to_string(), "the server answered 500");
    }
}
