//! Leases, their events, and the instances that they have had.

use super::row::{Cols, Stored, Wrong, all, one, page, readable, signed, to_json};
use super::{Violation, changed, missing, statements, taken, violation};
use crate::store::{InstanceChange, LeaseEvent, Page, Result, StoreError};
use serde::{Deserialize, Serialize};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqlitePool;
use stead_model::clock::Timestamp;
use stead_model::ids::{InstanceId, LeaseId, ProviderName};
use stead_model::lease::{Caveat, Desired, Lease, Observed};
use stead_model::thread::Instance;

statements! {
    INSERT = "INSERT INTO leases (id, provider, workspace, desired, observed, observed_at, instance_id, needs_refresh,
                last_error, caveats, version, updated_at, created_at)
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
    GET = "SELECT * FROM leases WHERE id = $1";
    GET_BY_INSTANCE = "SELECT l.* FROM instances i JOIN leases l ON l.id = i.lease_id WHERE i.id = $1";
    LIST = "SELECT * FROM leases WHERE (created_at, id) < ($1, $2) ORDER BY created_at DESC, id DESC LIMIT $3";
    LIST_OF_PROVIDER = "SELECT * FROM leases WHERE provider = $4 AND (created_at, id) < ($1, $2)
                        ORDER BY created_at DESC, id DESC LIMIT $3";
    REPLACE = "UPDATE leases SET provider = $2, workspace = $3, desired = $4, observed = $5, observed_at = $6,
                 instance_id = $7, needs_refresh = $8, last_error = $9, caveats = $10, version = $11, updated_at = $12
               WHERE id = $1 AND version = $13";
    GO_ON = "UPDATE leases SET version = MAX(version, (SELECT MAX(version) FROM lease_events WHERE lease_id = $1))
             WHERE id = $1 AND EXISTS (SELECT 1 FROM lease_events WHERE lease_id = $1)";
    END_LIVE = "UPDATE instances SET ended_at = $2 WHERE lease_id = $1 AND ended_at IS NULL";
    RUNS = "SELECT 1 FROM leases WHERE id = $1 AND desired = 'running' AND instance_id = $2";
    EXISTS = "SELECT 1 FROM leases WHERE id = $1";
    DELETE = "DELETE FROM leases WHERE id = $1";
    INSERT_EVENT = "INSERT INTO lease_events (id, lease_id, version, kind, source, payload, error, at)
                    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    EVENTS = "SELECT * FROM lease_events WHERE lease_id = $1 AND version > $2 ORDER BY version LIMIT $3";
    INSERT_INSTANCE = "INSERT INTO instances (id, lease_id, provider, reference, started_at, last_seen_at, ended_at,
                         metadata)
                       VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    LIVE_OF_LEASE = "SELECT id FROM instances WHERE lease_id = $1 AND ended_at IS NULL";
    KNOW_INSTANCE = "UPDATE instances SET reference = $3, metadata = $4, last_seen_at = $5
                     WHERE id = $1 AND lease_id = $2";
    SEE_INSTANCE = "UPDATE instances SET last_seen_at = CASE WHEN last_seen_at < $3 THEN $3 ELSE last_seen_at END
                    WHERE id = $1 AND lease_id = $2";
    // It ends once: what is said again later changes nothing.
    END_INSTANCE = "UPDATE instances SET ended_at = COALESCE(ended_at, $3) WHERE id = $1 AND lease_id = $2";
    INSTANCE = "SELECT * FROM instances WHERE id = $1";
    LIVE_INSTANCES = "SELECT * FROM instances WHERE ended_at IS NULL AND (started_at, id) < ($1, $2)
                      ORDER BY started_at DESC, id DESC LIMIT $3";
}

const KIND: &str = "lease";
const EVENT: &str = "event";
const INSTANCE_KIND: &str = "instance";

#[derive(Serialize, Deserialize)]
struct CaveatRow {
    code: String,
    message: String,
}

impl Stored for Lease {
    const KIND: &'static str = KIND;
    const AGE: &'static str = "created_at";

    fn from_row(row: &Cols<'_>) -> Result<Self, Wrong> {
        let caveats: Vec<CaveatRow> = row.json("caveats")?;
        Ok(Self {
            id: row.id("id")?,
            provider: row.id("provider")?,
            workspace: row.text("workspace")?,
            desired: row.word("desired", Desired::parse)?,
            observed: row.word("observed", Observed::parse)?,
            observed_at: row.opt_moment("observed_at")?,
            instance: row.opt_id("instance_id")?,
            needs_refresh: row.number("needs_refresh")? != 0,
            last_error: row.opt_text("last_error")?,
            caveats: caveats.into_iter().map(|CaveatRow { code, message }| Caveat { code, message }).collect(),
            version: row.number("version")?,
            created_at: row.moment("created_at")?,
            updated_at: row.moment("updated_at")?,
        })
    }
}

