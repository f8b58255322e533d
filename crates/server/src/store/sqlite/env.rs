//! What was asked of terminals' environments.

use super::row::{Cols, Stored, Wrong, cbor, parse, signed, to_cbor};
use super::{Violation, missing, statements, violation};
use crate::store::{AskedEnv, Result, Sealed, SealedSecret, TerminalEnv};
use sqlx::SqliteConnection;
use sqlx::sqlite::{SqlitePool, SqliteRow};
use stead_model::env::Vars;
use stead_model::ids::TerminalId;
use stead_model::state::Bytes;

statements! {
    GET = "SELECT e.terminal_id, e.seq, e.pending, s.name, s.revision, s.nonce, s.sealed FROM terminal_env e
           LEFT JOIN terminal_secrets s ON s.terminal_id = e.terminal_id
           WHERE e.terminal_id = $1 ORDER BY s.name";
    PUT = "INSERT INTO terminal_env (terminal_id, seq, pending) VALUES ($1, $2, $3)
           ON CONFLICT (terminal_id) DO UPDATE SET seq = excluded.seq, pending = excluded.pending";
    TAKEN = "UPDATE terminal_env SET pending = $3 WHERE terminal_id = $1 AND seq = $2";
    PUT_SECRET = "INSERT INTO terminal_secrets (terminal_id, name, revision, nonce, sealed) VALUES ($1, $2, $3, $4, $5)
                  ON CONFLICT (terminal_id, name) DO UPDATE
                  SET revision = excluded.revision, nonce = excluded.nonce, sealed = excluded.sealed";
    DELETE_SECRET = "DELETE FROM terminal_secrets WHERE terminal_id = $1 AND name = $2";
}

/// A terminal's environment beside one of its secrets.
struct Row {
    seq: u64,
    pending: Vars,
    secret: Option<SealedSecret>,
}

impl Stored for Row {
    const KIND: &'static str = "environment";
    const AGE: &'static str = "seq";

    fn from_row(row: &Cols<'_>) -> Result<Self, Wrong> {
        let pending: Vec<(Bytes, Option<Bytes>)> = cbor("pending", &row.bytes("pending")?)?;
        let secret = match row.opt_bytes("name")? {
            Some(name) => {
                let sealed = Sealed { nonce: row.bytes("nonce")?, bytes: row.bytes("sealed")? };
                Some(SealedSecret { name: Bytes(name), revision: row.number("revision")?, sealed })
            }
            None => None,
        };
        Ok(Self { seq: row.number("seq")?, pending: pending.into_iter().collect(), secret })
    }

    fn name(row: &Cols<'_>) -> String {
        row.text("terminal_id").unwrap_or_else(|_| "?".to_owned())
    }
}

pub(super) async fn get(pool: &SqlitePool, terminal: &TerminalId) -> Result<TerminalEnv> {
    read(sqlx::query(GET).bind(terminal.as_str()).fetch_all(pool).await?)
}

fn read(rows: Vec<SqliteRow>) -> Result<TerminalEnv> {
    let mut env = TerminalEnv::default();
    for row in rows {
        let Row { seq, pending, secret } = parse(&row)?;
        (env.seq, env.pending) = (seq, pending);
        env.secrets.extend(secret);
    }
    Ok(env)
}

pub(super) async fn change(
    conn: &mut SqliteConnection,
    terminal: &TerminalId,
    asked: &AskedEnv,
) -> Result<TerminalEnv> {
    let mut env = read(sqlx::query(GET).bind(terminal.as_str()).fetch_all(&mut *conn).await?)?;
    env.change(asked);
    let id = terminal.as_str();
    let put = sqlx::query(PUT).bind(id).bind(signed(env.seq)).bind(stored(&env.pending));
    if let Err(error) = put.execute(&mut *conn).await {
        return Err(match violation(&error) {
            Some(Violation::ForeignKey) => missing("terminal", id),
            Some(Violation::PrimaryKey | Violation::Unique) | None => error.into(),
        });
    }
    for (name, sealed) in &asked.secrets {
        let query = match sealed {
            Some(sealed) => sqlx::query(PUT_SECRET)
                .bind(id)
                .bind(name.0.as_slice())
                .bind(signed(env.seq))
                .bind(sealed.nonce.as_slice())
                .bind(sealed.bytes.as_slice()),
            None => sqlx::query(DELETE_SECRET).bind(id).bind(name.0.as_slice()),
        };
        query.execute(&mut *conn).await?;
    }
    Ok(env)
}

pub(super) async fn taken(conn: &mut SqliteConnection, terminal: &TerminalId, seq: u64) -> Result<()> {
    let query = sqlx::query(TAKEN).bind(terminal.as_str()).bind(signed(seq)).bind(stored(&Vars::new()));
    query.execute(conn).await?;
    Ok(())
}

fn stored(vars: &Vars) -> Vec<u8> {
    to_cbor(&vars.iter().map(|(name, value)| (name.clone(), value.clone())).collect::<Vec<_>>())
}
