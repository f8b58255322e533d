//! Query strings with a path in them. A path is bytes, not text: it is decoded by itself.

use super::super::problem::{Answer, Problem};
use crate::files::Page;
use axum::extract::{FromRequestParts, Query};
use axum::http::Uri;
use axum::http::request::Parts;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// `path`, and the other parameters.
#[derive(Debug)]
pub(super) struct At<T> {
    path: Option<Vec<u8>>,
    pub(super) rest: T,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

impl<T> At<T> {
    pub(super) fn path(&self) -> Answer<&[u8]> {
        self.path.as_deref().ok_or_else(|| Problem::invalid("`path` is missing"))
    }

    /// The workspace, if nothing is said.
    pub(super) fn path_or_workspace(&self) -> &[u8] {
        self.path.as_deref().unwrap_or(b".")
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for At<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        read(parts.uri.query().unwrap_or_default())
    }
}

fn read<T: DeserializeOwned>(query: &str) -> Answer<At<T>> {
    let (mut path, mut rest) = (None, Vec::new());
    for pair in query.split('&') {
        match pair.split_once('=').unwrap_or((pair, "")) {
            ("path", _) if path.is_some() => return Err(Problem::invalid("`path` is there twice")),
            ("path", text) => {
                let text = text.replace('+', " ");
                path = Some(percent_encoding::percent_decode_str(&text).collect());
            }
            _ => rest.push(pair),
        }
    }
    let uri = format!("/?{}", rest.join("&")).parse::<Uri>();
    let uri = uri.map_err(|_| Problem::invalid("the query can't be read"))?;
    let rest =
        Query::try_from_uri(&uri).map_err(|refused| Problem::invalid(format!("the query: {}", refused.body_text())))?;
    Ok(At { path, rest: rest.0 })
}

const MOST: usize = 1000;

/// `limit` and `cursor`, as every list has them.
pub(in super::super) fn page(limit: Option<usize>, cursor: Option<&str>) -> Answer<Page> {
    let limit = limit.unwrap_or(100);
    if !(1..=MOST).contains(&limit) {
        return Err(Problem::invalid(format!("`limit` is from 1 to {MOST}")));
    }
    let after = cursor.map(|cursor| URL_SAFE_NO_PAD.decode(cursor)).transpose();
    Ok(Page { limit, after: after.map_err(|_| Problem::invalid("`cursor` is none of ours"))? })
}

pub(in super::super) fn cursor(next: Option<Vec<u8>>) -> Option<String> {
    next.map(|next| URL_SAFE_NO_PAD.encode(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Depth {
        depth: Option<u64>,
    }

    #[test]
    fn a_path_is_decoded_once_and_to_bytes() {
        let cases: [(&str, Option<&[u8]>); 8] = [
            ("path=a%2Fb+c", Some(b"a/b c")),
            ("path=%FF&depth=2", Some(b"\xff")),
            ("depth=1&path=%252e%252e", Some(b"%2e%2e")),
            ("path=", Some(b"")),
            ("path", Some(b"")),
            ("", None),
            ("path=a%00b", Some(b"a\0b")),
            ("path=a=b", Some(b"a=b")),
        ];
        for (query, path) in cases {
            assert_eq!(read::<Depth>(query).unwrap().path.as_deref(), path, "{query}");
        }
        assert_eq!(read::<Depth>("depth=7&path=x").unwrap().rest, Depth { depth: Some(7) });
        for query in ["path=a&path=b", "other=1", "depth=x", "Path=a"] {
            assert_eq!(read::<Depth>(query).unwrap_err().detail().code, "invalid_request", "{query}");
        }
    }

    #[test]
    fn a_cursor_comes_back_as_it_was() {
        let text = cursor(Some(b"a/\xff".to_vec())).unwrap();
        assert_eq!(page(None, Some(&text)).unwrap(), Page { limit: 100, after: Some(b"a/\xff".to_vec()) });
        for (limit, cursor) in [(Some(0), None), (Some(1001), None), (None, Some("!"))] {
            assert!(page(limit, cursor).is_err());
        }
    }
}
