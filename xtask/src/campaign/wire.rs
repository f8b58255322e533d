//! As much of an HTTP/1.1 client as it takes: one request over the server's socket, read to its end. A server that was
//! killed meanwhile is an answer that is not whole.

use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(90);

#[derive(Debug, Clone)]
pub(super) struct Wire {
    pub(super) socket: PathBuf,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    /// It came to its end.
    pub(super) whole: bool,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub(super) fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        format!("{} {}", self.status, text.chars().take(600).collect::<String>())
    }

    /// A server that says so of itself may answer better later.
    pub(super) fn is_retryable(&self) -> bool {
        self.json()["error"]["retryable"] == true
    }
}

impl Wire {
    /// `None`: nobody is there, or nobody any more before the head of an answer had come.
    pub(super) fn call(&self, method: &str, path: &str, accept: &str, body: Option<&Value>) -> Option<Answer> {
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.set_write_timeout(Some(PATIENCE)).ok()?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let json = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nConnection: close\r\n{json}Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).ok()?;
        let mut bytes = Vec::new();
        // What came before a break counts: it is judged by its length.
        let _ = stream.read_to_end(&mut bytes);
        parse(&bytes)
    }

    pub(super) fn get(&self, path: &str) -> Option<Answer> {
        self.call("GET", path, "application/json", None)
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> Option<Answer> {
        self.call("POST", path, "application/json", Some(body))
    }
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(bytes.get(..end)?).to_ascii_lowercase();
    let rest = bytes.get(end + 4..)?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim));
    if header("transfer-encoding") == Some("chunked") {
        let (body, whole) = unchunk(rest);
        return Some(Answer { status, body, whole });
    }
    let length = header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    Some(Answer { status, body: rest.to_vec(), whole: rest.len() == length })
}

/// The chunks put together, and whether the last one was there.
fn unchunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(end) = rest.windows(2).position(|window| window == b"\r\n") else { return (body, false) };
        let length = rest.get(..end).and_then(|line| std::str::from_utf8(line).ok());
        let Some(length) = length.and_then(|line| usize::from_str_radix(line.trim(), 16).ok()) else {
            return (body, false);
        };
        if length == 0 {
            return (body, true);
        }
        let from = end + 2;
        let Some(chunk) = rest.get(from..from + length) else {
            body.extend_from_slice(rest.get(from..).unwrap_or_default());
            return (body, false);
        };
        body.extend_from_slice(chunk);
        rest = rest.get(from + length + 2..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_was_cut_off_is_not_whole() {
        let all = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        let answer = parse(all).unwrap();
        assert_eq!((answer.status, answer.body.as_slice(), answer.whole), (200, b"abcde".as_slice(), true));
        let cut = parse(&all[..all.len() - 5]).unwrap();
        assert_eq!((cut.body.as_slice(), cut.whole), (b"abcde".as_slice(), false));
        assert!(parse(&all[..20]).is_none());
        let sized = parse(b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nabc").unwrap();
        assert_eq!((sized.status, sized.whole), (404, false));
    }
}
