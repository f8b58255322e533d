//! Migrations, and the check that the file has exactly the schema that they make. A schema that almost fits is the most
//! expensive kind: it fails in the middle of the night, in the statement that is used least. So any difference is told
//! at start, and nothing is adapted.

use sqlx::migrate::{Migrate, MigrateError, Migration, MigrationType, Migrator};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row, SqlSafeStr, SqliteConnection};
use std::collections::BTreeMap;

/// Each once, in order, for ever as it was: files are out there that have been made by it.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "layers", include_str!("../../../migrations/sqlite/0001_layers.sql")),
    (2, "env", include_str!("../../../migrations/sqlite/0002_env.sql")),
    (3, "tokens", include_str!("../../../migrations/sqlite/0003_tokens.sql")),
    (4, "moves", include_str!("../../../migrations/sqlite/0004_moves.sql")),
    (5, "projects", include_str!("../../../migrations/sqlite/0005_projects.sql")),
    (6, "upkeep", include_str!("../../../migrations/sqlite/0006_upkeep.sql")),
    (7, "agents", include_str!("../../../migrations/sqlite/0007_agents.sql")),
    (8, "agent policy", include_str!("../../../migrations/sqlite/0008_agent_policy.sql")),
    (9, "spent", include_str!("../../../migrations/sqlite/0009_spent.sql")),
    (10, "lineage", include_str!("../../../migrations/sqlite/0010_lineage.sql")),
];

const TABLE_OF_MIGRATIONS: &str = "_sqlx_migrations";

/// What to do about a difference that nobody should have made.
const MEND: &str = "restore a backup, or undo the change by hand; nothing has been changed now";

fn migrator() -> Migrator {
    let migrations = MIGRATIONS.iter().map(|(version, name, sql)| {
        Migration::new(*version, (*name).into(), MigrationType::Simple, sql.into_sql_str(), false)
    });
    Migrator::with_migrations(migrations.collect())
}

/// Runs the migrations that are missing, after a check that those which are not have made what they make, in one
/// transaction that other processes wait for. The inner result tells the operator what differs.
pub(super) async fn bring_up_to_date(
    conn: &mut SqliteConnection,
    application_id: i64,
) -> sqlx::Result<Result<(), String>> {
    let migrator = migrator();
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    let applied = match applied(&mut tx, &migrator).await? {
        Ok(applied) => applied,
        Err(what) => return Ok(Err(what)),
    };
    let live = Schema::read(&mut tx).await?;
    let made = Schema::made_by(&migrator, applied).await?;
    if let Some(difference) = live.difference(&made) {
        return Ok(Err(format!("{difference}; {MEND}")));
    }
    let newest = MIGRATIONS.last().map(|(version, ..)| *version);
    if applied == newest {
        return Ok(Ok(()));
    }
    if let Err(error) = migrator.run_direct(None, &mut *tx, false).await {
        return failed(error);
    }
    // Not a parameter: pragmas take none.
    sqlx::query(AssertSqlSafe(format!("PRAGMA application_id = {application_id}"))).execute(&mut *tx).await?;
    let wanted = Schema::made_by(&migrator, newest).await?;
    if let Some(difference) = Schema::read(&mut tx).await?.difference(&wanted) {
        return Ok(Err(format!("after its migrations {difference}; {MEND}")));
    }
    tx.commit().await?;
    Ok(Ok(()))
}

fn failed(error: MigrateError) -> sqlx::Result<Result<(), String>> {
    let said = error.to_string();
    if let MigrateError::Execute(cause) | MigrateError::ExecuteMigration(cause, _) = error
        && super::code(&cause) == Some(libsqlite3_sys::SQLITE_FULL)
    {
        return Err(cause);
    }
    Ok(Err(format!("its migrations can't be run ({said}); {MEND}")))
}

/// The newest migration that the file has had, if it has had those that we know, as we know them.
async fn applied(conn: &mut SqliteConnection, migrator: &Migrator) -> sqlx::Result<Result<Option<i64>, String>> {
    let table = sqlx::query("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = $1").bind(TABLE_OF_MIGRATIONS);
    if table.fetch_optional(&mut *conn).await?.is_none() {
        return Ok(Ok(None));
    }
    let applied = match conn.list_applied_migrations(TABLE_OF_MIGRATIONS).await {
        Ok(applied) => applied,
        Err(error) => return Ok(Err(format!("its table of migrations can't be read ({error}); {MEND}"))),
    };
    for migration in &applied {
        let Some(ours) = migrator.iter().find(|ours| ours.version == migration.version) else {
            return Ok(Err(format!(
                "it was written by a newer version, with migration {}, which this one doesn't know; run the newer \
                 version, or restore a backup from before",
                migration.version
            )));
        };
        if ours.checksum != migration.checksum {
            return Ok(Err(format!(
                "its migration {} is not the one of this version; run the version that made it, or restore a backup",
                migration.version
            )));
        }
    }
    let mut pairs = applied.iter().zip(migrator.iter());
    if let Some((_, skipped)) = pairs.find(|(applied, ours)| applied.version != ours.version) {
        return Ok(Err(format!("its migration {} is missing; {MEND}", skipped.version)));
    }
    Ok(Ok(applied.last().map(|migration| migration.version)))
}

