//! Rows of commands, written behind the answers. The steward's journal is the durable record of a run, so nobody waits
//! for these; they are written a batch at a time, and what a killed server didn't write is found again in the journal.

use crate::core::Core;
use std::sync::Arc;
use std::time::Duration;
use stead_model::command::{Command, replaces};
use tokio::sync::{Notify, mpsc, oneshot};

/// Rows that may wait; a store that can't keep up makes commands wait for it, not memory grow.
const WAITING: usize = 1024;
const BATCH: usize = 256;
const LINGER: Duration = Duration::from_millis(10);

enum Entry {
    Row(Box<Command>),
    /// Answered when everything before it is written.
    Flush(oneshot::Sender<()>),
}

#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    entries: mpsc::Sender<Entry>,
    /// Somebody waits, or there is enough to write.
    hurry: Arc<Notify>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entry")
    }
}

impl Ledger {
    pub(crate) fn start(core: &Arc<Core>) -> Self {
        let (entries, inbox) = mpsc::channel(WAITING);
        let hurry = Arc::new(Notify::new());
        core.tasks.spawn(write(Arc::clone(core), inbox, Arc::clone(&hurry)));
        Self { entries, hurry }
    }

    pub(crate) async fn note(&self, command: Command) {
        // The writer ends only after everybody who could note something has.
        let _ = self.entries.send(Entry::Row(Box::new(command))).await;
        if self.entries.capacity() <= WAITING - BATCH {
            self.hurry.notify_one();
        }
    }

    pub(crate) async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.entries.send(Entry::Flush(done)).await.is_ok() {
            self.hurry.notify_one();
            let _ = written.await;
        }
    }
}

/// Lets more come for a moment, unless somebody waits or it is enough: a quick command then costs one write, not two, and
/// many of them one sync of the disk. Nobody is woken for each that comes.
async fn gather(inbox: &mut mpsc::Receiver<Entry>, entries: &mut Vec<Entry>, hurry: &Notify) {
    let enough =
        |entries: &[Entry]| entries.len() >= BATCH || entries.iter().any(|entry| matches!(entry, Entry::Flush(_)));
    if !enough(entries) {
        let _ = tokio::time::timeout(LINGER, hurry.notified()).await;
    }
    while entries.len() < BATCH
        && let Ok(entry) = inbox.try_recv()
    {
        entries.push(entry);
    }
}

async fn write(core: Arc<Core>, mut inbox: mpsc::Receiver<Entry>, hurry: Arc<Notify>) {
    let mut entries = Vec::new();
    while inbox.recv_many(&mut entries, BATCH).await > 0 {
        gather(&mut inbox, &mut entries, &hurry).await;
        let mut rows: Vec<Command> = Vec::new();
        let mut waiting = Vec::new();
        for entry in entries.drain(..) {
            match entry {
                // Of one command the last word counts, as it would in the store.
                Entry::Row(row) => match rows.iter_mut().find(|known| known.id == row.id) {
                    Some(known) if replaces(known.status, row.status) => *known = *row,
                    Some(_) => {}
                    None => rows.push(*row),
                },
                Entry::Flush(done) => waiting.push(done),
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
