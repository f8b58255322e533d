//! Following a command through its events, over as many connections as it takes.

use crate::client::{Call, Client, ClientError, Parser, Problem};
use crate::exec::tape::{Tape, Told};
use crate::failure::Failure;
use crate::session::Patience;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use serde_json::Value;
use std::io::{self, Write};
use std::time::Duration;
use stead_model::frame::Stream;

/// The server says something every 15 seconds; one that is silent for so long is gone, whatever the network believes.
const SILENCE: Duration = Duration::from_secs(50);

/// Follows a command to its end and gives its record. `open` asks for the events behind those on the tape; it may be called
/// any number of times.
pub(crate) async fn follow(
    client: &mut Client,
    command: &str,
    tape: &mut Tape,
    open: impl Fn(&Tape) -> Call,
    told: &mut impl AsyncFnMut(Told) -> Result<(), Failure>,
) -> Result<Value, Failure> {
    let mut patience = Patience::new();
    let mut was_there = false;
    loop {
        let before = tape.last();
        let why = match client.send(open(tape)).await {
            Ok(answer) => {
                was_there = true;
                told(Told::Known).await?;
                match read(answer, tape, told).await? {
                    Reading::Ended(record) => return Ok(record),
                    Reading::Closed => ClientError::broken("the stream ended before the command did"),
                    Reading::Broken(error) if error.may_pass() => error,
                    Reading::Broken(error) => return Err(unfollowed(command, error)),
                }
            }
            Err(error @ ClientError::Broken(_)) => error,
            Err(error) if was_there && error.may_pass() => error,
            Err(error) if was_there => return Err(unfollowed(command, error)),
            Err(error) => return Err(error.into()),
        };
        if tape.last() > before {
            patience.restore();
        }
        if !patience.wait().await {
            return Err(unfollowed(command, why));
        }
    }
}

fn unfollowed(command: &str, error: ClientError) -> Failure {
    Failure::Unfollowed { command: command.to_owned(), source: Box::new(error.into()) }
}

/// How the events of one connection came to an end.
#[derive(Debug)]
pub(crate) enum Reading {
    Ended(Value),
    /// The server had no more.
    Closed,
    Broken(ClientError),
}

pub(crate) async fn read(
    answer: Response<Incoming>,
    tape: &mut Tape,
    told: &mut impl AsyncFnMut(Told) -> Result<(), Failure>,
) -> Result<Reading, Failure> {
    let mut body = answer.into_body();
    let mut parser = Parser::default();
    loop {
        let frame = match tokio::time::timeout(SILENCE, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Ok(Reading::Broken(ClientError::broken(error))),
            Ok(None) => return Ok(Reading::Closed),
            Err(_) => return Ok(Reading::Broken(ClientError::broken("nothing was heard for too long"))),
        };
        for event in parser.feed(frame.data_ref().map_or(&[], |data| data.as_ref()))? {
            if event.name == "error" {
                // The server can't go on, and says why.
                return Ok(Reading::Broken(Problem::read(500, event.data.as_bytes()).into()));
            }
            match tape.take(&event)? {
                Some(Told::Ended(record)) => return Ok(Reading::Ended(record)),
                Some(what) => told(what).await?,
                None => {}
            }
        }
    }
}

/// Whether whoever reads our output still does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    There,
    Gone,
}

/// Passes output on. Away from the runtime, because a reader may be slow and Ctrl-C must be heard meanwhile.
pub(crate) async fn write(stream: Stream, bytes: Vec<u8>) -> Result<Reader, Failure> {
    let writing = tokio::task::spawn_blocking(move || match stream {
        Stream::Stdout => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(&bytes).and_then(|()| stdout.flush())
        }
        Stream::Stderr => io::stderr().lock().write_all(&bytes),
    });
    match writing.await.map_err(io::Error::from).flatten() {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(Failure::Output(error)),
    }
}
