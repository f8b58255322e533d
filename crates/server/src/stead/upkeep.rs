//! Keeping and removing: what [`stead_model::retention`] says is due is written, told, and done.
//!
//! ```text
//! timer, or somebody asks ─► each project, each thread without one ─► due? ─► row and notice, in one transaction
//!                                                                      │            └─► log, event, webhook (`tell`)
//!                                                                      └─ trash, purge: see `trash`
//! ```
//!
//! A change that somebody else made meanwhile (an access, a pin) makes the transaction fail, and it is looked again.

use super::{Inner, Stead, trash};
use crate::error::Error;
use crate::lease::Force;
use crate::store::upkeep::Telling;
use crate::store::{Page, StoreError};
use crate::webhook::Webhook;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use stead_model::clock::Timestamp;
use stead_model::ids::{EventId, ProjectId, SnapshotId, ThreadId};
use stead_model::notice::{Notice, Subject, What};
use stead_model::project::{Filter, Project, Status};
use stead_model::retention::{DAY, Due, Moment, Retention, Rules};
use stead_model::thread::Thread;

/// How often the clock is looked at, and whether it is time.
const TICK: Duration = Duration::from_mins(1);
/// A clock that goes ahead by more than this has leapt; by less it was put right.
const LEAP: Duration = Duration::from_mins(10);
/// How long it is remembered what was said.
const REMEMBER: Duration = Duration::from_hours(90 * 24);

#[derive(Debug, Clone)]
pub struct UpkeepSettings {
    /// Whether there is a timer at all; where tests decide what happens when, there is none.
    pub timer: bool,
    /// Whether it happens by itself. Asked for it happens all the same, and the trash is emptied either way.
    pub enabled: bool,
    pub rules: Rules,
    pub every: Duration,
    /// Of snapshots that don't say; absent: they stay as long as their project.
    pub snapshot_ttl: Option<Duration>,
    pub webhook: Option<Webhook>,
}

impl Default for UpkeepSettings {
    fn default() -> Self {
        Self {
            timer: false,
            enabled: true,
            rules: Rules { warning_days: 3, trash: DAY },
            every: DAY,
            snapshot_ttl: None,
            webhook: None,
        }
    }
}

/// What became, or would become, of projects or of threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steps<Id> {
    pub warned: Vec<Id>,
    pub marked: Vec<Id>,
    pub deleted: Vec<Id>,
    /// Gone for good.
    pub purged: Vec<Id>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cleaned {
    pub projects: Steps<ProjectId>,
    pub threads: Steps<ThreadId>,
    pub snapshots: Vec<SnapshotId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Really,
    /// Changes nothing, and tells what would happen.
    Dry,
}

/// Which steps a round takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    /// Only what was deleted long enough ago.
    Trash,
}

impl<Id> Default for Steps<Id> {
    fn default() -> Self {
        Self { warned: Vec::new(), marked: Vec::new(), deleted: Vec::new(), purged: Vec::new() }
    }
}

impl<Id: Clone> Steps<Id> {
    fn note(&mut self, id: &Id, due: Due) {
        let list = match due {
            Due::Say(_) => &mut self.warned,
            Due::Mark => &mut self.marked,
            Due::Trash => &mut self.deleted,
            Due::Purge => &mut self.purged,
            Due::Keep | Due::Recall | Due::Wait => return,
        };
        list.push(id.clone());
    }
}

/// Whether the clock leaps: compared with one that nobody sets.
#[derive(Debug, Default)]
pub(super) struct ClockWatch {
    last: Option<(Timestamp, Duration)>,
    leapt_at: Option<Timestamp>,
}

impl ClockWatch {
    fn look(&mut self, now: Timestamp, steady: Duration) -> Moment {
        if let Some((then, before)) = self.last {
            let gone_by = steady.saturating_sub(before);
            if now.since(then) > gone_by + LEAP {
                tracing::warn!(from = %then, to = %now, "the clock has leapt forward: what waits, waits again");
                self.leapt_at = Some(now);
            }
        }
        self.last = Some((now, steady));
        Moment { now, leapt_at: self.leapt_at }
    }
}

impl Stead {
    /// How long a thread without a project is kept; one in a project is kept with it.
    pub async fn thread_retention(&self, thread: &Thread) -> Result<Option<Retention>, Error> {
        if thread.project.is_some() {
            return Ok(None);
        }
        let said = self.inner.core.store.kept_thread(&thread.id).await?;
        Ok(Some(of_thread(&self.inner, thread, said)))
    }

    /// Looks through everything now.
    pub async fn clean(&self, mode: Mode) -> Result<Cleaned, Error> {
        let inner = Arc::clone(&self.inner);
        let work = async move { round(&inner, mode, Scope::All, "api").await };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }
}

