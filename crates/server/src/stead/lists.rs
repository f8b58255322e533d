//! Lists, a page at a time. A page says where the next begins; what comes or goes meanwhile is neither shown twice nor
//! keeps anything else from being shown.

use super::{Inner, Stead};
use crate::error::Error;
use crate::seat::Seat;
use crate::store::{AgentSession, KeptState, LeaseEvent, Page};
use std::collections::BTreeSet;
use std::time::Duration;
use stead_model::access::Token;
use stead_model::clock::Timestamp;
use stead_model::command::Command;
use stead_model::cursor::{self, Cursor, InvalidCursor};
use stead_model::ids::{LeaseId, ProjectId, ProviderName, TerminalId, ThreadId};
use stead_model::lease::Lease;
use stead_model::notice::{Subject, Told};
use stead_model::session::{Input, Session};
use stead_model::terminal::Terminal;
use stead_model::thread::Thread;

/// How long a list waits for what was answered to be in the store; after that it shows what is there.
const SETTLE: Duration = Duration::from_secs(5);

/// Which page of a list is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct List {
    pub limit: Option<u32>,
    /// As the page before gave it.
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<T> {
    pub items: Vec<T>,
    /// Absent when this is the last page.
    pub next_cursor: Option<String>,
}

impl List {
    /// One more than is wanted, to know whether there is more.
    pub(super) fn page(&self, of: &'static str) -> Result<(Page, usize), Error> {
        let limit = self.limit()?;
        let after = match self.cursor(of)? {
            Some(Cursor::Thing { at, id }) => Some((at, id)),
            Some(Cursor::Version(_)) => return Err(Error::Invalid(InvalidCursor(of).to_string())),
            None => None,
        };
        Ok((Page { limit: limit + 1, after }, limit as usize))
    }

    /// Where a page of a list begins that is made of other rows, and how many are wanted.
    pub(crate) fn place(&self, of: &'static str) -> Result<Place, Error> {
        let (page, limit) = self.page(of)?;
        Ok(Place { after: page.after, limit })
    }

    pub(crate) fn refused(of: &'static str) -> Error {
        Error::Invalid(InvalidCursor(of).to_string())
    }

    fn version(&self, of: &'static str) -> Result<(Option<u64>, usize), Error> {
        let limit = self.limit()? as usize;
        match self.cursor(of)? {
            Some(Cursor::Version(version)) => Ok((Some(version), limit)),
            Some(Cursor::Thing { .. }) => Err(Error::Invalid(InvalidCursor(of).to_string())),
            None => Ok((None, limit)),
        }
    }

    fn limit(&self) -> Result<u32, Error> {
        cursor::limit(self.limit).map_err(|error| Error::Invalid(error.to_string()))
    }

    fn cursor(&self, of: &'static str) -> Result<Option<Cursor>, Error> {
        let parse = |text| Cursor::parse(of, text).map_err(|error| Error::Invalid(error.to_string()));
        self.cursor.as_deref().map(parse).transpose()
    }
}

/// A place in a list, behind that of the last that was shown.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) after: Option<(Timestamp, String)>,
    pub(crate) limit: usize,
}

impl<T> Listed<T> {
    /// The first so many of what begins at a [`Place`].
    pub(crate) fn cut_at(
        items: Vec<T>,
        limit: usize,
        of: &'static str,
        place: impl Fn(&T) -> (Timestamp, String),
    ) -> Self {
        Self::cut(items, limit, of, |item| {
            let (at, id) = place(item);
            Cursor::Thing { at, id }
        })
    }

    pub(super) fn cut(mut items: Vec<T>, limit: usize, of: &'static str, place: impl Fn(&T) -> Cursor) -> Self {
        let more = items.len() > limit;
        items.truncate(limit);
        let next_cursor = items.last().filter(|_| more).map(|last| place(last).to_text(of));
        Self { items, next_cursor }
    }
}

pub(super) fn thing(at: Timestamp, id: &impl ToString) -> Cursor {
    Cursor::Thing { at, id: id.to_string() }
}

