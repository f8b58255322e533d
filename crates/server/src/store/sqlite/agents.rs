//! Terminal agents.

use super::row::{Cols, Stored, Wrong, page, parse, readable, signed, to_json};
use super::{SqliteStore, statements, taken, write};
use crate::store::{
    AgentChange, AgentEvent, AgentRun, AgentSession, AgentStore, Page, Result, RunLease, RunStatus, StoreError, Worth,
};
use async_trait::async_trait;
use sqlx::SqliteConnection;
use stead_agent::{Event, SessionKey};
use stead_model::ids::{AgentId, RunId};

statements! {
    INSERT = "INSERT INTO agent_sessions (id, provider, workspace, model, project_id, thread_id, conversation, resume,
                process, run_id, run_until, version, created_at, last_used_at, policy)
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)";
    GET = "SELECT * FROM agent_sessions WHERE id = $1";
    BY_KEY = "SELECT * FROM agent_sessions WHERE workspace = $1 AND provider = $2 AND model = $3";
    OF_WORKSPACE = "SELECT * FROM agent_sessions WHERE workspace = $1 ORDER BY provider, model";
    LIVE = "SELECT * FROM agent_sessions INDEXED BY agent_sessions_live WHERE (process IS NOT NULL OR run_id IS NOT NULL) AND id > ''";
    LIST = "SELECT * FROM agent_sessions WHERE (created_at, id) < ($1, $2)
            ORDER BY created_at DESC, id DESC LIMIT $3";
    DELETE = "DELETE FROM agent_sessions WHERE id = $1";
    REPLACE = "UPDATE agent_sessions SET project_id = $3, thread_id = $4, conversation = $5, resume = $6, process = $7,
                 run_id = $8, run_until = $9, version = $10, last_used_at = $11, policy = $12 WHERE id = $1 AND version = $2";
    EXISTS = "SELECT 1 FROM agent_sessions WHERE id = $1";
    PUT_RUN = "INSERT INTO agent_runs (id, session_id, conversation, message, policy, status, last_seq, created_at,
                 started_at, ended_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    SAVE_RUN = "INSERT INTO agent_runs (id, session_id, conversation, message, policy, status, last_seq, created_at,
                  started_at, ended_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
                ON CONFLICT (id) DO UPDATE SET status = excluded.status, last_seq = excluded.last_seq,
                  policy = excluded.policy, started_at = excluded.started_at, ended_at = excluded.ended_at";
    GET_RUN = "SELECT * FROM agent_runs WHERE id = $1";
    OPEN_RUNS = "SELECT * FROM agent_runs INDEXED BY agent_runs_open
                 WHERE session_id = $1 AND status IN ('queued', 'running') ORDER BY created_at, id";
    RUNS = "SELECT * FROM agent_runs WHERE session_id = $1 AND conversation = $2 ORDER BY created_at, id";
    PUT_EVENT = "INSERT INTO agent_events (run_id, seq, at, event) VALUES ($1, $2, $3, $4)";
    EVENTS = "SELECT * FROM agent_events WHERE run_id = $1 AND seq > $2 ORDER BY seq LIMIT $3";
}

const KIND: &str = "agent session";

impl Stored for AgentSession {
    const KIND: &'static str = KIND;
    const AGE: &'static str = "created_at";

    fn from_row(row: &Cols<'_>) -> Result<Self, Wrong> {
        let run = match (row.opt_id::<RunId>("run_id")?, row.opt_moment("run_until")?) {
            (Some(run), Some(until)) => Some(RunLease { run, until }),
            _ => None,
        };
        Ok(Self {
            id: row.id("id")?,
            key: SessionKey {
                provider: row.text("provider")?,
                workspace: row.text("workspace")?,
                model: row.text("model")?,
            },
            project: row.opt_id("project_id")?,
            thread: row.id("thread_id")?,
            conversation: row.number("conversation")?,
            resume: row.opt_text("resume")?,
            process: row.opt_text("process")?.map(|_| row.json("process")).transpose()?,
            run,
            policy: row.json("policy")?,
            version: row.number("version")?,
            created_at: row.moment("created_at")?,
            last_used_at: row.moment("last_used_at")?,
        })
    }
}

