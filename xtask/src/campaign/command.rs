//! One command: sent until it is taken, heard or waited for to its end, cancelled, and looked at from every side.

use super::driver::{AGAIN, Hung, PATIENCE, insist, rest};
use super::events::{self, Event};
use super::plan::{IdBy, Planned, Way};
use super::wire::{Answer, Wire};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A command as it was told when it was over.
#[derive(Debug, Clone)]
pub(super) struct Observation {
    pub(super) planned: Planned,
    /// Of our choice or the server's.
    pub(super) id: String,
    pub(super) text: String,
    pub(super) sent: Instant,
    /// When the server said that it has it; `None`: it said nothing before the end.
    pub(super) acknowledged: Option<Instant>,
    pub(super) ended: Instant,
    pub(super) record: Value,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) events: Vec<Event>,
    /// What the first call was answered with, if it waited.
    pub(super) answer: Option<Value>,
    /// What it heard while the command ran.
    pub(super) heard: Option<Vec<Event>>,
}

/// What sending a command led to.
#[derive(Debug)]
pub(super) struct Told {
    id: String,
    acknowledged: Option<Instant>,
    answer: Option<Value>,
    heard: Option<Vec<Event>>,
}

/// Sends a command, as often as it takes until the server has it, and waits for its end if its way is to wait. One without
/// an id of ours is sent once: `None` if there is no answer to that. `taken` becomes true when the server says that it has it.
pub(super) fn send(
    wire: &Wire,
    thread: &str,
    terminal: Option<&str>,
    planned: &Planned,
    text: &str,
    taken: &AtomicBool,
) -> Result<Option<Told>, Hung> {
    let path = format!("/api/threads/{thread}/exec");
    let mut body = json!({ "command": text, "create": false });
    if let Some(terminal) = terminal {
        body["terminal"] = json!(terminal);
    }
    if let Some(timeout) = planned.timeout_ms {
        body["timeout_ms"] = json!(timeout);
    }
    if planned.way == Way::Background {
        body["background"] = json!(true);
    }
    if planned.id_by == IdBy::Client {
        body["id"] = json!(planned.id);
    }
    if planned.way == Way::Events {
        let (heard, acknowledged) = listen(wire, planned, &path, &body, taken)?;
        let heard = Some(heard);
        return Ok(Some(Told { id: planned.id.clone(), acknowledged: Some(acknowledged), answer: None, heard }));
    }
    let answer = match planned.id_by {
        IdBy::Client => insist(&planned.id, || wire.post(&path, &body))?,
        IdBy::Server => {
            let Some(answer) = wire.post(&path, &body).filter(|answer| answer.whole && !answer.is_retryable()) else {
                return Ok(None);
            };
            answer
        }
    };
    let record = answer.json();
    let is_taken = match planned.way {
        Way::Answer | Way::Events => answer.status == 200,
        Way::Background => matches!(answer.status, 200 | 202),
    };
    let id = record["id"].as_str().filter(|_| is_taken).map(str::to_owned);
    let id = id.ok_or_else(|| Hung(format!("{} was refused: {}", planned.id, answer.text())))?;
    taken.store(true, Ordering::Release);
    let waited = planned.way == Way::Answer;
    Ok(Some(Told { id, acknowledged: (!waited).then(Instant::now), answer: waited.then_some(record), heard: None }))
}

/// Hears a command to its end, over as many connections as it takes, and says when the first event came.
fn listen(
    wire: &Wire,
    planned: &Planned,
    exec: &str,
    body: &Value,
    taken: &AtomicBool,
) -> Result<(Vec<Event>, Instant), Hung> {
    let begun = Instant::now();
    let mut heard: Vec<Event> = Vec::new();
    let mut refused = String::new();
    let mut first = None;
    while begun.elapsed() < PATIENCE {
        let after = heard.last().map_or(0, |event| event.seq);
        let answer = if after == 0 {
            wire.call("POST", exec, "text/event-stream", Some(body))
        } else {
            let path = format!("/api/commands/{}/events?after={after}", planned.id);
            wire.call("GET", &path, "text/event-stream", None)
        };
        if let Some(answer) = answer {
            if answer.status == 200 {
                heard.extend(events::parse(&answer.body));
            } else if answer.is_retryable() {
                refused = answer.text();
            } else {
                return Err(Hung(format!("{} was refused: {}", planned.id, answer.text())));
            }
        }
        if !heard.is_empty() {
            taken.store(true, Ordering::Release);
            first.get_or_insert_with(Instant::now);
        }
        if heard.last().is_some_and(events::is_last) {
            return Ok((heard, first.unwrap_or(begun)));
        }
        rest(AGAIN);
    }
    Err(Hung(format!("{}: its events don't end; {} were heard; {refused}", planned.id, heard.len())))
}

