//! Running a command.

use super::App;
use super::access::{Caller, OfThread};
use super::body::{Json, named_as as id};
use super::describe::StreamEvent;
use super::problem::{Answer, DAMAGED, ErrorBody, Problem};
use super::terminals::default_name;
use super::threads::FOR_EVER;
use super::view::CommandView;
use crate::lease::AutoResume;
use crate::stead::{Execute, Kept, Ran, Stead, Where};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use stead_model::ids::{CommandId, ThreadId};
use stead_model::proto::{IfBusy, Stdin};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(exec))
}

/// Of each stream in an answer; the log has all of it.
const MOST_SHOWN: usize = 1 << 20;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Exec {
    /// A line for the shell, or many.
    command: String,
    /// A terminal of the thread, by name.
    #[serde(default = "default_name")]
    terminal: String,
    /// For this command only.
    cwd: Option<String>,
    /// For this command only.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// What it reads. Without it, and without `stdin_open`, it reads end-of-file.
    stdin: Option<String>,
    /// It is written to later, by `POST /api/commands/{id}/stdin`.
    #[serde(default)]
    stdin_open: bool,
    /// None unless asked for; counted from when it starts, not while it waits for its turn.
    #[schema(minimum = 1, maximum = 3_153_600_000_000_u64)]
    timeout_ms: Option<u64>,
    /// Answer at once, not when it ends.
    #[serde(default)]
    background: bool,
    /// The same id is run once, however often it is asked for.
    id: Option<String>,
    #[serde(default)]
    if_busy: WhenBusy,
    /// Whether a paused thread is woken.
    #[serde(default = "yes")]
    auto_resume: bool,
    /// Whether a thread that isn't there is made.
    #[serde(default = "yes")]
    create: bool,
    #[serde(default)]
    output_encoding: Encoding,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum WhenBusy {
    #[default]
    Queue,
    Reject,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Encoding {
    #[default]
    Utf8,
    Base64,
}

/// A command with its output: at most 1 MiB a stream, its beginning and its end. What is no longer kept is null, and the
/// warning `output_evicted` says so; of a command that goes on in the background, what it has printed so far is null.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ExecView {
    #[serde(flatten)]
    command: CommandView,
    stdout: Option<String>,
    stderr: Option<String>,
    /// Something is missing in the middle; the log has it.
    truncated: bool,
}

impl Exec {
    pub(super) fn read(self, thread: ThreadId, caller: Caller) -> Answer<(Where, Execute)> {
        if self.command.contains('\0') {
            return Err(Problem::invalid("`command` has a NUL character, which no shell can read"));
        }
        if self.timeout_ms.is_some_and(|most| most == 0 || most > 1000 * FOR_EVER) {
            return Err(Problem::invalid("`timeout_ms` is 1 to a hundred years; leave it out for no limit"));
        }
        if let Some(name) = self.env.keys().find(|name| !stead_model::word::is_name(name.as_bytes())) {
            return Err(Problem::new("invalid_env_name", format!("`{name}` can't be the name of a variable")));
        }
        let stdin = match (self.stdin, self.stdin_open) {
            (None, false) => Stdin::Empty,
            (None, true) => Stdin::Open,
            (Some(text), false) => Stdin::Bytes(stead_model::state::Bytes(text.into_bytes())),
            (Some(_), true) => {
                return Err(Problem::invalid("`stdin` is all it reads, `stdin_open` says there is more: choose one"));
            }
        };
        let auto_resume = if self.auto_resume { AutoResume::Yes } else { AutoResume::No };
        let by = Some(caller.0.token);
        let at = Where { thread, terminal: self.terminal, create: self.create, auto_resume, by };
        let execute = Execute {
            id: self.id.map(|text| id::<CommandId>(&text)).transpose()?,
            command: self.command.into_bytes(),
            cwd: self.cwd.map(String::into_bytes),
            env: self.env.into_iter().map(|(name, value)| (name, value.into_bytes())).collect(),
            stdin,
            timeout: self.timeout_ms.map(Duration::from_millis),
            if_busy: match self.if_busy {
                WhenBusy::Queue => IfBusy::Queue,
                WhenBusy::Reject => IfBusy::Reject,
            },
        };
        Ok((at, execute))
    }
}

/// Run a command in a terminal of a thread.
///
/// Answers when it ends, or at once with `background`. With `Accept: text/event-stream` its events are the answer: `queued`
/// if others are before it, `start`, `stdout` and `stderr`, then `exit` or `failed`, each with its sequence number as `id`.
/// Whoever hangs up stops nothing.
#[utoipa::path(
    post, path = "/api/threads/{id}/exec", tag = "commands", params(("id" = String, Path)), request_body = Exec,
    responses(
        (status = 200, content((ExecView = "application/json"), (StreamEvent = "text/event-stream"))),
        (status = 202, body = ExecView, description = "It goes on in the background"),
        (status = 409, body = ErrorBody), (status = 429, body = ErrorBody), (status = 500, body = ErrorBody, description = DAMAGED), (status = "default", body = ErrorBody)
    )
)]
async fn exec(
    State(stead): State<Stead>,
    caller: Caller,
    OfThread(thread): OfThread,
    headers: HeaderMap,
    Json(body): Json<Exec>,
) -> Answer<Response> {
    let (background, encoding) = (body.background, body.output_encoding);
    let (at, execute) = body.read(thread, caller)?;
    if wants_events(&headers) {
        let command = stead.submit(at, execute).await?;
        return Ok(super::sse::stream(&stead, stead.follow_asked(&command.id).await?));
    }
    if background {
        let ran = stead.submit_and_show(at, execute, MOST_SHOWN).await?;
        return Ok((StatusCode::ACCEPTED, axum::Json(ExecView::new(ran, encoding))).into_response());
    }
    let ran = stead.run(at, execute, MOST_SHOWN).await?;
    Ok(axum::Json(ExecView::new(ran, encoding)).into_response())
}

