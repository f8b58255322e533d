//! Tools past the front door: by the session's own address, with its token.

use super::State;
use super::door::{command_of, linked};
use super::tools::{self, Route};
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;

/// `POST /callTool/TOOL`, with the beginning of its command.
pub(super) fn name_of(body: &Bytes) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    format!("POST /callTool/{}: {}", body["tool"].as_str().unwrap_or_default(), command_of(&body["args"]))
}

pub(super) async fn call(state: &Arc<State>, session: &str, headers: &HeaderMap, body: &Bytes) -> Response {
    let broken = |what: &str| {
        state.violation(format!("callTool: {what}"));
        linked(400, &json!({ "code": "BadRequest", "message": what }))
    };
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let Some(session) = state.session(session) else {
        return linked(404, &json!({ "code": "NotFound", "message": "no such session" }));
    };
    if header("content-type") != "application/json" {
        return broken("content-type is not application/json");
    }
    let Ok(Value::Object(body)) = serde_json::from_slice(body) else { return broken("the body is no object") };
    let mut names: Vec<_> = body.keys().map(String::as_str).collect();
    names.sort_unstable();
    if names != ["args", "requestId", "server", "token", "tool"] {
        return broken(&format!("fields {names:?}"));
    }
    let text = |name: &str| body[name].as_str().unwrap_or_default();
    let numbers: Vec<_> = text("requestId").split('-').collect();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !matches!(numbers.as_slice(), ["link", time, chance] if is_number(time) && is_number(chance)) {
        return broken("requestId is not link-TIME-CHANCE");
    }
    if text("token") != header("x-access-token") {
        return broken("the two tokens differ");
    }
    if text("token") != session.token() {
        return linked(401, &json!({ "code": "Unauthorized", "message": "the token is not valid" }));
    }
    let (Some(arguments), false) = (body["args"].as_object(), text("server").is_empty()) else {
        return broken("no args or server");
    };
    match tools::call(state, &session, Route::Link, text("tool"), text("server"), arguments).await {
        Ok(outcome) => linked(200, &json!({ "code": "Success", "data": { "result": outcome.to_value() } })),
        Err(refusal) => {
            let status = if refusal.code.ends_with(".NotFound") { 404 } else { refusal.status };
            linked(status, &json!({ "code": refusal.code, "message": refusal.message }))
        }
    }
}
