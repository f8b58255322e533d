//! Rows of commands, written behind the answers. The steward's journal is the durable record of a run, so an answer with
//! the end of a command doesn't wait for its row. Rows are written a batch at a time. Rows that a killed server didn't
//! write are made anew from the journals when the next server starts (`stead/recover/commands`).
//!
//! Several may learn of the end of one command: whoever runs it, whoever follows it, whoever watches over it. The first
//! end that is noted stands, here as in the store ([`Command::joined`]); everybody tells what stands.

use crate::core::Core;
use crate::store::StoreError;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stead_model::command::Command;
use stead_model::ids::CommandId;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Rows that may wait; a store that can't keep up makes commands wait for it, not memory grow.
const WAITING: usize = 1024;
const BATCH: usize = 256;
const LINGER: Duration = Duration::from_millis(2);

/// How soon rows that could not be written are tried again.
const RETRY: Duration = Duration::from_millis(500);

/// Rows that are kept until the store takes them. Of more the oldest are left to the next start of a server.
const MOST_UNWRITTEN: usize = 4 * WAITING;

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
    /// Rows that the store did not take; they are tried again.
    unwritten: Unwritten,
}

type Unwritten = Arc<Mutex<HashMap<CommandId, Command>>>;

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
        let unwritten = Unwritten::default();
        core.tasks.spawn(write(Arc::clone(core), inbox, Arc::clone(&unwritten)));
        Self { entries, ends: Arc::default(), unwritten }
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

    /// The row of a command that the store could not take yet.
    pub(crate) fn unwritten(&self, id: &CommandId) -> Option<Command> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
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
    let until = Instant::now() + LINGER;
    while entries.len() < BATCH && !entries.iter().any(|entry| matches!(entry, Entry::Flush(_))) {
        match tokio::time::timeout_at(until, inbox.recv()).await {
            Ok(Some(entry)) => entries.push(entry),
            Ok(None) | Err(_) => return,
        }
    }
}

/// Waits for more to do: entries, or the time to try again what could not be written. False: there will be no more.
async fn wait(inbox: &mut mpsc::Receiver<Entry>, entries: &mut Vec<Entry>, retry_at: Option<Instant>) -> bool {
    let come = inbox.recv_many(entries, BATCH);
    let Some(retry_at) = retry_at else { return come.await > 0 };
    match tokio::time::timeout_at(retry_at, come).await {
        Ok(count) => count > 0,
        Err(_) => true,
    }
}

async fn write(core: Arc<Core>, mut inbox: mpsc::Receiver<Entry>, unwritten: Unwritten) {
    let mut entries = Vec::new();
    let mut rows: Vec<Command> = Vec::new();
    let mut retry_at = None;
    while wait(&mut inbox, &mut entries, retry_at).await {
        if !entries.is_empty() {
            gather(&mut inbox, &mut entries).await;
        }
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
        let is_time = retry_at.is_none_or(|at| at <= Instant::now());
        if !rows.is_empty() && (is_time || !waiting.is_empty()) {
            retry_at = save(&core, &mut rows).await;
            *unwritten.lock().unwrap_or_else(PoisonError::into_inner) =
                rows.iter().map(|row| (row.id.clone(), row.clone())).collect();
        }
        for done in waiting {
            let _ = done.send(());
        }
    }
    if !rows.is_empty() {
        save(&core, &mut rows).await;
    }
}

/// Writes rows; those that are left could not be written, and are to be tried again at the moment that is told.
async fn save(core: &Core, rows: &mut Vec<Command>) -> Option<Instant> {
    let Err(error) = core.store.save_commands(rows).await else {
        rows.clear();
        return None;
    };
    if !may_pass(&error) {
        tracing::error!(%error, rows = rows.len(), "commands could not be written to the store");
        rows.clear();
        return None;
    }
    tracing::error!(%error, rows = rows.len(), "commands could not be written to the store yet");
    let surplus = rows.len().saturating_sub(MOST_UNWRITTEN);
    rows.drain(..surplus);
    Some(Instant::now() + RETRY)
}

/// Whether the same rows may be written later: the disk is full, or another process holds the database.
fn may_pass(error: &StoreError) -> bool {
    match error {
        StoreError::NoSpace => true,
        StoreError::Database(error) => {
            error.as_database_error().is_none_or(|error| matches!(error.kind(), sqlx::error::ErrorKind::Other))
        }
        StoreError::NotFound { .. }
        | StoreError::AlreadyExists { .. }
        | StoreError::Conflict { .. }
        | StoreError::Limit { .. }
        | StoreError::Corrupt { .. }
        | StoreError::Schema { .. }
        | StoreError::Damaged { .. }
        | StoreError::Closed => false,
    }
}
