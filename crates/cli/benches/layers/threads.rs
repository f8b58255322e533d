//! What a hundred thousand threads in the store cost those who are at work: two servers side by side, one over a hundred
//! threads, one over a thousand times as many.
//!
//! The threads have been used: each has had a session and a command, its instance is gone and its state is kept. One of
//! each kind is made by the layers; the others are copies of its rows under other ids.

use crate::exec::layers;
use crate::rig::{Directory, Rig, run};
use crate::table::Table;
use crate::{Result, Task};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, SqliteConnection};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stead_model::ids::ThreadId;
use stead_server::lease::Force;

const SIZES: [u32; 2] = [100, 100_000];

/// `toy` has no processes: what is left is the layers and the store.
const KINDS: [&str; 2] = ["local", "toy"];

pub(crate) async fn measure(task: &Task) -> Result {
    let mut directories = Vec::new();
    let mut opening = [Table::new("threads, store opened"), Table::new("threads, server started")];
    for size in SIZES {
        eprintln!("threads: making {size}");
        let directory = Directory::new(&task.scratch)?;
        {
            let rig = Rig::over(Arc::clone(&directory), "local").await?;
            for kind in KINDS {
                used(&rig, kind).await?;
            }
            rig.stead.stop().await;
        }
        fill(&directory, size).await?;
        directories.push((size, directory));
    }
    let mut servers = Vec::new();
    for (size, directory) in directories {
        eprintln!("threads: starting over {size}");
        let rig = Rig::over(directory, "local").await?;
        for (table, taken) in opening.iter_mut().zip([rig.opened, rig.started]) {
            table.add(&row(size), taken);
        }
        servers.push((size, rig));
    }
    opening.into_iter().for_each(Table::print);
    exec(task, &servers).await?;
    for kind in KINDS {
        cold(task, &servers, kind).await?;
    }
    Ok(())
}

fn row(size: u32) -> String {
    format!("{size} threads")
}

/// A thread that somebody has worked in.
async fn used(rig: &Rig, kind: &str) -> Result {
    let thread = rig.thread_on(kind, kind).await?;
    let sandbox = rig.sandbox(&thread).await?;
    run(&sandbox, "export kept=1").await?;
    rig.stead.destroy(&thread, Force::Yes).await?;
    Ok(())
}

const TABLES: [&str; 8] =
    ["threads", "leases", "lease_events", "instances", "terminals", "terminal_states", "sessions", "commands"];

/// Columns that name something of the thread's own.
const NAMES: [&str; 8] =
    ["id", "thread_id", "default_terminal_id", "lease_id", "terminal_id", "session_id", "instance_id", "workspace"];

/// Copies everything until there are so many threads. The ids are spread over the indexes as random ones would be.
async fn fill(directory: &Directory, size: u32) -> Result {
    let copies = size / u32::try_from(KINDS.len())? - 1;
    let options = SqliteConnectOptions::new().filename(directory.database()).foreign_keys(true);
    let mut conn = options.connect().await?;
    let mut statements = vec!["BEGIN IMMEDIATE".to_owned(), "PRAGMA defer_foreign_keys = ON".to_owned()];
    for table in TABLES {
        let columns = columns(&mut conn, table).await?;
        let values = columns.iter().map(|column| {
            if NAMES.contains(&column.as_str()) { format!("{column} || {SUFFIX}") } else { column.clone() }
        });
        statements.push(format!(
            "WITH RECURSIVE copy (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copy WHERE n < {copies})
             INSERT INTO {table} ({}) SELECT {} FROM copy CROSS JOIN (SELECT * FROM {table})",
            columns.join(", "),
            values.collect::<Vec<_>>().join(", "),
        ));
    }
    statements.push("COMMIT".to_owned());
    for statement in statements {
        sqlx::query(AssertSqlSafe(statement)).execute(&mut conn).await?;
    }
    let threads: i64 = sqlx::query_scalar("SELECT count(*) FROM threads").fetch_one(&mut conn).await?;
    if threads == i64::from(size) { Ok(()) } else { Err(format!("made {threads} threads instead of {size}").into()) }
}

/// Scrambles the number of a copy: odd, so no two of them collide within 32 bits.
const SCRAMBLE: u64 = 2_654_435_761;
const SUFFIX: &str = "printf('%08x', n * 2654435761 % 4294967296)";

fn copy(kind: &str, number: u32) -> Result<ThreadId> {
    Ok(ThreadId::parse(&format!("{kind}{:08x}", u64::from(number) * SCRAMBLE % (1 << 32)))?)
}

async fn columns(conn: &mut SqliteConnection, table: &str) -> Result<Vec<String>> {
    Ok(sqlx::query_scalar("SELECT name FROM pragma_table_info($1)").bind(table).fetch_all(conn).await?)
}

/// Commands in one warm sandbox, with so many others in the store.
async fn exec(task: &Task, servers: &[(u32, Rig)]) -> Result {
    // Many short rounds: the machine's moods last longer than one, so both get their share of each.
    let rounds = task.effort.choose(80, 10);
    let thread = ThreadId::parse("warm")?;
    let mut sandboxes = Vec::new();
    for (size, rig) in servers {
        let sandbox = rig.sandbox(&thread).await?;
        run(&sandbox, "true").await?;
        sandboxes.push((row(*size), sandbox));
    }
    let mut tables =
        [("true", 100, Table::new("threads, `true`")), ("x=$RANDOM", 30, Table::new("threads, `x=$RANDOM`"))];
    eprintln!("threads: exec, {rounds} rounds");
    for round in 1..=rounds {
        for (text, samples, table) in &mut tables {
            // In turn who is first: what one leaves to be written in the background is the next one's cost.
            let order: Vec<_> =
                if round % 2 == 0 { sandboxes.iter().rev().collect() } else { sandboxes.iter().collect() };
            for (row, sandbox) in order {
                table.add_round(row, layers(sandbox, text, *samples).await?);
            }
        }
    }
    for (.., table) in tables {
        table.print();
    }
    Ok(())
}

/// A sandbox for a thread that is only in the store.
async fn cold(task: &Task, servers: &[(u32, Rig)], kind: &str) -> Result {
    // There are copies 1 to 49 of each kind in the smaller store.
    let samples: u32 = task.effort.choose(48, 8);
    let mut table = Table::new(format!("threads, cold on `{kind}`"));
    eprintln!("threads: cold on {kind}, {samples} times");
    for number in 1..=samples {
        for (size, rig) in servers {
            let per_kind = size / u32::try_from(KINDS.len())?;
            let thread = copy(kind, (per_kind / (samples + 1)).max(1) * number)?;
            table.add(&row(*size), opened(rig, &thread).await?);
        }
    }
    table.print();
    Ok(())
}

async fn opened(rig: &Rig, thread: &ThreadId) -> Result<Duration> {
    // It must be there already, or something else is measured.
    rig.stead.thread(thread).await?;
    let begun = Instant::now();
    rig.sandbox(thread).await?;
    let taken = begun.elapsed();
    rig.stead.destroy(thread, Force::Yes).await?;
    Ok(taken)
}