/// Rounds for as long as the server lives.
pub(super) async fn every(inner: Arc<Inner>) {
    let tick = TICK.min(inner.upkeep.every);
    loop {
        if let Err(error) = look(&inner).await {
            tracing::error!(%error, "projects could not be looked through");
        }
        tokio::select! {
            biased;
            () = inner.core.stop.cancelled() => return,
            () = tokio::time::sleep(tick) => {}
        }
    }
}

async fn look(inner: &Arc<Inner>) -> Result<(), Error> {
    let before = inner.clock_watch.lock().unwrap_or_else(PoisonError::into_inner).leapt_at;
    let moment = inner.moment();
    let last = inner.core.store.last_cleanup().await?;
    // One that lies in the future is by a clock that was set back.
    let due = last.is_none_or(|last| last > moment.now || moment.now.since(last) >= inner.upkeep.every);
    if due || moment.leapt_at != before {
        let scope = if inner.upkeep.enabled { Scope::All } else { Scope::Trash };
        round(inner, Mode::Really, scope, "cleanup").await?;
    }
    Ok(())
}

impl Inner {
    pub(super) fn moment(&self) -> Moment {
        let mut watch = self.clock_watch.lock().unwrap_or_else(PoisonError::into_inner);
        watch.look(self.core.clock.shown(), self.core.clock.ticks())
    }

    pub(super) fn notice(&self, subject: Subject, what: What, kept: &Retention, source: &str) -> Notice {
        Notice {
            id: EventId::made_of(self.core.entropy()),
            subject,
            what,
            at: self.core.now(),
            expires_at: kept.expires_at,
            source: source.to_owned(),
        }
    }

    pub(super) fn telling<'a>(&self, notice: &'a Notice) -> Telling<'a> {
        Telling { notice, outside: self.upkeep.webhook.is_some() }
    }

    /// Written: now it may be heard.
    pub(super) fn told(&self, notice: &Notice) {
        let (kind, id, what) = (notice.subject.kind(), notice.subject.id(), notice.what.as_str());
        tracing::warn!(kind, id, what, expires_at = %notice.expires_at, source = notice.source, "retention");
        self.untold.notify_one();
    }
}

async fn round(inner: &Arc<Inner>, mode: Mode, scope: Scope, source: &'static str) -> Result<Cleaned, Error> {
    // One at a time: two would tell of the same.
    let _alone = inner.cleaning.lock().await;
    let moment = inner.moment();
    let mut cleaned = Cleaned::default();
    for project in all_projects(inner).await? {
        let id = project.id.clone();
        if let Err(error) = look_at(inner, project, mode, scope, source, moment, &mut cleaned.projects).await {
            // One that can't be dealt with must not keep the others.
            tracing::error!(%error, project = %id, "could not be looked after");
        }
    }
    for thread in inner.core.store.threads(None, &Page::all()).await? {
        if thread.project.is_some() || scope == Scope::Trash {
            continue;
        }
        let id = thread.id.clone();
        if let Err(error) = look_at_thread(inner, thread, mode, source, moment, &mut cleaned.threads).await {
            tracing::error!(%error, thread = %id, "could not be looked after");
        }
    }
    cleaned.snapshots = super::snapshots::expire(inner, mode, moment.now).await?;
    if mode == Mode::Really {
        let long_ago = Timestamp(moment.now.0.saturating_sub(u64::try_from(REMEMBER.as_millis()).unwrap_or(u64::MAX)));
        inner.core.store.forget_notices(long_ago).await?;
        inner.core.store.cleaned_up(moment.now).await?;
    }
    Ok(cleaned)
}

async fn all_projects(inner: &Inner) -> Result<Vec<Project>, Error> {
    let trashed = Filter { status: Some(Status::Trashed), ..Filter::default() };
    let mut projects = inner.core.store.projects(&Filter::default(), &Page::all()).await?;
    projects.extend(inner.core.store.projects(&trashed, &Page::all()).await?);
    Ok(projects)
}

async fn look_at(
    inner: &Arc<Inner>,
    mut project: Project,
    mode: Mode,
    scope: Scope,
    source: &'static str,
    moment: Moment,
    steps: &mut Steps<ProjectId>,
) -> Result<(), Error> {
    loop {
        let in_use = trash::in_use(inner, &project.id).await?.is_some();
        let Some(due) = project.retention.due(inner.upkeep.rules, in_use, moment) else { return Ok(()) };
        if scope == Scope::Trash && project.retention.trashed_at.is_none() {
            return Ok(());
        }
        if mode == Mode::Dry {
            steps.note(&project.id, due);
            if due == Due::Purge {
                return Ok(());
            }
            project.retention = project.retention.apply(due, moment.now);
            continue;
        }
        match due {
            Due::Trash => match trash::trash(inner, &project.id, Force::No, source).await {
                Ok(()) => {
                    steps.note(&project.id, due);
                    return Ok(());
                }
                // Somebody came to work in it.
                Err(Error::Conflict(_)) => return Ok(()),
                Err(error) => return Err(error),
            },
            Due::Purge => {
                trash::purge(inner, &project.id, moment, source).await?;
                steps.note(&project.id, due);
                return Ok(());
            }
            Due::Say(_) | Due::Mark | Due::Keep | Due::Recall | Due::Wait => {
                if step(inner, &project, due, source).await? {
                    steps.note(&project.id, due);
                }
                let Some(again) = inner.core.store.project(&project.id).await? else { return Ok(()) };
                project = again;
            }
        }
    }
}

