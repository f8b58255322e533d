//! Rows of a database with lost pages, moved into a fresh one: each that can be read, and none that names what is gone.

use super::mend::Mended;
use super::{SqliteStore, sums};
use crate::store::Result;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row, SqliteConnection};
use std::path::{Path, PathBuf};

/// What takes the place of a page that is lost: a leaf without rows where it was one of a tree, nothing elsewhere. The first
/// page begins with the header of the file, without which nothing else can be read.
pub(super) fn emptied(page: &[u8], number: u32) -> Vec<u8> {
    let mut empty = vec![0; page.len()];
    let leaf = match page.first() {
        Some(0) | None => None,
        // Of an index, or of a table that is one.
        Some(2 | 10) => Some(10),
        Some(_) => Some(13),
    };
    if let (Some(leaf), Some([kind, _, _, _, _, high, low, ..])) =
        (leaf.filter(|_| number > 1), empty.first_chunk_mut::<8>())
    {
        *kind = leaf;
        // Where its content begins: at its end. 65536 is written as 0.
        let end = u16::try_from(page.len()).unwrap_or(0);
        [*high, *low] = end.to_be_bytes();
    }
    empty
}

pub(super) async fn count(conn: &mut SqliteConnection, table: &str) -> sqlx::Result<u64> {
    let sql = format!("SELECT count(*) FROM {table} NOT INDEXED");
    let count: i64 = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(conn).await?;
    Ok(count.unsigned_abs())
}

/// The path of the fresh one.
pub(super) async fn rows(damaged: &Path, mended: &mut Mended) -> Result<PathBuf> {
    let fresh = sums::beside(damaged, ".fresh");
    SqliteStore::open(&fresh).await?.close().await?;
    let mut conn = SqliteConnectOptions::new().filename(&fresh).foreign_keys(false).connect().await?;
    let attach = sqlx::query("ATTACH DATABASE $1 AS old").bind(damaged.to_string_lossy().into_owned());
    let opened = match attach.execute(&mut conn).await {
        Ok(_) => tables(&mut conn, "old").await,
        Err(error) => Err(error),
    };
    if let Err(error) = opened {
        mended.lost.push(format!("all rows: nothing of the database can be read ({error})"));
        mended.is_empty = true;
        conn.close().await?;
        return Ok(fresh);
    }
    let mut tx = conn.begin().await?;
    for table in tables(&mut tx, "main").await? {
        if let Err(error) = copy(&mut tx, &table, mended).await {
            mended.lost.push(format!("rows of `{table}`, behind the last that could be read ({error})"));
        }
    }
    bring_threads_back(&mut tx, mended).await?;
    drop_orphans(&mut tx, mended).await?;
    tx.commit().await?;
    conn.close().await?;
    Ok(fresh)
}

async fn tables(conn: &mut SqliteConnection, of: &str) -> sqlx::Result<Vec<String>> {
    let sql = format!(
        "SELECT name FROM {of}.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
         AND name <> '_sqlx_migrations' ORDER BY name"
    );
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(conn).await
}

/// Row by row, so that one that can't be read takes no other with it.
async fn copy(conn: &mut SqliteConnection, table: &str, mended: &mut Mended) -> sqlx::Result<()> {
    let columns: Vec<String> =
        sqlx::query_scalar("SELECT name FROM pragma_table_info($1)").bind(table).fetch_all(&mut *conn).await?;
    let columns = columns.join(", ");
    let take = format!("INSERT OR REPLACE INTO main.{table} ({columns}) SELECT {columns} FROM old.{table} NOT INDEXED");
    let (mut whole, mut lost) = (0, 0_u64);
    if has_no_rowid(conn, table).await? {
        whole = sqlx::query(AssertSqlSafe(take)).execute(&mut *conn).await?.rows_affected();
    } else {
        let take = format!("{take} WHERE rowid = $1");
        let mut at = i64::MIN;
        while let Some(row) = next_row(conn, table, at).await? {
            at = row;
            match sqlx::query(AssertSqlSafe(take.clone())).bind(row).execute(&mut *conn).await {
                Ok(_) => whole += 1,
                Err(_) => lost += 1,
            }
        }
    }
    if whole > 0 {
        mended.mended.push(format!("{whole} rows of `{table}` saved"));
    }
    if lost > 0 {
        mended.lost.push(format!("{lost} rows of `{table}` that can't be read"));
    }
    Ok(())
}

async fn has_no_rowid(conn: &mut SqliteConnection, table: &str) -> sqlx::Result<bool> {
    let sql = "SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = $1";
    let without: Option<i64> = sqlx::query_scalar(sql).bind(table).fetch_optional(conn).await?;
    Ok(without == Some(1))
}

async fn next_row(conn: &mut SqliteConnection, table: &str, after: i64) -> sqlx::Result<Option<i64>> {
    let sql = format!("SELECT rowid FROM old.{table} NOT INDEXED WHERE rowid > $1 ORDER BY rowid LIMIT 1");
    sqlx::query_scalar(AssertSqlSafe(sql)).bind(after).fetch_optional(conn).await
}

/// What a thread is can be told from its terminal and that one's lease.
async fn bring_threads_back(conn: &mut SqliteConnection, mended: &mut Mended) -> sqlx::Result<()> {
    let ids: Vec<String> = sqlx::query_scalar(
        "INSERT INTO threads (id, project_id, provider, default_terminal_id, lease_id, workspace, idle_timeout,
             max_duration, created_at, last_active_at)
         SELECT t.thread_id, (SELECT id FROM projects WHERE id = l.workspace), l.provider, t.id, t.lease_id, l.workspace,
             3600000, 86400000, t.created_at, t.updated_at
         FROM terminals t JOIN leases l ON l.id = t.lease_id
         WHERE t.name = 'default' AND t.thread_id NOT IN (SELECT id FROM threads) RETURNING id",
    )
    .fetch_all(conn)
    .await?;
    mended.mended.extend(
        ids.iter().map(|id| format!("thread `{id}` brought back from its terminal; its policy is the usual one")),
    );
    Ok(())
}

/// Rows that name others which are gone would be refused by every later write.
async fn drop_orphans(conn: &mut SqliteConnection, mended: &mut Mended) -> sqlx::Result<()> {
    loop {
        let orphans = sqlx::query("PRAGMA foreign_key_check").fetch_all(&mut *conn).await?;
        if orphans.is_empty() {
            return Ok(());
        }
        for orphan in orphans {
            let (table, row, parent): (String, i64, String) =
                (orphan.try_get(0)?, orphan.try_get(1)?, orphan.try_get(2)?);
            sqlx::query(AssertSqlSafe(format!("DELETE FROM {table} WHERE rowid = $1")))
                .bind(row)
                .execute(&mut *conn)
                .await?;
            mended.lost.push(format!("row {row} of `{table}`: what it belongs to in `{parent}` is gone"));
        }
    }
}
