//! The way to a carrier: one question after the other. What it says is another party's word: what makes no sense ends the
//! line, nothing else.

use crate::provider::Channel;
use std::time::Duration;
use stead_model::carry::{Ask, Done, Said};
use stead_model::frame::{self, Decoder, Frame, Kind};
use stead_model::proto::Fault;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How long a carrier may be silent in the middle of an answer.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    #[error("the line to the sandbox broke: {0}")]
    Broken(String),
    #[error("the sandbox says what makes no sense: {0}")]
    Protocol(String),
    #[error("the sandbox could not do it: {0}")]
    Refused(#[from] Fault),
    #[error("it can't be kept here")]
    Here(#[from] std::io::Error),
}

pub(super) struct Line {
    channel: Box<dyn Channel>,
    decoder: Decoder,
    /// What is read at once.
    buffer: Vec<u8>,
    /// The number of the last question.
    asked: u32,
    /// How much may be on its way, and how much of it has been heard and not given back.
    window: u64,
    heard: u64,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line")
    }
}

/// What comes next.
#[derive(Debug)]
pub(super) enum Heard {
    Said(Said),
    /// The answer to this question is over.
    Done(u32, Result<Done, Fault>),
}

impl Line {
    pub(super) fn new(channel: Box<dyn Channel>, window: u64) -> Self {
        Self { channel, decoder: Decoder::default(), buffer: vec![0; 32 << 10], asked: 0, window, heard: 0 }
    }

    /// Asks, and says under which number it will be answered.
    pub(super) async fn ask(&mut self, ask: &Ask) -> Result<u32, LineError> {
        self.asked = self.asked.wrapping_add(1);
        let mut out = Vec::new();
        frame::write(&mut out, Kind::Request, self.asked, &minicbor::to_vec(ask).unwrap_or_default());
        let written = async {
            self.channel.write_all(&out).await?;
            self.channel.flush().await
        };
        match tokio::time::timeout(PATIENCE, written).await {
            Ok(Ok(())) => Ok(self.asked),
            Ok(Err(error)) => Err(LineError::Broken(error.to_string())),
            Err(_) => Err(LineError::Broken("it takes nothing".to_owned())),
        }
    }

    /// The next thing. Whoever stops waiting for it loses nothing.
    pub(super) async fn hear(&mut self) -> Result<Heard, LineError> {
        loop {
            let frame = self.decoder.next_frame().map_err(|error| LineError::Protocol(error.to_string()))?;
            if let Some(frame) = frame {
                let heard = read(&frame)?;
                if matches!(heard, Heard::Said(_)) {
                    self.heard += 9 + frame.payload.len() as u64;
                }
                return Ok(heard);
            }

            match self.channel.read(&mut self.buffer).await {
                Ok(0) => return Err(LineError::Broken("it was closed".to_owned())),
                Ok(read) => self.decoder.push(self.buffer.get(..read).unwrap_or_default()),
                Err(error) => return Err(LineError::Broken(error.to_string())),
            }
        }
    }

    /// Lets the carrier say as much again as was heard. Not in the middle of hearing: half a message would be the end.
    pub(super) async fn give_back(&mut self) -> Result<(), LineError> {
        if self.heard >= self.window / 2 {
            let heard = std::mem::take(&mut self.heard);
            self.ask(&Ask::More(heard)).await?;
        }
        Ok(())
    }

    /// The same, of a carrier that has been asked and owes an answer.
    pub(super) async fn hear_soon(&mut self) -> Result<Heard, LineError> {
        self.give_back().await?;
        let late = |_| LineError::Broken(format!("silent for {} s", PATIENCE.as_secs()));
        tokio::time::timeout(PATIENCE, self.hear()).await.map_err(late)?
    }
}

fn read(frame: &Frame) -> Result<Heard, LineError> {
    let senseless = |error: minicbor::decode::Error| LineError::Protocol(error.to_string());
    match frame.kind {
        Kind::Event => Ok(Heard::Said(minicbor::decode(&frame.payload).map_err(senseless)?)),
        Kind::Reply => Ok(Heard::Done(frame.request, Ok(minicbor::decode(&frame.payload).map_err(senseless)?))),
        Kind::Fault => Ok(Heard::Done(frame.request, Err(minicbor::decode(&frame.payload).map_err(senseless)?))),
        Kind::Request | Kind::Data => Err(LineError::Protocol("it does not answer".to_owned())),
    }
}