/// Whether it was taken: somebody may have changed the project meanwhile.
async fn step(inner: &Inner, project: &Project, due: Due, source: &str) -> Result<bool, Error> {
    let mut after = project.clone();
    after.retention = project.retention.apply(due, inner.core.clock.shown());
    after.version += 1;
    let what = match due {
        Due::Say(level) => Some(What::Said(level)),
        Due::Mark => Some(What::Marked),
        Due::Trash | Due::Purge | Due::Keep | Due::Recall | Due::Wait => None,
    };
    let subject = Subject::Project(project.id.clone());
    let notice = what.map(|what| inner.notice(subject, what, &after.retention, source));
    let telling = notice.as_ref().map(|notice| inner.telling(notice));
    match inner.core.store.keep_project(project, &after, telling, u32::MAX).await {
        Ok(()) => {
            inner.projects.usage.forget(&project.id);
            if let Some(notice) = &notice {
                inner.told(notice);
            }
            super::projects::mirror(inner, &after).await;
            Ok(true)
        }
        Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// How long a thread that stands alone is kept, and what was said of it.
pub(super) fn of_thread(inner: &Inner, thread: &Thread, said: Option<Retention>) -> Retention {
    let fresh = Retention::new(inner.projects.settings.keep_days, thread.last_active_at);
    match said {
        Some(said) => {
            Retention { notified: said.notified, marked_at: said.marked_at, trashed_at: said.trashed_at, ..fresh }
        }
        None => fresh,
    }
}

async fn is_thread_in_use(inner: &Inner, thread: &Thread) -> Result<bool, Error> {
    let store = &inner.core.store;
    super::reap::write_down_all(inner, |seat| seat.thread.id == thread.id).await?;
    for terminal in store.terminals_of_thread(&thread.id).await? {
        let session = store.live_session(&terminal.id).await?;
        if session.is_some_and(|session| session.expiry(inner.core.present()).is_none()) {
            return Ok(true);
        }
    }
    inner.ledger.flush().await;
    Ok(store.open_commands().await?.iter().any(|command| command.thread == thread.id))
}

async fn look_at_thread(
    inner: &Arc<Inner>,
    thread: Thread,
    mode: Mode,
    source: &'static str,
    moment: Moment,
    steps: &mut Steps<ThreadId>,
) -> Result<(), Error> {
    let store = &inner.core.store;
    let mut kept = of_thread(inner, &thread, store.kept_thread(&thread.id).await?);
    if is_thread_in_use(inner, &thread).await? {
        return Ok(());
    }
    while let Some(due) = kept.due(inner.upkeep.rules, false, moment) {
        kept = kept.apply(due, moment.now);
        if mode == Mode::Dry {
            steps.note(&thread.id, due);
            if due == Due::Purge {
                return Ok(());
            }
            continue;
        }
        let what = match due {
            Due::Say(level) => Some(What::Said(level)),
            Due::Mark => Some(What::Marked),
            Due::Trash => Some(What::Trashed),
            Due::Purge => Some(What::Purged),
            Due::Keep | Due::Recall | Due::Wait => None,
        };
        let subject = Subject::Thread(thread.id.clone());
        let notice = what.map(|what| inner.notice(subject, what, &kept, source));
        let telling = notice.as_ref().map(|notice| inner.telling(notice));
        match store.keep_thread(&thread.id, &kept, telling).await {
            Ok(()) => {}
            // It is used again, or gone.
            Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        inner.forget_touch(&thread.id);
        if let Some(notice) = &notice {
            inner.told(notice);
        }
        steps.note(&thread.id, due);
        if due == Due::Purge {
            return super::threads::delete_unused(inner, &thread.id, thread.last_active_at).await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_leaps_is_noticed_and_one_that_is_put_right_is_not() {
        let mut watch = ClockWatch::default();
        let at = |minutes: u64| Timestamp(1_000_000_000 + minutes * 60_000);
        let steady = Duration::from_mins;
        assert_eq!(watch.look(at(0), steady(0)).leapt_at, None);
        assert_eq!(watch.look(at(60), steady(60)).leapt_at, None);
        assert_eq!(watch.look(at(65), steady(61)).leapt_at, None);
        assert_eq!(watch.look(at(600), steady(62)).leapt_at, Some(at(600)));
        assert_eq!(watch.look(at(660), steady(122)).leapt_at, Some(at(600)), "it is remembered");
        assert_eq!(watch.look(at(0), steady(182)).leapt_at, Some(at(600)));
    }
}