impl Stored for LeaseEvent {
    const KIND: &'static str = EVENT;
    const AGE: &'static str = "at";

    fn from_row(row: &Cols<'_>) -> Result<Self, Wrong> {
        Ok(Self {
            id: row.id("id")?,
            lease: row.id("lease_id")?,
            version: row.number("version")?,
            kind: row.text("kind")?,
            source: row.text("source")?,
            payload: row.text("payload")?,
            error: row.opt_text("error")?,
            at: row.moment("at")?,
        })
    }
}

impl Stored for Instance {
    const KIND: &'static str = INSTANCE_KIND;
    const AGE: &'static str = "started_at";

    fn from_row(row: &Cols<'_>) -> Result<Self, Wrong> {
        Ok(Self {
            id: row.id("id")?,
            lease: row.id("lease_id")?,
            provider: row.id("provider")?,
            reference: row.text("reference")?,
            started_at: row.moment("started_at")?,
            last_seen_at: row.moment("last_seen_at")?,
            ended_at: row.opt_moment("ended_at")?,
            metadata: row.json("metadata")?,
        })
    }
}

type Query<'q> = sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>;

/// `$1` to `$12`, of which insert and replace mean the same.
fn bound<'q>(sql: &'static str, lease: &'q Lease) -> Query<'q> {
    let caveats = lease.caveats.iter();
    let caveats: Vec<_> =
        caveats.map(|caveat| CaveatRow { code: caveat.code.clone(), message: caveat.message.clone() }).collect();
    sqlx::query(sql)
        .bind(lease.id.as_str())
        .bind(lease.provider.as_str())
        .bind(&lease.workspace)
        .bind(lease.desired.as_str())
        .bind(lease.observed.as_str())
        .bind(lease.observed_at.map(|at| signed(at.0)))
        .bind(lease.instance.as_ref().map(InstanceId::as_str))
        .bind(i64::from(lease.needs_refresh))
        .bind(lease.last_error.as_deref())
        .bind(to_json(&caveats))
        .bind(signed(lease.version))
        .bind(signed(lease.updated_at.0))
}

pub(super) async fn insert(conn: &mut SqliteConnection, lease: &Lease) -> Result<()> {
    let query = bound(INSERT, lease).bind(signed(lease.created_at.0));
    query.execute(&mut *conn).await.map_err(|error| taken(error, KIND, lease.id.as_str()))?;
    // One of this id may have been here and lost its row: its log goes on, and what it ran is no longer its own.
    sqlx::query(GO_ON).bind(lease.id.as_str()).execute(&mut *conn).await?;
    let ended = sqlx::query(END_LIVE).bind(lease.id.as_str()).bind(signed(lease.created_at.0));
    ended.execute(conn).await?;
    Ok(())
}

pub(super) async fn get(pool: &SqlitePool, id: &LeaseId) -> Result<Option<Lease>> {
    one(pool, GET, &[id.as_str()]).await
}

pub(super) async fn of_instance(pool: &SqlitePool, instance: &InstanceId) -> Result<Option<Lease>> {
    one(pool, GET_BY_INSTANCE, &[instance.as_str()]).await
}

pub(super) async fn list(pool: &SqlitePool, provider: Option<&ProviderName>, at: &Page) -> Result<Vec<Lease>> {
    match provider {
        Some(provider) => page(pool, LIST_OF_PROVIDER, Some(provider.as_str()), at).await,
        None => page(pool, LIST, None, at).await,
    }
}

pub(super) async fn replace(
    conn: &mut SqliteConnection,
    before: &Lease,
    after: &Lease,
    event: &LeaseEvent,
    instance: &InstanceChange,
) -> Result<()> {
    let done = bound(REPLACE, after).bind(signed(before.version)).execute(&mut *conn).await?;
    changed(conn, done.rows_affected(), EXISTS, KIND, before.id.as_str()).await?;
    insert_event(conn, event).await?;
    change_instance(conn, &after.id, instance, event.at).await
}

/// Part of the transaction that opens a session: refuses an instance that is being paused or destroyed.
pub(super) async fn refuse_unless_running(
    conn: &mut SqliteConnection,
    lease: &LeaseId,
    instance: &InstanceId,
) -> Result<()> {
    let runs: Option<i64> =
        sqlx::query_scalar(RUNS).bind(lease.as_str()).bind(instance.as_str()).fetch_optional(conn).await?;
    match runs {
        Some(_) => Ok(()),
        None => Err(StoreError::Conflict { kind: KIND, id: lease.to_string() }),
    }
}

