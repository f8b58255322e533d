//! `claude -p --input-format stream-json --output-format stream-json`: one process, a line for each message.
//!
//! ```text
//! initialize ─► ready
//! user ─► system/init, stream_event.., assistant, user (results of tools), can_use_tool.. ─► result
//! ```
//!
//! Resuming is an argument of the process; a conversation that is gone is told by the first result. So it is not known
//! before the first turn whether one is resumed, and nothing is said of it until then.

use crate::event::{Event, Permission, PermissionOption, Tool, ToolStatus, Usage};
use crate::machine::{Effects, Questions, Setup, Told};
use crate::wire::{at, brief, content_text, line, number, object, text};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claude {
    resume: Option<String>,
    ready: bool,
    session: Option<String>,
    next_id: u64,
    waiting: Option<String>,
    turn: Option<Turn>,
    /// Whether any turn has been begun with: until then the conversation may turn out not to be there.
    proven: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Turn {
    interrupted: bool,
    questions: Questions<Question>,
    /// Tools in use, by id: a result doesn't say whose it is.
    tools: BTreeMap<String, (String, Value)>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Question {
    request: String,
    input: Value,
}

const GREETING: &str = "stead-initialize";
const GONE: &str = "No conversation found";

impl Claude {
    pub(crate) fn begin(setup: Setup) -> (Self, Effects) {
        let machine = Self {
            resume: setup.resume,
            ready: false,
            session: None,
            next_id: 0,
            waiting: None,
            turn: None,
            proven: false,
        };
        let write = request(GREETING, &json!({"subtype": "initialize", "hooks": null}));
        (machine, Effects { write, ..Effects::default() })
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready && (self.proven || self.resume.is_none())
    }

    pub(crate) fn is_in_turn(&self) -> bool {
        self.turn.is_some() || self.waiting.is_some()
    }

    pub(crate) fn questions(&self) -> &[Permission] {
        self.turn.as_ref().map_or(&[], |turn| turn.questions.all())
    }

    pub(crate) fn prompt(&mut self, message: &str) -> Effects {
        let mut effects = Effects::default();
        if self.ready {
            self.start_turn(message, &mut effects);
        } else {
            self.waiting = Some(message.to_owned());
        }
        effects
    }

    fn start_turn(&mut self, message: &str, effects: &mut Effects) {
        self.turn = Some(Turn::default());
        let content = json!([{"type": "text", "text": message}]);
        effects.write.extend(line(&json!({
            "type": "user", "message": {"role": "user", "content": content},
            "parent_tool_use_id": null, "session_id": self.session.as_deref().unwrap_or_default()})));
    }

    pub(crate) fn interrupt(&mut self) -> Effects {
        let mut effects = Effects::default();
        if self.waiting.take().is_some() {
            effects.event(Event::Aborted {});
            return effects;
        }
        self.next_id += 1;
        let name = format!("stead-{}", self.next_id);
        let Some(turn) = self.turn.as_mut().filter(|turn| !turn.interrupted) else { return effects };
        turn.interrupted = true;
        for (_, question) in turn.questions.drain() {
            effects.write.extend(deny(&question.request));
        }
        effects.write.extend(request(&name, &json!({"subtype": "interrupt"})));
        effects
    }

    pub(crate) fn answer(&mut self, id: &str, option: Option<&str>) -> Effects {
        let mut effects = Effects::default();
        if let Some((_, question)) = self.turn.as_mut().and_then(|turn| turn.questions.take(id)) {
            effects.write.extend(match option {
                Some("allow") => allow(&question),
                Some(_) | None => deny(&question.request),
            });
        }
        effects
    }

    pub(crate) fn line(&mut self, bytes: &[u8]) -> Effects {
        let mut effects = Effects::default();
        let Some(message) = object(bytes) else { return effects };
        let begins = match text(&message, "/type") {
            Some("system") => text(&message, "/subtype") == Some("init"),
            Some("stream_event" | "assistant") => true,
            Some(_) | None => false,
        };
        if begins && self.turn.is_some() {
            self.prove(&mut effects);
        }
        match text(&message, "/type") {
            Some("control_response") => self.answered(&message, &mut effects),
            Some("control_request") => self.asked(&message, &mut effects),
            Some("control_cancel_request") => {
                if let (Some(turn), Some(id)) = (&mut self.turn, text(&message, "/request_id")) {
                    turn.questions.take(id);
                }
            }
            Some("system") => self.system(&message, &mut effects),
            // What an agent within the agent says is its own.
            Some("stream_event" | "assistant" | "user") if !at(&message, "/parent_tool_use_id").is_null() => {}
            Some("stream_event") if self.turn.is_some() => {
                if text(&message, "/event/delta/type") == Some("text_delta")
                    && let Some(piece) = text(&message, "/event/delta/text")
                {
                    effects.event(Event::Delta { text: piece.to_owned() });
                }
            }
            Some("assistant") => self.said(&message, &mut effects),
            Some("user") => self.results(&message, &mut effects),
            Some("result") => self.end_turn(&message, &mut effects),
            Some(_) | None => {}
        }
        effects
    }

    fn answered(&mut self, message: &Value, effects: &mut Effects) {
        if self.ready || text(message, "/response/request_id") != Some(GREETING) {
            return;
        }
        self.ready = true;
        if self.resume.is_none() {
            effects.told.push(Told::Ready { id: None, resumed: false });
        }
        if let Some(message) = self.waiting.take() {
            self.start_turn(&message, effects);
        }
    }

    /// It works on what it was told, in the conversation that it was started for.
    fn prove(&mut self, effects: &mut Effects) {
        if std::mem::replace(&mut self.proven, true) {
            return;
        }
        if let Some(id) = self.resume.clone() {
            effects.told.push(Told::Ready { id: Some(id), resumed: true });
        }
    }

    fn system(&mut self, message: &Value, effects: &mut Effects) {
        match text(message, "/subtype") {
            Some("init") => {
                if let Some(session) = text(message, "/session_id").filter(|id| self.session.as_deref() != Some(*id)) {
                    self.session = Some(session.to_owned());
                    effects.told.push(Told::Named(session.to_owned()));
                }
            }
            Some("api_retry") if self.turn.is_some() => {
                let attempt = number(message, "/attempt").map(|attempt| format!(", attempt {attempt}"));
                effects.status(format!("the model can't be reached{}", attempt.unwrap_or_default()));
            }
            Some(_) | None => {}
        }
    }

    fn said(&mut self, message: &Value, effects: &mut Effects) {
        let Some(turn) = &mut self.turn else { return };
        let Some(Value::Array(blocks)) = message.pointer("/message/content") else { return };
        for block in blocks {
            match text(block, "/type") {
                Some("text") => {
                    let text = text(block, "/text").unwrap_or_default().to_owned();
                    if !text.is_empty() {
                        effects.event(Event::Message { text });
                    }
                }
                Some("tool_use") => {
                    let id = text(block, "/id").unwrap_or_default().to_owned();
                    let name = text(block, "/name").unwrap_or("tool").to_owned();
                    let input = at(block, "/input").clone();
                    turn.tools.insert(id.clone(), (name.clone(), input.clone()));
                    effects.event(Event::Tool(Tool { id, name, input, output: None, status: ToolStatus::Running }));
                }
                Some(_) | None => {}
            }
        }
    }

    fn results(&mut self, message: &Value, effects: &mut Effects) {
        let Some(turn) = &mut self.turn else { return };
        let Some(Value::Array(blocks)) = message.pointer("/message/content") else { return };
        for block in blocks.iter().filter(|block| text(block, "/type") == Some("tool_result")) {
            let id = text(block, "/tool_use_id").unwrap_or_default();
            let Some((name, input)) = turn.tools.remove(id) else { continue };
            let failed = at(block, "/is_error").as_bool().unwrap_or(false);
            let status = if failed { ToolStatus::Failed } else { ToolStatus::Completed };
            let output = Some(json!({"output": content_text(at(block, "/content"))}));
            effects.event(Event::Tool(Tool { id: id.to_owned(), name, input, output, status }));
        }
    }

    fn asked(&mut self, message: &Value, effects: &mut Effects) {
        let Some(request) = text(message, "/request_id") else { return };
        if text(message, "/request/subtype") != Some("can_use_tool") {
            let response = json!({"subtype": "error", "request_id": request, "error": "stead does not answer this"});
            effects.write.extend(line(&json!({"type": "control_response", "response": response})));
            return;
        }
        let question = Question { request: request.to_owned(), input: at(message, "/request/input").clone() };
        let Some(turn) = self.turn.as_mut().filter(|turn| !turn.interrupted) else {
            effects.write.extend(deny(request));
            return;
        };
        let name = text(message, "/request/tool_name").unwrap_or("tool");
        let what = text(message, "/request/input/command").or_else(|| text(message, "/request/input/file_path"));
        let title = what.map_or_else(|| name.to_owned(), |what| format!("{name}: {}", brief(what, 1000)));
        let options = vec![
            PermissionOption::new("allow", "Yes", "allow_once"),
            PermissionOption::new("deny", "No", "reject_once"),
        ];
        let permission = Permission { id: request.to_owned(), title, kind: kind_of(name).to_owned(), options };
        turn.questions.ask(permission.clone(), question);
        effects.event(Event::Permission(permission));
    }

    fn end_turn(&mut self, message: &Value, effects: &mut Effects) {
        let errors: Vec<&str> = match message.get("errors") {
            Some(Value::Array(errors)) => errors.iter().filter_map(Value::as_str).collect(),
            _ => text(message, "/result").into_iter().collect(),
        };
        if self.resume.is_some() && !self.proven && errors.iter().any(|error| error.contains(GONE)) {
            effects.told.push(Told::CannotResume);
            return;
        }
        self.prove(effects);
        let Some(turn) = self.turn.take() else { return };
        let failed =
            at(message, "/is_error").as_bool().unwrap_or(false) || text(message, "/subtype") != Some("success");
        effects.event(if turn.interrupted {
            Event::Aborted {}
        } else if failed {
            let why = if errors.is_empty() {
                text(message, "/subtype").unwrap_or("no reason given").to_owned()
            } else {
                errors.join("; ")
            };
            Event::error("agent_error", brief(&why, 2000))
        } else {
            let of = |name: &str| number(message, &format!("/usage/{name}"));
            let (input, output) = (of("input_tokens"), of("output_tokens"));
            let total = input.zip(output).map(|(input, output)| input.saturating_add(output));
            Event::Done { usage: Some(Usage { input_tokens: input, output_tokens: output, total_tokens: total }) }
        });
    }
}

fn request(id: &str, what: &Value) -> Vec<u8> {
    line(&json!({"type": "control_request", "request_id": id, "request": what}))
}

fn respond(request: &str, response: &Value) -> Vec<u8> {
    let response = json!({"subtype": "success", "request_id": request, "response": response});
    line(&json!({"type": "control_response", "response": response}))
}

fn allow(question: &Question) -> Vec<u8> {
    respond(&question.request, &json!({"behavior": "allow", "updatedInput": question.input}))
}

fn deny(request: &str) -> Vec<u8> {
    respond(request, &json!({"behavior": "deny", "message": "the user does not allow this"}))
}

fn kind_of(tool: &str) -> &'static str {
    match tool {
        "Bash" | "BashOutput" | "KillShell" => "execute",
        "Edit" | "MultiEdit" | "Write" | "NotebookEdit" => "edit",
        "Read" => "read",
        "Glob" | "Grep" => "search",
        "WebFetch" | "WebSearch" => "fetch",
        _ => "other",
    }
}

#[cfg(test)]
mod tests;