/// Waits for the end of a command, then asks for everything that can be asked of it.
pub(super) fn observe(
    wire: &Wire,
    planned: &Planned,
    text: String,
    sent: Instant,
    told: Told,
) -> Result<Observation, Hung> {
    let begun = Instant::now();
    loop {
        let record = record(wire, &told.id)?;
        if is_final(&record) {
            break;
        }
        if begun.elapsed() > PATIENCE {
            return Err(Hung(format!("{} doesn't end: {planned:?}, {record}", planned.id)));
        }
        rest(AGAIN);
    }
    let ended = Instant::now();
    let seen = look_closely(wire, &told.id, sent)?;
    let Told { id, acknowledged, answer, heard } = told;
    let Seen { record, stdout, stderr, events } = seen;
    let planned = planned.clone();
    Ok(Observation { planned, id, text, sent, acknowledged, ended, record, stdout, stderr, events, answer, heard })
}

fn record(wire: &Wire, id: &str) -> Result<Value, Hung> {
    let answer = insist(id, || wire.get(&format!("/api/commands/{id}")))?;
    if answer.status == 200 { Ok(answer.json()) } else { Err(Hung(format!("{id} has no record: {}", answer.text()))) }
}

/// Everything that the server tells of a command, of one moment.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) record: Value,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) events: Vec<Event>,
}

/// Everything that the server tells of a command. Read again until record and output are of one moment: children that
/// outlived a killed shell may still write.
pub(super) fn look_closely(wire: &Wire, id: &str, sent: Instant) -> Result<Seen, Hung> {
    let path = format!("/api/commands/{id}");
    let read = |what: &str, accept: &str| {
        let answer = insist(what, || wire.call("GET", &format!("{path}{what}"), accept, None))?;
        if answer.status == 200 { Ok(answer) } else { Err(Hung(format!("{path}{what}: {}", answer.text()))) }
    };
    loop {
        let record = read("", "application/json")?.json();
        let with_record = |Hung(why): Hung| Hung(format!("{why}; the record is {record}"));
        let stdout = read("/output/stdout", "*/*").map_err(with_record)?.body;
        let stderr = read("/output/stderr", "*/*").map_err(with_record)?.body;
        let events = read("/events", "text/event-stream").map_err(with_record)?;
        let again = read("", "application/json")?.json();
        let events = events::parse(&events.body);
        if again == record && events.last().is_some_and(events::is_last) {
            return Ok(Seen { record, stdout, stderr, events });
        }
        if sent.elapsed() > PATIENCE * 2 {
            return Err(Hung(format!("{path}: what is told of it doesn't come to rest: {record}, then {again}")));
        }
        rest(AGAIN);
    }
}

fn is_final(record: &Value) -> bool {
    !matches!(record["status"].as_str(), Some("queued" | "running") | None)
}

/// Whether a pause is planned while a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MayBePaused {
    Yes,
    No,
}

/// Asks for a cancellation until the server has heard it. Gives what it said if that is no record.
pub(super) fn cancel(wire: &Wire, id: &str, at: Instant, taken: &AtomicBool, paused: MayBePaused) -> Option<String> {
    rest(at.saturating_duration_since(Instant::now()));
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let was_taken = taken.load(Ordering::Acquire);
        let answer = wire.post(&format!("/api/commands/{id}/cancel"), &json!({}));
        // Before the server has the command it is 404, and while its instance is paused, `paused`.
        let is_later = |answer: &Answer| {
            answer.status == 404 && !was_taken
                || answer.json()["error"]["code"] == "paused" && paused == MayBePaused::Yes
        };
        if let Some(answer) = answer.filter(|answer| answer.whole && !is_later(answer) && !answer.is_retryable()) {
            return (answer.status != 200).then(|| format!("{id}: its cancellation was refused: {}", answer.text()));
        }
        rest(AGAIN);
    }
    Some(format!("{id}: its cancellation was not heard in {PATIENCE:?}"))
}
