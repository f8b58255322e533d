//! Rows of commands, written behind the answers. The steward's journal is the durable record of a run, so nobody waits
//! for these; they are written a batch at a time, and what a killed server didn't write is found again in the journal.
//!
//! Several may learn of the end of one command: whoever runs it, whoever follows it, whoever watches over it. The first
//! end that is noted stands, here as in the store ([`Command::joined`]); everybody tells what stands.

use crate::core::Core;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stead_model::command::Command;
use stead_model::ids::CommandId;
use tokio::sync::{mpsc, oneshot};

/// Rows that may wait; a store that can't keep up makes commands wait for it, not memory grow.
const WAITING: usize = 1024;
const BATCH: usize = 256;
const LINGER: Duration = Duration::from_millis(2);

/// Ends that are remembered: more than can wait for the store, and all that end while somebody looks there whether one is
/// known.
const REMEMBERED: usize = 8 * WAITING;

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
    ends: Arc<Mutex<Ends>>,
}

/// The ends that were noted last. Their texts are not kept: they may be long, and whoever asks has them.
#[derive(Debug, Default)]
struct Ends {
    known: HashMap<CommandId, Command>,
    order: VecDeque<CommandId>,
}

impl Ends {
    /// The end that stands, and whether it says something new.
    fn take(&mut self, mut told: Command) -> (Command, bool) {
        let text = std::mem::take(&mut told.text);
        // An id may be used again for another command, when the thread of the first is long gone.
        let known = self.known.get(&told.id).filter(|known| known.terminal == told.terminal).cloned();
        let (stands, is_new) = match known {
            None => (told, true),
            Some(known) => {
                let stands = known.clone().joined(told);
                let is_new = stands != known;
                (stands, is_new)
            }
        };
        if is_new && self.known.insert(stands.id.clone(), stands.clone()).is_none() {
            self.order.push_back(stands.id.clone());
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        (Command { text, ..stands }, is_new)
    }
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
        Self { entries, ends: Arc::default() }
    }

    /// Notes what is known of a command, and says what stands: of two ends the first.
    pub(crate) async fn note(&self, command: Command) -> Command {
        let (stands, is_new) = if command.status.is_final() {
            self.ends.lock().unwrap_or_else(PoisonError::into_inner).take(command)
        } else {
            (command, true)
        };
        if is_new {
            // The writer ends only after everybody who could note something has.
            let _ = self.entries.send(Entry::Row(Box::new(stands.clone()))).await;
        }
        stands
    }

    /// The end of a command that was noted a moment ago, without its text.
    pub(crate) fn end_of(&self, command: &Command) -> Option<Command> {
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.known.get(&command.id).filter(|known| known.terminal == command.terminal).cloned()
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
                // Of one command the same stands as would in the store.
                Entry::Row(row) => match rows.iter_mut().find(|known| known.id == row.id) {
                    Some(known) => *known = known.clone().joined(*row),
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