impl Stored for AgentRun {
    const KIND: &'static str = "run";
    const AGE: &'static str = "created_at";

    fn from_row(row: &Cols<'_>) -> Result<Self, Wrong> {
        Ok(Self {
            id: row.id("id")?,
            session: row.id("session_id")?,
            conversation: row.number("conversation")?,
            message: row.text("message")?,
            policy: row.json("policy")?,
            status: row.word("status", |word| RunStatus::ALL.into_iter().find(|status| status.name() == word))?,
            last_seq: row.number("last_seq")?,
            created_at: row.moment("created_at")?,
            started_at: row.opt_moment("started_at")?,
            ended_at: row.opt_moment("ended_at")?,
        })
    }
}

impl Stored for AgentEvent {
    const KIND: &'static str = "run event";
    const AGE: &'static str = "seq";

    fn from_row(row: &Cols<'_>) -> Result<Self, Wrong> {
        let event: Event = row.json("event")?;
        Ok(Self { run: row.id("run_id")?, seq: row.number("seq")?, at: row.moment("at")?, event })
    }

    fn name(row: &Cols<'_>) -> String {
        row.text("run_id").unwrap_or_else(|_| "?".to_owned())
    }
}

async fn insert(conn: &mut SqliteConnection, session: &AgentSession) -> Result<()> {
    let query = sqlx::query(INSERT)
        .bind(session.id.as_str())
        .bind(&session.key.provider)
        .bind(&session.key.workspace)
        .bind(&session.key.model)
        .bind(session.project.as_ref().map(ToString::to_string))
        .bind(session.thread.as_str())
        .bind(signed(session.conversation))
        .bind(&session.resume)
        .bind(session.process.as_ref().map(to_json))
        .bind(session.run.as_ref().map(|lease| lease.run.to_string()))
        .bind(session.run.as_ref().map(|lease| signed(lease.until.0)))
        .bind(signed(session.version))
        .bind(signed(session.created_at.0))
        .bind(signed(session.last_used_at.0))
        .bind(to_json(&session.policy));
    query.execute(conn).await.map_err(|error| taken(error, KIND, session.id.as_str()))?;
    Ok(())
}

async fn replace(conn: &mut SqliteConnection, before: &AgentSession, after: &AgentSession) -> Result<()> {
    let query = sqlx::query(REPLACE)
        .bind(before.id.as_str())
        .bind(signed(before.version))
        .bind(after.project.as_ref().map(ToString::to_string))
        .bind(after.thread.as_str())
        .bind(signed(after.conversation))
        .bind(&after.resume)
        .bind(after.process.as_ref().map(to_json))
        .bind(after.run.as_ref().map(|lease| lease.run.to_string()))
        .bind(after.run.as_ref().map(|lease| signed(lease.until.0)))
        .bind(signed(after.version))
        .bind(signed(after.last_used_at.0))
        .bind(to_json(&after.policy));
    let rows = query.execute(&mut *conn).await?.rows_affected();
    super::changed(conn, rows, EXISTS, KIND, before.id.as_str()).await
}

async fn put_run(conn: &mut SqliteConnection, sql: &'static str, run: &AgentRun) -> Result<()> {
    let query = sqlx::query(sql)
        .bind(run.id.as_str())
        .bind(run.session.as_str())
        .bind(signed(run.conversation))
        .bind(&run.message)
        .bind(to_json(&run.policy))
        .bind(run.status.name())
        .bind(signed(run.last_seq))
        .bind(signed(run.created_at.0))
        .bind(run.started_at.map(|at| signed(at.0)))
        .bind(run.ended_at.map(|at| signed(at.0)));
    query.execute(conn).await.map_err(|error| taken(error, "run", run.id.as_str()))?;
    Ok(())
}

