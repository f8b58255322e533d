//! Server-sent events, read from bytes that come in any pieces.

/// One event. The stream's comments, which only keep the connection open, are not told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Event {
    /// Its sequence number, if its id is one.
    pub(crate) seq: Option<u64>,
    pub(crate) name: String,
    pub(crate) data: String,
}

/// How much of one line is taken: a chunk of output in base64 with room to spare. More is no event of ours.
const LONGEST_LINE: usize = 16 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SseError {
    #[error("the server sent a line that is too long for an event")]
    TooLong,
    #[error("the server sent an event that is not UTF-8")]
    NotText,
}

#[derive(Debug, Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    /// The last byte was a carriage return, which ends a line alone and together with a line feed.
    after_return: bool,
    seq: Option<u64>,
    name: String,
    data: Option<String>,
}

impl Parser {
    /// Takes the next bytes and gives the events that they complete. What is incomplete at the end of a stream is no
    /// event: it is asked for again.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Result<Vec<Event>, SseError> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            if self.after_return {
                self.after_return = false;
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
                continue;
            }
            let end = bytes.iter().position(|&byte| byte == b'\n' || byte == b'\r');
            let (piece, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            self.line.extend_from_slice(piece);
            if self.line.len() > LONGEST_LINE {
                return Err(SseError::TooLong);
            }
            let Some((ending, rest)) = rest.split_first() else { break };
            self.after_return = *ending == b'\r';
            bytes = rest;
            let line = std::mem::take(&mut self.line);
            events.extend(self.line(&line)?);
        }
        Ok(events)
    }

    fn line(&mut self, line: &[u8]) -> Result<Option<Event>, SseError> {
        let line = std::str::from_utf8(line).map_err(|_| SseError::NotText)?;
        if line.is_empty() {
            let (seq, name) = (self.seq.take(), std::mem::take(&mut self.name));
            return Ok(self.data.take().map(|data| Event { seq, name, data }));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.seq = value.parse().ok(),
            "event" => value.clone_into(&mut self.name),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(seq: u64, name: &str, data: &str) -> Event {
        Event { seq: Some(seq), name: name.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn events_are_the_same_in_whatever_pieces_they_come() {
        let text = "id: 1\nevent: start\ndata: {}\n\n: still here\n\nid: 2\r\nevent: stdout\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\n\
                    id:3\nevent:exit\ndata:\u{fc}\n\n";
        let want = [event(1, "start", "{}"), event(2, "stdout", "{\"a\":\n1}"), event(3, "exit", "\u{fc}")];
        for size in 1..=text.len() {
            let mut parser = Parser::default();
            let got: Vec<Event> = text.as_bytes().chunks(size).flat_map(|piece| parser.feed(piece).unwrap()).collect();
            assert_eq!(got, want, "in pieces of {size}");
        }
    }

    #[test]
    fn what_is_cut_off_is_no_event() {
        let mut parser = Parser::default();
        assert_eq!(parser.feed(b"id: 1\nevent: stdout\ndata: half").unwrap(), []);
        assert_eq!(Parser::default().feed(b"id: 1\nevent: stdout\ndata: half\n").unwrap(), []);
    }

    #[test]
    fn fields_that_are_not_ours_and_events_without_data_are_passed_over() {
        let mut parser = Parser::default();
        assert_eq!(parser.feed(b"retry: 5\nevent: nothing\n\nid: x\ndata\n\n").unwrap(), [Event::default()]);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(Parser::default().feed(b"data: \xff\n"), Err(SseError::NotText));
        assert_eq!(Parser::default().feed(&vec![b'x'; LONGEST_LINE + 1]), Err(SseError::TooLong));
    }
}