impl Stead {
    /// Newest first.
    pub async fn list_threads(&self, project: Option<&ProjectId>, list: &List) -> Result<Listed<Thread>, Error> {
        let (page, limit) = list.page("threads")?;
        let found = self.inner.core.store.threads(project, &page).await?;
        let mut listed = Listed::cut(found, limit, "threads", |thread| thing(thread.created_at, &thread.id));
        for thread in &mut listed.items {
            thread.last_active_at = self.inner.last_used(thread);
        }
        Ok(listed)
    }

    pub(crate) async fn list_agent_sessions(&self, list: &List) -> Result<Listed<AgentSession>, Error> {
        let (page, limit) = list.page("agent-sessions")?;
        let found = self.inner.core.store.agent_sessions(&page).await?;
        Ok(Listed::cut(found, limit, "agent-sessions", |session| thing(session.created_at, &session.id)))
    }

    /// Newest first, each as it is now.
    pub async fn list_sessions(&self, list: &List) -> Result<Listed<Session>, Error> {
        let (page, limit) = list.page("sessions")?;
        let found = self.inner.core.store.sessions(&page).await?;
        let mut listed = Listed::cut(found, limit, "sessions", |session| thing(session.started_at, &session.id));
        let busy = busy_terminals(&self.inner, listed.items.iter().any(|session| session.status.is_live())).await?;
        for session in &mut listed.items {
            *session = present(&self.inner, session, &busy).await?;
        }
        Ok(listed)
    }

    /// The newest session of a thread, as it is now. Reading it changes nothing.
    pub async fn session(&self, thread: &ThreadId) -> Result<Session, Error> {
        let thread = self.thread(thread).await?;
        let session = self.inner.core.store.newest_session(&thread.id).await?;
        let session = session.ok_or_else(|| Error::NotFound { kind: "session", id: thread.id.to_string() })?;
        let busy = busy_terminals(&self.inner, session.status.is_live()).await?;
        present(&self.inner, &session, &busy).await
    }

    /// Newest first; of one thread or of all.
    pub async fn list_terminals(&self, thread: Option<&ThreadId>, list: &List) -> Result<Listed<Terminal>, Error> {
        let (page, limit) = list.page("terminals")?;
        let store = &self.inner.core.store;
        let found = if let Some(thread) = thread {
            let thread = self.thread(thread).await?;
            settle(&self.inner, |seat| seat.thread.id == thread.id).await;
            // A thread has few; they are in the order of the list already.
            let behind = |terminal: &Terminal| {
                let place = (terminal.created_at, terminal.id.as_str());
                page.after.as_ref().is_none_or(|(at, id)| place < (*at, id.as_str()))
            };
            store.terminals_of_thread(&thread.id).await?.into_iter().filter(behind).collect()
        } else {
            settle(&self.inner, |_| true).await;
            store.terminals(&page).await?
        };
        let mut listed = Listed::cut(found, limit, "terminals", |terminal| thing(terminal.created_at, &terminal.id));
        for terminal in &mut listed.items {
            *terminal = super::env::shown(&self.inner, terminal.clone()).await?;
        }
        Ok(listed)
    }

    /// Newest first, as their rows are; of one provider or of all. Nothing is looked at.
    pub async fn list_leases(&self, provider: Option<&ProviderName>, list: &List) -> Result<Listed<Lease>, Error> {
        let (page, limit) = list.page("leases")?;
        let found = self.inner.core.store.leases(provider, &page).await?;
        Ok(Listed::cut(found, limit, "leases", |lease| thing(lease.created_at, &lease.id)))
    }

    /// Oldest first.
    pub async fn list_lease_events(&self, lease: &LeaseId, list: &List) -> Result<Listed<LeaseEvent>, Error> {
        let (after, limit) = list.version("events")?;
        let store = &self.inner.core.store;
        if store.lease(lease).await?.is_none() {
            return Err(Error::NotFound { kind: "lease", id: lease.to_string() });
        }
        let most = u32::try_from(limit + 1).unwrap_or(u32::MAX);
        let found = store.lease_events(lease, after.unwrap_or(0), most).await?;
        Ok(Listed::cut(found, limit, "events", |event| Cursor::Version(event.version)))
    }

