//! What happens within a turn, as `session/update` tells it.

use crate::event::{Event, Tool, ToolStatus, Usage};
use crate::machine::Effects;
use crate::wire::{at, brief, content_text, number, text};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Turn {
    pub(super) request: u64,
    pub(super) interrupted: bool,
    pub(super) usage: Option<Usage>,
    /// The message so far: the protocol has pieces only.
    said: String,
    /// Tools in use: an update names only what has changed.
    tools: BTreeMap<String, Use>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Use {
    name: String,
    kind: String,
    input: Value,
}

/// Of the text that a message is made of; what is beyond is in its pieces.
const MOST_SAID: usize = 4 << 20;

impl Turn {
    pub(super) fn new(request: u64) -> Self {
        Self { request, interrupted: false, usage: None, said: String::new(), tools: BTreeMap::new() }
    }

    pub(super) fn update(&mut self, update: &Value, effects: &mut Effects) {
        match text(update, "/sessionUpdate") {
            Some("agent_message_chunk") => {
                let piece = content_text(at(update, "/content"));
                if piece.is_empty() {
                    return;
                }
                if self.said.len() + piece.len() <= MOST_SAID {
                    self.said.push_str(&piece);
                }
                effects.event(Event::Delta { text: piece });
            }
            Some("tool_call" | "tool_call_update") => {
                self.flush(effects);
                self.tool(update, effects);
            }
            Some("usage_update") => self.note_usage(update),
            Some(_) | None => {}
        }
    }

    /// What was said so far is a whole message.
    pub(super) fn flush(&mut self, effects: &mut Effects) {
        if !self.said.is_empty() {
            effects.event(Event::Message { text: std::mem::take(&mut self.said) });
        }
    }

    fn tool(&mut self, update: &Value, effects: &mut Effects) {
        let Some(id) = text(update, "/toolCallId") else { return };
        let known = self.tools.entry(id.to_owned()).or_default();
        known.learn(update);
        let status = match text(update, "/status") {
            Some("completed") => ToolStatus::Completed,
            Some("failed") => ToolStatus::Failed,
            Some(_) | None => ToolStatus::Running,
        };
        let (name, input) = (known.name.clone(), known.input.clone());
        let output = output(update).filter(|_| status != ToolStatus::Running);
        if status != ToolStatus::Running {
            self.tools.remove(id);
        }
        effects.event(Event::Tool(Tool { id: id.to_owned(), name, input, output, status }));
    }

    pub(super) fn note_usage(&mut self, usage: &Value) {
        let (input, output) = (number(usage, "/inputTokens"), number(usage, "/outputTokens"));
        let total = number(usage, "/totalTokens");
        if input.is_some() || output.is_some() || total.is_some() {
            self.usage = Some(Usage { input_tokens: input, output_tokens: output, total_tokens: total });
        }
    }

    /// What a question is about.
    pub(super) fn title_of(&self, tool: &Value) -> String {
        let known = text(tool, "/toolCallId").and_then(|id| self.tools.get(id));
        let title = text(tool, "/title").or(known.map(|known| known.name.as_str())).unwrap_or("use a tool");
        let command =
            text(tool, "/rawInput/command").or_else(|| known.and_then(|known| text(&known.input, "/command")));
        match command.filter(|command| !title.contains(command)) {
            Some(command) => format!("{}: {}", brief(title, 300), brief(command, 700)),
            None => brief(title, 1000),
        }
    }

    pub(super) fn kind_of(&self, tool: &Value) -> String {
        let known = text(tool, "/toolCallId").and_then(|id| self.tools.get(id)).map(|known| known.kind.as_str());
        let kind = text(tool, "/kind").or(known).filter(|kind| !kind.is_empty());
        crate::event::kind(kind.unwrap_or("other"))
    }
}

impl Use {
    fn learn(&mut self, update: &Value) {
        if let Some(title) = text(update, "/title").filter(|title| !title.is_empty()) {
            self.name = brief(title, 1000);
        }
        if let Some(kind) = text(update, "/kind") {
            kind.clone_into(&mut self.kind);
        }
        if let Some(input) = update.get("rawInput").filter(|input| !is_empty(input)) {
            self.input = input.clone();
        }
    }
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(Map::is_empty)
}

fn output(update: &Value) -> Option<Value> {
    if let Some(raw) = update.get("rawOutput").filter(|raw| !raw.is_null()) {
        return Some(raw.clone());
    }
    let content = update.get("content").filter(|content| !content.is_null())?;
    let text = content_text(content);
    Some(if text.is_empty() { content.clone() } else { json!({"output": text}) })
}
