//! Programs in a sandbox. What one says while nobody hears is lost, so who starts it hears it from its start to its end.
//! A stream that ends before the program did is an error: nobody knows what became of it.

use super::connect::{Decoder, Envelope, Malformed, envelope, fault_at_the_end};
use super::envd::Envd;
use crate::wire::{self, Call};
use crate::{CloudError, Effect, Ran, Trouble};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use std::time::Duration;

/// Of what a script says, each of its two streams; what is longer is cut there.
const MOST_OUTPUT: usize = 1 << 20;

#[derive(Debug, Clone, Copy)]
pub(super) struct Program<'a> {
    pub path: &'a str,
    pub arguments: &'a [&'a str],
    pub stdin: bool,
    /// The daemon kills it then. None for what is to live: there is no deadline that it would survive.
    pub deadline: Option<Duration>,
    /// By which it is found in the list of all.
    pub tag: Option<&'a str>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    Started(u32),
    Out(Vec<u8>),
    Err(Vec<u8>),
    Ended(End),
    /// A sign of life, or something that we don't know.
    Alive,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct End {
    /// Left out when it is 0; so it counts only for what exited.
    exit_code: i32,
    exited: bool,
    status: String,
    error: Option<String>,
}

impl End {
    /// None when it didn't end by itself.
    pub(super) fn exit_code(&self) -> Option<i32> {
        self.exited.then_some(self.exit_code)
    }

    pub(super) fn word(&self) -> &str {
        self.error.as_deref().unwrap_or(&self.status)
    }
}

/// What a program says.
pub(super) struct Events {
    what: &'static str,
    stream: BoxStream<'static, reqwest::Result<Bytes>>,
    decoder: Decoder,
    /// Nothing at all for so long, not even a sign of life: it is lost.
    silence: Duration,
}

/// Starts a program and returns its number in the sandbox.
pub(super) async fn start(
    envd: &Envd,
    what: &'static str,
    id: &str,
    program: Program<'_>,
) -> Result<(u32, Events), CloudError> {
    let Program { path, arguments, stdin, deadline, tag } = program;
    let times = envd.api.times;
    let mut message = json!({ "process": { "cmd": path, "args": arguments }, "stdin": stdin });
    if let (Some(tag), Some(message)) = (tag, message.as_object_mut()) {
        message.insert("tag".to_owned(), tag.into());
    }
    let body = envelope(&message);
    let answer = envd.send(what, times.change, id, |client, base| {
        let request = client.post(format!("{base}/process.Process/Start")).body(body.clone());
        let request = request.header("Content-Type", "application/connect+json");
        let request = request.header("Connect-Protocol-Version", "1");
        let request = request.header("Keepalive-Ping-Interval", times.sign_of_life.as_secs().max(1));
        match deadline {
            None => request,
            Some(deadline) => request.header("Connect-Timeout-Ms", deadline.as_millis().max(1).to_string()),
        }
    });
    let stream = answer.await?.bytes_stream().boxed();
    let mut events = Events { what, stream, decoder: Decoder::default(), silence: times.sign_of_life * 3 };
    match tokio::time::timeout(times.change, events.next()).await {
        Ok(Ok(Said::Started(pid))) => Ok((pid, events)),
        Ok(Ok(Said::Out(_) | Said::Err(_) | Said::Ended(_) | Said::Alive)) => {
            Err(events.error(Trouble::Broken, "the first that was heard isn't that it started"))
        }
        Ok(Err(error)) => Err(error),
        Err(_) => Err(events.error(Trouble::TimedOut, "it did not start")),
    }
}

pub(super) async fn run(envd: &Envd, id: &str, script: &str, patience: Duration) -> Result<Ran, CloudError> {
    const WHAT: &str = "run a script";
    let program =
        Program { path: "/bin/sh", arguments: &["-c", script], stdin: false, deadline: Some(patience), tag: None };
    let heard = async {
        let (_, mut events) = start(envd, WHAT, id, program).await?;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let gather = |to: &mut Vec<u8>, piece: &[u8]| {
            to.extend(piece.iter().take(MOST_OUTPUT - to.len().min(MOST_OUTPUT)));
        };
        loop {
            match events.next().await? {
                Said::Out(piece) => gather(&mut out, &piece),
                Said::Err(piece) => gather(&mut err, &piece),
                Said::Alive | Said::Started(_) => {}
                Said::Ended(how) => {
                    let Some(exit_code) = how.exit_code() else {
                        return Err(events.error(Trouble::Unavailable, &format!("it was ended: {}", how.word())));
                    };
                    out.append(&mut err);
                    return Ok(Ran { exit_code, output: out });
                }
            }
        }
    };
    tokio::time::timeout(patience, heard).await.unwrap_or_else(|_| {
        let message = format!("it did not end in {} s", patience.as_secs_f64());
        Err(CloudError::new(WHAT, Trouble::TimedOut, Effect::Unknown, message))
    })
}

impl Events {
    /// The next thing that was said. After the end nothing is.
    pub(super) async fn next(&mut self) -> Result<Said, CloudError> {
        loop {
            match self.decoder.next() {
                Ok(Some(Envelope::Message(message))) => return self.said(&message),
                Ok(Some(Envelope::Last(last))) => {
                    return Err(match fault_at_the_end(&last) {
                        Some(fault) => fault.error(self.what, Effect::Unknown),
                        None => self.error(Trouble::Unavailable, "it stopped talking before the program ended"),
                    });
                }
                Ok(None) => {}
                Err(malformed) => return Err(self.malformed(malformed)),
            }
            match tokio::time::timeout(self.silence, self.stream.next()).await {
                Ok(Some(Ok(piece))) => self.decoder.feed(&piece),
                Ok(Some(Err(error))) => return Err(wire::unanswered(self.what, Call::Changes, &error)),
                Ok(None) => {
                    let cut = if self.decoder.is_within() { " in the middle of a word" } else { "" };
                    let message = format!("it fell silent{cut} before the program ended");
                    return Err(self.error(Trouble::Unavailable, &message));
                }
                Err(_) => {
                    let message = format!("no sign of life in {} s", self.silence.as_secs());
                    return Err(self.error(Trouble::Unavailable, &message));
                }
            }
        }
    }

