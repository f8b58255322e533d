//! Commands that a journal has and the store has not: their rows are written behind the answers, and the server before
//! us was killed in between, or could not write them.

use crate::error::Error;
use crate::stead::Inner;
use crate::stead::afar;
use crate::stead::env::Veil;
use crate::stead::execute::with_info;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stead_model::clock::Timestamp;
use stead_model::command::Command;
use stead_model::ids::ShellId;
use stead_model::lease::Lease;
use stead_model::proto::{CommandInfo, Status};
use stead_model::state::Bytes;
use stead_model::terminal::Terminal;
use stead_steward::past::{self, Asked, PastShell};

/// How many of a thread's newest commands are compared with the journal at once; one that is not among them is looked for
/// by its id.
const COMPARED: u32 = 2048;

/// Writes the rows of commands that only the journal of a lease has. All of them are open: what became of each is found
/// out afterwards, as of every other. `lease` is as the server before us left it.
pub(super) async fn add_missing(inner: &Arc<Inner>, lease: &Lease) -> Result<Vec<Command>, Error> {
    let store = &inner.core.store;
    let Some(dir) = afar::journal(&**inner.core.provider(&lease.provider)?, &lease.id) else { return Ok(Vec::new()) };
    // A terminal that was deleted is not among them, so its commands don't come back.
    let terminals: BTreeMap<_, _> = store
        .terminals_of_lease(&lease.id)
        .await?
        .into_iter()
        .filter_map(|terminal| Some((ShellId::parse(terminal.id.as_str()).ok()?, terminal)))
        .collect();
    let threads: BTreeSet<_> = terminals.values().map(|terminal| &terminal.thread).collect();
    let mut known = BTreeSet::new();
    for thread in threads {
        known.extend(store.newest_commands(thread, COMPARED).await?);
    }
    let shells: BTreeSet<_> = terminals.keys().cloned().collect();
    let read = tokio::task::spawn_blocking(move || past::missing(&dir, &shells, &known)).await;
    let told = read.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    let told = told.map_err(|error| Error::Io(format!("the journal of `{}` can't be read: {error}", lease.id)))?;
    let mut added = Vec::new();
    for shell in &told {
        let Some(terminal) = terminals.get(&shell.shell) else { continue };
        for info in &shell.commands {
            if store.command(&info.command).await?.is_none() {
                let row = open_row(inner, lease, terminal, shell, info).await?;
                tracing::info!(command = %row.id, thread = %row.thread, "command found in the journal");
                inner.ledger.note(row.clone()).await;
                added.push(row);
            }
        }
    }
    if !added.is_empty() {
        inner.ledger.flush().await;
    }
    Ok(added)
}

async fn open_row(
    inner: &Inner,
    lease: &Lease,
    terminal: &Terminal,
    shell: &PastShell,
    info: &CommandInfo,
) -> Result<Command, Error> {
    let row = row_of_journal(terminal, info, shell.asked.get(&info.number));
    let session = inner.core.store.live_session(&terminal.id).await?;
    let status = if info.started_at.is_some() { Status::Running } else { Status::Queued };
    Ok(Command {
        session: session.map(|session| session.id),
        instance: lease.instance.clone(),
        text: Bytes(Veil::of(inner, &terminal.id).await?.over(&row.text)),
        status,
        ending: None,
        cwd: Bytes::default(),
        state_version: 0,
        ended_at: None,
        ..row
    })
}

/// The row of a command of which nothing is known but what its journal has.
pub(crate) fn row_of_journal(terminal: &Terminal, info: &CommandInfo, asked: Option<&Asked>) -> Command {
    let base = Command {
        id: info.command.clone(),
        thread: terminal.thread.clone(),
        terminal: terminal.id.clone(),
        lease: terminal.lease.clone(),
        session: None,
        instance: None,
        text: asked.map(|asked| asked.text.clone()).unwrap_or_default(),
        status: info.status,
        ending: None,
        stdout_bytes: 0,
        stderr_bytes: 0,
        cwd: Bytes::default(),
        state_version: 0,
        created_at: Timestamp(asked.map_or(info.accepted_at, |asked| asked.at) / 1000),
        started_at: None,
        ended_at: None,
    };
    with_info(&base, info)
}
