//! The events of a command as text/event-stream, and whether they tell the same as its record and its output.

use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    pub(super) seq: u64,
    pub(super) name: String,
    pub(super) data: Value,
}

/// The whole events in a text; one that was cut off is not among them, nor one without a number (`error`).
pub(super) fn parse(text: &[u8]) -> Vec<Event> {
    let text = String::from_utf8_lossy(text);
    let complete = text.rfind("\n\n").map_or("", |end| text.get(..end + 2).unwrap_or_default());
    complete.split("\n\n").filter_map(parse_one).collect()
}

fn parse_one(block: &str) -> Option<Event> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let seq = field("id")?.parse().ok()?;
    let data = serde_json::from_str(field("data")?).ok()?;
    Some(Event { seq, name: field("event")?.to_owned(), data })
}

pub(super) fn is_last(event: &Event) -> bool {
    matches!(event.name.as_str(), "exit" | "failed")
}

/// Whether events, record and raw output agree.
pub(super) fn check(events: &[Event], record: &Value, stdout: &[u8], stderr: &[u8], late: bool) -> Vec<String> {
    let mut violations = Vec::new();
    let numbers: Vec<u64> = events.iter().map(|event| event.seq).collect();
    let wanted: Vec<u64> = (1..=events.len() as u64).collect();
    if numbers != wanted {
        violations.push(format!("events are numbered {numbers:?}"));
    }
    for (name, output) in [("stdout", stdout), ("stderr", stderr)] {
        let mut told = Vec::new();
        for event in events.iter().filter(|event| event.name == name) {
            if event.data["offset"] != told.len() {
                violations.push(format!(
                    "event {} of {name} has offset {}, not {}",
                    event.seq,
                    event.data["offset"],
                    told.len()
                ));
            }
            match bytes_of(&event.data) {
                Some(bytes) => told.extend(bytes),
                None => violations.push(format!("event {} of {name} can't be read", event.seq)),
            }
        }
        // What background children wrote later is told apart, and counted.
        if told != output && !(late && output.starts_with(&told)) {
            violations.push(format!("events tell {} bytes of {name}, the output has {}", told.len(), output.len()));
        }
    }
    violations.extend(check_ends(events, record));
    violations
}

fn check_ends(events: &[Event], record: &Value) -> Vec<String> {
    let mut violations = Vec::new();
    let failed = record["status"] == "failed";
    let last = if failed { "failed" } else { "exit" };
    let ends = events.iter().filter(|event| is_last(event)).count();
    match events.last() {
        Some(event) if event.name == last && ends == 1 => {
            if !failed {
                violations.extend(differences("the last event", &event.data, "the record", record));
            }
        }
        other => {
            let status = &record["status"];
            let name = other.map(|event| event.name.as_str());
            violations.push(format!("{ends} events tell the end and the last is {name:?}, with status {status}"));
        }
    }
    let starts = events.iter().filter(|event| event.name == "start").count();
    let never = failed || record["started_at"].is_null();
    if starts != usize::from(!never) {
        violations.push(format!("{starts} events tell the start, with started_at {}", record["started_at"]));
    }
    violations
}

/// The bytes of a chunk.
fn bytes_of(data: &Value) -> Option<Vec<u8>> {
    let text = data["data"].as_str()?;
    match data["encoding"].as_str() {
        Some("base64") => decode_base64(text),
        Some(_) => None,
        None => Some(text.as_bytes().to_vec()),
    }
}

fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push(u8::try_from((bits >> count) & 0xff).ok()?);
        }
    }
    Some(out)
}

/// Fields in which two tellings of a record differ, but for the output that only answers have.
pub(super) fn differences(one_is: &str, one: &Value, other_is: &str, other: &Value) -> Vec<String> {
    const ONLY_IN_ANSWERS: [&str; 3] = ["stdout", "stderr", "truncated"];
    let names = |value: &Value| -> Vec<String> {
        value.as_object().map(|fields| fields.keys().cloned().collect()).unwrap_or_default()
    };
    let mut all: Vec<String> = names(one).into_iter().chain(names(other)).collect();
    all.sort_unstable();
    all.dedup();
    all.retain(|name| !ONLY_IN_ANSWERS.contains(&name.as_str()));
    let differ = |name: &&String| one[name.as_str()] != other[name.as_str()];
    let tell =
        |name: &String| format!("{one_is} has {name} {}, {other_is} {}", one[name.as_str()], other[name.as_str()]);
    all.iter().filter(differ).map(tell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TEXT: &[u8] = b": hello\n\nid: 1\nevent: start\ndata: {\"seq\":1}\n\nid: 2\nevent: stdout\ndata: {\"seq\":2,\"offset\":0,\"data\":\"/w==\",\"encoding\":\"base64\"}\n\nid: 3\nevent: exit\ndata: {\"status\":\"exited\",\"started_at\":\"x\"}\n\nid: 4\nev";

    #[test]
    fn events_are_read_and_compared_with_record_and_output() {
        let events = parse(TEXT);
        assert_eq!(events.len(), 3);
        let record = json!({ "status": "exited", "started_at": "x" });
        assert_eq!(check(&events, &record, &[255], b"", false), Vec::<String>::new());
        assert_eq!(check(&events, &record, b"a", b"", false).len(), 1);
        assert_eq!(check(&events, &record, &[255], b"a", false).len(), 1);
        assert!(!check(&events[..2], &record, &[255], b"", false).is_empty());
        assert!(!check(&events[1..], &record, &[255], b"", false).is_empty());
        let other = json!({ "status": "lost", "started_at": "x" });
        assert_eq!(check(&events, &other, &[255], b"", false).len(), 1);
    }

    #[test]
    fn base64_is_read_with_and_without_padding() {
        assert_eq!(decode_base64("aGVsbG8=").unwrap(), b"hello");
        assert_eq!(decode_base64("aGVsbG8h").unwrap(), b"hello!");
        assert!(decode_base64("a*").is_none());
    }
}