    /// What was said of something, oldest first; also of what is gone.
    pub async fn list_notices(&self, of: &Subject, list: &List) -> Result<Listed<Told>, Error> {
        let (after, limit) = list.version("notices")?;
        let most = u32::try_from(limit + 1).unwrap_or(u32::MAX);
        let found = self.inner.core.store.notices(Some(of), after.unwrap_or(0), most).await?;
        Ok(Listed::cut(found, limit, "notices", |told| Cursor::Version(told.seq)))
    }

    /// Newest first.
    pub async fn list_commands(&self, thread: &ThreadId, list: &List) -> Result<Listed<Command>, Error> {
        let (page, limit) = list.page("commands")?;
        let thread = self.thread(thread).await?;
        self.inner.ledger.flush().await;
        let found = self.inner.core.store.commands_of_thread(&thread.id, &page).await?;
        let mut listed = Listed::cut(found, limit, "commands", |command| thing(command.created_at, &command.id));
        // How far those have come that have not ended, as far as that can be waited for.
        let all = async {
            for command in &mut listed.items {
                *command = self.inner.newest_of(command.clone()).await;
            }
        };
        let _ = tokio::time::timeout(SETTLE, all).await;
        Ok(listed)
    }

    /// The versions of a terminal whose content changed, newest first.
    pub async fn list_states(&self, terminal: &TerminalId, list: &List) -> Result<Listed<KeptState>, Error> {
        let (before, limit) = list.version("states")?;
        if self.inner.core.store.terminal(terminal).await?.is_none() {
            return Err(Error::NotFound { kind: "terminal", id: terminal.to_string() });
        }
        let kept = self.states(terminal).await?.into_iter();
        let found = kept.filter(|state| before.is_none_or(|before| state.version < before)).collect();
        Ok(Listed::cut(found, limit, "states", |state| Cursor::Version(state.version)))
    }
}

impl crate::token::Tokens {
    /// A page of the tokens, newest first.
    pub async fn list_tokens(&self, list: &List) -> Result<Listed<Token>, Error> {
        let (page, limit) = list.page("tokens")?;
        let found = self.list(&page).await?;
        Ok(Listed::cut(found, limit, "tokens", |token| thing(token.created_at, &token.id)))
    }
}

/// What has been answered is in the store before it is listed, as far as that can be waited for.
async fn settle(inner: &Inner, which: impl Fn(&Seat) -> bool) {
    let seats: Vec<_> = inner.seats().iter().filter(|seat| which(seat)).cloned().collect();
    let all = async {
        for seat in seats {
            seat.settle().await;
        }
    };
    let _ = tokio::time::timeout(SETTLE, all).await;
}

/// The terminals in which a command runs or waits.
async fn busy_terminals(inner: &Inner, wanted: bool) -> Result<BTreeSet<TerminalId>, Error> {
    if !wanted {
        return Ok(BTreeSet::new());
    }
    // The rows of commands are on their way to the store; waiting for them adds none.
    inner.ledger.flush().await;
    let open = inner.core.store.open_commands().await?;
    let mut busy: BTreeSet<_> = open.into_iter().map(|command| command.terminal).collect();
    busy.extend(inner.seats().iter().filter(|seat| seat.is_in_use()).map(|seat| seat.terminal.clone()));
    Ok(busy)
}

/// A session with the uses that only its seat knows, and whether it is idle now. One whose time is over is closed, also
/// before the reaper comes to it: nothing that is asked for from now on belongs to it.
async fn present(inner: &Inner, session: &Session, busy: &BTreeSet<TerminalId>) -> Result<Session, Error> {
    let seat = inner.seat(&session.terminal).map(|seat| seat.session()).filter(|seated| seated.id == session.id);
    let last_used = seat.map_or(session.last_active_at, |seated| seated.last_active_at);
    let now = inner.core.present();
    let shown = session.present(last_used, busy.contains(&session.terminal), now.clone());
    let Some(reason) = shown.expiry(now.clone()).filter(|_| shown.status.is_live()) else { return Ok(shown) };
    if super::reap::is_busy(inner, &shown).await? {
        return Ok(shown);
    }
    Ok(shown.apply(Input::Close(reason), shown.expires_at(&now)).unwrap_or(shown))
}
