//! Errors as the contract has them: one shape, one table from code to status.

use crate::error::Error;
use crate::lease::LeaseError;
use crate::provider::Trouble;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};
use stead_model::plain::plain;
use stead_model::proto::FaultCode;
use utoipa::ToSchema;

/// What went wrong.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    pub(crate) error: ErrorDetail,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ErrorDetail {
    /// One of the codes of the contract.
    #[schema(example = "not_found")]
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// Whether the same request may succeed later.
    pub(crate) retryable: bool,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) details: Option<Value>,
}

/// An error on its way to a client.
#[derive(Debug, Clone)]
pub struct Problem {
    status: StatusCode,
    body: Box<ErrorBody>,
    /// For `Retry-After`, in seconds.
    retry_after: Option<u64>,
}

/// What a 500 of something that was stored means, for the description.
pub(super) const DAMAGED: &str =
    "`damaged`: what was written is not what is on the disk any more, and is not served; `stead fsck` tells more";

/// What to do about a disk that is full.
pub(super) const MAKE_ROOM: &str = "make room on the disk of the data directory; `DELETE /api/threads/{id}` removes what a \
                                    thread holds, also when it is full";

/// Code, status, whether it may go better later.
const CODES: [(&str, u16, bool); 22] = [
    ("invalid_request", 400, false),
    ("invalid_path", 400, false),
    ("invalid_env_name", 400, false),
    ("unauthorized", 401, false),
    ("forbidden", 403, false),
    ("not_found", 404, false),
    ("conflict", 409, false),
    ("already_exists", 409, false),
    ("terminal_busy", 409, true),
    ("session_in_use", 409, true),
    ("paused", 409, false),
    ("illegal_transition", 409, false),
    ("gone", 410, false),
    ("precondition_failed", 412, false),
    ("too_large", 413, false),
    ("limit_reached", 429, true),
    ("damaged", 500, false),
    ("unsupported", 501, false),
    ("provider_error", 502, true),
    ("unavailable", 503, true),
    ("provider_timeout", 504, true),
    ("no_space", 507, true),
];

