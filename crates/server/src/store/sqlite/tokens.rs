//! Tokens. The secret is not here, only its hash.

use super::row::{Cols, Stored, Wrong, one, page, parse, signed, to_json};
use super::{missing, statements};
use crate::store::{Page, Result, TokenHash};
use serde::{Deserialize, Serialize};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqlitePool;
use stead_model::access::{Right, Scope, Token};
use stead_model::clock::Timestamp;
use stead_model::ids::{ProjectId, TokenId};

statements! {
    INSERT = "INSERT INTO tokens (id, name, hash, scope, created_at, last_used_at, expires_at, revoked_at)
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    GET = "SELECT * FROM tokens WHERE id = $1";
    GET_BY_HASH = "SELECT * FROM tokens WHERE hash = $1";
    LIST = "SELECT * FROM tokens WHERE (created_at, id) < ($1, $2) ORDER BY created_at DESC, id DESC LIMIT $3";
    // A clock that was set back makes nothing older.
    TOUCH = "UPDATE tokens SET last_used_at = MAX(COALESCE(last_used_at, 0), $2) WHERE id = $1";
    // It is revoked once: what is said again later changes nothing.
    REVOKE = "UPDATE tokens SET revoked_at = COALESCE(revoked_at, $2) WHERE id = $1";
}

const KIND: &str = "token";

/// A scope as it is written.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum ScopeRow {
    Admin,
    Read,
    Projects { projects: Vec<String>, write: bool },
}

impl ScopeRow {
    fn of(scope: &Scope) -> Self {
        match scope {
            Scope::Admin => Self::Admin,
            Scope::Read => Self::Read,
            Scope::Projects { projects, right } => Self::Projects {
                projects: projects.iter().map(ToString::to_string).collect(),
                write: *right == Right::Write,
            },
        }
    }

    fn read(self) -> Result<Scope, Wrong> {
        match self {
            Self::Admin => Ok(Scope::Admin),
            Self::Read => Ok(Scope::Read),
            Self::Projects { projects, write } => {
                let projects = projects.iter().map(|id| ProjectId::parse(id).map_err(|error| error.to_string()));
                let right = if write { Right::Write } else { Right::Read };
                Ok(Scope::Projects { projects: projects.collect::<Result<_, Wrong>>()?, right })
            }
        }
    }
}

impl Stored for Token {
    const KIND: &'static str = KIND;
    const AGE: &'static str = "created_at";

    fn from_row(row: &Cols<'_>) -> Result<Self, Wrong> {
        Ok(Self {
            id: row.id("id")?,
            name: row.text("name")?,
            scope: row.json::<ScopeRow>("scope")?.read()?,
            created_at: row.moment("created_at")?,
            last_used_at: row.opt_moment("last_used_at")?,
            expires_at: row.opt_moment("expires_at")?,
            revoked_at: row.opt_moment("revoked_at")?,
        })
    }
}

/// A token with the hash of its secret.
struct Known(Token, TokenHash);

impl Stored for Known {
    const KIND: &'static str = KIND;
    const AGE: &'static str = "created_at";

    fn from_row(row: &Cols<'_>) -> Result<Self, Wrong> {
        let hash = row.bytes("hash")?.try_into().map_err(|_| "`hash` has not 32 bytes".to_owned())?;
        Ok(Self(Token::from_row(row)?, TokenHash(hash)))
    }
}

pub(super) async fn insert(conn: &mut SqliteConnection, token: &Token, hash: &TokenHash) -> Result<()> {
    let query = sqlx::query(INSERT)
        .bind(token.id.as_str())
        .bind(&token.name)
        .bind(&hash.0[..])
        .bind(to_json(&ScopeRow::of(&token.scope)))
        .bind(signed(token.created_at.0))
        .bind(token.last_used_at.map(|at| signed(at.0)))
        .bind(token.expires_at.map(|at| signed(at.0)))
        .bind(token.revoked_at.map(|at| signed(at.0)));
    query.execute(conn).await.map_err(|error| super::taken(error, KIND, token.id.as_str()))?;
    Ok(())
}

pub(super) async fn get(pool: &SqlitePool, id: &TokenId) -> Result<Option<Token>> {
    one(pool, GET, &[id.as_str()]).await
}

pub(super) async fn by_hash(pool: &SqlitePool, hash: &TokenHash) -> Result<Option<(Token, TokenHash)>> {
    let row = sqlx::query(GET_BY_HASH).bind(&hash.0[..]).fetch_optional(pool).await?;
    let known = row.map(|row| parse::<Known>(&row)).transpose()?;
    Ok(known.map(|Known(token, hash)| (token, hash)))
}

pub(super) async fn list(pool: &SqlitePool, at: &Page) -> Result<Vec<Token>> {
    page(pool, LIST, None, at).await
}

pub(super) async fn touch(conn: &mut SqliteConnection, id: &TokenId, at: Timestamp) -> Result<()> {
    set(conn, TOUCH, id, at).await
}

pub(super) async fn revoke(conn: &mut SqliteConnection, id: &TokenId, at: Timestamp) -> Result<()> {
    set(conn, REVOKE, id, at).await
}

async fn set(conn: &mut SqliteConnection, sql: &'static str, id: &TokenId, at: Timestamp) -> Result<()> {
    let done = sqlx::query(sql).bind(id.as_str()).bind(signed(at.0)).execute(conn).await?;
    if done.rows_affected() == 0 { Err(missing(KIND, id.as_str())) } else { Ok(()) }
}
