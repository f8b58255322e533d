//! Standard input, on its way to a command.

use super::Stage;
use crate::client::{Call, Client, ClientError, query, segment};
use crate::failure::Failure;
use crate::session::Patience;
use bytes::Bytes;
use rustix::fs::{FileType, fstat};
use std::io::{self, IsTerminal, Read};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The most that is sent along with the request: it then survives whatever becomes of the connection.
const SENT_ALONG: usize = 1 << 20;

/// How much is read and sent at a time.
const PIECE: usize = 64 << 10;

/// How often it is tried whether a command's turn has come.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) enum Input {
    /// The command finds the end at once.
    Nothing,
    /// All of it is known before the command begins.
    Text(String),
    /// It comes while the command runs; what was read of it already.
    Flow(Vec<u8>),
}

impl Input {
    pub(super) fn find() -> Result<Self, Failure> {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            return Ok(Self::Nothing);
        }
        // Closed: as good as empty.
        let Ok(stat) = fstat(&stdin) else { return Ok(Self::Nothing) };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::CharacterDevice if is_null(stat.st_rdev) => Ok(Self::Nothing),
            FileType::RegularFile => {
                let mut bytes = Vec::new();
                let limit = SENT_ALONG as u64 + 1;
                stdin.lock().take(limit).read_to_end(&mut bytes).map_err(Failure::Input)?;
                if bytes.len() > SENT_ALONG {
                    return Ok(Self::Flow(bytes));
                }
                Ok(String::from_utf8(bytes).map_or_else(|error| Self::Flow(error.into_bytes()), Self::Text))
            }
            FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Fifo
            | FileType::Socket
            | FileType::Directory
            | FileType::Symlink
            | FileType::Unknown => Ok(Self::Flow(Vec::new())),
        }
    }
}

fn is_null(device: u64) -> bool {
    (rustix::fs::major(device), rustix::fs::minor(device)) == (1, 3)
}

/// Sends standard input to a command until it ends, or the command does. Each piece is sent with its place, so that one
/// whose answer was lost is sent again and read once.
pub(super) async fn feed(
    mut client: Client,
    command: String,
    first: Vec<u8>,
    mut stage: watch::Receiver<Stage>,
) -> Result<(), Failure> {
    if stage.wait_for(|stage| *stage >= Stage::Known).await.is_err() {
        return Ok(());
    }
    let path = format!("/api/commands/{}/stdin", segment(&command));
    let mut pieces = read_ahead(first);
    let mut offset = 0;
    loop {
        let (piece, end) = match pieces.recv().await {
            Some(piece) => (piece.map_err(Failure::Input)?, false),
            None => (Bytes::new(), true),
        };
        let place = offset.to_string();
        let mut how = vec![("offset", place.as_str())];
        how.extend(end.then_some(("eof", "true")));
        if !hand_over(&mut client, &query(&path, &how), &piece).await? || end {
            return Ok(());
        }
        offset += piece.len() as u64;
    }
}

/// Sends one piece, until it has arrived; `false` when the command takes no more.
async fn hand_over(client: &mut Client, path: &str, piece: &Bytes) -> Result<bool, Failure> {
    let mut patience = Patience::new();
    let mut pause = SHORTEST_PAUSE;
    loop {
        match client.send(Call::post(path).bytes(piece.clone())).await {
            Ok(_) => return Ok(true),
            // Its turn will come, or its thread be woken. Nothing tells us when.
            Err(ClientError::Problem(problem)) if matches!(problem.code.as_str(), "terminal_busy" | "paused") => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                patience.restore();
            }
            // It has ended, or closed its input.
            Err(ClientError::Problem(problem)) if matches!(problem.status, 404 | 409 | 410) => return Ok(false),
            Err(error) if error.may_pass() && patience.wait().await => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A thread that reads, because reading may wait for ever and can't be called off. One piece is read ahead.
fn read_ahead(first: Vec<u8>) -> mpsc::Receiver<io::Result<Bytes>> {
    let (send, pieces) = mpsc::channel(1);
    std::thread::spawn(move || {
        if !first.is_empty() && send.blocking_send(Ok(Bytes::from(first))).is_err() {
            return;
        }
        let mut stdin = io::stdin().lock();
        loop {
            let mut buffer = vec![0; PIECE];
            let piece = match stdin.read(&mut buffer) {
                Ok(0) => return,
                Ok(read) => {
                    buffer.truncate(read);
                    Ok(Bytes::from(buffer))
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let failed = piece.is_err();
            if send.blocking_send(piece).is_err() || failed {
                return;
            }
        }
    });
    pieces
}
