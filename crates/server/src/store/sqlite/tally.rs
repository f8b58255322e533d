//! What commands add to the counts of their projects, for many at once: what was known of them before they were saved is
//! compared with what is known then.

use super::row::{parse, signed, to_json};
use super::statements;
use crate::store::Result;
use sqlx::{Row, SqliteConnection};
use std::collections::{BTreeMap, HashMap};
use stead_model::command::Command;
use stead_model::project::Tally;

statements! {
    PROJECTS = "SELECT id, project_id FROM threads
                WHERE id IN (SELECT value FROM json_each($1)) AND project_id IS NOT NULL";
    KNOWN = "SELECT * FROM commands WHERE id IN (SELECT value FROM json_each($1))";
    COUNT = "UPDATE projects SET commands = commands + $2, failed_commands = failed_commands + $3,
               run_ms = run_ms + $4, output_bytes = output_bytes + $5
             WHERE id = $1";
    FAILED = "UPDATE projects SET last_error_at = $2, last_error = $3 WHERE id = $1";
}

/// What was known of commands that are about to be saved and count.
pub(super) struct Before {
    /// The ids of those that count.
    ids: String,
    /// The projects of their threads.
    projects: HashMap<String, String>,
    commands: Known,
}

/// By their ids. One that can't be read is there without its content: it was counted by whoever wrote it.
pub(super) type Known = HashMap<String, Option<Command>>;

/// None: nothing of it counts.
pub(super) async fn before(conn: &mut SqliteConnection, commands: &[Command]) -> Result<Option<Before>> {
    let ended: Vec<_> = commands.iter().filter(|command| command.status.is_final()).collect();
    if ended.is_empty() {
        return Ok(None);
    }
    let threads = to_json(&ended.iter().map(|command| command.thread.as_str()).collect::<Vec<_>>());
    let rows = sqlx::query(PROJECTS).bind(threads).fetch_all(&mut *conn).await?;
    let projects: HashMap<String, String> = rows.iter().map(|row| (row.get("id"), row.get("project_id"))).collect();
    if projects.is_empty() {
        return Ok(None);
    }
    let counts = ended.iter().filter(|command| projects.contains_key(command.thread.as_str()));
    let ids = to_json(&counts.map(|command| command.id.as_str()).collect::<Vec<_>>());
    let commands = known(conn, &ids).await?;
    Ok(Some(Before { ids, projects, commands }))
}

pub(super) async fn known(conn: &mut SqliteConnection, ids: &str) -> Result<Known> {
    let rows = sqlx::query(KNOWN).bind(ids).fetch_all(conn).await?;
    Ok(rows.iter().map(|row| (row.get("id"), parse(row).ok())).collect())
}

/// Counts what became of them.
pub(super) async fn count(conn: &mut SqliteConnection, before: &Before) -> Result<()> {
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    let mut errors = BTreeMap::new();
    let after = known(conn, &before.ids).await?;
    for (id, command) in &after {
        let (Some(command), earlier) = (command, before.commands.get(id)) else { continue };
        let Some(project) = before.projects.get(command.thread.as_str()) else { continue };
        if matches!(earlier, Some(None)) || matches!(earlier, Some(Some(earlier)) if earlier == command) {
            continue;
        }
        let more = Tally::between(earlier.and_then(Option::as_ref), command);
        let tally = tallies.entry(project).or_default();
        *tally = tally.and(more);
        let error = command.ending.as_ref().and_then(|ending| ending.error.as_ref());
        if let (Some(error), Some(at)) = (error, command.ended_at) {
            let newest = errors.entry(project).or_insert((at, &error.message));
            *newest = (*newest).max((at, &error.message));
        }
    }
    for (project, tally) in tallies.into_iter().filter(|(_, tally)| *tally != Tally::default()) {
        let query = sqlx::query(COUNT).bind(project).bind(tally.commands).bind(tally.failed);
        query.bind(tally.run_ms).bind(tally.output_bytes).execute(&mut *conn).await?;
    }
    for (project, (at, message)) in errors {
        sqlx::query(FAILED).bind(project).bind(signed(at.0)).bind(message).execute(&mut *conn).await?;
    }
    Ok(())
}
