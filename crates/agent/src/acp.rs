//! The Agent Client Protocol, version 1: JSON-RPC 2.0, a message a line.
//!
//! ```text
//! initialize ─► session/load | session/new [─► session/set_model] ─► ready
//! session/prompt ─► session/update.., session/request_permission.. ─► its answer, with a stop reason
//! ```
//!
//! In version 2 the answer to a prompt is only its receipt; so 1 is offered, and whoever answers another is told apart.
//! What a second prompt in a turn does is not defined, and every agent does something else: the turn is ours to guard.

mod update;

use crate::event::{Event, Permission, PermissionOption};
use crate::machine::{Effects, Questions, Setup, Told};
use crate::wire::{at, brief, line, object, text};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use update::Turn;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Acp {
    setup: Setup,
    /// Whether conversations of this agent can be loaded, as far as we know better than it says.
    loads: bool,
    /// Whether the model is chosen by a message.
    sets_model: bool,
    state: State,
    session: Option<String>,
    next_id: u64,
    waiting: Option<String>,
    turn: Option<Turn>,
    questions: Questions<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Greeting,
    /// Replays the conversation as updates, which nobody wants to hear again.
    Loading,
    Opening,
    ChoosingModel {
        resumed: bool,
    },
    Ready,
    Failed,
}

const GREETING: u64 = 1;
const LOADING: u64 = 2;
const OPENING: u64 = 3;
const CHOOSING: u64 = 4;