#[async_trait]
impl AgentStore for SqliteStore {
    async fn put_agent_session(&self, session: &AgentSession) -> Result<()> {
        write!(self, synced, |tx| insert(&mut tx, session).await?)
    }

    async fn agent_session(&self, id: &AgentId) -> Result<Option<AgentSession>> {
        super::row::one(&self.readers, GET, &[id.as_str()]).await
    }

    async fn agent_session_by_key(&self, key: &SessionKey) -> Result<Option<AgentSession>> {
        super::row::one(&self.readers, BY_KEY, &[&key.workspace, &key.provider, &key.model]).await
    }

    async fn agent_sessions(&self, at: &Page) -> Result<Vec<AgentSession>> {
        page(&self.readers, LIST, None, at).await
    }

    async fn agent_sessions_of_workspace(&self, workspace: &str) -> Result<Vec<AgentSession>> {
        // What can't be read is told: a reset must not pass over one.
        let rows = sqlx::query(OF_WORKSPACE).bind(workspace).fetch_all(&self.readers).await?;
        rows.iter().map(parse).collect()
    }

    async fn live_agent_sessions(&self) -> Result<Vec<AgentSession>> {
        Ok(readable(&sqlx::query(LIVE).fetch_all(&self.readers).await?))
    }

    async fn delete_agent_session(&self, id: &AgentId) -> Result<()> {
        write!(self, synced, |tx| {
            sqlx::query(DELETE).bind(id.as_str()).execute(&mut *tx).await?;
        })
    }

    async fn put_agent_run(&self, run: &AgentRun) -> Result<()> {
        write!(self, synced, |tx| put_run(&mut tx, PUT_RUN, run).await?)
    }

    async fn agent_run(&self, id: &RunId) -> Result<Option<AgentRun>> {
        super::row::one(&self.readers, GET_RUN, &[id.as_str()]).await
    }

    async fn open_agent_runs(&self, session: &AgentId) -> Result<Vec<AgentRun>> {
        Ok(readable(&sqlx::query(OPEN_RUNS).bind(session.as_str()).fetch_all(&self.readers).await?))
    }

    async fn agent_runs(&self, session: &AgentId, conversation: u64) -> Result<Vec<AgentRun>> {
        let query = sqlx::query(RUNS).bind(session.as_str()).bind(signed(conversation));
        Ok(readable(&query.fetch_all(&self.readers).await?))
    }

    async fn agent_events(&self, run: &RunId, after: u64, limit: u32) -> Result<Vec<AgentEvent>> {
        let query = sqlx::query(EVENTS).bind(run.as_str()).bind(signed(after)).bind(i64::from(limit));
        let rows = query.fetch_all(&self.readers).await?;
        // One that can't be read must not be passed over: numbers have no holes.
        rows.iter().map(parse).collect()
    }

    async fn change_agents(&self, change: &AgentChange) -> Result<()> {
        let unsaid = change.events.is_empty() && change.runs.is_empty();
        match change.worth {
            Worth::Repeatable if !unsaid => write!(self, behind, |tx| apply(&mut tx, change).await?),
            Worth::Repeatable | Worth::Promised => write!(self, synced, |tx| apply(&mut tx, change).await?),
        }
    }
}

async fn apply(conn: &mut SqliteConnection, change: &AgentChange) -> Result<()> {
    for (before, after) in &change.sessions {
        replace(conn, before, after).await?;
    }
    for run in &change.runs {
        put_run(conn, SAVE_RUN, run).await?;
    }
    for event in &change.events {
        let query = sqlx::query(PUT_EVENT)
            .bind(event.run.as_str())
            .bind(signed(event.seq))
            .bind(signed(event.at.0))
            .bind(to_json(&event.event));
        query.execute(&mut *conn).await.map_err(|error| match super::violation(&error) {
            Some(_) => StoreError::Conflict { kind: "run", id: event.run.to_string() },
            None => error.into(),
        })?;
    }
    Ok(())
}
