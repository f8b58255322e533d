//! A model on the loopback interface, in the five dialects that the agents speak. It answers
//! `MOCK-REPLY turn=N last='..'`, so that what it was told can be seen; words in the message steer it:
//!
//! - `RUN:command;;`: asks for one shell command first
//! - `GATE`: stops in the middle of its answer until it is let go on
//! - `HANG`: never answers
//! - `MD`: answers with a fence, a list and a quote
//! - `FLOOD`: answers with many pieces
//! - `CLOCK`: each piece is the time at which it is sent, in microseconds

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) port: u16,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    /// How often whoever waits at the gate may go on.
    released: usize,
    waiting: usize,
    left: bool,
}

pub(crate) const MARKDOWN: &str =
    "\n\n```rust\nfn main() {\n    println!(\"hi > there\");\n}\n```\n\n- one\n- two > not a prompt\n\n> quoted";

/// Stands for the time at which it is said.
const TICK: &str = "TICK";
const TICK_EVERY: Duration = Duration::from_millis(10);
pub(crate) const TICKS: usize = 100;

/// Now.
pub(crate) fn micros() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()
}

enum Plan {
    Tool(String),
    Text(Vec<String>),
    Hang,
}

impl Model {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let model = Self { port: listener.local_addr().unwrap().port(), state: Arc::default() };
        let serving = model.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let model = serving.clone();
                if model.state.0.lock().unwrap().left {
                    return;
                }
                std::thread::spawn(move || {
                    let _ = model.serve(stream);
                });
            }
        });
        model
    }

    /// Until somebody waits at the gate.
    pub(crate) fn wait_at_gate(&self) {
        let (state, changed) = &*self.state;
        let waiting =
            changed.wait_timeout_while(state.lock().unwrap(), crate::rig::PATIENCE, |state| state.waiting == 0);
        assert!(!waiting.unwrap().1.timed_out(), "nobody came to the gate");
    }

    /// From now on nobody listens on its port.
    pub(crate) fn leave(&self) {
        self.state.0.lock().unwrap().left = true;
        // Whoever waits for the next caller hears of it by one.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        let gone = || TcpStream::connect(("127.0.0.1", self.port)).is_err().then_some(());
        crate::rig::wait_for("the model to leave", gone);
    }

    /// Lets one answer go on behind its gate.
    pub(crate) fn release(&self) {
        let (state, changed) = &*self.state;
        state.lock().unwrap().released += 1;
        changed.notify_all();
    }

    /// Between two pieces of an answer: nobody releases it, so that its time runs out.
    fn pause(&self) {
        let (state, changed) = &*self.state;
        let _ = changed.wait_timeout_while(state.lock().unwrap(), TICK_EVERY, |_| true).unwrap();
    }

    fn gate(&self) {
        let (state, changed) = &*self.state;
        let mut state = state.lock().unwrap();
        state.waiting += 1;
        changed.notify_all();
        while state.released == 0 {
            state = changed.wait(state).unwrap();
        }
        state.released -= 1;
        state.waiting -= 1;
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 || self.state.0.lock().unwrap().left {
                return Ok(());
            }
            let mut words = line.split_whitespace();
            let (method, path) = (words.next().unwrap_or("").to_owned(), words.next().unwrap_or("").to_owned());
            let (mut length, mut chunked) = (0, false);
            loop {
                let mut header = String::new();
                reader.read_line(&mut header)?;
                let header = header.trim().to_ascii_lowercase();
                if header.is_empty() {
                    break;
                }
                if let Some(value) = header.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap_or(0);
                }
                chunked |= header.starts_with("transfer-encoding:") && header.contains("chunked");
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            if chunked {
                body = read_chunks(&mut reader)?;
            }
            let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let path = path.split('?').next().unwrap_or_default();
            if method == "HEAD" {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
                continue;
            }
            if self.answer(&mut stream, path, &body)? {
                return Ok(());
            }
        }
    }

    /// `true`: the connection is used up.
    fn answer(&self, stream: &mut TcpStream, path: &str, body: &Value) -> std::io::Result<bool> {
        let stops = path.contains("stream") || body["stream"] == json!(true);
        if path.ends_with("/responses") {
            self.responses(stream, body)?;
        } else if path.ends_with("/chat/completions") {
            self.completions(stream, body)?;
        } else if path.ends_with("/messages") && stops {
            self.messages(stream, body)?;
        } else if path.ends_with("/messages") {
            let reply = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"],
                "content": [{"type": "text", "text": "title"}], "stop_reason": "end_turn", "stop_sequence": null,
                "usage": {"input_tokens": 1, "output_tokens": 1}});
            return plain(stream, &reply).map(|()| false);
        } else if path.contains("enerateContent") {
            return self.gemini(stream, body, stops);
        } else if path == "/chat-stream" {
            self.augment(stream, body)?;
        } else {
            let reply = match path {
                "/get-models" => json!({"default_model": "mock-model", "languages": [], "feature_flags": {},
                    "models": [{"name": "mock-model", "suggested_prefix_char_count": 100, "suggested_suffix_char_count": 100}],
                    "user_tier": "PROFESSIONAL_TIER", "user": {"id": "u1", "email": "a@b.c"}}),
                "/agents/list-remote-tools" => json!({"tools": []}),
                "/find-missing" => json!({"unknown_memory_names": [], "nonindexed_blob_names": []}),
                "/batch-upload" => json!({"blob_names": []}),
                "/checkpoint-blobs" => json!({"new_checkpoint_id": "c1"}),
                _ if path.starts_with("/settings/") => json!({"mcp_configs": [], "configs": []}),
                _ if path.contains("count") => json!({"input_tokens": 10, "totalTokens": 10}),
                _ if path.contains("models") => {
                    json!({"object": "list", "data": [{"id": "mock-model", "object": "model"}], "models": []})
                }
                _ => json!({}),
            };
            return plain(stream, &reply).map(|()| false);
        }
        Ok(true)
    }

    fn say(&self, pieces: &[String], mut tell: impl FnMut(&str) -> std::io::Result<()>) -> std::io::Result<()> {
        for (at, piece) in pieces.iter().enumerate() {
            if at == pieces.len() / 2 && pieces.concat().contains("GATE") {
                self.gate();
            }
            if piece == TICK {
                self.pause();
                tell(&format!("{} ", micros()))?;
                continue;
            }
            tell(piece)?;
        }
        Ok(())
    }

    fn responses(&self, stream: &mut TcpStream, body: &Value) -> std::io::Result<()> {
        let (mut users, mut tool) = (Vec::new(), false);
        for item in body["input"].as_array().into_iter().flatten() {
            if item["role"] == "user" {
                let text = text_of(&item["content"]);
                let own = ["<environment_context", "# AGENTS.md", "<user_instructions", "<permissions"];
                if !own.iter().any(|begin| text.trim_start().starts_with(begin)) {
                    users.push(text);
                    tool = false;
                }
            }
            tool |= item["type"].as_str().is_some_and(|kind| kind.ends_with("_call_output"));
        }
        begin(stream)?;
        let mut event = |value: Value| named(stream, value["type"].as_str().unwrap_or_default(), &value);
        event(
            json!({"type": "response.created", "response": {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}}),
        )?;
        let output = match plan_unless(is_beside(body), &users, tool) {
            Plan::Hang => {
                hang(stream);
                return Ok(());
            }
            Plan::Tool(command) => {
                let arguments = json!({"cmd": command}).to_string();
                let item = json!({"type": "function_call", "id": "fc_1", "call_id": format!("call_{}", users.len()),
                    "name": "exec_command", "arguments": arguments, "status": "completed"});
                event(json!({"type": "response.output_item.done", "output_index": 0, "item": item}))?;
                item
            }
            Plan::Text(pieces) => {
                let empty =
                    json!({"type": "message", "id": "m1", "role": "assistant", "status": "in_progress", "content": []});
                event(json!({"type": "response.output_item.added", "output_index": 0, "item": empty}))?;
                event(
                    json!({"type": "response.content_part.added", "item_id": "m1", "output_index": 0, "content_index": 0,
                    "part": {"type": "output_text", "text": ""}}),
                )?;
                self.say(&pieces, |piece| {
                    event(json!({"type": "response.output_text.delta", "item_id": "m1", "output_index": 0,
                        "content_index": 0, "delta": piece}))
                })?;
                let text = pieces.concat();
                event(
                    json!({"type": "response.output_text.done", "item_id": "m1", "output_index": 0, "content_index": 0, "text": text}),
                )?;
                let item = json!({"type": "message", "id": "m1", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": text, "annotations": []}]});
                event(json!({"type": "response.output_item.done", "output_index": 0, "item": item}))?;
                item
            }
        };
        event(
            json!({"type": "response.completed", "response": {"id": "resp_1", "object": "response", "status": "completed",
            "output": [output], "usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15}}}),
        )
    }

    fn completions(&self, stream: &mut TcpStream, body: &Value) -> std::io::Result<()> {
        let (mut users, mut tool) = (Vec::new(), false);
        for message in body["messages"].as_array().into_iter().flatten() {
            match message["role"].as_str() {
                Some("user") => {
                    users.push(text_of(&message["content"]));
                    tool = false;
                }
                Some("tool") => tool = true,
                _ => {}
            }
        }
        begin(stream)?;
        let mut event = |delta: Value, end: Option<&str>| {
            data(
                stream,
                &json!({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "mock-model",
                "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}),
            )
        };
        event(json!({"role": "assistant", "content": ""}), None)?;
        match plan_unless(is_beside(body), &users, tool) {
            Plan::Hang => {
                hang(stream);
                return Ok(());
            }
            Plan::Tool(command) => {
                let arguments = json!({"command": command, "description": "mock"}).to_string();
                event(
                    json!({"tool_calls": [{"index": 0, "id": format!("call_{}", users.len()), "type": "function",
                    "function": {"name": "bash", "arguments": arguments}}]}),
                    None,
                )?;
                event(json!({}), Some("tool_calls"))?;
            }
            Plan::Text(pieces) => {
                self.say(&pieces, |piece| event(json!({"content": piece}), None))?;
                event(json!({}), Some("stop"))?;
            }
        }
        data(
            stream,
            &json!({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "mock-model", "choices": [],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}),
        )?;
        stream.write_all(b"data: [DONE]\n\n")
    }

    fn messages(&self, stream: &mut TcpStream, body: &Value) -> std::io::Result<()> {
        let (mut users, mut tool) = (Vec::new(), false);
        for message in body["messages"].as_array().into_iter().flatten().filter(|message| message["role"] == "user") {
            let blocks = message["content"].as_array();
            if blocks.is_some_and(|blocks| blocks.iter().any(|block| block["type"] == "tool_result")) {
                tool = true;
                continue;
            }
            let text = clean(&text_of(&message["content"]));
            if !text.is_empty() {
                users.push(text);
                tool = false;
            }
        }
        let has_bash = body["tools"].as_array().is_some_and(|tools| tools.iter().any(|tool| tool["name"] == "Bash"));
        begin(stream)?;
        let mut event = |value: Value| named(stream, value["type"].as_str().unwrap_or_default(), &value);
        event(json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
            "model": body["model"], "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": 10, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}}}))?;
        let stop = match plan_unless(!has_bash, &users, tool) {
            Plan::Hang => {
                hang(stream);
                return Ok(());
            }
            Plan::Tool(command) => {
                let input = json!({"command": command, "description": "mock"}).to_string();
                event(json!({"type": "content_block_start", "index": 0, "content_block":
                    {"type": "tool_use", "id": format!("toolu_{}", users.len()), "name": "Bash", "input": {}}}))?;
                event(
                    json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": input}}),
                )?;
                "tool_use"
            }
            Plan::Text(pieces) => {
                event(
                    json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                )?;
                self.say(&pieces, |piece| {
                    event(json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}))
                })?;
                "end_turn"
            }
        };
        event(json!({"type": "content_block_stop", "index": 0}))?;
        event(
            json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null}, "usage": {"output_tokens": 5}}),
        )?;
        event(json!({"type": "message_stop"}))
    }

    fn gemini(&self, stream: &mut TcpStream, body: &Value, streams: bool) -> std::io::Result<bool> {
        let (mut users, mut tool) = (Vec::new(), false);
        for message in body["contents"].as_array().into_iter().flatten().filter(|message| message["role"] == "user") {
            let parts = message["parts"].as_array();
            if parts.is_some_and(|parts| parts.iter().any(|part| !part["functionResponse"].is_null())) {
                tool = true;
                continue;
            }
            let text = clean(&text_of(&message["parts"]));
            if !text.is_empty() {
                users.push(text);
                tool = false;
            }
        }
        let candidate = |parts: Value, end: Option<&str>| {
            let mut one = json!({"content": {"role": "model", "parts": parts}, "index": 0});
            if let Some(end) = end {
                one["finishReason"] = json!(end);
            }
            json!({"candidates": [one], "modelVersion": "mock",
                "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}})
        };
        let wants = &body["generationConfig"];
        if !wants["responseJsonSchema"].is_null() || wants["responseMimeType"] == "application/json" {
            let choice = json!({"reasoning": "mock", "next_speaker": "user", "model_choice": "flash",
                "complexity_reasoning": "x", "complexity_score": 10})
            .to_string();
            let reply = candidate(json!([{"text": choice}]), Some("STOP"));
            if !streams {
                return plain(stream, &reply).map(|()| false);
            }
            begin(stream)?;
            return data(stream, &reply).map(|()| true);
        }
        if !streams {
            return plain(stream, &candidate(json!([{"text": "ok"}]), Some("STOP"))).map(|()| false);
        }
        begin(stream)?;
        match plan(&users, tool) {
            Plan::Hang => hang(stream),
            Plan::Tool(command) => {
                let call = json!({"name": "run_shell_command", "args": {"command": command, "description": "mock"}});
                data(stream, &candidate(json!([{"functionCall": call}]), Some("STOP")))?;
            }
            Plan::Text(pieces) => {
                self.say(&pieces, |piece| data(stream, &candidate(json!([{"text": piece}]), None)))?;
                data(stream, &candidate(json!([{"text": ""}]), Some("STOP")))?;
            }
        }
        Ok(true)
    }

    fn augment(&self, stream: &mut TcpStream, body: &Value) -> std::io::Result<()> {
        let nodes = body["nodes"].as_array().cloned().unwrap_or_default();
        let said = |node: &Value| node["text_node"]["content"].as_str().unwrap_or_default().to_owned();
        let text = nodes.iter().map(said).collect::<String>() + body["message"].as_str().unwrap_or_default();
        let tool = nodes.iter().any(|node| !node["tool_result_node"].is_null());
        let history = body["chat_history"].as_array().into_iter().flatten();
        let mut users: Vec<String> = history
            .filter(|turn| {
                let nodes = turn["request_nodes"].as_array().into_iter().flatten();
                turn["request_message"].as_str().is_some_and(|text| !text.is_empty())
                    || nodes.into_iter().any(|node| !said(node).is_empty())
            })
            .map(|_| "earlier".to_owned())
            .collect();
        users.push(text);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n")?;
        let mut tell = |value: &Value| stream.write_all(format!("{value}\n").as_bytes());
        match plan(&users, tool) {
            Plan::Hang => hang(stream),
            Plan::Tool(command) => {
                let input = json!({"command": command, "wait": true, "max_wait_seconds": 10}).to_string();
                let call =
                    |input: &str| json!({"tool_use_id": "tu_1", "tool_name": "launch-process", "input_json": input});
                tell(&json!({"text": "", "nodes": [{"id": 1, "type": 7, "content": "", "tool_use": call("")}]}))?;
                tell(
                    &json!({"text": "", "stop_reason": 3, "nodes": [{"id": 2, "type": 5, "content": "", "tool_use": call(&input)}]}),
                )?;
            }
            Plan::Text(pieces) => {
                self.say(&pieces, |piece| {
                    tell(&json!({"text": piece, "nodes": [{"id": 1, "type": 0, "content": piece}]}))
                })?;
                tell(
                    &json!({"text": "", "stop_reason": 1, "nodes": [{"id": 3, "type": 2, "content": pieces.concat()}]}),
                )?;
            }
        }
        Ok(())
    }
}

/// Until the other side gives up.
fn hang(stream: &mut TcpStream) {
    let _ = stream.read(&mut [0; 1]);
}

/// Whether this is asked beside a conversation, as for its title: it has no tools then.
fn is_beside(body: &Value) -> bool {
    body["tools"].as_array().is_none_or(Vec::is_empty)
}

/// What is asked beside a conversation has the words in it that steer us, and is not to be steered by them.
fn plan_unless(beside: bool, users: &[String], tool_ran: bool) -> Plan {
    if beside { Plan::Text(vec!["A title".to_owned()]) } else { plan(users, tool_ran) }
}

fn plan(users: &[String], tool_ran: bool) -> Plan {
    let users: Vec<_> = users.iter().map(|text| clean(text)).filter(|text| !text.is_empty()).collect();
    let last = users.last().cloned().unwrap_or_default();
    if last.contains("HANG") {
        return Plan::Hang;
    }
    if let Some((_, command)) = last.split_once("RUN:").filter(|_| !tool_ran) {
        return Plan::Tool(command.split(";;").next().unwrap_or_default().trim().to_owned());
    }
    let tail: String = last.chars().rev().take(60).collect::<Vec<_>>().into_iter().rev().collect();
    let mut text = format!("MOCK-REPLY turn={} last='{tail}'", users.len());
    if last.contains("MD") {
        text += MARKDOWN;
    }
    if last.contains("FLOOD") {
        text.extend((0..2000).map(|number| format!("\nline {number} of a flood")));
    }
    if last.contains("CLOCK") {
        return Plan::Text(vec![TICK.to_owned(); TICKS]);
    }
    let letters: Vec<char> = text.chars().collect();
    Plan::Text(letters.chunks(7).map(|piece| piece.iter().collect()).collect())
}

fn read_chunks(reader: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut size = String::new();
        reader.read_line(&mut size)?;
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let mut piece = vec![0; size + 2];
        reader.read_exact(&mut piece)?;
        if size == 0 {
            return Ok(body);
        }
        body.extend_from_slice(&piece[..size]);
    }
}

/// Without what agents put around a message.
fn clean(text: &str) -> String {
    let mut text = text.to_owned();
    for name in ["system-reminder", "environment_context", "session_context"] {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        while let Some((before, rest)) = text.split_once(&open) {
            text = before.to_owned() + rest.split_once(&close).map_or("", |(_, after)| after);
        }
    }
    // One that was interrupted is sent again with the next.
    let behind = text.rsplit("[Request interrupted by user]").next().unwrap_or_default().trim();
    if behind.is_empty() { text.trim().to_owned() } else { behind.to_owned() }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(text_of).collect::<Vec<_>>().join(" "),
        Value::Object(one) => one.get("text").or(one.get("content")).map(text_of).unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

fn plain(stream: &mut TcpStream, value: &Value) -> std::io::Result<()> {
    let body = value.to_string();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes())
}

fn begin(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
}

fn data(stream: &mut TcpStream, value: &Value) -> std::io::Result<()> {
    stream.write_all(format!("data: {value}\n\n").as_bytes())
}

fn named(stream: &mut TcpStream, name: &str, value: &Value) -> std::io::Result<()> {
    stream.write_all(format!("event: {name}\ndata: {value}\n\n").as_bytes())
}
