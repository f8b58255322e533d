//! A project as it is shown.

use crate::project::ConfigText;
use serde::Serialize;
use std::collections::BTreeSet;
use stead_model::plain::plain;
use stead_model::project::{Cloning, Project, Statistics};
use stead_model::retention::Level;
use stead_model::session::Session;
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ProjectView {
    id: String,
    prefix: String,
    description: String,
    tags: BTreeSet<String>,
    config: ConfigText,
    pinned: bool,
    /// `active`, `warned`, `marked` or `trashed`.
    status: &'static str,
    /// `warning`, `reminder` or `final`; null as long as nobody had to be warned.
    warning_level: Option<&'static str>,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    last_accessed_at: String,
    /// When it is marked if nobody uses it until then; a pinned one is not.
    #[schema(format = DateTime)]
    expires_at: String,
    #[schema(format = DateTime)]
    trashed_at: Option<String>,
    /// Null if no repository was asked for.
    clone: Option<CloneView>,
    /// The newest hundred, newest first.
    sessions: Vec<RecordView>,
    statistics: StatisticsView,
}

#[derive(Debug, Serialize, ToSchema)]
struct CloneView {
    /// `running`, `done` or `failed`.
    state: &'static str,
    /// The last that was heard while it runs, as git says it.
    progress: Option<String>,
    #[schema(format = DateTime)]
    ended_at: Option<String>,
    /// Why it failed.
    error: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct RecordView {
    session_id: String,
    thread_id: String,
    /// The token that opened it; null where nobody said.
    opened_by: Option<String>,
    #[schema(format = DateTime)]
    started_at: String,
    #[schema(format = DateTime)]
    ended_at: Option<String>,
    /// Null while it is open.
    duration_s: Option<u64>,
    close_reason: Option<&'static str>,
}

#[derive(Debug, Serialize, ToSchema)]
struct StatisticsView {
    sessions: u64,
    commands: u64,
    failed_commands: u64,
    run_seconds: f64,
    output_bytes: u64,
    /// As last measured; null before that.
    disk_bytes: Option<u64>,
    last_error: Option<LastError>,
}

#[derive(Debug, Serialize, ToSchema)]
struct LastError {
    message: String,
    #[schema(format = DateTime)]
    at: String,
}

impl ProjectView {
    pub(super) fn new(project: Project, sessions: Vec<Session>, progress: Option<String>) -> Self {
        let retention = &project.retention;
        let warning_level = retention.notified.map(Level::as_str);
        Self {
            id: project.id.to_string(),
            config: ConfigText::of(&project.config),
            pinned: retention.pinned,
            status: project.status().as_str(),
            warning_level,
            created_at: project.created_at.to_string(),
            last_accessed_at: retention.last_accessed_at.to_string(),
            expires_at: retention.expires_at.to_string(),
            trashed_at: retention.trashed_at.map(|at| at.to_string()),
            clone: clone_view(&project.clone, progress),
            sessions: sessions.into_iter().map(record).collect(),
            statistics: statistics(project.statistics),
            prefix: project.prefix,
            description: project.description,
            tags: project.tags,
        }
    }
}

fn clone_view(clone: &Cloning, progress: Option<String>) -> Option<CloneView> {
    let view = |state, ended_at, error| Some(CloneView { state, progress: None, ended_at, error });
    match clone {
        Cloning::Nothing => None,
        Cloning::Wanted => Some(CloneView { state: "running", progress, ended_at: None, error: None }),
        Cloning::Done(at) => view("done", Some(at.to_string()), None),
        Cloning::Failed { at, error } => view("failed", Some(at.to_string()), Some(error.clone())),
    }
}

fn record(session: Session) -> RecordView {
    RecordView {
        session_id: session.id.to_string(),
        thread_id: session.thread.to_string(),
        opened_by: session.opened_by.map(|token| token.to_string()),
        started_at: session.started_at.to_string(),
        ended_at: session.ended.map(|(at, _)| at.to_string()),
        duration_s: session.ended.map(|(at, _)| at.since(session.started_at).as_secs()),
        close_reason: session.ended.map(|(_, reason)| reason.as_str()),
    }
}

fn statistics(statistics: Statistics) -> StatisticsView {
    StatisticsView {
        sessions: statistics.sessions,
        commands: statistics.commands,
        failed_commands: statistics.failed_commands,
        run_seconds: statistics.run_time.as_secs_f64(),
        output_bytes: statistics.output_bytes,
        disk_bytes: statistics.disk_bytes,
        last_error: statistics
            .last_error
            .map(|(at, message)| LastError { message: plain(&message), at: at.to_string() }),
    }
}
