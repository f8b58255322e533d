//! The front door: what every call must have, what goes wrong on demand, and how answers look.

use super::form::{self, Fields, Form};
use super::{KEY, State, actions, link};
use crate::faults::Fault;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// More than any call of ours has.
const MOST: usize = 8 << 20;

/// How much of a command is worth naming a call by.
const MOST_NAMED: usize = 300;

const VERSION: &str = "2025-05-06";

pub(super) fn router(state: Arc<State>) -> Router {
    let linked = state.clone();
    Router::new()
        .route("/", post(move |request: Request| front(state.clone(), request)))
        .route(
            "/link/{session}/callTool",
            post(move |Path(session): Path<String>, request: Request| side(linked.clone(), session, request)),
        )
        .fallback(|| async { (StatusCode::NOT_FOUND, "no such place") })
}

/// What an action comes to: `Data`, with what stands beside it.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) data: Value,
    pub(super) beside: Vec<(&'static str, Value)>,
}

impl From<Value> for Answer {
    fn from(data: Value) -> Self {
        Self { data, beside: Vec::new() }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    pub(super) fn not_found(session: &str) -> Self {
        Self::new(400, "InvalidMcpSession.NotFound", format!("The session {session} does not exist."))
    }
}

async fn front(state: Arc<State>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, MOST).await else {
        return (StatusCode::PAYLOAD_TOO_LARGE, "too much").into_response();
    };
    let query = form::parse(parts.uri.query().unwrap_or("")).unwrap_or_default();
    let fields = std::str::from_utf8(&body).ok().and_then(form::parse);
    let action = query.get("Action").cloned().unwrap_or_default();
    let named = fields.as_ref().map(|fields| name_of(&action, fields)).unwrap_or_default();
    let fault = state.faults.take(&named);
    let errors_in_body = state.errors_in_body.load(Ordering::SeqCst);
    with_fault(fault, errors_in_body, async move {
        // On its own: a caller that hangs up doesn't undo what it asked for.
        tokio::spawn(async move {
            let done = match check(&state, &parts.headers, &query, fields) {
                Ok(fields) => {
                    let form = Form { action: &action, fields: &fields, state: &state };
                    actions::act(&state, &query, &form).await
                }
                Err(refusal) => Err(refusal),
            };
            told(&state, done, errors_in_body)
        })
        .await
        .unwrap()
    })
    .await
}

async fn side(state: Arc<State>, session: String, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, MOST).await else {
        return (StatusCode::PAYLOAD_TOO_LARGE, "too much").into_response();
    };
    let fault = state.faults.take(&link::name_of(&body));
    with_fault(fault, false, async move {
        tokio::spawn(async move { link::call(&state, &session, &parts.headers, &body).await }).await.unwrap()
    })
    .await
}

/// Lets something go wrong with a call.
async fn with_fault(fault: Option<Fault>, errors_in_body: bool, call: impl Future<Output = Response>) -> Response {
    let failed = |status: u16| {
        let code = if status == 429 { "Throttling.User" } else { "ServiceUnavailable" };
        refusal(&Refusal::new(status, code, "as planned"), 0, errors_in_body)
    };
    match fault {
        None => call.await,
        Some(Fault::Refuse(status)) => failed(status),
        Some(Fault::AfterSuccess(status)) => {
            call.await;
            failed(status)
        }
        Some(Fault::NoAnswer) => {
            call.await;
            std::future::pending().await
        }
        Some(Fault::Cut(count)) => {
            let body = axum::body::to_bytes(call.await.into_body(), usize::MAX).await.unwrap();
            let some = body.slice(..count.min(body.len().saturating_sub(1)));
            let pieces = futures_util::stream::iter([Ok(some), Err(io::Error::other("cut"))]);
            (StatusCode::OK, [("content-length", body.len().to_string())], Body::from_stream(pieces)).into_response()
        }
        Some(Fault::Nonsense) => {
            call.await;
            (StatusCode::OK, "<html>It works!</html>").into_response()
        }
    }
}

/// `POST /ACTION`, with the tool and the beginning of its command.
fn name_of(action: &str, fields: &Fields) -> String {
    let Some(tool) = fields.get("Name") else { return format!("POST /{action}") };
    let arguments: Value = fields.get("Args").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    format!("POST /{action}/{tool}: {}", command_of(&arguments))
}

/// The beginning of what a tool is to do.
pub(super) fn command_of(arguments: &Value) -> String {
    let command = arguments["command"].as_str().or(arguments["path"].as_str()).unwrap_or_default();
    command.chars().take(MOST_NAMED).collect()
}

