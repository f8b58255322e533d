//! JSON, a value a line.

use serde_json::Value;

/// One message as a line.
pub(crate) fn line(value: &Value) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// The string at a path, if there is one.
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    value.pointer(path).and_then(Value::as_str)
}

/// What is at a path; nothing is null.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    value.pointer(path).unwrap_or(&Value::Null)
}

pub(crate) fn number(value: &Value, path: &str) -> Option<u64> {
    value.pointer(path).and_then(Value::as_u64)
}

/// The text of what may be a string, or blocks of content.
pub(crate) fn content_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().map(content_text).collect(),
        Value::Object(block) => match (block.get("text"), block.get("content")) {
            (Some(text), _) => text.as_str().unwrap_or_default().to_owned(),
            (None, Some(content)) => content_text(content),
            (None, None) => String::new(),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

/// At most so many characters of a text that is for people.
pub(crate) fn brief(text: &str, most: usize) -> String {
    let mut brief: String = text.chars().take(most).collect();
    if text.chars().nth(most).is_some() {
        brief.push('…');
    }
    brief
}

/// A line that is an object; anything else an agent prints means nothing.
pub(crate) fn object(line: &[u8]) -> Option<Value> {
    serde_json::from_slice::<Value>(line).ok().filter(Value::is_object)
}
