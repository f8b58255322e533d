//! One request, before it is sent.

use super::{HeaderName, Method, Value, header};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use std::fmt::Write;
use tokio::sync::mpsc;

pub(crate) type Payload = UnsyncBoxBody<Bytes, std::io::Error>;

#[derive(Debug)]
pub(crate) struct Call {
    pub(super) method: Method,
    /// With its query.
    pub(super) path: String,
    pub(super) headers: Vec<(HeaderName, String)>,
    pub(super) payload: Payload,
    /// The same bytes once more, where sending them twice is the same as once.
    repeatable: Option<Bytes>,
}

impl Call {
    fn new(method: Method, path: &str) -> Self {
        let repeatable = (method != Method::POST).then(Bytes::new);
        Self { method, path: path.to_owned(), headers: Vec::new(), payload: whole(Bytes::new()), repeatable }
    }

    pub(crate) fn get(path: &str) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn post(path: &str) -> Self {
        Self::new(Method::POST, path)
    }

    pub(crate) fn put(path: &str) -> Self {
        Self::new(Method::PUT, path)
    }

    pub(crate) fn delete(path: &str) -> Self {
        Self::new(Method::DELETE, path)
    }

    pub(crate) fn header(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn document(self, body: &Value) -> Self {
        self.header(header::CONTENT_TYPE, "application/json").bytes(Bytes::from(body.to_string()))
    }

    pub(crate) fn bytes(mut self, body: Bytes) -> Self {
        self.repeatable = self.repeatable.map(|_| body.clone());
        self.payload = whole(body);
        self
    }

    /// A body that is made while it is sent, so that it can't be sent twice.
    pub(crate) fn stream(mut self, pieces: mpsc::Receiver<std::io::Result<Bytes>>) -> Self {
        self.repeatable = None;
        let frames = futures_util::stream::unfold(pieces, |mut pieces| async {
            let piece = pieces.recv().await?;
            Some((piece.map(Frame::data), pieces))
        });
        self.payload = BodyExt::boxed_unsync(StreamBody::new(frames));
        self
    }

    /// The same call again, if it does no harm.
    pub(super) fn again(&self) -> Option<Self> {
        let body = self.repeatable.clone()?;
        Some(Self {
            method: self.method.clone(),
            path: self.path.clone(),
            headers: self.headers.clone(),
            payload: whole(body.clone()),
            repeatable: Some(body),
        })
    }
}

fn whole(body: Bytes) -> Payload {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

/// A name as one part of a path.
pub(crate) fn segment(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// A path with a query.
pub(crate) fn query(path: &str, fields: &[(&str, &str)]) -> String {
    let mut out = path.to_owned();
    for (name, value) in fields {
        let joint = if out.contains('?') { '&' } else { '?' };
        let _ = write!(out, "{joint}{name}={}", segment(value));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_where_a_path_would_read_them_otherwise() {
        assert_eq!(segment("user:42.a_b-c~"), "user:42.a_b-c~");
        assert_eq!(segment("a/b c?&%\u{fc}"), "a%2Fb%20c%3F%26%25%C3%BC");
        assert_eq!(query("/x", &[("path", "/a b"), ("n", "1")]), "/x?path=%2Fa%20b&n=1");
        assert_eq!(query("/x?y=1", &[("z", "2")]), "/x?y=1&z=2");
    }

    #[test]
    fn what_may_have_an_effect_is_not_sent_twice() {
        assert!(Call::get("/").again().is_some());
        assert!(Call::put("/").bytes(Bytes::from_static(b"x")).again().is_some());
        assert!(Call::post("/").document(&Value::Null).again().is_none());
        let (_, pieces) = mpsc::channel(1);
        assert!(Call::put("/").stream(pieces).again().is_none());
    }
}