impl Problem {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        let known = CODES.iter().find(|(name, ..)| *name == code);
        let (status, retryable) = known.map_or((503, true), |(_, status, retryable)| (*status, *retryable));
        // Much of it was written by programs, for terminals.
        let message = plain(&message.into());
        let error = ErrorDetail { code, message, retryable, hint: None, details: None };
        Self {
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE),
            body: Box::new(ErrorBody { error }),
            retry_after: (code == "limit_reached").then_some(1),
        }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new("invalid_request", message)
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.body.error.hint = Some(hint.into());
        self
    }

    pub fn details(mut self, details: Value) -> Self {
        self.body.error.details = Some(details);
        self
    }

    /// The same request may do harm a second time, though its code says that it may do better.
    fn not_retryable(mut self) -> Self {
        self.body.error.retryable = false;
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub(crate) fn detail(&self) -> &ErrorDetail {
        &self.body.error
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.status.is_server_error()
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let problem = Self::new(error.code(), chain(&error));
        let problem = if error.code() == "no_space" { problem.hint(MAKE_ROOM) } else { problem };
        match &error {
            Error::NotFound { kind, id } => {
                let hint = match *kind {
                    "thread" => Some("list the threads with `GET /api/threads`, or let an exec make it"),
                    "agent" => Some("list the agents with `GET /api/agents`"),
                    "terminal" => Some("make it with `POST /api/threads/{id}/terminals`"),
                    _ => None,
                };
                let problem = problem.details(json!({ "kind": kind, "id": id }));
                match hint {
                    Some(hint) => problem.hint(hint),
                    None => problem,
                }
            }
            Error::Lease(LeaseError::NotFound(id)) => problem.details(json!({ "kind": "lease", "id": id.as_str() })),
            Error::Lease(LeaseError::Paused(_)) => problem.hint("`POST /api/threads/{id}/resume` wakes it"),
            Error::Lease(LeaseError::InUse { .. }) => problem.details(json!({ "kind": "lease" })),
            Error::Lease(LeaseError::UnknownProvider(unknown)) => {
                let configured: Vec<_> = unknown.configured.iter().map(|name| format!("`{name}`")).collect();
                problem.details(json!({ "kind": "provider" })).hint(format!("configured: {}", configured.join(", ")))
            }
            Error::Lease(LeaseError::Provider(error)) if error.trouble == Trouble::Exhausted => problem.retry_after(5),
            Error::Lease(LeaseError::Provider(error)) if error.trouble == Trouble::UsedUp => problem
                .retry_after(1)
                .hint("processes, namespaces or open files of this machine are used up; it works again when some of them end"),
            Error::Refused(fault) if fault.code == FaultCode::Gone => {
                problem.details(json!({ "earliest": fault.earliest }))
            }
            Error::Refused(fault) if fault.expected.is_some() => {
                problem.details(json!({ "expected_offset": fault.expected }))
            }
            Error::Refused(fault) if fault.code == FaultCode::Damaged => problem.hint(
                "end the server and run `stead fsck`, which names all that is damaged and repairs what can be repaired",
            ),
            Error::Refused(fault) if fault.code == FaultCode::NotFound => problem.details(json!({ "kind": "command" })),
            Error::Trashed(id) => problem.details(json!({ "kind": "project", "id": id.as_str() })).hint(format!(
                "`POST /api/projects/{id}/restore`, or `stead project restore {id}`, takes it out again"
            )),
            Error::AgentCannot(_) => {
                problem.details(json!({ "kind": "agent" })).hint("`GET /api/agents` tells what is there")
            }
            Error::InputUnclear { .. } => problem
                .not_retryable()
                .hint("send all input of a command with `?offset=`, the place of its first byte: then a retry is safe"),
            Error::Moving => problem.retry_after(1),
            Error::TerminalBusy(_) => problem.hint("wait for its command, or cancel it"),
            Error::SessionInUse(_) => problem.hint("wait for its end, abort it, or send `\"if_busy\":\"queue\"`"),
            Error::AlreadyExists { .. }
            | Error::Conflict(_)
            | Error::Invalid(_)
            | Error::Lease(_)
            | Error::Refused(_)
            | Error::Broken(_)
            | Error::InitFailed { .. }
            | Error::Store(_)
            | Error::Path { .. }
            | Error::PreconditionFailed(_)
            | Error::TooLarge(_)
            | Error::NoSpace(_)
            | Error::Limit(_)
            | Error::Forbidden(_)
            | Error::Unsupported(_)
            | Error::Io(_)
            | Error::Env(_)
            | Error::Vault(_)
            | Error::Gone(_)
            | Error::Stopping => problem,
        }
    }
}

/// An error with its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        if self.is_ours() {
            let error = &self.body.error;
            tracing::warn!(code = error.code, message = error.message, "answered with an error");
        }
        let mut response = (self.status, axum::Json(&*self.body)).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"stead\""));
        }
        response
    }
}

/// For a path that leads nowhere.
pub(super) async fn no_such_place(uri: Uri) -> Problem {
    Problem::new("not_found", format!("there is nothing at `{}`", uri.path()))
        .hint("`/docs` lists everything that can be asked")
        .details(json!({ "kind": "route" }))
}

/// For a place that is asked in the wrong way.
pub(super) async fn no_such_method(method: Method, uri: Uri) -> Problem {
    let problem = Problem::invalid(format!("`{method}` means nothing at `{}`", uri.path()));
    Problem { status: StatusCode::METHOD_NOT_ALLOWED, ..problem }
}

pub(super) type Answer<T> = Result<T, Problem>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_an_error_is_in_the_table() {
        let codes = [
            Error::NotFound { kind: "thread", id: String::new() },
            Error::AlreadyExists { kind: "thread", id: String::new() },
            Error::Conflict(String::new()),
            Error::Invalid(String::new()),
            Error::TerminalBusy(String::new()),
            Error::SessionInUse(String::new()),
            Error::Path { path: String::new(), message: String::new() },
            Error::PreconditionFailed(String::new()),
            Error::TooLarge(String::new()),
            Error::NoSpace(String::new()),
            Error::Limit(String::new()),
            Error::Forbidden(String::new()),
            Error::Unsupported(String::new()),
            Error::AgentCannot(String::new()),
            Error::Gone(String::new()),
            Error::Moving,
            Error::Stopping,
        ];
        for error in codes {
            assert!(CODES.iter().any(|(code, ..)| *code == error.code()), "{}", error.code());
        }
    }
}
