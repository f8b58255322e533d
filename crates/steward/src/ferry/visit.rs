//! One connection to a holder: a line in, a line out.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use stead_model::ferry;

/// A piece of input in base64, with what is around it.
const LONGEST_REQUEST: usize = 256 << 10;

/// A visitor that sends no request, or doesn't hear its answer, is dropped after this.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Visit {
    pub(super) stream: UnixStream,
    line: Vec<u8>,
    pub(super) request: Option<Request>,
    /// When it gets an answer, whatever there is.
    pub(super) deadline: Instant,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// Whether somebody is there.
    Hello,
    Take {
        from: u64,
        most: usize,
    },
    Put {
        at: u64,
        bytes: Vec<u8>,
        end: bool,
    },
    Close,
}

/// How far a request has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Nothing,
    Request,
    /// It went away, or speaks nonsense.
    Lost,
}

impl Visit {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, line: Vec::new(), request: None, deadline: Instant::now() + PATIENCE })
    }

    /// Reads what has come.
    pub(super) fn hear(&mut self) -> Heard {
        let mut buffer = [0; 16 << 10];
        loop {
            match self.stream.read(&mut buffer) {
                // It shuts down its side after the request; with one it waits for its answer.
                Ok(0) if self.request.is_some() => return Heard::Nothing,
                Ok(0) => return Heard::Lost,
                Ok(count) => self.line.extend_from_slice(buffer.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Heard::Nothing,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Heard::Lost,
            }
            if self.line.ends_with(b"\n") {
                let Some((request, wait)) = std::str::from_utf8(&self.line).ok().and_then(parse) else {
                    return Heard::Lost;
                };
                self.deadline = Instant::now() + wait;
                self.request = Some(request);
                self.line = Vec::new();
                return Heard::Request;
            }
            if self.line.len() > LONGEST_REQUEST {
                return Heard::Lost;
            }
        }
    }

    /// Says the answer; whoever isn't there to hear it asks again.
    pub(super) fn answer(mut self, text: &str) {
        let _ = self
            .stream
            .set_nonblocking(false)
            .and_then(|()| self.stream.set_write_timeout(Some(PATIENCE)))
            .and_then(|()| self.stream.write_all(text.as_bytes()));
    }
}

fn parse(line: &str) -> Option<(Request, Duration)> {
    let line = line.strip_suffix('\n')?;
    let words: Vec<&str> = line.split(' ').collect();
    let milliseconds = |word: &str| word.parse().ok().map(Duration::from_millis);
    Some(match words.as_slice() {
        ["hello"] => (Request::Hello, Duration::ZERO),
        ["close"] => (Request::Close, Duration::ZERO),
        ["take", from, wait, most] => {
            let most = most.parse().ok()?;
            (Request::Take { from: from.parse().ok()?, most }, milliseconds(wait)?)
        }
        ["put", at, wait, end @ ("end" | "more"), text] => {
            let bytes = ferry::decode(text)?;
            (Request::Put { at: at.parse().ok()?, bytes, end: *end == "end" }, milliseconds(wait)?)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_meant_or_not_at_all() {
        let wait = Duration::from_millis(50);
        assert_eq!(parse("take 3 50 9\n"), Some((Request::Take { from: 3, most: 9 }, wait)));
        let put = Request::Put { at: 1, bytes: b"hi".to_vec(), end: true };
        assert_eq!(parse("put 1 50 end aGk=\n"), Some((put, wait)));
        for bad in ["", "\n", "take 3 50\n", "take -1 50 9\n", "put 1 50 maybe aGk=\n", "put 1 50 end a\n", "hello"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