    fn said(&self, message: &[u8]) -> Result<Said, CloudError> {
        said(message).ok_or_else(|| self.error(Trouble::Broken, "what it says makes no sense"))
    }

    fn malformed(&self, malformed: Malformed) -> CloudError {
        self.error(Trouble::Broken, &format!("what it says makes no sense: {malformed}"))
    }

    /// It has been started by then.
    fn error(&self, trouble: Trouble, message: &str) -> CloudError {
        CloudError::new(self.what, trouble, Effect::Unknown, message)
    }
}

fn said(message: &[u8]) -> Option<Said> {
    #[derive(Deserialize)]
    struct Answer {
        event: Event,
    }
    #[derive(Deserialize)]
    struct Event {
        start: Option<Start>,
        data: Option<Data>,
        end: Option<End>,
        #[serde(rename = "keepalive")]
        _keepalive: Option<IgnoredAny>,
    }
    #[derive(Deserialize)]
    struct Start {
        pid: u32,
    }
    #[derive(Deserialize)]
    struct Data {
        stdout: Option<String>,
        stderr: Option<String>,
    }
    let event = serde_json::from_slice::<Answer>(message).ok()?.event;
    if let Some(start) = event.start {
        return Some(Said::Started(start.pid));
    }
    if let Some(end) = event.end {
        return Some(Said::Ended(end));
    }
    match event.data {
        Some(Data { stdout: Some(text), .. }) => STANDARD.decode(text).ok().map(Said::Out),
        Some(Data { stderr: Some(text), .. }) => STANDARD.decode(text).ok().map(Said::Err),
        Some(Data { stdout: None, stderr: None }) | None => Some(Said::Alive),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is heard of a stream that ends well, after its first event.
    async fn heard(pieces: Vec<Bytes>) -> Vec<Result<Said, Trouble>> {
        let stream = futures_util::stream::iter(pieces.into_iter().map(Ok)).boxed();
        let mut events = Events { what: "test", stream, decoder: Decoder::default(), silence: Duration::from_secs(5) };
        let mut all = Vec::new();
        while all.last().is_none_or(Result::is_ok) {
            all.push(events.next().await.map_err(|error| {
                assert_eq!(error.effect, Effect::Unknown, "{error}");
                error.trouble
            }));
        }
        all
    }

    #[tokio::test]
    async fn a_stream_that_ends_before_the_program_is_an_error_however_well_it_ends() {
        let start = envelope(&json!({ "event": { "start": { "pid": 7 } } }));
        let last = |text: &'static str| {
            let length = u8::try_from(text.len()).unwrap();
            Bytes::from([&[2, 0, 0, 0, length], text.as_bytes()].concat())
        };
        for (ending, trouble) in [
            (vec![], Trouble::Unavailable),
            (vec![Bytes::from_static(b"\0\0\0\0\x09{}")], Trouble::Unavailable),
            (vec![last("{}")], Trouble::Unavailable),
            (vec![last(r#"{"error":{"code":"deadline_exceeded"}}"#)], Trouble::TimedOut),
            (vec![last(r#"{"error":{"code":"unavailable","message":"gone"}}"#)], Trouble::Unavailable),
            (vec![Bytes::from_static(b"<html>")], Trouble::Broken),
        ] {
            let pieces = [vec![start.clone()], ending.clone()].concat();
            assert_eq!(heard(pieces).await, [Ok(Said::Started(7)), Err(trouble)], "{ending:?}");
        }
    }

    #[test]
    fn a_missing_exit_code_is_zero_only_of_what_exited() {
        let end = |text: &str| match said(format!(r#"{{"event":{{"end":{text}}}}}"#).as_bytes()) {
            Some(Said::Ended(end)) => end.exit_code(),
            other => panic!("{other:?}"),
        };
        assert_eq!(end(r#"{"exited":true,"status":"exit status 0"}"#), Some(0));
        assert_eq!(end(r#"{"exited":true,"exitCode":3}"#), Some(3));
        assert_eq!(end(r#"{"exitCode":-1,"status":"signal: killed"}"#), None);
        assert_eq!(end("{}"), None);
    }

    #[test]
    fn what_is_said_is_understood_and_what_is_new_is_a_sign_of_life() {
        for (text, expected) in [
            (r#"{"event":{"start":{"pid":7}}}"#, Some(Said::Started(7))),
            (r#"{"event":{"data":{"stdout":"aGkK"}}}"#, Some(Said::Out(b"hi\n".to_vec()))),
            (r#"{"event":{"data":{"stderr":"/w=="}}}"#, Some(Said::Err(vec![0xff]))),
            (r#"{"event":{"keepalive":{}}}"#, Some(Said::Alive)),
            (r#"{"event":{"news":{"a":1}},"more":2}"#, Some(Said::Alive)),
            (r#"{"event":{"data":{"stdout":"?"}}}"#, None),
            (r#"{"event":{"start":{}}}"#, None),
            ("{}", None),
            ("<html>", None),
        ] {
            assert_eq!(said(text.as_bytes()), expected, "{text}");
        }
    }
}
