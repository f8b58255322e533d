//! The events of a command, put together to what it wrote. Each byte is told once, however often the connection breaks:
//! what was told before is passed over, and a byte that is missing is an error.

use crate::client::Event;
use crate::json::Fields;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use stead_model::frame::Stream;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Told {
    /// The server has it.
    Known,
    /// It waits for its turn.
    Queued,
    Started,
    Output(Stream, Vec<u8>),
    /// It has ended; its record, without output.
    Ended(Value),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TapeError {
    #[error("output is missing: byte {wanted} was to come next, but {got} came")]
    Hole { wanted: u64, got: u64 },
    #[error("the server sent an event `{name}` that can't be read")]
    Malformed { name: String },
}

#[derive(Debug, Default)]
pub(crate) struct Tape {
    last: u64,
    /// How much of standard output and of standard error was told; unknown before the first byte, for one may begin in the
    /// middle.
    told: [Option<u64>; 2],
    /// The end of the command is not the end of the tape: processes that it left running may write more.
    beyond_the_end: bool,
}

impl Tape {
    pub(crate) fn since(seq: u64) -> Self {
        // From the beginning both are known to be empty.
        Self { last: seq, told: if seq == 0 { [Some(0); 2] } else { [None; 2] }, beyond_the_end: false }
    }

    /// Goes on behind the end of the command.
    pub(crate) fn with_late_output(self) -> Self {
        Self { beyond_the_end: true, ..self }
    }

    /// The number of the last event that was taken.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    pub(crate) fn take(&mut self, event: &Event) -> Result<Option<Told>, TapeError> {
        let malformed = || TapeError::Malformed { name: event.name.clone() };
        let read = || serde_json::from_str::<Value>(&event.data).map_err(|_| malformed());
        if event.seq.is_some_and(|seq| seq <= self.last) {
            return Ok(None);
        }
        let told = match event.name.as_str() {
            "queued" => Some(Told::Queued),
            "start" => Some(Told::Started),
            "stdout" => self.output(Stream::Stdout, &read()?).map_err(|hole| hole.unwrap_or_else(malformed))?,
            "stderr" => self.output(Stream::Stderr, &read()?).map_err(|hole| hole.unwrap_or_else(malformed))?,
            "late" => {
                let data = read()?;
                let stream = match data.at("stream").as_str() {
                    Some("stderr") => Stream::Stderr,
                    _ => Stream::Stdout,
                };
                self.output(stream, &data).map_err(|hole| hole.unwrap_or_else(malformed))?
            }
            "exit" if self.beyond_the_end => None,
            "exit" | "failed" => Some(Told::Ended(read()?)),
            // Whatever a later server adds.
            _ => None,
        };
        self.last = event.seq.unwrap_or(self.last);
        Ok(told)
    }

    fn output(&mut self, stream: Stream, data: &Value) -> Result<Option<Told>, Option<TapeError>> {
        let text = data.at("data").as_str().ok_or(None)?;
        let mut bytes = match data.at("encoding").as_str() {
            None | Some("utf8") => text.as_bytes().to_vec(),
            Some("base64") => STANDARD.decode(text).map_err(|_| None)?,
            Some(_) => return Err(None),
        };
        let told = match stream {
            Stream::Stdout => &mut self.told[0],
            Stream::Stderr => &mut self.told[1],
        };
        let offset = data.at("offset").as_u64().ok_or(None)?;
        let known = told.unwrap_or(offset);
        if offset > known {
            return Err(Some(TapeError::Hole { wanted: known, got: offset }));
        }
        let again = usize::try_from(known - offset).unwrap_or(usize::MAX).min(bytes.len());
        *told = Some(known.max(offset + bytes.len() as u64));
        bytes.drain(..again);
        Ok((!bytes.is_empty()).then_some(Told::Output(stream, bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(seq: u64, name: &str, data: &str) -> Event {
        Event { seq: Some(seq), name: name.to_owned(), data: data.to_owned() }
    }

    fn out(bytes: &[u8]) -> Told {
        Told::Output(Stream::Stdout, bytes.to_vec())
    }

    #[test]
    fn bytes_are_told_once_and_as_they_were() {
        let mut tape = Tape::since(0);
        assert_eq!(tape.take(&event(1, "start", "{}")).unwrap(), Some(Told::Started));
        let first = event(2, "stdout", r#"{"seq":2,"offset":0,"data":"aü\u0000"}"#);
        assert_eq!(tape.take(&first).unwrap(), Some(out("aü\0".as_bytes())));
        assert_eq!(tape.take(&first).unwrap(), None, "the same event again");
        let raw = event(3, "stdout", r#"{"seq":3,"offset":4,"data":"/wA=","encoding":"base64"}"#);
        assert_eq!(tape.take(&raw).unwrap(), Some(out(b"\xff\0")));
        let overlapping = event(4, "stdout", r#"{"seq":4,"offset":5,"data":"\u0000b"}"#);
        assert_eq!(tape.take(&overlapping).unwrap(), Some(out(b"b")), "part of it was told");
        let other = event(5, "stderr", r#"{"seq":5,"offset":0,"data":"e"}"#);
        assert_eq!(tape.take(&other).unwrap(), Some(Told::Output(Stream::Stderr, b"e".to_vec())));
        assert_eq!(tape.last(), 5);
    }

    #[test]
    fn a_missing_byte_is_an_error_and_not_passed_over() {
        let mut tape = Tape::since(0);
        let late = event(2, "stdout", r#"{"seq":2,"offset":3,"data":"x"}"#);
        assert_eq!(tape.take(&late), Err(TapeError::Hole { wanted: 0, got: 3 }));
        assert_eq!(tape.last(), 0, "it is asked for again");
        assert_eq!(Tape::since(1).take(&late).unwrap(), Some(out(b"x")), "unless one begins in the middle");
    }

    #[test]
    fn what_can_not_be_read_is_named() {
        for (name, data) in [
            ("stdout", "{"),
            ("stdout", "{}"),
            ("stderr", r#"{"offset":0,"data":"??","encoding":"base64"}"#),
            ("stdout", r#"{"offset":0,"data":"a","encoding":"rot13"}"#),
            ("exit", "no"),
        ] {
            let got = Tape::since(0).take(&event(1, name, data));
            assert_eq!(got, Err(TapeError::Malformed { name: name.to_owned() }), "{data}");
        }
    }

    #[test]
    fn the_end_is_a_record_and_events_of_the_future_are_passed_over() {
        let mut tape = Tape::since(0);
        assert_eq!(tape.take(&event(1, "weather", "rain")).unwrap(), None);
        let end = tape.take(&event(2, "exit", r#"{"exit_code":3}"#)).unwrap();
        assert_eq!(end, Some(Told::Ended(serde_json::json!({ "exit_code": 3 }))));
    }
}
