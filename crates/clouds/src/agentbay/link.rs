//! A session's own address for tools, past the front door. Its token changes when the session wakes.

use super::front::{nonce, nonsense, trouble_of};
use crate::CloudError;
use crate::wire::{self, Call};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use std::time::Duration;
use stead_model::env::Secret;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link {
    url: String,
    token: Secret,
}

/// What a link says that isn't an answer.
#[derive(Debug)]
pub(super) enum Unlinked {
    /// The token or the address is of before; nothing was done.
    Stale(CloudError),
    Failed(CloudError),
}

impl Link {
    pub(super) fn new(url: &str, token: &str) -> Option<Self> {
        let (url, token) = (url.trim_end_matches('/').to_owned(), Secret::new(token));
        (!url.is_empty() && !token.reveal().is_empty()).then_some(Self { url, token })
    }

    /// Calls a tool: the result as the tool gave it.
    pub(super) async fn call(
        &self,
        client: &Client,
        (what, call): (&'static str, Call),
        (server, tool): (&str, &str),
        arguments: &Value,
        patience: Duration,
    ) -> Result<Value, Unlinked> {
        let token = String::from_utf8_lossy(self.token.reveal());
        let chance: String =
            nonce(what).map_err(Unlinked::Failed)?.bytes().take(9).map(|byte| char::from(b'0' + byte % 10)).collect();
        let request_id = format!("link-{}-{chance}", jiff::Timestamp::now().as_millisecond());
        let body = json!({
            "args": arguments, "server": server, "tool": tool, "token": token, "requestId": request_id,
        });
        let request = client
            .post(format!("{}/callTool", self.url))
            .header("content-type", "application/json")
            .header("x-access-token", token.as_ref())
            .body(body.to_string())
            .timeout(patience);
        let answer = wire::begin(what, call, patience, request).await.map_err(Unlinked::Failed)?;
        let (status, after) = (answer.status(), wire::retry_after(&answer));
        let body = wire::read(what, call, answer).await.map_err(Unlinked::Failed)?;
        if !status.is_success() {
            let error = wire::refused(what, call, status, after, &body);
            let code = serde_json::from_slice::<Value>(&body).unwrap_or_default();
            let trouble = code.get("code").and_then(Value::as_str).and_then(trouble_of).unwrap_or(error.trouble);
            let error = CloudError { trouble, ..error };
            return Err(match status {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => Unlinked::Stale(error),
                _ => Unlinked::Failed(error),
            });
        }
        let broken = |why: &str| Unlinked::Failed(nonsense(what, call, why));
        let mut outer: Value = serde_json::from_slice(&body).map_err(|error| broken(&error.to_string()))?;
        let mut data = outer.get_mut("data").map(Value::take).unwrap_or_default();
        if let Some(text) = data.as_str() {
            data = serde_json::from_str(text).map_err(|error| broken(&error.to_string()))?;
        }
        match data.get_mut("result").map(Value::take) {
            Some(result) if result.is_object() => Ok(result),
            Some(_) | None => Err(broken("it has no result")),
        }
    }
}