/// What every call must have.
fn check(state: &State, headers: &HeaderMap, query: &Fields, fields: Option<Fields>) -> Result<Fields, Refusal> {
    let broken = |what: String| {
        state.violation(what.clone());
        Refusal::new(400, "InvalidParameter", what)
    };
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let action = query.get("Action").ok_or_else(|| broken("no Action".to_owned()))?;
    let Some((needed, allowed)) = form::takes(action) else {
        return Err(broken(format!("unknown Action `{action}`")));
    };
    for (name, wanted) in [("Format", "json"), ("Version", VERSION)] {
        if query.get(name).map(String::as_str) != Some(wanted) {
            return Err(broken(format!("{action}: {name} is not {wanted}")));
        }
    }
    let stamp = query.get("Timestamp").map_or("", String::as_str);
    if !stamp.ends_with('Z') || stamp.parse::<jiff::Timestamp>().is_err() {
        return Err(broken(format!("{action}: Timestamp `{stamp}` is no time in UTC")));
    }
    let nonce = query.get("SignatureNonce").cloned().unwrap_or_default();
    if nonce.len() < 16 || !state.nonces.lock().unwrap().insert(nonce) {
        return Err(broken(format!("{action}: SignatureNonce is missing, short or used")));
    }
    let mut in_query = vec!["Action", "Format", "Version", "Timestamp", "SignatureNonce"];
    if action == "GetSessionDetail" {
        in_query.push("SessionId");
    }
    if let Some(name) = query.keys().find(|name| !in_query.contains(&name.as_str())) {
        return Err(broken(format!("{action}: unknown `{name}` in the query")));
    }
    for (name, wanted) in
        [("x-acs-version", VERSION), ("x-acs-action", action), ("content-type", "application/x-www-form-urlencoded")]
    {
        if header(name) != wanted {
            return Err(broken(format!("{action}: header {name} is `{}`, not `{wanted}`", header(name))));
        }
    }
    if header("user-agent").is_empty() || header("host").is_empty() {
        return Err(broken(format!("{action}: no user-agent or host")));
    }
    let mut fields = fields.ok_or_else(|| broken(format!("{action}: the body is no form")))?;
    let key = fields.remove("Authorization").unwrap_or_default();
    if !key.starts_with("Bearer ") {
        return Err(broken(format!("{action}: no Authorization")));
    }
    // Not a violation: a wrong key is a thing that happens.
    if key != format!("Bearer {KEY}") {
        return Err(Refusal::new(401, "InvalidApiKey", "The API key is not valid."));
    }
    if let Some(name) = needed.iter().find(|name| !fields.contains_key(**name)) {
        return Err(broken(format!("{action}: {name} is missing")));
    }
    if let Some(name) = fields.keys().find(|name| !needed.contains(&name.as_str()) && !allowed.contains(&name.as_str()))
    {
        return Err(broken(format!("{action}: unknown field `{name}`")));
    }
    Ok(fields)
}

fn told(state: &State, done: Result<Answer, Refusal>, errors_in_body: bool) -> Response {
    let number = state.next();
    match done {
        Ok(answer) => {
            let mut body = json!({
                "RequestId": request_id(number), "Success": true, "Code": "", "Message": "", "HttpStatusCode": 200,
            });
            if !answer.data.is_null() {
                body["Data"] = answer.data;
            }
            for (name, value) in answer.beside {
                body[name] = value;
            }
            axum::Json(body).into_response()
        }
        Err(why) => refusal(&why, number, errors_in_body),
    }
}

fn refusal(why: &Refusal, number: u64, errors_in_body: bool) -> Response {
    let body = json!({
        "RequestId": request_id(number), "Success": false, "Code": why.code, "Message": why.message,
        "HttpStatusCode": why.status,
    });
    let status = if errors_in_body { 200 } else { why.status };
    let mut response = (StatusCode::from_u16(status).unwrap(), axum::Json(body)).into_response();
    if why.status == 429 {
        response.headers_mut().insert("retry-after", "0".parse().unwrap());
    }
    response
}

fn request_id(number: u64) -> String {
    format!("00000000-0000-4000-8000-{number:012X}")
}

/// What a link answers.
pub(super) fn linked(status: u16, body: &Value) -> Response {
    let bytes = Bytes::from(body.to_string());
    (StatusCode::from_u16(status).unwrap(), [("content-type", "application/json")], bytes).into_response()
}
