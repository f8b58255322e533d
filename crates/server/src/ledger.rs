//! Rows of commands, written behind the answers. The steward's journal is the durable record of a run, so nobody waits
//! for these; they are written a batch at a time, and what a killed server didn't write is found again in the journal.

use crate::core::Core;
use std::sync::Arc;
use std::time::Duration;
use stead_model::command::{Command, replaces};
use stead_model::ids::CommandId;
use tokio::sync::{mpsc, oneshot};

/// Rows that may wait; a store that can't keep up makes commands wait for it, not memory grow.
const WAITING: usize = 1024;
const BATCH: usize = 256;
const LINGER: Duration = Duration::from_millis(2);

enum Entry {
    Row(Box<Command>),
    /// It was turned away, and is as if it had never been asked for.
    Back(CommandId),
    /// Answered when everything before it is written.
    Flush(oneshot::Sender<()>),
}

#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    entries: mpsc::Sender<Entry>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entry")
    }
}

impl Ledger {
    pub(crate) fn start(core: &Arc<Core>) -> Self {
        let (entries, inbox) = mpsc::channel(WAITING);
        core.tasks.spawn(write(Arc::clone(core), inbox));
        Self { entries }
    }

    pub(crate) async fn note(&self, command: Command) {
        // The writer ends only after everybody who could note something has.
        let _ = self.entries.send(Entry::Row(Box::new(command))).await;
    }

    /// Takes a command back that was noted and turned away; its id is free when this returns.
    pub(crate) async fn take_back(&self, id: &CommandId) {
        let _ = self.entries.send(Entry::Back(id.clone())).await;
        self.flush().await;
    }

    pub(crate) async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.entries.send(Entry::Flush(done)).await.is_ok() {
            let _ = written.await;
        }
    }
}

/// Lets more come for a moment, unless somebody waits or it is enough: a quick command then costs one write, not two.
async fn gather(inbox: &mut mpsc::Receiver<Entry>, entries: &mut Vec<Entry>) {
    let until = tokio::time::Instant::now() + LINGER;
    while entries.len() < BATCH && !entries.iter().any(|entry| matches!(entry, Entry::Flush(_))) {
        match tokio::time::timeout_at(until, inbox.recv()).await {
            Ok(Some(entry)) => entries.push(entry),
            Ok(None) | Err(_) => return,
        }
    }
}

async fn write(core: Arc<Core>, mut inbox: mpsc::Receiver<Entry>) {
    let mut entries = Vec::new();
    while inbox.recv_many(&mut entries, BATCH).await > 0 {
        gather(&mut inbox, &mut entries).await;
        let mut rows: Vec<Command> = Vec::new();
        let (mut waiting, mut back) = (Vec::new(), Vec::new());
        for entry in entries.drain(..) {
            match entry {
                // Of one command the last word counts, as it would in the store.
                Entry::Row(row) => match rows.iter_mut().find(|known| known.id == row.id) {
                    Some(known) if replaces(known.status, row.status) => *known = *row,
                    Some(_) => {}
                    None => rows.push(*row),
                },
                Entry::Back(id) => {
                    rows.retain(|row| row.id != id);
                    back.push(id);
                }
                Entry::Flush(done) => waiting.push(done),
            }
        }
        for id in back {
            if let Err(error) = core.store.take_back_command(&id).await {
                // It stays as it is known, and whoever looks for its end finds that it never came to its shell.
                tracing::error!(%error, command = %id, "a command that was turned away could not be taken back");
            }
        }
        if !rows.is_empty()
            && let Err(error) = core.store.save_commands(&rows).await
        {
            // They are in the journal; recovery brings them back.
            tracing::error!(%error, rows = rows.len(), "commands could not be written to the store");
        }
        for done in waiting {
            let _ = done.send(());
        }
    }
}
