//! The journal: every byte, in the order in which it was seen, for whoever asks later.

mod characters;
mod disk_full;
mod followers;
mod replies;
mod retention;
mod torn;
mod volume;

use crate::rig::TestShell;
use stead_model::frame::Stream;
use stead_model::ids::CommandId;
use stead_model::proto::{CommandInfo, Read, Reply, Request};
use stead_steward::client::{Client, ClientError};

/// What `yes` is told to say: a line whose length divides no power of two, so that a shifted piece shows.
const LINE: &[u8; 17] = b"0123456789abcdef\n";

/// Text of a command that prints `bytes` of it.
fn printing(bytes: u64) -> String {
    format!("yes 0123456789abcdef | head -c {bytes}")
}

/// Compares with what [`printing`] must have printed from an offset on, without having all of it in memory.
#[track_caller]
fn is_pattern(bytes: &[u8], offset: u64) {
    let skip = usize::try_from(offset % 17).unwrap();
    let expected = LINE.repeat(bytes.len() / 17 + 2);
    assert!(bytes == &expected[skip..skip + bytes.len()], "wrong bytes in the {} from {offset}", bytes.len());
}

fn read(client: &mut Client, command: &CommandId, offset: u64, length: u64) -> Result<(Vec<u8>, u64), ClientError> {
    let read = Read { command: command.clone(), stream: Stream::Stdout, offset, length };
    match client.request(&Request::Read(read))? {
        Reply::Bytes(read) => Ok((read.bytes.0, read.total)),
        other => panic!("{other:?}"),
    }
}

fn info(client: &mut Client, command: &CommandId) -> CommandInfo {
    match client.request(&Request::Command(command.clone())).unwrap() {
        Reply::Command(info) => *info,
        other => panic!("{other:?}"),
    }
}

/// Runs a command and gives its id.
#[track_caller]
fn ran(shell: &mut TestShell, text: &str) -> CommandId {
    let outcome = shell.run(text);
    assert_eq!(crate::rig::code(&outcome), Some(0), "{text}");
    outcome.info.command
}
