//! Standard input, on its way to a command.

use super::Stage;
use crate::client::{Call, Client, ClientError, query, segment};
use crate::failure::Failure;
use crate::json::Fields;
use bytes::Bytes;
use rustix::fs::{FileType, fstat};
use std::io::{self, IsTerminal, Read};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The most that is sent along with the request: it then survives whatever becomes of the connection.
const SENT_ALONG: usize = 1 << 20;

/// How much is read and sent at a time.
const PIECE: usize = 64 << 10;

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

/// Sends standard input to a command until it ends, or the command does.
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
    loop {
        let (piece, end) = match pieces.recv().await {
            Some(piece) => (piece.map_err(Failure::Input)?, false),
            None => (Bytes::new(), true),
        };
        let path = if end { query(&path, &[("eof", "true")]) } else { path.clone() };
        if !hand_over(&mut client, &command, &path, &piece).await? || end {
            return Ok(());
        }
    }
}

/// Sends one piece; `false` when the command takes no more.
async fn hand_over(client: &mut Client, command: &str, path: &str, piece: &Bytes) -> Result<bool, Failure> {
    let mut pause = Duration::from_millis(10);
    let mut was_running = false;
    loop {
        match client.send(Call::post(path).bytes(piece.clone())).await {
            Ok(_) => return Ok(true),
            Err(ClientError::Problem(problem)) if problem.status == 409 => {}
            Err(ClientError::Problem(problem)) if matches!(problem.status, 404 | 410) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let record = client.get(&format!("/api/commands/{}", segment(command))).await?;
        match record.at("status").as_str() {
            // Its turn will come. Nothing tells us when it does.
            Some("queued") => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(500));
            }
            // It may have begun between the two questions; else it has closed its input.
            Some("running") if !was_running => was_running = true,
            _ => return Ok(false),
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
