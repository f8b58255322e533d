//! Projects.

use super::row::{Cols, Stored, Wrong, one, page, signed};
use super::statements;
use crate::store::{Page, Result};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqlitePool;
use stead_model::ids::ProjectId;
use stead_model::project::Project;

statements! {
    INSERT = "INSERT INTO projects (id, prefix, created_at) VALUES ($1, $2, $3)";
    GET = "SELECT * FROM projects WHERE id = $1";
    LIST = "SELECT * FROM projects WHERE (created_at, id) < ($1, $2) ORDER BY created_at DESC, id DESC LIMIT $3";
}

const KIND: &str = "project";

impl Stored for Project {
    const KIND: &'static str = KIND;
    const AGE: &'static str = "created_at";

    fn from_row(row: &Cols<'_>) -> Result<Self, Wrong> {
        Ok(Self { id: row.id("id")?, prefix: row.text("prefix")?, created_at: row.moment("created_at")? })
    }
}

pub(super) async fn insert(conn: &mut SqliteConnection, project: &Project) -> Result<()> {
    let query = sqlx::query(INSERT).bind(project.id.as_str()).bind(&project.prefix).bind(signed(project.created_at.0));
    query.execute(conn).await.map_err(|error| super::taken(error, KIND, project.id.as_str()))?;
    Ok(())
}

pub(super) async fn get(pool: &SqlitePool, id: &ProjectId) -> Result<Option<Project>> {
    one(pool, GET, &[id.as_str()]).await
}

pub(super) async fn list(pool: &SqlitePool, at: &Page) -> Result<Vec<Project>> {
    page(pool, LIST, None, at).await
}
