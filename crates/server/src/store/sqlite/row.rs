//! From rows to what they mean. A row that means nothing is [`StoreError::Corrupt`] and is named; in a list it is passed
//! over and logged, so that one bad row doesn't hide the others.

use crate::store::{Page, Result, StoreError};
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{Row, Sqlite};
use std::time::Duration;
use stead_model::clock::Timestamp;
use stead_model::session::Policy;

/// What is wrong with a row, for people.
pub(super) type Wrong = String;

/// Something that is kept in rows.
pub(super) trait Stored: Sized {
    const KIND: &'static str;
    /// By what lists are ordered, before the id.
    const AGE: &'static str;

    fn from_row(row: &Cols<'_>) -> Result<Self, Wrong>;

    /// What names the row to an operator.
    fn name(row: &Cols<'_>) -> String {
        row.text("id").unwrap_or_else(|_| "?".to_owned())
    }
}

/// The columns of a row, each as what it has to be.
pub(super) struct Cols<'r>(&'r SqliteRow);

impl Cols<'_> {
    fn get<'a, T>(&'a self, column: &str) -> Result<T, Wrong>
    where
        T: sqlx::Decode<'a, Sqlite> + sqlx::Type<Sqlite>,
    {
        self.0.try_get(column).map_err(|error| format!("`{column}`: {error}"))
    }

    pub(super) fn text(&self, column: &str) -> Result<String, Wrong> {
        self.get(column)
    }

    pub(super) fn opt_text(&self, column: &str) -> Result<Option<String>, Wrong> {
        self.get(column)
    }

    pub(super) fn number(&self, column: &str) -> Result<u64, Wrong> {
        let number: i64 = self.get(column)?;
        u64::try_from(number).map_err(|_| format!("`{column}` is {number}"))
    }

    pub(super) fn moment(&self, column: &str) -> Result<Timestamp, Wrong> {
        self.number(column).map(Timestamp)
    }

    pub(super) fn opt_moment(&self, column: &str) -> Result<Option<Timestamp>, Wrong> {
        let present: Option<i64> = self.get(column)?;
        present.map(|_| self.moment(column)).transpose()
    }

    pub(super) fn bytes(&self, column: &str) -> Result<Vec<u8>, Wrong> {
        self.get(column)
    }

    pub(super) fn opt_bytes(&self, column: &str) -> Result<Option<Vec<u8>>, Wrong> {
        self.get(column)
    }

    /// A text that has to be one of our ids.
    pub(super) fn id<T: std::str::FromStr<Err: std::fmt::Display>>(&self, column: &str) -> Result<T, Wrong> {
        self.text(column)?.parse().map_err(|error| format!("`{column}`: {error}"))
    }

    pub(super) fn opt_id<T: std::str::FromStr<Err: std::fmt::Display>>(
        &self,
        column: &str,
    ) -> Result<Option<T>, Wrong> {
        self.opt_text(column)?.map(|_| self.id(column)).transpose()
    }

    /// A list of ids, as JSON.
    pub(super) fn ids<T: std::str::FromStr<Err: std::fmt::Display>>(&self, column: &str) -> Result<Vec<T>, Wrong> {
        let texts: Vec<String> = self.json(column)?;
        texts.iter().map(|text| text.parse().map_err(|error| format!("`{column}`: {error}"))).collect()
    }

    /// A text that has to be one of the words of an enum.
    pub(super) fn word<T>(&self, column: &str, parse: fn(&str) -> Option<T>) -> Result<T, Wrong> {
        let text = self.text(column)?;
        parse(&text).ok_or_else(|| format!("`{column}` is `{text}`"))
    }

    pub(super) fn json<T: serde::de::DeserializeOwned>(&self, column: &str) -> Result<T, Wrong> {
        serde_json::from_str(&self.text(column)?).map_err(|error| format!("`{column}`: {error}"))
    }

    pub(super) fn policy(&self) -> Result<Policy, Wrong> {
        Ok(Policy {
            idle_timeout: Duration::from_millis(self.number("idle_timeout")?),
            max_duration: Duration::from_millis(self.number("max_duration")?),
        })
    }
}

/// A CBOR value in a column.
pub(super) fn cbor<T: for<'b> minicbor::Decode<'b, ()>>(column: &str, bytes: &[u8]) -> Result<T, Wrong> {
    minicbor::decode(bytes).map_err(|error| format!("`{column}`: {error}"))
}

/// To CBOR, into memory.
pub(super) fn to_cbor<T: minicbor::Encode<()>>(value: &T) -> Vec<u8> {
    // The only failure is that of the writer, and a vector has none.
    minicbor::to_vec(value).unwrap_or_default()
}

/// To JSON of texts, which has no way to fail.
pub(super) fn to_json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// SQLite's numbers have a sign. No version gets so far, and a moment beyond is "never" either way.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn parse<T: Stored>(row: &SqliteRow) -> Result<T> {
    let cols = Cols(row);
    T::from_row(&cols).map_err(|what| StoreError::Corrupt { kind: T::KIND, id: T::name(&cols), what })
}

/// What can be read of some rows; what can't is logged.
pub(super) fn readable<T: Stored>(rows: &[SqliteRow]) -> Vec<T> {
    let readable = rows.iter().filter_map(|row| {
        parse(row).inspect_err(|error| tracing::error!(%error, "left a row out of a list that can't be read")).ok()
    });
    readable.collect()
}

/// One row by what is unique about it.
pub(super) async fn one<T: Stored>(pool: &SqlitePool, sql: &'static str, keys: &[&str]) -> Result<Option<T>> {
    let mut query = sqlx::query(sql);
    for key in keys {
        query = query.bind(*key);
    }
    let row = query.fetch_optional(pool).await.map_err(StoreError::from)?;
    row.map(|row| parse(&row)).transpose()
}

/// Newest first, from a place on. The statement takes the place as `$1` (age) and `$2` (id), how many as `$3`, and as
/// `$4` what the list is of.
///
/// A page is full unless the list is at its end, whatever rows had to be left out.
pub(super) async fn page<T: Stored>(
    pool: &SqlitePool,
    sql: &'static str,
    of: Option<&str>,
    page: &Page,
) -> Result<Vec<T>> {
    let limit = page.limit as usize;
    // Before everything: ids are ASCII.
    let beginning = || (Timestamp(u64::MAX), "\u{10ffff}".to_owned());
    let (mut at, mut id) = page.after.clone().unwrap_or_else(beginning);
    let mut items = Vec::new();
    while items.len() < limit {
        let wanted = limit - items.len();
        let query = sqlx::query(sql).bind(signed(at.0)).bind(id).bind(i64::try_from(wanted).unwrap_or(i64::MAX));
        let rows = query.bind(of).fetch_all(pool).await.map_err(StoreError::from)?;
        items.extend(readable(&rows));
        match rows.last() {
            Some(last) if rows.len() == wanted => {
                let last = Cols(last);
                let place = last.moment(T::AGE).and_then(|at| Ok((at, last.text("id")?)));
                (at, id) = place.map_err(|what| StoreError::Corrupt { kind: T::KIND, id: T::name(&last), what })?;
            }
            Some(_) | None => break,
        }
    }
    Ok(items)
}

/// All of a list that is short by its nature.
pub(super) async fn all<T: Stored>(pool: &SqlitePool, sql: &'static str, of: Option<&str>) -> Result<Vec<T>> {
    page(pool, sql, of, &Page::all()).await
}