async fn insert_event(conn: &mut SqliteConnection, event: &LeaseEvent) -> Result<()> {
    let query = sqlx::query(INSERT_EVENT)
        .bind(event.id.as_str())
        .bind(event.lease.as_str())
        .bind(signed(event.version))
        .bind(&event.kind)
        .bind(&event.source)
        .bind(&event.payload)
        .bind(event.error.as_deref())
        .bind(signed(event.at.0));
    query.execute(conn).await.map_err(|error| match violation(&error) {
        Some(Violation::PrimaryKey) => StoreError::AlreadyExists { kind: EVENT, id: event.id.to_string() },
        // Another event has led to this version.
        Some(Violation::Unique) => StoreError::Conflict { kind: KIND, id: event.lease.to_string() },
        Some(Violation::ForeignKey) => missing(KIND, event.lease.as_str()),
        None => error.into(),
    })?;
    Ok(())
}

async fn change_instance(
    conn: &mut SqliteConnection,
    lease: &LeaseId,
    change: &InstanceChange,
    at: Timestamp,
) -> Result<()> {
    let (query, id) = match change {
        InstanceChange::Nothing => return Ok(()),
        InstanceChange::Started(instance) => return insert_instance(conn, instance).await,
        InstanceChange::Known(instance) => {
            let query = sqlx::query(KNOW_INSTANCE).bind(instance.id.as_str()).bind(lease.as_str());
            let query = query.bind(&instance.reference).bind(to_json(&instance.metadata));
            (query.bind(signed(instance.last_seen_at.0)), &instance.id)
        }
        InstanceChange::Seen(id) => (stamped(SEE_INSTANCE, id, lease, at), id),
        InstanceChange::Ended(id) => (stamped(END_INSTANCE, id, lease, at), id),
    };
    match query.execute(conn).await?.rows_affected() {
        0 => Err(missing(INSTANCE_KIND, id.as_str())),
        _ => Ok(()),
    }
}

fn stamped<'q>(sql: &'static str, id: &'q InstanceId, lease: &'q LeaseId, at: Timestamp) -> Query<'q> {
    sqlx::query(sql).bind(id.as_str()).bind(lease.as_str()).bind(signed(at.0))
}

async fn insert_instance(conn: &mut SqliteConnection, instance: &Instance) -> Result<()> {
    let query = sqlx::query(INSERT_INSTANCE)
        .bind(instance.id.as_str())
        .bind(instance.lease.as_str())
        .bind(instance.provider.as_str())
        .bind(&instance.reference)
        .bind(signed(instance.started_at.0))
        .bind(signed(instance.last_seen_at.0))
        .bind(instance.ended_at.map(|at| signed(at.0)))
        .bind(to_json(&instance.metadata));
    let Err(error) = query.execute(&mut *conn).await else { return Ok(()) };
    match violation(&error) {
        Some(Violation::PrimaryKey) => {
            Err(StoreError::AlreadyExists { kind: INSTANCE_KIND, id: instance.id.to_string() })
        }
        Some(Violation::Unique) => {
            let live = sqlx::query_scalar(LIVE_OF_LEASE).bind(instance.lease.as_str()).fetch_one(conn).await?;
            Err(StoreError::AlreadyExists { kind: INSTANCE_KIND, id: live })
        }
        Some(Violation::ForeignKey) => Err(missing(KIND, instance.lease.as_str())),
        None => Err(error.into()),
    }
}

pub(super) async fn events(
    pool: &SqlitePool,
    lease: &LeaseId,
    after_version: u64,
    limit: u32,
) -> Result<Vec<LeaseEvent>> {
    let query = sqlx::query(EVENTS).bind(lease.as_str()).bind(signed(after_version)).bind(i64::from(limit));
    Ok(readable(&query.fetch_all(pool).await?))
}

pub(super) async fn delete(conn: &mut SqliteConnection, id: &LeaseId) -> Result<()> {
    let done = sqlx::query(DELETE).bind(id.as_str()).execute(conn).await;
    match done {
        Ok(_) => Ok(()),
        Err(error) if violation(&error) == Some(Violation::ForeignKey) => {
            Err(StoreError::Conflict { kind: KIND, id: id.to_string() })
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn instance(pool: &SqlitePool, id: &InstanceId) -> Result<Option<Instance>> {
    one(pool, INSTANCE, &[id.as_str()]).await
}

pub(super) async fn live_instances(pool: &SqlitePool) -> Result<Vec<Instance>> {
    all(pool, LIVE_INSTANCES, None).await
}
