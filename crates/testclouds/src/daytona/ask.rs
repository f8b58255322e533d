//! One request, and what is wrong with it. What the reference doesn't know is a violation.

use super::API_KEY;
use crate::faults::Fault;
use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// Headers of its own that it knows.
const KNOWN: [&str; 4] =
    ["x-daytona-source", "x-daytona-sdk-version", "x-daytona-skip-last-activity-update", "x-daytona-split-output"];

pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) path: String,
    query: BTreeMap<String, String>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) fault: Option<Fault>,
}

/// A refusal.
#[derive(Debug)]
pub(super) struct No {
    status: u16,
    code: Option<&'static str>,
    pub(super) message: String,
    pub(super) is_violation: bool,
}

impl No {
    pub(super) fn refuses(status: u16, message: impl Into<String>) -> Self {
        Self { status, code: None, message: message.into(), is_violation: false }
    }

    pub(super) fn violates(message: impl Into<String>) -> Self {
        Self { status: 400, code: None, message: message.into(), is_violation: true }
    }

    pub(super) fn with(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    pub(super) fn answer(&self, method: &Method, path: &str) -> Response {
        let source = if path.starts_with("/toolbox") { "DAYTONA_DAEMON" } else { "DAYTONA_API" };
        let mut said = serde_json::json!({
            "statusCode": self.status, "message": self.message, "path": path, "method": method.as_str(),
            "source": source, "timestamp": jiff::Timestamp::now().to_string(),
        });
        if let Some(code) = self.code {
            said["code"] = code.into();
        }
        json(self.status, &said)
    }
}

impl Ask {
    pub(super) fn new(parts: Parts, body: Bytes, fault: Option<Fault>) -> Self {
        let decoded = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pairs = parts.uri.query().unwrap_or("").split('&').filter(|pair| !pair.is_empty());
        let query = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Self {
            method: parts.method,
            path: percent_decode_str(parts.uri.path()).decode_utf8_lossy().into_owned(),
            query: query.map(|(name, value)| (decoded(name), decoded(value))).collect(),
            headers: parts.headers,
            body,
            fault,
        }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// What every request must have.
    pub(super) fn check(&self) -> Result<(), No> {
        let authorization = self.header("authorization").ok_or_else(|| No::violates("no authorization"))?;
        let key = authorization.strip_prefix("Bearer ").ok_or_else(|| No::violates("no bearer"))?;
        if key != API_KEY {
            return Err(No::refuses(401, "Invalid credentials"));
        }
        if self.header("x-daytona-source").is_none_or(str::is_empty) {
            return Err(No::violates("it doesn't say what it comes from"));
        }
        let version = self.header("x-daytona-sdk-version").unwrap_or("");
        let numbers: Vec<u32> = version.split('.').map_while(|number| number.parse().ok()).collect();
        if numbers.len() != 3 || numbers < vec![0, 167, 0] {
            return Err(No::violates(format!("the version `{version}` is answered in another form")));
        }
        let own = self.headers.keys().filter(|name| name.as_str().starts_with("x-daytona"));
        match own.into_iter().find(|name| !KNOWN.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(No::violates(format!("unknown header `{name}`"))),
        }
    }

    /// The queries that this call knows, and no others.
    pub(super) fn knows(&self, names: &[&str]) -> Result<&Self, No> {
        match self.query.keys().find(|name| !names.contains(&name.as_str())) {
            None => Ok(self),
            Some(name) => Err(No::violates(format!("unknown query `{name}`"))),
        }
    }

    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    pub(super) fn needs(&self, name: &str) -> Result<&str, No> {
        self.query(name).filter(|value| !value.is_empty()).ok_or_else(|| No::violates(format!("no query `{name}`")))
    }

    /// Nothing but the path.
    pub(super) fn plain(&self) -> Result<(), No> {
        self.knows(&[])?;
        if self.body.is_empty() { Ok(()) } else { Err(No::violates("a body that nobody reads")) }
    }

    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, No> {
        let kind = self.header("content-type").unwrap_or("");
        if !kind.starts_with("application/json") {
            return Err(No::violates(format!("JSON sent as `{kind}`")));
        }
        serde_json::from_slice(&self.body).map_err(|error| No::violates(error.to_string()))
    }
}

pub(super) fn json(status: u16, value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).unwrap();
    Response::builder().status(status).header("content-type", "application/json").body(Body::from(body)).unwrap()
}

pub(super) fn nothing(status: u16) -> Response {
    Response::builder().status(status).body(Body::empty()).unwrap()
}
