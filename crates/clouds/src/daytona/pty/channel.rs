//! The two ends of a channel: what its user reads and writes, and the pump that moves it over the WebSocket.
//!
//! The toolbox never waits for a client: one that falls 256 messages behind is cut off (close code 1008). So the pump
//! takes what comes at once, as far as it may keep it, and an end that isn't the program's own is an error to whoever
//! reads.

use super::Socket;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_util::sync::PollSender;

/// Messages that came and weren't read. When it is full the pump waits, and after a while the toolbox doesn't. Of at most
/// 32 KiB each, as it reads them.
const KEPT: usize = 1024;

/// Messages that were written and aren't sent; when it is full, writers wait.
const UNSENT: usize = 16;

/// The toolbox takes 64 KiB in one message.
const PIECE: usize = 32 << 10;

/// What is between us drops connections that carry nothing.
const PING: Duration = Duration::from_secs(20);

/// Nothing in so long, not even the answers to pings: the other side is gone.
const SILENCE: Duration = Duration::from_secs(65);

/// For the last that is said on either side.
const GOODBYE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(in super::super) struct PtyChannel {
    came: mpsc::Receiver<io::Result<Bytes>>,
    rest: Bytes,
    goes: PollSender<Bytes>,
    ended: bool,
}

#[derive(Debug)]
pub(super) struct Pump {
    socket: Socket,
    first: Bytes,
    came: mpsc::Sender<io::Result<Bytes>>,
    goes: mpsc::Receiver<Bytes>,
}

pub(super) fn pair(socket: Socket, first: Bytes) -> (PtyChannel, Pump) {
    let (came, to_read) = mpsc::channel(KEPT);
    let (written, goes) = mpsc::channel(UNSENT);
    let channel = PtyChannel { came: to_read, rest: Bytes::new(), goes: PollSender::new(written), ended: false };
    (channel, Pump { socket, first, came, goes })
}

impl Pump {
    /// Until either side ends it.
    pub(super) async fn run(self) {
        let Self { socket, first, came, goes } = self;
        let (mut sink, stream) = socket.split();
        let told = came.clone();
        let unread = came.clone();
        let mut receiving = std::pin::pin!(receive(stream, first, came));
        let end = tokio::select! {
            end = &mut receiving => end,
            end = send(&mut sink, goes) => match end {
                None => None,
                // Why is said by what comes, if anything comes any more.
                Some(error) => tokio::time::timeout(GOODBYE, receiving).await.unwrap_or(Some(error)),
            },
            // Nobody reads any more; what is still written would be answered to nobody.
            () = unread.closed() => None,
        };
        if let Some(error) = end {
            let _ = told.send(Err(error)).await;
        }
        let _ = tokio::time::timeout(GOODBYE, sink.close()).await;
    }
}

/// Moves what comes. None: the program ended well, or nobody reads.
async fn receive(
    mut stream: SplitStream<Socket>,
    first: Bytes,
    came: mpsc::Sender<io::Result<Bytes>>,
) -> Option<io::Error> {
    if !first.is_empty() {
        came.send(Ok(first)).await.ok()?;
    }
    loop {
        let message = match tokio::time::timeout(SILENCE, stream.next()).await {
            Ok(Some(Ok(message))) => message,
            Ok(Some(Err(error))) => return Some(io::Error::new(io::ErrorKind::ConnectionReset, error)),
            Ok(None) => return Some(io::Error::new(io::ErrorKind::ConnectionReset, "the connection broke")),
            Err(_) => return Some(io::Error::new(io::ErrorKind::TimedOut, "the sandbox doesn't answer")),
        };
        match message {
            Message::Binary(bytes) => came.send(Ok(bytes)).await.ok()?,
            Message::Close(frame) => return how(frame.as_ref()),
            // Control messages; what the program says is binary.
            Message::Text(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
}

/// Moves what was written, and pings. None: nobody writes any more.
async fn send(sink: &mut SplitSink<Socket, Message>, mut goes: mpsc::Receiver<Bytes>) -> Option<io::Error> {
    let mut pings = tokio::time::interval(PING);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            written = goes.recv() => Message::Binary(written?),
            _ = pings.tick() => Message::Ping(Bytes::new()),
        };
        if let Err(error) = sink.send(message).await {
            return Some(io::Error::new(io::ErrorKind::BrokenPipe, error));
        }
    }
}

/// What the end of a connection means to whoever reads.
fn how(frame: Option<&CloseFrame>) -> Option<io::Error> {
    match exit_code(frame) {
        Some(0) => None,
        Some(_) | None => Some(io::Error::new(io::ErrorKind::ConnectionAborted, said(frame))),
    }
}

/// Of the shell, which the program took the place of.
pub(super) fn exit_code(frame: Option<&CloseFrame>) -> Option<i32> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Exit {
        exit_code: i32,
    }
    let frame = frame?;
    match serde_json::from_str::<Exit>(&frame.reason) {
        Ok(exit) => Some(exit.exit_code),
        Err(_) => (frame.code == CloseCode::Normal).then_some(0),
    }
}

pub(super) fn said(frame: Option<&CloseFrame>) -> String {
    match frame {
        None => "the connection was closed without a reason".to_owned(),
        Some(frame) => format!("the connection was closed ({}): {}", u16::from(frame.code), frame.reason),
    }
}

impl AsyncRead for PtyChannel {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            if self.ended {
                return Poll::Ready(Ok(()));
            }
            match ready!(self.came.poll_recv(cx)) {
                Some(Ok(bytes)) => self.rest = bytes,
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => self.ended = true,
            }
        }
        let length = self.rest.len().min(buf.remaining());
        buf.put_slice(&self.rest.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PtyChannel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let broken = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the channel has ended");
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.goes.poll_reserve(cx)).map_err(broken)?;
        let length = buf.len().min(PIECE);
        let piece = buf.get(..length).unwrap_or(buf);
        self.goes.send_item(Bytes::copy_from_slice(piece)).map_err(broken)?;
        Poll::Ready(Ok(length))
    }

    /// What was written is on its way; a terminal knows no other arrival.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends the channel as a whole: a terminal that carries every byte has none for the end of input.
    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.goes.close();
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_program_s_own_good_end_is_an_end() {
        let frame = |code: u16, reason: &'static str| CloseFrame { code: code.into(), reason: reason.into() };
        for (frame, is_end) in [
            (Some(frame(1000, "")), true),
            (Some(frame(1000, r#"{"exitCode":0}"#)), true),
            (Some(frame(1011, r#"{"exitCode":3,"exitReason":"non-zero exit"}"#)), false),
            (Some(frame(1011, "PTY session unavailable")), false),
            (Some(frame(1008, "slow consumer")), false),
            (Some(frame(1001, "")), false),
            (None, false),
        ] {
            assert_eq!(how(frame.as_ref()).is_none(), is_end, "{frame:?}");
        }
    }
}