pub(super) fn wants_events(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepts.flat_map(|value| value.split(',')).any(|kind| kind.trim_start().starts_with("text/event-stream"))
}

impl ExecView {
    fn new(ran: Ran, encoding: Encoding) -> Self {
        let truncated = [&ran.stdout, &ran.stderr].into_iter().flatten().any(|kept| kept.omitted() > 0);
        Self {
            command: ran.command.into(),
            stdout: ran.stdout.map(|kept| shown(kept, encoding)),
            stderr: ran.stderr.map(|kept| shown(kept, encoding)),
            truncated,
        }
    }
}

fn shown(kept: Kept, encoding: Encoding) -> String {
    let cut = kept.omitted() > 0;
    let Kept { mut head, mut tail, .. } = kept;
    match encoding {
        Encoding::Base64 => {
            head.append(&mut tail);
            STANDARD.encode(head)
        }
        Encoding::Utf8 if cut => {
            // A character that the cut went through is left out, not shown as two wrong ones.
            let head = head.get(..head.len() - broken_end(&head)).unwrap_or_default();
            let begin = tail.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
            let tail = tail.get(begin..).unwrap_or_default();
            String::from_utf8_lossy(head).into_owned() + &String::from_utf8_lossy(tail)
        }
        Encoding::Utf8 => {
            head.append(&mut tail);
            String::from_utf8(head).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
        }
    }
}

/// How many bytes at the end are the beginning of a character that isn't whole.
fn broken_end(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes.get(bytes.len().saturating_sub(4)..).unwrap_or_default()) {
        Err(error) if error.error_len().is_none() => bytes.len().min(4) - error.valid_up_to(),
        Ok(_) | Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_character_is_told_from_a_whole_one() {
        let cases: [(&[u8], usize); 6] =
            [(b"abc", 0), ("aé".as_bytes(), 0), (b"ab\xc3", 1), (b"\xe2\x82", 2), (b"\xf0\x9f\x98", 3), (b"", 0)];
        for (bytes, broken) in cases {
            assert_eq!(broken_end(bytes), broken, "{bytes:?}");
        }
    }
}