impl Acp {
    pub(crate) fn begin(setup: Setup, loads: bool, sets_model: bool) -> (Self, Effects) {
        let machine = Self {
            setup,
            loads,
            sets_model,
            state: State::Greeting,
            session: None,
            next_id: 10,
            waiting: None,
            turn: None,
            questions: Questions::default(),
        };
        let params = json!({
            "protocolVersion": 1,
            "clientCapabilities": {"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false},
            "clientInfo": {"name": "stead", "title": "stead", "version": env!("CARGO_PKG_VERSION")}});
        (machine, Effects { write: call(GREETING, "initialize", &params), ..Effects::default() })
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
        self.questions.all()
    }

    pub(crate) fn prompt(&mut self, message: &str) -> Effects {
        let mut effects = Effects::default();
        match self.state {
            State::Ready => self.start_turn(message, &mut effects),
            State::Failed => effects.event(Event::error("agent_failed", "the agent could not open a conversation")),
            State::Greeting | State::Loading | State::Opening | State::ChoosingModel { .. } => {
                self.waiting = Some(message.to_owned());
            }
        }
        effects
    }

    fn start_turn(&mut self, message: &str, effects: &mut Effects) {
        self.next_id += 1;
        self.turn = Some(Turn::new(self.next_id));
        let params = json!({"sessionId": self.session, "prompt": [{"type": "text", "text": message}]});
        effects.write.extend(call(self.next_id, "session/prompt", &params));
    }

    pub(crate) fn interrupt(&mut self) -> Effects {
        let mut effects = Effects::default();
        if self.waiting.take().is_some() {
            effects.event(Event::Aborted {});
            return effects;
        }
        let Some(turn) = self.turn.as_mut().filter(|turn| !turn.interrupted) else { return effects };
        turn.interrupted = true;
        let params = json!({"sessionId": self.session});
        effects.write.extend(line(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params})));
        for (_, request) in self.questions.drain() {
            effects.write.extend(cancelled(&request));
        }
        effects
    }

    pub(crate) fn answer(&mut self, id: &str, option: Option<&str>) -> Effects {
        let mut effects = Effects::default();
        if let Some((_, request)) = self.questions.take(id) {
            effects.write.extend(match option {
                Some(option) => reply(&request, &json!({"outcome": {"outcome": "selected", "optionId": option}})),
                None => cancelled(&request),
            });
        }
        effects
    }

    pub(crate) fn line(&mut self, bytes: &[u8]) -> Effects {
        let mut effects = Effects::default();
        let Some(message) = object(bytes) else { return effects };
        match (text(&message, "/method"), message.get("id")) {
            (Some(method), Some(id)) => self.asked(method, id, &message, &mut effects),
            (Some("session/update"), None) => self.updated(&message, &mut effects),
            (Some(_) | None, None) => {}
            (None, Some(id)) => self.answered(id.as_u64(), &message, &mut effects),
        }
        effects
    }

    fn answered(&mut self, id: Option<u64>, message: &Value, effects: &mut Effects) {
        let why = message.get("error").map(|_| text(message, "/error/message").unwrap_or("it gave no reason"));
        match (self.state, id, why) {
            (State::Greeting, Some(GREETING), None) => self.greeted(message, effects),
            (State::Loading, Some(LOADING), None) => {
                self.session.clone_from(&self.setup.resume);
                self.opened(message, true, effects);
            }
            (State::Loading, Some(LOADING), Some(why)) => {
                let why = brief(why, 300);
                effects.status(format!("the earlier conversation can't be resumed ({why}); a new one is begun"));
                self.open(effects);
            }
            (State::Opening, Some(OPENING), None) => match text(message, "/result/sessionId") {
                Some(session) => {
                    self.session = Some(session.to_owned());
                    self.opened(message, false, effects);
                }
                None => self.fail("the agent opened a conversation without a name", effects),
            },
            (State::ChoosingModel { resumed }, Some(CHOOSING), None) => self.be_ready(resumed, effects),
            (State::ChoosingModel { .. }, Some(CHOOSING), Some(why)) => {
                let model = self.setup.model.clone().unwrap_or_default();
                self.fail(&format!("the agent does not take the model `{model}`: {}", brief(why, 500)), effects);
            }
            (State::Greeting | State::Opening, Some(GREETING | OPENING), Some(why)) => {
                self.fail(&format!("the agent could not open a conversation: {}", brief(why, 500)), effects);
            }
            (State::Ready, Some(id), why) if self.turn.as_ref().is_some_and(|turn| turn.request == id) => {
                self.end_turn(message, why, effects);
            }
            _ => {}
        }
    }

    fn greeted(&mut self, message: &Value, effects: &mut Effects) {
        match message.pointer("/result/protocolVersion").and_then(Value::as_u64) {
            Some(1) => {}
            version => {
                let version = version.map_or_else(|| "none".to_owned(), |version| version.to_string());
                return self.fail(&format!("the agent speaks version {version} of the protocol, not 1"), effects);
            }
        }
        let can = message.pointer("/result/agentCapabilities/loadSession").and_then(Value::as_bool).unwrap_or(false);
        match &self.setup.resume {
            Some(session) if can && self.loads => {
                self.state = State::Loading;
                let params = json!({"sessionId": session, "cwd": self.setup.cwd, "mcpServers": []});
                effects.write.extend(call(LOADING, "session/load", &params));
            }
            Some(_) => {
                effects.status("this agent can't resume a conversation; a new one is begun");
                self.open(effects);
            }
            None => self.open(effects),
        }
    }

    fn open(&mut self, effects: &mut Effects) {
        self.state = State::Opening;
        effects.write.extend(call(OPENING, "session/new", &json!({"cwd": self.setup.cwd, "mcpServers": []})));
    }

    fn opened(&mut self, message: &Value, resumed: bool, effects: &mut Effects) {
        let model = self.setup.model.clone().filter(|_| self.sets_model);
        let current = text(message, "/result/models/currentModelId");
        match model {
            Some(model) if current != Some(model.as_str()) => {
                self.state = State::ChoosingModel { resumed };
                let params = json!({"sessionId": self.session, "modelId": model});
                effects.write.extend(call(CHOOSING, "session/set_model", &params));
            }
            Some(_) | None => self.be_ready(resumed, effects),
        }
    }

    fn be_ready(&mut self, resumed: bool, effects: &mut Effects) {
        self.state = State::Ready;
        // A name by which nobody can call it is none.
        let id = self.session.clone().filter(|_| self.loads);
        effects.told.push(Told::Ready { id, resumed });
        if let Some(message) = self.waiting.take() {
            self.start_turn(&message, effects);
        }
    }

    fn fail(&mut self, why: &str, effects: &mut Effects) {
        self.state = State::Failed;
        if self.waiting.take().is_some() {
            effects.event(Event::error("agent_failed", why));
        }
    }

    fn updated(&mut self, message: &Value, effects: &mut Effects) {
        if self.state != State::Ready || text(message, "/params/sessionId") != self.session.as_deref() {
            return;
        }
        if let (Some(turn), Some(update)) = (&mut self.turn, message.pointer("/params/update")) {
            turn.update(update, effects);
        }
    }

    fn asked(&mut self, method: &str, id: &Value, message: &Value, effects: &mut Effects) {
        if method != "session/request_permission" {
            let refused = json!({"code": -32601, "message": "stead does not answer this"});
            effects.write.extend(line(&json!({"jsonrpc": "2.0", "id": id, "error": refused})));
            return;
        }
        let Some(turn) = self.turn.as_mut().filter(|turn| !turn.interrupted) else {
            effects.write.extend(cancelled(id));
            return;
        };
        let Some(Value::Array(offered)) = message.pointer("/params/options") else {
            effects.write.extend(cancelled(id));
            return;
        };
        let of = |option: &Value, name: &str| option.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let options = offered.iter().map(|option| PermissionOption {
            id: of(option, "optionId"),
            label: of(option, "name"),
            kind: of(option, "kind"),
        });
        let tool = at(message, "/params/toolCall");
        let title = turn.title_of(tool);
        let kind = turn.kind_of(tool);
        let name = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
        let permission = Permission { id: name, title, kind, options: options.collect() };
        self.questions.ask(permission.clone(), id.clone());
        effects.event(Event::Permission(permission));
    }

    fn end_turn(&mut self, message: &Value, why: Option<&str>, effects: &mut Effects) {
        let Some(mut turn) = self.turn.take() else { return };
        turn.flush(effects);
        self.questions.drain();
        turn.note_usage(at(message, "/result/usage"));
        let last = match (why, text(message, "/result/stopReason")) {
            (_, Some("cancelled")) => Event::Aborted {},
            _ if turn.interrupted => Event::Aborted {},
            (Some(why), _) => {
                let more = text(message, "/error/data/details").or_else(|| text(message, "/error/data"));
                let why = more.map_or_else(|| why.to_owned(), |more| format!("{why}: {more}"));
                Event::error("agent_error", brief(&why, 2000))
            }
            (None, Some("refusal")) => Event::error("refused", "the model refused to go on"),
            (None, Some("end_turn") | None) => Event::Done { usage: turn.usage },
            (None, Some(limit)) => {
                effects.status(format!("the agent stopped: {}", brief(limit, 100)));
                Event::Done { usage: turn.usage }
            }
        };
        effects.event(last);
    }
}

fn call(id: u64, method: &str, params: &Value) -> Vec<u8> {
    line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

fn reply(id: &Value, result: &Value) -> Vec<u8> {
    line(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

fn cancelled(id: &Value) -> Vec<u8> {
    reply(id, &json!({"outcome": {"outcome": "cancelled"}}))
}

#[cfg(test)]
mod tests;
