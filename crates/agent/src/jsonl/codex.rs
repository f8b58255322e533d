//! `codex app-server`: JSON-RPC without the word `jsonrpc`.
//!
//! ```text
//! initialize ─► initialized, thread/start | thread/resume ─► ready
//! turn/start ─► item/agentMessage/delta, item/started, item/completed, requestApproval.. ─► turn/completed
//! ```
//!
//! A second `turn/start` would be steered into the first: the turn is ours to guard. A model that can't be reached is
//! tried for ever: whoever watches ends it.

use crate::event::{Event, Failure, Permission, PermissionOption, Tool, ToolStatus, Usage};
use crate::machine::{Effects, Questions, Setup, Told};
use crate::wire::{brief, line, number, object, text};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Codex {
    setup: Setup,
    state: State,
    thread: Option<String>,
    next_id: u64,
    /// A message that came before it was ready.
    waiting: Option<String>,
    turn: Option<Turn>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Greeting,
    Resuming,
    Opening,
    Ready,
    Failed,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Turn {
    /// Of the request that began it.
    request: u64,
    /// The agent's name for it.
    id: Option<String>,
    interrupted: bool,
    /// Interrupted before it had a name.
    interrupt_owed: bool,
    usage: Option<Usage>,
    failure: Option<Failure>,
    questions: Questions<Value>,
}

const GREETING: u64 = 1;
const OPENING: u64 = 2;
/// The second try of opening, without the conversation that is gone.
const OPENING_FRESH: u64 = 3;

impl Codex {
    pub(crate) fn begin(setup: Setup) -> (Self, Effects) {
        let hello = json!({"id": GREETING, "method": "initialize", "params": {
            "clientInfo": {"name": "stead", "title": "stead", "version": env!("CARGO_PKG_VERSION")}}});
        let machine = Self { setup, state: State::Greeting, thread: None, next_id: 10, waiting: None, turn: None };
        (machine, Effects { write: line(&hello), ..Effects::default() })
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.state == State::Failed
    }

    pub(crate) fn is_in_turn(&self) -> bool {
        self.turn.is_some() || self.waiting.is_some()
    }

    pub(crate) fn questions(&self) -> &[Permission] {
        self.turn.as_ref().map_or(&[], |turn| turn.questions.all())
    }

    pub(crate) fn prompt(&mut self, message: &str) -> Effects {
        let mut effects = Effects::default();
        match self.state {
            State::Greeting | State::Resuming | State::Opening => self.waiting = Some(message.to_owned()),
            State::Failed => effects.event(Event::error("agent_failed", "codex could not open a conversation")),
            State::Ready => self.start_turn(message, &mut effects),
        }
        effects
    }

    fn start_turn(&mut self, message: &str, effects: &mut Effects) {
        self.next_id += 1;
        self.turn = Some(Turn { request: self.next_id, ..Turn::default() });
        let params = json!({"threadId": self.thread, "input": [{"type": "text", "text": message}]});
        effects.write.extend(line(&json!({"id": self.next_id, "method": "turn/start", "params": params})));
    }

    pub(crate) fn interrupt(&mut self) -> Effects {
        let mut effects = Effects::default();
        if self.waiting.take().is_some() {
            effects.event(Event::Aborted {});
            return effects;
        }
        let Some(turn) = &mut self.turn else { return effects };
        turn.interrupted = true;
        for (_, request) in turn.questions.drain() {
            effects.write.extend(line(&json!({"id": request, "result": {"decision": "cancel"}})));
        }
        match turn.id.clone() {
            Some(id) => self.send_interrupt(&id, &mut effects),
            None => turn.interrupt_owed = true,
        }
        effects
    }

    fn send_interrupt(&mut self, turn: &str, effects: &mut Effects) {
        self.next_id += 1;
        let params = json!({"threadId": self.thread, "turnId": turn});
        effects.write.extend(line(&json!({"id": self.next_id, "method": "turn/interrupt", "params": params})));
    }

    pub(crate) fn answer(&mut self, id: &str, option: Option<&str>) -> Effects {
        let mut effects = Effects::default();
        if let Some((_, request)) = self.turn.as_mut().and_then(|turn| turn.questions.take(id)) {
            let decision = option.unwrap_or("decline");
            effects.write.extend(line(&json!({"id": request, "result": {"decision": decision}})));
        }
        effects
    }

    pub(crate) fn line(&mut self, bytes: &[u8]) -> Effects {
        let mut effects = Effects::default();
        let Some(message) = object(bytes) else { return effects };
        match (text(&message, "/method"), message.get("id")) {
            (Some(method), Some(id)) => self.asked(method, id, &message, &mut effects),
            (Some(method), None) => self.noticed(method, &message, &mut effects),
            (None, Some(id)) => self.answered(id.as_u64(), &message, &mut effects),
            (None, None) => {}
        }
        effects
    }

    fn answered(&mut self, id: Option<u64>, message: &Value, effects: &mut Effects) {
        let failed = message.get("error");
        match (self.state, id) {
            (State::Greeting, Some(GREETING)) if failed.is_none() => {
                effects.write.extend(line(&json!({"method": "initialized"})));
                let mut params = self.opening();
                let method = if let Some(thread) = &self.setup.resume {
                    params.insert("threadId".to_owned(), json!(thread));
                    self.state = State::Resuming;
                    "thread/resume"
                } else {
                    self.state = State::Opening;
                    "thread/start"
                };
                effects.write.extend(line(&json!({"id": OPENING, "method": method, "params": params})));
            }
            (State::Resuming, Some(OPENING)) if failed.is_some() => {
                self.state = State::Opening;
                effects.status("the earlier conversation can't be resumed; a new one is begun");
                let params = self.opening();
                effects.write.extend(line(&json!({"id": OPENING_FRESH, "method": "thread/start", "params": params})));
            }
            (State::Resuming | State::Opening, Some(OPENING | OPENING_FRESH)) if failed.is_none() => {
                let Some(thread) = text(message, "/result/thread/id") else {
                    return self.fail("codex opened a conversation without a name", effects);
                };
                self.thread = Some(thread.to_owned());
                let resumed = self.state == State::Resuming;
                self.state = State::Ready;
                effects.told.push(Told::Ready { id: self.thread.clone(), resumed });
                if let Some(message) = self.waiting.take() {
                    self.start_turn(&message, effects);
                }
            }
            (State::Greeting | State::Opening, Some(GREETING | OPENING | OPENING_FRESH)) => {
                let why = text(message, "/error/message").unwrap_or("it gave no reason");
                self.fail(&format!("codex could not open a conversation: {}", brief(why, 500)), effects);
            }
            (State::Ready, Some(id)) if self.turn.as_ref().is_some_and(|turn| turn.request == id) => {
                self.turn_answered(message, effects);
            }
            (State::Greeting | State::Resuming | State::Opening | State::Ready | State::Failed, _) => {}
        }
    }

    fn turn_answered(&mut self, message: &Value, effects: &mut Effects) {
        if let Some(why) = text(message, "/error/message") {
            let overloaded = message.pointer("/error/code").and_then(Value::as_i64) == Some(-32001);
            let failure = Failure { code: "agent_error".to_owned(), message: brief(why, 2000), retryable: overloaded };
            self.turn = None;
            return effects.event(Event::Error { error: failure });
        }
        if let Some(id) = text(message, "/result/turn/id") {
            self.name_turn(id, effects);
        }
    }

    fn name_turn(&mut self, id: &str, effects: &mut Effects) {
        let Some(turn) = &mut self.turn else { return };
        if turn.id.is_none() {
            turn.id = Some(id.to_owned());
        }
        if std::mem::take(&mut turn.interrupt_owed) {
            self.send_interrupt(id, effects);
        }
    }

    fn opening(&self) -> serde_json::Map<String, Value> {
        // The walls are the sandbox's. What runs in them is asked about unless it only reads.
        let mut params = serde_json::Map::new();
        params.insert("cwd".to_owned(), json!(self.setup.cwd));
        params.insert("approvalPolicy".to_owned(), json!("untrusted"));
        params.insert("sandbox".to_owned(), json!("danger-full-access"));
        if let Some(model) = &self.setup.model {
            params.insert("model".to_owned(), json!(model));
        }
        params
    }

    fn fail(&mut self, why: &str, effects: &mut Effects) {
        self.state = State::Failed;
        if self.waiting.take().is_some() {
            effects.event(Event::error("agent_failed", why));
        }
    }

    /// Of another conversation, as the one that finds a title for this.
    fn is_foreign(&self, message: &Value) -> bool {
        let thread = text(message, "/params/threadId");
        thread.is_some() && thread != self.thread.as_deref()
    }

    fn asked(&mut self, method: &str, id: &Value, message: &Value, effects: &mut Effects) {
        let kind = match method {
            "item/commandExecution/requestApproval" => "execute",
            "item/fileChange/requestApproval" => "edit",
            _ => {
                let refused = json!({"code": -32601, "message": "stead does not answer this"});
                effects.write.extend(line(&json!({"id": id, "error": refused})));
                return;
            }
        };
        let open = self.turn.as_mut().filter(|turn| !turn.interrupted);
        let Some(turn) = open else {
            effects.write.extend(line(&json!({"id": id, "result": {"decision": "cancel"}})));
            return;
        };
        let what = text(message, "/params/command").or_else(|| text(message, "/params/grantRoot"));
        let title = match (what, text(message, "/params/reason")) {
            (Some(what), Some(reason)) => format!("{}: {}", brief(reason, 300), brief(what, 700)),
            (Some(what), None) => brief(what, 1000),
            (None, Some(reason)) => brief(reason, 1000),
            (None, None) => "change files".to_owned(),
        };
        let options = vec![
            PermissionOption::new("accept", "Yes", "allow_once"),
            PermissionOption::new("acceptForSession", "Yes, for this session", "allow_always"),
            PermissionOption::new("decline", "No", "reject_once"),
        ];
        let permission = Permission { id: name_of(id), title, kind: kind.to_owned(), options };
        turn.questions.ask(permission.clone(), id.clone());
        effects.event(Event::Permission(permission));
    }

    fn noticed(&mut self, method: &str, message: &Value, effects: &mut Effects) {
        if self.is_foreign(message) || self.turn.is_none() {
            return;
        }
        match method {
            "turn/started" => {
                if let Some(id) = text(message, "/params/turn/id") {
                    self.name_turn(id, effects);
                }
            }
            "item/agentMessage/delta" => {
                if let Some(piece) = text(message, "/params/delta") {
                    effects.event(Event::Delta { text: piece.to_owned() });
                }
            }
            "item/started" => item(message, ToolStatus::Running, effects),
            "item/completed" => item(message, ToolStatus::Completed, effects),
            "thread/tokenUsage/updated" => self.note_usage(message),
            "error" => self.note_error(message, effects),
            "warning" | "configWarning" => {
                if let Some(warning) = text(message, "/params/message").or_else(|| text(message, "/params/summary")) {
                    effects.status(brief(warning, 500));
                }
            }
            "turn/completed" => self.end_turn(message, effects),
            _ => {}
        }
    }

    fn note_usage(&mut self, message: &Value) {
        let Some(turn) = &mut self.turn else { return };
        let of = |name: &str| number(message, &format!("/params/tokenUsage/last/{name}"));
        turn.usage = Some(Usage {
            input_tokens: of("inputTokens"),
            output_tokens: of("outputTokens"),
            total_tokens: of("totalTokens"),
        });
    }

    fn note_error(&mut self, message: &Value, effects: &mut Effects) {
        let why = text(message, "/params/error/message").or_else(|| text(message, "/params/message"));
        let why = brief(why.unwrap_or("codex met an error"), 2000);
        let retries = message.pointer("/params/willRetry").and_then(Value::as_bool).unwrap_or(false);
        if retries {
            effects.status(why);
        } else if let Some(turn) = &mut self.turn {
            turn.failure = Some(Failure { code: "agent_error".to_owned(), message: why, retryable: false });
        }
    }

    fn end_turn(&mut self, message: &Value, effects: &mut Effects) {
        let Some(turn) = self.turn.take() else { return };
        let ended = text(message, "/params/turn/id");
        if turn.id.is_some() && ended.is_some() && turn.id.as_deref() != ended {
            // The end of one before it.
            self.turn = Some(turn);
            return;
        }
        effects.event(match text(message, "/params/turn/status") {
            Some("completed") => Event::Done { usage: turn.usage },
            Some("interrupted") => Event::Aborted {},
            _ if turn.interrupted => Event::Aborted {},
            _ => {
                let told = text(message, "/params/turn/error/message").map(|why| brief(why, 2000));
                let failure = turn.failure.map(|failure| failure.message);
                let why = told.or(failure).unwrap_or_else(|| "codex gave no reason".to_owned());
                Event::error("agent_error", why)
            }
        });
    }
}

fn name_of(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

fn item(message: &Value, status: ToolStatus, effects: &mut Effects) {
    let Some(item) = message.pointer("/params/item") else { return };
    let id = text(item, "/id").unwrap_or_default().to_owned();
    let failed = matches!(text(item, "/status"), Some("failed" | "declined"));
    let status = if status == ToolStatus::Completed && failed { ToolStatus::Failed } else { status };
    let done = status != ToolStatus::Running;
    let (name, input, output) = match text(item, "/type") {
        Some("agentMessage") => {
            if let Some(text) = text(item, "/text").filter(|_| done) {
                effects.event(Event::Message { text: text.to_owned() });
            }
            return;
        }
        None | Some("userMessage" | "reasoning" | "plan" | "hookPrompt" | "contextCompaction") => return,
        Some("commandExecution") => {
            let input = json!({"command": item.get("command"), "cwd": item.get("cwd")});
            let output = json!({"output": item.get("aggregatedOutput"), "exit_code": item.get("exitCode")});
            ("shell", input, output)
        }
        Some("fileChange") => ("edit", json!({"changes": item.get("changes")}), json!({"status": item.get("status")})),
        Some("mcpToolCall") => {
            let output = item.get("result").filter(|result| !result.is_null()).or_else(|| item.get("error"));
            (text(item, "/tool").unwrap_or("mcp"), json!(item.get("arguments")), json!(output))
        }
        Some(other) => (other, item.clone(), Value::Null),
    };
    let output = (done && !output.is_null()).then_some(output);
    effects.event(Event::Tool(Tool { id, name: name.to_owned(), input, output, status }));
}

#[cfg(test)]
mod tests;