/// Everything in a database that has a name, but not what SQLite keeps for itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Schema(BTreeMap<String, Item>);

#[derive(Debug, PartialEq, Eq)]
struct Item {
    /// table, index, view, trigger
    kind: String,
    /// Of a table: name to type and constraints.
    columns: BTreeMap<String, String>,
    /// Its statement, without regard to spaces.
    sql: String,
}

impl Schema {
    /// What the migrations make of an empty database, up to one of them.
    async fn made_by(migrator: &Migrator, newest: Option<i64>) -> sqlx::Result<Self> {
        let Some(newest) = newest else { return Ok(Self::default()) };
        let mut conn = SqliteConnectOptions::new().in_memory(true).connect().await?;
        // Ours are run by every test, so this has no case of its own.
        let made = migrator.run_direct(Some(newest), &mut conn, false).await;
        made.map_err(|error| sqlx::Error::Migrate(Box::new(error)))?;
        let schema = Self::read(&mut conn).await?;
        conn.close().await?;
        Ok(schema)
    }

    async fn read(conn: &mut SqliteConnection) -> sqlx::Result<Self> {
        let items =
            sqlx::query("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'");
        let columns = "SELECT m.name AS item, c.name AS name,
                         c.type || ' ' || c.\"notnull\" || ' ' || COALESCE(c.dflt_value, '') || ' ' || c.pk AS shape
                       FROM sqlite_master m JOIN pragma_table_xinfo(m.name) c WHERE m.type = 'table'";
        let mut schema = Self::default();
        for row in items.fetch_all(&mut *conn).await? {
            let sql: Option<String> = row.try_get("sql")?;
            let item =
                Item { kind: row.try_get("type")?, columns: BTreeMap::new(), sql: squeeze(&sql.unwrap_or_default()) };
            schema.0.insert(row.try_get("name")?, item);
        }
        for row in sqlx::query(columns).fetch_all(conn).await? {
            if let Some(item) = schema.0.get_mut(row.try_get::<&str, _>("item")?) {
                item.columns.insert(row.try_get("name")?, row.try_get("shape")?);
            }
        }
        Ok(schema)
    }

    /// The first thing that differs, as a clause about the database.
    fn difference(&self, wanted: &Self) -> Option<String> {
        for (name, item) in &wanted.0 {
            let Some(ours) = self.0.get(name) else { return Some(format!("its {} `{name}` is missing", item.kind)) };
            if let Some(column) = item.columns.keys().find(|column| !ours.columns.contains_key(*column)) {
                return Some(format!("its table `{name}` has no column `{column}`"));
            }
            if let Some(column) = ours.columns.keys().find(|column| !item.columns.contains_key(*column)) {
                return Some(format!("its table `{name}` has a column `{column}` that this version doesn't know"));
            }
            let changed = |(column, shape): &(&String, &String)| item.columns.get(*column) != Some(*shape);
            if let Some((column, _)) = ours.columns.iter().find(changed) {
                return Some(format!("the column `{column}` of its table `{name}` is of another type"));
            }
            if item != ours {
                return Some(format!("its {} `{name}` is defined otherwise", item.kind));
            }
        }
        let extra = self.0.iter().find(|(name, _)| !wanted.0.contains_key(*name))?;
        Some(format!("it has a {} `{}` that this version doesn't know", extra.1.kind, extra.0))
    }
}

/// Only the spaces that are between two words, and one of them.
fn squeeze(sql: &str) -> String {
    let mut squeezed = String::new();
    for word in sql.split_whitespace() {
        let apart = |c: char| c.is_alphanumeric() || c == '_';
        if squeezed.ends_with(apart) && word.starts_with(apart) {
            squeezed.push(' ');
        }
        squeezed += word;
    }
    squeezed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_in_a_definition_mean_nothing() {
        let one = squeeze("CREATE TABLE a (\n    b TEXT NOT NULL,\n  c INTEGER\n) STRICT");
        assert_eq!(one, squeeze("CREATE  TABLE a(b TEXT NOT NULL, c INTEGER)STRICT"));
        assert_ne!(one, squeeze("CREATE TABLE a(b TEXT, c INTEGER) STRICT"));
    }
}
