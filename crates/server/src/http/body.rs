//! What comes in, checked: JSON bodies, query strings, names in paths. A wrong one is told by what is wrong with it.

use super::listen::{BodyWithin, Limits};
use super::problem::Problem;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use std::fmt::Display;
use std::str::FromStr;

/// A JSON body; unknown fields, wrong types and trailing text are refused. An empty one is `{}` where that will do.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or("").to_owned());
        let is_json = kind.as_deref().is_none_or(|kind| {
            let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            // The last is what `curl -d` says of anything.
            kind == "application/json" || kind.ends_with("+json") || kind == "application/x-www-form-urlencoded"
        });
        let Raw(bytes) = Raw::from_request(request, state).await?;
        if !is_json && !bytes.is_empty() {
            return Err(
                Problem::invalid("the body is not said to be JSON").hint("send `Content-Type: application/json`")
            );
        }
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        // Serde would take a list for an object, its fields in their order.
        if !text.trim_ascii_start().starts_with(b"{") {
            return Err(Problem::invalid("the body is not a JSON object"));
        }
        let value = serde_json::from_slice(text).map_err(|error| Problem::invalid(format!("the body: {error}")))?;
        Ok(Self(value))
    }
}

/// An object within a body, and no list of what its fields might be.
pub(super) fn object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let object: Option<serde_json::Map<String, serde_json::Value>> = Option::deserialize(deserializer)?;
    let read = |object| serde_json::from_value(serde_json::Value::Object(object)).map_err(D::Error::custom);
    object.map(read).transpose()
}

/// A body as it is, as large as this server takes and in the time it has for it.
#[derive(Debug)]
pub(crate) struct Raw(pub(crate) Bytes);

/// Of a body that is kept in memory.
pub(super) const MOST_BODY: usize = 2 << 20;

fn too_large() -> Problem {
    Problem::new("too_large", format!("the body is larger than {MOST_BODY} bytes"))
        .hint("send files with `PUT /api/threads/{id}/files`")
}

impl<S: Send + Sync> FromRequest<S> for Raw {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let length =
            request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: u64| length > MOST_BODY as u64) {
            return Err(too_large());
        }
        let BodyWithin(within) = *request.extensions().get().unwrap_or(&BodyWithin(Limits::default().body));
        let read = tokio::time::timeout(within, Bytes::from_request(request, state)).await;
        let late = |_| Problem::invalid(format!("the body did not come within {} s", within.as_secs()));
        read.map_err(late)?.map(Self).map_err(|refused| {
            if refused.status() == StatusCode::PAYLOAD_TOO_LARGE {
                too_large()
            } else {
                Problem::invalid(format!("the body can't be read: {}", refused.body_text()))
            }
        })
    }
}

/// The query string; a parameter that means nothing here is refused.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = axum::extract::Query::from_request_parts(parts, state).await;
        let query = query.map_err(|refused| Problem::invalid(format!("the query: {}", refused.body_text())))?;
        Ok(Self(query.0))
    }
}

/// The one name in a path, checked.
#[derive(Debug)]
pub(crate) struct Named<T>(pub(crate) T);

impl<T, S> FromRequestParts<S> for Named<T>
where
    T: FromStr,
    T::Err: Display,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        named(parts, state).await.map(Self)
    }
}

/// The first name in a path.
pub(super) async fn named<T, S>(parts: &mut Parts, state: &S) -> Result<T, Problem>
where
    T: FromStr,
    T::Err: Display,
    S: Send + Sync,
{
    let names = Path::<Vec<(String, String)>>::from_request_parts(parts, state).await;
    // Not UTF-8.
    let names = names.map_err(|refused| Problem::invalid(format!("the path: {}", refused.body_text())))?;
    let (_, first) = names.first().ok_or_else(|| Problem::invalid("the path names nothing"))?;
    named_as(first)
}

pub(super) fn named_as<T>(text: &str) -> Result<T, Problem>
where
    T: FromStr,
    T::Err: Display,
{
    text.parse().map_err(|error: T::Err| Problem::invalid(error.to_string()))
}
