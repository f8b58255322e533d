//! Calling a tool of a session: by its link where there is one, by the front door otherwise.

use super::Inner;
use super::front::nonsense;
use super::link::Unlinked;
use super::sessions::{Status, Way};
use crate::wire::Call;
use crate::{CloudError, Metrics, Trouble};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Past what a tool may take, at most this long for its answer.
const MARGIN: Duration = Duration::from_secs(10);

/// What a message of the front door carries is 63 KiB, with what is around it.
const MOST_BY_FRONT: usize = 50 << 10;

/// A link has no such bound; this is ours.
const MOST_BY_LINK: usize = 1 << 20;

/// What a tool says.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) text: String,
    pub(super) is_error: bool,
}

/// A tool with its arguments, and what it may take.
#[derive(Debug)]
pub(super) struct Tool<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: Value,
    pub(super) time: Duration,
}

impl Inner {
    /// Calls a tool, once.
    pub(super) async fn tool(
        &self,
        what: &'static str,
        call: Call,
        id: &str,
        tool: &Tool<'_>,
    ) -> Result<Said, CloudError> {
        let called = self.call_tool(what, call, id, tool).await;
        match called {
            Ok(result) => said(what, call, &result),
            Err(error) => Err(self.explained(what, id, error).await),
        }
    }

    async fn call_tool(&self, what: &'static str, call: Call, id: &str, tool: &Tool<'_>) -> Result<Value, CloudError> {
        let patience = tool.time + MARGIN.min(self.config.patience);
        let way = self.way(what, id).await?;
        let Some((link, server)) = way.direct(tool.name) else {
            return self.call_by_front(what, call, id, tool, patience).await;
        };
        let client = self.front.client();
        match link.call(client, (what, call), (server, tool.name), &tool.arguments, patience).await {
            Ok(result) => Ok(result),
            Err(Unlinked::Failed(error)) => Err(error),
            // Somebody has woken it, and it has another token now. Nothing was done, so it may be called again.
            Err(Unlinked::Stale(error)) => {
                self.see(what, id).await?;
                let anew = self.way(what, id).await?;
                match anew.direct(tool.name) {
                    Some((same, _)) if same == link => Err(error),
                    Some((link, server)) => link
                        .call(client, (what, call), (server, tool.name), &tool.arguments, patience)
                        .await
                        .map_err(|(Unlinked::Stale(error) | Unlinked::Failed(error))| error),
                    None => self.call_by_front(what, call, id, tool, patience).await,
                }
            }
        }
    }

    async fn call_by_front(
        &self,
        what: &'static str,
        call: Call,
        id: &str,
        tool: &Tool<'_>,
        patience: Duration,
    ) -> Result<Value, CloudError> {
        let arguments = tool.arguments.to_string();
        let server = self.way(what, id).await?.servers.get(tool.name).cloned().unwrap_or_default();
        let mut fields =
            vec![("SessionId", id), ("Name", tool.name), ("Args", &arguments), ("AutoGenSession", "false")];
        if !server.is_empty() {
            fields.push(("Server", &server));
        }
        let answer = self.front.ask_for(what, call, "CallMcpTool", &fields, patience).await?;
        match answer.data.as_str() {
            Some(text) => serde_json::from_str(text).map_err(|error| nonsense(what, call, &error.to_string())),
            None => Ok(answer.data),
        }
    }

    /// How a session is reached, asked for where it isn't known.
    async fn way(&self, what: &'static str, id: &str) -> Result<Arc<Way>, CloudError> {
        if let Some(way) = self.sessions.way(id) {
            return Ok(way);
        }
        self.see(what, id).await?;
        // One that is gone has no way, and is told as such by the front door.
        Ok(self.sessions.way(id).unwrap_or_default())
    }

    /// How much a message for or from a tool may carry.
    pub(super) fn most(&self, id: &str, tool: &str) -> usize {
        match self.sessions.way(id) {
            Some(way) if way.direct(tool).is_some() => MOST_BY_LINK,
            Some(_) | None => MOST_BY_FRONT,
        }
    }

    /// A refusal for the state of a session, or in words that nobody has listed: its state tells what it means.
    async fn explained(&self, what: &'static str, id: &str, error: CloudError) -> CloudError {
        match error.trouble {
            Trouble::NotFound => {
                self.sessions.doubt(id);
                error
            }
            Trouble::Broken | Trouble::Conflict => {
                let trouble = match self.see(what, id).await {
                    Ok(Status::Gone | Status::Deleting) => Trouble::NotFound,
                    Ok(Status::Paused | Status::Pausing | Status::Resuming) => Trouble::Conflict,
                    Ok(Status::Running | Status::Other) | Err(_) => return error,
                };
                CloudError { trouble, ..error }
            }
            Trouble::Denied
            | Trouble::UsedUp
            | Trouble::Exhausted
            | Trouble::NoSpace
            | Trouble::Unavailable
            | Trouble::TimedOut
            | Trouble::Unsupported => error,
        }
    }

    pub(super) async fn metrics(&self, id: &str) -> Result<Metrics, CloudError> {
        const WHAT: &str = "measure a session";
        let tool = Tool { name: "get_metrics", arguments: json!({}), time: self.config.patience };
        let said = self.tool(WHAT, Call::Reads, id, &tool).await?;
        let numbers: Value = match serde_json::from_str(&said.text) {
            Ok(Value::Object(numbers)) if !said.is_error => Value::Object(numbers),
            Ok(_) | Err(_) => return Err(nonsense(WHAT, Call::Reads, &said.text)),
        };
        let bytes = |name: &str| numbers.get(name).and_then(Value::as_u64);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counts of bytes, and not negative"
        )]
        let kilobytes = |names: [&str; 3]| {
            let count = names.into_iter().find_map(|name| numbers.get(name)?.as_f64())?;
            (count >= 0.0).then_some((count * 1024.0) as u64)
        };
        Ok(Metrics {
            cpu_percent: numbers.get("cpu_used_pct").and_then(Value::as_f64),
            memory_used_bytes: bytes("mem_used"),
            memory_limit_bytes: bytes("mem_total"),
            disk_used_bytes: bytes("disk_used"),
            network_rx_bytes: kilobytes(["rx_used_kbyte", "rx_used_kb", "rx_used_KB"]),
            network_tx_bytes: kilobytes(["tx_used_kbyte", "tx_used_kb", "tx_used_KB"]),
        })
    }
}

/// The text of a result.
fn said(what: &'static str, call: Call, result: &Value) -> Result<Said, CloudError> {
    let content = result.get("content").and_then(Value::as_array);
    let Some(content) = content else { return Err(nonsense(what, call, "the tool has no content")) };
    let text = content.first().and_then(|first| {
        let named = || ["text", "blob", "data"].into_iter().find_map(|name| first.get(name)?.as_str());
        first.as_str().or_else(named)
    });
    let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or(false);
    Ok(Said { text: text.unwrap_or_default().to_owned(), is_error })
}
